"""List the solvers of a function, with what benchmarks measured for them in the published reports."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from math import exp, log
from pathlib import Path

from dualdnn.accelerated.solver import possible_solvers
from dualdnn.api.operations.records import RECORDS

from ..calls.caller import function_of
from ..kernels.kernel_wheel import TARGETS
from .tolerance import samples_of

REPORT = Path(__file__).resolve().parents[2] / "reports/h200/drawn.json.gz"
BASELINES = ("vendor_us", "graph_us", "torch_us")


def solvers_of(function: str) -> tuple[str, dict[str, tuple[int, float] | None]]:
    """Return the source of the times, and solver -> number of rows and geometric mean of the ratios.

    Measured solvers come first. Others, which serve a sample of the function's operations on an H100, have None.
    """
    source, measured = speeds().get(function, ("", {}))
    found: dict[str, tuple[int, float] | None] = {**measured}
    for operation in samples_of(function).values():
        for name in possible_solvers(operation, TARGETS["sm_90a"][1][0]):
            found.setdefault(name, None)
    return source, found


@cache
def speeds() -> Mapping[str, tuple[str, Mapping[str, tuple[int, float]]]]:
    """Return for each function the source of its times and the solvers that served its operations.

    Each has its number of rows, and the geometric mean of the best baseline's time over ours.
    """
    if not REPORT.exists():
        return {}
    report = json.loads(gzip.decompress(REPORT.read_bytes()))
    ratios: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in report["rows"]:
        baselines = [row[name] for name in BASELINES if row.get(name)]
        if baselines and row.get("ours_us"):
            function = function_of(RECORDS[row["operation"].partition("(")[0]])
            ratios[function][row["solver"]].append(log(min(baselines) / row["ours_us"]))
    source = f"{report['device']}, drawn layers, {report['date']}"
    return {
        function: (
            source,
            {s: (len(v), exp(sum(v) / len(v))) for s, v in sorted(found.items(), key=lambda e: -len(e[1]))},
        )
        for function, found in ratios.items()
    }
