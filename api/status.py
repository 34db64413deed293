"""The error that every call which does not return CUDNN_STATUS_SUCCESS raises."""

from __future__ import annotations

from typing import Any

from . import releases
from .enumerations import cudnnStatus_t

BAD_PARAM = cudnnStatus_t.CUDNN_STATUS_BAD_PARAM
NOT_SUPPORTED = cudnnStatus_t.CUDNN_STATUS_NOT_SUPPORTED
INVALID_VALUE = cudnnStatus_t.CUDNN_STATUS_INVALID_VALUE
NOT_INITIALIZED = cudnnStatus_t.CUDNN_STATUS_NOT_INITIALIZED
ALLOC_FAILED = cudnnStatus_t.CUDNN_STATUS_ALLOC_FAILED
MAPPING_ERROR = cudnnStatus_t.CUDNN_STATUS_MAPPING_ERROR
EXECUTION_FAILED = cudnnStatus_t.CUDNN_STATUS_EXECUTION_FAILED
RUNTIME_PREREQUISITE_MISSING = cudnnStatus_t.CUDNN_STATUS_RUNTIME_PREREQUISITE_MISSING
INTERNAL_ERROR = cudnnStatus_t.CUDNN_STATUS_INTERNAL_ERROR

# What holds when no section says more: "An incorrect value or parameter was passed to the function" (3.1.2.27).
INCORRECT_PARAMETER = "cudnnStatus_t/c05"


class Checks:
    """Lets the suite see which clauses refusals cite, and switch the check of one clause off (``dualdnn conformance --prove``)."""

    def __init__(self) -> None:
        self.cited: set[str] | None = None  # the clauses of all refusals since somebody put a set here
        self.off: str | None = None  # the clause whose check lets everything pass
        self.passed = False  # whether that check let something pass which it would have refused


CHECKS = Checks()


class CudnnError(Exception):
    """A documented status other than success.

    ``status`` is the cudnnStatus_t, ``clause`` the id of the violated clause of the document (None where a foreign
    library answered), ``function`` the call, and the text names the arguments and the values that collide.
    """

    def __init__(self, status: cudnnStatus_t, clause: str | None, message: str, function: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.clause = clause
        self.message = message
        self.function = function
        if CHECKS.cited is not None and clause:
            CHECKS.cited.add(clause)

    def __reduce__(self) -> tuple[Any, ...]:
        """For copies and for other processes: exceptions are rebuilt from these arguments."""
        return type(self), (self.status, self.clause, self.message, self.function)

    def __str__(self) -> str:
        where = f"{self.function}: " if self.function else ""
        why = f" [{self.clause}]" if self.clause else ""
        return f"{where}{self.status.name}: {self.message}{why}"


def expect(condition: object, status: cudnnStatus_t, clause: str, message: str, **facts: Any) -> None:
    """Raise ``CudnnError`` unless the condition holds: the one way a check is written.

    facts: what a release that serves some such calls looks at (releases.py).
    """
    if condition:
        return
    if clause == CHECKS.off and status != ALLOC_FAILED:  # or as much would be allocated as there is not
        CHECKS.passed = True
        return
    if not releases.serves(clause, message, facts):
        raise CudnnError(status, clause, message)
