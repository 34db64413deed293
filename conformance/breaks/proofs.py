"""Run cases under the breaks of the clauses they name, until one case of a clause fails."""

from __future__ import annotations

import hashlib
import re
import traceback
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from dualdnn.api.document import functions
from dualdnn.api.miopen.document import functions as miopen_functions

from ..scope import clauses as documented
from ..trial import Chain
from .border import REFUSALS, Border
from .demands import is_of_matter
from .matters import PROMISES, allows, is_counted, matters_of
from .memory import MEMORY_BREAKS, Judged
from .places import FIELD, OR
from .rules import ALLOWS, DEMANDS, OF_MEMORY, SPACES_OF, Break, breaks_of, forbids
from .runs import Case
from .statements import DEMAND, stated

UNREPEATABLE = "not repeatable"
CHECK_OFF = "no check of"  # prefix of a noticed check that was switched off: no check of CLAUSE
# This prefix replaces it if another check refused what the disabled one let pass.
REFUSED_OTHERWISE = "another check beside that of"
BROKEN = "break of"  # prefix of a noticed break: break of CLAUSE: BREAK, or break of CLAUSE, MATTER: BREAK
RUNS = 12  # cases of one test function in which a break of one clause changes something, in one process
TRIED = 30  # cases of one test function that run under a break of one clause, in one process
# These kinds of clauses say what a call accepts; a refusal of another value breaks them.
OF_ACCEPTANCE = ("dtype", "layout", "shape", "support", "note")
# Normalizations show what these sentences say by the statistics, activation and z that a call then accepts.
SELECTING = re.compile(r"Normali[sz]ation|Norm(Mode|Algo)_t")
SELECTS = re.compile(r"\b(selects|chooses|names|normalises)\b")
OBJECT = re.compile(r"cudnn(?:Create|Destroy|Get|Restore|Set)(\w+?)(?:[2-5N]d)?Descriptor(?:Ex|_v\d)?")
GRAPHS = "cudnnBackendExecute"
HERE = str(Path(__file__).parent)


@cache
def of_part(clause: str, part: str) -> bool:
    """Return whether a clause is in the part i/n of all clauses."""
    index, count = map(int, part.split("/"))
    return int.from_bytes(hashlib.sha256(clause.encode()).digest()[:8]) % count == index - 1


class ClauseProofs:
    """Remember the clauses that are proven in this process; no further case runs under their breaks."""

    def __init__(self) -> None:
        self.proven: set[tuple[str, str]] = set()
        self.found: set[tuple[str, str, str]] = set()  # subjects, clauses and matters of which a break was noticed
        self.runs: Counter[tuple[str, str, str, Break]] = Counter()
        self.tried: Counter[tuple[str, str, str, Break]] = Counter()

    def done(self, subject: str, named: Iterable[str]) -> bool:
        """Return whether a case names clauses, and all of them are proven."""
        clauses = list(named)
        return bool(clauses) and all((subject, clause) in self.proven for clause in clauses)

    def prove(
        self,
        subject: str,
        test: str,
        border: Border,
        clauses: Collection[str],
        said: set[str],
        case: Case,
        noticed: list[str],
        known: Mapping[str, Collection[str]] | None = None,
    ) -> None:
        """Run a case under the breaks of clauses; record the first break of each matter that the case notices.

        test: the case without its parameter. said: names of functions and arguments in the case. known: clause -> texts
        of the breaks to try first.
        """
        off, otherwise = f"{CHECK_OFF} ", f"{REFUSED_OTHERWISE} "
        found: dict[Break, Outcome] = {}
        for clause in sorted(clause for clause in clauses if clause in documented()):
            if f"{off}{clause}" in noticed:
                self.found |= {(subject, clause, ""), (subject, clause, DEMAND)}
            checked = f"{otherwise}{clause}" in noticed
            matters = [m for m in matters_of(documented()[clause]) if (subject, clause, m) not in self.found]
            first = (known or {}).get(clause, ())
            for broken in sorted(breaks_of(documented()[clause]), key=lambda one: str(one) not in first):
                of = _shown(documented()[clause], broken, matters)
                if not of or (broken.how == "accepted" and checked):
                    continue  # The clause's own check says more than all refusals of the call.
                key = subject, test, clause, broken
                if not _can_apply(broken, said) or self.runs[key] >= RUNS or self.tried[key] >= TRIED:
                    continue
                if broken not in found:
                    found[broken] = outcome_under(broken, border, case)
                self.tried[key] += 1
                self.runs[key] += found[broken].applied
                if found[broken].proves(documented()[clause], broken):
                    noticed += [f"{BROKEN} {clause}{matter and f', {matter}'}: {broken}" for matter in of]
                    self.found |= {(subject, clause, matter) for matter in of}
                    matters = [matter for matter in matters if matter not in of]
            if not matters:
                self.proven.add((subject, clause))


@dataclass(frozen=True)
class Outcome:
    """Hold what a case did under a break: whether it failed, and whether the break changed anything.

    called: functions that the case had called by then. refuses: whether the subject refused what the break gave it.
    """

    failed: bool
    applied: bool
    called: frozenset[str]
    refuses: bool

    def proves(self, clause: Any, broken: Break) -> bool:
        """Return whether the failure proves a clause.

        The case must have called the clause's function, or one that makes, fills or reads the same object. A refusal
        of another argument says what the subject accepts, and nothing on what it computes.
        """
        named = clause.function in functions() or clause.function in miopen_functions()
        own = not named or any(object_of(name) in objects_of(clause, broken) for name in self.called)
        used = not PROMISES.search(clause.text) or broken.how == "accepted" or "cudnnMakeFusedOpsPlan" in self.called
        of_acceptance = any(map(is_of_acceptance, stated(clause, broken)))
        return self.failed and own and used and not (self.refuses and not of_acceptance)


def is_of_acceptance(clause: Any) -> bool:
    """Return whether a clause says what a call accepts, so that a refusal of another value breaks it.

    A demand says what a call refuses.
    """
    demands = DEMANDS.search(clause.text) and not ALLOWS.search(clause.text)
    selects = SELECTING.search(clause.function) and SELECTS.search(clause.text)
    return (clause.kind in OF_ACCEPTANCE and (not demands or is_counted(clause))) or (
        clause.kind == "semantics" and selects is not None
    )


def _shown(clause: Any, broken: Break, matters: Iterable[str]) -> list[str]:
    """Return which matters of a clause a break shows.

    Only a refusal shows that other arguments are refused; results show what a call does.
    """
    refusal = broken.how == "accepted"
    whole = refusal if allows(clause) else not (refusal and "accepted" in matters_of(clause))
    return [m for m in matters if broken.shows(m) and (m or whole)]


def is_checked(clause: str, refusals: Iterable[tuple[str, str]]) -> bool:
    """Return whether one of these refusals is what a clause demands: of its own call, or one that it names.

    refusals: functions and messages.
    """
    demand = documented()[clause]
    named = demand.function in functions()
    return forbids(demand) and any(
        (not named or name in demand.text or object_of(name) == object_of(demand.function))
        and is_of_matter(demand.text, message)
        for name, message in refusals
    )


def objects_of(clause: Any, broken: Break) -> set[str]:
    """Return the objects that a clause of a function is about, under this break.

    A size is about the calls that share the memory, a preset about its getter. A demand, and a sentence on what another
    call fills or does, are about the call that they name.
    """
    does = clause.text.startswith(broken.function) and not forbids(clause)
    ways = does or broken.how in ("accepted", "stored")
    named = ways and broken.function in clause.text
    demanded = {broken.function} if named or broken.kind == "default" else set()
    return {object_of(name) for name in {clause.function, *SPACES_OF.get(clause.function, ()), *demanded}}


def object_of(function: str) -> str:
    """Return the kind of descriptor that a function makes, fills or reads, or else the function."""
    found = OBJECT.fullmatch(function)
    return found[1] if found else function


def _can_apply(broken: Break, said: set[str]) -> bool:
    """Return whether the break can change anything in a case that uses these names."""
    if broken.function.startswith("miopen") or not said:
        return True
    point = {broken.point} if broken.how == "enumerator" and broken.point else set()
    function = {broken.function} if broken.function and broken.how not in OF_MEMORY else set()
    if broken.how in OF_MEMORY and broken.function == GRAPHS:
        return True  # The calls of graphs name their descriptors, not what these hold.
    return {*function, *point} <= said and all(
        FIELD in names or said.intersection(names.split(OR)) for names in broken.only
    )


def outcome_under(broken: Break, border: Border, case: Case) -> Outcome:
    """Run a case under a break."""
    failed = _fails_under(broken, border, case)
    return Outcome(failed, border.applied, frozenset(border.called), border.refuses)


def _fails_under(broken: Break, border: Border, case: Case) -> bool:
    """Return whether a case fails while the break changes something."""
    border.begin(broken)
    if broken.how in OF_MEMORY:
        Chain.tamper = staticmethod(lambda *judged: _tamper(broken, border, *judged))
    try:
        case()
    except (KeyboardInterrupt, SystemExit):
        raise
    except pytest.skip.Exception:
        return False
    except BaseException as error:  # pytest's failures are not subclasses of Exception.
        if not isinstance(error, REFUSALS) and traceback.extract_tb(error.__traceback__)[-1].filename.startswith(HERE):
            raise  # The break itself is wrong.
        return border.applied
    finally:
        Chain.tamper = None
        border.end()
    return False


def _tamper(broken: Break, border: Border, operation: Any, *memory: Any) -> None:
    """Corrupt memory of the break's function, where its call named the break's enumerators."""
    of_graph = border.last == GRAPHS and all(re.search(rf"\b(?:{names})\b", repr(operation)) for names in broken.only)
    if broken.function in ("", border.last) and (border.meant or of_graph):
        border.applied |= MEMORY_BREAKS[broken.how](Judged(operation, *memory), broken.point)
