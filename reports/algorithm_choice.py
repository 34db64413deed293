"""Compare the choices of cudnnGetConvolution*Algorithm_v7 with what FindEx measures, for the convolutions of ``dualdnn bench``.

    python reports/algorithm_choice.py --out algorithm_choice.json [-k TEXT] [--build] [--seconds N] [--slowest N]

--build compiles the kernels of all algorithms and measures nothing. --seconds: no row begins later. --slowest: algorithms
whose estimate is more than N times the least one are not measured.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from dualdnn.accelerated.plans import AlignedPlan, estimated_seconds, plan
from dualdnn.accelerated.runtime.devices import open_device
from dualdnn.api import cudnn
from dualdnn.api.cudnn.convolution.algorithms import DATA_SEARCH, FILTER_SEARCH, SEARCH
from dualdnn.api.enumerations import cudnnStatus_t
from dualdnn.api.operations import ConvolutionBackwardData, ConvolutionBackwardFilter, ConvolutionForward
from dualdnn.api.operations.specs import TensorSpec
from dualdnn.api.status import NOT_SUPPORTED, CudnnError
from dualdnn.api.support.convolution import Problem
from dualdnn.conformance.bench.convolution_rows import convolution_rows
from dualdnn.conformance.bench.row import Row
from dualdnn.conformance.inputs import values
from dualdnn.conformance.kernels.build_ahead import Listing
from dualdnn.conformance.kernels.build_ahead import build as build_modules

SEARCHES = {
    ConvolutionForward: (SEARCH, ("x", "w", "y")),
    ConvolutionBackwardData: (DATA_SEARCH, ("dx", "w", "dy")),
    ConvolutionBackwardFilter: (FILTER_SEARCH, ("x", "dw", "dy")),
}
NEAR = 1.1  # largest time of the first choice in units of the best
MAX_WORKSPACE = 8 << 30
BLOCK = 1 << 20  # random elements, which repeat


def problem_of(operation: Any) -> tuple[Any, Problem]:
    """Return the search of an operation's direction, and its problem."""
    search, names = SEARCHES[type(operation)]
    x, w, y = (getattr(operation, name) for name in names)
    return search, Problem(operation.convolution, x, w, y)


def candidates(operation: Any) -> Iterator[Any]:
    """Return the operation by every algorithm that accepts it, with each math type."""
    search, problem = problem_of(operation)
    for candidate in search.candidates(problem):
        try:
            search.check_support(problem, candidate.algo)
        except CudnnError:
            continue
        yield candidate


def name_of(result: Any) -> str:
    """Return the name of an algorithm and its math type."""
    math = result.mathType.name.removeprefix("CUDNN_").removesuffix("_MATH")
    return f"{result.algo.name.rpartition('ALGO_')[2]} {math}"


def build(chosen: list[Row]) -> None:
    """Compile the kernels that the algorithms of all rows launch."""
    device = open_device("gpu")
    listing = Listing(device)
    for row in chosen:
        for candidate in candidates(row.operation):
            made = plan(candidate, listing)
            if isinstance(made, AlignedPlan):
                made.fallback()
    build_modules(list(listing.modules), device)


def filled(handle: Any, device: Any, spec: TensorSpec) -> Any:
    """Return device memory with random values of a tensor's type."""
    nbytes, kind = spec.nbytes, spec.scalar_type
    buffer = handle.allocate(nbytes)
    block = values(TensorSpec.packed(kind, (1, 1, BLOCK)), "normal", np.random.default_rng(1)).tobytes()
    for at in range(0, nbytes, len(block)):
        device.upload(buffer.address + at, block[: min(len(block), nbytes - at)])
    return buffer


def without(search: Any, slow: set[Any]) -> Any:
    """Return the search without some algorithms."""

    def check(problem: Problem, algorithm: Any) -> None:
        if algorithm in slow:
            raise CudnnError(NOT_SUPPORTED, "", "not to be measured")
        search.check_support(problem, algorithm)

    return replace(search, check_support=check)


def measured(handle: Any, device: Any, operation: Any, slowest: float) -> dict[str, Any]:
    """Return the milliseconds that FindEx measures, the estimates, and the first choice of Get_v7."""
    search, problem = problem_of(operation)
    memory = {name: filled(handle, device, operation.tensor(name)) for name in (*operation.inputs, *operation.outputs)}
    try:
        found = list(candidates(operation))
        seconds = [estimated_seconds(candidate, device) for candidate in found]
        slow = {o.algo for o, s in zip(found, seconds, strict=True) if s > slowest * min(seconds)}
        needed = [handle.backend.workspace_bytes(candidate) for candidate in found if candidate.algo not in slow]
        room = max((size for size in needed if size <= MAX_WORKSPACE), default=0)
        if room:
            memory["workSpace"] = handle.allocate(room)
        clauses = dict.fromkeys(("memory", "output", "workSpace"), "")
        quick = without(search, slow)
        results = quick.measured_on(handle, problem, search.most, {"workSpace": None, **memory}, room, clauses)
        first = search.ranked(handle, problem, 1).perfResults[0]
        times = {name_of(r): r.time for r in results.perfResults if r.status == cudnnStatus_t.CUDNN_STATUS_SUCCESS}
        names = {name_of(search._result(o, 0, 0.0)): 1e3 * s for o, s in zip(found, seconds, strict=True)}
        best = min(times, key=lambda name: times[name])
        chosen = name_of(first)
        ratio = times[chosen] / times[best] if chosen in times else None
        return {"chosen": chosen, "best": best, "ratio": ratio, "measured_ms": times, "estimated_ms": names}
    finally:
        device.synchronize()
        for buffer in memory.values():
            buffer.free()


def line(row: dict[str, Any]) -> str:
    """Return a row of the table."""
    times, estimates = row["measured_ms"], row["estimated_ms"]
    every = ", ".join(
        f"{name} {times[name]:.3f} ({estimates.get(name, 0):.3f})" for name in sorted(times, key=times.get)
    )
    return f"{row['ratio'] or 0:5.2f} {row['name']}: {row['chosen']}; {every}"


def main() -> None:
    """Measure all rows, print them and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-k", default="", help="only rows whose name contains this")
    parser.add_argument("--out", default="algorithm_choice.json")
    parser.add_argument("--build", action="store_true")
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--slowest", type=float, default=math.inf)
    parser.add_argument("--heaviest", action="store_true", help="run the rows with the most operations first")
    given = parser.parse_args()
    chosen = [row for row in convolution_rows() if type(row.operation) in SEARCHES and given.k in row.name]
    chosen.sort(key=lambda row: row.flops, reverse=given.heaviest)
    if given.build:
        return build(chosen)
    handle = cudnn.cudnnCreate(backend="accelerated", device="gpu")
    device, rows, begun = handle.backend.device, [], time.perf_counter()
    for row in chosen:
        if time.perf_counter() - begun > given.seconds:
            print(f"{len(rows)} of {len(chosen)} rows in the time")
            break
        try:
            rows.append(
                {"name": row.name, "family": row.family, **measured(handle, device, row.operation, given.slowest)}
            )
            print(line(rows[-1]), flush=True)
        except Exception as error:
            print(f"{row.name}: {type(error).__name__}: {error}", flush=True)
        Path(given.out).write_text(json.dumps({"device": device.name, "rows": rows}, indent=1) + "\n", encoding="utf-8")
    for family in dict.fromkeys(row["family"] for row in rows):
        ratios = [row["ratio"] for row in rows if row["family"] == family]
        print(
            f"{family}: within 10 % of Find's best on {sum(r is not None and r <= NEAR for r in ratios)} of {len(ratios)} rows"
        )


if __name__ == "__main__":
    main()
