"""Finds where a C file gives a value to something of an enumeration type of cuDNN, or takes the number of an
enumerator.

Values go to arguments, casts, variables, fields, elements, defaults, results, sides of comparisons and labels. Numbers
go to integer variables and parameters, casts to integers, text, arithmetic, indices, and memory that is read as another
type.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from .declared import Declared
from .expressions import STATUS, template_call
from .integers import code, is_integer, number, values
from .zeros import Zeros

_EQUALITY = ("==", "!=")
_ORDER = ("<", ">", "<=", ">=", "<=>")
_ARITHMETIC = frozenset({"+", "-", "*", "/", "%", "<<", ">>", "|", "&", "^"})
_ASSERTIONS = re.compile(rb"[A-Z_]+_(?:EQ|NE)|cmp_(?:not_)?equal")
_COMPARERS = re.compile(rb"(?:std::)?(?:not_)?equal_to<.*", re.DOTALL)
_SEARCHES = re.compile(rb"find|count|replace|remove|search_n|binary_search|(?:lower|upper)_bound|equal_range|fill")
_BYTES = re.compile(rb"mem(?:cpy|set|cmp|move)|bcopy|f?(?:read|write)|recv|send|f?scanf|sscanf")
_READS = re.compile(rb"\w*[Ff]ree|assert|delete")
_SIZED = ("vector", "deque", "list", "valarray")
_ALLOCATIONS = frozenset({b"malloc", b"realloc", b"alloca", b"aligned_alloc"})  # These leave memory as it is.
_TEXTS = re.compile(rb"\w*printf|to_string|format|print|println|_?exit|quick_exit")
_NUMBER_INSIDE = re.compile(r"<.*\b(?:int|unsigned|long|short|size_t|u?int\d+_t)\b")


@dataclass(frozen=True)
class Typed:
    """Describes an expression that gives a value to something.

    kind: its enumeration type, an integer type, or empty where an enumerator's number is computed with. is_text: the
    number only becomes text, or an exit status. is_opaque: this file does not show which number.
    """

    expression: Any
    kind: str
    is_cast: bool = False
    is_text: bool = False
    is_opaque: bool = False


def typed(declared: Declared, node: Any) -> Iterator[Typed]:
    """Yields the uses at this node."""
    reader = READERS.get(node.type)
    for found in reader(declared, node) if reader else ():
        if found.expression is not None and (found.kind in declared.kinds or not found.kind or is_integer(found.kind)):
            yield found


def _cast(declared: Declared, node: Any) -> Iterator[Typed]:
    kind, value = declared.cast(node)
    target = kind.rstrip("*& ")
    if kind in declared.kinds:
        yield Typed(value, kind, is_cast=True)
    elif kind != target:
        yield from _view(declared, target, value)
    elif kind and not _is_compared(node):
        yield Typed(value, kind)


def _literal(declared: Declared, node: Any) -> Iterator[Typed]:
    kind = declared.named(node)
    if kind in declared.records:
        yield from _of_record(declared, kind, None, node.child_by_field_name("value"))
    else:
        yield from _cast(declared, node)


def _view(declared: Declared, target: str, value: Any, is_cast: bool = True) -> Iterator[Typed]:
    """Yield a pointer or a reference that views an enumeration type as another type, or the other way round.

    Without a cast, C converts ``void *`` alone: other memory, or what a function returns that this file does not show.
    """
    for leaf in values(value):
        while leaf.type == "cast_expression" and leaf.child_by_field_name("type").text.replace(b" ", b"") == b"void*":
            leaf = leaf.child_by_field_name("value")
        callee = declared.called(leaf) if leaf.type == "call_expression" else None
        is_fresh = callee is not None and callee.text in _ALLOCATIONS
        source = declared.declared(leaf)[0]
        if not is_cast and source != "void" and (callee is None or source):
            continue
        if not is_fresh and leaf.type != "null" and target != source and {target, source} & declared.kinds:
            yield Typed(leaf, "", is_opaque=True)


def _is_compared(node: Any) -> bool:
    """Return whether a number is a side of a comparison, or chooses a label: their numbers are translated."""
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
        function, callee = node.child_by_field_name("function"), declared.callee(node)
        if function.type == "field_expression" and _holds_numbers(
            declared.declared(function.child_by_field_name("argument"))[0]
        ):
            yield from (Typed(argument, "") for argument in given)
        elif _COMPARERS.match(function.text) and len(given) == 2:
            yield from _compared(declared, *given)
        elif callee is not None:
            yield from _parameters(declared, callee, given, node.start_byte)
            # (f)(x) and (&f)(x) are no calls to rewriting.py, which ports f as a name.
            kinds = declared.documented(callee)
            yield from (Typed(argument, kind) for argument, kind in zip(given, kinds, strict=False) if kind)
        else:
            yield from _template_call(declared, node, given)
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
    elif _SEARCHES.fullmatch(name.text) and len(given) > 2:  # These search between two iterators.
        element, depth = declared.declared(given[0])
        yield from (Typed(argument, element) for argument in given[2:] if depth == 1)
    elif _TEXTS.fullmatch(name.text):
        yield from (Typed(argument, "", is_text=True) for argument in given)
    elif name.text in declared.comparing:
        yield from (Typed(argument, declared.comparing[name.text]) for argument in given)
    elif name.text in declared.macro_arguments:
        for place, taken in declared.macro_arguments[name.text].items():
            if place < len(given) and (taken in declared.kinds or declared.kind_of(given[place])[0] != STATUS):
                yield Typed(given[place], taken)
    else:
        yield from _parameters(declared, name.text, given, node.start_byte)
        yield from _written(declared, name, given)


def _written(declared: Declared, name: Any, given: list[Any]) -> Iterator[Typed]:
    """Yield the addresses that a function gets whose declaration is not seen: it may write bytes there."""
    is_seen = name.text.startswith(b"cudnn") or name.text in declared.results
    if is_seen or name.parent.type != "call_expression" or _READS.fullmatch(name.text):
        return
    for argument in given:
        kind, depth = declared.declared(argument)
        if depth == 1 and kind in declared.kinds - {STATUS}:
            yield Typed(argument, "", is_opaque=True)


def _parameters(declared: Declared, function: bytes, given: list[Any], at: int) -> Iterator[Typed]:
    kinds = declared.taken_at(function, at) or declared.functions.get(function, ("", []))[1]
    yield from (Typed(argument, kind) for argument, kind in zip(given, kinds, strict=False) if kind)


def _template_call(declared: Declared, node: Any, given: list[Any]) -> Iterator[Typed]:
    """Yield the arguments of ``f<type>(...)``: f may use a number in any way, and an integer type takes an
    enumerator's number."""
    name, listed = template_call(node.child_by_field_name("function"))
    types = [declared.bare(a.text.decode("utf-8", "replace")) for a in listed if name.decode() not in _SIZED]
    kind = types[0] if types else ""
    if is_integer(kind):
        yield from (Typed(argument, kind) for argument in given)
    elif kind in declared.kinds and kind != STATUS:
        unknown = [leaf for leaf in given if number(leaf) is not None or declared.is_number(leaf)]
        yield from (Typed(leaf, kind, is_opaque=True) for leaf in unknown)
        if not given:
            yield Typed(node.child_by_field_name("arguments"), kind)


def _holds_numbers(kind: str) -> bool:
    """Return whether a type is a container of integers, and of no enumerators."""
    return _NUMBER_INSIDE.search(kind) is not None and "cudnn" not in kind


def _declaration(declared: Declared, node: Any) -> Iterator[Typed]:
    kind, default = declared.named(node), node.child_by_field_name("default_value")
    holds_numbers = _holds_numbers(kind)
    for each in node.children_by_field_name("declarator"):
        if each.type == "parenthesized_declarator" and code(each)[0].type == "function_declarator":
            yield from _constructed(declared, code(each)[0], "")  # f(AS(int, value)) reads as a declaration.
        if each.type == "function_declarator" and (holds_numbers or is_integer(kind)):
            yield from _constructed(declared, each, "" if holds_numbers else kind)
        if each.type != "init_declarator":
            continue
        value, inner = each.child_by_field_name("value"), each.child_by_field_name("declarator")
        if inner.type == "pointer_declarator":
            yield from _view(declared, kind, value, is_cast=False)
        elif kind in declared.records:
            yield from _of_record(declared, kind, inner, value)
        elif holds_numbers or kind:
            yield Typed(value, "" if holds_numbers else kind)
    if kind:
        yield Typed(default, kind)


def _constructed(declared: Declared, function: Any, kind: str) -> Iterator[Typed]:
    """Yield the initial value in ``int n(value)``, which reads as the declaration of a function."""
    for parameter in code(function.child_by_field_name("parameters")):
        value = parameter.child_by_field_name("type")
        if parameter.child_by_field_name("declarator") is None and value is not None and declared.kind_of(value)[0]:
            yield Typed(value, kind)


def _of_record(declared: Declared, kind: str, target: Any, value: Any) -> Iterator[Typed]:
    """Yield the values of the members of a structure, or of each in an array of them."""
    for child, of, depth in Zeros(declared, frozenset()).given(kind, target, value):
        if depth == 0 and of:
            yield Typed(child, of)


def _field(declared: Declared, node: Any) -> Iterator[Typed]:
    yield from _declaration(declared, node)
    default, kind = node.child_by_field_name("default_value"), declared.named(node)
    if default is not None and default.type == "initializer_list":
        yield Typed(default, kind)
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
    else:
        yield from _view(declared, declared.declared(left)[0], right, is_cast=False)


def _pair(declared: Declared, node: Any) -> Iterator[Typed]:
    designator = node.child_by_field_name("designator")
    if designator is not None and designator.type == "subscript_designator" and code(designator):
        yield Typed(code(designator)[0], "")
    names = [
        code(each)[0].text for each in node.children_by_field_name("designator") if each.type == "field_designator"
    ]
    around = node
    while around is not None and around.type not in ("declaration", "compound_literal_expression"):
        around = around.parent
    kind = declared.named(around) if around is not None else ""
    for field in names:  # .a.b = value
        known = declared.fields.get(field, set())
        kind = (declared.records.get(kind, {}).get(field) or (next(iter(known)) if len(known) == 1 else ("", 0)))[0]
    if names and kind:
        yield Typed(node.child_by_field_name("value"), kind)


def _field_initializer(declared: Declared, node: Any) -> Iterator[Typed]:
    name, *given = code(node)
    known = declared.fields.get(name.text, set())
    if len(known) == 1 and given:
        kind, _ = next(iter(known))
        yield Typed(given[0], kind)


def _new(declared: Declared, node: Any) -> Iterator[Typed]:
    kind, given = declared.named(node), node.child_by_field_name("arguments")
    if given is not None:
        yield Typed(given, kind)


def _compared(declared: Declared, left: Any, right: Any) -> Iterator[Typed]:
    for side, other in ((left, right), (right, left)):
        kinds = {declared.kind_of(leaf)[0] for leaf in values(other)} - {""}
        if len(kinds) == 1:
            yield Typed(side, kinds.pop())


def _binary(declared: Declared, node: Any) -> Iterator[Typed]:
    left, right, operator = node.child_by_field_name("left"), node.child_by_field_name("right"), _operator(node)
    if operator in _EQUALITY:
        yield from _compared(declared, left, right)
    elif operator in _ORDER:  # Success is the least status in both libraries.
        sides = [
            side
            for side, other in ((left, right), (right, left))
            if not (declared.kind_of(side)[0] == STATUS and number(other) in (0, 1))
        ]
        yield from (Typed(side, "") for side in sides)
    elif operator in ("&&", "||"):
        yield from (Typed(side, "bool") for side in (left, right))
    elif operator == "<<" and _is_stream(declared, left):
        yield Typed(right, "", is_text=True)
    elif operator in _ARITHMETIC:
        yield from (Typed(side, "") for side in (left, right))


def _is_stream(declared: Declared, left: Any) -> bool:
    """Return whether values are shifted into a stream, as far as the first operand of the chain shows."""
    while left.type == "binary_expression" and _operator(left) == "<<":
        left = left.child_by_field_name("left")
    return not declared.is_number(left) and number(left) is None and not declared.kind_of(left)[0]


def _operator(node: Any) -> str:
    return node.child_by_field_name("operator").text.decode("utf-8", "replace")


def _unary(declared: Declared, node: Any) -> Iterator[Typed]:
    yield Typed(node.child_by_field_name("argument"), "bool" if _operator(node) == "!" else "")


def _condition(declared: Declared, node: Any) -> Iterator[Typed]:
    if (condition := node.child_by_field_name("condition")) is not None:
        yield Typed(condition, "bool")


def _switch(declared: Declared, node: Any) -> Iterator[Typed]:
    kinds = {declared.kind_of(leaf)[0] for leaf in values(node.child_by_field_name("condition"))} - {""}
    labels = [label.child_by_field_name("value") for label in code(node.child_by_field_name("body"))]
    labels = [label for label in labels if label is not None]
    if len(kinds) == 1:
        kind = next(iter(kinds))
        # This is the range of ``case 0 ... 2``, which the grammars of C++ and of C read as two kinds of error.
        is_range = {
            label: label.type == "parameter_pack_expansion"
            or (label.next_sibling is not None and label.next_sibling.text.startswith(b"..."))
            for label in labels
        }
        yield from (Typed(label, kind, is_opaque=is_range[label]) for label in labels)
    elif not kinds and len(kinds := {declared.kind_of(label)[0] for label in labels} - {""}) == 1:
        yield Typed(node.child_by_field_name("condition"), next(iter(kinds)))


def _return(declared: Declared, node: Any) -> Iterator[Typed]:
    around = node.parent
    while around is not None and around.type not in ("function_definition", "lambda_expression"):
        around = around.parent
    kind = declared.returned(around) if around is not None and code(node) else ""
    if kind:
        yield Typed(code(node)[0], kind)


def _subscript(declared: Declared, node: Any) -> Iterator[Typed]:
    if "cudnn" in declared.declared(node.child_by_field_name("argument"))[0] and declared.type_of(
        node.child_by_field_name("argument")
    ):
        return  # This is a map whose keys are enumerators.
    indices = node.child_by_field_name("indices")
    listed = code(indices) if indices is not None else [node.child_by_field_name("index")]
    yield from (Typed(index, "") for index in listed)


def _template(declared: Declared, node: Any) -> Iterator[Typed]:
    listed = code(node)
    takes_numbers = any(is_integer(declared.bare(argument.text.decode("utf-8", "replace"))) for argument in listed)
    if takes_numbers or node.parent.child_by_field_name("name").text in declared.templates:
        for argument in listed:
            inner = code(argument)
            shape = argument.child_by_field_name("declarator") if argument.type == "type_descriptor" else None
            if (
                shape is not None and shape.type == "abstract_function_declarator"
            ):  # static_cast<int>(value) reads as a type.
                yield from _constructed(declared, shape, "")
            else:
                yield Typed(inner[0] if argument.type == "type_descriptor" and inner else argument, "")


def _value(declared: Declared, node: Any) -> Iterator[Typed]:
    yield Typed(node.child_by_field_name("value"), "")


READERS: dict[str, Callable[[Declared, Any], Iterator[Typed]]] = {
    "cast_expression": _cast,
    "compound_literal_expression": _literal,
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
    "do_statement": _condition,
    "for_statement": _condition,
    "conditional_expression": _condition,
    "switch_statement": _switch,
    "return_statement": _return,
    "subscript_expression": _subscript,
    "new_expression": _new,
    "template_argument_list": _template,
    "enumerator": _value,
}
