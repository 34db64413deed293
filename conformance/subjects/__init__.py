"""Open what can be judged: our backends, any shared library with the cuDNN C ABI, and recorded calls of one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from dualdnn.api import cudnn, releases
from dualdnn.api.enumerations import cudnnStatus_t
from dualdnn.api.operations.backend import RUN
from dualdnn.api.status import NOT_INITIALIZED, CudnnError

from .binding.types import NothingCreated
from .library import LibrarySubject, NotRunnable, SpansMore, find_vendor_library, is_vendor_library
from .recorded import RecordedSubject, is_recorded

__all__ = [
    "NotRunnable",
    "SpansMore",
    "OwnSubject",
    "RecordedSubject",
    "default_subjects",
    "find_vendor_library",
    "foreign_path",
    "is_lost",
    "is_recorded",
    "open_subject",
]

# This is what the document lets cudnnCreate answer where there is no GPU, or a GPU that is too old.
WITHOUT_GPU = (NOT_INITIALIZED, cudnnStatus_t.CUDNN_STATUS_ARCH_MISMATCH)
SPELLINGS = (
    "reference, accelerated, accelerated:gpu, accelerated:emulated, crosscheck, crosscheck:emulated, each also as a release that it acts "
    f"as ({', '.join(f'reference@{release}' for release in releases.RELEASES)}), library:PATH, vendor, recorded, recorded:PATH"
)


class OwnSubject:
    """Wrap one of our backends.

    Some cases ask more of a subject than the document does. ``cites_clauses``: refusals name the violated clause, and
    open questions are decided as in docs/errata.md. ``survives_stray_pointers``: destroyed, foreign and empty
    descriptors are refused. ``knows_sizes``: the sizes of the caller's memory are known. ``is_python``: arguments that
    C cannot express are possible.
    """

    ours = is_python = cites_clauses = survives_stray_pointers = knows_sizes = True
    computes = True  # whether handles can be made and computing calls run

    def __init__(self, name: str) -> None:
        # The processes that probe foreign libraries do without these modules.
        from dualdnn.accelerated.runtime.device import Device

        name, _, release = name.partition("@")
        self.release = releases.named(release or releases.DOCUMENT)
        backend, _, device = name.partition(":")
        self.backend, self.device = backend, device or None
        self.cudnn: Any = cudnn
        # Otherwise another kernel would serve, and the planned one would never be judged.
        Device.compiles_in_background = False
        Device.measures_anew = True  # Otherwise searches would not run the algorithms that they are judged by.
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
        """Return a new handle. Raises if the backend's device is unavailable."""
        if self.backend != "reference" and self.device is None:
            try:
                handle = self.cudnn.cudnnCreate(backend=self.backend, device="gpu", as_release=self._as)
                self.device = "gpu"
                return handle
            except CudnnError as error:
                if error.status != NOT_INITIALIZED:
                    raise
                self.device = "emulated"
        level = RUN if self.backend == "reference" else None  # DUALDNN_REPRODUCIBLE is for the others.
        return self.cudnn.cudnnCreate(backend=self.backend, device=self.device, as_release=self._as, reproducible=level)

    @property
    def _as(self) -> str:
        return self.release or releases.DOCUMENT

    def implements(self, function: str) -> bool:
        from dualdnn.api import miopen

        return hasattr(miopen if function.startswith("miopen") else cudnn, function)

    def environment(self) -> dict[str, Any]:
        return {"backend": self.description}


class ForeignSubject:
    """Wrap a shared library.

    It is judged by status alone unless its messages cite clauses; differences are listed, not forbidden.
    """

    ours = is_python = False
    release = None

    def __init__(self, path: Path, note: Callable[[str], None] = lambda step: None) -> None:
        """Load the library and query its properties. ``note`` is told each step before it is taken."""
        note("it was loaded")
        self.library = LibrarySubject(path)
        self.cudnn = self.library.cudnn
        note("cudnnGetVersion was called")
        version = self.library.version()
        name = "vendor" if is_vendor_library(path) else "library"  # Only NVIDIA's own library has declared differences.
        self.name = f"{name}-{version}" if version else name
        self.description = f"{self.library.name}, version {version}"
        note("cudnnCreate was called")
        try:
            handle = self.new_handle()
            note("cudnnDestroy was called")
            self.cudnn.cudnnDestroy(handle)
            self.computes = True
        except NotRunnable:
            self.computes = False
        except CudnnError as error:  # Each case that needs a handle fails with any other answer.
            self.computes = error.status not in WITHOUT_GPU
        except NothingCreated:  # Each case that needs a handle fails with this sentence.
            self.computes = True
        self.has_gpu = self.computes and self.library.library.cuda is not None
        note("a descriptor was set")
        self.cites_clauses = self._cites_clauses()
        # A library that knows the clauses on invalid pointers is asked about them; sizes come from the driver.
        self.survives_stray_pointers = self.library.library.takes_stray_pointers = self.cites_clauses
        self.knows_sizes = self.cites_clauses and self.has_gpu
        # NVIDIA's library need not be asked, because its NULL_CRASHES are known.
        self.library.library.asks_null = not is_vendor_library(self.library.path)

    def _cites_clauses(self) -> bool:
        """Return whether the message of a refusal (cudnnGetLastErrorString) ends with the violated clause."""
        try:
            descriptor = self.cudnn.cudnnCreateTensorDescriptor()
            self.cudnn.cudnnSetTensor4dDescriptor(descriptor, 0, 0, -1, 1, 1, 1)
        except CudnnError as error:
            return error.clause is not None
        except (NotRunnable, NothingCreated):
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
    """Return the shared library that a subject's name means, or None for other kinds.

    Raises ``ValueError`` if the library is not installed.
    """
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
    """Return the subject of this name. Raises ``ValueError`` that lists the valid names."""
    kind, _, rest = name.partition(":")
    if path := foreign_path(name):
        return ForeignSubject(path)
    if is_recorded(name):
        return RecordedSubject(name)
    kind, _, rest = name.partition("@")[0].partition(":")
    if kind in ("reference", "accelerated", "crosscheck") and rest in ("", "gpu", "emulated"):
        return OwnSubject(name)
    raise ValueError(f"subject {name!r} is not one of {SPELLINGS}")


def is_lost(subject: Subject) -> bool:
    """Return whether a subject can no longer use its device, as after a fault that ended a GPU's context."""
    if not subject.computes:
        return False
    try:
        handle = subject.new_handle()
        handle.to_device(np.zeros(1, np.uint8)).free()
        subject.cudnn.cudnnDestroy(handle)
    except Exception:  # Each subject has its own errors.
        return True
    return False


def default_subjects() -> list[str]:
    """Return both backends, the packaged recorded calls, and the vendor's library if it is installed."""
    return ["reference", "accelerated", "recorded", *(["vendor"] if find_vendor_library() else [])]
