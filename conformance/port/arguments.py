"""Reads the arguments of a call: which are literals, which point at a constant 1 or 0, and how a form applies."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import integers
from .forms import ONE, ZERO, Form

_VALUES = {ONE: 1.0, ZERO: 0.0}
_DECLARED = re.compile(
    rb"(?P<const>\b(?:static\s+|constexpr\s+|const\s+)*)\b(?:float|double)\b(?P<after>\s+const\b)?\s+(?P<list>[\w\s=.,+\-eEfF]+);"
)
_LITERAL = re.compile(rb"\s*(\w+)\s*=\s*([-+]?[0-9.]+(?:[eE][-+]?\d+)?)[fF]?\s*")


@dataclass
class Decision:
    """Says how a call is ported: refused with a reason, direct, or (neither) through the helper."""

    direct: bool = False
    refused: str | None = None
    notes: list[tuple[Any, str]] = field(default_factory=list)


def of_call(node: Any) -> Iterator[Any]:
    """Return the arguments of a call, without the comments between them."""
    for child in node.child_by_field_name("arguments").named_children:
        if child.type != "comment":
            yield child


def decide(
    form: Form,
    given: Sequence[Any],
    constants: Mapping[bytes, float],
    literal: Callable[[Any], str | None] | None = None,
    number: Callable[[Any], float | None] | None = None,
) -> Decision:
    """Evaluate the conditions of the form for every value that an argument may have.

    literal, number: functions that read an argument of another language than C. A number in place of an enumerator is
    that enumerator.
    """
    value = number or (lambda node: _points_at(node, constants))
    kinds = dict(zip(form.parameters, integers.parameter_kinds(form.cudnn, form.parameters), strict=True))

    def names(parameter: str) -> list[str]:
        return [_name(leaf, kinds[parameter], literal or _literal) or "" for leaf in integers.values(place[parameter])]

    decision = Decision()
    place = dict(zip(form.parameters, given, strict=True))
    for parameter, reasons in form.refuse.items():
        for name in names(parameter):
            if name in reasons:
                decision.refused = f"{parameter} is {name}: {reasons[name]}"
                return decision
    for parameter, reasons in form.notes.items():
        told = {name for name in names(parameter) if name in reasons}
        decision.notes += [(place[parameter], f"{parameter} is {name}: {reasons[name]}") for name in sorted(told)]
    decision.direct = form.miopen is not None and all(
        value(place[parameter]) == _VALUES[wanted] if isinstance(wanted, str) else set(names(parameter)) <= set(wanted)
        for parameter, wanted in form.when.items()
    )
    if not decision.direct and form.helper is None:
        decision.refused = "its arguments are not those that MIOpen takes: port it by hand"
    return decision


def constants(text: bytes) -> dict[bytes, float]:
    """Return the variables that hold one number wherever this file declares them: const, with a literal, always the
    same."""
    found: dict[bytes, set[float | None]] = {}
    for match in _DECLARED.finditer(text):
        is_const = b"const" in match["const"] or bool(match["after"])
        for declarator in match["list"].split(b","):
            name = re.match(rb"\s*(\w+)", declarator)
            literal = _LITERAL.fullmatch(declarator)
            if name:
                found.setdefault(name[1], set()).add(float(literal[2]) if literal and is_const else None)
    # Any other declaration of the name (a parameter, an array, a macro) makes it unknown.
    return {
        name: value
        for name, values in found.items()
        if len(values) == 1 and (value := next(iter(values))) is not None and _is_only_constant(text, name)
    }


def _is_only_constant(text: bytes, name: bytes) -> bool:
    other = re.compile(
        rb"(?:\bfloat|\bdouble|\bint|\bauto|\bT|\w+_t)\s*[&*]?\s*"
        + re.escape(name)
        + rb"\s*[,)\[]|#\s*define\s+"
        + re.escape(name)
        + rb"\b"
    )
    return not other.search(text)


def _points_at(node: Any, constants_: Mapping[bytes, float]) -> float | None:
    match = re.fullmatch(rb"&\s*(\w+)", node.text)
    return constants_.get(match[1]) if match else None


def _name(node: Any, kind: str | None, literal: Callable[[Any], str | None]) -> str | None:
    """Return the name of the enumerator that one value is."""
    number = integers.number(integers.without_cast(node))
    return literal(node) if number is None or kind is None else integers.enumerator_of(kind, number)


def _literal(node: Any) -> str | None:
    """Return the enumerator that an argument names."""
    text = node.text.decode("utf-8", "replace").removeprefix("::")
    return text if re.fullmatch(r"CUDNN_\w+", text) else None
