"""Finds the macros of a C file that are one of their arguments, as it is or cast: ``#define AS_INT(x) ((int)(x))``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from dualdnn.api.enumerations import ENUMERATIONS

from .integers import bare, is_integer

_MACRO = re.compile(rb"^[ \t]*#[ \t]*define[ \t]+(\w+)\(([\w, \t]*)\)((?:[^\n\\]|\\\r?\n|\\.)*)", re.M)
_COMMENT = re.compile(r"/\*.*?\*/|//.*|\\\r?\n", re.S)
_CAST = re.compile(
    r"\(([\w: ]+)\)\s*(.+)|(?:static|reinterpret|bit|const)_cast\s*<([\w: ]+)>\s*(\(.*\))|([\w:]+)\s*(\(.*\))", re.S
)
Passing = dict[bytes, tuple[str, int]]


def passing_macros(text: bytes) -> Passing:
    """Return for each such macro the type that it casts to, empty without a cast, and the place of its argument.

    A macro with two different definitions is left out.
    """
    found: dict[bytes, tuple[str, int] | None] = {}
    for macro in _MACRO.finditer(text):
        names = [name.strip() for name in macro[2].decode().split(",")]
        body = _COMMENT.sub(" ", macro[3].decode("utf-8", "replace"))
        casts, rest = _peeled(body.strip(), found)
        kinds = [kind for kind in casts if kind]
        kind = next((kind for kind in kinds if kind in ENUMERATIONS), kinds[0] if kinds else "")
        made = (kind, names.index(rest)) if rest in names else None
        found[macro[1]] = made if found.get(macro[1], made) == made else None
    return {name: made for name, made in found.items() if made is not None}


def _peeled(body: str, known: Mapping[bytes, tuple[str, int] | None]) -> tuple[list[str], str]:
    """Return the types that an expression is cast to, the outermost first, and what is cast."""
    casts: list[str] = []
    while True:
        inner = _without_parentheses(body)
        match = _CAST.fullmatch(inner)
        kind, rest = next(((k, r) for k, r in _pairs(match) if k), ("", "")) if match else ("", "")
        name = bare(kind)
        of_macro = known.get(kind.encode())
        if of_macro is not None and of_macro[1] == 0 and _without_parentheses(rest) != rest:
            casts.append(of_macro[0])
        elif name in ENUMERATIONS or is_integer(name):
            casts.append(name)
        else:
            return casts, inner
        body = rest


def _pairs(match: re.Match[str]) -> Iterator[tuple[str, str]]:
    groups = match.groups()
    yield from ((kind or "", rest or "") for kind, rest in zip(groups[::2], groups[1::2], strict=True))


def _without_parentheses(body: str) -> str:
    """Return an expression without the parentheses around the whole of it."""
    body = body.strip()
    while body.startswith("(") and body.endswith(")"):
        depth = 0
        for place, character in enumerate(body):
            depth += (character == "(") - (character == ")")
            if depth == 0 and place < len(body) - 1:
                return body
        body = body[1:-1].strip()
    return body
