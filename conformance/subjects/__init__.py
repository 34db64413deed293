"""What can be judged: our backends, any shared library with the cuDNN C ABI, and recorded calls of one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from dualdnn.accelerated.runtime.device import Device
from dualdnn.api import cudnn, miopen, releases
from dualdnn.api.status import NOT_INITIALIZED, CudnnError

from .library import LibrarySubject, NotRunnable, find_vendor_library, is_vendor_library
from .recorded import RecordedSubject, is_recorded

__all__ = [
    "NotRunnable",
    "OwnSubject",
    "RecordedSubject",
    "default_subjects",
    "find_vendor_library",
    "foreign_path",
    "is_recorded",
    "open_subject",
]

SPELLINGS = (
    "reference, accelerated, accelerated:gpu, accelerated:emulated, crosscheck, crosscheck:emulated, each also as a release that it acts "
    f"as ({', '.join(f'reference@{release}' for release in releases.RELEASES)}), library:PATH, vendor, recorded, recorded:PATH"
)


class OwnSubject:
    """One of our backends.

    What a case asks of a subject beyond the document depends on ``cites_clauses`` (refusals say which clause is violated, and what the
    document leaves open is decided as in docs/errata.md), ``survives_stray_pointers`` (destroyed, foreign and empty
    descriptors are refused), ``knows_sizes`` (of the caller's memory) and ``is_python`` (arguments that C cannot have).
    """

    ours = is_python = cites_clauses = survives_stray_pointers = knows_sizes = True
    computes = True  # handles can be made, and calls that compute run

    def __init__(self, name: str) -> None:
        name, _, release = name.partition("@")
        self.release = releases.named(release or releases.DOCUMENT)
        backend, _, device = name.partition(":")
        self.backend, self.device = backend, device or None
        self.cudnn: Any = cudnn
        Device.compiles_in_background = False  # or another kernel serves, and that of the plan is never judged
        Device.measures_anew = True  # or searches would not run what they are judged by
        handle = self.new_handle()
        self.description = handle.backend.description
        cudnn.cudnnDestroy(handle)
        self.name = f"{backend}:{self.device}" if backend != "reference" else backend
        if self.release:
            self.name, self.description = f"{self.name}@{self.release}", f"{self.description}, as {self.release}"

    @property
    def has_gpu(self) -> bool:
        return self.backend != "reference" and self.device != "emulated"

    @property
    def shows(self) -> tuple[str, ...]:
        return ("cpu", "gpu", "both") if self.has_gpu else ("cpu", "both")

    def new_handle(self) -> Any:
        """A handle of its own; raises where the backend's device cannot be had."""
        if self.backend != "reference" and self.device is None:
            try:
                handle = self.cudnn.cudnnCreate(backend=self.backend, device="gpu", as_release=self._as)
                self.device = "gpu"
                return handle
            except CudnnError as error:
                if error.status != NOT_INITIALIZED:
                    raise
                self.device = "emulated"
        return self.cudnn.cudnnCreate(backend=self.backend, device=self.device, as_release=self._as)

    @property
    def _as(self) -> str:
        return self.release or releases.DOCUMENT

    def implements(self, function: str) -> bool:
        return hasattr(miopen if function.startswith("miopen") else cudnn, function)

    def environment(self) -> dict[str, Any]:
        return {"backend": self.description}


class ForeignSubject:
    """A shared library: judged by status alone, unless its messages cite clauses; what it does differently is listed, not forbidden."""

    ours = is_python = False
    release = None

    def __init__(self, path: Path, note: Callable[[str], None] = lambda step: None) -> None:
        """Loads the library and asks it what it is. ``note`` is told each step before it is taken."""
        note("it was loaded")
        self.library = LibrarySubject(path)
        self.cudnn = self.library.cudnn
        note("cudnnGetVersion was called")
        version = self.library.version()
        name = "vendor" if is_vendor_library(path) else "library"  # NVIDIA's own has differences that are declared
        self.name = f"{name}-{version}" if version else name
        self.description = f"{self.library.name}, version {version}"
        note("cudnnCreate was called")
        try:
            handle = self.new_handle()
            note("cudnnDestroy was called")
            self.cudnn.cudnnDestroy(handle)
            self.computes = True
        except (CudnnError, NotRunnable):
            self.computes = False
        self.has_gpu = self.computes and self.library.library.cuda is not None
        note("a descriptor was set")
        self.cites_clauses = self._cites_clauses()
        # A library that knows the clauses on invalid pointers is asked about them; sizes are the driver's to tell.
        self.survives_stray_pointers = self.library.library.takes_stray_pointers = self.cites_clauses
        self.knows_sizes = self.cites_clauses and self.has_gpu
        self.library.library.asks_null = not is_vendor_library(self.library.path)  # whose NULL_CRASHES are known

    def _cites_clauses(self) -> bool:
        """Whether the message behind a refusal (cudnnGetLastErrorString) ends with the violated clause."""
        try:
            descriptor = self.cudnn.cudnnCreateTensorDescriptor()
            self.cudnn.cudnnSetTensor4dDescriptor(descriptor, 0, 0, -1, 1, 1, 1)
        except CudnnError as error:
            return error.clause is not None
        except NotRunnable:
            pass
        return False

    @property
    def shows(self) -> tuple[str, ...]:
        return ("cpu", "gpu", "both") if self.has_gpu else ("cpu", "both") if self.computes else ("cpu",)

    def new_handle(self) -> Any:
        return self.cudnn.cudnnCreate()

    def implements(self, function: str) -> bool:
        return function in self.library.exports()

    def environment(self) -> dict[str, Any]:
        return self.library.environment()


Subject = OwnSubject | ForeignSubject | RecordedSubject


def foreign_path(name: str) -> Path | None:
    """The shared library that a subject's name asks for, None where it asks for another kind; ``ValueError`` where none is installed."""
    kind, _, rest = name.partition(":")
    if kind == "library" and rest:
        return Path(rest)
    if name != "vendor":
        return None
    path = find_vendor_library()
    if path is None:
        raise ValueError("no vendor library is installed: pip install 'dualdnn[vendor]', or name one as library:PATH")
    return path


def open_subject(name: str) -> Subject:
    """The subject of this name; ``ValueError`` says which there are."""
    kind, _, rest = name.partition(":")
    if path := foreign_path(name):
        return ForeignSubject(path)
    if is_recorded(name):
        return RecordedSubject(name)
    kind, _, rest = name.partition("@")[0].partition(":")
    if kind in ("reference", "accelerated", "crosscheck") and rest in ("", "gpu", "emulated"):
        return OwnSubject(name)
    raise ValueError(f"subject {name!r} is none of {SPELLINGS}")


def default_subjects() -> list[str]:
    """Both backends, the packaged recorded calls, and the vendor's library where it is installed."""
    return ["reference", "accelerated", "recorded", *(["vendor"] if find_vendor_library() else [])]
