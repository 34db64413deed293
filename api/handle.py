"""Define the handle: it owns a backend, a stream and the cached calls, and it allocates buffers."""

from __future__ import annotations

import os
import threading
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from . import releases
from .enumerations import cudnnStatus_t
from .operations import Backend, Buffer
from .operations.answers import Answers
from .operations.backend import LEVELS, RUN
from .operations.buffers import checked_size
from .operations.forks import free_in_children
from .status import ALLOC_FAILED, BAD_PARAM, NOT_INITIALIZED, CudnnError

BACKENDS = ("reference", "accelerated", "crosscheck")
DEVICES = ("gpu", "emulated")
LEVEL = "dualdnnReproducible/c01"  # clause of an unknown level


class Handle:
    """Represent the library context behind a ``cudnnHandle_t``.

    Several threads may use one handle: a lock serialises their calls. ``to_device`` and ``allocate`` make buffers in
    the handle's memory; ``new_stream`` makes a stream for ``cudnnSetStream``. A ``with`` statement destroys the handle
    at its end.
    """

    def __init__(self, backend: Backend, release: str | None = None, reproducible: str = RUN) -> None:
        """Create a handle of a backend.

        release: names the cuDNN release that its calls emulate; None means the document.
        reproducible: the level of reproducibility that the backend holds.
        """
        self.backend: Any = backend  # This is a Backend; each backend has additional attributes.
        self.release, self.reproducible = release, reproducible
        self.stream: Any = None  # This is the backend's form of the stream.
        self.user_stream: Any = None  # This is the argument of cudnnSetStream.
        self.lock = free_in_children(threading.RLock())
        self.alive = True
        self.answers = Answers()  # It caches prepared operations and the results of host-side calls.
        self.runtime_error = cudnnStatus_t.CUDNN_STATUS_SUCCESS

    @classmethod
    def gone(cls) -> Handle:
        """Return a destroyed handle, about which nothing else is known."""
        made = cls(cast(Backend, SimpleNamespace(description="of C", name="none")))
        made.alive = False
        return made

    def to_device(self, array: Any) -> Buffer:
        """Return a buffer with a copy of the array's elements in row-major order."""
        return self._allocated(lambda: self.backend.to_device(np.ascontiguousarray(array)))

    def allocate(self, nbytes: int) -> Buffer:
        """Return a buffer of ``nbytes`` bytes with undefined contents."""
        return self._allocated(lambda: self.backend.allocate(checked_size(nbytes)))

    def zeros(self, nbytes: int) -> Buffer:
        """Return a buffer of ``nbytes`` zero bytes."""
        return self._allocated(lambda: self.backend.zeros(checked_size(nbytes)))

    def new_stream(self) -> Any:
        """Return a new stream of the handle's device."""
        return self.backend.new_stream()

    def synchronize(self) -> None:
        """Wait until all work in the handle's stream has finished."""
        self.backend.synchronize(self.stream)

    def destroy(self) -> None:
        self.backend.synchronize(self.stream)
        self.alive = False
        self.answers.clear()
        self.backend.close()

    def _allocated(self, make: Any) -> Buffer:
        if not self.alive:
            raise CudnnError(NOT_INITIALIZED, "cudnnStatus_t/c03", "the handle was destroyed by cudnnDestroy")
        try:
            return make()
        except MemoryError as error:
            raise CudnnError(ALLOC_FAILED, "cudnnStatus_t/c04", str(error) or "out of memory") from error

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *_: object) -> None:
        """Destroy the handle if it is still alive."""
        with self.lock:
            if self.alive:
                self.destroy()

    def __repr__(self) -> str:
        return f"<cudnnHandle_t {self.backend.description}{'' if self.alive else ', destroyed'}>"


def release_named(name: str | None) -> str | None:
    """Return the release that ``cudnnCreate(as_release=...)`` or DUALDNN_AS requests; raise BAD_PARAM if it is unknown."""
    try:
        return releases.named(name)
    except ValueError as error:
        raise CudnnError(BAD_PARAM, "cudnnStatus_t/c05", f"as_release: {error}") from None


def level_named(name: str | None) -> str:
    """Return the level that ``cudnnCreate(reproducible=...)`` or DUALDNN_REPRODUCIBLE requests.

    The default is "run". Raise BAD_PARAM if it is unknown.
    """
    level = name if name is not None else os.environ.get("DUALDNN_REPRODUCIBLE") or RUN
    if not (isinstance(level, str) and level in LEVELS):
        raise CudnnError(BAD_PARAM, LEVEL, f"reproducible is {level!r}, not one of {', '.join(LEVELS)}")
    return level


def open_backend(backend: str | None, device: str | None, reproducible: str = RUN) -> Any:
    """Return the backend that ``cudnnCreate(backend=..., device=..., reproducible=...)`` requests.

    The backend defaults to DUALDNN_BACKEND, then to accelerated if a GPU is usable, then to reference. The device
    defaults to DUALDNN_DEVICE, then to a GPU. Raise BAD_PARAM for an unknown value, and for a level above "run" of the
    reference backend. NumPy chooses the order in which its matrix products add.
    """
    name = backend if backend is not None else os.environ.get("DUALDNN_BACKEND") or None
    if name is not None and not (isinstance(name, str) and name in BACKENDS):
        raise CudnnError(BAD_PARAM, "cudnnStatus_t/c05", f"backend is {name!r}, not one of {', '.join(BACKENDS)}")
    if device is None and name != "reference":
        device = os.environ.get("DUALDNN_DEVICE") or None
    if not (device is None or (isinstance(device, str) and device in DEVICES)):
        raise CudnnError(BAD_PARAM, "cudnnStatus_t/c05", f"device is {device!r}, not None, 'gpu' or 'emulated'")
    if name is None:
        name = "accelerated" if device is not None or _gpu_is_usable() else "reference"
    if name == "reference":
        if device is not None:
            raise CudnnError(
                BAD_PARAM, "cudnnStatus_t/c05", f"the reference backend has no device, {device!r} was asked for"
            )
        if reproducible != RUN:
            text = f"the reference backend promises {RUN!r} alone, reproducible={reproducible!r} was asked for"
            raise CudnnError(BAD_PARAM, LEVEL, text)
        from dualdnn.reference import ReferenceBackend

        return ReferenceBackend()
    accelerated = _accelerated(device, reproducible)
    if name == "accelerated":
        return accelerated
    from .crosscheck import CrosscheckBackend

    return CrosscheckBackend(accelerated)


def _accelerated(device: str | None, reproducible: str) -> Any:
    from dualdnn.accelerated import AcceleratedBackend, DeviceUnavailable

    try:
        return AcceleratedBackend(device or "gpu", reproducible)
    except DeviceUnavailable as error:
        instead = "" if device else "; without a GPU, in Python: cudnnCreate(..., device='emulated')"
        raise CudnnError(NOT_INITIALIZED, "cudnnCreate/c12", f"{error}{instead}") from error


def _gpu_is_usable() -> bool:
    from dualdnn.accelerated import gpu_is_usable

    return gpu_is_usable()
