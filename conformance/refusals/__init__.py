"""Refusals as tables: calls that succeed, and what has to be changed of each for it to be refused.

<family>.toml has two tables. ``accepted``: name -> a call that succeeds, either the text of an operation, or a documented function with
its arguments by name. ``refused``: case -> ``of``, the accepted call, and by "clause STATUS" the changes for which the call is refused
with this status, citing this clause. A clause without a section is one of the call's function. What else a case may have:

shows      further clauses that the case shows
query      the clause by which the query of an operation's workspace refuses each change, too
aliases    operand -> the operand whose memory it is, of an operation
needs      a property of the subject without which the case, or the cases of one parameter, are skipped (``REASONS``)
ours       true where only our own backends have what the case calls

A change names fields of the operation or arguments of the function, and fields of these; dimensions that change leave a tensor packed where
it was, and a name may be several, "x dx". A descriptor may be ``fresh``, or ``destroyed`` after it was made as in the accepted call.
``arguments`` replaces arguments that follow from an operation. ``each`` gives one field or argument several values in turn, and ``null``
names arguments that are NULL in turn. ``attributes`` replaces those of the constant parameter pack of a fused operation, whose plan is
then refused. A change that has an ``id`` belongs to the case with that parameter, in which * is the value of ``each``; one with an ``of``,
``aliases`` or ``needs`` has its own.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dualdnn.api.document import functions
from dualdnn.api.operations import Operation, TensorSpec, parse
from dualdnn.api.operations.specs import NCHW, NHWC
from dualdnn.api.status import cudnnStatus_t

from ..calls.caller import function_of
from ..calls.exceptions import WORKSPACES

FOLDER = Path(__file__).parent
OF_CASES = ("of", "aliases", "shows", "query", "needs", "ours")
OF_CHANGES = (
    "id",
    "of",
    "aliases",
    "needs",
    "arguments",
    "attributes",
    "each",
)  # what else is in a change is a field or an argument
FRESH, DESTROYED = "fresh", "destroyed"  # a descriptor of which nothing was set, and one that is no more
REASONS = {
    "cites_clauses": "the document does not say what happens",
    "survives_stray_pointers": "another library may read memory that is not there",
    "is_python": "C has no such argument",
    "knows_sizes": "another library cannot know the sizes of buffers",
}
Call = Operation | Mapping[str, Any]  # an operation; or a function's name under "function", and its arguments


@dataclass(frozen=True)
class Refusal:
    """One refused call, and the accepted one of which it is a change. arguments: of the refused call, in place of those of the operation.
    attributes: of the parameter pack of a plan that is refused, in place of those of the fused operation. query: the clause
    by which the query of the workspace refuses the operation, empty where it is not asked."""

    accepted: Call
    refused: Call
    status: cudnnStatus_t
    clause: str
    aliases: Mapping[str, str]
    arguments: Mapping[str, Any]
    attributes: Mapping[str, Any]
    query: str
    needs: str | None


@dataclass(frozen=True)
class Case:
    """The refusals of one test by the id of its parameter, which is "" where it has none."""

    rows: Mapping[str, list[Refusal]]
    shows: tuple[str, ...]
    ours: bool


def read(path: Path) -> dict[str, Case]:
    """Return the cases of a table by name; ``ValueError`` names the case and the change that say nothing."""
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    accepted = {name: _accepted(call) for name, call in table["accepted"].items()}
    return {name: _case(f"{path.name}, {name}", entry, accepted) for name, entry in table["refused"].items()}


def _accepted(call: str | Mapping[str, Any]) -> Call:
    if isinstance(call, str):
        operation: Operation = parse(call)
        return operation
    return {name: part if name == "function" else _value(part) for name, part in call.items()}


def _case(where: str, entry: Mapping[str, Any], accepted: Mapping[str, Call]) -> Case:
    rows: dict[str, list[Refusal]] = {}
    for key in (name for name in entry if name not in OF_CASES):  # in the order of the table, in every process
        clause, _, status = key.partition(" ")
        for change in (one for given in entry[key] for one in _each(given)):
            call = accepted[change.get("of", entry.get("of"))]
            aliases = change.get("aliases", entry.get("aliases", {}))
            replaced, attributes = (
                {name: _value(part) for name, part in change.get(given, {}).items()}
                for given in ("arguments", "attributes")
            )
            wrong = changed(call, {name: part for name, part in change.items() if name not in OF_CHANGES})
            if wrong == call and not (aliases or replaced or attributes):
                raise ValueError(f"{where}: {change} changes nothing of the accepted call")
            needs = change.get("needs", entry.get("needs"))
            if needs not in (None, *REASONS):
                raise ValueError(f"{where}: needs is {needs!r}, expected one of {', '.join(REASONS)}")
            cited, query = clause if "/" in clause else f"{named(call)}/{clause}", _query(where, entry, call)
            due = cudnnStatus_t[f"CUDNN_STATUS_{status}"]
            row = Refusal(call, wrong, due, cited, aliases, replaced, attributes, query, needs)
            rows.setdefault(change.get("id", ""), []).append(row)
    if not rows:
        raise ValueError(f"{where}: nothing is refused")
    return Case(rows, tuple(entry.get("shows", ())), entry.get("ours", False))


def _query(where: str, entry: Mapping[str, Any], call: Call) -> str:
    """Return the whole name of the clause that the query of the call's workspace cites, or an empty text."""
    clause: str = entry.get("query", "")
    if not clause or "/" in clause:
        return clause
    if not isinstance(call, Operation) or type(call) not in WORKSPACES:
        raise ValueError(f"{where}: no query returns the workspace of {named(call)}, and query is {clause!r}")
    return f"{WORKSPACES[type(call)]}/{clause}"


def _each(change: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield a change with each of the values or NULL arguments that it has in turn."""
    if "null" in change:
        rest = {name: part for name, part in change.items() if name != "null"}
        yield from ({**rest, "arguments": {**change.get("arguments", {}), name: "NULL"}} for name in change["null"])
        return
    if "each" not in change:
        yield change
        return
    ((name, values),) = change["each"].items()
    for value in values:
        named = {"id": change["id"].replace("*", str(value))} if "id" in change else {}
        yield {**change, **named, name: value}


def named(call: Call) -> str:
    """Return the documented function that a call is of."""
    name: str = function_of(type(call)) if isinstance(call, Operation) else call["function"]
    return name


def changed(value: Any, change: Any) -> Any:
    """Return a call, or a part of one, with a change. ``ValueError`` where it names no argument of the function."""
    if not isinstance(change, Mapping):
        return _value(change)
    change = {name: part for names, part in change.items() for name in names.split()}
    if isinstance(value, Mapping):
        if unknown := change.keys() - {parameter.name for parameter in functions()[value["function"]].arguments}:
            raise ValueError(f"{value['function']} has no argument {', '.join(sorted(unknown))}")
        return {**value, **{name: changed(value.get(name), part) for name, part in change.items()}}
    parts = {name: changed(getattr(value, name), part) for name, part in change.items()}
    if isinstance(value, TensorSpec) and "strides" not in parts:
        for order in (NCHW, NHWC):
            if value == TensorSpec.packed(value.data_type, value.dims, order):
                made = replace(value, **parts)
                return TensorSpec.packed(made.data_type, made.dims, order)
    return replace(value, **parts)


def _value(value: Any) -> Any:
    """Return what a value of the table stands for: text is that of a record, or the name of an enumerator."""
    if isinstance(value, str) and value not in (FRESH, DESTROYED):
        return None if value == "NULL" else parse(value)
    return tuple(map(_value, value)) if isinstance(value, list) else value
