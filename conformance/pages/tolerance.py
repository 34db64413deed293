"""Tell how the results of a function are judged, from the reference's results for samples of its operation."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from typing import Any

import numpy as np
from dualdnn.api.operations import Operation, parse
from dualdnn.reference.engine import Exact, magnitude_of, results_of, roundings_of, spread_of
from dualdnn.reference.spread import Relative, Spread, Steps
from dualdnn.reference.view import wide_type

from ..calls.caller import function_of
from ..trial import prepare

SHARPER = {Spread: "sums", Steps: "results of several steps", Relative: "functions"}  # sections of docs/tolerance.md


@cache
def _samples() -> Mapping[str, Operation]:
    """Return the operations of every_operation.toml by name; a name ends with what distinguishes the sample."""
    table = resources.files("dualdnn.conformance.cases").joinpath("every_operation.toml").read_text("utf-8")
    return {name: parse(text) for name, text in tomllib.loads(table)["samples"].items()}


def samples_of(function: str) -> dict[str, Operation]:
    """Return the samples of a function's operations, by name."""
    return {name: operation for name, operation in _samples().items() if function_of(type(operation)) == function}


def tolerances(function: str) -> Iterator[tuple[str, ...]]:
    """Yield (sample, output, its type, arithmetic, allowed error, sharper rule) for the outputs of a function.

    The allowed error is the largest bound over the largest result, in roundoffs of the arithmetic. Outputs that read the
    reserve space of an earlier call are left out: in a sample it holds noise.
    """
    for name, operation in samples_of(function).items():
        for output, (bound, largest), rule in _judged(operation):
            kind = "" if output in operation.raw else _name(operation.tensor(output).data_type)
            error = f"{bound / largest:.3g}" if bound else "0"
            yield name, f"`{output}`", kind, _name(operation.compute_type), error, rule


def _judged(operation: Operation) -> Iterator[tuple[str, tuple[float, float], str]]:
    """Yield (output, (largest bound, largest result), rule) for each output that one of two kinds of inputs determines."""
    continues = any(name in operation.raw and name not in operation.public for name in operation.inputs)
    judged = set[str]()
    for kind in ("normal", "positive"):  # Variances must be positive; other sums are usual with both signs.
        found: dict[str, tuple[list[float], list[float], str]] = {}
        with np.errstate(all="ignore"):
            memory = prepare(operation, kind, 0)
            for output, _, exact in results_of(operation, wide_type(operation.compute_type))(memory):
                bound, value = np.broadcast_arrays(magnitude_of(exact) * roundings_of(exact), np.abs(exact.value))
                known = np.isfinite(bound + value)
                if not continues or np.all(known):
                    bounds, results, _ = found.setdefault(output, ([0.0], [0.0], _rule(exact, bound[known])))
                    bounds.append(float(np.max(bound[known], initial=0)))
                    results.append(float(np.max(value[known], initial=0)))
        for output, (bounds, results, rule) in found.items():
            if output not in judged and (max(results) or output in operation.raw):
                judged.add(output)
                yield output, (max(bounds), max(results)), rule


def _rule(exact: Exact, bounds: Any) -> str:
    if exact.raw:
        return "judged through a later call" if exact.opaque else "equal"
    if not np.any(bounds):
        return "rounded once"
    spread = spread_of(exact)
    return next((text for kind, text in SHARPER.items() if isinstance(spread, kind)), "none, the worst case alone")


def _name(data_type: object) -> str:
    return getattr(data_type, "name", str(data_type)).removeprefix("CUDNN_DATA_")
