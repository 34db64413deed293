"""Integers in place of enumerators: cuDNN and MIOpen number theirs differently, and C takes a number for either.

An expression is *typed* where it gives a value to something of an enumeration type of cuDNN: an argument, a cast, a variable, a field,
an element, a default, a result, a side of a comparison, a label. Each value that it may have is then read: a number is the
enumerator of that value, a number that is not known is for a person to see.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dualdnn.api.document import functions
from dualdnn.api.enumerations import ENUMERATIONS

_NUMBER = re.compile(rb"([-+]?)\s*(0[xX][0-9a-fA-F']+|[0-9][0-9']*)[uUlLzZ]*")
_MACRO = re.compile(
    rb"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+\(*[ \t]*[-+]?(?:0[xX][0-9a-fA-F]+|\d+)[uUlL]*[ \t]*\)*[ \t]*(?://.*|/\*.*)?\r?$",
    re.M,
)
_INTEGERS = re.compile(
    r"(?:unsigned|signed|long|short|int|char|bool|size_t|s?size_t|u?int\d+(?:_fast|_least)?_t)(?:\s+\w+)*"
)
_COMPARED = {"==", "!=", "<", ">", "<=", ">="}
_ARITHMETIC = {"+", "-", "*", "/", "%", "<<", ">>", "|", "&", "^"}
_CASTS = {b"static_cast", b"reinterpret_cast"}


@dataclass(frozen=True)
class Typed:
    """An expression that gives a value to something of an enumeration type."""

    expression: Any
    kind: str
    is_cast: bool = False


def parameter_kinds(function: str, parameters: Sequence[str]) -> list[str | None]:
    """The enumeration type of each parameter of a documented function; None for those of other types."""
    known = (
        {p.name: p.base_type for p in functions()[function].parameters if not {"*", "["} & set(p.ctype)}
        if function in functions()
        else {}
    )
    return [kind if (kind := known.get(name)) in ENUMERATIONS else None for name in parameters]


def enumerator_of(kind: str, value: int) -> str | None:
    """The name of the enumerator of this value."""
    return next((member.name for member in ENUMERATIONS[kind] if member.value == value), None)


def values(node: Any) -> Iterator[Any]:
    """The expressions whose value this one may have: arms of conditionals, elements of lists, without parentheses."""
    waiting = [node]
    while waiting:
        found = waiting.pop()
        kind = found.type
        if kind in ("parenthesized_expression", "condition_clause", "argument_list"):
            waiting += reversed(_code(found))
        elif kind == "initializer_list":
            waiting += reversed([child for child in _code(found) if child.type != "initializer_pair"])
        elif kind == "conditional_expression" and found.child_by_field_name("alternative") is not None:
            waiting += [
                found.child_by_field_name(name)
                for name in ("alternative", "consequence")
                if found.child_by_field_name(name)
            ]
        elif kind == "conditional_expression":  # Python's order is value, condition, other value
            first, _, last = _code(found)
            waiting += [last, first]
        elif kind == "comma_expression":
            waiting.append(found.child_by_field_name("right"))
        else:
            yield found


def number(node: Any) -> int | None:
    """The value of a literal, signed or cast to an integer type; None for anything else."""
    if node.type in ("true", "false"):
        return int(node.type == "true")
    if node.type == "cast_expression" and _is_integer(node.child_by_field_name("type").text.decode()):
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
    """The type that an expression is cast to, by any of the ways of C and C++, and what is cast; no type where it is no cast."""
    if node.type in ("cast_expression", "compound_literal_expression"):
        return _bare(node.child_by_field_name("type").text.decode()), node.child_by_field_name("value")
    if node.type != "call_expression":
        return "", None
    function, given = node.child_by_field_name("function"), node.child_by_field_name("arguments")
    if function.type == "template_function" and function.child_by_field_name("name").text in _CASTS:
        return _bare(function.child_by_field_name("arguments").text.decode().strip("<> ")), given
    name = _bare(function.text.decode().strip("() "))  # (type)(value) looks like a call, and type(value) is one
    return (name, given) if name in ENUMERATIONS else ("", None)


def without_cast(node: Any) -> Any:
    """Return what is cast to an enumeration type, or the expression itself."""
    kind, value = cast(node)
    inner = list(values(value)) if kind in ENUMERATIONS else []
    return inner[0] if len(inner) == 1 else node


class Declared:
    """Hold what one file of C declares: variables with their scopes, fields, functions, macros that are numbers."""

    def __init__(
        self, root: Any, text: bytes, found: Sequence[Any], kinds: Mapping[str, str], called: Callable[[Any], Any]
    ) -> None:
        self.kinds, self.called, self.root = frozenset(kinds) & frozenset(ENUMERATIONS), called, root
        self.macros = {match[1] for match in _MACRO.finditer(text)}
        self.variables: dict[
            bytes, list[tuple[int, int, str, int]]
        ] = {}  # name -> scope, type, pointers and dimensions
        self.fields: dict[bytes, set[tuple[str, int]]] = {}
        self.functions: dict[bytes, tuple[str, list[str]]] = {}  # name -> type of the result, of the parameters
        for node in found:
            if node.type in (
                "declaration",
                "parameter_declaration",
                "optional_parameter_declaration",
                "field_declaration",
                "function_definition",
            ):
                self._declaration(node)

    def _declaration(self, node: Any) -> None:
        kind = _type(node)
        for declarator in node.children_by_field_name("declarator"):
            name, depth, function = _declarator(declarator)
            if name is None:
                continue
            if function is not None:
                parameters = [
                    _type(p) if not _declarator(p.child_by_field_name("declarator"))[1] else ""
                    for p in _parameters(function)
                ]
                self.functions[name] = (kind if depth == 0 else "", parameters)
            elif node.type == "field_declaration":
                self.fields.setdefault(name, set()).add((kind, depth))
            else:
                start, end = self._scope(node)
                self.variables.setdefault(name, []).append((start, end, kind, depth))

    def _scope(self, node: Any) -> tuple[int, int]:
        around = node.parent
        while around is not None and around.type not in (
            "compound_statement",
            "function_definition",
            "for_statement",
            "lambda_expression",
        ):
            around = around.parent
        return (around.start_byte, around.end_byte) if around is not None else (0, self.root.end_byte)

    def type_of(self, node: Any) -> str:
        """The declared type of a variable, an element or a field; empty where this file does not tell."""
        kind, depth = self._typed(node)
        return kind if depth == 0 else ""

    def _typed(self, node: Any) -> tuple[str, int]:
        if node.type == "identifier":
            around = [v for v in self.variables.get(node.text, ()) if v[0] <= node.start_byte < v[1]]
            return min(around, key=lambda v: v[1] - v[0])[2:] if around else ("", 0)
        if node.type == "field_expression":
            known = self.fields.get(node.child_by_field_name("field").text, set())
            return next(iter(known)) if len(known) == 1 else ("", 0)
        if node.type in ("subscript_expression", "pointer_expression"):
            kind, depth = self._typed(node.child_by_field_name("argument"))
            return kind, depth + (1 if node.text.startswith(b"&") else -1)
        if node.type == "parenthesized_expression" and len(_code(node)) == 1:
            return self._typed(_code(node)[0])
        return "", 0

    def is_number(self, node: Any) -> bool:
        """Whether the value is a number that is not written here: a variable of an integer type, a macro, arithmetic."""
        if node.type == "identifier" and node.text in self.macros:
            return True
        if node.type == "binary_expression" and node.child_by_field_name("operator").text.decode() in _ARITHMETIC:
            return True
        return _is_integer(self.type_of(node))

    def is_enumerator(self, node: Any) -> bool:
        """Whether the value has an enumeration type by itself: an enumerator, a variable or a cast."""
        if cast(node)[0] in self.kinds:
            return True
        name = node.text.rpartition(b"::")[2]
        if node.type == "call_expression" and (callee := self.called(node)) is not None:
            return self.functions.get(callee.text, ("", []))[0] in self.kinds
        return name.startswith(b"CUDNN_") or self.type_of(node) in self.kinds

    def typed(self, node: Any) -> Iterator[Typed]:
        """The expressions inside this node that give a value to something of an enumeration type."""
        reader = getattr(self, "_of_" + node.type, None)
        for found in reader(node) if reader else ():
            if found.expression is not None and found.kind in self.kinds:
                yield found

    def _of_cast_expression(self, node: Any) -> Iterator[Typed]:
        kind, value = cast(node)
        yield Typed(value, kind, True)

    _of_compound_literal_expression = _of_cast_expression

    def _of_call_expression(self, node: Any) -> Iterator[Typed]:
        yield from self._of_cast_expression(node)
        name = self.called(node)
        kinds = self.functions.get(name.text, ("", []))[1] if name is not None else []
        for argument, kind in zip(_code(node.child_by_field_name("arguments")), kinds, strict=False):
            yield Typed(argument, kind)

    def _of_declaration(self, node: Any) -> Iterator[Typed]:
        for declarator in node.children_by_field_name("declarator"):
            if declarator.type == "init_declarator" and not _is_pointer(declarator):
                yield Typed(declarator.child_by_field_name("value"), _type(node))
        yield Typed(node.child_by_field_name("default_value"), _type(node))

    _of_optional_parameter_declaration = _of_field_declaration = _of_declaration

    def _of_assignment_expression(self, node: Any) -> Iterator[Typed]:
        yield Typed(node.child_by_field_name("right"), self.type_of(node.child_by_field_name("left")))

    def _of_initializer_pair(self, node: Any) -> Iterator[Typed]:
        designator = node.child_by_field_name("designator")
        known = self.fields.get(designator.text.lstrip(b". "), set()) if designator is not None else set()
        if len(known) == 1:
            yield Typed(node.child_by_field_name("value"), next(iter(known))[0])

    def _of_binary_expression(self, node: Any) -> Iterator[Typed]:
        if node.child_by_field_name("operator").text.decode() in _COMPARED:
            left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
            yield Typed(left, self.type_of(right))
            yield Typed(right, self.type_of(left))

    def _of_switch_statement(self, node: Any) -> Iterator[Typed]:
        conditions = list(values(node.child_by_field_name("condition")))
        kind = self.type_of(conditions[0]) if len(conditions) == 1 else ""
        for label in _code(node.child_by_field_name("body")):
            if label.type == "case_statement":
                yield Typed(label.child_by_field_name("value"), kind)

    def _of_return_statement(self, node: Any) -> Iterator[Typed]:
        around = node.parent
        while around is not None and around.type not in ("function_definition", "lambda_expression"):
            around = around.parent
        if around is not None and around.type == "function_definition" and _code(node):
            yield Typed(
                _code(node)[0], _type(around) if not _declarator(around.child_by_field_name("declarator"))[1] else ""
            )


def counts_on_numbers(node: Any) -> bool:
    """Whether an enumerator is an index, or computed with: its number counts then."""
    parent = node.parent
    if parent is None:
        return False
    if parent.type == "binary_expression":
        operator = parent.child_by_field_name("operator").text.decode()
        return operator in _ARITHMETIC or operator in _COMPARED - {"==", "!="}
    return parent.type == "subscript_argument_list" or (
        parent.type == "subscript_expression" and parent.child_by_field_name("argument") != node
    )


def _code(node: Any) -> list[Any]:
    return [child for child in node.named_children if child.type != "comment"]


def _bare(text: str) -> str:
    return re.sub(r"\b(?:const|volatile|enum)\b|::|\s+", " ", text).strip()


def _type(node: Any) -> str:
    kind = node.child_by_field_name("type")
    return _bare(kind.text.decode("utf-8", "replace")) if kind is not None else ""


def _is_integer(text: str) -> bool:
    return _INTEGERS.fullmatch(_bare(text)) is not None


def _declarator(node: Any) -> tuple[bytes | None, int, Any]:
    """The name that a declarator declares, its pointers and dimensions, and the function's declarator where it is one."""
    depth, function = 0, None
    while node is not None and node.type not in ("identifier", "field_identifier"):
        depth += node.type in (
            "pointer_declarator",
            "array_declarator",
            "abstract_pointer_declarator",
            "abstract_array_declarator",
        )
        if node.type == "function_declarator":
            function = node
        inner = node.child_by_field_name("declarator")
        if inner is None and node.type in ("reference_declarator", "parenthesized_declarator") and _code(node):
            inner = _code(node)[0]
        node = inner
    return (node.text if node is not None else None), depth, function


def _is_pointer(declarator: Any) -> bool:
    inner = declarator.child_by_field_name("declarator")
    return inner is not None and inner.type == "pointer_declarator"


def _parameters(function: Any) -> list[Any]:
    listed = function.child_by_field_name("parameters")
    return [p for p in _code(listed) if p.type.endswith("parameter_declaration")] if listed is not None else []
