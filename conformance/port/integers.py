"""Translates integers in place of enumerators.

cuDNN and MIOpen number their enumerators differently, and C takes a number for either. ``uses`` finds the expressions,
``declared`` knows the types of a file. This module reads each value that an expression may have. A known number becomes
the enumerator of that value; a person has to look at an unknown one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from dualdnn.api.document import functions
from dualdnn.api.enumerations import ENUMERATIONS

_NUMBER = re.compile(rb"([-+]?)\s*(0[xX][0-9a-fA-F][0-9a-fA-F']*|0[0-7']*|[1-9][0-9']*)[uUlLzZ]*")
_INTEGERS = re.compile(
    r"(?:std )?(?:unsigned|signed|long|short|int|char|bool|float|double|s?size_t|u?int\d+(?:_fast|_least)?_t)(?:\s+\w+)*"
    r"|(?:std )?underlying_type(?:_t)?<[^<>]*>(?: type)?"
)
_CASTS = {b"static_cast", b"reinterpret_cast", b"bit_cast", b"const_cast"}
_TO_NUMBER = {"to_underlying": "int", "underlying_type_t": "int"}


def parameter_kinds(function: str, parameters: Sequence[str]) -> list[str | None]:
    """Return the enumeration type of each parameter of a documented function; None for other types."""
    known = (
        {p.name: p.base_type for p in functions()[function].parameters if not {"*", "["} & set(p.ctype)}
        if function in functions()
        else {}
    )
    return [kind if (kind := known.get(name)) in ENUMERATIONS else None for name in parameters]


def enumerator_of(kind: str, value: int) -> str | None:
    """Return the name of the enumerator of this value."""
    return next((member.name for member in ENUMERATIONS[kind] if member.value == value), None)


def values(node: Any) -> Iterator[Any]:
    """Return the expressions whose value this one may have: arms of conditionals, elements of lists, without
    parentheses."""
    waiting = [node]
    while waiting:
        found = waiting.pop()
        kind = found.type
        if kind == "condition_clause":
            waiting.append(found.child_by_field_name("value"))
        elif kind in ("parenthesized_expression", "argument_list"):
            waiting += reversed(code(found))
        elif kind == "compound_literal_expression" and not found.child_by_field_name("type").text:
            waiting.append(found.child_by_field_name("value"))  # This is how a default of {} is read.
        elif kind == "initializer_list":
            waiting += reversed([child for child in elements(found) if child.type != "initializer_pair"])
        elif kind == "conditional_expression" and found.child_by_field_name("alternative") is not None:
            waiting += [
                found.child_by_field_name(name)
                for name in ("alternative", "consequence")
                if found.child_by_field_name(name)
            ]
        elif kind == "conditional_expression":  # Python's order is value, condition, other value
            first, _, last = code(found)
            waiting += [last, first]
        elif kind == "generic_expression":
            waiting += [child for child in code(found)[:0:-1] if child.type != "type_descriptor"]
        elif kind == "comma_expression":
            waiting.append(found.child_by_field_name("right"))
        else:
            yield found


def elements(listed: Any) -> list[Any]:
    """Return the children of a list in braces; of an element with its index, ``[1] = value``, the value."""
    found = []
    for child in code(listed):
        designator = child.child_by_field_name("designator") if child.type == "initializer_pair" else None
        has_index = designator is not None and designator.type == "subscript_designator"
        found.append(child.child_by_field_name("value") if has_index else child)
    return found


def number(node: Any) -> int | None:
    """Return the value of a literal, signed or cast to an integer type; None for anything else."""
    if node.type in ("true", "false"):
        return int(node.type == "true")
    if node.type == "cast_expression" and is_integer(node.child_by_field_name("type").text.decode("utf-8", "replace")):
        inner = list(values(node.child_by_field_name("value")))
        return number(inner[0]) if len(inner) == 1 else None
    match = (
        _NUMBER.fullmatch(node.text)
        if node.type in ("number_literal", "unary_expression", "unary_operator", "integer")
        else None
    )
    if match is None:
        return None
    digits = match[2].replace(b"'", b"")
    base = 16 if digits[:2].lower() == b"0x" else 8 if digits[0:1] == b"0" else 10
    return (-1 if match[1] == b"-" else 1) * int(digits, base)


def cast(node: Any) -> tuple[str, Any]:
    """Return the type that an expression is cast to, by any of the ways of C and C++, and its operand. The type is
    empty without a cast."""
    if node.type in ("cast_expression", "compound_literal_expression"):
        kind = bare(node.child_by_field_name("type").text.decode("utf-8", "replace"))
        return re.sub(r"( ?\[[^][]*\])+$", "", kind), node.child_by_field_name("value")  # (type[]){value, value}
    if node.type != "call_expression":
        return "", None
    function, given = node.child_by_field_name("function"), node.child_by_field_name("arguments")
    # The cast (type)(value) looks like a call, and type(value) is one.
    name = bare(function.text.decode("utf-8", "replace").strip("() "))
    while function is not None and function.type == "qualified_identifier":
        function = function.child_by_field_name("name")
    if function is not None and function.type == "template_function":
        template = function.child_by_field_name("name").text
        if template in _CASTS:
            return bare(function.child_by_field_name("arguments").text.decode("utf-8", "replace").strip("<> ")), given
        name = template.decode()
    name = _TO_NUMBER.get(name.rpartition(" ")[2], name)
    if _is_type(name) or given is None:
        return (name, given) if given is not None else ("", None)
    # No function takes a type: such a call is a macro that casts its other argument.
    listed = [
        (bare(" ".join(part.text.decode("utf-8", "replace") for part in parts)), parts) for parts in _arguments(given)
    ]
    types = [text for text, _ in listed if _is_type(text)]
    others = [parts for text, parts in listed if not _is_type(text)]
    if not types or len(others) != 1 or len(others[0]) != 1:
        return "", None
    return next((text for text in types if text in ENUMERATIONS), types[0]), others[0][0]


def _arguments(given: Any) -> list[list[Any]]:
    """Return the nodes of each argument. A type among them is an error to the parser, whose parts are taken."""
    arguments: list[list[Any]] = [[]]
    waiting = list(reversed(given.children[1:-1]))
    while waiting:
        node = waiting.pop()
        if node.type == "ERROR":
            waiting += reversed(node.children)
        elif node.type == ",":
            arguments.append([])
        elif node.type != "comment":
            arguments[-1].append(node)
    return arguments


def _is_type(name: str) -> bool:
    return name in ENUMERATIONS or is_integer(name)


def without_cast(node: Any) -> Any:
    """Return the operand of a cast to an enumeration type, or the expression itself."""
    kind, value = cast(node)
    inner = list(values(value)) if kind in ENUMERATIONS else []
    return inner[0] if len(inner) == 1 else node


def code(node: Any) -> list[Any]:
    """Return the named children of a node, without comments."""
    return [child for child in node.named_children if child.type != "comment"]


@lru_cache(1 << 16)
def bare(text: str) -> str:
    """Return the name of a type without qualifiers."""
    return re.sub(r"\b(?:const|constexpr|volatile|enum|struct|class|union|typename)\b|::|\s+", " ", text).strip()


@lru_cache(1 << 16)
def is_integer(text: str) -> bool:
    """Return whether a type is one of C's numbers. An alias of one is not recognised."""
    return _INTEGERS.fullmatch(bare(text)) is not None
