"""Finds the types of elements, members and iterators' targets in the text of a type of the C++ standard library."""

from __future__ import annotations

import re

_TEMPLATE = re.compile(r"(?:std )?(\w+) ?<(.*)> ?(\w*)", re.DOTALL)
_DEDUCED = re.compile(r"(?:std )?(pair|tuple|vector|array|optional|list|deque|set|initializer_list)")
_POINTERS = frozenset({"unique_ptr", "shared_ptr", "optional"})
_COMPARED = frozenset({"optional", "atomic", "reference_wrapper"})  # These compare like the values that they hold.
# These members return an element, whose type is the template argument with this index.
ELEMENTS = {
    b"first": 0,
    b"second": -1,
    b"at": -1,
    b"front": 0,
    b"back": 0,
    b"top": 0,
    b"value": 0,
    b"value_or": 0,
    b"load": 0,
    b"get": 0,
}
ITERATORS = frozenset(
    {b"begin", b"cbegin", b"rbegin", b"crbegin", b"end", b"cend", b"find", b"lower_bound", b"upper_bound", b"data"}
)


def template(kind: str) -> tuple[str, list[str]]:
    """Return the name of a template and its arguments that are types; no name for other types."""
    match = _TEMPLATE.fullmatch(kind)
    if match is None or match[3]:
        return "", []
    depth, listed = 0, [""]
    for letter in match[2]:
        depth += (letter == "<") - (letter == ">")
        if letter == "," and depth == 0:
            listed.append("")
        else:
            listed[-1] += letter
    return match[1], [text.strip() for text in listed if not text.strip().isdigit()]


def element(kind: str, place: int) -> str:
    """Return the type of an element of a container: the argument at a place of its template."""
    types = template(kind)[1]
    return types[place] if types else ""


def member(kind: str, place: int) -> str:
    """Return the type of a numbered member of a pair, a tuple, a variant or an array."""
    name, types = template(kind)
    place = 0 if name == "array" else place
    return types[place] if place < len(types) else ""


def each(kind: str) -> str:
    """Return what an iterator of a container points at: a pair of key and value for maps."""
    name, types = template(kind)
    return f"pair<{', '.join(types[:2])}>" if name.endswith("map") else element(kind, 0)


def settled(kind: str, depth: int) -> tuple[str, int]:
    """Return an iterator's type as a pointer to what it points at; other types as they are."""
    match = _TEMPLATE.fullmatch(kind)
    if match and match[3].endswith("iterator"):
        return each(f"{match[1]}<{match[2]}>"), depth + 1
    return kind, depth


def pointed(kind: str) -> str:
    """Return what ``->`` of an object reaches: what a smart pointer holds, or the object's own type."""
    name, types = template(kind)
    return types[0] if name in _POINTERS and types else kind


def compared(kind: str) -> str:
    """Return the type whose values an object compares with."""
    name, types = template(kind)
    return types[0] if name in _COMPARED and types else kind


def made(kind: str, values: list[str]) -> str:
    """Return the type that values of these types make: ``std::pair{a, b}``, ``std::make_tuple(a)``; empty for others."""
    match = _DEDUCED.fullmatch(kind.replace("make_", ""))
    return f"{match[1]}<{', '.join(text or '?' for text in values)}>" if match else ""
