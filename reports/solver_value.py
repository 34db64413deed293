"""Tell which solvers are worth keeping: those that make at least two rows of the benchmark 1.25 times as fast as the next one does.

    python reports/solver_value.py      # reads h200/every_solver.json.gz and solver_exceptions.json, writes docs/performance/solvers.md

Tiles of one kernel count as one solver: it is compared with the solvers of other kernels, and its tiles with each other.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from dualdnn.accelerated.runtime.devices import open_device
from dualdnn.accelerated.solver import possible_solvers, solver_names
from dualdnn.conformance.bench.row import Convolution
from dualdnn.conformance.bench.rows import rows
from dualdnn.conformance.kernels.build_ahead import with_every_algorithm

HERE = Path(__file__).parent
TIMES = HERE / "h200" / "every_solver.json.gz"
EXCEPTIONS = HERE / "solver_exceptions.json"
TABLE = HERE.parent / "docs" / "performance" / "solvers.md"
ENOUGH = 1.25  # how many times faster a row must be
ROWS = 2  # rows that must be this much faster
TILE = re.compile(r"((?<=_nchw)_tf32)?(_ping_pong)?_\d+(x\d+)?$")

# Each pair has the beginning of a solver's name when the rows were timed, and the one that it has now. Longer names come first.
RENAMED = (
    ("convolution.bias_gradient_any", "convolution.bias_gradient_generic"),
    ("convolution.filter_gradient_planes", "convolution.filter_gradient_nchw"),
    ("convolution.implicit_gemm_tma_planes", "convolution.implicit_gemm_tma_nchw"),
    ("graph.in_parts", "graph.per_node"),
    ("normalization.batch_columns_together", "normalization.batch_nhwc_cooperative"),
    ("normalization.batch_columns", "normalization.batch_nhwc"),
    ("normalization.batch_planes_held", "normalization.batch_nchw_in_registers"),
    ("normalization.batch_planes", "normalization.batch_nchw"),
    ("normalization.lrn_columns", "normalization.lrn_generic"),
    ("reduce_tensor.any", "reduce_tensor.generic"),
)


class Row(NamedTuple):
    """Hold a row, how many times as long the next solver takes, and the microseconds of both."""

    name: str
    factor: float
    us: float
    next_us: float


class Standing(NamedTuple):
    """Hold the rows in which a solver is the fastest, the best first, and how many rows it alone serves.

    tiles: maps each of its tiles to the rows in which that tile is the fastest."""

    won: list[Row]
    alone: int
    tiles: dict[str, int]

    @property
    def earns(self) -> bool:
        return self.alone + sum(row.factor >= ENOUGH for row in self.won) >= ROWS


def kernel_of(solver: str) -> str:
    """Return the name of a solver without its tile."""
    return TILE.sub("", solver)


def served_alone() -> dict[str, int]:
    """Return how many rows each solver alone serves; a convolution has a row for each algorithm."""
    device, found = open_device("emulated"), dict[str, int]()
    for row in rows():
        operations = with_every_algorithm(row.operation) if isinstance(row.operation, Convolution) else (row.operation,)
        for operation in operations:
            kernels = {kernel_of(name) for name in possible_solvers(operation, device)}
            if len(kernels) == 1:
                found[min(kernels)] = found.get(min(kernels), 0) + 1
    return found


def standings(timed: Iterable[Mapping[str, Any]], alone: Mapping[str, int]) -> dict[str, Standing]:
    """Return the standing of each solver without its tiles. timed: has microseconds by solver for each row, in a graph of calls
    (``us``) and, for small rows, in a stream of calls (``stream_us``)."""
    known = solver_names()
    found = {kernel_of(name): Standing([], alone.get(kernel_of(name), 0), {}) for name in known}
    for name in known:
        if kernel_of(name) != name:
            found[kernel_of(name)].tiles[name] = 0
    for row in timed:
        ways = []
        for way in ("us", "stream_us"):
            us = {solver: time for solver, time in row.get(way, {}).items() if solver in known}
            by_kernel: dict[str, float] = {}
            for solver, time in us.items():
                by_kernel[kernel_of(solver)] = min(time, by_kernel.get(kernel_of(solver), time))
            if len(by_kernel) > 1:
                (first, best), (_, second), *_ = sorted(by_kernel.items(), key=lambda pair: pair[1])
                ways.append((first, Row(row["name"], second / best, best, second)))
            if way == "us" and us:
                for kernel in by_kernel:
                    tiles = [solver for solver in us if kernel_of(solver) == kernel]
                    if tiles[0] in found[kernel].tiles:
                        found[kernel].tiles[min(tiles, key=us.__getitem__)] += 1
        for first, one in ways:
            if one is max((other for winner, other in ways if winner == first), key=lambda other: other.factor):
                found[first].won.append(one)
    for standing in found.values():
        standing.won.sort(key=lambda row: -row.factor)
    return found


def exceptions() -> dict[str, str]:
    """Return the solvers that are kept although they are not worth it, with the reasons."""
    table: dict[str, str] = json.loads(EXCEPTIONS.read_text(encoding="utf-8"))
    return table


def timed_rows() -> dict[str, Any]:
    with gzip.open(TIMES, "rt") as file:
        text = file.read()
    for old, new in RENAMED:
        text = text.replace(f'"{old}', f'"{new}')
    table: dict[str, Any] = json.loads(text)
    return table


def table(found: Mapping[str, Standing], excused: Mapping[str, str], device: str, date: str) -> str:
    """Return the page."""
    lines = [
        "# What each solver is worth",
        f"Written by `reports/solver_value.py` from `reports/h200/{TIMES.name}` ({device}, {date}): every row of the benchmark, a convolution by each",
        "algorithm, by each solver that serves it. Rows: in which the solver is the fastest by 1.25 and more; in brackets those that no other",
        "solver serves. The two best rows, with the factor over the next solver and microseconds of both.",
        "",
        "| solver | rows | best | second |",
        "|---|---|---|---|",
    ]
    for solver, standing in sorted(found.items()):
        count = sum(row.factor >= ENOUGH for row in standing.won)
        two = [f"{row.name}: {row.factor:.2f} ({row.us:.1f}, {row.next_us:.1f})" for row in standing.won[:2]] + ["", ""]
        alone = f" ({standing.alone})" if standing.alone else ""
        lines.append(f"| {solver} | {count}{alone} | {two[0]} | {two[1]} |")
    lines += ["", "## Kept though they earn no place by that", "", "| solver | reason |", "|---|---|"]
    lines += [f"| {solver} | {reason} |" for solver, reason in sorted(excused.items())]
    lines += [
        "",
        "## Tiles, and the rows in which each is the fastest of its kernel",
        "",
        "| tile | rows |",
        "|---|---|",
    ]
    for standing in found.values():
        lines += [f"| {tile} | {count} |" for tile, count in standing.tiles.items()]
    return "\n".join(lines) + "\n"


def main() -> None:
    times, excused = timed_rows(), exceptions()
    found = standings(times["rows"], served_alone())
    TABLE.write_text(table(found, excused, times["device"], times["date"]), encoding="utf-8")
    for solver, standing in sorted(found.items()):
        if standing.earns == (solver in excused):
            best = [f"{row.factor:.2f}" for row in standing.won[:2]]
            print(
                solver,
                "earns its place and is excused"
                if standing.earns
                else f"earns no place: {best}, alone {standing.alone}",
            )


if __name__ == "__main__":
    main()
