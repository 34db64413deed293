"""Describes layers of published networks as data, and sums the times of training steps, ours and the best baseline's."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from .layers import Layer, rows_of
from .row import Row

WORST = 3  # layers that a network's line names
BASELINES = ("vendor_us", "graph_us")


@dataclass(frozen=True)
class Network:
    """Describes a published network: the layers of one training step, each with how often it occurs.

    kind, layout: as in usual training: "half NHWC" for mixed precision, "TF32 NCHW" for float.
    """

    name: str
    task: str
    kind: str
    layout: str
    layers: tuple[tuple[int, Layer], ...]

    def rows(self) -> Iterator[tuple[int, Row]]:
        """Yield how often each timed row occurs in a step."""
        for count, layer in self.layers:
            for row in rows_of(layer, self.kind, self.layout):
                yield count, row


@cache
def networks() -> tuple[Network, ...]:
    """Read the networks of networks.jsonl, one a line."""
    text = resources.files(__package__).joinpath("networks.jsonl").read_text(encoding="utf-8")
    return tuple(
        Network(e["name"], e["task"], e["kind"], e["layout"], tuple((n, Layer.of(one)) for n, one in e["layers"]))
        for e in map(json.loads, text.splitlines())
    )


def network_rows(match: str = "") -> list[Row]:
    """Return the distinct rows of the networks whose name contains ``match``."""
    found = {row.name: row for network in networks() if match in network.name for _, row in network.rows()}
    return list(found.values())


def best_baseline(result: Mapping[str, Any]) -> float | None:
    """Return the time of the fastest baseline of a row in microseconds."""
    return min((result[name] for name in BASELINES if result.get(name)), default=None)


@dataclass(frozen=True)
class Step:
    """Holds the sums over a network's step, in microseconds, of the rows that both sides could compute; missing:
    rows that were not timed."""

    network: Network
    ours: float
    baseline: float
    missing: int
    worst: tuple[tuple[float, str], ...]  # microseconds lost to the baseline, and the row

    @property
    def speedup(self) -> float:
        return self.baseline / self.ours

    def __str__(self) -> str:
        lost = "; ".join(f"{name} (+{us:.0f} us)" for us, name in self.worst)
        missing = f", {self.missing} calls without both times" if self.missing else ""
        return (
            f"{self.network.name:28} {self.network.kind} {self.network.layout}: {self.ours / 1e3:8.2f} ms, baseline {self.baseline / 1e3:8.2f} ms, "
            f"{self.speedup:.2f}x{missing}; most lost: {lost or 'nothing'}"
        )


def steps(results: Iterable[Mapping[str, Any]]) -> list[Step]:
    """Return the step of each network with timed rows."""
    timed = {result["name"]: result for result in results}
    found = []
    for network in networks():
        ours, baseline, missing = 0.0, 0.0, 0
        lost: Counter[str] = Counter()
        for count, row in network.rows():
            result = timed.get(row.name)
            theirs = best_baseline(result) if result else None
            if result is None or not result["ours_us"] or theirs is None:
                missing += count
                continue
            ours += count * result["ours_us"]
            baseline += count * theirs
            lost[row.name] += count * (result["ours_us"] - theirs)
        if ours:
            worst = tuple((us, name) for name, us in lost.most_common(WORST) if us > 0)
            found.append(Step(network, ours, baseline, missing, worst))
    return found


def told(results: Iterable[Mapping[str, Any]]) -> str:
    """Return a line for each network, and one on all of them."""
    found = steps(results)
    if not found:
        return "no network was timed with a baseline"
    mean = math.exp(sum(math.log(step.speedup) for step in found) / len(found))
    behind = [step.network.name for step in found if step.speedup < 0.9]
    end = f"{len(found)} networks: geometric mean {mean:.2f}, below 0.9: {', '.join(behind) or 'none'}"
    return "\n".join([*map(str, sorted(found, key=lambda step: step.speedup)), end])
