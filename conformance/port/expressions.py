"""Finds the type of the value of an expression, by the declarations of one C file."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

from dualdnn.api.abi.c_types import RESULTS
from dualdnn.api.abi.header import PERFORMANCES
from dualdnn.api.document import functions
from dualdnn.api.enumerations import ENUMERATIONS

from . import containers
from .integers import bare, cast, code, is_integer, number, values

Scoped = tuple[int, int, str, int]  # a variable: begin and end of its scope, type, pointers
STATUS = "cudnnStatus_t"
DEDUCED = ("auto", "decltype(auto)")
RECORDS = frozenset({"struct_specifier", "class_specifier", "union_specifier"})
KIND_OF_NAME = {member.name: kind for kind, members in ENUMERATIONS.items() for member in members}
_TYPEOF = (b"typeof", b"__typeof__", b"__typeof")
_MEASURED = re.compile(r"(?:std )?(?:(?:remove_\w+|decay)_t<)?(?:decltype|(?:__)?typeof(?:__)?)\b.*", re.DOTALL)
_CALLEES = {
    "qualified_identifier": "name",
    "field_expression": "field",
    "pointer_expression": "argument",
    "subscript_expression": "argument",
}
_POINTS = frozenset(
    {"pointer_declarator", "array_declarator", "abstract_pointer_declarator", "abstract_array_declarator"}
)
# These expressions may be pointers, of the type of one of these parts.
_POINTERS = {
    "update_expression": ("argument",),
    "conditional_expression": ("consequence", "alternative"),
    "assignment_expression": ("left",),
}
_MEMBERS = {
    kind: {b"algo": algorithm, b"status": STATUS, b"determinism": "cudnnDeterminism_t", b"mathType": "cudnnMathType_t"}
    for kind, algorithm in PERFORMANCES.items()
}
# The result has the type of the first argument.
_FIRST = frozenset(
    {b"min", b"max", b"clamp", b"move", b"forward", b"exchange", b"as_const", b"ref", b"cref", b"next", b"prev"}
    | {b"find", b"find_if", b"min_element", b"max_element"}
)
_NUMBERS = frozenset(
    {"binary_expression", "update_expression", "unary_expression", "sizeof_expression"}
    | {"number_literal", "char_literal"}
)
# These functions of C and C++ return integers.
_INTEGER_RESULTS = re.compile(
    rb"ato(?:i|ll?)|(?:str)?to(?:i|u?ll?)|rand|l?labs|abs|(?:f?get|to)c(?:har)?|str(?:n?(?:case)?)cmp"
)
_BINDERS = frozenset(
    {b"bind", b"bind_front", b"ref", b"cref", b"function"}
)  # These return or wrap the function that they get.


class Expressions:
    """Finds the type of each expression of a file, and the enumeration type of each value, even as an integer."""

    kinds: frozenset[str]
    macros: set[bytes]
    calculating: set[bytes]
    passing: dict[bytes, tuple[str, int]]  # macro -> (type of its cast, or "", index of the argument it gives)
    constants: dict[str, str]  # macro -> type of its enumerator
    records: dict[str, dict[bytes, tuple[str, int]]]
    results: dict[bytes, tuple[str, int]]
    variables: dict[bytes, list[Scoped]]
    nested: dict[
        bytes, tuple[list[Scoped], list[Scoped], list[int]]
    ]  # ``variables``, by scope, and the last end so far
    fields: dict[bytes, set[tuple[str, int]]]
    functions: dict[bytes, tuple[str, list[str]]]  # function -> (result type, parameter types)
    callable: dict[str, str]  # type of a callable object -> type of the result
    converted: dict[str, str]  # class -> type to which its objects convert
    aliases: dict[str, str]
    carried: dict[tuple[bytes, int], str]  # (name, begin of its scope) -> enumeration type of an integer

    def function_of(self, value: Any) -> str:
        """Return the type of what a function, its address or a lambda returns; empty for other values."""
        if value.type == "lambda_expression":
            return self.returned(value)
        while value.type in ("pointer_expression", "parenthesized_expression") and code(value):
            value = code(value)[0]
        if value.type == "call_expression" and self.callee(value) in _BINDERS:
            return self.function_of(code(value.child_by_field_name("arguments"))[0])
        return self._result(value.text, value.start_byte) if value.type == "identifier" else ""

    def _result(self, name: bytes, at: int) -> str:
        text = name.decode("utf-8", "replace")
        is_status = text in functions() and text not in RESULTS
        around = self._variable(name, at)
        of_object = self.callable.get(around[2], "") if around else ""
        return of_object or self.functions.get(name, ("", []))[0] or (STATUS if is_status else "")

    def returned(self, node: Any) -> str:
        """Return the type that a function or a lambda returns, or what its ``return`` statements make of it."""
        stated = self._stated_result(node)
        body = node.child_by_field_name("body")
        if body is None or stated not in ("", *DEDUCED):
            return stated
        found = {self.value_type(leaf)[0] for value in _returned_values(body) for leaf in values(value)} - {""}
        return found.pop() if len(found) == 1 else ""

    def trailing(self, function: Any) -> str:
        """Return the result type after the arrow of a function's declarator."""
        found = next((child for child in code(function) if child.type == "trailing_return_type"), None)
        return self.bare(code(found)[0].text.decode("utf-8", "replace")) if found is not None else ""

    def _stated_result(self, node: Any) -> str:
        around = node.child_by_field_name("declarator")
        if around is None:
            return ""
        if around.type == "operator_cast":
            return self.named(around)
        return self.trailing(around) or (self.named(node) if not declarator(around)[1] else "")

    def callee(self, node: Any) -> bytes | None:
        """Return the name that a call names, also of a method or through a pointer."""
        name = node.child_by_field_name("function")
        while name is not None and name.type in (*_CALLEES, "parenthesized_expression"):
            inner = [name.child_by_field_name(_CALLEES[name.type])] if name.type in _CALLEES else code(name)
            name = inner[0] if len(inner) == 1 else None
        return name.text if name is not None and name.type in ("identifier", "field_identifier") else None

    def named(self, node: Any) -> str:
        """Return the type that a declaration names, aliases followed."""
        kind = node.child_by_field_name("type")
        if kind is not None and kind.type in RECORDS:
            return record(kind)
        if kind is not None and (kind.type == "decltype" or kind.text.startswith(_TYPEOF)):
            inner = (code(kind) or code(node.child_by_field_name("declarator") or kind) or [kind])[-1]
            inner = inner.child_by_field_name("type") or inner
            return self.type_of(inner) or self.kind_of(inner)[0] or self.bare(inner.text.decode("utf-8", "replace"))
        return self.bare(kind.text.decode("utf-8", "replace")) if kind is not None else ""

    def bare(self, text: str) -> str:
        """Return the name of a type without qualifiers, aliases followed."""
        name, seen = bare(text), set[str]()
        while (known := name if name in self.aliases else name.rpartition(" ")[2]) in self.aliases and name not in seen:
            seen.add(name)
            name = self.aliases[known]
        return name

    def _variable(self, name: bytes, at: int) -> Scoped | None:
        """Return the variable of the innermost scope around a place, the first of a scope."""
        listed = self.variables.get(name, [])
        known = self.nested.get(name)
        if known is None or known[0] is not listed or len(known[1]) != len(listed):
            # Scopes nest, so the last of these that ends behind a place is the innermost.
            ordered = sorted(listed[::-1], key=lambda v: (v[0], -v[1]))
            known = self.nested[name] = listed, ordered, list(accumulate((v[1] for v in ordered), max))
        _, ordered, ends = known
        place = bisect_right(ordered, at, key=lambda v: v[0]) - 1
        while place >= 0 and ends[place] > at:
            if ordered[place][1] > at:
                return ordered[place]
            place -= 1
        return None

    def type_of(self, node: Any) -> str:
        """Return the declared type of a variable, an element or a field; empty where this file does not tell."""
        kind, depth = self.declared(node)
        return kind if depth == 0 else ""

    def declared(self, node: Any) -> tuple[str, int]:
        """Return the declared type of a variable, an element, a field or an address, and its pointers and
        dimensions."""
        if node.type in ("identifier", "type_identifier"):
            around = self._variable(node.text, node.start_byte)
            if around is None and node.text in self.fields and (of_this := record(node)):
                return self._member(of_this, node.text)
            return containers.settled(*around[2:]) if around else ("", 0)
        if node.type == "this":
            return record(node), 1
        if node.type == "field_expression":
            return self._field(node)
        if node.type in ("subscript_expression", "pointer_expression"):
            kind, depth = self.declared(node.child_by_field_name("argument"))
            is_address = node.text.startswith(b"&")
            if depth == 0 and "<" in kind and not is_address:
                return self.bare(containers.element(kind, -1 if node.type == "subscript_expression" else 0)), 0
            return kind, depth + (1 if is_address else -1)
        if node.type in _POINTERS:
            parts = map(node.child_by_field_name, _POINTERS[node.type])
            given = (self.declared(part) for part in parts if part is not None)
            return next(((kind, depth) for kind, depth in given if depth > 0), ("", 0))
        if node.type == "call_expression":
            return self._called(node)
        if node.type == "binary_expression" and node.child_by_field_name("operator").text in (b"+", b"-"):
            kind, depth = self.declared(node.child_by_field_name("left"))  # A pointer may be moved by a number.
            return (kind, depth) if depth > 0 else ("", 0)
        if node.type == "compound_literal_expression":
            kind = self.named(node)
            return self._made(kind, code(node.child_by_field_name("value"))) or kind, 0
        if node.type == "initializer_list" and node.prev_sibling is not None and node.prev_sibling.type == "=":
            found = {self.value_type(child) for child in code(node)}
            kind, depth = found.pop() if len(found) == 1 else ("", 0)
            return (f"initializer_list<{kind}>", 0) if kind and depth == 0 else ("", 0)
        if node.type in ("parenthesized_expression", "initializer_list", "argument_list") and len(code(node)) == 1:
            return self.declared(code(node)[0])
        return "", 0

    def value_type(self, node: Any) -> tuple[str, int]:
        """Return the declared type of a value and its pointers, or its enumeration type."""
        kind, depth = self.declared(node)
        return (kind, depth) if kind else (self.kind_of(node)[0], 0)

    def members(self, kind: str, depth: int, count: int) -> list[tuple[str, int]]:
        """Return the types that a structured binding of a value of this type gives to ``count`` names."""
        if depth > 0:
            return [(kind, depth - 1)] * count
        fields = list(self.records.get(kind, {}).values())
        return fields or [(self.bare(containers.member(kind, place)), 0) for place in range(count)]

    def _made(self, kind: str, given: list[Any]) -> str:
        return containers.made(kind, [self.value_type(child)[0] for child in given])

    def _field(self, node: Any) -> tuple[str, int]:
        field, owner = node.child_by_field_name("field").text, self.declared(node.child_by_field_name("argument"))[0]
        if node.child_by_field_name("operator").text == b"->":
            owner = containers.pointed(owner)
        if field in containers.ELEMENTS and "<" in owner:
            return self.bare(containers.element(owner, containers.ELEMENTS[field])), 0
        if field in (members := _MEMBERS.get(owner, {})):
            return members[field], 0
        return self._member(owner, field)

    def _member(self, owner: str, field: bytes) -> tuple[str, int]:
        """Return the type of a member: of this class, or of the one type that members of this name have in the file."""
        known = self.fields.get(field, set())
        return self.records.get(owner, {}).get(field) or (next(iter(known)) if len(known) == 1 else ("", 0))

    def _called(self, node: Any) -> tuple[str, int]:
        """Return the type of a call's result, for methods of containers, functions of std, and functions of this file."""
        name, function = self.callee(node), node.child_by_field_name("function")
        given = code(node.child_by_field_name("arguments"))
        if function.type == "lambda_expression":
            return self.returned(function), 0
        if function.type == "field_expression":
            owner, depth = self.declared(function.child_by_field_name("argument"))
            if depth == 0 and "<" in owner and name in containers.ELEMENTS:
                return self.bare(containers.element(owner, containers.ELEMENTS[name])), 0
            if depth == 0 and "<" in owner and name in containers.ITERATORS:
                return self.bare(containers.each(owner)), 1
        elif name in self.results:
            return self.results[name]
        elif given and name in _FIRST:
            return self.value_type(given[0])
        elif given and name in containers.ITERATORS:
            kind, depth = self.declared(given[0])
            return (self.bare(containers.each(kind)), 1) if depth == 0 else (kind, depth)
        elif given and name in (b"invoke", b"async"):
            result = self.function_of(given[0])
            return (f"future<{result}>" if name == b"async" else result), 0
        elif found := self._of_template(template_call(function), given):
            return found
        elif name is not None and (kind := self._made(name.decode("utf-8", "replace"), given)):
            return kind, 0
        return self.results.get(name, ("", 0)) if name is not None else ("", 0)

    def _of_template(self, named: tuple[bytes, list[Any]], given: list[Any]) -> tuple[str, int] | None:
        """Return the type of ``std::get<0>(x)``, ``std::get<type>(x)`` and the like."""
        name, listed = named
        if name in (b"get", b"get_if") and listed and given:
            place, (kind, depth) = number(listed[0]), self.declared(given[0])
            if place is None:
                return self.bare(listed[0].text.decode("utf-8", "replace")), int(name == b"get_if")
            found = self.members(kind, 0, place + 1)
            return (found[place][0], depth) if place < len(found) else None
        if name in (b"any_cast", b"make_unique", b"make_shared") and listed:
            kind = self.bare(listed[0].text.decode("utf-8", "replace"))
            return (kind if name == b"any_cast" else f"unique_ptr<{kind}>"), 0
        return None

    def cast(self, node: Any) -> tuple[str, Any]:
        """Return (type, operand) of a cast as ``integers.cast`` does, and resolve aliases and ``decltype``."""
        text, value = cast(node)
        if (passed := self.passed(node)) and passed[0]:
            text, value = passed
        elif node.type == "call_expression" and not text:
            text, value = (
                self.bare(node.child_by_field_name("function").text.decode("utf-8", "replace")),
                node.child_by_field_name("arguments"),
            )
        if _MEASURED.fullmatch(text) and (measured := _decltype(node)) is not None:
            text = self.kind_of(measured)[0]
        text = self.bare(text)
        known = text.rstrip("*& ") in self.kinds or is_integer(text.rstrip("*& "))
        return (text, value) if known else ("", None)

    def passed(self, node: Any) -> tuple[str, Any] | None:
        """Return (type, argument) if this calls a macro that gives one of its arguments; type is "" without a cast.

        Return None for any other expression.
        """
        if node.type != "call_expression" or (callee := self.callee(node)) not in self.passing:
            return None
        kind, place = self.passing[callee]
        given = code(node.child_by_field_name("arguments"))
        return (kind, given[place]) if place < len(given) else None

    def values(self, node: Any) -> Iterator[Any]:
        """Yield what ``integers.values`` yields, with the arguments of macros and casts to integers that are
        literals."""
        for leaf in values(node):
            kind, inner = self.passed(leaf) or self.cast(leaf)
            inside = list(values(inner)) if inner is not None else []
            if inside and (not kind or (is_integer(kind) and all(number(each) is not None for each in inside))):
                yield from self.values(inner)
            else:
                yield leaf

    def kind_of(self, node: Any) -> tuple[str, bool]:
        """Return the enumeration type of a value, and whether it has become a number; no type where this file does
        not tell."""
        kind, value = self.cast(node)
        if kind in self.kinds:
            return kind, False
        if is_integer(kind):
            inner = [self.kind_of(leaf)[0] for leaf in values(value)]
            return (inner[0], True) if len(inner) == 1 and inner[0] else ("", False)
        if node.type == "parenthesized_expression" and len(code(node)) == 1:
            return self.kind_of(code(node)[0])
        if passed := self.passed(node):
            inside = {self.kind_of(leaf) for leaf in self.values(passed[1])}
            return inside.pop() if len(inside) == 1 else ("", False)
        if node.type == "assignment_expression":
            found, is_number = self.kind_of(node.child_by_field_name("right"))
            return found, is_number or is_integer(self.type_of(node.child_by_field_name("left")))
        if node.type == "call_expression" and (callee := self.callee(node)) is not None:
            result = self._result(callee, node.start_byte) or self.type_of(node)
            return (result, False) if result in self.kinds else ("", False)
        owner, _, name = node.text.decode("utf-8", "replace").rpartition("::")
        if owner and (member := self.records.get(bare(owner), {}).get(name.encode(), ("", 0)))[0] in self.kinds:
            return member[0], False
        if (
            node.type in ("identifier", "qualified_identifier", "type_identifier")
            and (found := KIND_OF_NAME.get(name, self.constants.get(name, ""))) in self.kinds
        ):
            return found, False
        held = containers.compared(self.type_of(node))
        declared = self.bare(self.converted.get(held, held))
        if declared in self.kinds:
            return declared, False
        base = node.child_by_field_name("argument") if node.type == "subscript_expression" else node
        around = self._variable(base.text, node.start_byte) if base.type == "identifier" else None
        carried = self.carried.get((base.text, around[0]), "") if around else ""
        return carried, bool(carried) and around is not None and is_integer(around[2])

    def is_number(self, node: Any) -> bool:
        """Return whether the value is a number: a variable of an integer type, a macro, a cast, arithmetic, a result."""
        name = (self.callee(node) or b"") if node.type == "call_expression" else node.text
        if name in self.macros or (node.type == "call_expression" and _INTEGER_RESULTS.fullmatch(name)):
            return True
        if node.type == "call_expression" and name in self.calculating:  # It may be any of its arguments.
            return any(
                number(leaf) is not None for one in code(node.child_by_field_name("arguments")) for leaf in values(one)
            )
        if node.type == "assignment_expression":
            return is_integer(self.type_of(node.child_by_field_name("left")))
        return node.type in _NUMBERS or is_integer(self.cast(node)[0]) or is_integer(self.type_of(node))


def record(node: Any) -> str:
    """Return the structure or class around a node: its name, the name of its alias, or its text without a name.

    A method that is defined outside of its class, ``void Layer::run() {}``, belongs to the class, too.
    """
    while node is not None and node.type not in RECORDS:
        if node.type == "function_definition" and (owner := _owner(node.child_by_field_name("declarator"))):
            return owner
        node = node.parent
    if node is None:
        return ""
    name = node.child_by_field_name("name")
    if name is None and node.parent.type == "type_definition":
        name = node.parent.child_by_field_name("declarator")
    return bare((name or node).text.decode("utf-8", "replace"))


def _owner(named: Any) -> str:
    """Return the innermost scope that a declarator names, without template arguments."""
    owner = b""
    while named is not None and named.type not in ("identifier", "field_identifier"):
        scope = named.child_by_field_name("scope")
        owner = (scope.child_by_field_name("name") or scope).text if scope is not None else owner
        inner = named.child_by_field_name("name" if named.type == "qualified_identifier" else "declarator")
        is_reference = inner is None and named.type == "reference_declarator"
        named = code(named)[0] if is_reference else inner
    return owner.decode("utf-8", "replace")


def template_call(function: Any) -> tuple[bytes, list[Any]]:
    """Return the name and the arguments of the template that a call names; no name for other calls."""
    while function is not None and function.type == "qualified_identifier":
        function = function.child_by_field_name("name")
    if function is None or function.type != "template_function":
        return b"", []
    return function.child_by_field_name("name").text, code(function.child_by_field_name("arguments"))


def _returned_values(body: Any) -> Iterator[Any]:
    """Yield the values of the ``return`` statements of a body, except in lambdas inside."""
    waiting = [body]
    while waiting:
        found = waiting.pop()
        if found.type == "return_statement":
            yield from code(found)[:1]
        elif found.type != "lambda_expression":
            waiting += code(found)


def _decltype(node: Any) -> Any:
    """Return the expression whose type a cast names by ``decltype`` or ``typeof``."""
    waiting = [node]
    while waiting:
        found = waiting.pop(0)
        if found.type == "decltype":
            return next(iter(code(found)), None)
        if found.type == "parameter_declaration":  # This is how the operand of typeof is read.
            return found.child_by_field_name("type")
        waiting += code(found)
    return None


def declarator(node: Any) -> tuple[bytes | None, int, Any]:
    """Return the name that a declarator declares, its pointers and dimensions, and the function's declarator, if it
    is one."""
    depth, function = 0, None
    while node is not None and node.type not in ("identifier", "field_identifier", "type_identifier", "operator_name"):
        depth += node.type in _POINTS and function is None
        if node.type == "function_declarator":
            function = node
        inner = node.child_by_field_name("declarator")
        if inner is None and node.type in ("reference_declarator", "parenthesized_declarator") and code(node):
            inner = code(node)[0]
        if node.type == "qualified_identifier" and node.child_by_field_name("name").type == "pointer_type_declarator":
            inner = node.child_by_field_name("name")
        node = inner
    return (node.text if node is not None else None), depth, function


def dimensions(node: Any) -> list[int | None] | None:
    """Return the sizes of an array's declarator, the outermost first: None for ``[]``, -1 for an expression.

    An object that is not an array has none. Return None for pointers, references and functions.
    """
    sizes: list[int | None] = []
    while node is not None and node.type not in ("identifier", "field_identifier"):
        if "pointer" in node.type or "reference" in node.type or "function" in node.type:
            return None
        if node.type == "array_declarator":
            size = node.child_by_field_name("size")
            known = number(size) if size is not None else None
            sizes.insert(0, None if size is None else -1 if known is None else known)
        node = node.child_by_field_name("declarator")
    return sizes
