"""Measures rows: ours and the vendor's call on the same buffers and stream, in turn, and the ceilings."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from dualdnn.accelerated.timing import Clock
from dualdnn.api import cudnn
from dualdnn.api.enumerations import cudnnDataType_t
from dualdnn.api.operations import Operation, TensorSpec
from dualdnn.api.operations.specs import FLOAT
from dualdnn.api.status import CudnnError

from ..calls import Caller
from ..inputs import values
from ..subjects import NotRunnable, Subject
from .rows import Row

TARGET_SECONDS = 2e-3  # device time of one graph
HOST_CALLS = 200
ROUNDS = 9
BLOCK_ELEMENTS = 1 << 18


class Captured:
    """A namespace that keeps the computing call instead of making it."""

    def __init__(self, functions: Any) -> None:
        self.functions = functions
        self.call: tuple[Any, tuple[Any, ...]] | None = None

    def __getattr__(self, name: str) -> Any:
        function = getattr(self.functions, name)
        if name.startswith(("cudnnCreate", "cudnnSet", "cudnnGet")) and name != "cudnnSetTensor":
            return function

        def keep(*arguments: Any) -> None:
            self.call = (function, arguments)

        return keep


def captured(functions: Any, handle: Any, operation: Operation, memory: dict[str, Any]) -> tuple[Any, tuple[Any, ...]]:
    """The documented call of an operation: (function, arguments)."""
    namespace = Captured(functions)
    Caller(namespace, handle)(operation, memory)
    assert namespace.call is not None
    return namespace.call


class Bench:
    """One device, one stream, our handle and, where there is one, the vendor's on the same stream."""

    def __init__(self, device: str, vendor: Subject | None) -> None:
        self.handle = cudnn.cudnnCreate(backend="accelerated", device=device)
        self.device = self.handle.backend.device
        self.vendor = vendor
        self.vendor_handle = vendor.new_handle() if vendor is not None else None
        stream = self.vendor_handle.new_stream() if self.vendor_handle is not None else self.handle.new_stream()
        cudnn.cudnnSetStream(self.handle, stream)
        if vendor is not None:
            vendor.cudnn.cudnnSetStream(self.vendor_handle, stream)
        self.clock = Clock(self.device, self.handle.stream or self.device.default_stream)
        self.kept_stream = stream
        self.blocks: dict[cudnnDataType_t, np.ndarray[Any, Any]] = {}

    def copy_bandwidth(self, nbytes: int = 1 << 30) -> float:
        """Bytes per second of a device-to-device copy, reads and writes counted."""
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
        """Device time of a kernel that has nothing to do, in a graph of many."""
        row = cudnn.cudnnCreateTensorDescriptor()
        cudnn.cudnnSetTensor4dDescriptor(row, cudnn.CUDNN_TENSOR_NCHW, cudnn.CUDNN_DATA_FLOAT, 1, 1, 1, 1)
        memory = self.handle.to_device(np.ones(1, np.float32))
        return self.clock.median(lambda: cudnn.cudnnScaleTensor(self.handle, row, memory, 0.5), 200)

    def measure(self, row: Row, benchmark: Any) -> dict[str, Any]:
        """Times of one row in microseconds; the vendor's are None where it refuses.

        benchmark: pytest-benchmark's fixture, whose timer is this device's clock.
        """
        operation = row.operation
        memory = {name: self._filled(operation, name) for name in operation.operands if operation.nbytes(name)}
        ours = {name: buffer.address for name, buffer in memory.items()}
        function, arguments = captured(cudnn, self.handle, operation, {**dict.fromkeys(operation.operands), **ours})

        def mine() -> None:
            function(*arguments)

        theirs = self._vendor_call(operation, {**dict.fromkeys(operation.operands), **memory})
        try:
            seconds, other = self._in_turn(mine, theirs, benchmark)
            host = self._host_seconds(mine)
        finally:
            for buffer in memory.values():
                buffer.free()
        return {
            "name": row.name,
            "operation": str(operation),
            "bytes": row.nbytes,
            "ours_us": seconds * 1e6,
            "vendor_us": None if other is None else other * 1e6,
            "host_us": host * 1e6,
        }

    def _filled(self, operation: Operation, name: str) -> Any:
        """A buffer for an operand, all of it filled with a repeated block of random values of its type."""
        owner = self.vendor_handle if self.vendor_handle is not None else self.handle
        nbytes = operation.nbytes(name)
        buffer = owner.allocate(nbytes)
        block = self._block(FLOAT if name in operation.raw else operation.tensor(name).scalar_type)
        filled = min(nbytes, block.size)
        self.device.upload(buffer.address, block[:filled].tobytes())
        while filled < nbytes:
            part = min(filled, nbytes - filled)
            self.device.copy(buffer.address + filled, buffer.address, part)
            filled += part
        self.device.synchronize()
        return buffer

    def _block(self, data_type: cudnnDataType_t) -> np.ndarray[Any, Any]:
        if data_type not in self.blocks:
            spec = TensorSpec.packed(data_type, (1, 1, BLOCK_ELEMENTS))
            self.blocks[data_type] = np.frombuffer(values(spec, "normal", np.random.default_rng(1)).tobytes(), np.uint8)
        return self.blocks[data_type]

    def _vendor_call(self, operation: Operation, memory: dict[str, Any]) -> Callable[[], None] | None:
        if self.vendor is None:
            return None
        try:
            function, arguments = captured(self.vendor.cudnn, self.vendor_handle, operation, memory)
            function(*arguments)
            return function.prepare(*arguments)
        except (CudnnError, NotRunnable):
            return None

    def _in_turn(
        self, mine: Callable[[], None], theirs: Callable[[], None] | None, benchmark: Any
    ) -> tuple[float, float | None]:
        """Medians of both; the vendor is measured before and after, so that a drift of the clocks hits both."""
        other = 0 if theirs is None else self._repetitions(theirs)
        vendor = [] if theirs is None else [self.clock.median(theirs, other, ROUNDS // 2)]
        with self.clock.repeated(mine, self._repetitions(mine)) as graph:
            self.clock.start()
            benchmark.pedantic(graph, rounds=ROUNDS, warmup_rounds=1)
            ours = benchmark.stats.stats.median / graph.repetitions
        if theirs is not None:
            vendor.append(self.clock.median(theirs, other, ROUNDS // 2))
        return ours, statistics.mean(vendor) if vendor else None

    def _repetitions(self, work: Callable[[], None]) -> int:
        once = self.clock.median(work, 1, 1)
        return max(1, min(200, int(TARGET_SECONDS / max(once, 1e-7)))) if self.device.kind == "gpu" else 1

    def _host_seconds(self, work: Callable[[], None]) -> float:
        """Median host time of a call whose plan is cached."""
        times = []
        for _ in range(HOST_CALLS if self.device.kind == "gpu" else 3):
            start = time.perf_counter()
            work()
            times.append(time.perf_counter() - start)
        self.handle.synchronize()
        return statistics.median(times)


def with_floor(result: dict[str, Any], bandwidth: float, launch: float) -> dict[str, Any]:
    """The row with its floor (bytes over copy bandwidth, at least a launch), what it reaches, the ratio to the vendor."""
    floor = max(result["bytes"] / bandwidth, launch) * 1e6
    vendor = result["vendor_us"]
    return {
        **result,
        "floor_us": floor,
        "fraction": floor / result["ours_us"],
        "speedup": None if vendor is None else vendor / result["ours_us"],
    }
