"""Reads what the headers that a file includes declare, so that a type means the same across files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from .declared import EVERYWHERE, SHARED, Declared
from .forms import table
from .reached import Included, declarations
from .rewriting import HEADER, called, parser
from .tree import read

_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*(?:include|include_next|import)[ \t]*(["<][^">\n]+[">])', re.M)
MAX_DEPTH = 200  # headers that include each other, as in GCC


class Headers(Included):
    """Reads each header once. An include is looked for beside its file, and among the ends of the paths to port."""

    def __init__(self, paths: Iterable[Path], level: str) -> None:
        self.level = level
        self.named: dict[str, list[Path]] = {}
        self.known: dict[Path, Declared | None] = {}
        self.texts: dict[Path, bytes | None] = {}
        for path in paths:
            self.named.setdefault(path.name, []).append(path)

    def of(self, path: Path, text: bytes, depth: int = 0) -> Declared | None:
        """Return what the headers of a file declare, or None if they do not name cuDNN."""
        found = []
        for included in _INCLUDE.findall(text) if depth < MAX_DEPTH else ():
            for header in self.paths(path, included):
                if (declared := self._header(header, depth)) is not None:
                    found.append(declared)
        return _together(found) if found else None

    def paths(self, path: Path, included: bytes) -> Iterator[Path]:
        name = Path(included[1:-1].decode("utf-8", "surrogateescape"))
        beside = path.parent / name
        if HEADER.fullmatch(included):
            return
        if beside.is_file():
            yield beside
            return
        end = [part for part in name.parts if part not in (".", "..")]
        yield from (each for each in self.named.get(name.name, ()) if list(each.parts[-len(end) :]) == end)

    def _header(self, path: Path, depth: int) -> Declared | None:
        path = path.resolve()
        if path not in self.known:
            self.known[path] = None  # A header may include itself.
            text = self.text(path)
            if text is None:
                return None
            outer = self.of(path, text, depth + 1)
            if outer is not None or b"cudnn" in text.lower():
                self.known[path] = declarations(str(path), text, table(self.level), outer, self)
        return self.known[path]

    def text(self, path: Path) -> bytes | None:
        """Return the bytes of a file that is included, or None where they are not text."""
        if path not in self.texts:
            try:
                self.texts[path] = read(path)
            except (OSError, ValueError):
                self.texts[path] = None
        return self.texts[path]


def _together(headers: list[Declared]) -> Declared:
    """Return the declarations of all headers. Of two that have one name, the last one counts."""
    outer = Declared(parser("cuda").parse(b"").root_node, b"", [], headers[0].kinds, called)
    for each in headers:
        for name in SHARED:
            known = getattr(outer, name)
            for key, value in {**getattr(each, name)}.items() if isinstance(known, dict) else ():
                known[key] = known[key] | value if isinstance(value, set) and key in known else value
            known |= getattr(each, name) if isinstance(known, set) else {}
        end = each.root.end_byte
        for variable, listed in each.variables.items():
            there = [(0, EVERYWHERE, *v[2:]) for v in listed if v[:2] == (0, end) or v[1] == EVERYWHERE]
            if there:
                outer.variables[variable] = there
    outer.generic.clear()  # It tells places in a header.
    return outer
