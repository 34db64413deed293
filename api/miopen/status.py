"""Define the error that every MIOpen call raises if its status is not miopenStatusSuccess."""

from __future__ import annotations

from ..enumerations import cudnnStatus_t
from .enumerations import miopenStatus_t

BAD_PARM = miopenStatus_t.miopenStatusBadParm
NOT_IMPLEMENTED = miopenStatus_t.miopenStatusNotImplemented
NOT_INITIALIZED = miopenStatus_t.miopenStatusNotInitialized
UNKNOWN_ERROR = miopenStatus_t.miopenStatusUnknownError
UNSUPPORTED_OP = miopenStatus_t.miopenStatusUnsupportedOp

# OF_CUDNN maps the cuDNN status of an operation to the call's status.
OF_CUDNN = {
    cudnnStatus_t.CUDNN_STATUS_NOT_INITIALIZED: NOT_INITIALIZED,
    cudnnStatus_t.CUDNN_STATUS_ALLOC_FAILED: miopenStatus_t.miopenStatusAllocFailed,
    cudnnStatus_t.CUDNN_STATUS_BAD_PARAM: BAD_PARM,
    cudnnStatus_t.CUDNN_STATUS_INTERNAL_ERROR: miopenStatus_t.miopenStatusInternalError,
    cudnnStatus_t.CUDNN_STATUS_INVALID_VALUE: miopenStatus_t.miopenStatusInvalidValue,
    cudnnStatus_t.CUDNN_STATUS_NOT_SUPPORTED: UNSUPPORTED_OP,
    cudnnStatus_t.CUDNN_STATUS_EXECUTION_FAILED: miopenStatus_t.miopenStatusInternalError,
    cudnnStatus_t.CUDNN_STATUS_MAPPING_ERROR: BAD_PARM,
}


class MiopenError(Exception):
    """Report a status other than success: ``status``, the violated ``clause`` of the guide, the ``function`` that was
    called.

    The text names the arguments and the conflicting values.
    """

    def __init__(self, status: miopenStatus_t, clause: str, message: str, function: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.clause = clause
        self.message = message
        self.function = function

    def __str__(self) -> str:
        where = f"{self.function}: " if self.function else ""
        return f"{where}{self.status.name}: {self.message} [{self.clause}]"


def expect(condition: object, status: miopenStatus_t, clause: str, message: str) -> None:
    """Raise ``MiopenError`` unless the condition holds."""
    if not condition:
        raise MiopenError(status, clause, message)
