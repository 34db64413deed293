"""Implements the accelerated backend: device memory, cached plans and asynchronous launches."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from dualdnn.api.operations import Operation, OperationGraph, Unsupported, dlpack
from dualdnn.api.operations.answers import Answers
from dualdnn.api.operations.backend import RUN
from dualdnn.api.operations.buffers import SharedBuffer, checked_size

from .plans import Plan, estimated_seconds, plan, workspace_bytes
from .records import Record, likeness
from .reproducible import at_level, canonical_operation, require_level
from .runtime.device import Launching
from .runtime.devices import open_device
from .runtime.errors import DeviceError
from .runtime.memory import Stream
from .runtime.timing import Clock
from .scalars import ValueNeeded, without_values
from .solver import is_forcing, possible_solvers, summation_order

_ADDRESS_LIMIT = 2**64
TIMED_RUNS = 3  # runs on a GPU; the shortest run counts, or the median if graphs are timed
GRAPH_RUNS = 8  # launches per timed graph
SHORT_SECONDS = 2e-4  # shorter launches are timed in graphs; the host needs up to a tenth of it per launch
PLANS_KEPT = 4096  # plans kept per device
RECORDS_KEPT = 16  # records kept per prepared call, one for each likeness of addresses
_NONE: Any = object()


class DeviceOperand(NamedTuple):
    """Hold the address and the size (None if unknown) of device memory. It does not keep the memory alive."""

    address: int
    nbytes: int | None
    writable: bool = True


_operand = tuple.__new__  # It makes a DeviceOperand in a third of the time that the class takes.


class DeviceBuffer(SharedBuffer):
    """Wrap a range of device memory."""

    def __init__(self, device: Any, memory: Any, offset: int, nbytes: int, is_slice: bool = False) -> None:
        super().__init__(memory, memory.address + offset, nbytes, is_slice)
        self.device, self.location, self.operand = device, device.name, DeviceOperand(self.address, nbytes)

    def contents(self, nbytes: int) -> bytearray:
        self.device.synchronize()
        content: bytearray = self.device.download(self.address, nbytes)
        return content

    def part(self, offset: int, nbytes: int) -> DeviceBuffer:
        return DeviceBuffer(
            self.device, self.memory, self.address - self.memory.address + offset, nbytes, is_slice=True
        )

    def duplicate(self) -> DeviceBuffer:
        buffer = allocated(self.device, self.nbytes)
        self.device.synchronize()
        self.device.copy(buffer.address, self.address, self.nbytes)
        self.device.synchronize()
        return buffer

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        raise TypeError(f"the buffer lies on {self.device.name}: to_host(dtype, shape) copies it")

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Return the bytes as a CUDA array, after all work. It must not be used once the buffer is freed."""
        self._require_gpu(AttributeError)
        self.device.synchronize()
        address = self.address if self.nbytes else 0
        return {"version": 3, "shape": (self.nbytes,), "typestr": "|u1", "data": (address, False), "strides": None}

    def __dlpack_device__(self) -> tuple[int, int]:
        self._require_gpu(BufferError)
        return (dlpack.CUDA, 0)

    def __dlpack__(self, **_options: Any) -> Any:
        """Return a capsule with the bytes after all work of the device, valid for any stream of the consumer."""
        self._require_gpu(BufferError)
        self.device.synchronize()
        return dlpack.exported(self.address, self.nbytes, (dlpack.CUDA, 0), self.memory)

    def _require_gpu(self, error: type[Exception]) -> None:
        self.require_alive()
        if self.device.kind != "gpu":
            raise error(f"the buffer lies on {self.device.name}, which other libraries cannot reach")


def allocated(device: Any, nbytes: int) -> DeviceBuffer:
    """Return a new buffer. Raises MemoryError where the allocation fails."""
    try:
        return DeviceBuffer(device, device.allocate(checked_size(nbytes)), 0, nbytes)
    except DeviceError as error:
        raise MemoryError(str(error)) from error


class AcceleratedBackend:
    """Runs operations as CUDA kernels, on the GPU or on the emulated device."""

    name = "accelerated"

    def __init__(self, kind: str, reproducible: str = RUN) -> None:
        self.device, self.reproducible = open_device(kind), reproducible
        self.planned_on = at_level(self.device, reproducible)
        level = "" if reproducible == RUN else f", reproducible={reproducible!r}"
        self.description = f"accelerated ({self.device.name}{level})"
        self.plans: dict[Operation, Plan | None] = self.planned_on.__dict__.setdefault("plans", {})

    def allocate(self, nbytes: int) -> DeviceBuffer:
        return allocated(self.device, nbytes)

    def to_device(self, array: Any) -> DeviceBuffer:
        buffer = allocated(self.device, array.nbytes)
        self.device.upload(buffer.address, array.reshape(-1).view(np.uint8))
        self.device.default_stream.synchronize()  # The caller may change pinned memory afterwards.
        return buffer

    def zeros(self, nbytes: int) -> DeviceBuffer:
        buffer = allocated(self.device, nbytes)
        self.device.fill(buffer.address, nbytes, 0)
        return buffer

    def operand(self, value: Any) -> Any:
        if type(value) is DeviceBuffer:
            if value.memory.freed:
                raise ValueError("was freed")
            if value.device is not self.device:
                raise ValueError(f"lies on {value.device.name}, the handle's device is {self.device.name}")
            return value.operand
        if type(value) is not int:
            try:  # PyTorch computes its interface for each use, which costs ten times more than these attributes.
                is_plain = value.is_cuda is True and value.is_contiguous() and not value.requires_grad
            except AttributeError:  # It is no tensor of PyTorch.
                is_plain = False
            if is_plain:
                return self._bounded(value.data_ptr(), value.nbytes, True)
            if type(value) is DeviceOperand:
                return value
            interface = getattr(value, "__cuda_array_interface__", None)
            if interface is not None:
                return self._bounded(*_from_interface(interface))
            if not _is_address(value):
                raise TypeError(
                    f"is a {type(value).__name__}, not device memory (a buffer of the handle, an object with"
                    " __cuda_array_interface__, a PyCUDA allocation or an address)"
                )
            value = int(value)
        if not 0 < value < _ADDRESS_LIMIT:
            raise ValueError(f"is {value}, not the address of device memory")
        return _operand(DeviceOperand, (value, self.device.extent(value), True))

    def _bounded(self, address: int, nbytes: int | None, writable: bool) -> DeviceOperand:
        """Return the operand at a caller's address. Raises ValueError where it exceeds the known allocation."""
        if self.device.knows_extents and address:
            known = self.device.extent(address)
            if nbytes is not None and known is not None and nbytes > known:
                raise ValueError(f"says that it has {nbytes} bytes at {address:#x}, where the device has {known}")
            nbytes = known if nbytes is None else nbytes
        return _operand(DeviceOperand, (address, nbytes, writable))

    def contents(self, address: int, nbytes: int) -> bytearray:
        """Return a copy of device memory."""
        content: bytearray = self.device.download(address, nbytes)
        return content

    def prepare(self, operation: Operation) -> _Launcher:
        return _Launcher(self, operation)

    def plan(self, operation: Operation) -> Plan:
        """Return the plan of an operation, from the cache unless ``solver.forcing`` forces a solver.

        Operations that differ only in scalars share a plan, where their kernels take the scalars as arguments.
        """
        if is_forcing():
            return self._planned(operation)
        shared, values = without_values(operation)
        if values:
            try:
                found = self._cached(shared)
                if found is not None:
                    return found.with_scalars(values)
            except ValueNeeded:
                self.plans[shared] = None
        return self.plan_of_values(operation)

    def plan_of_values(self, operation: Operation) -> Plan:
        """Return the plan of an operation that depends on the values of its scalars."""
        found = self._cached(operation)
        assert found is not None
        return found

    def _cached(self, operation: Operation) -> Plan | None:
        """Return the cached plan of an operation, made if needed; None where plans depend on the scalars' values."""
        found = self.plans.pop(operation, _NONE)
        if found is _NONE:
            found = self._planned(operation)
        while len(self.plans) >= PLANS_KEPT:
            self.plans.pop(next(iter(tuple(self.plans)[:1]), operation), None)
        self.plans[operation] = found  # The dictionary is ordered by last use.
        return found

    def _planned(self, operation: Operation) -> Plan:
        require_level(operation, self.reproducible)
        return plan(operation, self.planned_on)

    def solvers(self, operation: Operation) -> tuple[str, ...]:
        """Return the names of the solvers that can serve an operation, in order of preference."""
        return possible_solvers(operation, self.planned_on)

    def workspace_bytes(self, operation: Operation) -> int:
        return workspace_bytes(operation, self.planned_on)

    def preferred_algorithms(self, operations: Sequence[Operation]) -> list[Operation]:
        """Return operations ordered by expected speed; above level RUN, their canonical operations decide the order."""
        if self.reproducible == RUN:
            return sorted(operations, key=lambda operation: estimated_seconds(operation, self.device))
        return sorted(operations, key=self._canonical_rank)

    def _canonical_rank(self, operation: Any) -> tuple[bool, float]:
        """Return by what a level ranks an operation, without its batch: estimated seconds of its canonical operation.

        A graph ranks as the one operation that it is to its engine. Other graphs follow, the last engine first.
        """
        if isinstance(operation, OperationGraph):
            if operation.single is None:
                return True, -operation.engine
            operation = operation.single.operation
        return False, estimated_seconds(canonical_operation(operation), self.planned_on)

    def in_one_order(self, operations: Sequence[Operation]) -> list[Operation]:
        """Return the operations that add in the order of the preferred one; at level RUN return all.

        If a search chose another order because it is faster, results would depend on the batch and the device.
        """
        if self.reproducible == RUN or not operations:
            return list(operations)
        orders = {}
        for operation in operations:
            with suppress(Unsupported):  # Nothing adds it in an order of the level.
                orders[operation] = summation_order(operation, self.planned_on)
        return [o for o in orders if orders[o] == orders[self.preferred_algorithms(list(orders))[0]]]

    def graph_solvers(self, operation: Any) -> tuple[str, ...]:
        """Return the names of the solvers that the engine knob of an operation graph selects from."""
        return () if operation.single is None else possible_solvers(operation.single.operation, self.planned_on)

    def algorithm_time(
        self, operation: Operation, operands: Sequence[Any], stream: Any, timed: dict[Any, float] | None = None
    ) -> float:
        """Return the milliseconds of the fastest of a few runs, after a run for compiling and warming up.

        A time that was measured on such a device before is returned without a run, unless the device measures anew.
        timed: gets the milliseconds of the launches. Operations with the same launches get its time without a run, so
        that noise does not order them.
        """
        choices = None if self.device.measures_anew else self.device.choices
        known = choices.find(operation, self.reproducible) if choices else None
        if known is not None:
            return known
        launch, timed = self.prepare(operation), {} if timed is None else timed
        for step, _ in launch.plan.steps:
            step.wait_for_kernel()
        record = launch.recorded([0 if operand is None else operand.address for operand in operands])
        if record.work not in timed:
            start, *_ = launch.bound(operands)
            timed[record.work] = 1e3 * self._seconds(start, record, stream or self.device.default_stream)
        milliseconds = timed[record.work]
        if choices:
            choices.keep(operation, milliseconds, self.reproducible)
        return milliseconds

    def _seconds(self, start: Launching, record: Record, stream: Stream) -> float:
        """Return the device time of a launch in seconds.

        For launches so short that the host's time would dominate, this times graphs of several launches.
        """
        clock = Clock(self.device, stream)
        start(stream)
        if self.device.kind == "emulated":
            return clock.seconds(lambda: start(stream))
        seconds = min(clock.seconds(lambda: start(stream)) for _ in range(TIMED_RUNS))
        if seconds > SHORT_SECONDS or not record.is_capturable:
            return seconds
        stream.synchronize()
        capturing = self.device.new_stream()  # The caller's may be the default stream, which cannot be captured.
        return Clock(self.device, capturing).median(lambda: start(capturing), GRAPH_RUNS, TIMED_RUNS)

    def new_stream(self) -> Stream:
        return self.device.new_stream()

    def stream(self, value: Any) -> Stream | None:
        if value is None:
            return None
        if isinstance(value, Stream):
            if value.device is not self.device:
                raise ValueError(f"belongs to {value.device.name}, the handle's device is {self.device.name}")
            return value
        handle = getattr(value, "handle", value)  # It is a PyCUDA stream, or the integer value of a cudaStream_t.
        if self.device.adopts_streams and isinstance(handle, int):
            return self.device.adopt_stream(handle)
        if hasattr(value, "synchronize"):
            raise ValueError("belongs to another device")
        raise TypeError(f"is a {type(value).__name__}, not a stream of {self.device.name}")

    def finished(self, stream: Any) -> bool:
        return (stream or self.device.default_stream).done()

    def synchronize(self, stream: Any) -> None:
        (stream or self.device.default_stream).synchronize()

    def close(self) -> None:
        """Do nothing: other handles share the device and its plans."""


class _Launcher:
    """Run a plan. Raises BackendError where a launch fails.

    records: the plan's records by likeness of addresses. meanwhile: a temporary record while a kernel is compiled, as
    (finished compilations, likeness, record).
    """

    __slots__ = ("backend", "meanwhile", "operation", "plan", "records")

    def __init__(self, backend: AcceleratedBackend, operation: Operation) -> None:
        self.backend, self.operation, self.plan = backend, operation, backend.plan(operation)
        self.records = Answers(RECORDS_KEPT)
        self.meanwhile: tuple[int, tuple[int, ...], Record] | None = None

    def __call__(self, operands: Sequence[Any], stream: Any) -> None:
        self.bound(operands)[0](stream)

    def bound(self, operands: Sequence[Any]) -> tuple[Launching, bool, bool]:
        """Return the launches on these operands as one function, whether later calls may use it, too, and whether it is
        one kernel."""
        addresses = [0 if operand is None else operand.address for operand in operands]
        record = self.recorded(addresses)
        launches = record.bound(addresses)
        if len(launches) == 1:
            return launches[0], record.final, record.is_capturable

        def start(stream: Any) -> None:
            for launch in launches:
                launch(stream)

        return start, record.final, False

    def recorded(self, addresses: Sequence[int]) -> Record:
        """Return the record for operands at these addresses."""
        like, finished = likeness(addresses), self.backend.device.background.finished
        if self.meanwhile is not None and self.meanwhile[:2] == (finished, like):
            return self.meanwhile[2]
        found = self.records.get(like) or self._made(addresses)
        if found.final:
            self.records.keep(like, found)
            self.meanwhile = None
        else:
            self.meanwhile = (finished, like, found)
        return found

    def _made(self, addresses: Sequence[int]) -> Record:
        try:
            return Record.of(self.plan, addresses)
        except ValueNeeded:  # The fallback of the plan depends on the scalars' values.
            self.plan = self.backend.plan_of_values(self.operation)
            return Record.of(self.plan, addresses)


def _is_address(value: Any) -> bool:
    """Return whether a value stands for an address: a NumPy integer or an object of PyCUDA."""
    if isinstance(value, np.integer):
        return True
    return any(kind.__module__.partition(".")[0] == "pycuda" for kind in type(value).__mro__)


def _from_interface(interface: Any) -> tuple[int, int, bool]:
    """Return (address, bytes, whether it is writable) of a __cuda_array_interface__. Raises ValueError if invalid."""
    try:
        address, read_only = interface["data"]
        address, sizes = operator.index(address), [operator.index(size) for size in interface["shape"]]
        dtype = np.dtype(interface["typestr"])
        strided = interface.get("strides") is not None
    except Exception as error:
        raise ValueError(f"has a __cuda_array_interface__ that is none: {interface!r:.200}") from error
    if strided:
        raise ValueError("is a strided array; pass the base array, the descriptor holds the strides")
    nbytes = math.prod(sizes) * dtype.itemsize
    if min(sizes, default=0) < 0 or dtype.hasobject or not (0 < address < _ADDRESS_LIMIT or nbytes == 0 == address):
        raise ValueError(f"has a __cuda_array_interface__ that names no memory: {interface!r:.200}")
    return address, nbytes, not read_only
