"""Judge recorded calls of a library: the subjects ``recorded`` (packaged) and ``recorded:PATH``."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from ..recorded import Recording, load_recording, packaged_recordings
from .binding.types import NotRunnable


def is_recorded(name: str) -> bool:
    """Return whether the subject of this name is recorded calls."""
    return name == "recorded" or (name.startswith("recorded:") and name != "recorded:")


def recordings_of(name: str) -> list[Recording]:
    """Return the recordings of a subject: of ``recorded:PATH``, else the packaged ones."""
    path = name.partition(":")[2] if is_recorded(name) else ""
    return [load_recording(path)] if path else [load_recording(packaged) for packaged in packaged_recordings()]


class RecordedSubject:
    """Replay what a library once answered. Only the cases of recorded calls apply to it."""

    ours = is_python = cites_clauses = survives_stray_pointers = knows_sizes = False
    has_gpu = computes = False
    release = None
    shows = ("cpu", "gpu", "both")

    def __init__(self, name: str) -> None:
        self.spelling = name
        self.recordings = recordings_of(name)
        first = self.recordings[0]
        self.version = version_text(first.library_version)
        self.name = f"recorded-{first.library}-{self.version}"
        count = sum(len(recording.records) for recording in self.recordings)
        self.description = f"{count} recorded calls of {first.library} {self.version} on {first.device}"

    @property
    def cudnn(self) -> Any:
        raise NotRunnable("recorded calls cannot be called")

    def new_handle(self) -> Any:
        raise NotRunnable("recorded calls have no handle")

    @cached_property
    def functions(self) -> frozenset[str]:
        return frozenset(record.function for recording in self.recordings for record in recording.records)

    def implements(self, function: str) -> bool:
        return function in self.functions

    def environment(self) -> dict[str, Any]:
        return {
            "library": self.recordings[0].library,
            "version": self.version,
            "device": self.recordings[0].device,
            "recordings": {recording.name: len(recording.records) for recording in self.recordings},
        }


def version_text(number: int) -> str:
    """Return the version as text: 9.19 for 91900, 8.9.7 for 8907."""
    thousands = 10000 if number >= 90000 else 1000
    return f"{number // thousands}.{number % thousands // 100}.{number % 100}".removesuffix(".0")
