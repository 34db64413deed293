"""Implement the library calls, the handle and the log (3.2.5, 3.2.20, 3.2.41, 3.2.42, 3.2.44, 3.2.54, 3.2.58, 3.2.63,
3.2.67, 3.2.70, 3.2.79, 3.2.89, 4.1.17, 7.2.1, 8.2.1)."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import api_log
from ..document import VERSION
from ..enumerations import cudnnErrQueryMode_t, cudnnStatus_t
from ..functions import FUNCTIONS, documented
from ..handle import Handle, level_named, open_backend, release_named
from ..operations import BackendError
from ..status import BAD_PARAM, INTERNAL_ERROR, INVALID_VALUE, MAPPING_ERROR, CudnnError, expect

if TYPE_CHECKING:
    from ..enumerations import libraryPropertyType

SUCCESS = cudnnStatus_t.CUDNN_STATUS_SUCCESS
CUDNN_VERSION = VERSION[0] * 1000 + VERSION[1] * 100 + VERSION[2]


def cudnnCreate(
    *,
    backend: str | None = None,
    device: str | None = None,
    as_release: str | None = None,
    reproducible: str | None = None,
) -> Handle:
    """Return a new handle.

    backend: "reference", "accelerated" or "crosscheck". It defaults to DUALDNN_BACKEND, then to accelerated if a GPU is
    usable, then to reference.
    device: "gpu" or "emulated", for the accelerated backend.
    as_release: "8.9.7" or "9.19", the NVIDIA release whose declared differences the handle emulates. It defaults to
    DUALDNN_AS, then to the document, which is "8.0.3".
    reproducible: "run", "batch", "device" or "release", the level at which results are the same bits
    (docs/reproducibility.md). It defaults to DUALDNN_REPRODUCIBLE, then to "run".
    Errors: NOT_INITIALIZED without a usable GPU (c12), BAD_PARAM for an unknown backend, device, release or level.
    Source: 3.2.5.
    """
    release = release_named(as_release)
    level = level_named(reproducible)
    return Handle(open_backend(backend, device, level), release, level)


FUNCTIONS["cudnnCreate"] = cudnnCreate


@documented(invalid={"handle": "c05"})
def cudnnDestroy(handle: Handle) -> None:
    """Wait for the handle's work, then release the handle. Errors: BAD_PARAM for NULL (c05). Source: 3.2.20."""
    handle.destroy()


@documented(invalid={"handle": "c05"})
def cudnnSetStream(handle: Handle, streamId: Any) -> None:
    """Launch the handle's later work on this stream; NULL is the default stream. The call does not wait for earlier
    work.

    streamId: a stream of ``handle.new_stream()``, a PyCUDA stream or the number of a cudaStream_t.
    Errors: BAD_PARAM for NULL (c05) or a value that is not a stream; MAPPING_ERROR for a stream of another device
    (c06).
    Source: 3.2.89.
    """
    try:
        stream = handle.backend.stream(streamId)
    except TypeError as error:
        raise CudnnError(BAD_PARAM, "cudnnStatus_t/c05", f"streamId {error}") from None
    except ValueError as error:
        raise CudnnError(MAPPING_ERROR, "cudnnSetStream/c06", f"streamId {error}") from None
    except Exception as error:  # A foreign object may raise anything.
        raise CudnnError(BAD_PARAM, "cudnnStatus_t/c05", f"streamId is not a stream: {error}") from error
    handle.stream, handle.user_stream = stream, streamId


@documented(invalid={"handle": "c03"})
def cudnnGetStream(handle: Handle) -> Any:
    """Return the stream that was set, or None. Errors: BAD_PARAM for NULL (c03). Source: 3.2.58."""
    return handle.user_stream


@documented()
def cudnnGetVersion() -> int:
    """Return the version of the specification as one number, 8003 (CUDNN_VERSION). Source: 3.2.63."""
    return CUDNN_VERSION


@documented()
def cudnnGetCudartVersion() -> int:
    """Return the version of the CUDA headers that kernels are compiled against: 13000 for 13.0, or 0 if there are none.

    Source: 3.2.42.
    """
    from dualdnn.accelerated import cuda_version

    return cuda_version()


@documented(invalid={"type": ("c02", INVALID_VALUE)})
def cudnnGetProperty(type: libraryPropertyType) -> int:
    """Return the major version, minor version or patch level.

    Errors: INVALID_VALUE for an unknown type (c02). Source: 3.2.54.
    """
    return VERSION[type]


@documented(unchecked=["status"])
def cudnnGetErrorString(status: cudnnStatus_t) -> str:
    """Return the name of a status, or CUDNN_UNKNOWN_STATUS for an unknown value. Source: 3.2.44."""
    try:
        return cudnnStatus_t(operator.index(status)).name
    except Exception:  # A foreign object may raise anything.
        return "CUDNN_UNKNOWN_STATUS"


def _same_version(clause: Any) -> None:
    """Raise VERSION_MISMATCH unless all parts of the package have the same version; each part belongs to every
    sub-library."""
    from dualdnn import accelerated, api, reference

    versions = {part.__name__: part.__version__ for part in (api, reference, accelerated)}
    mismatch = cudnnStatus_t.CUDNN_STATUS_VERSION_MISMATCH
    expect(len(set(versions.values())) == 1, mismatch, clause, f"versions differ: {versions}")


@documented()
def cudnnOpsInferVersionCheck() -> None:
    """Succeed if all parts of the package have the same version. Errors: VERSION_MISMATCH (c04). Source: 3.2.67."""
    _same_version("cudnnOpsInferVersionCheck/c04")


@documented()
def cudnnOpsTrainVersionCheck() -> None:
    """Succeed if all parts of the package have the same version. Errors: VERSION_MISMATCH (c03). Source: 4.1.17."""
    _same_version("cudnnOpsTrainVersionCheck/c03")


@documented()
def cudnnAdvInferVersionCheck() -> None:
    """Succeed if all parts of the package have the same version. Errors: VERSION_MISMATCH (c03). Source: 7.2.1."""
    _same_version("cudnnAdvInferVersionCheck/c03")


@documented()
def cudnnAdvTrainVersionCheck() -> None:
    """Succeed if all parts of the package have the same version. Errors: VERSION_MISMATCH (c03). Source: 8.2.1."""
    _same_version("cudnnAdvTrainVersionCheck/c03")


@documented(invalid={"*": "c21"})
def cudnnQueryRuntimeError(handle: Handle, mode: cudnnErrQueryMode_t, tag: Any) -> cudnnStatus_t:
    """Return the error that the handle's kernels reported since the last query, and clear it.

    mode: RAWCODE reads at once. NONBLOCKING returns RUNTIME_IN_PROGRESS while work is pending. BLOCKING waits.
    tag: NULL.
    Errors: BAD_PARAM (c21); INTERNAL_ERROR when waiting fails (c22). Source: 3.2.70.
    """
    expect(tag is None, BAD_PARAM, "cudnnQueryRuntimeError/c19", f"tag is {tag!r}, it has to be NULL")
    if mode == cudnnErrQueryMode_t.CUDNN_ERRQUERY_NONBLOCKING and not handle.backend.finished(handle.stream):
        return cudnnStatus_t.CUDNN_STATUS_RUNTIME_IN_PROGRESS
    if mode == cudnnErrQueryMode_t.CUDNN_ERRQUERY_BLOCKING:
        try:
            handle.backend.synchronize(handle.stream)
        except BackendError as error:
            raise CudnnError(INTERNAL_ERROR, "cudnnQueryRuntimeError/c22", str(error)) from error
    status, handle.runtime_error = handle.runtime_error, SUCCESS
    return status


@documented(unchecked=["fptr"])
def cudnnSetCallback(mask: int, udata: Any, fptr: Any) -> None:
    """Choose which messages are logged, and where.

    mask: the bits CUDNN_SEV_ERROR_EN, CUDNN_SEV_WARNING_EN, CUDNN_SEV_INFO_EN; other bits are ignored.
    udata: passed to the callback unchanged.
    fptr: a function (severity, udata, dbg: cudnnDebug_t, msg). None selects the built-in callback, which writes to the
    destination in CUDNN_LOGDEST_DBG. In msg every line ends with NUL, and the message with two.
    Source: 3.2.79.
    """
    expect(fptr is None or callable(fptr), BAD_PARAM, "cudnnStatus_t/c05", f"fptr is {fptr!r}, not a function")
    api_log.configure(mask, udata, fptr)


class CallbackState(NamedTuple):
    mask: int
    udata: Any
    fptr: Any


@documented()
def cudnnGetCallback() -> CallbackState:
    """Return (mask, udata, fptr); fptr is None while the built-in callback is in use. Source: 3.2.41."""
    return CallbackState(api_log.state.mask, api_log.state.udata, api_log.state.callback)
