"""Read tables of refusals: calls that succeed, and changes for which they are refused.

<family>.toml has two tables. ``accepted`` maps a name to a call that succeeds: the text of an operation, or a documented function with
its arguments by name. ``refused`` maps a case to ``of``, the accepted call, and to changes by "clause STATUS". Each changed call must be
refused with this status and cite this clause. A clause without a section belongs to the call's function. A case may also have:

shows      other clauses that the case shows
query      the clause that the query of the operation's workspace cites when it refuses each change, too
aliases    maps an operand to the operand whose memory it shares
needs      a property of the subject; without it, the case or the parameters with this change are skipped (``REASONS``)
ours       true if only our own backends have what the case calls

A change names fields of the operation or arguments of the function, and fields of these. A key may name several fields, "x dx". A packed
tensor stays packed when its dimensions change. A descriptor may be ``fresh``, or ``destroyed`` after it was set as in the accepted call.
``arguments`` replaces arguments that follow from an operation. ``each`` gives a field or argument several values, one call each, and
``null`` makes each listed argument NULL, one call each. ``attributes`` replaces attributes of a fused operation's constant parameter
pack, so that its plan is refused. ``id`` names the parameter of the case; * in it stands for the value of ``each``. A change may have its
own ``of``, ``aliases`` or ``needs``.
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
# Other keys of a change are fields or arguments.
OF_CHANGES = ("id", "of", "aliases", "needs", "arguments", "attributes", "each")
FRESH = "fresh"  # a descriptor that was not set
DESTROYED = "destroyed"  # a descriptor that was set and destroyed
REASONS = {
    "cites_clauses": "the document does not say what happens",
    "survives_stray_pointers": "another library may read memory that is not there",
    "is_python": "C has no such argument",
    "knows_sizes": "another library cannot know the sizes of buffers",
}
Call = Operation | Mapping[str, Any]  # an operation; or a function's name under "function", and its arguments


@dataclass(frozen=True)
class Refusal:
    """Hold a refused call and the accepted call that it changes.

    arguments: replace those that follow from the operation. attributes: replace those of a fused operation's parameter
    pack. query: the clause that the query of the workspace cites, or "" if the query is not made.
    """

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
    """Hold the refusals of one test by the id of its parameter, which is "" for a test without parameters."""

    rows: Mapping[str, list[Refusal]]
    shows: tuple[str, ...]
    ours: bool


def read(path: Path) -> dict[str, Case]:
    """Return the cases of a table by name. Raise ValueError that names a case or change without effect."""
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
    for key in (name for name in entry if name not in OF_CASES):  # every process must collect the same order
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
    """Return the id of the clause that the query of the call's workspace cites, or an empty text."""
    clause: str = entry.get("query", "")
    if not clause or "/" in clause:
        return clause
    if not isinstance(call, Operation) or type(call) not in WORKSPACES:
        raise ValueError(f"{where}: no query returns the workspace of {named(call)}, and query is {clause!r}")
    return f"{WORKSPACES[type(call)]}/{clause}"


def _each(change: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield a change once for each value of ``each`` and each argument of ``null``."""
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
    """Return the documented function of a call."""
    name: str = function_of(type(call)) if isinstance(call, Operation) else call["function"]
    return name


def changed(value: Any, change: Any) -> Any:
    """Return a call, or a part of it, with a change. Raise ValueError if it names an argument that does not exist."""
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
    """Return the value of a table's entry; a text is a record's text or the name of an enumerator."""
    if isinstance(value, str) and value not in (FRESH, DESTROYED):
        return None if value == "NULL" else parse(value)
    return tuple(map(_value, value)) if isinstance(value, list) else value
