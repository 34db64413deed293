"""Define the error that every call raises if its status is not CUDNN_STATUS_SUCCESS."""

from __future__ import annotations

from collections.abc import Callable
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

# This clause applies if no section says more: "An incorrect value or parameter was passed to the function" (3.1.2.27).
INCORRECT_PARAMETER = "cudnnStatus_t/c05"


class Checks:
    """Let the suite observe which clauses errors cite, and disable the check of one clause (``dualdnn conformance
    --prove``)."""

    def __init__(self) -> None:
        self.cited: set[str] | None = None  # If set, it collects the clauses of all errors.
        self.off: str | None = None  # The check of this clause accepts everything.
        self.passed = False  # It is True after that check accepted something invalid.
        self.message = ""  # message of the refusal that was not made


CHECKS = Checks()


class CudnnError(Exception):
    """Report a documented status other than success.

    ``status`` is the cudnnStatus_t, ``function`` the call. ``clause`` is the id of the violated clause of the document,
    or None if a foreign library reported the error. The text names the arguments and the conflicting values.
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
        """Return the constructor's arguments, with which copies and other processes rebuild the exception."""
        return type(self), (self.status, self.clause, self.message, self.function)

    def __str__(self) -> str:
        where = f"{self.function}: " if self.function else ""
        why = f" [{self.clause}]" if self.clause else ""
        return f"{where}{self.status.name}: {self.message}{why}"


def expect(
    condition: object, status: cudnnStatus_t, clause: str, message: str | Callable[[], str], **facts: Any
) -> None:
    """Raise ``CudnnError`` unless the condition holds. Every check uses this function.

    message: the text, or a function that makes a text that takes long. facts: decide whether an emulated release accepts the call (releases.py).
    """
    if condition:
        return
    if not isinstance(message, str):
        message = message()
    if clause == CHECKS.off and status != ALLOC_FAILED:  # Otherwise the call would allocate more memory than exists.
        CHECKS.passed, CHECKS.message = True, message
        return
    if not releases.serves(clause, message, facts):
        raise CudnnError(status, clause, message)
