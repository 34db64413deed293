"""``dualdnn bench``: measure, print a table, write JSON and the report's section."""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from ..report import Report, read_json, write_report
from ..subjects import open_subject
from . import timed
from .measure import Bench
from .rows import rows
from .timed import BenchPlugin


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-k", default="", metavar="TEXT", help="only rows whose name contains this")
    parser.add_argument("--device", choices=["gpu", "emulated"], default="gpu")
    parser.add_argument("--vendor", metavar="SUBJECT", help="the rival: vendor or library:PATH")
    parser.add_argument(
        "--out",
        metavar="DIR",
        default="benchmark-report",
        help="where benchmarks.json goes; a compliance.json there gets the section",
    )
    parser.add_argument("--limit", type=int, default=0, metavar="N", help="only the first N rows")


def run(chosen: argparse.Namespace) -> int:
    """Measure and report; the exit status is 1 when a row could not be measured."""
    wanted = list(rows(chosen.k))
    wanted = wanted[: chosen.limit] if chosen.limit else wanted
    if not wanted:
        raise ValueError(f"no row's name contains {chosen.k!r}")
    vendor = open_subject(chosen.vendor) if chosen.vendor else None
    bench = Bench(chosen.device, vendor)
    facts: dict[str, Any] = {
        "device": bench.device.name,
        "vendor": vendor.description if vendor else None,
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
    }
    plugin = BenchPlugin(bench, wanted, lambda results: write(Path(chosen.out), facts, results))
    facts |= {"copy_GBps": plugin.bandwidth / 1e9, "launch_us": plugin.launch * 1e6}
    options = ["-p", "no:cacheprovider", "-p", "no:terminal", "--benchmark-disable-gc", "--benchmark-quiet"]
    status = pytest.main([*options, "-c", os.devnull, str(Path(timed.__file__))], plugins=[plugin])
    print(table(plugin.results))
    ceilings = f"copy {facts['copy_GBps']:.0f} GB/s, empty launch {facts['launch_us']:.2f} us"
    print(f"{ceilings}, {facts['device']}, vendor {facts['vendor']}\n{summary(plugin.results)}")
    write(Path(chosen.out), facts, plugin.results)
    include(Path(chosen.out), plugin.results)
    return 0 if status == pytest.ExitCode.OK else 1


def table(results: Iterable[dict[str, Any]]) -> str:
    """One line per row."""
    lines = [f"{'row':72} {'ours us':>9} {'vendor':>9} {'x':>6} {'floor':>8} {'%':>4} {'host':>5}"]
    for r in results:
        vendor = "-" if r["vendor_us"] is None else f"{r['vendor_us']:.1f}"
        speedup = "-" if r["speedup"] is None else f"{r['speedup']:.2f}"
        lines.append(
            f"{r['name']:72} {r['ours_us']:9.1f} {vendor:>9} {speedup:>6} {r['floor_us']:8.1f} {100 * r['fraction']:4.0f} {r['host_us']:5.1f}"
        )
    return "\n".join(lines)


def summary(results: list[dict[str, Any]]) -> str:
    """Geometric mean against the vendor, and how the large rows do against the floor."""
    ratios = [r["speedup"] for r in results if r["speedup"]]
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else float("nan")
    large = [r for r in results if r["bytes"] >= 64e6 and "gaps" not in r["name"]]
    reached = sum(r["fraction"] >= 0.85 for r in large)
    behind = sum(ratio < 1 for ratio in ratios)
    return (
        f"geometric mean against the vendor {mean:.2f} over {len(ratios)} rows, {behind} rows behind it; "
        f"{reached} of {len(large)} large packed rows reach 85 % of the copy bandwidth"
    )


def write(directory: Path, facts: dict[str, Any], results: list[dict[str, Any]]) -> None:
    """benchmarks.json: the ceilings and the rows."""
    directory.mkdir(parents=True, exist_ok=True)
    text = json.dumps({**facts, "rows": results}, indent=1) + "\n"
    (directory / "benchmarks.json").write_text(text, encoding="utf-8")


def include(directory: Path, results: list[dict[str, Any]]) -> None:
    """Give the compliance report that lies in the directory its section."""
    compliance = directory / "compliance.json"
    if not compliance.exists():
        return
    report = read_json(compliance)
    parts = (report.cases, report.subjects, report.functions, report.clauses, report.environment, report.differences)
    write_report(Report.build(*parts, benchmarks=results, specification=report.specification), directory)
