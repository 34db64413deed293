"""Finds what may begin as 0 without a number in the source, and pairs lists with members.

C and C++ make zeros in many ways: static storage, empty braces, members that a list leaves out, allocators, elements of
new containers, code in other files. So this module asks for the place that holds the value, not for the code that makes
it: each member, static variable and type argument of an enumeration type whose 0 is another enumerator in MIOpen. Only
an initial value in the source tells what such a place begins as.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from .declared import Declared
from .expressions import declarator, dimensions, record
from .integers import code, number

Place = tuple[Any, str]  # a node, and the enumeration type of what may be 0 there
Given = tuple[Any, str, int]  # a value of a list, and the type and the pointers of the member that it is for
_OUTSIDE = frozenset({"translation_unit", "namespace_definition", "declaration_list", "linkage_specification"})
_STATIC = frozenset({b"static", b"thread_local", b"_Thread_local", b"__thread"})
# These templates make no value, or make it from another one.
_MAKES_NONE = re.compile(
    r".*(?:cast|_traits|_limits|_v|_to|_iterator|_wrapper|_list|_lock)|is_\w+|(?:not_)?equal_to|less|greater|hash|function"
    r"|get|get_if|holds_alternative|underlying_type(?:_t)?|to_underlying|min|max|clamp|span|move|forward|exchange|swap"
    r"|declval|decay(?:_t)?|remove_\w+|conditional(?:_t)?|enable_if(?:_t)?|(?:unordered_)?(?:multi)?set"
)
_TAKEN = frozenset({"parameter_declaration", "optional_parameter_declaration", "trailing_return_type"})


class Zeros:
    """Finds the zeros of one file, or of the body of a macro, which may stand anywhere.

    changed: the enumeration types whose 0 has another meaning in MIOpen.
    """

    def __init__(self, declared: Declared, changed: frozenset[str], is_macro: bool = False) -> None:
        self.declared, self.changed, self.is_macro = declared, changed, is_macro

    def __call__(self, node: Any) -> Iterator[Place]:
        """Yield the places at this node where something of a changed type may begin as 0."""
        reader = READERS.get(node.type)
        if reader is not None:
            yield from ((place, kind) for place, kind in reader(self, node) if kind in self.changed)

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
            yield (rest.pop(0), kind, 0) if rest else (at, kind)
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
                yield at, "" if fields else kind
                return  # This file does not tell which part it is.
            seen.add(place)
            inner, depth, dims = (kind, 0, sizes[1:]) if sizes else self._member(kind, names[place])
            if value.type == "initializer_list" and len(child.children_by_field_name("designator")) < 2:
                rest.pop(0)
                yield from self._object(inner, dims, code(value), value) if not depth else [(value, inner, depth)]
            elif child.type == "initializer_pair":  # uses.py reads its value.
                rest.pop(0)
            elif depth or not (dims or inner in self.declared.records) or self._is_whole(child, inner):
                yield rest.pop(0), inner, depth
            else:
                yield from self._object(inner, dims, rest, at, has_braces=False)
            place += 1
        if sizes and (
            (count is not None and len(seen) < count) or (count is None and len(seen) <= max(seen, default=-1))
        ):
            yield at, kind
        elif sizes and count is not None and count < 0:
            yield at, kind  # The size may be larger than the list.

    def _is_whole(self, value: Any, kind: str) -> bool:
        """Return whether a value gives a whole object: one of its type, or a call or macro that is no known scalar."""
        known = self.declared.type_of(value)
        is_named = value.type in ("call_expression", "identifier") and not self.declared.is_number(value)
        return known == kind or (not known and is_named and not self.declared.kind_of(value)[0])

    def _member(self, owner: str, name: bytes) -> tuple[str, int, list[int | None]]:
        """Return the type, the pointers and the dimensions of a member."""
        kind, depth = self.declared.records[owner][name]
        sizes = self.declared.sizes.get((owner, name), [])
        return kind, 0 if sizes else depth, sizes

    def _designated(self, pair: Any, names: list[bytes]) -> int:
        """Return the place of the part that ``[2] = value`` or ``.name = value`` names, or -1."""
        first = next(iter(code(pair.child_by_field_name("designator"))), pair)
        if names:
            return names.index(first.text) if first.text in names else -1
        index = number(first)
        return -1 if index is None else index

    # --- readers ---

    def declaration(self, node: Any) -> Iterator[Place]:
        words, around = {child.text for child in node.children}, node.parent
        while around is not None and around.type.startswith("preproc"):
            around = around.parent
        is_macro = self.is_macro and around is not None and around.parent is not None and around.parent.start_byte == 0
        is_outside = is_macro or (around is not None and around.type in _OUTSIDE)
        begins = (is_outside and b"extern" not in words) or bool(words & _STATIC)
        kind = self.declared.named(node)
        for each in node.children_by_field_name("declarator"):
            value = each.child_by_field_name("value") if each.type == "init_declarator" else None
            inner = each.child_by_field_name("declarator") if value is not None else each
            yield inner, self.declared.bare(inner.text.decode("utf-8", "replace"))  # A macro stands before the type.
            if value is not None:
                yield inner, self.left_out(kind, inner, value)
            elif begins and dimensions(inner) is not None:
                yield inner, kind

    def field(self, node: Any) -> Iterator[Place]:
        kind, value = self.declared.named(node), node.child_by_field_name("default_value")
        for each in node.children_by_field_name("declarator"):
            if value is not None:
                yield each, self.left_out(kind, each, value)
            elif dimensions(each) is not None and not self._is_constructed(node, each):
                yield each, kind

    def _is_constructed(self, node: Any, member: Any) -> bool:
        """Return whether a constructor in this file gives a member its value."""
        return bool({(record(node), member.text), ("", member.text)} & self.declared.constructed)

    def alias(self, node: Any) -> Iterator[Place]:
        """Yield the name of a type that is an array: a list in braces may leave out elements of its objects."""
        for each in node.children_by_field_name("declarator"):
            if each.type == "array_declarator":
                yield each, self.declared.named(node)

    def argument(self, node: Any) -> Iterator[Place]:
        """Yield the types that a template gets, if it may make values of them."""
        name, around = node.parent.child_by_field_name("name"), node.parent
        while around is not None and around.type in ("template_type", "template_function", "qualified_identifier"):
            around = around.parent
        made = around.child_by_field_name("declarator") if around is not None else None
        is_view = made is not None and dimensions(made) is None and made.type != "function_declarator"
        if _MAKES_NONE.fullmatch(name.text.decode("utf-8", "replace")) or is_view or around.type in _TAKEN:
            return
        is_map = name.text.endswith(b"map")
        for each in code(node)[is_map:]:
            yield node.parent, self.declared.bare(re.sub(rb"\s*\[\w*\]$", b"", each.text).decode("utf-8", "replace"))

    def macro(self, node: Any) -> Iterator[Place]:
        """Yield the types that a macro gets where a declaration stands, which reads as a function without a result."""
        has_result = node.parent.child_by_field_name("type") is not None
        if not has_result and declarator(node)[0] != record(node).encode():
            for each in code(node.child_by_field_name("parameters")):
                yield each, self.declared.named(each) if each.child_by_field_name("declarator") is None else ""

    def unread(self, node: Any) -> Iterator[Place]:
        """Yield the types in a place that is not C before the preprocessor ran: a macro may declare something there."""
        is_cast = node.type == "argument_list" and self.declared.cast(node.parent)[0]
        for each in code(node) if not is_cast else ():
            yield each, self.declared.bare(each.text.decode("utf-8", "replace"))


READERS: dict[str, Callable[[Zeros, Any], Iterator[Place]]] = {
    "declaration": Zeros.declaration,
    "field_declaration": Zeros.field,
    "type_definition": Zeros.alias,
    "template_argument_list": Zeros.argument,
    "argument_list": Zeros.unread,
    "function_declarator": Zeros.macro,
    "macro_type_specifier": Zeros.unread,
    "ERROR": Zeros.unread,
}
