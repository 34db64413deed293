"""Judge a shared library with the cuDNN C ABI: the subject ``library:PATH``."""

from __future__ import annotations

import atexit
import ctypes
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from dualdnn.api.enumerations import cudnnStatus_t

from .binding.functions import function_table, generate
from .binding.host import SpareMemory
from .binding.memory import CudaUnavailable, open_cuda
from .binding.objects import Handle, Library
from .binding.special import SPECIAL_SLOTS
from .binding.tables import vendor_null_crashes
from .binding.types import CALLBACK, Crashes, LibraryError, NotExported, NotExpressible, NotRunnable, SpansMore

__all__ = [
    "Crashes",
    "LibraryError",
    "LibrarySubject",
    "NotExported",
    "NotExpressible",
    "NotRunnable",
    "SpansMore",
    "find_vendor_library",
]


class Functions:
    """Provide the documented functions of one library as attributes."""

    def __init__(self, name: str, functions: Mapping[str, Callable[..., Any]]) -> None:
        self.library_name = name
        self.__dict__.update(functions)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name in function_table():
            raise NotExported(f"{self.library_name} does not export {name}")
        raise AttributeError(f"{name} is not a function of the document")


class LibrarySubject:
    """Wrap the library at ``path``; ``cudnn`` has its functions, called as the project calls everything.

    ``null_crashes`` maps functions to the parameters that must not be None. NVIDIA's library has its own list; any
    other library is expected to survive NULL.
    """

    def __init__(self, path: str | Path, null_crashes: Mapping[str, Sequence[str]] | None = None) -> None:
        self.path = Path(path)
        if not self.path.is_file():
            raise FileNotFoundError(f"{self.path} is not a file: a subject library:PATH names a shared library")
        self.library = Library(self.path.resolve())
        if null_crashes is None:
            null_crashes = vendor_null_crashes(self.library.version()) if is_vendor_library(self.path) else {}
        if is_vendor_library(self.path):
            self.library.host = SpareMemory()
        functions: dict[str, Callable[..., Any]] = dict(generate(self.library, SPECIAL_SLOTS, null_crashes))
        if "cudnnCreate" in functions:
            functions["cudnnCreate"] = partial(create_handle, self.library, functions["cudnnCreate"])
        self.cudnn = Functions(self.path.name, functions)
        self.functions = frozenset(functions)
        if "cudnnSetCallback" in functions:
            atexit.register(remove_callback, self.library)

    @property
    def name(self) -> str:
        """Return the subject's name in reports."""
        return f"library:{self.path.name}"

    def exports(self) -> frozenset[str]:
        """Return the documented functions that the library has."""
        return self.functions

    def version(self) -> int | None:
        """Return what cudnnGetVersion returns, 8907 for 8.9.7, or None if it is not exported."""
        return self.library.version()

    def environment(self) -> dict[str, Any]:
        """Return facts for reports."""
        facts: dict[str, Any] = {
            "library": self.path.name,
            "version": self.version(),
            "exported_functions": len(self.functions),
            "documented_functions": len(function_table()),
        }
        if "cudnnGetCudartVersion" in self.functions:
            facts["cuda_runtime_version"] = self.cudnn.cudnnGetCudartVersion()
        try:
            cuda = open_cuda()
        except CudaUnavailable as reason:
            return {**facts, "gpu": None, "compute_capability": None, "gpu_unavailable": str(reason)}
        return {**facts, "gpu": cuda.name, "compute_capability": cuda.compute_capability}


def create_handle(
    library: Library, create: Callable[[], Handle], *, backend: str | None = None, device: int | None = None
) -> Handle:
    """Call cudnnCreate on the GPU ``device`` (default: the first). A library has no choice of backends."""
    if backend is not None:
        raise ValueError(f"cudnnCreate: backend {backend!r} cannot be chosen, {library.path.name} is the backend")
    if device is not None and (not isinstance(device, int) or device < 0):
        raise ValueError(f"cudnnCreate: device is the number of a GPU, not {device!r}")
    try:
        library.use_gpu(device or 0)
    except CudaUnavailable as reason:
        if device is not None:
            number = int(cudnnStatus_t.CUDNN_STATUS_NOT_INITIALIZED)
            raise LibraryError(number, f"GPU {device}: {reason}", "cudnnCreate") from None
    return create()  # Without a GPU the library itself says what is missing.


def remove_callback(library: Library) -> None:
    """Keep the library from calling into Python while the interpreter shuts down."""
    if library.callback.function is not None:
        library.loaded.cudnnSetCallback(ctypes.c_uint(0), ctypes.c_void_p(None), CALLBACK())


def is_vendor_library(path: Path) -> bool:
    """Return whether this is NVIDIA's library: its folder contains the sub-libraries that it loads, as separate
    files.
    """
    found = path.resolve()
    return any(part.resolve() != found for part in found.parent.glob("libcudnn_ops*.so.*"))


def find_vendor_library() -> Path | None:
    """Return the library of the PyPI package nvidia-cudnn-cu12 (or -cu13), wherever Python finds packages, or None."""
    for folder in sys.path:
        found = sorted((Path(folder or ".") / "nvidia" / "cudnn" / "lib").glob("libcudnn.so.*"))
        if found:
            return found[-1]
    return None
