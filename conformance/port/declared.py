"""Finds what one file of C declares, and of which enumeration type of cuDNN the value of an expression is."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from dualdnn.api.abi.c_types import RESULTS
from dualdnn.api.abi.header import PERFORMANCES
from dualdnn.api.document import functions
from dualdnn.api.enumerations import ENUMERATIONS

from .integers import bare, cast, code, is_integer, values

STATUS = "cudnnStatus_t"
_NUMBERS = rb"[-+]?(?:0[xX][0-9a-fA-F]+|\d+)[uUlL]*"
_COMPARED_IN_TEXT = re.compile(rb"(?:[=!]=[ \t(]*|\bcase[ \t]+)([-+]?\w+)|\b(\d\w*)[ \t)]*[=!]=")
_MACRO = re.compile(
    rb"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+\(*[ \t]*%b[ \t]*\)*[ \t]*(?://.*|/\*.*)?\r?$" % _NUMBERS, re.M
)
_MACRO_OF_ENUMERATOR = re.compile(
    rb"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+\(*[ \t]*(CUDNN_\w+)[ \t]*\)*[ \t]*\r?$", re.M
)
_MACRO_OF_ARGUMENTS = re.compile(rb"^[ \t]*#[ \t]*define[ \t]+(\w+)\(([^\n\\]*(?:\\\r?\n?[^\n\\]*)*)", re.M)
_DECLARATIONS = frozenset(
    {
        "declaration",
        "parameter_declaration",
        "optional_parameter_declaration",
        "field_declaration",
        "function_definition",
        "for_range_loop",
    }
)
_RECORDS = frozenset({"struct_specifier", "class_specifier", "union_specifier"})
_CALLEES = {"qualified_identifier": "name", "field_expression": "field", "pointer_expression": "argument"}
# Each name gives an element of a container, whose type is this argument of the container's template.
_ELEMENTS = {
    b"first": 0,
    b"second": -1,
    b"at": -1,
    b"front": 0,
    b"back": 0,
    b"top": 0,
    b"value": 0,
    b"load": 0,
    b"get": 0,
}
_KIND_OF_NAME = {member.name: kind for kind, members in ENUMERATIONS.items() for member in members}
_POINTS = frozenset(
    {"pointer_declarator", "array_declarator", "abstract_pointer_declarator", "abstract_array_declarator"}
)
_MEMBERS = {
    kind: {b"algo": algorithm, b"status": STATUS, b"determinism": "cudnnDeterminism_t", b"mathType": "cudnnMathType_t"}
    for kind, algorithm in PERFORMANCES.items()
}


class Declared:
    """Hold what one file of C declares: variables with their scopes, fields, functions, templates, aliases, macros of numbers.

    A variable of an integer type, or ``auto``, that is given a value of an enumeration type *carries* that type.
    """

    def __init__(
        self,
        root: Any,
        text: bytes,
        found: Sequence[Any],
        kinds: Iterable[str],
        called: Callable[[Any], Any],
        outer: Declared | None = None,
    ) -> None:
        """outer: of the file, where ``root`` is the body of one of its macros."""
        self.kinds, self.called, self.root = frozenset(kinds) & frozenset(ENUMERATIONS), called, root
        self.macros: set[bytes] = outer.macros if outer else {match[1] for match in _MACRO.finditer(text)}
        # name of a macro that compares with numbers -> as what it takes an argument: "bool" where the numbers are 0
        self.comparing: dict[bytes, str] = outer.comparing if outer else dict(_comparing(text))
        # macro -> type of the enumerator that it stands for
        self.constants: dict[str, str] = outer.constants if outer else dict(_enumerators(text))
        # The body of a macro takes the argument at a place as a value of a type.
        self.macro_arguments: dict[bytes, dict[int, str]] = outer.macro_arguments if outer else {}
        self.macro, self.places = b"", dict[bytes, int]()  # name and arguments of the macro whose body this is
        self.records: dict[str, dict[bytes, tuple[str, int]]] = dict(outer.records) if outer else {}
        self.results: dict[bytes, tuple[str, int]] = dict(outer.results) if outer else {}
        self.variables: dict[
            bytes, list[tuple[int, int, str, int]]
        ] = {}  # name -> scope, type, pointers and dimensions
        self.fields: dict[bytes, set[tuple[str, int]]] = dict(outer.fields) if outer else {}
        # name -> type of the result, of the parameters
        self.functions: dict[bytes, tuple[str, list[str]]] = dict(outer.functions) if outer else {}
        self.aliases: dict[str, str] = dict(outer.aliases) if outer else {}
        self.templates: set[bytes] = (
            set(outer.templates) if outer else set()
        )  # those that have a parameter of an integer type
        self.carried: dict[tuple[bytes, int], str] = {}  # name and beginning of the scope -> enumeration type
        for node in found:
            if node.type in ("alias_declaration", "type_definition"):
                self._alias(node)
            elif node.type == "template_declaration":
                self._template(node)
            elif node.type in _DECLARATIONS:
                self._declaration(node)
        for node in found:
            self._carries(node)

    def _alias(self, node: Any) -> None:
        name = node.child_by_field_name("name") or node.child_by_field_name("declarator")
        if name is not None and ((kind := self.named(node)) in self.kinds or is_integer(kind)):
            self.aliases[name.text.decode()] = kind

    def _template(self, node: Any) -> None:
        parameters = code(node.child_by_field_name("parameters"))
        if any(p.type.endswith("parameter_declaration") and is_integer(self.named(p)) for p in parameters):
            self.templates |= {
                child.child_by_field_name("name").text for child in code(node) if child.child_by_field_name("name")
            }

    def _declaration(self, node: Any) -> None:
        kind = self.named(node)
        for each in node.children_by_field_name("declarator"):
            name, depth, function = declarator(each)
            if name is None:
                continue
            if function is not None:
                parameters = [
                    self.named(p) if not declarator(p.child_by_field_name("declarator"))[1] else ""
                    for p in _parameters(function)
                ]
                made = (kind if depth == 0 else "", parameters)
                self.functions[name] = made if self.functions.get(name, made) == made else ("", [])
                self.results[name] = (
                    (kind, depth) if self.results.get(name, (kind, depth)) == (kind, depth) else ("", 0)
                )
            elif node.type == "field_declaration":
                self.fields.setdefault(name, set()).add((kind, depth))
                self.records.setdefault(_record(node), {})[name] = (kind, depth)
            elif match := re.search(r"\bfunction< ?(\w+) ?\(", kind):
                self.functions[name] = (self.bare(match[1]), [])
            elif node.type == "for_range_loop":
                around = (node.start_byte, node.end_byte)
                whole, dimensions = self.declared(node.child_by_field_name("right"))
                each_kind = _element(whole, 0) if dimensions == 0 and not _of_pairs(whole) else whole
                self.variables.setdefault(name, []).append(
                    (*around, self.bare(each_kind) if kind == "auto" else kind, max(dimensions - 1, 0))
                )
            else:
                start, end = self._scope(node)
                self.variables.setdefault(name, []).append((start, end, kind, depth))

    def _carries(self, node: Any) -> None:
        """A declaration or an assignment that gives an integer variable, or an ``auto`` one, an enumerator."""
        if node.type == "init_declarator":
            target, value = node.child_by_field_name("declarator"), node.child_by_field_name("value")
            name = declarator(target)[0]
        elif node.type == "optional_parameter_declaration":
            name, value = (
                declarator(node.child_by_field_name("declarator"))[0],
                node.child_by_field_name("default_value"),
            )
        elif node.type == "assignment_expression":
            target, value = node.child_by_field_name("left"), node.child_by_field_name("right")
            name = target.text if target.type == "identifier" else None
        else:
            return
        around = self._variable(name, node.start_byte) if name is not None else None
        if around is not None and around[2] == "auto" and (result := self._function_of(value)):
            assert name is not None
            self.functions[name] = (result, [])
        if around is None or not (around[2] == "auto" or is_integer(around[2])):
            return
        assert name is not None
        found = {kind for leaf in values(value) if (kind := self.kind_of(leaf)[0])}
        if len(found) == 1:
            self.carried[name, around[0]] = found.pop()

    def _function_of(self, value: Any) -> str:
        """Return the type of what a function, its address or a lambda returns; empty for other values."""
        if value.type == "lambda_expression":
            return self.returned(value)
        while value.type in ("pointer_expression", "parenthesized_expression") and code(value):
            value = code(value)[0]
        return self._result(value.text) if value.type == "identifier" else ""

    def _result(self, name: bytes) -> str:
        text = name.decode("utf-8", "replace")
        is_status = text in functions() and text not in RESULTS
        return self.functions.get(name, ("", []))[0] or (STATUS if is_status else "")

    def returned(self, node: Any) -> str:
        """Return the type that a function or a lambda returns; empty where it is deduced."""
        around = node.child_by_field_name("declarator")
        trailing = (
            next((child for child in code(around) if child.type == "trailing_return_type"), None) if around else None
        )
        if trailing is not None:
            return self.bare(code(trailing)[0].text.decode("utf-8", "replace"))
        if around is not None and around.type == "operator_cast":
            return self.named(around)
        return self.named(node) if around is not None and not declarator(around)[1] else ""

    def callee(self, node: Any) -> bytes | None:
        """Return the name that a call names, of a method or through a pointer, too."""
        name = node.child_by_field_name("function")
        while name is not None and name.type in (*_CALLEES, "parenthesized_expression"):
            inner = [name.child_by_field_name(_CALLEES[name.type])] if name.type in _CALLEES else code(name)
            name = inner[0] if len(inner) == 1 else None
        return name.text if name is not None and name.type in ("identifier", "field_identifier") else None

    def _scope(self, node: Any) -> tuple[int, int]:
        around = node.parent
        scopes = (
            "compound_statement",
            "function_definition",
            "for_statement",
            "lambda_expression",
            "template_declaration",
        )
        while around is not None and around.type not in scopes:
            around = around.parent
        return (around.start_byte, around.end_byte) if around is not None else (0, self.root.end_byte)

    def named(self, node: Any) -> str:
        """The type that a declaration names, aliases followed."""
        kind = node.child_by_field_name("type")
        if kind is not None and kind.type in _RECORDS:
            return _record(kind)
        return self.bare(kind.text.decode("utf-8", "replace")) if kind is not None else ""

    def bare(self, text: str) -> str:
        name = bare(text)
        return self.aliases.get(name, name)

    def _variable(self, name: bytes, at: int) -> tuple[int, int, str, int] | None:
        around = [v for v in self.variables.get(name, ()) if v[0] <= at < v[1]]
        return min(around, key=lambda v: v[1] - v[0]) if around else None

    def type_of(self, node: Any) -> str:
        """The declared type of a variable, an element or a field; empty where this file does not tell."""
        kind, depth = self.declared(node)
        return kind if depth == 0 else ""

    def declared(self, node: Any) -> tuple[str, int]:
        """The declared type of a variable, an element, a field or an address, and its pointers and dimensions."""
        if node.type in ("identifier", "type_identifier"):
            around = self._variable(node.text, node.start_byte)
            if around is None and node.text in self.fields and (record := _record(node)):
                return self.records.get(record, {}).get(node.text, ("", 0))
            return around[2:] if around else ("", 0)
        if node.type == "field_expression":
            field, owner = (
                node.child_by_field_name("field").text,
                self.declared(node.child_by_field_name("argument"))[0],
            )
            if field in _ELEMENTS and "<" in owner:
                return self.bare(_element(owner, _ELEMENTS[field])), 0
            if field in (members := _MEMBERS.get(owner, {})):
                return members[field], 0
            known = self.fields.get(field, set())
            return self.records.get(owner, {}).get(field) or (next(iter(known)) if len(known) == 1 else ("", 0))
        if node.type in ("subscript_expression", "pointer_expression"):
            kind, depth = self.declared(node.child_by_field_name("argument"))
            if depth == 0 and "<" in kind and not node.text.startswith(b"&"):
                return self.bare(_element(kind, -1 if node.type == "subscript_expression" else 0)), 0
            return kind, depth + (1 if node.text.startswith(b"&") else -1)
        if node.type == "call_expression":
            name, function = self.callee(node), node.child_by_field_name("function")
            if name in _ELEMENTS and function.type == "field_expression":
                found, depth = self.declared(function.child_by_field_name("argument"))
                if depth == 0 and "<" in found:
                    return self.bare(_element(found, _ELEMENTS[name])), 0
            return self.results.get(name, ("", 0)) if name is not None else ("", 0)
        if node.type == "parenthesized_expression" and len(code(node)) == 1:
            return self.declared(code(node)[0])
        return "", 0

    def cast(self, node: Any) -> tuple[str, Any]:
        """Return what ``integers.cast`` says, with aliases and ``decltype`` followed."""
        text, value = cast(node)
        if node.type == "call_expression" and not text:
            text, value = (
                self.bare(node.child_by_field_name("function").text.decode()),
                node.child_by_field_name("arguments"),
            )
        if text.startswith("decltype") and (measured := _decltype(node)) is not None:
            text = self.kind_of(measured)[0]
        text = self.bare(text)
        known = text.rstrip("*& ") in self.kinds or is_integer(text.rstrip("*& "))
        return (text, value) if known else ("", None)

    def kind_of(self, node: Any) -> tuple[str, bool]:
        """The enumeration type that a value is of, and whether it has become a number; no type where this file does not tell."""
        kind, value = self.cast(node)
        if kind in self.kinds:
            return kind, False
        if is_integer(kind):
            inner = [self.kind_of(leaf)[0] for leaf in values(value)]
            return (inner[0], True) if len(inner) == 1 and inner[0] else ("", False)
        if node.type == "parenthesized_expression" and len(code(node)) == 1:
            return self.kind_of(code(node)[0])
        if node.type == "assignment_expression":
            found, is_number = self.kind_of(node.child_by_field_name("right"))
            return found, is_number or is_integer(self.type_of(node.child_by_field_name("left")))
        if node.type == "call_expression" and (callee := self.callee(node)) is not None:
            result = self._result(callee) or self.type_of(node)
            return (result, False) if result in self.kinds else ("", False)
        name = node.text.decode("utf-8", "replace").rpartition("::")[2]
        if (
            node.type in ("identifier", "qualified_identifier", "type_identifier")
            and (found := _KIND_OF_NAME.get(name, self.constants.get(name, ""))) in self.kinds
        ):
            return found, False
        declared = self.type_of(node)
        if declared in self.kinds:
            return declared, False
        base = node.child_by_field_name("argument") if node.type == "subscript_expression" else node
        around = self._variable(base.text, node.start_byte) if base.type == "identifier" else None
        carried = self.carried.get((base.text, around[0]), "") if around else ""
        return carried, bool(carried) and around is not None and around[2] != "auto"

    def is_number(self, node: Any) -> bool:
        """Whether the value is a number that is not written here: a variable of an integer type, a macro, arithmetic."""
        if node.type == "identifier" and node.text in self.macros:
            return True
        if node.type in ("binary_expression", "update_expression"):
            return True
        return is_integer(self.type_of(node))


def _enumerators(text: bytes) -> Iterator[tuple[str, str]]:
    for macro in _MACRO_OF_ENUMERATOR.finditer(text):
        if kind := _KIND_OF_NAME.get(macro[2].decode()):
            yield macro[1].decode(), kind


def _element(kind: str, place: int) -> str:
    """Return the type of an element of a container, by the arguments of its template that are no numbers."""
    inner, depth, listed = kind.partition("<")[2].rpartition(">")[0], 0, [""]
    for letter in inner:
        depth += (letter == "<") - (letter == ">")
        if letter == "," and depth == 0:
            listed.append("")
        else:
            listed[-1] += letter
    types = [text.strip() for text in listed if not text.strip().isdigit()]
    return types[place] if types else ""


def _of_pairs(kind: str) -> bool:
    return "map<" in kind


def _record(node: Any) -> str:
    """Return the structure or class around a node: its name, the name of its alias, or its text where it has none."""
    while node is not None and node.type not in _RECORDS:
        node = node.parent
    if node is None:
        return ""
    name = node.child_by_field_name("name")
    if name is None and node.parent.type == "type_definition":
        name = node.parent.child_by_field_name("declarator")
    return bare((name or node).text.decode("utf-8", "replace"))


def _decltype(node: Any) -> Any:
    """Return the expression whose type a cast names by ``decltype``."""
    waiting = [node]
    while waiting:
        found = waiting.pop(0)
        if found.type == "decltype":
            return next(iter(code(found)), None)
        waiting += code(found)
    return None


def _comparing(text: bytes) -> Iterator[tuple[bytes, str]]:
    for macro in _MACRO_OF_ARGUMENTS.finditer(text):
        numbers = [found[1] or found[2] for found in _COMPARED_IN_TEXT.finditer(macro[2])]
        numbers = [number for number in numbers if re.fullmatch(_NUMBERS, number)]
        if numbers:
            yield macro[1], "bool" if all(number == b"0" for number in numbers) else ""


def declarator(node: Any) -> tuple[bytes | None, int, Any]:
    """The name that a declarator declares, its pointers and dimensions, and the function's declarator where it is one."""
    depth, function = 0, None
    while node is not None and node.type not in ("identifier", "field_identifier"):
        depth += node.type in _POINTS and function is None
        if node.type == "function_declarator":
            function = node
        inner = node.child_by_field_name("declarator")
        if inner is None and node.type in ("reference_declarator", "parenthesized_declarator") and code(node):
            inner = code(node)[0]
        node = inner
    return (node.text if node is not None else None), depth, function


def _parameters(function: Any) -> list[Any]:
    listed = function.child_by_field_name("parameters")
    return [p for p in code(listed) if p.type.endswith("parameter_declaration")] if listed is not None else []
