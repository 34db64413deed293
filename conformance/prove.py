"""Faults put between a case and its subject: a case that passes under one of them proves nothing.

With ``dualdnn conformance --prove`` each case runs once as it is, once more (what cannot be repeated on one handle is not proven), and once under
each fault: of the documented functions whose clauses it names, and of the memory that its trials judge. A case fails that a fault did not
disturb although the fault changed something.

Our backends also run each case once with the check of each clause switched off which the case names and a refusal in it cites. A case that
passes all the same fails. A case that fails because the next check refused the same call does not prove the clause: its arguments are wrong in two ways.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from dualdnn.api.document import functions
from dualdnn.api.operations import Operation
from dualdnn.api.status import BAD_PARAM, CHECKS, EXECUTION_FAILED, CudnnError
from dualdnn.reference import evaluate, run
from dualdnn.reference.judge import bounds, interval
from dualdnn.reference.view import NUMPY_TYPES, Array, rounded, strided

from .trial import Chain

Memory = dict[str, Array]
MOST_TRIED = 64  # elements, until one is found that a fault would make wrong

# --- faults of calls: (result or None, error or None) -> the same; None where the fault has nothing to change ---

Outcome = tuple[Any, CudnnError | None]


def _another_status(_result: Any, error: CudnnError | None) -> Outcome | None:
    if error is None:
        return None
    status = BAD_PARAM if error.status == EXECUTION_FAILED else EXECUTION_FAILED
    return None, CudnnError(status, error.function, error.clause or "", "another status")


def _another_clause(_result: Any, error: CudnnError | None) -> Outcome | None:
    if error is None or not error.clause:
        return None
    return None, CudnnError(error.status, error.function, f"{error.clause}0", "another clause")


def _no_refusal(_result: Any, error: CudnnError | None) -> Outcome | None:
    return None if error is None else (None, None)


def _refusal(_result: Any, error: CudnnError | None) -> Outcome | None:
    return (None, CudnnError(EXECUTION_FAILED, "", "", "refused")) if error is None else None


def _result_off(result: Any, error: CudnnError | None) -> Outcome | None:
    moved = _moved(result)
    return None if error is not None or moved is None else (moved, None)


def _size_too_small(result: Any, error: CudnnError | None) -> Outcome | None:
    return (result - 1, None) if error is None and isinstance(result, int) and result > 0 else None


def _moved(result: Any) -> Any:
    """Every number of a result one larger (1 becomes 0), None where it has none."""
    if isinstance(result, (bool, str)) or result is None:
        return None
    if isinstance(result, (int, float)):
        return 0 if result == 1 else result + 1  # a flag changes, too
    if not isinstance(result, (tuple, list)):
        return None
    parts = [_moved(part) for part in result]
    if all(part is None for part in parts):
        return None
    found = [old if new is None else new for old, new in zip(result, parts, strict=True)]
    return type(result)(*found) if hasattr(result, "_fields") else type(result)(found)


# --- faults of memory: (operation, operands before, after it with what the reference keeps, guarded bytes now) -> whether it changed any ---


class Judged:
    """What a trial is about to judge: the operands before the call, and the bytes after it between guard zones, to be changed.

    begins: the byte of its guarded ones that an operand begins at.
    """

    def __init__(
        self,
        operation: Operation,
        before: Mapping[str, Array],
        kept: Mapping[str, Array],
        now: Memory,
        begins: Mapping[str, int],
    ) -> None:
        self.operation, self.before, self.kept, self.now, self.begins = operation, before, kept, now, begins

    def inside(self, name: str) -> Array:
        """The bytes of an operand now."""
        return self.now[name][self.begins[name] : self.end(name)]

    def end(self, name: str) -> int:
        """The first of the guarded bytes behind an operand."""
        return self.begins[name] + self.before[name].size

    def change_element(self, make: Callable[[float, float, float], float | None]) -> bool:
        """Replace one element of an output. make: (prior, exact, allowed error) -> what to write, None: another element. Only what lies
        outside the interval of the judge is written."""
        results = evaluate(self.operation, {**self.before, **self.kept})
        for name, exact in results.items():
            if exact.raw or name not in self.now:
                continue
            spec = self.operation.tensor(name)
            value, bound = bounds(self.operation, name, exact, self.before)
            lowest, highest, step = interval(value, bound, spec.scalar_type)
            target = strided(spec, self.inside(name))
            prior = strided(spec, self.before[name].copy()).astype(np.float64).reshape(value.shape)
            flat = np.flatnonzero(np.isfinite(value) & np.isfinite(bound))
            for index in flat[:: max(1, flat.size // MOST_TRIED)]:
                at = np.unravel_index(int(index), value.shape)
                wanted = make(float(prior[at]), float(value[at]), float(bound[at] + step[at]))
                if wanted is None:
                    continue
                stored = rounded(np.array([wanted]), spec.scalar_type)[0]
                if lowest[at] <= float(stored) <= highest[at]:
                    continue
                view = target.reshape(value.shape) if target.flags.c_contiguous else target
                if view.shape != value.shape:
                    return False
                view[at] = stored
                return True
        return False


def _element_off(judged: Judged) -> bool:
    return judged.change_element(lambda _prior, exact, allowed: exact + 4 * allowed)


def _not_written(judged: Judged) -> bool:
    return judged.change_element(lambda prior, _exact, _allowed: prior)


def _not_a_number(judged: Judged) -> bool:
    types = {judged.operation.tensor(n).scalar_type for n in judged.operation.tensors_written}
    if any(NUMPY_TYPES[data_type].kind in "iu" for data_type in types):
        return False
    return judged.change_element(lambda _prior, _exact, _allowed: float("nan"))


def _written_outside(judged: Judged) -> bool:
    for name in judged.operation.tensors_written:
        if name in judged.now and judged.now[name].size > judged.end(name):
            judged.now[name][judged.end(name)] ^= 1
            return True
    return False


def _input_changed(judged: Judged) -> bool:
    for name in judged.operation.inputs:
        alone = name in judged.now and name not in judged.operation.outputs and name not in judged.operation.raw
        shared = any(judged.before.get(other) is judged.before.get(name) for other in judged.operation.outputs)
        if alone and not shared and judged.before[name].size:
            judged.inside(name)[0] ^= 1
            return True
    return False


def _index_off(judged: Judged) -> bool:
    """One more in the first number of an output that is no tensor: positions of extrema."""
    for name, exact in evaluate(judged.operation, {**judged.before, **judged.kept}).items():
        if exact.raw and not exact.opaque and name in judged.now and exact.value.size:
            judged.inside(name)[: exact.value.itemsize].view(exact.value.dtype)[0] += 1
            return True
    return False


def _factor_ignored(field: str, neutral: float, judged: Judged) -> bool:
    operation = judged.operation
    if not is_dataclass(operation) or getattr(operation, field, neutral) == neutral or judged.kept:
        return False
    if field not in {f.name for f in fields(operation)} or len(operation.outputs) != 1:
        return False
    copies = {id(array): array.copy() for array in judged.before.values()}
    memory = {name: copies[id(array)] for name, array in judged.before.items()}
    run(replace(operation, **{field: neutral}), memory)
    name = operation.outputs[0]
    if name not in judged.now or np.array_equal(memory[name], judged.inside(name)):
        return False
    found = evaluate(operation, judged.before)[name]
    value, bound = bounds(operation, name, found, judged.before)
    lowest, highest, _ = interval(value, bound, operation.tensor(name).scalar_type)
    wrong = strided(operation.tensor(name), memory[name]).astype(np.float64).reshape(value.shape)
    if not (np.isfinite(bound) & ~np.isnan(value) & ((wrong < lowest) | (wrong > highest) | np.isnan(wrong))).any():
        return False
    judged.inside(name)[:] = memory[name]
    return True


CALL_FAULTS: dict[str, Callable[[Any, CudnnError | None], Outcome | None]] = {
    "another status": _another_status,
    "another clause": _another_clause,
    "success where refusal is due": _no_refusal,
    "refusal where success is due": _refusal,
    "a result off by one": _result_off,
}
MEMORY_FAULTS: dict[str, Callable[[Judged], bool]] = {
    "one element off by four bounds": _element_off,
    "one element not written": _not_written,
    "NaN where none is due": _not_a_number,
    "an element outside written": _written_outside,
    "an input changed": _input_changed,
    "an index off by one": _index_off,
    "alpha ignored": partial(_factor_ignored, "alpha", 1.0),
    "beta ignored": partial(_factor_ignored, "beta", 0.0),
}
CHECK_OFF = "no check of"
REFUSED_OTHERWISE = "another check beside that of"
LOG_FAULT = "fields of the log exchanged"
# Clauses whose cases look at what a message says of time, process and thread.
OF_MESSAGES = {"cudnnSetCallback/c17"}
FIELDS = ("time_sec", "time_usec", "time_delta", "pid", "tid")
OURS_ONLY = ("another clause",)
# Queries of sizes that may be larger than needed: one byte less is their fault.
SIZES = re.compile(r"Get.*(Work[sS]pace|TempSpace|Reserve|AlgorithmSpace)|MakeFusedOpsPlan")


class Faulty:
    """The functions of a subject, some of which answer with a fault while there is one."""

    def __init__(self, cudnn: Any) -> None:
        self._cudnn = cudnn
        self.fault: Callable[[Any, CudnnError | None], Outcome | None] | None = None
        self.functions: frozenset[str] = frozenset()
        self.applied = False
        self.exchanges = False  # whether fields of the log are exchanged
        self.refused_otherwise = False  # whether another check refused what the check that is off let pass

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._cudnn, name)
        if self.exchanges and name == "cudnnSetCallback":
            return partial(self._set_callback, function)
        if CHECKS.off is not None and callable(function):
            return partial(self._unchecked, function)
        if self.fault is None or name not in self.functions:
            return function
        fault = _size_too_small if self.fault is _result_off and SIZES.search(name) else self.fault
        return partial(self._call, fault, function)

    def _set_callback(self, function: Callable[..., Any], mask: int, udata: Any, callback: Any) -> Any:
        if callback is None:
            return function(mask, udata, callback)

        def exchanged(severity: Any, data: Any, metadata: Any, message: str) -> None:
            self.applied = True
            values = [getattr(metadata, name) for name in FIELDS]
            callback(
                severity, data, replace(metadata, **dict(zip(FIELDS, values[1:] + values[:1], strict=True))), message
            )

        return function(mask, udata, exchanged)

    def _unchecked(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Make a call without the check of one clause; a refusal that no ``expect`` made, and cites it, is answered with success."""
        CHECKS.passed = False
        try:
            return function(*args, **kwargs)
        except CudnnError as error:
            if error.clause == CHECKS.off:
                self.applied = True
                return None
            self.refused_otherwise |= CHECKS.passed
            raise
        finally:
            self.applied |= CHECKS.passed

    def _call(self, fault: Any, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        result, error = None, None
        try:
            result = function(*args, **kwargs)
        except CudnnError as raised:
            error = raised
        changed = fault(result, error)
        if changed is not None:
            self.applied = True
            result, error = changed
        if error is not None:
            raise error
        return result


class Proving:
    """Runs each case under every fault."""

    def __init__(self, clauses_of: Callable[[Any], set[str]]) -> None:
        self.clauses_of = clauses_of
        self.faulty: dict[int, Faulty] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem: Any) -> bool | None:
        subject = pyfuncitem.funcargs.get("subject")
        if subject is None or not hasattr(subject, "cudnn"):
            return None
        faulty = subject.cudnn
        if not isinstance(faulty, Faulty):
            return None
        arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
        case = partial(pyfuncitem.obj, **arguments)
        case()
        if evidence := pyfuncitem.funcargs.get("evidence"):
            evidence.closed = True
        noticed = pyfuncitem.stash.setdefault(NOTICED, [])
        CHECKS.cited = set()
        try:
            if _fails(case):
                return True  # not repeatable
        finally:
            cited, CHECKS.cited = CHECKS.cited, None
        blind = {mark.args[0] for mark in pyfuncitem.iter_markers("blind")}
        if unknown := blind - {*CALL_FAULTS, *MEMORY_FAULTS, LOG_FAULT}:
            pytest.fail(f"blind: there is no fault {', '.join(sorted(unknown))}", pytrace=False)
        names = {clause.split("/")[0] for clause in self.clauses_of(pyfuncitem)}
        missed = [
            fault
            for fault, change in CALL_FAULTS.items()
            if fault not in blind
            and (subject.ours or fault not in OURS_ONLY)
            and not _noticed_of_calls(faulty, frozenset(names & set(functions())), change, case, fault, noticed)
        ]
        missed += [
            fault
            for fault, change in MEMORY_FAULTS.items()
            if fault not in blind and not _noticed_of_memory(change, case, fault, noticed)
        ]
        for clause in sorted(cited & self.clauses_of(pyfuncitem)):
            if not _noticed_of_check(faulty, clause, case, noticed):
                missed.append(f"{CHECK_OFF} {clause}")
        if (
            OF_MESSAGES & self.clauses_of(pyfuncitem)
            and LOG_FAULT not in blind
            and not _noticed_of_log(faulty, case, noticed)
        ):
            missed.append(LOG_FAULT)
        if missed:
            pytest.fail(f"the case passes under these faults: {', '.join(missed)}", pytrace=False)
        return True


NOTICED = pytest.StashKey[list[str]]()


def _fails(case: Callable[[], Any]) -> bool:
    try:
        case()
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:  # pytest's failures are no Exception
        return True
    return False


def _noticed_of_calls(
    faulty: Faulty, names: frozenset[str], change: Any, case: Any, fault: str, noticed: list[str]
) -> bool:
    """Return whether the fault made the case fail, or had nothing to change."""
    faulty.fault, faulty.functions, faulty.applied = change, names, False
    try:
        failed = _fails(case)
    finally:
        faulty.fault = None
    if failed and faulty.applied:
        noticed.append(fault)
    return failed or not faulty.applied


def _noticed_of_check(faulty: Faulty, clause: str, case: Any, noticed: list[str]) -> bool:
    """Return whether the case fails without the check of the clause, or the check had nothing to refuse."""
    CHECKS.off, faulty.applied, faulty.refused_otherwise = clause, False, False
    try:
        failed = _fails(case)
    finally:
        CHECKS.off = None
    if failed and faulty.applied:
        noticed.append(f"{REFUSED_OTHERWISE if faulty.refused_otherwise else CHECK_OFF} {clause}")
    return failed or not faulty.applied


def _noticed_of_log(faulty: Faulty, case: Any, noticed: list[str]) -> bool:
    faulty.exchanges, faulty.applied = True, False
    try:
        failed = _fails(case)
    finally:
        faulty.exchanges = False
    if failed and faulty.applied:
        noticed.append(LOG_FAULT)
    return failed or not faulty.applied


def _noticed_of_memory(change: Callable[[Judged], bool], case: Any, fault: str, noticed: list[str]) -> bool:
    applied = False

    def tamper(operation: Operation, *memory: Any) -> None:
        nonlocal applied
        applied |= change(Judged(operation, *memory))

    Chain.tamper = staticmethod(tamper)
    try:
        failed = _fails(case)
    finally:
        Chain.tamper = None
    if failed and applied:
        noticed.append(fault)
    return failed or not applied
