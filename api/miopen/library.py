"""Implement the handle (rows 1 to 4)."""

from __future__ import annotations

from typing import Any

from ..cudnn.library import cudnnCreate
from ..status import CudnnError
from .calls import CALLS, USES, call, cudnn
from .objects import MiopenHandle
from .status import OF_CUDNN, MiopenError


def miopenCreate(*, backend: str | None = None, device: str | None = None) -> MiopenHandle:
    """Return a handle; backend and device as for cudnnCreate. Errors: NotInitialized without a usable GPU. Source: row 1."""
    try:
        return MiopenHandle(cudnnCreate(backend=backend, device=device))
    except CudnnError as error:
        raise MiopenError(OF_CUDNN[error.status], "miopenCreate/c01", str(error), "miopenCreate") from error


CALLS["miopenCreate"], USES["miopenCreate"] = miopenCreate, ("cudnnCreate",)


@call("cudnnDestroy")
def miopenDestroy(handle: MiopenHandle) -> None:
    """Wait for the handle's work, then release the handle and its results of Find.

    Errors: BadParm for NULL. Source: row 2.
    """
    handle.found.clear()
    handle.queried.clear()
    handle.stored.clear()
    cudnn("cudnnDestroy")(handle.cudnn)


@call("cudnnSetStream")
def miopenSetStream(handle: MiopenHandle, streamID: Any) -> None:
    """Launch the handle's later work on this stream. Errors: BadParm for a value that is not a stream. Source: row 3."""
    cudnn("cudnnSetStream")(handle.cudnn, streamID)


@call("cudnnGetStream")
def miopenGetStream(handle: MiopenHandle) -> Any:
    """Return the stream that was set, or None. Source: row 4."""
    return cudnn("cudnnGetStream")(handle.cudnn)
