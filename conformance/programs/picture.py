"""Draw what was observed as a page: the distribution of errors for each configuration.

Errors are in units of their bounds. Configurations are grouped by pass, in the order of the program's first calls,
which is the order of its layers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

MIN_POWER = -8  # power of two; smaller errors share a bin
LABELS = (
    f"up to 2^{MIN_POWER} of the bound",
    *(f"up to 2^{power}" for power in range(MIN_POWER + 1, 1)),
    "beyond the bound",
)
BINS = len(LABELS)
PASSES = (
    ("gradients of weights", re.compile("BackwardFilter|BackwardWeights|BackwardBias")),
    ("gradients of data", re.compile("Backward|Loss")),
    ("forward", re.compile("")),
)
BAR = 16  # pixels, width of a bar with its gap
HEIGHT = 36  # pixels, height of the largest bar
STYLE = """body{font:14px sans-serif;margin:2em}table{border-collapse:collapse;margin-bottom:2em}td,th{padding:3px 10px;text-align:right}
td:first-child,th:first-child{text-align:left}tr{border-top:1px solid #ddd}rect{fill:#4878a8}rect.wrong{fill:#c03030}tr.wrong{background:#fbe4e4}
svg{display:block}pre{background:#f4f4f4;padding:1em;white-space:pre-wrap}"""


def bin_of(ratio: float) -> int:
    """Return the bin of an error in units of its bound. The last bin is for errors beyond the bound."""
    if not abs(ratio) <= 1:
        return BINS - 1
    return max(0, math.ceil(math.log2(abs(ratio))) - MIN_POWER) if ratio else 0


def pass_of(function: str) -> str:
    """Return which pass of training a function belongs to."""
    return next(name for name, pattern in PASSES if pattern.search(function))


def page(summary: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the page. ``rows`` are as in observed.json."""
    parts = [
        f"<!doctype html><meta charset=utf-8><title>dualdnn observe</title><style>{STYLE}</style><h1>Observed calls</h1>"
    ]
    parts.append(
        "<p>Errors of sampled elements in units of their bounds: each bar counts elements of a distribution between two powers of two,"
        f" {LABELS[0]} at the left, {LABELS[-1]} (wrong) at the right. A configuration without bars was compared as a whole.</p>"
    )
    for name, _ in reversed(PASSES):
        found = [row for row in rows if pass_of(row["function"]) == name]
        if found:
            head = "<tr><th>layer<th>errors<th>worst<th>rms<th>bias<th>calls<th>judged<th>wrong"
            parts.append(f"<h2>{name}</h2><table>{head}{''.join(map(_row, found))}</table>")
    return "".join([*parts, f"<h2>Summary</h2><pre>{escape(summary)}</pre>\n"])


def _row(row: Mapping[str, Any]) -> str:
    """Return one line of a table, with the replay text as the name's title."""
    kind = " class=wrong" if row["wrong"] else ""
    numbers = [row["worst_error_in_bounds"], row["rms_error_in_bounds"], row["bias_in_bounds"]]
    cells = [f"{number:.3g}" for number in numbers] + [str(row[name]) for name in ("calls", "judged", "wrong")]
    return (
        f'<tr{kind}><td title="{escape(row["operation"])}">{escape(_layer(row))}<td>{_bars(row["errors"])}'
        + "".join(f"<td>{cell}" for cell in cells)
    )


def _layer(row: Mapping[str, Any]) -> str:
    """Return the function and the distinct sizes of its tensors."""
    sizes = dict.fromkeys(re.findall(r"dims=\(([\d, ]+?),?\)", row["operation"]))
    return f"{row['function'].removeprefix('cudnn')} {' '.join(size.replace(', ', 'x') for size in sizes)}"


def _bars(counts: Sequence[int]) -> str:
    if not any(counts):
        return ""
    most, bars = max(counts), []
    for number, (count, label) in enumerate(zip(counts, LABELS, strict=True)):
        height = max(2, round(HEIGHT * count / most)) if count else 0
        kind = " class=wrong" if number == BINS - 1 else ""
        bars.append(
            f"<rect{kind} x={BAR * number} y={HEIGHT - height} width={BAR - 2} height={height}><title>{label}: {count}</title></rect>"
        )
    return f"<svg width={BAR * BINS} height={HEIGHT}>{''.join(bars)}</svg>"
