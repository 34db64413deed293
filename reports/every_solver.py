"""Time the benchmark's rows on a GPU by each solver that can serve them; solver_value.py reads the times.

python reports/every_solver.py [-k TEXT ...] [--without TEXT ...] [--seconds N] --out every_solver.json.gz
python reports/every_solver.py [-k TEXT ...] --compile      # their kernels alone, in parallel
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dualdnn.accelerated.graph.division import Documented, parts
from dualdnn.accelerated.graph.problem import GraphProblem
from dualdnn.accelerated.plans import AlignedPlan, Plan, plan
from dualdnn.accelerated.runtime.devices import open_device
from dualdnn.accelerated.solver import forcing, plan_by, possible_solvers
from dualdnn.api import cudnn
from dualdnn.api.operations import Operation, OperationGraph
from dualdnn.conformance.bench import measure
from dualdnn.conformance.bench.convolution_search import algorithm_name
from dualdnn.conformance.bench.measure import SMALL_ROW_BYTES, Bench, with_room, workspace_of
from dualdnn.conformance.bench.row import Attention, Convolution, Row
from dualdnn.conformance.bench.rows import rows
from dualdnn.conformance.kernels.build_ahead import Listing, build, of_few_steps, with_every_algorithm, with_workspace

ROUNDS = 5
SLOW_SECONDS = 0.02  # seconds beyond which one call alone is timed


@dataclass(frozen=True)
class Address:
    address: int


def solvers_of(operation: Operation, device: Any) -> tuple[str, ...]:
    """Return the solvers that can serve an operation; for a graph in parts, those of its documented operations."""
    if not isinstance(operation, OperationGraph) or operation.single is not None:
        return possible_solvers(operation, device)
    documented = [part.operation for part in parts(GraphProblem(operation, device)) if isinstance(part, Documented)]
    return tuple(dict.fromkeys(name for one in documented for name in possible_solvers(one, device)))


def plan_with(operation: Operation, device: Any, solver: str) -> Plan:
    """Return the plan of one solver, which is already forced."""
    return plan(operation, device) if isinstance(operation, OperationGraph) else plan_by(operation, device, solver)


def wanted(chosen: argparse.Namespace, device: Any) -> Iterator[tuple[Row, dict[str, Operation]]]:
    """Return rows and operations by name that several solvers can serve; a convolution has a row for each algorithm."""
    for row in rows():
        if any(text in row.name for text in chosen.k) and not any(text in row.name for text in chosen.without):
            operations: dict[str, Any] = {row.name: row.operation}
            if isinstance(row.operation, Convolution):
                by = with_every_algorithm(row.operation)
                operations = {f"{row.name} by {algorithm_name(one.algo)}": one for one in by}
            several = {name: one for name, one in operations.items() if len(solvers_of(one, device)) > 1}
            if several:
                yield row, several


def with_its_workspace(operation: Any, device: Any) -> Any:
    return operation if isinstance(operation, Attention) else with_workspace(operation, device)


def compile_kernels(chosen: argparse.Namespace) -> None:
    device = open_device(chosen.device)
    listing = Listing(device)
    for _, operations in wanted(chosen, device):
        for operation in operations.values():
            for solver in solvers_of(operation, device):
                with contextlib.suppress(Exception), forcing(solver):
                    sized = with_its_workspace(of_few_steps(operation, device), device)
                    made = plan_with(sized, listing, solver)
                    if isinstance(made, AlignedPlan):
                        made.fallback()
    print(len(listing.modules), "modules")
    if device.kind == "gpu":
        build(list(listing.modules), device)


@contextlib.contextmanager
def works(bench: Bench, operation: Operation, memory: dict[str, Any], found: dict[str, Any]) -> Iterator[None]:
    """Provide the calls of an operation by each solver that serves it, while the scope lasts."""
    with contextlib.ExitStack() as stack:
        for solver in solvers_of(operation, bench.device):
            with forcing(solver):
                convolution = isinstance(operation, Convolution | OperationGraph)
                sized = (
                    with_workspace(operation, bench.device)
                    if convolution
                    else with_room(cudnn, bench.handle, operation)
                )
                made = plan_with(sized, bench.device, solver)
            for launch, _ in made.steps:
                getattr(launch, "wait_for_kernel", lambda: None)()
            given = dict(memory)
            scratch = workspace_of(sized)
            if scratch and (scratch not in given or sized.nbytes(scratch) > given[scratch].nbytes):
                given[scratch] = stack.enter_context(bench._owner.allocate(max(1, sized.nbytes(scratch))))
            operands = [Address(given[name].address) if name in given else None for name in sized.operands]
            found[solver] = lambda made=made, operands=operands: made(operands, bench.clock.stream)
        yield
        bench.device.synchronize()


def times(bench: Bench, calls: dict[str, Any]) -> dict[str, float]:
    """Return median microseconds in a graph of many calls; the solvers take turns."""
    clock, found = bench.clock, {}
    with contextlib.ExitStack() as stack:
        graphs = {}
        for name, work in calls.items():
            work()
            clock.stream.synchronize()
            once = clock.seconds(work)
            if once > SLOW_SECONDS:
                found[name] = once
            else:
                graphs[name] = stack.enter_context(bench._repeated(work, bench._repetitions(work)))
        rounds = [
            {name: clock.seconds(graph) / graph.repetitions for name, graph in graphs.items()}
            for _ in range(ROUNDS + 1)
        ]
        found |= {name: statistics.median(one[name] for one in rounds[1:]) for name in graphs}
    return {name: round(found[name] * 1e6, 3) for name in calls}


def run(chosen: argparse.Namespace) -> None:
    measure.TARGET_SECONDS, measure.ROUNDS, measure.STREAM_CALLS = 5e-4, 5, 40
    until = time.monotonic() + chosen.seconds
    bench = Bench(chosen.device, None)
    found: list[dict[str, Any]] = []
    left: list[str] = []

    def save() -> None:
        table = {"device": bench.device.name, "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()), "rows": found}
        with gzip.open(chosen.out, "wt") as file:
            json.dump(table, file)

    for n, (row, operations) in enumerate(wanted(chosen, bench.device)):
        if time.monotonic() > until:
            left.append(row.name)
            continue
        entries, messages = [], []
        try:
            with bench._memory(row) as memory:
                for name, operation in operations.items():
                    calls: dict[str, Any] = {}
                    try:
                        with works(bench, operation, memory, calls):
                            entry = {"name": name, "family": row.family, "us": times(bench, calls)}
                            if row.nbytes < SMALL_ROW_BYTES and not row.flops:
                                stream = bench._in_stream([*calls.values()])
                                entry["stream_us"] = {k: round(t * 1e6, 3) for k, t in zip(calls, stream, strict=True)}
                            sized = with_its_workspace(operation, bench.device)
                            entry["solver"] = bench.handle.backend.plan(sized).solver
                            entries.append(entry)
                    except Exception as error:
                        messages.append(f"{name}: {error!r}"[:300])
        except Exception as error:
            messages.append(f"{row.name}: {error!r}"[:300])
        found += entries
        for message in messages:
            print(message, flush=True)
            if "ILLEGAL" in message or "illegal" in message:
                until = 0
        if n % 25 == 0:
            save()
    save()
    print(len(found), "rows;", len(left), "left:", *left[:1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "-k", nargs="*", default=[""], metavar="TEXT", help="run only rows whose name contains one of these"
    )
    parser.add_argument(
        "--without", nargs="*", default=[], metavar="TEXT", help="leave out rows whose name contains one of these"
    )
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no row after this time")
    parser.add_argument("--compile", action="store_true", help="compile the kernels and time nothing")
    parser.add_argument("--device", choices=["gpu", "emulated"], default="gpu")
    parser.add_argument("--out", default="every_solver.json.gz")
    chosen = parser.parse_args()
    (compile_kernels if chosen.compile else run)(chosen)


if __name__ == "__main__":
    main()
