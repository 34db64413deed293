"""Inject faults between a case and its subject: a case that passes under one of them proves nothing.

With ``dualdnn conformance --prove`` each case runs once unchanged and once again; a case that cannot be repeated on one
handle is not proven. Then it runs once under each fault of the documented functions whose clauses it names, and of the
memory that its trials judge. A case fails if it passes although a fault changed something.

Our backends also run each case without the check of each clause that the case names and its refusal cites. A case that
still passes fails. A case that fails because the next check refused the same call does not prove the clause: its
arguments are wrong in two ways.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from operator import ne
from typing import Any

import pytest
from dualdnn.api.document import functions
from dualdnn.api.operations import Operation
from dualdnn.api.status import BAD_PARAM, CHECKS, EXECUTION_FAILED, CudnnError

from ..breaks import HOWS, Border
from ..breaks.answers import SIZES
from ..breaks.border import is_filled, told
from ..breaks.memory import MEMORY_FAULTS, Judged
from ..breaks.proofs import CHECK_OFF, REFUSED_OTHERWISE, UNREPEATABLE, ClauseProofs, is_checked, of_part
from ..breaks.runs import Case
from ..breaks.siblings import of_siblings
from ..trial import Chain
from .evidence import EVIDENCE
from .items import id_of

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
    """Return a result with every number one larger (1 becomes 0), or None if it has no number."""
    if isinstance(result, (bool, str)) or result is None:
        return None
    if isinstance(result, (int, float)):
        return 0 if result == 1 else result + 1  # This changes a flag too.
    if not isinstance(result, (tuple, list)):
        return None
    parts = [_moved(part) for part in result]
    if all(part is None for part in parts):
        return None
    found = [old if new is None else new for old, new in zip(result, parts, strict=True)]
    return type(result)(*found) if hasattr(result, "_fields") else type(result)(found)


CALL_FAULTS: dict[str, Callable[[Any, CudnnError | None], Outcome | None]] = {
    "another status": _another_status,
    "another clause": _another_clause,
    "success where refusal is due": _no_refusal,
    "refusal where success is due": _refusal,
    "a result off by one": _result_off,
}
LOG_FAULT = "fields of the log exchanged"
# Cases of these clauses look at the time, process and thread of a message.
OF_MESSAGES = {"cudnnSetCallback/c17"}
FIELDS = ("time_sec", "time_usec", "time_delta", "pid", "tid")
OURS_ONLY = ("another clause",)


class Faulty:
    """Wrap the functions of a subject; some answer with a fault while one is active."""

    def __init__(self, cudnn: Any) -> None:
        self._cudnn = cudnn
        self.border = Border(HOWS)
        self.fault: Callable[[Any, CudnnError | None], Outcome | None] | None = None
        self.functions: frozenset[str] = frozenset()
        self.applied = False
        self.exchanges = False  # whether fields of the log are exchanged
        self.unchecked: set[tuple[str, str]] = set()  # functions and refusals that the disabled check did not make
        self.refused_otherwise = False  # whether another check refused a call that the disabled check let pass
        self.succeeded: dict[
            str, list[list[Any]]
        ] = {}  # function -> arguments of its calls that succeeded without the check

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._cudnn, name)
        if self.border.active and callable(function):
            return partial(self.border.call, name, function)
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
        """Make a call without the check of one clause.

        A refusal that ``expect`` did not raise, but that cites the clause, becomes success.
        """
        CHECKS.passed = False
        name = getattr(function, "__name__", "")
        said = ["" if is_filled(name, at) else told(value) for at, value in enumerate(args)]
        try:
            result = function(*args, **kwargs)
            self.succeeded.setdefault(name, []).append(said)
            return result
        except CudnnError as error:
            if error.clause == CHECKS.off:
                CHECKS.passed, CHECKS.message = True, error.message
                return None
            checked = CHECKS.passed and error.status != EXECUTION_FAILED  # A failing device has checked nothing.
            self.refused_otherwise |= checked and not self._has_one_defect(name, said)
            raise
        finally:
            self.applied |= CHECKS.passed
            self.unchecked |= {(name, CHECKS.message)} if CHECKS.passed else set()

    def _has_one_defect(self, name: str, said: list[str]) -> bool:
        """Return whether a call differs in one argument from one that succeeded: two clauses then forbid the
        same thing.
        """
        return any(sum(map(ne, said, other)) == 1 for other in self.succeeded.get(name, ()) if len(other) == len(said))

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
    """Run each case under every fault."""

    def __init__(
        self, clauses_of: Callable[[Any], set[str]], faults: bool, part: str, known: Mapping[str, Any] | None = None
    ) -> None:
        """Prove cases, clauses, or both.

        faults: whether cases also run under faults of calls and memory. part: i/n, the part of the clauses whose breaks
        are tried, or empty. known: clause -> {case: breaks} of another subject; only these cases then run, under these
        breaks first.
        """
        self.clauses_of, self.faults, self.part, self.known = clauses_of, faults, part, known
        self.proofs = ClauseProofs()

    @pytest.hookimpl(tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem: Any) -> bool | None:
        subject = pyfuncitem.funcargs.get("subject")
        if subject is None or not hasattr(subject, "cudnn"):
            return None
        faulty = subject.cudnn
        if not isinstance(faulty, Faulty):
            return None
        if not self.faults and self.proofs.done(subject.name, self._named(pyfuncitem)):
            pytest.skip("its clauses are proven")
        given = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
        case = Case(pyfuncitem.obj, given, pyfuncitem.funcargs.values(), faulty.border)
        case()
        if evidence := pyfuncitem.funcargs.get("evidence"):
            evidence.closed = True
        noticed = pyfuncitem.stash.setdefault(NOTICED, [])
        CHECKS.cited = set()
        faulty.border.said = set()
        try:
            if case.fails():
                noticed.append(UNREPEATABLE)
                return True
        finally:
            cited, CHECKS.cited = CHECKS.cited, None
            said, faulty.border.said = faulty.border.said, None
        if self.faults:
            self._under_faults(pyfuncitem, subject, case, cited, noticed)
        if not self.part:
            return True
        named = self._named(pyfuncitem)
        if not self.faults:
            for clause in sorted(c for c in cited & named if not self.proofs.done(subject.name, [c])):
                _noticed_of_check(faulty, clause, case, noticed)
        known = None if self.known is None else {clause: set().union(*self.known[clause].values()) for clause in named}
        test = id_of(pyfuncitem).partition("[")[0]
        self.proofs.prove(subject.name, test, faulty.border, named, said, case, noticed, known)
        return True

    def _named(self, pyfuncitem: Any) -> set[str]:
        """Return the clauses of the part that a case itself names (not only its siblings), or whose refusals it checked."""
        named = {clause for clause in self.clauses_of(pyfuncitem) if of_part(clause, self.part)}
        evidence = pyfuncitem.stash.get(EVIDENCE, None)
        named -= of_siblings(pyfuncitem, named - (evidence.clauses if evidence else set()))
        if self.known is None:
            return named
        case = id_of(pyfuncitem)
        return {clause for clause in named if case in self.known.get(clause, ())}

    def _under_faults(self, pyfuncitem: Any, subject: Any, case: Case, cited: set[str], noticed: list[str]) -> None:
        """Run a case under every fault; fail if it passes under one that changed something."""
        faulty = subject.cudnn
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


NOTICED = pytest.StashKey[list[str]]()


def _noticed_of_calls(
    faulty: Faulty, names: frozenset[str], change: Any, case: Case, fault: str, noticed: list[str]
) -> bool:
    """Return whether the fault made the case fail, or had nothing to change."""
    faulty.fault, faulty.functions, faulty.applied = change, names, False
    try:
        failed = case.fails()
    finally:
        faulty.fault = None
    if failed and faulty.applied:
        noticed.append(fault)
    return failed or not faulty.applied


def _noticed_of_check(faulty: Faulty, clause: str, case: Case, noticed: list[str]) -> bool:
    """Return whether the case fails without the check of the clause, or the check had nothing to refuse."""
    CHECKS.off, faulty.applied, faulty.refused_otherwise = clause, False, False
    faulty.succeeded.clear()
    faulty.unchecked.clear()
    try:
        failed = case.fails()
    finally:
        CHECKS.off = None
    if failed and faulty.applied and is_checked(clause, faulty.unchecked):
        noticed.append(f"{REFUSED_OTHERWISE if faulty.refused_otherwise else CHECK_OFF} {clause}")
    return failed or not faulty.applied


def _noticed_of_log(faulty: Faulty, case: Case, noticed: list[str]) -> bool:
    faulty.exchanges, faulty.applied = True, False
    try:
        failed = case.fails()
    finally:
        faulty.exchanges = False
    if failed and faulty.applied:
        noticed.append(LOG_FAULT)
    return failed or not faulty.applied


def _noticed_of_memory(change: Callable[[Judged], bool], case: Case, fault: str, noticed: list[str]) -> bool:
    applied = False

    def tamper(operation: Operation, *memory: Any) -> None:
        nonlocal applied
        applied |= change(Judged(operation, *memory))

    Chain.tamper = staticmethod(tamper)
    try:
        failed = case.fails()
    finally:
        Chain.tamper = None
    if failed and applied:
        noticed.append(fault)
    return failed or not applied
