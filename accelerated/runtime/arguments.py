"""Compares the argument structure of a kernel with the one that the host packs, field by field.

The names of a kernel's fields come from its preprocessed source, and their offsets and sizes from the compiler. The
host's fields come from the ctypes structure. A field that both sides name must have one offset and one size.
Wherever a field of the kernel begins or ends, a field of the host must begin or end, too. This finds a missing field,
and a field of the wrong size, even when both structures have the same total size.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

MAX_DEPTH = 4  # levels of nested structures, limits the recursion of paths()
_SKIPPED = re.compile(r"^(static|using|typedef|template|friend|struct|class|union|enum|public|private)\b|\(|^$")
_ATTRIBUTES = re.compile(r"\balignas\([^()]*(?:\([^()]*\)[^()]*)*\)|__align__\([^()]*\)|\[\[[^\]]*\]\]")
_DECLARATOR = re.compile(r"(\w+)\s*((?:\[[^\]]*\])*)\s*(?:=.*)?$")
_ALIAS = re.compile(r"\busing\s+(\w+)\s*=\s*(\w+)")
_HEAD = re.compile(r"\b(?:struct|class)\s+(?:alignas\([^;{]*?\)\s*)?(\w+)\s*(?::\s*(?:public\s+)?(\w+)[^{;]*)?\{")


def declared(kind: Any, names: str) -> list[tuple[str, Any]]:
    """Return the fields of one type for the ``_fields_`` of a ctypes structure. names: separated by spaces."""
    return [(name, kind) for name in names.split()]


class Field(NamedTuple):
    """Hold the offset and the size of a field, both in bytes."""

    offset: int
    size: int


def _body(source: str, opening: int) -> str:
    """Return the text between the brace at ``opening`` and its matching brace, without the inner blocks."""
    depth, kept = 0, []
    for character in source[opening:]:
        if character == "{":
            depth += 1
        elif character == "}":
            depth -= 1
            kept.append(";")
            if depth == 0:
                break
        elif depth == 1:
            kept.append(character)
    return "".join(kept)


@lru_cache(maxsize=4)
def _definitions(source: str) -> tuple[dict[str, str], dict[str, re.Match[str]]]:
    """Return the aliased type of each ``using`` and the head of each structure; the first definition of a name wins."""
    aliases, heads = ([*pattern.finditer(source)][::-1] for pattern in (_ALIAS, _HEAD))
    return {alias[1]: alias[2] for alias in aliases}, {head[1]: head for head in heads}


@lru_cache(maxsize=256)  # The structures of one source contain each other.
def members(source: str, name: str) -> list[tuple[str, str, bool]]:
    """Return the data members of a structure, bases first, as (type, name, whether it is an array).

    Types have no template arguments, and a pointer's type is empty. The list is empty for a type that the source does
    not define as a structure.
    """
    aliases, heads = _definitions(source)
    if name in aliases:
        return members(source, aliases[name])
    if name not in heads:
        return []
    head = heads[name]
    found = list(members(source, head[2])) if head[2] else []
    for statement in _ATTRIBUTES.sub("", _body(source, head.end() - 1)).split(";"):
        text = " ".join(re.sub(r"^\s*#.*$", "", statement, flags=re.MULTILINE).split())
        if _SKIPPED.search(text) or " " not in text or ":" in text:
            continue
        text = re.sub(r"\b(const|unsigned|signed|volatile)\s+(?=\w+[\s<*&])", "", text)
        kind = re.match(r"\w+", text)
        if kind is None:
            continue
        rest = text[kind.end() :].lstrip()
        if rest.startswith("<"):
            depth = end = 0
            for end, character in enumerate(rest):  # noqa: B007
                depth += (character == "<") - (character == ">")
                if depth == 0:
                    break
            rest = rest[end + 1 :]
        for declarator in rest.split(","):
            if match := _DECLARATOR.search(declarator.strip()):
                pointer = "*" in declarator or "&" in declarator
                found.append(("" if pointer else kind[0], match[1], bool(match[2])))
    return found


def paths(source: str, name: str, depth: int = 0) -> list[str]:
    """Return the fields of a structure, nested ones included, as C++ designators such as ``geometry.vectors``.

    An array of structures gives its own name and the fields of its first element.
    """
    found = []
    for kind, member, array in members(source, name):
        inner = paths(source, kind, depth + 1) if kind and depth < MAX_DEPTH else []
        element = f"{member}[0]" if array else member
        if not inner or array:
            found.append(member)
        found += [f"{element}.{path}" for path in inner]
    return found


def parameter(source: str, kernel: str) -> str:
    """Return the type of a kernel's parameter without template arguments; empty where the kernel has no parameter."""
    found = re.search(rf"\b{kernel}\s*\(\s*([^)]*)\)\s*\{{", source)
    words = re.sub(r"\b(const|__grid_constant__)\b", "", found[1] if found else "").split()
    return re.split(r"\W", words[0])[0] if words else ""


def host_fields(kind: Any, prefix: str = "", offset: int = 0) -> dict[str, Field]:
    """Return the fields of a ctypes structure under the names that ``paths`` gives, with one for each array element."""
    found: dict[str, Field] = {}
    for base in reversed(kind.__mro__):
        for name, inner, *_ in vars(base).get("_fields_", ()):
            found |= _host_field(inner, prefix + name, offset + getattr(kind, name).offset)
    return found


def _host_field(kind: Any, name: str, start: int) -> dict[str, Field]:
    found = {name: Field(start, ctypes.sizeof(kind))}
    if issubclass(kind, ctypes.Structure):
        return host_fields(kind, f"{name}.", start)
    if issubclass(kind, ctypes.Array):
        step = ctypes.sizeof(kind._type_)
        for i in range(kind._length_):
            found |= _host_field(kind._type_, f"{name}[{i}]", start + i * step)
    return found


def difference(kernel: Mapping[str, Field], host: Mapping[str, Field]) -> str | None:
    """Return the first difference between the fields of the kernel and the host as text; None where they match."""
    starts, ends = {field.offset for field in host.values()}, {field.offset + field.size for field in host.values()}
    for name, field in kernel.items():
        has = f"{name}: the kernel has {field.size} bytes at {field.offset}"
        if name in host and host[name] != field:
            return f"{has}, the host {host[name].size} at {host[name].offset}"
        if field.offset not in starts or field.offset + field.size not in ends:
            return f"{has}, where no field of the host begins and ends"
    return None
