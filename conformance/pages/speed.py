"""Read what benchmarks measured for each operation from the published reports."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from math import exp, log
from pathlib import Path
from typing import Any

REPORT = Path(__file__).resolve().parents[2] / "reports/h200/drawn.json.gz"
BASELINES = ("vendor_us", "graph_us", "torch_us")


@cache
def speeds() -> Mapping[str, Mapping[str, Any]]:
    """Return for each operation the solvers that served it.

    Each has its number of rows, and the geometric mean of the best baseline's time over ours.
    """
    if not REPORT.exists():
        return {}
    report = json.loads(gzip.decompress(REPORT.read_bytes()))
    ratios: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in report["rows"]:
        baselines = [row[name] for name in BASELINES if row.get(name)]
        if baselines and row.get("ours_us"):
            ratios[row["operation"].partition("(")[0]][row["solver"]].append(log(min(baselines) / row["ours_us"]))
    source = f"{report['device']}, drawn layers, {report['date']}"
    return {
        operation: {
            "source": source,
            "solvers": {s: (len(v), exp(sum(v) / len(v))) for s, v in sorted(found.items(), key=lambda e: -len(e[1]))},
        }
        for operation, found in ratios.items()
    }
