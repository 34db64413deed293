"""Runs ``dualdnn bench``: measures, prints a table, writes JSON and the report's section."""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dualdnn.accelerated.runtime.device import Device
from dualdnn.api import files
from dualdnn.api.operations.backend import LEVELS, RUN

from ..kernels.build_ahead import build_timed
from ..provenance import commit
from ..report import Report, read_json, write_report
from ..run_pytest import INTERRUPTED, run_pytest
from ..subjects import open_subject
from . import calls, timed
from .drawn import drawn_rows
from .graph_path import open_torch
from .measure import SMALL_ROW_BYTES, Bench
from .networks import network_rows
from .networks import told as networks_told
from .rnn_rows import by_step
from .row import Row
from .rows import rows
from .timed import BenchPlugin

BARS = (0.8, 0.5)  # shares of the best baseline's speed; slower rows count as behind and far behind
NEAR_LAUNCH = 1.2  # launches of an empty kernel; bounds the time of a small row
ENOUGH = 0.75  # share of a copy's speed that large rows should reach
NEAR_BEST = 1.1  # times of the best algorithm; bounds the heuristic's first choice
OF_COPY = 0.7  # share of a copy of the same bytes and strides that a sum should reach


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-k", default="", metavar="TEXT", help="only rows whose name contains this")
    parser.add_argument("--device", choices=["gpu", "emulated"], default="gpu")
    parser.add_argument("--vendor", metavar="SUBJECT", help="the baseline: vendor or library:PATH")
    parser.add_argument(
        "--torch",
        choices=["auto", "yes", "no"],
        default="auto",
        help="time convolutions of PyTorch too, the vendor's autotuned graph path (auto: where it is installed)",
    )
    parser.add_argument(
        "--out",
        metavar="DIR",
        default="benchmark-report",
        help="where benchmarks.json goes; a compliance.json there gets the section",
    )
    parser.add_argument(
        "--calls", action="store_true", help="host time of calls instead, from C and from Python; writes calls.json"
    )
    parser.add_argument(
        "--reproducible", default=RUN, choices=LEVELS, help="our level of reproducibility (docs/reproducibility.md)"
    )
    parser.add_argument("--limit", type=int, default=0, metavar="N", help="only the first N rows")
    parser.add_argument(
        "--networks",
        action="store_true",
        help="the layers of published networks whose name contains TEXT, summed by network",
    )
    parser.add_argument(
        "--drawn", type=int, default=0, metavar="N", help="N layers drawn from the domains of the families"
    )
    parser.add_argument("--seed", type=int, default=None, help="seed of --drawn (default: the time)")
    parser.add_argument(
        "--shard", default="1/1", metavar="I/N", help="every N-th row from the I-th on, for several GPUs"
    )
    parser.add_argument(
        "--from",
        dest="measured",
        nargs="+",
        default=[],
        metavar="FILE",
        help="report these benchmarks.json together, and measure nothing",
    )


def run(chosen: argparse.Namespace) -> int:
    """Measure and report. The exit status is 1 when a row could not be measured. An interrupted run keeps the rows
    that it measured."""
    if chosen.measured:
        return report_together(chosen)
    if chosen.calls:
        return calls.run(chosen.device, chosen.vendor, chosen.k, Path(chosen.out))
    wanted = wanted_rows(chosen)
    if not wanted:
        raise ValueError(f"no row's name contains {chosen.k!r}")
    vendor = open_subject(chosen.vendor) if chosen.vendor else None
    torch = open_torch() if chosen.device == "gpu" and chosen.torch != "no" else None
    if chosen.torch == "yes" and torch is None:
        raise ValueError("--torch yes: PyTorch is not installed, or has no GPU to use")
    Device.measures_anew = True  # The algorithms are compared by their times in this run.
    bench = Bench(chosen.device, vendor, torch, chosen.reproducible)
    if not chosen.limit:
        build_timed(wanted, bench.device)
    facts: dict[str, Any] = {
        "device": bench.device.name,
        "reproducible": chosen.reproducible,
        "vendor": vendor.description if vendor else None,
        "graph": bench.graph_path.description if bench.graph_path else None,
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "commit": commit(),
        "rows_of": "networks"
        if chosen.networks
        else f"{chosen.drawn} drawn, seed {chosen.seed}"
        if chosen.drawn
        else "the list",
    }
    plugin = BenchPlugin(bench, wanted, lambda results: write(Path(chosen.out), facts, results))
    facts |= plugin.ceilings.facts()
    options = ["-p", "no:cacheprovider", "-p", "no:terminal", "--benchmark-disable-gc", "--benchmark-quiet"]
    status = run_pytest([*options, "-c", os.devnull, str(Path(timed.__file__))], [plugin])
    print(table(plugin.results))
    print(f"{facts['device']}, vendor {facts['vendor']}, graph path {facts['graph']}")
    print(f"{ceilings_text(facts)}\n{told(facts, plugin.results)}")
    write(Path(chosen.out), facts, plugin.results)
    if status != INTERRUPTED:
        include(Path(chosen.out), plugin.results)
    return status


def wanted_rows(chosen: argparse.Namespace) -> list[Row]:
    """Return the rows that the options name, in the order of timing; without a seed, choose one and keep it."""
    if chosen.networks and chosen.drawn:
        raise ValueError("--networks and --drawn are two lists of rows: give one of them")
    if chosen.seed is None:
        chosen.seed = int(time.time())
    if chosen.networks:
        found = network_rows(chosen.k)
    elif chosen.drawn:
        found = [row for row in drawn_rows(chosen.drawn, chosen.seed) if chosen.k in row.name]
    else:
        found = list(rows(chosen.k))
    index, _, count = chosen.shard.partition("/")
    if not (index.isdigit() and count.isdigit() and 1 <= int(index) <= int(count)):
        raise ValueError(f"--shard is {chosen.shard!r}, not I/N with 1 <= I <= N")
    found = small_rows_first(found)[int(index) - 1 :: int(count)]
    return found[: chosen.limit] if chosen.limit else found


def report_together(chosen: argparse.Namespace) -> int:
    """Report the rows of several files as one run; all must be of one device, list and commit."""
    parts = [json.loads(Path(path).read_text(encoding="utf-8")) for path in chosen.measured]
    for fact in ("device", "vendor", "graph", "rows_of", "commit"):
        if len(found := {str(part.get(fact)) for part in parts}) > 1:
            raise ValueError(f"--from: the files differ in {fact}: {', '.join(sorted(found))}")
    results = [row for part in parts for row in part.pop("rows")]
    facts = parts[0]
    print(f"{table(results)}\n{ceilings_text(facts)}\n{told(facts, results)}")
    write(Path(chosen.out), facts, results)
    include(Path(chosen.out), results)
    return 0


def told(facts: dict[str, Any], results: list[dict[str, Any]]) -> str:
    """Return the summary of a list of rows: a line for each network, then the figures of each family and of all
    rows."""
    of_list = facts["rows_of"]
    lines = [networks_told(results)] if of_list == "networks" else []
    return "\n".join([*lines, *(family_lines(results) if of_list != "the list" else []), summary(results)])


def family_lines(results: list[dict[str, Any]]) -> list[str]:
    """Return the geometric mean over the best baseline, the shares below BARS and the least, by family and for all."""
    families = {
        family: [r for r in results if r["family"] == family] for family in dict.fromkeys(r["family"] for r in results)
    }
    lines = []
    for family, rows_of_family in {**families, "all families": results}.items():
        ratios = [r["speedup"] for r in rows_of_family if r["speedup"]]
        if ratios:
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            below = [sum(ratio < bar for ratio in ratios) / len(ratios) for bar in BARS]
            shares = ", ".join(f"{share:.1%} below {bar}" for share, bar in zip(below, BARS, strict=True))
            lines.append(
                f"{family:32} {len(ratios):5} rows: geometric mean {mean:.2f}, {shares}, least {min(ratios):.3f}"
            )
    return lines


def small_rows_first(wanted: Iterable[Row]) -> list[Row]:
    """Put small rows first. After large rows, each small call took 0.16 us longer, ours and the vendor's, because of
    the state of the device's memory."""
    return sorted(wanted, key=lambda row: row.nbytes >= SMALL_ROW_BYTES or row.flops > 0)


def table(results: Iterable[dict[str, Any]]) -> str:
    """Return one line per row."""
    lines = [
        f"{'row':72} {'ours us':>9} {'vendor':>9} {'graph':>9} {'x':>6} {'floor':>8} {'%':>4} {'host':>5}  solver, algorithms, messages"
    ]
    for r in results:
        times = f"{shown(r['ours_us'], 9, 1)} {shown(r['vendor_us'], 9, 1)} {shown(r['graph_us'], 9, 1)}"
        reached = None if r["fraction"] is None else 100 * r["fraction"]
        ratios = f"{shown(r['speedup'], 6, 2)} {shown(r['floor_us'], 8, 1)} {shown(reached, 4, 0)}"
        lines.append(f"{r['name']:72} {times} {ratios} {shown(r['host_us'], 5, 1)}  {remarks(r)}".rstrip())
    return "\n".join(lines)


def shown(value: float | None, width: int, decimals: int) -> str:
    return f"{'-':>{width}}" if value is None else f"{value:{width}.{decimals}f}"


def remarks(result: dict[str, Any]) -> str:
    """Return the solver, the algorithm, the heuristic's first choice where it differs, the vendor's algorithm, and
    errors."""
    parts = [str(result.get("solver") or ""), str(result.get("algorithm") or "")]
    if result.get("v7_us") is not None:
        parts.append(f"v7 {result['v7_algorithm']} {result['v7_us']:.1f}")
    if result.get("over_separate"):
        parts.append(f"separate calls {result['separate_us']:.1f}, {result['over_separate']:.2f}x")
    if result.get("of_copy"):
        parts.append(f"a copy of these bytes {result['copy_us']:.1f}, {100 * result['of_copy']:.0f} %")
    if result.get("vendor_algorithm"):
        parts.append(f"vendor {result['vendor_algorithm']}")
    if result.get("of_design") and result["design_bytes"] > result["bytes"]:
        parts.append(f"{result['of_design']:.0%} of a copy of {result['design_bytes'] / 1e6:.0f} MB")
    return "; ".join(part for part in [*parts, result["message"]] if part)


def ceilings_text(facts: dict[str, Any]) -> str:
    """Return the ceilings in a line."""
    paces = ", ".join(f"{name} {pace:.0f}" for name, pace in facts["ceilings_TFLOPS"].items())
    arithmetic = f", TFLOP/s {paces} ({facts['ceilings_source']})" if paces else ""
    ways = f"(in a stream {facts['launch_stream_us']:.2f}, alone {facts['launch_alone_us']:.2f})"
    launches = f"empty launch {facts['launch_us']:.2f} us {ways}, copy of 0.4 MB {facts['small_copy_us']:.2f} us"
    return f"copy {facts['copy_GBps']:.0f} GB/s, {launches}{arithmetic}"


def summary(results: list[dict[str, Any]]) -> str:
    """Return geometric means against the vendor, shares of the copy for large rows, and how often the heuristic is
    right."""
    lines = [against_vendor(results)]
    large = [r for r in results if r["bytes"] >= 64e6 and not r["flops"] and "gaps" not in r["name"]]
    if large:
        reached = sum((r["fraction"] or 0) >= 0.85 for r in large)
        lines.append(f"{reached} of {len(large)} large packed rows reach 85 % of the copy bandwidth")
        designed = [r for r in large if r.get("of_design")]
        reaching = [
            sum(share >= ENOUGH for share in shares) for shares in zip(*map(shares_of_copy, designed), strict=True)
        ]
        if reaching:
            lines.append(
                f"{reaching[0]} of {len(designed)} large packed rows reach {ENOUGH:.0%} of a copy of the bytes that the design moves, "
                f"{reaching[1]} of one of the least bytes"
            )
    small = [r for r in results if r["bytes"] < SMALL_ROW_BYTES and not r["flops"] and r["ours_us"]]
    if small:
        times = [r["ours_us"] for r in small]
        packed = [r["launches"] for r in small if r.get("launches") and "gaps" not in r["name"]]
        near = {way: sum(launches[way] <= NEAR_LAUNCH for launches in packed) for way in packed[0]} if packed else {}
        counts = ", ".join(f"{count} of {len(packed)} {way}" for way, count in near.items())
        lines.append(
            f"{len(small)} small rows: {statistics.median(times):.2f} us in the median, {min(times):.2f} the least; "
            f"within {NEAR_LAUNCH} of an empty launch, packed: {counts or '-'}"
        )
    if steps := by_step(results):
        ratios = [theirs / ours for ours, theirs in steps]
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        lines.append(
            f"recurrent networks of the grid, inference and training steps: geometric mean against the vendor {mean:.2f} "
            f"over {len(ratios)}, the least {min(ratios):.2f}"
        )
    families = dict.fromkeys(r["family"] for r in results if r["flops"])
    lines += [f"{name}: {against_vendor([r for r in results if r['family'] == name])}" for name in families]
    if fused := [r["over_separate"] for r in results if r.get("over_separate")]:
        mean = math.exp(sum(map(math.log, fused)) / len(fused))
        lines.append(
            f"against our separate calls: geometric mean {mean:.2f} over {len(fused)} rows, the least {min(fused):.2f}"
        )
    if copied := [r["of_copy"] for r in results if r.get("of_copy")]:
        near = sum(reached >= OF_COPY for reached in copied)
        lines.append(
            f"{near} of {len(copied)} sums reach {100 * OF_COPY:.0f} % of a copy of their bytes and strides, the least "
            f"{100 * min(copied):.0f} %"
        )
    if ranked := [r for r in results if r["family"] == "convolution" and r.get("v7_ratio")]:
        near = sum(r["v7_ratio"] <= NEAR_BEST for r in ranked)
        lines.append(f"GetAlgorithm_v7 is within 10 % of Find's best on {near} of {len(ranked)} convolutions")
    failed = sum(r["ours_us"] is None for r in results)
    return "\n".join([*lines, f"{failed} rows without a time, {sum(r['wall_s'] for r in results):.0f} s"])


def shares_of_copy(result: dict[str, Any]) -> tuple[float, float]:
    """Return two shares of a copy's speed: for the bytes that the row's design moves, and for the least bytes at the
    same throughput."""
    return result["of_design"], result["of_design"] * result["bytes"] / result["design_bytes"]


def against_vendor(results: list[dict[str, Any]]) -> str:
    """Return the geometric mean of the speedups."""
    ratios = [r["speedup"] for r in results if r["speedup"]]
    if not ratios:
        return "no baseline was timed"
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    behind = sum(ratio < 1 for ratio in ratios)
    return f"geometric mean against the vendor {mean:.2f} over {len(ratios)} rows, {behind} rows behind it"


def write(directory: Path, facts: dict[str, Any], results: list[dict[str, Any]]) -> None:
    """Write benchmarks.json: the ceilings and the rows."""
    files.write(directory / "benchmarks.json", (json.dumps({**facts, "rows": results}, indent=1) + "\n").encode())


def include(directory: Path, results: list[dict[str, Any]]) -> None:
    """Add the section of the bench to the compliance report in the directory."""
    compliance = directory / "compliance.json"
    if not compliance.exists():
        return
    report = read_json(compliance)
    parts = (report.cases, report.subjects, report.functions, report.clauses, report.environment, report.differences)
    cells = [{name: cell(value) for name, value in result.items()} for result in results]
    new = Report.build(*parts, benchmarks=cells, skips=report.skips, specification=report.specification)
    write_report(new, directory)


def cell(value: Any) -> Any:
    """Return a value as the report's table takes it: times by name as text."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {number:.1f}" for name, number in value.items())
    return value
