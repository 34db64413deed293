"""The accelerated backend: device memory, cached plans, asynchronous launches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from dualdnn.api.operations import BackendError, Operation

from .plans import Plan, estimated_seconds, plan, workspace_bytes
from .runtime.device import Stream
from .runtime.devices import open_device
from .runtime.errors import DeviceError
from .runtime.timing import Clock
from .solver import is_forcing, possible_solvers

_ADDRESS_LIMIT = 2**64
TIMED_RUNS = 3


class DeviceBuffer:
    """Memory of a device."""

    writable = True

    def __init__(self, device: Any, nbytes: int) -> None:
        self.device = device
        try:
            self.memory = device.allocate(nbytes)
        except DeviceError as error:
            raise MemoryError(str(error)) from error
        self.address: int = self.memory.address
        self.nbytes = nbytes

    def to_host(self, dtype: Any, shape: Sequence[int] | int) -> np.ndarray[Any, Any]:
        """A copy of the first elements as an array of ``dtype`` and ``shape``, after all work of the device."""
        if self.memory is None:
            raise ValueError("the buffer was freed")
        dims = (shape,) if isinstance(shape, int) else tuple(shape)
        dtype = np.dtype(dtype)
        wanted = int(np.prod(dims, dtype=np.int64)) * dtype.itemsize
        if wanted > self.nbytes:
            raise ValueError(f"shape {dims} of {dtype} needs {wanted} bytes, the buffer has {self.nbytes}")
        self.device.synchronize()
        return np.frombuffer(self.device.download(self.address, wanted), dtype).reshape(dims)

    def slice(self, offset: int, nbytes: int) -> DeviceOperand:
        """``nbytes`` bytes of the buffer from ``offset``, as an operand; it keeps the memory until the buffer is freed."""
        if self.memory is None:
            raise ValueError("the buffer was freed")
        if offset < 0 or nbytes < 0 or offset + nbytes > self.nbytes:
            raise ValueError(f"bytes {offset} to {offset + nbytes} are not inside a buffer of {self.nbytes} bytes")
        return DeviceOperand(self.address + offset, nbytes, memory=self.memory)

    def free(self) -> None:
        if self.memory is None:
            raise ValueError("the buffer was freed already")
        self.memory.free()
        self.memory = None


class DeviceOperand:
    """Device memory that the caller owns."""

    __slots__ = ("address", "memory", "nbytes", "writable")

    def __init__(self, address: int, nbytes: int | None, writable: bool = True, memory: Any = None) -> None:
        self.address, self.nbytes, self.writable, self.memory = address, nbytes, writable, memory


class AcceleratedBackend:
    """Runs operations as CUDA kernels, on the GPU or on the emulated device."""

    name = "accelerated"

    def __init__(self, kind: str) -> None:
        self.device = open_device(kind)
        self.description = f"accelerated ({self.device.name})"
        self.plans: dict[Operation, Plan] = self.device.__dict__.setdefault("plans", {})

    def allocate(self, nbytes: int) -> DeviceBuffer:
        return DeviceBuffer(self.device, nbytes)

    def to_device(self, array: Any) -> DeviceBuffer:
        buffer = DeviceBuffer(self.device, array.nbytes)
        self.device.upload(buffer.address, array.reshape(-1).view(np.uint8))
        self.device.default_stream.synchronize()  # the caller may change pinned memory from here on
        return buffer

    def zeros(self, nbytes: int) -> DeviceBuffer:
        buffer = DeviceBuffer(self.device, nbytes)
        self.device.fill(buffer.address, nbytes, 0)
        return buffer

    def operand(self, value: Any) -> Any:
        if type(value) is DeviceOperand:
            return value
        if type(value) is DeviceBuffer:
            if value.memory is None:
                raise ValueError("was freed")
            if value.device is not self.device:
                raise ValueError(f"lies on {value.device.name}, the handle's device is {self.device.name}")
            return value
        interface = getattr(value, "__cuda_array_interface__", None)
        if interface is not None:
            return _from_interface(interface)
        try:
            address = None if isinstance(value, (float, str, bytes)) else int(value)
        except (TypeError, ValueError):
            address = None
        if address is None:
            raise TypeError(
                f"is a {type(value).__name__}, not device memory (a buffer of the handle, an object with"
                " __cuda_array_interface__, a PyCUDA allocation or an address)"
            )
        if not 0 < address < _ADDRESS_LIMIT:
            raise ValueError(f"is {address}, not the address of device memory")
        return DeviceOperand(address, getattr(value, "nbytes", None))

    def prepare(self, operation: Operation) -> _Launcher:
        return _Launcher(self.plan(operation))

    def plan(self, operation: Operation) -> Plan:
        """Return the plan of an operation, from the cache where no solver is forced by ``solver.forcing``."""
        if is_forcing():
            return plan(operation, self.device)
        found = self.plans.get(operation)
        if found is None:
            found = self.plans[operation] = plan(operation, self.device)
        return found

    def solvers(self, operation: Operation) -> tuple[str, ...]:
        """Return the names of the solvers that can serve an operation, in the order of their room."""
        return possible_solvers(operation, self.device)

    def workspace_bytes(self, operation: Operation) -> int:
        return workspace_bytes(operation, self.device)

    def preferred_algorithms(self, operations: Sequence[Operation]) -> list[Operation]:
        return sorted(operations, key=lambda operation: estimated_seconds(operation, self.device))

    def algorithm_time(self, operation: Operation, operands: Sequence[Any], stream: Any) -> float:
        """The shortest of a few runs, by the device's clock; a run before them compiles and warms up."""
        launch = self.prepare(operation)
        try:
            for step, _ in launch.plan.steps:
                step.wait_for_kernel()
            clock = Clock(self.device, stream or self.device.default_stream)
            launch(operands, stream)
            runs = 1 if self.device.kind == "emulated" else TIMED_RUNS
            return 1e3 * min(clock.seconds(lambda: launch(operands, stream)) for _ in range(runs))
        except DeviceError as error:
            raise BackendError(str(error)) from error

    def new_stream(self) -> Stream:
        return self.device.new_stream()

    def stream(self, value: Any) -> Stream | None:
        if value is None:
            return None
        if isinstance(value, Stream):
            if value.device is not self.device:
                raise ValueError(f"belongs to {value.device.name}, the handle's device is {self.device.name}")
            return value
        handle = getattr(value, "handle", value)  # a PyCUDA stream, or the number of a cudaStream_t
        if self.device.kind == "gpu" and isinstance(handle, int):
            return self.device.adopt_stream(handle)
        if hasattr(value, "synchronize"):
            raise ValueError("belongs to another device")
        raise TypeError(f"is a {type(value).__name__}, not a stream of {self.device.name}")

    def finished(self, stream: Any) -> bool:
        return (stream or self.device.default_stream).done()

    def synchronize(self, stream: Any) -> None:
        try:
            (stream or self.device.default_stream).synchronize()
        except DeviceError as error:
            raise BackendError(str(error)) from error

    def close(self) -> None:
        """The device and its plans stay for other handles."""


class _Launcher:
    """Runs a plan; a failing launch is a ``BackendError``."""

    __slots__ = ("plan",)

    def __init__(self, found: Plan) -> None:
        self.plan = found

    def __call__(self, operands: Sequence[Any], stream: Any) -> None:
        try:
            self.plan(operands, stream)
        except DeviceError as error:
            raise BackendError(str(error)) from error


def _from_interface(interface: dict[str, Any]) -> DeviceOperand:
    address, read_only = interface["data"]
    if interface.get("strides") is not None:
        raise ValueError("is a strided array; pass the base array, the descriptor holds the strides")
    nbytes = int(np.prod(interface["shape"], dtype=np.int64)) * np.dtype(interface["typestr"]).itemsize
    return DeviceOperand(int(address), nbytes, not read_only)
