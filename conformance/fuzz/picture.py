"""Draw the coverage of drawn operations as a page: tables whose cells are darker the more operations they had."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from .judging import CELL

ROWS = ("algorithm", "solver", "kernel")
COLUMNS = ("types", "layouts", "elements")
TABLES = ("layouts by types", "elements by types", *(f"{column} by {row}" for row in ROWS for column in COLUMNS))
MIN_SHADE = 12  # percent of the accent's colour in the background of a cell
MAX_SHADE = 72  # percent of the accent's colour in the background of a cell
STYLE = """body{font:14px system-ui,sans-serif;margin:2em;color-scheme:light dark;--accent:#4878a8}table{border-collapse:collapse;margin:0 0 1.5em}
td,th{padding:2px 9px;text-align:right;font-weight:400;border:1px solid #8884}th{white-space:nowrap}tr>:first-child{text-align:left}
td.never,span.never{color:#b5433a}caption{text-align:left;font-weight:600;padding:4px 0}"""


def page(pictures: Mapping[str, Mapping[str, Any]], never: Sequence[str] = ()) -> str:
    """Return the page. ``pictures`` are as in coverage.json: family -> fact -> value -> number of operations.

    never: kernels that no family launched.
    """
    parts = [
        f"<!doctype html><meta charset=utf-8><title>dualdnn fuzz: coverage</title><style>{STYLE}</style><h1>Coverage of drawn operations</h1>",
        "<p>A cell counts the operations that had the value of its row and of its column. The darker a cell, the more."
        " A dash is a pair that was never drawn, or that the API refuses.</p>",
    ]
    parts += [_never("Kernels", never)]
    parts += [_family(name, facts) for name, facts in pictures.items()]
    return "\n".join(parts) + "\n"


def _family(name: str, facts: Mapping[str, Any]) -> str:
    """Return the part of a family: its numbers, the solvers that never ran, and its tables."""
    count = sum(facts.get("operation", {}).values())
    solvers, missing = facts.get("solvers", ()), facts["solvers missing"]
    said = f"{count:,} operations, {len(solvers)} of {len(solvers) + len(missing)} solvers, {len(facts.get('kernels', ()))} kernels"
    tables = "".join(_table(table, facts[table]) for table in TABLES if table in facts)
    return f"<h2>{escape(name)}</h2><p>{said}</p>{_never('Solvers', missing)}{tables}"


def _never(what: str, names: Sequence[str]) -> str:
    """Return a sentence that names what never ran; nothing where all ran."""
    return f"<p>{what} that never ran: <span class=never>{escape(', '.join(names))}</span></p>" if names else ""


def _table(name: str, cells: Mapping[str, int]) -> str:
    """Return a table of cells that are named ``row | column``."""
    counts = {tuple(cell.split(CELL)): count for cell, count in cells.items()}
    rows, columns = (sorted({key[i] for key in counts}, key=_order) for i in (0, 1))
    most = max(counts.values())
    head = "".join(f"<th>{escape(column)}" for column in columns)
    body = "".join(
        f"<tr><th>{escape(row)}" + "".join(_cell(counts.get((row, column), 0), most) for column in columns)
        for row in rows
    )
    return f"<table><caption>{escape(name)}</caption><tr><th>{head}{body}</table>"


def _cell(count: int, most: int) -> str:
    """Return a cell, shaded by the logarithm of its count."""
    if not count:
        return "<td class=never>–"
    share = math.log1p(count) / math.log1p(most)
    shade = round(MIN_SHADE + (MAX_SHADE - MIN_SHADE) * share)
    return f'<td style="background:color-mix(in srgb,var(--accent) {shade}%,transparent)">{count:,}'


def _order(value: str) -> tuple[int, int, str]:
    """Return the place of a value: sizes by their number, other values by name."""
    digits = value.removeprefix("up to ").replace(",", "")
    return (0, int(digits), "") if digits.isdigit() else (1, 0, value)
