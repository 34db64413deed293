"""Where a file of C gives a value to something of an enumeration type of cuDNN, or takes the number of an enumerator.

The first are arguments, casts, variables, fields, elements, defaults, results, sides of comparisons, labels. The second are integer
variables and parameters, casts to integers, text, arithmetic, indices, and memory that is looked at as another type.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from .declared import STATUS, Declared, declarator
from .integers import code, is_integer, number, values

_EQUALITY, _ORDER = ("==", "!="), ("<", ">", "<=", ">=")
_ARITHMETIC = frozenset({"+", "-", "*", "/", "%", "<<", ">>", "|", "&", "^"})
_ASSERTIONS = re.compile(rb"[A-Z_]+_(?:EQ|NE)")
_BYTES = re.compile(rb"mem(?:cpy|set|cmp|move)|bcopy|f?(?:read|write)|recv|send|f?scanf|sscanf")
_ALLOCATIONS = frozenset({b"malloc", b"calloc", b"realloc", b"alloca"})
_TEXTS = re.compile(rb"\w*printf|to_string|format|print|println|_?exit|quick_exit")
_NUMBER_INSIDE = re.compile(r"<.*\b(?:int|unsigned|long|short|size_t|u?int\d+_t)\b")


@dataclass(frozen=True)
class Typed:
    """An expression that gives a value to something.

    kind: its enumeration type, an integer type, or empty where an enumerator's number is computed with. is_text: the number only becomes
    text, or an exit status. is_opaque: this file does not show which number.
    """

    expression: Any
    kind: str
    is_cast: bool = False
    is_text: bool = False
    is_opaque: bool = False


def typed(declared: Declared, node: Any) -> Iterator[Typed]:
    """Yields the uses at this node."""
    reader = _READERS.get(node.type)
    for found in reader(declared, node) if reader else ():
        if found.expression is not None and (found.kind in declared.kinds or not found.kind or is_integer(found.kind)):
            yield found


def _cast(declared: Declared, node: Any) -> Iterator[Typed]:
    kind, value = declared.cast(node)
    target = kind.rstrip("*& ")
    if kind in declared.kinds:
        yield Typed(value, kind, is_cast=True)
        if kind != STATUS and not list(values(value)):  # the value of 0
            yield Typed(node, kind, is_opaque=True)
    elif kind != target:
        yield from _view(declared, target, value)
    elif kind and not _is_compared(node):
        yield Typed(value, kind)


def _view(declared: Declared, target: str, value: Any) -> Iterator[Typed]:
    """A pointer or a reference to an enumeration type that was none, or the other way round."""
    for leaf in values(value):
        callee = declared.called(leaf) if leaf.type == "call_expression" else None
        is_fresh = callee is not None and callee.text in _ALLOCATIONS
        source = declared.declared(leaf)[0]
        if not is_fresh and leaf.type != "null" and target != source and {target, source} & declared.kinds:
            yield Typed(leaf, "", is_opaque=True)


def _is_compared(node: Any) -> bool:
    """Whether a number is a side of a comparison, or chooses a label, whose numbers are translated."""
    around = node.parent
    while around is not None and around.type in ("parenthesized_expression", "condition_clause"):
        around = around.parent
    if around is None:
        return False
    return around.type == "switch_statement" or (around.type == "binary_expression" and _operator(around) in _EQUALITY)


def _call(declared: Declared, node: Any) -> Iterator[Typed]:
    kind, _ = declared.cast(node)
    if kind:
        yield from _cast(declared, node)
        return
    name, given = declared.called(node), code(node.child_by_field_name("arguments"))
    if name is None:
        function = node.child_by_field_name("function")
        if function.type == "field_expression" and _holds_numbers(
            declared.declared(function.child_by_field_name("argument"))[0]
        ):
            yield from (Typed(argument, "") for argument in given)
        return
    if _ASSERTIONS.fullmatch(name.text) and len(given) > 1:
        yield from _compared(declared, given[0], given[1])
    elif _BYTES.fullmatch(name.text):
        ours = [
            argument
            for argument in given
            if declared.declared(argument)[0] in declared.kinds and declared.declared(argument)[1] > 0
        ]
        others = [argument for argument in given[:2] if argument not in ours]
        yield from (Typed(argument, "", is_opaque=True) for argument in ours if others)
    elif _TEXTS.fullmatch(name.text):
        yield from (Typed(argument, "", is_text=True) for argument in given)
    elif name.text in declared.comparing:
        yield from (Typed(argument, declared.comparing[name.text]) for argument in given)
    else:
        kinds = declared.functions.get(name.text, ("", []))[1]
        yield from (Typed(argument, kind) for argument, kind in zip(given, kinds, strict=False) if kind)


def _holds_numbers(kind: str) -> bool:
    """Whether a type is a container of integers, and of no enumerators."""
    return _NUMBER_INSIDE.search(kind) is not None and "cudnn" not in kind


def _declaration(declared: Declared, node: Any) -> Iterator[Typed]:
    kind, default = declared.named(node), node.child_by_field_name("default_value")
    holds_numbers = _holds_numbers(kind)
    for each in node.children_by_field_name("declarator"):
        if (
            each.type != "init_declarator"
            or (inner := each.child_by_field_name("declarator")).type == "pointer_declarator"
        ):
            continue
        value = each.child_by_field_name("value")
        if holds_numbers or kind:
            yield Typed(value, "" if holds_numbers else kind)
        if (
            kind in declared.kinds
            and kind != STATUS
            and inner.type == "identifier"
            and value.type in ("initializer_list", "argument_list")
            and not code(value)
        ):
            yield Typed(inner, kind, is_opaque=True)
    if kind:
        yield Typed(default, kind)


def _field(declared: Declared, node: Any) -> Iterator[Typed]:
    yield from _declaration(declared, node)
    around = node.parent.parent if node.parent is not None else None
    if around is not None and around.type == "union_specifier" and declared.named(node) in declared.kinds:
        yield Typed(node.child_by_field_name("declarator"), declared.named(node), is_opaque=True)


def _assignment(declared: Declared, node: Any) -> Iterator[Typed]:
    left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
    kind = declared.type_of(left)
    if node.child_by_field_name("operator").text != b"=":
        yield from (Typed(side, "") for side in (left, right))
    elif kind:
        yield Typed(right, kind)


def _pair(declared: Declared, node: Any) -> Iterator[Typed]:
    designator = node.child_by_field_name("designator")
    known = declared.fields.get(designator.text.lstrip(b". "), set()) if designator is not None else set()
    if len(known) == 1:
        yield Typed(node.child_by_field_name("value"), next(iter(known))[0])


def _field_initializer(declared: Declared, node: Any) -> Iterator[Typed]:
    name, *given = code(node)
    known = declared.fields.get(name.text, set())
    if len(known) == 1 and given:
        yield Typed(given[0], next(iter(known))[0])


def _compared(declared: Declared, left: Any, right: Any) -> Iterator[Typed]:
    for side, other in ((left, right), (right, left)):
        kinds = {declared.kind_of(leaf)[0] for leaf in values(other)} - {""}
        if len(kinds) == 1:
            yield Typed(side, kinds.pop())


def _binary(declared: Declared, node: Any) -> Iterator[Typed]:
    left, right, operator = node.child_by_field_name("left"), node.child_by_field_name("right"), _operator(node)
    if operator in _EQUALITY:
        yield from _compared(declared, left, right)
    elif operator in _ORDER:  # success is the least status in both
        sides = [
            side
            for side, other in ((left, right), (right, left))
            if not (declared.kind_of(side)[0] == STATUS and number(other) in (0, 1))
        ]
        yield from (Typed(side, "") for side in sides)
    elif operator in ("&&", "||"):
        yield from (Typed(side, "bool") for side in (left, right))
    elif operator == "<<" and not declared.is_number(left) and number(left) is None and not declared.kind_of(left)[0]:
        yield Typed(right, "", is_text=True)
    elif operator in _ARITHMETIC:
        yield from (Typed(side, "") for side in (left, right))


def _operator(node: Any) -> str:
    return node.child_by_field_name("operator").text.decode()


def _unary(declared: Declared, node: Any) -> Iterator[Typed]:
    yield Typed(node.child_by_field_name("argument"), "bool" if _operator(node) == "!" else "")


def _condition(declared: Declared, node: Any) -> Iterator[Typed]:
    yield Typed(node.child_by_field_name("condition"), "bool")


def _switch(declared: Declared, node: Any) -> Iterator[Typed]:
    kinds = {declared.kind_of(leaf)[0] for leaf in values(node.child_by_field_name("condition"))} - {""}
    for label in code(node.child_by_field_name("body")) if len(kinds) == 1 else ():
        if label.type == "case_statement":
            yield Typed(label.child_by_field_name("value"), next(iter(kinds)))


def _return(declared: Declared, node: Any) -> Iterator[Typed]:
    around = node.parent
    while around is not None and around.type not in ("function_definition", "lambda_expression"):
        around = around.parent
    if around is not None and around.type == "function_definition" and code(node):
        kind = declared.named(around)
        if kind and not declarator(around.child_by_field_name("declarator"))[1]:
            yield Typed(code(node)[0], kind)


def _subscript(declared: Declared, node: Any) -> Iterator[Typed]:
    if "cudnn" in declared.declared(node.child_by_field_name("argument"))[0] and declared.type_of(
        node.child_by_field_name("argument")
    ):
        return  # a map whose keys are enumerators
    indices = node.child_by_field_name("indices")
    listed = code(indices) if indices is not None else [node.child_by_field_name("index")]
    yield from (Typed(index, "") for index in listed)


def _template(declared: Declared, node: Any) -> Iterator[Typed]:
    if node.parent.child_by_field_name("name").text in declared.templates:
        for argument in code(node):
            inner = code(argument)
            yield Typed(inner[0] if argument.type == "type_descriptor" and inner else argument, "")


def _value(declared: Declared, node: Any) -> Iterator[Typed]:
    yield Typed(node.child_by_field_name("value"), "")


_READERS: dict[str, Callable[[Declared, Any], Iterator[Typed]]] = {
    "cast_expression": _cast,
    "compound_literal_expression": _cast,
    "call_expression": _call,
    "declaration": _declaration,
    "optional_parameter_declaration": _declaration,
    "field_declaration": _field,
    "assignment_expression": _assignment,
    "initializer_pair": _pair,
    "field_initializer": _field_initializer,
    "binary_expression": _binary,
    "unary_expression": _unary,
    "update_expression": _unary,
    "if_statement": _condition,
    "while_statement": _condition,
    "switch_statement": _switch,
    "return_statement": _return,
    "subscript_expression": _subscript,
    "template_argument_list": _template,
    "enumerator": _value,
}
