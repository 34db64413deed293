"""Measures rows: our call, the vendor's call and its graph path on the same buffers and stream, in turn, and the
ceilings."""

from __future__ import annotations

import contextlib
import statistics
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from dualdnn.accelerated.runtime.timing import Clock, Graph
from dualdnn.api import cudnn
from dualdnn.api.document import functions
from dualdnn.api.enumerations import cudnnDataType_t, cudnnMathType_t
from dualdnn.api.operations import (
    Operation,
    OperationGraph,
    RNNBackwardData,
    RNNBackwardWeights,
    RNNForward,
    TensorSpec,
)
from dualdnn.api.operations.backend import RUN
from dualdnn.api.operations.rnn.network import PERSIST_STATIC, STANDARD
from dualdnn.api.operations.specs import FLOAT, HALF

from ..calls import Caller, sized
from ..calls.caller import function_of
from ..calls.exceptions import WORKSPACES
from ..contents import contents
from ..inputs import values
from ..subjects import Subject
from .ceilings import Ceilings, data_sheet, microseconds
from .convolution_search import RANKED_BY, algorithm_name, first_choice, in_order, plain, search, variants
from .designed import OnChip, designed_bytes
from .graph_path import GraphPath
from .row import Attention, Convolution, Row

TARGET_SECONDS = 2e-3  # seconds, device time of one graph
HOST_CALLS = 200
HOST_SECONDS = 0.05  # seconds of device time; more calls would fill the queue
ROUNDS = 9
REST_SECONDS = 0.01
BLOCK_ELEMENTS = 1 << 18
QUICK_RUNS = 3  # timings of each of the vendor's algorithms, to find the fastest ones
FINALISTS = 2  # fastest algorithms of the vendor that are timed like everything else
LAUNCHES = Path(__file__).with_name("launches.cu")
SHORT_LAUNCHES = 200  # empty launches in a graph
STREAM_CALLS = 50  # calls that a program makes one by one
ALONE_ROUNDS = 31
SMALL_ROW_BYTES = 2e6  # bytes; a row that moves less takes little more than a launch
SMALL_BYTES = 8 * 64 * 14 * 14 * 4  # bytes of the small shape in float
VECTOR_BYTES = 16  # bytes that a thread of the small copy moves
COPY_THREADS = 256  # threads per block of the small copy
COPY_MULTIPLE = 4096  # bytes; the driver copies 35 % fewer bytes a second where a size is not a multiple (H200)
SCRATCH_BYTES = 1 << 20  # minimum bytes: a library never gets NULL for a workspace

Work = Callable[[], Any]
Recurrent = RNNForward | RNNBackwardData | RNNBackwardWeights


def with_room(functions: Any, handle: Any, operation: Operation) -> Operation:
    """Return the operation with the workspace that a library asks for; convolutions get it by algorithm."""
    return operation if isinstance(operation, Convolution) else sized(Caller(functions, handle), operation)


def workspace_of(operation: Operation) -> str | None:
    """Return the name of the workspace operand, or None."""
    scratch = [n for n in operation.raw if n not in operation.inputs and n not in operation.outputs]
    return next((n for n in scratch if operation.raw[n] == "workspace_bytes"), next(iter(scratch), None))


def algorithms_of(operation: Any) -> list[tuple[str, Any]]:
    """Return a recurrent network's call by each algorithm that a vendor may use, and with both math types.

    Where products must not be rounded, a baseline must not round them either.
    """
    math_types = [cudnnMathType_t.CUDNN_DEFAULT_MATH, cudnnMathType_t.CUDNN_TENSOR_OP_MATH]
    if operation.network.math_type == cudnnMathType_t.CUDNN_FMA_MATH:
        math_types = [cudnnMathType_t.CUDNN_FMA_MATH]
    kinds = product((STANDARD, PERSIST_STATIC), math_types)
    return [
        (
            f"{algo.name.removeprefix('CUDNN_RNN_ALGO_')} {math.name.removeprefix('CUDNN_')}",
            replace(operation, network=replace(operation.network, algo=algo, math_type=math)),
        )
        for algo, math in kinds
    ]


class Captured:
    """Replaces a namespace of functions, and keeps the computing call instead of making it."""

    def __init__(self, functions: Any, computing: str) -> None:
        self.functions, self.computing = functions, computing
        self.call: tuple[Any, tuple[Any, ...]] | None = None

    def __getattr__(self, name: str) -> Any:
        function = getattr(self.functions, name)
        if name != self.computing:
            return function

        def keep(*arguments: Any) -> None:
            self.call = (function, arguments)

        return keep


def captured(functions: Any, handle: Any, operation: Operation, memory: dict[str, Any]) -> tuple[Any, tuple[Any, ...]]:
    """Return the documented call of an operation, with the workspace that the library asks for: (function,
    arguments)."""
    namespace = Captured(functions, function_of(type(operation)))
    Caller(namespace, handle)(with_room(functions, handle, operation), memory)
    assert namespace.call is not None
    return namespace.call


@dataclass(frozen=True)
class Contender:
    """Holds one way to do a row's work: ``work`` puts it on the stream. name: its algorithm, if there is a choice."""

    work: Work
    name: str = ""


def in_turn(found: Sequence[dict[str, Contender]]) -> dict[str, Contender]:
    """Return the baselines that can make all of several calls; their work makes the calls one after the other."""

    def together(works: Sequence[Work]) -> Work:
        def work() -> None:
            for one in works:
                one()

        return works[0] if len(works) == 1 else work

    made = {}
    for name in found[0]:
        if all(name in each for each in found):
            contenders = [each[name] for each in found]
            names = ", ".join(contender.name for contender in contenders if contender.name)
            made[name] = Contender(together([contender.work for contender in contenders]), names)
    return made


class Bench:
    """Holds one device, one stream, our handle and, where they exist, the vendor's and PyTorch on the same stream."""

    def __init__(self, device: str, vendor: Subject | None, torch: Any = None, level: str = RUN) -> None:
        self.handle = cudnn.cudnnCreate(backend="accelerated", device=device, reproducible=level)
        self.device = self.handle.backend.device
        self.vendor = vendor
        self.vendor_handle = vendor.new_handle() if vendor is not None else None
        stream = self.vendor_handle.new_stream() if self.vendor_handle is not None else self.handle.new_stream()
        cudnn.cudnnSetStream(self.handle, stream)
        if vendor is not None:
            vendor.cudnn.cudnnSetStream(self.vendor_handle, stream)
        self.clock = Clock(self.device, self.handle.stream or self.device.default_stream, self._hold)
        self.graph_path = GraphPath(torch, self.clock.stream.handle) if torch is not None else None
        self.kept_stream = stream
        self.blocks: dict[cudnnDataType_t, np.ndarray[Any, Any]] = {}
        # Copies are timed once: seconds by their bytes.
        self.chip, self.copied = OnChip.of(self.device), dict[int, float]()

    def ceilings(self) -> Ceilings:
        """Measure the ceilings of memory and launches, and of the arithmetic where PyTorch is installed; else the
        data sheet states it."""
        paces, source = data_sheet(self.device.name)
        if self.graph_path is not None:
            with contextlib.suppress(Exception):
                paces, source = self.graph_path.paces(self.clock), "torch.matmul in this run"
                self.graph_path.release()
        bandwidth, launch, small_copy = self.copy_bandwidth(), self.launch_seconds(), self.small_copy_seconds()
        # This follows the other measurements because they raise the device's clocks.
        (in_stream,) = self._in_stream([self._empty()])
        (alone,) = self._alone([self._empty()])
        return Ceilings(bandwidth, launch, paces, source, small_copy, in_stream, alone)

    def copy_bandwidth(self, nbytes: int = 1 << 30) -> float:
        """Return the bytes per second of a device-to-device copy, reads and writes counted."""
        nbytes = nbytes if self.device.kind == "gpu" else 1 << 20
        source, target = self.handle.allocate(nbytes), self.handle.allocate(nbytes)
        self.device.fill(source.address, nbytes, 7)
        stream = self.clock.stream
        rounds = [
            self.clock.seconds(lambda: self.device.copy(target.address, source.address, nbytes, stream))
            for _ in range(12)
        ]
        return 2 * nbytes / statistics.median(rounds)

    def launch_seconds(self) -> float:
        """Return the device time of an empty kernel that overlaps with no other, in a graph of many."""
        return self.clock.median(self._empty(), self._launches(SHORT_LAUNCHES))

    def _launches(self, most: int) -> int:
        """Return how many short launches are timed together: one on the emulated device, whose clock is the host's."""
        return most if self.device.kind == "gpu" else 1

    def _empty(self) -> Work:
        function, stream = self.device.function(LAUNCHES, "empty"), self.clock.stream
        return lambda: function.launch(bytes(8), (1,), (32,), 0, stream)

    def _hold(self, seconds: float) -> None:
        """Keep the stream busy."""
        function = self.device.function(LAUNCHES, "hold")
        function.launch(struct.pack("<Q", int(seconds * 1e9)), (1,), (1,), 0, self.clock.stream)

    def _alone(self, works: list[Work]) -> list[float]:
        """Return the median device time of single calls, in turns: between two events, with nothing else on the
        device."""
        times = [[self.clock.seconds(work) for work in works] for _ in range(ALONE_ROUNDS)]
        return [statistics.median(of_work) for of_work in zip(*times, strict=True)]

    def _in_stream(self, works: list[Work]) -> list[float]:
        """Return the median device time of calls that a program makes one after the other, in turns.

        All calls are queued before the first begins, and each is launched by itself.
        """
        calls = self._launches(STREAM_CALLS)

        def seconds(work: Work) -> float:
            def program() -> None:
                for _ in range(calls):
                    work()

            return self.clock.seconds(program) / calls

        times = [[seconds(work) for work in works] for _ in range(ROUNDS)]
        return [statistics.median(of_work) for of_work in zip(*times, strict=True)]

    def small_copy_seconds(self) -> float:
        """Return the device time of the shortest kernel that reads and writes a small tensor, in a graph of many,
        which overlap as ours do."""
        with self._copies(SMALL_BYTES) as (_, kernel):
            return self.clock.median(kernel, self._launches(SHORT_LAUNCHES))

    def copy_seconds(self, nbytes: int) -> float | None:
        """Return the device time of the faster of two copies, in a graph of many, that read and write about ``nbytes``
        together.

        One is the driver's, the other a kernel's. The result is None on the emulated device.
        """
        if self.device.kind != "gpu":
            return None
        if nbytes not in self.copied:
            with self._copies(-(-nbytes // 2 // COPY_MULTIPLE) * COPY_MULTIPLE) as works:
                self.copied[nbytes] = min(self._median(work) for work in works)
        return self.copied[nbytes]

    @contextlib.contextmanager
    def _copies(self, nbytes: int) -> Iterator[tuple[Work, Work]]:
        """Yield copies of ``nbytes`` bytes, by the driver and by a kernel."""
        function, stream, vectors = self.device.function(LAUNCHES, "copy"), self.clock.stream, nbytes // VECTOR_BYTES
        with self.handle.allocate(nbytes) as source, self.handle.allocate(nbytes) as target:
            self.device.fill(source.address, nbytes, 7)
            arguments = struct.pack("<QQQ", source.address, target.address, vectors)
            grid = (-(-vectors // COPY_THREADS), 1, 1)
            yield (
                lambda: self.device.copy(target.address, source.address, nbytes, stream),
                lambda: function.launch(arguments, grid, (COPY_THREADS, 1, 1), 0, stream),
            )
            self.device.synchronize()

    def measure(self, row: Row, benchmark: Any) -> dict[str, Any]:
        """Return the times of one row in microseconds; None, and a message, where something could not be timed.

        benchmark: pytest-benchmark's fixture, whose timer is this device's clock.
        """
        begun = time.perf_counter()
        result: dict[str, Any] = {
            "name": row.name, "family": row.family, "operation": str(row.operation),
            "bytes": row.nbytes, "design_bytes": designed_bytes(row, self.chip), "flops": row.flops, "pace": row.pace,
            "ours_us": None, "vendor_us": None, "graph_us": None, "host_us": None,
        }  # fmt: skip
        messages: list[str] = []
        with self._told("row", messages), self._memory(row) as memory, self._told("ours", messages):
            result |= self._rounds(row, memory, benchmark, messages)
        if not row.flops:
            with self._told("copy of the design", messages):
                result["design_copy_us"] = microseconds(self.copy_seconds(result["design_bytes"]))
        return {**result, "wall_s": time.perf_counter() - begun, "message": "; ".join(messages) or None}

    def _rounds(self, row: Row, memory: dict[str, Any], benchmark: Any, messages: list[str]) -> dict[str, Any]:
        """Return the medians of all contenders; for small rows also the medians of single calls.

        Each round times every contender. Where arithmetic heats the device and its clocks fall, a rest precedes each
        one, so that every contender begins at the same temperature.
        """
        operation = row.operation
        baselines: dict[str, Contender] = {}
        calls = self._separate(row, memory)
        theirs = calls if isinstance(operation, OperationGraph) and calls else [(operation, memory)]
        with self._told("vendor", messages):
            baselines |= in_turn([self._vendor(*call) for call in theirs])
        with self._told("graph", messages):
            baselines |= in_turn([self._graph(*call) for call in theirs])
        if calls:
            with self._told("separate", messages):
                baselines |= in_turn([{"separate": Contender(self._own_call(*call))} for call in calls])
        if row.copy is not None:
            with self._told("copy", messages):
                memory["copied"] = self._ones(row.copy.nbytes("y"))
                baselines["copy"] = Contender(
                    self._own_call(row.copy, {"x": memory[row.operation.inputs[0]], "y": memory["copied"]})
                )
        small = row.nbytes < SMALL_ROW_BYTES and not row.flops
        if small:  # The cost of a launch changes within a run.
            baselines["launch"] = Contender(self._empty())
        ours, found = self._ours(operation, memory)
        times: dict[str, list[float]] = {name: [] for name in baselines}
        with contextlib.ExitStack() as stack:
            graphs: dict[str, Graph] = {}
            for name, baseline in baselines.items():
                with self._told(name, messages):
                    graphs[name] = stack.enter_context(self._repeated(baseline.work, self._repetitions(baseline.work)))
            graph = stack.enter_context(self._repeated(ours.work, self._repetitions(ours.work)))

            rest = REST_SECONDS if self.device.kind == "gpu" and (calls or isinstance(operation, Convolution)) else 0.0

            def run_baselines() -> None:
                for name, theirs in graphs.items():
                    time.sleep(rest)
                    with self._told(name, messages):
                        times[name].append(self.clock.seconds(theirs) / theirs.repetitions)
                time.sleep(rest)

            def run_ours() -> None:
                self.clock.spend(graph)

            benchmark.pedantic(run_ours, setup=run_baselines, rounds=ROUNDS, warmup_rounds=1)
            seconds = benchmark.stats.stats.median / graph.repetitions
        result = {"ours_us": seconds * 1e6, "host_us": self._host_seconds(ours.work, seconds) * 1e6, **found}
        for name, baseline in baselines.items():
            result[f"{name}_us"] = statistics.median(times[name]) * 1e6 if times[name] else None
            if baseline.name:
                result[f"{name}_algorithm"] = baseline.name
        if small:
            works = {"ours": ours.work, **{name: baseline.work for name, baseline in baselines.items()}}
            for way, measured in (("stream", self._in_stream), ("alone", self._alone)):
                with self._told(way, messages):
                    times_of = zip(works, measured([*works.values()]), strict=True)
                    result |= {f"{name}_{way}_us": seconds * 1e6 for name, seconds in times_of}
        return result

    def _ours(self, operation: Operation, memory: dict[str, Any]) -> tuple[Contender, dict[str, Any]]:
        """Return our call and the results of the searches. A convolution uses the algorithm that our search finds."""
        if not isinstance(operation, Convolution):
            own, solver = self._own_call(operation, memory), self._solver(operation)
            ranked = self._ranked(operation, own, memory) if type(operation) in RANKED_BY else {}
            return Contender(own), solver | ranked
        found = search(self.handle, plain(operation), memory, memory["workSpace"])

        def quick(variant: Convolution) -> float:
            alone = plain(variant)
            operands = [self.handle.backend.operand(memory[name].address) for name in alone.operands]
            return float(self.handle.backend.algorithm_time(alone, operands, self.handle.stream)) * 1e-3

        ordered = in_order(found, variants(cudnn, self.handle, operation), quick)
        best = Contender(self._own_call(ordered[0][0], memory), algorithm_name(ordered[0][0].algo))
        first = next((variant for variant, _ in ordered if variant.algo == found.ranked[0]), None)
        same = first is None or first.algo == ordered[0][0].algo
        return best, {
            **self._solver(ordered[0][0]),
            "algorithm": best.name,
            "algorithms_us": {algorithm_name(variant.algo): seconds * 1e6 for variant, seconds in ordered},
            "found_us": found.text(),
            "v7_algorithm": algorithm_name(found.ranked[0]),
            "v7_ratio": found.ratio,
            "v7_us": None if first is None or same else self._median(self._own_call(first, memory)) * 1e6,
        }

    def _ranked(self, operation: Any, own: Work, memory: dict[str, Any]) -> dict[str, Any]:
        """Return the first choice for a gradient, its microseconds if it is another algorithm, and how many times as
        long as our call it takes."""
        algorithm = first_choice(self.handle, operation).algo
        seconds, ratio = None, 1.0
        if algorithm != operation.algo:
            first = sized(Caller(cudnn, self.handle), replace(operation, algo=algorithm))
            self._solver(first)
            with self.handle.allocate(max(first.workspace_bytes, 1)) as room:
                seconds = self._median(self._own_call(first, {**memory, "workSpace": room}))
                self.device.synchronize()
            ratio = seconds / self._median(own)
        return {"v7_algorithm": algorithm_name(algorithm), "v7_us": microseconds(seconds), "v7_ratio": ratio}

    def _separate(self, row: Row, memory: dict[str, Any]) -> list[tuple[Any, dict[str, Any]]]:
        """Return the separate calls that together do the row's operation, each with the buffers of its operands."""
        calls = [(sized(Caller(cudnn, self.handle), call.operation), call.where) for call in row.separate]
        further: dict[str, int] = {}
        for operation, where in calls:
            for name in operation.operands:
                known = where.get(name, name)
                if known not in memory or name == workspace_of(operation):
                    known = f"separate {where.get(name, name)}"
                    further[known] = max(further.get(known, SCRATCH_BYTES), self._max_bytes(operation, name))
        memory |= {name: self._ones(nbytes) for name, nbytes in further.items()}
        found = []
        for operation, where in calls:
            names = {name: where.get(name, name) for name in operation.operands}
            given = {
                name: memory.get(f"separate {known}") if f"separate {known}" in further else memory[known]
                for name, known in names.items()
            }
            found.append((operation, given))
        return found

    def _max_bytes(self, operation: Operation, name: str) -> int:
        """Return the bytes of an operand of a separate call; a workspace suffices for every library and algorithm."""
        if name != workspace_of(operation):
            return operation.nbytes(name)
        return self._scratch_bytes(operation) if isinstance(operation, Convolution) else self._room(operation, name)

    def _solver(self, operation: Operation) -> dict[str, Any]:
        """Return the name of the solver that serves an operation.

        Its kernels are compiled from then on, so that no fallback is timed in their place.
        """
        plan = self.handle.backend.plan(with_room(cudnn, self.handle, operation))
        for launch, _ in plan.steps:
            launch.wait_for_kernel()
        return {"solver": plan.solver}

    def _own_call(self, operation: Operation, memory: dict[str, Any]) -> Work:
        addresses = {name: memory[name].address if name in memory else None for name in operation.operands}
        function, arguments = captured(cudnn, self.handle, operation, addresses)
        return lambda: function(*arguments)

    def _vendor(self, operation: Operation, memory: dict[str, Any]) -> dict[str, Contender]:
        """Return the vendor's legacy call; a convolution or a recurrent network uses the fastest of its algorithms."""
        if self.vendor is None:
            return {}
        if not isinstance(operation, Convolution | Recurrent):
            return {"vendor": Contender(self._vendor_call(operation, memory))}
        timed: list[tuple[float, Contender]] = []
        refused: list[str] = []
        candidates = (
            [
                (algorithm_name(variant.algo), variant)
                for variant in variants(self.vendor.cudnn, self.vendor_handle, operation)
            ]
            if isinstance(operation, Convolution)
            else algorithms_of(operation)
        )
        for name, variant in candidates:
            with self._told(name, refused):
                contender = Contender(self._vendor_call(variant, memory), name)
                timed.append((min(self.clock.seconds(contender.work) for _ in range(QUICK_RUNS)), contender))
        if not timed:
            raise ValueError(f"no algorithm takes it {'; '.join(refused)}")
        finalists = [contender for _, contender in sorted(timed, key=lambda pair: pair[0])[:FINALISTS]]
        return {"vendor": min(finalists, key=lambda contender: self._median(contender.work))}

    def _vendor_call(self, operation: Operation, memory: dict[str, Any]) -> Work:
        assert self.vendor is not None
        given = {**dict.fromkeys(operation.operands), **memory}
        function, arguments = captured(self.vendor.cudnn, self.vendor_handle, operation, given)
        if isinstance(operation, Attention):
            arguments = self._in_own_spaces(operation, arguments, memory)
        function(*arguments)
        work: Work = function.prepare(*arguments)
        return work

    def _in_own_spaces(
        self, operation: Attention, arguments: tuple[Any, ...], memory: dict[str, Any]
    ) -> tuple[Any, ...]:
        """Return the arguments with work and reserve space as large as the vendor asks for; both are added to the
        buffers."""
        assert self.vendor is not None
        names = [parameter.name for parameter in functions()[function_of(type(operation))].arguments]
        call = dict(zip(names, arguments, strict=True))
        sizes = self.vendor.cudnn.cudnnGetMultiHeadAttnBuffers(self.vendor_handle, call["attnDesc"])
        if not call["reserveSpaceSizeInBytes"]:  # The work space of inference also has the contents of reserve space.
            sizes = (*sizes[:1], sum(sizes[1:]), 0)
        for name, size in zip(("workSpace", "reserveSpace"), sizes[1:], strict=True):
            if call[f"{name}SizeInBytes"]:
                memory[f"vendor's {name}"] = call[name] = self._owner.allocate(max(size, SCRATCH_BYTES))
                self.device.fill(call[name].address, max(size, SCRATCH_BYTES), 0)
                call[f"{name}SizeInBytes"] = size
        return tuple(call.values())

    def _graph(self, operation: Operation, memory: dict[str, Any]) -> dict[str, Contender]:
        """Return the autotuned graph path; the first call tunes."""
        if self.graph_path is None:
            return {}
        contenders = [Contender(work, name) for name, work in self.graph_path.calls(operation, memory)]
        for contender in contenders:
            contender.work()
        if len(contenders) > 1:
            contenders.sort(key=lambda contender: self._median(contender.work))
        return dict(zip(["graph"], contenders, strict=False))

    @contextlib.contextmanager
    def _told(self, who: str, messages: list[str]) -> Iterator[None]:
        """Note a failure in the block, and continue the run, because the other contenders and rows are independent."""
        try:
            yield
        except Exception as error:
            told = f"{who}: {type(error).__name__}: {error}".splitlines()[0][:300]
            if told not in messages:
                messages.append(told)

    @contextlib.contextmanager
    def _memory(self, row: Row) -> Iterator[dict[str, Any]]:
        """Return buffers for the operands; a convolution gets a workspace that suffices for every library and
        algorithm."""
        memory: dict[str, Any] = {}
        operation = self._with_spaces(row.operation)
        try:
            for name in operation.operands:
                sized_later = type(operation) in WORKSPACES and name == workspace_of(operation)
                if operation.nbytes(name) and not sized_later:
                    memory[name] = self._filled(operation, name)
            for name, bytes_ in {**contents(operation, np.random.default_rng(1)), **row.contents()}.items():
                self.device.upload(memory[name].address, bytes_.tobytes())
            if isinstance(operation, Convolution):
                memory["workSpace"] = self._owner.allocate(self._scratch_bytes(operation))
            elif type(operation) in WORKSPACES and (workspace := workspace_of(operation)):
                memory[workspace] = self._owner.allocate(self._room(operation, workspace))
            yield memory
        finally:
            self.device.synchronize()
            for buffer in memory.values():
                buffer.free()
            if self.graph_path is not None:
                self.graph_path.release()

    def _with_spaces(self, operation: Any) -> Any:
        """Return a recurrent operation with work and reserve space that suffice for every library. Return any other
        operation unchanged."""
        if not isinstance(operation, Recurrent) or self.vendor is None:
            return operation
        for _, variant in algorithms_of(operation):
            with contextlib.suppress(Exception):  # An operation that the vendor refuses has no baseline.
                theirs = with_room(self.vendor.cudnn, self.vendor_handle, variant)
                larger = {
                    name: max(getattr(operation, name), getattr(theirs, name), key=lambda spec: spec.nbytes)
                    for name in ("workspace", "reserve")
                }
                operation = replace(operation, **larger)
        return operation

    def _scratch_bytes(self, operation: Convolution) -> int:
        makers: list[tuple[Any, Any]] = [(cudnn, self.handle)]
        if self.vendor is not None:
            makers.append((self.vendor.cudnn, self.vendor_handle))
        sizes = [variant.workspace_bytes for maker in makers for variant in variants(*maker, operation)]
        return max(SCRATCH_BYTES, *sizes)

    def _room(self, operation: Operation, name: str) -> int:
        sizes = [with_room(cudnn, self.handle, operation).nbytes(name)]
        if self.vendor is not None:
            with contextlib.suppress(Exception):  # An operation that the vendor refuses has no baseline.
                sizes.append(with_room(self.vendor.cudnn, self.vendor_handle, operation).nbytes(name))
        return max(SCRATCH_BYTES, *sizes)

    @property
    def _owner(self) -> Any:
        """Return the handle that allocates buffers: the vendor's binding accepts only those that it allocated."""
        return self.vendor_handle if self.vendor_handle is not None else self.handle

    def _filled(self, operation: Operation, name: str) -> Any:
        """Return a buffer for an operand, filled with a repeated block of random values of its type."""
        nbytes = operation.nbytes(name)
        buffer = self._owner.allocate(nbytes)
        block = self._block(self._type_in(operation, name))
        filled = min(nbytes, block.size)
        self.device.upload(buffer.address, block[:filled].tobytes())
        while filled < nbytes:
            part = min(filled, nbytes - filled)
            self.device.copy(buffer.address + filled, buffer.address, part)
            filled += part
        self.device.synchronize()
        return buffer

    def _ones(self, nbytes: int) -> Any:
        """Return a buffer for scales, variances or the like that begins with up to SCRATCH_BYTES of ones in float. The
        row writes longer vectors before it reads them."""
        buffer = self._owner.allocate(nbytes)
        ones = np.ones(min(nbytes, SCRATCH_BYTES) // 4, np.float32)
        self.device.upload(buffer.address, ones.tobytes())
        return buffer

    @staticmethod
    def _type_in(operation: Operation, name: str) -> cudnnDataType_t:
        """Return the type of an operand's random values. Work and reserve space get the type of the data, so that
        they hold no infinities."""
        if name not in operation.raw:
            return operation.tensor(name).scalar_type
        types = {operation.tensor(other).scalar_type for other in operation.reads if other not in operation.raw}
        return HALF if HALF in types else FLOAT

    def _block(self, data_type: cudnnDataType_t) -> np.ndarray[Any, Any]:
        if data_type not in self.blocks:
            spec = TensorSpec.packed(data_type, (1, 1, BLOCK_ELEMENTS))
            self.blocks[data_type] = np.frombuffer(values(spec, "normal", np.random.default_rng(1)).tobytes(), np.uint8)
        return self.blocks[data_type]

    def _median(self, work: Work) -> float:
        """Return the seconds of one ``work()``."""
        with self._repeated(work, self._repetitions(work)) as graph:
            graph()
            rounds = [self.clock.seconds(graph) for _ in range(ROUNDS // 2)]
            return statistics.median(rounds) / graph.repetitions

    def _repeated(self, work: Work, repetitions: int) -> Graph:
        """Return ``work()`` many times in a graph, or one launch after the other where it cannot be captured."""
        try:
            return self.clock.repeated(work, repetitions)
        except Exception:
            self.clock.stream.synchronize()  # This raises errors that capturing did not cause.
            return Graph(None, self.clock.stream, work, repetitions)

    def _repetitions(self, work: Work) -> int:
        with self._repeated(work, 1) as graph:
            graph()
            once = self.clock.seconds(graph)
        return max(1, min(self._launches(200), int(TARGET_SECONDS / max(once, 1e-7))))

    def _host_seconds(self, work: Work, seconds: float) -> float:
        """Return the median host time of a call that takes ``seconds`` on the device, and whose plan is cached."""
        times = []
        for _ in range(max(3, min(self._launches(HOST_CALLS), int(HOST_SECONDS / seconds)))):
            start = time.perf_counter()
            work()
            times.append(time.perf_counter() - start)
        self.handle.synchronize()
        return statistics.median(times)


def with_floor(result: dict[str, Any], ceilings: Ceilings) -> dict[str, Any]:
    """Return the row with its floor, its shares of copies, and the speedup over the vendor's faster path.

    One copy moves the row's bytes with its strides, another the bytes of its design. A small row also gets its time as
    a multiple of an empty kernel's launch: in a graph, in a stream, and alone.
    """
    floor = ceilings.floor(result["bytes"], result["flops"], result["pace"]) * 1e6
    ours = result["ours_us"]
    baselines = [time for time in (result["vendor_us"], result["graph_us"]) if time is not None]
    separate, copied, designed = (result.get(f"{name}_us") for name in ("separate", "copy", "design_copy"))
    ways = {
        "graph": (ours if "ours_alone_us" in result else None, result.get("launch_us")),
        "stream": (result.get("ours_stream_us"), result.get("launch_stream_us")),
        "alone": (result.get("ours_alone_us"), result.get("launch_alone_us")),
    }
    return {
        **result,
        "floor_us": floor,
        "fraction": None if ours is None else floor / ours,
        **({} if ours is None or designed is None else {"of_design": designed / ours}),
        "speedup": None if ours is None or not baselines else min(baselines) / ours,
        **({} if ours is None or separate is None else {"over_separate": separate / ours}),
        **({} if ours is None or copied is None else {"of_copy": copied / ours}),
        "launches": {way: time / launch for way, (time, launch) in ways.items() if time and launch},
    }
