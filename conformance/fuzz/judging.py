"""Judge a drawn operation on subjects, by every solver, and describe faults so that they can be distinguished."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from dualdnn.api.operations import TensorSpec
from dualdnn.api.status import CudnnError

from ..calls import Caller, roomy, sized
from ..calls.caller import function_of
from ..differences.occurrences import what
from ..domains.variations import MAX_BYTES
from ..refusals.carried import NotCarried, fault, is_refusal, refusal
from ..solvers import ALL, PREFERRED, Used, by_solvers, noted, races_reported, threads_ordered, with_workspace
from ..subjects import NotRunnable, Subject
from ..trial import Outgrown, Step, Trial, attempt_chain, prepare
from . import held
from .entries import Entry

OF_RACES = 8  # The race reports of the emulated device are on for every eighth seed, because launches take longer.
CONFIRMATIONS = 3  # extra seeds under which an output must be suspect; one seed alone may be chance for small outputs
UNCALLED = ("too large", "without inputs", "another operation")  # changed operations that no subject is judged by
UNTOLD = "not called"
CELL = " | "  # separates the row and the column of a cell of a coverage table
TAIL = 32  # last elements of a tensor that count as its tail


class Key(NamedTuple):
    """Identify a fault by where and how it shows."""

    family: str
    operation: str
    subject: str
    solver: str
    what: str


@dataclass(frozen=True)
class Finding:
    """Hold a fault, its description, and the entry that shows it."""

    key: Key
    text: str
    entry: Entry


@dataclass
class Judge:
    """Hold the subjects with a handle each.

    used: family -> what its operations used. facts: (family, fact, value) -> count. unasked: subjects that lack the call
    of the last operation.
    """

    subjects: Sequence[Subject]
    solvers: str = ALL
    used: dict[str, Used] = field(default_factory=dict)
    facts: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    unasked: int = 0

    def __post_init__(self) -> None:
        self.callers = [Caller(s.cudnn, s.new_handle(), any_engine=not s.cites_clauses) for s in self.subjects]

    def examine(self, entry: Entry) -> Finding | None:
        """Return the first fault that the entry shows on a subject, or None."""
        self.unasked = 0
        # A changed operation may have no dimensions to count.
        changed = [("operation", type(entry.drawn.operation).__name__)]
        for facts in changed if entry.drawn.varied else facts_of(entry):
            self.facts[entry.family, *facts] += 1
        refusals = list[str]()
        found = (
            self._examine_on(subject, caller, entry, refusals)
            for subject, caller in zip(self.subjects, self.callers, strict=True)
        )
        return next(filter(None, found), None)

    def _examine_on(self, subject: Subject, caller: Caller, entry: Entry, refusals: list[str]) -> Finding | None:
        """Return the first fault on one subject. refusals: how the earlier subjects refused the operation."""
        drawn, used = entry.drawn, Used()
        solver_now = ""

        def finding(said: str, text: str) -> Finding:
            key = Key(entry.family, type(drawn.operation).__name__, subject.name, solver_now, said)
            return Finding(key, text, entry)

        def attempted(number: int, solver: str | None) -> tuple[Trial, list[str]]:
            ready = with_workspace(caller.handle, steps) if solver else steps
            again = replace(entry, seed=entry.seed + number)
            result = attempt_chain(caller, ready, again.seed, again.before, dict(drawn.offsets))
            return result, [said for one in result.whole for said in one.verdict.suspicions] if subject.ours else []

        def run(solver: str | None) -> Finding | None:
            nonlocal solver_now
            solver_now = solver or solver_now
            result, suspicions = attempted(0, solver)
            if not result.passed:
                text = result.explanation()
                return finding(what(text) + (f", {side(result)}" if result.verdict.worst else ""), text)
            if suspicions and all(attempted(number, solver)[1] for number in range(1, 1 + CONFIRMATIONS)):
                return finding("suspect " + suspicions[0].partition(":")[0], "; ".join(suspicions))
            return None

        try:
            if subject.ours and (text := held.fault(caller, drawn.steps[-1])):
                return finding("descriptors", text)
            if drawn.varied:
                self.unasked += not subject.cites_clauses
                answer, text = answered(caller, entry) if subject.cites_clauses else ("", "")
                refusals.append(UNTOLD if answer in UNCALLED else answer)
                self.facts[entry.family, "changed operations", answer or "accepted"] += 1
                if len({*refusals} - {UNTOLD}) > 1:
                    told = (
                        f"{one.name}: {said or 'accepted'}" for one, said in zip(self.subjects, refusals, strict=False)
                    )
                    text = text or "; ".join(told)
                if text:
                    return finding("refusals", f"{text}: {drawn.steps[-1]}")
                # No call can check that those of a chain agree, as on windows, so that their results may be any.
                if answer or not subject.cites_clauses or len(drawn.steps) > 1:
                    return None
            ready = [sized(caller, step) for step in drawn.steps]
            if not subject.ours:  # A foreign library keeps other data in its spaces.
                ready = [roomy(caller, step) for step in ready]
            steps = [Step(step, dict(drawn.aliases), drawn.inputs) for step in ready]
            wanted = self.solvers if hasattr(getattr(caller.handle, "backend", None), "solvers") else PREFERRED
            if drawn.refused:
                self.unasked += not subject.cites_clauses
                text = fault(caller, ready[0], drawn.refused) if subject.cites_clauses else ""
                return finding("refusals", text) if text else None
            watched = races_reported(caller.handle) if entry.seed % OF_RACES == OF_RACES - 1 else nullcontext()
            with noted(used), threads_ordered(caller.handle, str(entry)), watched:
                return by_first(caller.handle, steps, run, wanted, used)
        except Outgrown:  # A changed call needs more memory than the calls before it.
            return None
        except NotRunnable:  # A library without this call cannot be asked.
            self.unasked += 1
            return None
        except CudnnError as error:
            return finding(f"{error.status.name} [{error.clause}]", str(error))
        except Exception as error:  # A failing kernel and a mistake of the backend are findings too.
            return finding(type(error).__name__, str(error) or type(error).__name__)
        finally:
            self._count(entry, used)

    def _count(self, entry: Entry, used: Used) -> None:
        """Add what one operation used to its family's coverage."""
        of_family = self.used.setdefault(entry.family, Used())
        for fact, names in (("solver", used.solvers), ("kernel", used.kernels)):
            for table, cell in tables_of(entry, fact, names) if not entry.drawn.varied else ():
                self.facts[entry.family, table, cell] += 1
        for name, found in vars(used).items():
            getattr(of_family, name).update(found)


def answered(caller: Caller, entry: Entry) -> tuple[str, str]:
    """Return how a changed operation is refused, or an empty text, and what is wrong with the refusal, or an empty text.

    An operation that is accepted but too large, or one for which no inputs can be made, counts as refused.
    """
    operation = entry.drawn.steps[-1]
    try:
        caller.values(function_of(type(operation)), operation, {})  # Setters of descriptors refuse, too.
        operation = sized(caller, operation)
        if sum(operation.nbytes(name) for name in operation.operands) > MAX_BYTES:
            return "too large", ""
        prepare(operation, entry.drawn.inputs, 0)
    except CudnnError as error:
        return f"{error.status.name} [{error.clause}]", "" if is_refusal(error) else str(error)
    except held.WRONG:
        return "without inputs", ""
    try:
        refused, text = refusal(caller, operation, dict(entry.drawn.aliases), entry.drawn.inputs)
    except NotCarried:
        return "another operation", ""
    return f"{refused.status.name} [{refused.clause}]" if refused else "", text


def by_first(handle: Any, steps: Sequence[Step], run: Any, wanted: str, used: Used) -> Finding | None:
    """Run by the wanted solvers until one shows a fault."""
    found: list[Finding] = []

    def once(solver: str | None) -> None:
        if not found and (fault := run(solver)):
            found.append(fault)

    by_solvers(handle, [step.operation for step in steps], once, wanted, used)
    return found[0] if found else None


def side(trial: Trial) -> str:
    """Return where the worst element of an output is: in its tail, at a border of its positions, or inside.

    In memory without a tensor's layout, such as indices, every element counts as inside.
    """
    worst = trial.verdict.worst
    if worst.output in trial.operation.raw:  # type: ignore[union-attr]  # called where there is one
        return "inside"
    spec = trial.operation.tensor(worst.output)  # type: ignore[union-attr]  # called where there is one
    dims, index = spec.dims, worst.index  # type: ignore[union-attr]
    if len(index) != len(dims):
        return "inside"
    behind = 0
    for extent, position in zip(dims, index, strict=True):
        behind = behind * extent + extent - 1 - position
    if behind < TAIL:
        return "tail"
    border = any(
        position in (0, extent - 1) for position, extent in zip(index[2:], dims[2:], strict=True) if extent > 2
    )
    return "border" if border else "inside"


def tensors_of(entry: Entry) -> list[TensorSpec]:
    """Return the tensors of an entry's operation, in the order of its operands."""
    operation = entry.drawn.operation
    return [operation.tensor(name) for name in operation.operands if name not in operation.raw]


def columns_of(entry: Entry) -> dict[str, list[str]]:
    """Return the distinct data types, the layouts and the size of an entry's tensors: the columns of coverage tables."""
    specs = tensors_of(entry)
    kinds = dict.fromkeys(spec.data_type.name.removeprefix("CUDNN_DATA_") for spec in specs)
    most = f"up to {10 ** len(str(max((spec.count for spec in specs), default=1))):,}"
    return {"types": [", ".join(kinds)], "layouts": list(dict.fromkeys(map(layout_of, specs))), "elements": [most]}


def tables_of(entry: Entry, fact: str, rows: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the tables of a fact, such as the solvers, and the cells that an entry counts in."""
    for column, names in columns_of(entry).items():
        yield from ((f"{column} by {fact}", pair(row, name)) for row in rows for name in names)


def pair(row: str, column: str) -> str:
    """Return the name of a cell of a coverage table."""
    return f"{row}{CELL}{column}"


def facts_of(entry: Entry) -> list[tuple[str, str]]:
    """Return the facts of an entry for the coverage: operation, types, layouts, sizes, inputs, and cells of tables."""
    operation, columns = entry.drawn.operation, columns_of(entry)
    (kinds,), layouts, (most,) = columns.values()
    algorithm = getattr(operation, "algo", None)
    inputs = (
        entry.drawn.inputs
        if isinstance(entry.drawn.inputs, str)
        else ", ".join(dict.fromkeys(entry.drawn.inputs.values()))
    )
    return [
        ("operation", type(operation).__name__),
        ("types", kinds),
        *(("layout", name) for name in layouts),
        *(("layouts by types", pair(kinds, name)) for name in layouts),
        ("elements", most),
        ("elements by types", pair(kinds, most)),
        *tables_of(entry, "algorithm", [] if algorithm is None else [algorithm.name]),
        ("inputs", inputs),
        ("addresses", "unaligned" if entry.drawn.offsets else "aligned"),
    ]


def layout_of(spec: TensorSpec) -> str:
    """Return the name of a layout."""
    if spec.vector_length > 1:
        return "vectors"
    if not spec.is_packed:
        return "gaps"
    last = spec.rank > 2 and spec.strides[1] == 1 and spec.dims[1] > 1
    return "channels last" if last else "rows" if spec.spatially_packed else "other order"
