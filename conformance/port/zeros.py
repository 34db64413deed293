"""Finds where C makes a value of an enumeration type 0 without a number in the source, and pairs lists with members.

Static storage, ``calloc``, empty braces, members that a list leaves out, and elements of new containers are 0. In MIOpen 0
may be another enumerator than in cuDNN.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from . import containers
from .declared import Declared
from .expressions import dimensions, template_call
from .integers import bare, code, number

Place = tuple[Any, str]  # a node, and the enumeration type of what is 0 there
Given = tuple[Any, str, int]  # a value of a list, and the type and the pointers of the member that it is for
_OUTSIDE = frozenset({"translation_unit", "namespace_definition", "declaration_list", "linkage_specification"})
_STATIC = frozenset({b"static", b"thread_local", b"_Thread_local", b"__thread"})
SIZED = frozenset({"vector", "deque", "list", "valarray"})
_GROWN = {b"resize": 1, b"emplace_back": 0, b"emplace": 0}  # method -> arguments with which new elements are 0
_CLEARED = frozenset({b"memset", b"bzero", b"cudaMemset", b"cudaMemsetAsync"})
_ALLOCATED = frozenset({b"calloc", b"xcalloc", b"g_malloc0"})


class Zeros:
    """Finds the zeros of one file. changed: the enumeration types whose 0 has another meaning in MIOpen."""

    def __init__(self, declared: Declared, changed: frozenset[str]) -> None:
        self.declared, self.changed = declared, changed

    def __call__(self, node: Any) -> Iterator[Place]:
        """Yield the places at this node where something of a changed type begins as 0."""
        reader = _READERS.get(node.type)
        if reader is not None:
            yield from ((place, kind) for place, kind in reader(self, node) if kind)

    def members(self, node: Any) -> Iterator[Place]:
        """Yield the members of a structure that are 0 where other code makes its objects of zeros."""
        if node.type != "field_declaration" or node.child_by_field_name("default_value") is not None:
            return
        kind = self.declared.named(node)
        for each in node.children_by_field_name("declarator"):
            if kind in self.changed and dimensions(each) is not None:
                yield each, kind

    def held(self, kind: str, depth: int = 0) -> str:
        """Return the changed type that a zeroed object of a type holds, in itself, a member or an element, or ""."""
        waiting, seen = [kind] * (depth == 0), set[str]()
        while waiting:
            each = self.declared.bare(waiting.pop(0))
            if each in self.changed:
                return each
            if each not in seen:
                seen.add(each)
                name, types = containers.template(each)
                waiting += types[: None if name in ("pair", "tuple") else name in ("array", "atomic", "variant")]
                set_ = self.declared.constructed
                waiting += [
                    of
                    for field, of in self.declared.zeroed.get(each, {}).items()
                    if not {(each, field), ("", field)} & set_
                ]
        return ""

    def given(self, kind: str, target: Any, value: Any) -> Iterator[Given]:
        """Yield the values in braces, each with the type of the member that it is for."""
        yield from (each for each in self._walk(kind, target, value) if len(each) == 3)

    def left_out(self, kind: str, target: Any, value: Any) -> str:
        """Return the changed type of something that a list in braces leaves out, or ""."""
        return next((each[1] for each in self._walk(kind, target, value) if len(each) == 2 and each[1]), "")

    def _walk(self, kind: str, target: Any, value: Any) -> Iterator[Any]:
        sizes = dimensions(target)
        is_built = not sizes and (kind, b"") in self.declared.constructed
        if value is not None and value.type == "initializer_list" and sizes is not None and not is_built:
            yield from self._object(kind, sizes, code(value), value)

    def _object(
        self, kind: str, sizes: list[int | None], rest: list[Any], at: Any, has_braces: bool = True
    ) -> Iterator[Any]:
        """Yield (value, type, pointers) for what a list gives an object, and (place, type) for what it leaves out.

        C allows to leave out inner braces: the values of this object are taken from the list's beginning.
        """
        fields = {} if sizes else self.declared.records.get(kind, {})
        if not sizes and not fields:
            yield (rest.pop(0), kind, 0) if rest else (at, self.held(kind))
            return
        names, seen, place = list(fields), set[int](), 0
        count = len(names) if fields else sizes[0]
        while rest:
            child, value = rest[0], rest[0]
            if child.type != "initializer_pair" and count is not None and 0 <= count <= place:
                break
            if child.type == "initializer_pair" and not has_braces:
                break
            if child.type == "initializer_pair":
                place, value = self._designated(child, names), child.child_by_field_name("value")
            if place < 0 or (fields and place >= len(names)):
                yield at, "" if fields else self.held(kind)
                return  # This file does not tell which part it is.
            seen.add(place)
            inner, depth, dims = (kind, 0, sizes[1:]) if sizes else self._member(kind, names[place])
            if value.type == "initializer_list" and len(child.children_by_field_name("designator")) < 2:
                rest.pop(0)
                yield from self._object(inner, dims, code(value), value) if not depth else [(value, inner, depth)]
            elif child.type == "initializer_pair":  # uses.py reads its value.
                rest.pop(0)
            elif depth or not (dims or inner in self.declared.records) or self.declared.type_of(child) == inner:
                yield rest.pop(0), inner, depth
            else:
                yield from self._object(inner, dims, rest, at, has_braces=False)
            place += 1
        if sizes and (
            (count is not None and len(seen) < count) or (count is None and len(seen) <= max(seen, default=-1))
        ):
            yield at, self.held(kind)
        elif sizes and count is not None and count < 0:
            yield at, self.held(kind)  # The size may be larger than the list.
        for name in names if fields else ():
            if names.index(name) not in seen and name in self.declared.zeroed.get(kind, {}):
                yield at, self.held(self.declared.zeroed[kind][name])

    def _member(self, record: str, name: bytes) -> tuple[str, int, list[int | None]]:
        """Return the type, the pointers and the dimensions of a member."""
        kind, depth = self.declared.records[record][name]
        sizes = self.declared.sizes.get((record, name), [])
        return kind, 0 if sizes else depth, sizes

    def _designated(self, pair: Any, names: list[bytes]) -> int:
        """Return the place of the part that ``[2] = value`` or ``.name = value`` names, or -1."""
        first = code(pair.child_by_field_name("designator"))[0]
        if names:
            return names.index(first.text) if first.text in names else -1
        index = number(first)
        return -1 if index is None else index

    # --- readers ---

    def declaration(self, node: Any) -> Iterator[Place]:
        kind, words, around = self.declared.named(node), {child.text for child in node.children}, node.parent
        while around is not None and around.type.startswith("preproc"):
            around = around.parent
        is_static = bool(words & _STATIC) or (around is not None and around.type in _OUTSIDE)
        for each in node.children_by_field_name("declarator"):
            value = each.child_by_field_name("value") if each.type == "init_declarator" else None
            inner = each.child_by_field_name("declarator") if value is not None else each
            if each.type == "function_declarator":
                yield each, self._elements(kind, self._counted(each, node))
            if dimensions(inner) is None:
                continue
            if value is None:
                yield inner, self.held(kind) if is_static and b"extern" not in words else ""
            elif value.type == "argument_list":
                yield inner, self._elements(kind, code(value)) if code(value) else self.held(kind)
            else:
                yield inner, self.left_out(kind, inner, value)

    def _counted(self, function: Any, node: Any) -> list[Any]:
        """Return the number of elements in ``std::vector<T> v(n)``, which reads as the declaration of a function."""
        given = [p.child_by_field_name("type") for p in code(function.child_by_field_name("parameters"))]
        is_inside = node.parent is not None and node.parent.type == "compound_statement"
        is_value = is_inside or (len(given) == 1 and given[0] is not None and given[0].text in self.declared.variables)
        return given if is_value and None not in given else []

    def field(self, node: Any) -> Iterator[Place]:
        kind, value = self.declared.named(node), node.child_by_field_name("default_value")
        for each in node.children_by_field_name("declarator"):
            yield each, self.left_out(kind, each, value)

    def _elements(self, kind: str, given: list[Any]) -> str:
        """Return the changed type of the elements of a container that is made with a number of them, or ""."""
        name, types = containers.template(kind)
        if name not in SIZED or not types or not given or len(given) > 2:
            return ""
        is_empty = given[-1].type == "initializer_list" and not code(given[-1])
        is_count = given[0].type != "initializer_list" and "<" not in self.declared.declared(given[0])[0]
        return self.held(types[0]) if is_count and (is_empty or len(given) == 1) else ""

    def literal(self, node: Any) -> Iterator[Place]:
        kind = self.declared.named(node)
        if kind in self.declared.records:
            yield node, self.left_out(kind, None, node.child_by_field_name("value"))

    def new(self, node: Any) -> Iterator[Place]:
        given = node.child_by_field_name("arguments")
        if given is not None and not code(given):
            yield node, self._in_record(self.declared.named(node))

    def _in_record(self, kind: str) -> str:
        """Return what ``held`` does, but "" for the types themselves, whose empty values ``rewriting`` notes."""
        return "" if kind in self.changed else self.held(kind)

    def returned(self, node: Any) -> Iterator[Place]:
        value, around = next(iter(code(node)), None), node.parent
        while around is not None and around.type not in ("function_definition", "lambda_expression"):
            around = around.parent
        if value is not None and value.type == "initializer_list" and around is not None:
            kind = self.declared.returned(around)
            yield value, "" if kind in self.changed else self.left_out(kind, None, value)

    def call(self, node: Any) -> Iterator[Place]:
        function, given = node.child_by_field_name("function"), code(node.child_by_field_name("arguments"))
        name, (template, listed) = self.declared.callee(node), template_call(function)
        kind = self.declared.bare(bare(function.text.decode("utf-8", "replace")))
        if name in _ALLOCATED:
            yield from ((node, self._measured(size)) for size in given)
        elif name in _CLEARED and given:
            cleared, depth = self.declared.declared(given[0])
            yield node, self._in_record(cleared) if depth == 1 else ""
        elif template in (b"make_unique", b"make_shared") and listed:
            made = self.declared.bare(listed[0].text.decode("utf-8", "replace"))
            element = re.sub(r" ?\[\]$", "", made)
            yield node, self.held(element) if made != element else "" if given else self._in_record(element)
        elif function.type == "field_expression" and name in _GROWN and len(given) == _GROWN[name]:
            held, types = containers.template(self.declared.type_of(function.child_by_field_name("argument")))
            yield node, self.held(types[0]) if held in (*SIZED, "optional") and types else ""
        elif kind in self.declared.records and not given:
            yield node, self.held(kind)
        else:
            yield node, self._elements(kind, given)

    def _measured(self, size: Any) -> str:
        """Return the changed type in what ``sizeof`` measures, also in a product, or ""."""
        waiting = [size]
        while waiting:
            node = waiting.pop()
            kind, value = node.child_by_field_name("type"), node.child_by_field_name("value")
            if node.type == "sizeof_expression" and kind is not None:
                return self.held(bare(kind.text.decode("utf-8", "replace")))
            if node.type == "sizeof_expression" and value is not None:
                inside = code(value)[0] if value.type == "parenthesized_expression" else value
                return self.held(self.declared.type_of(inside) or bare(inside.text.decode("utf-8", "replace")))
            waiting += code(node)
        return ""


_READERS: dict[str, Callable[[Zeros, Any], Iterator[Place]]] = {
    "declaration": Zeros.declaration,
    "field_declaration": Zeros.field,
    "compound_literal_expression": Zeros.literal,
    "new_expression": Zeros.new,
    "return_statement": Zeros.returned,
    "call_expression": Zeros.call,
}
