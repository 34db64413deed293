"""Ports one C file: follows numbers through macros and included rows to the enumerators that they become."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import arguments, integers, uses
from .declared import Declared
from .expanding import OF_A_SOURCE, Expansion, expansions
from .expressions import STATUS
from .forms import Table
from .rewriting import CFile
from .tree import C_SUFFIXES
from .verdicts import PortedFile
from .zeros import READERS, Zeros

_OTHERWISE = "MIOpen numbers its enumerators otherwise"
_LITERALS = frozenset({"number_literal", "true", "false"})
_SOURCES = C_SUFFIXES - {".h", ".hh", ".hpp", ".hxx", ".inl", ".cuh"}


class Included:
    """Finds and reads the files that an include may mean; this one finds none."""

    def paths(self, path: Path, included: bytes) -> Iterator[Path]:
        yield from ()

    def text(self, path: Path) -> bytes | None:
        return None


def port_c(
    path: str,
    text: bytes,
    table: Table,
    own_names: frozenset[str] = frozenset(),
    outer: Declared | None = None,
    included: Included | None = None,
) -> PortedFile:
    """Port one file; ``own_names`` are functions and macros that the tree defines itself, ``outer`` is what the
    headers declare."""
    if b"cudnn" not in text.lower() and outer is None:
        return PortedFile(path, text, text)
    file = CFile(path, text, table, own_names)
    file.port(outer)
    Reached(file).look(outer, included or Included())
    return file.finished()


def declarations(path: str, text: bytes, table: Table, outer: Declared | None, included: Included) -> Declared:
    """Return what a header declares, also by its macros, and how the bodies of its macros take their arguments."""
    file = CFile(path, text, table, frozenset())
    file.port(outer)
    made = next(expansions(Path(path), text, included.paths, included.text))
    if made.text == text:
        return file.declared
    declared, _ = file.declare(made.text, outer)
    declared.macro_arguments = file.declared.macro_arguments
    return declared


class Reached:
    """Looks at each number of the expanded text that something of an enumeration type gets.

    A number that only becomes one enumeration type is translated where it is written. Another one gets a note, there or
    where the macro or the include is used.
    """

    def __init__(self, file: CFile) -> None:
        self.file, self.text = file, file.text
        self.before = sorted(file.noted)  # The text as it is written has these notes.
        self.kinds: dict[
            int, dict[tuple[int, int], str]
        ] = {}  # place of a number -> type at each place of the expansions
        self.values: dict[int, tuple[str, int]] = {}  # place of a number -> its text and value
        self.from_body: set[int] = set()  # numbers in the bodies of macros
        self.count: dict[int, int] = {}  # place of a number -> how often the expansions have it

    def look(self, outer: Declared | None, included: Included) -> None:
        """Make the edits and notes of a file."""
        for index, made in enumerate(expansions(Path(self.file.ported.path), self.text, included.paths, included.text)):
            for at, why in made.left:
                self.file.note_at(at, "integer", f"{why}: numbers in it are not seen, and {_OTHERWISE}")
            if made.text == self.text:
                continue
            declared, found = self.file.declare(made.text, outer)
            zeros = Zeros(declared, self.file.changed)
            for node in found:
                kind = node.type
                if kind in _LITERALS and integers.number(node) is not None:
                    at, _, _ = made.origin(node.start_byte)
                    self.count[at] = self.count.get(at, 0) + 1
                elif kind in uses.READERS or kind in READERS:
                    for typed in (*uses.typed(declared, node), *self._documented(declared, node)):
                        self._typed(typed, declared, made, index)
                    for place, of in zeros(node):
                        self._zero(place, of, made)
        for at in sorted(self.kinds):
            self._settle(at)

    def _documented(self, declared: Declared, node: Any) -> Iterator[uses.Typed]:
        """Yield what a call gives to the enumeration types of a documented function."""
        name = declared.called(node) if node.type == "call_expression" else None
        forms = self.file.table.forms.get(name.text.decode("utf-8", "replace"), ()) if name is not None else ()
        given = list(arguments.of_call(node)) if forms else []
        for form in (form for form in forms[:1] if len(form.parameters) == len(given)):
            kinds = integers.parameter_kinds(form.cudnn, form.parameters)
            yield from (uses.Typed(g, k) for g, k in zip(given, kinds, strict=True) if k in declared.kinds)

    def _typed(self, typed: uses.Typed, declared: Declared, made: Expansion, index: int) -> None:
        for leaf in declared.values(typed.expression):
            at, begin, end = made.origin(leaf.start_byte)
            if at == OF_A_SOURCE or self._is_frozen(begin if begin >= 0 else at):
                continue
            text, value = leaf.text.decode("utf-8", "replace"), integers.number(leaf)
            kind, is_number = declared.kind_of(leaf)
            place = at if at >= 0 else begin
            if (
                typed.kind in declared.kinds
                and not typed.is_opaque
                and value is not None
                and at >= 0
                and not leaf.children
            ):
                self.kinds.setdefault(at, {})[index, leaf.start_byte] = typed.kind
                self.values[at] = text, value
                if begin >= 0 and not begin <= at < end:
                    self.from_body.add(at)
            elif self._is_noted(place, begin, end):
                continue
            elif typed.is_opaque or typed.kind not in declared.kinds:
                if begin >= 0 and typed.is_opaque:
                    self._note(place, f"{text} may hold a number here")
                elif begin >= 0 and kind != STATUS:
                    self.file.as_number(place, text, kind if not is_number else "", typed)
            elif value is not None or (kind != typed.kind and declared.is_number(leaf)):
                self._note(place, f"{text} is a number of {typed.kind}")

    def _zero(self, place: Any, kind: str, made: Expansion) -> None:
        at, begin, end = made.origin(place.start_byte)
        at = at if at >= 0 or at == OF_A_SOURCE else begin
        if at >= 0 and not self._is_noted(at, begin, end):
            self.file.zero(place, kind, at - place.start_byte)

    def _settle(self, at: int) -> None:
        """Translate a number that always becomes one enumeration type; note another one."""
        (text, value), kinds = self.values[at], set(self.kinds[at].values())
        is_edited = at in self.file.edits.edits
        is_whole = len(kinds) == 1 and len(self.kinds[at]) == self.count.get(at, 1)
        if at in self.file.noted or (is_edited and is_whole):
            return
        is_shared = at in self.from_body and Path(self.file.ported.path).suffix not in _SOURCES
        if is_whole and not is_shared:
            self.file.integer(at, text, kinds.pop(), value)
        else:
            also = "" if is_whole else ", and also something else"
            self._note(at, f"the number {text} is a number of {' and of '.join(sorted(kinds))}{also}")

    def _note(self, at: int, what: str) -> None:
        self.file.note_at(at, "integer", f"{what}: {_OTHERWISE}")

    def _is_noted(self, at: int, begin: int, end: int) -> bool:
        after = bisect_left(self.before, begin)
        return at in self.file.noted or (after < len(self.before) and self.before[after] < end)

    def _is_frozen(self, at: int) -> bool:
        return any(begin <= at < end for begin, end in self.file.frozen)
