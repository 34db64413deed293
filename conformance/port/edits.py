"""Edits byte ranges; bytes that no edit covers stay as they are."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

Part = bytes | tuple[int, int]  # A part is new text, or a range of the original with the edits inside it.


@dataclass(frozen=True)
class Edit:
    """Replaces the range [start, end) by these parts."""

    start: int
    end: int
    parts: tuple[Part, ...]


class Edits:
    """Holds the edits of one text; an edit may be inside a range that another one moves."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        self.edits: dict[int, list[Edit]] = {}

    def replace(self, start: int, end: int, *parts: Part) -> None:
        """Replace a range. Where edits have the same start, the longer is the outer one."""
        self.edits.setdefault(start, []).append(Edit(start, end, parts))

    def apply(self) -> bytes:
        """Return the edited text."""
        for there in self.edits.values():
            there.sort(key=lambda edit: -edit.end)
        starts = sorted(self.edits)
        return self._range(0, len(self.text), starts, None)

    def _range(self, start: int, end: int, starts: list[int], inside: Edit | None) -> bytes:
        pieces, at = [], start
        index = bisect_left(starts, start)
        while index < len(starts) and (starts[index] < end or starts[index] == end == len(self.text)):
            edit = self._outermost(starts[index], end, inside)
            if edit is None or edit.start < at:
                index += 1
                continue
            pieces.append(self.text[at : edit.start])
            for part in edit.parts:
                pieces.append(part if isinstance(part, bytes) else self._range(*part, starts, edit))
            at = edit.end
            index = max(index + 1, bisect_left(starts, at))
        return b"".join([*pieces, self.text[at:end]])

    def _outermost(self, start: int, end: int, inside: Edit | None) -> Edit | None:
        """Return the longest edit that begins here within the range, and does not contain the range."""
        for edit in self.edits[start]:
            if edit.end <= end and (inside is None or edit.start > inside.start or edit.end < inside.end):
                return edit
        return None
