"""Defines the interface of a device: its memory, streams and kernels. gpu.py and emulated/ implement it."""

from __future__ import annotations

import contextlib
import ctypes
import math
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NamedTuple

from dualdnn.api.operations.forks import free_in_children

from .arguments import Field, difference, host_fields
from .background import Background, Task
from .choices import Choices
from .compiler import Definitions, build, existing, is_built, module, obstacle, policy
from .errors import CompileError, DeviceError, DeviceUnavailable, NotBuilt
from .memory import DeviceMemory, Stream
from .scratch import Scratch
from .tensor_map import TensorMap

MAX_GRID = (2**31 - 1, 65535, 65535)
MAX_BLOCK = (1024, 1024, 64)

Dimensions = tuple[int, ...]


def reaches(device: Any, capability: int) -> bool:
    """Return whether a device has a compute capability (90 means 9.0); the emulated device has every one."""
    return device.kind != "gpu" or int(device.architecture.removeprefix("sm_")) >= capability


def concurrent_multiprocessors(device: Any) -> int:
    """Return the number of SMs whose blocks run at the same time and may therefore wait for each other.

    It is 1 on the emulated device, which runs its blocks one after the other whatever ``multiprocessors`` says.
    """
    return int(device.multiprocessors) if device.kind == "gpu" else 1


def resident_multiprocessors(device: Any) -> int:
    """Return concurrent_multiprocessors() of the device itself, which bounds the grid of a cooperative launch."""
    own = int(getattr(device, "own_multiprocessors", device.multiprocessors))
    return own if device.kind == "gpu" else 1


def smem_for_one_block_per_sm(device: Any) -> int:
    """Return the dynamic shared memory, in bytes per block, that limits the occupancy to one block per SM."""
    return -(-int(device.shared_bytes_per_block) // 2)


def bytes_to_spread(device: Any, blocks: int) -> int:
    """Return the shared memory, in bytes per block, that puts each block on its own SM; 0 for too many blocks.

    Without it, a dependent launch that starts early crowds its blocks on the few SMs that the previous kernel has left.
    """
    return smem_for_one_block_per_sm(device) if blocks <= device.multiprocessors else 0


_ONLY_BUILT: ContextVar[bool] = ContextVar("only built", default=False)


@contextlib.contextmanager
def only_built() -> Iterator[None]:
    """Forbid compiling within the block: a kernel whose module is not compiled raises NotBuilt."""
    token = _ONLY_BUILT.set(True)
    try:
        yield
    finally:
        _ONLY_BUILT.reset(token)


def is_only_built() -> bool:
    """Return whether the caller is inside a block of ``only_built``."""
    return _ONLY_BUILT.get()


class LaunchShape(NamedTuple):
    """Hold the shape of a launch: blocks per grid, threads per block, and bytes of dynamic shared memory per block.

    cooperative: all blocks run at the same time, or the launch fails.
    """

    grid: Dimensions
    block: Dimensions
    shared_bytes: int = 0
    cooperative: bool = False


class NativeLaunch(NamedTuple):
    """Hold the arguments of a driver launch: the handle, three sizes of grid and block, shared bytes and attributes."""

    handle: int
    grid: Dimensions
    block: Dimensions
    shared_bytes: int
    cooperative: bool
    overlaps: bool


Launching = Callable[[Stream | None], None]  # It launches a kernel on a stream.


class Function(ABC):
    """Represent a compiled kernel, which takes one structure, passed as its bytes."""

    name: str
    module = ""  # source file and macro definitions of the kernel, as text
    device: Device
    argument_bytes: int
    maximum_threads: int
    static_shared_bytes: int
    fields: dict[str, Field]  # fields of the argument structure by name

    def __init__(self) -> None:
        self._matching: weakref.WeakSet[type[ctypes.Structure]] = weakref.WeakSet()

    def launch(
        self,
        arguments: bytes | bytearray,
        grid: Dimensions,
        block: Dimensions,
        shared_bytes: int = 0,
        stream: Stream | None = None,
        cooperative: bool = False,
    ) -> None:
        """Launch the kernel with the bytes of its argument structure. LaunchShape describes the other parameters."""
        shape = LaunchShape(grid, block, shared_bytes, cooperative)
        self.check(len(arguments), shape)
        self.issue(arguments, shape, stream)

    def check(self, argument_bytes: int, shape: LaunchShape) -> None:
        """Raise TypeError for a wrong number of argument bytes, and ValueError for a shape that cannot be launched."""
        if argument_bytes != self.argument_bytes:
            raise TypeError(
                f"arguments: {self.name} takes a structure of {self.argument_bytes} bytes, not {argument_bytes}"
            )
        grid, block, shared_bytes, _ = shape
        for name, sizes, limits in (("grid", grid, MAX_GRID), ("block", block, MAX_BLOCK)):
            if not 1 <= len(sizes) <= 3:
                raise ValueError(f"{name}={sizes} of {self.name}: expected 1 to 3 sizes")
            for size, limit in zip(sizes, limits, strict=False):
                if not 1 <= size <= limit:
                    raise ValueError(f"{name}={sizes} of {self.name}: sizes are 1 to {limits[: len(sizes)]}")
        threads = math.prod(block)
        if threads > self.maximum_threads:
            raise ValueError(
                f"block={block} of {self.name}: {threads} threads, at most {self.maximum_threads} are possible"
            )
        available = self.device.shared_bytes_per_block - self.static_shared_bytes
        if not 0 <= shared_bytes <= available:
            raise ValueError(f"shared_bytes={shared_bytes} of {self.name}: 0 to {available} are possible")

    @staticmethod
    def _fields(names: str, numbers: Sequence[int]) -> dict[str, Field]:
        """Return the fields of the structure by name. numbers: offset and size of each field in bytes, alternately."""
        pairs = zip(numbers[::2], numbers[1::2], strict=False)
        return {name: Field(*pair) for name, pair in zip(names.split(","), pairs, strict=False) if name}

    def require_fields(self, structure: type[ctypes.Structure]) -> None:
        """Raise TypeError unless the fields of the host's structure match the kernel's in offset and size."""
        if structure in self._matching:
            return
        if self.fields and (found := difference(self.fields, host_fields(structure))):
            raise TypeError(f"arguments: {self.name}: {found}")
        self._matching.add(structure)

    def holds_clusters(self, grid: Dimensions, block: Dimensions, shared_bytes: int, clusters: int = 1) -> bool:
        """Return whether the device can run ``clusters`` clusters of this kernel at a time.

        The call also allows cluster sizes that are not portable, so that they can be launched afterwards.
        """
        return False

    @abstractmethod
    def issue(self, arguments: bytes | bytearray, shape: LaunchShape, stream: Stream | None) -> None:
        """Launch with arguments and a shape that check() has accepted."""

    def in_shape(self, shape: LaunchShape) -> Callable[[bytes], Launching]:
        """Return a function of arguments. It returns a function of a stream, which launches the kernel with them."""
        return lambda arguments: lambda stream: self.issue(arguments, shape, stream)

    def native(self, shape: LaunchShape) -> NativeLaunch | None:
        """Return the driver's arguments for launching from C; None where only Python can launch the kernel."""
        return None


class Device(DeviceMemory):
    """Define what a device offers: memory, streams, copies, and kernels that are compiled when first used."""

    kind: str
    architecture: str
    multiprocessors: int
    shared_bytes_per_block: int
    native_context = 0  # driver context in which C launches kernels; 0 where only Python launches
    compiles_in_background = True  # whether a fallback kernel serves while a module is compiled
    choices: Choices | None = None  # times that searches of other processes measured; None where they are not used
    measures_anew = False  # whether searches ignore known times, as benchmarks need

    def __init__(self) -> None:
        self.background = Background()
        self._functions: dict[tuple[str | Path, str, Definitions], Function] = {}
        self._modules: dict[tuple[str | Path, Definitions], Any] = {}
        self._refused: dict[tuple[str | Path, Definitions], CompileError] = {}  # errors of modules, never retried
        self._finding = free_in_children(threading.Lock())
        self._compiling: dict[tuple[str | Path, Definitions], threading.Lock] = {}
        self.scratch = Scratch(self)

    @abstractmethod
    def tensor_map(self, wanted: TensorMap, address: int) -> bytes:
        """Return the encoded TMA tensor map of a tensor at an address (compute capability 9.0)."""

    def function(self, source_name: str | Path, kernel_name: str, definitions: Definitions = ()) -> Function:
        """Return a kernel compiled with macro definitions. source_name: a path below accelerated/, or an absolute one.

        Raises CompileError where the compiler refuses the source, and DeviceUnavailable where it cannot be compiled.
        """
        key = (source_name, kernel_name, definitions)
        if found := self._functions.get(key):
            return found
        wanted = (source_name, self.module_definitions(source_name, kernel_name, definitions))
        with self._finding:
            compiling = self._compiling.setdefault(wanted, free_in_children(threading.Lock()))
        with compiling:  # Threads that need other modules do not wait.
            if refused := self._refused.get(wanted):
                raise CompileError(refused.source, refused.definitions, refused.output)
            if wanted not in self._modules:
                try:
                    self._modules[wanted] = self._load(*wanted)
                except CompileError as error:
                    self._refused[wanted] = error
                    raise
            if key not in self._functions:
                found = self._find(self._modules[wanted], kernel_name)
                found.module = str(module(*wanted))
                self._functions[key] = found
        return self._functions[key]

    def module_definitions(self, source_name: str | Path, kernel_name: str, definitions: Definitions) -> Definitions:
        """Return the macro definitions of the module that contains a kernel."""
        return definitions

    def function_when_ready(
        self, source_name: str | Path, kernel_name: str, definitions: Definitions = ()
    ) -> Function | None:
        """Return function(), or None while its module is compiled in the background; the first call begins that.

        Raises NotBuilt where the module is missing and cannot be compiled.
        """
        wanted = (source_name, self.module_definitions(source_name, kernel_name, definitions))
        compiling = self.background.find(wanted)
        if compiling is None and self.compiles_in_background and wanted not in self._modules:
            item = module(*wanted)
            if not is_built(item, self.architecture):
                if reason := self.obstacle():
                    raise NotBuilt(f"{item} is not compiled: {reason}")
                if policy() != "wait":
                    compiling = self.compile_in_background(wanted)
        if compiling is not None and compiling.is_alive():
            return None
        return self.function(source_name, kernel_name, definitions)

    def optional_function(
        self, source_name: str | Path, kernel_name: str, definitions: Definitions = ()
    ) -> Function | None:
        """Return function_when_ready(), or None where the module is unavailable, for callers that have a fallback."""
        try:
            return self.function_when_ready(source_name, kernel_name, definitions)
        except DeviceUnavailable as error:
            if isinstance(error, NotBuilt) and is_only_built() and not self.obstacle():
                raise  # The caller then compiles all modules of its plan together.
            return None

    def obstacle(self) -> str:
        """Return why modules cannot be compiled for the device; empty where they can."""
        return obstacle(self.architecture)

    @property
    def waits_for_kernels(self) -> bool:
        """Return whether a call waits for the compiler although fallback kernels could serve."""
        return not self.compiles_in_background or policy() == "wait"

    def compile_in_background(self, wanted: tuple[str | Path, Definitions]) -> Task:
        """Begin to compile a module unless that was begun before. function() reports the errors."""
        item = module(*wanted)
        return self.background.begin(wanted, lambda: build(item, self.architecture))

    def _load(self, source_name: str | Path, definitions: Definitions) -> Any:
        """Build and load a module; compile it again, once, where its file does not load.

        Raises NotBuilt where its file does not load and nothing compiles, and within ``only_built`` where the module is
        not compiled.
        """
        wanted = module(source_name, definitions)
        found = existing(wanted, self.architecture)
        if found is None and is_only_built():
            raise NotBuilt(f"{wanted} is not compiled")
        path, content = found or build(wanted, self.architecture)
        try:
            return self._load_module(path, content)
        except DeviceError as error:
            if reason := self.obstacle():
                raise NotBuilt(f"{wanted} cannot be loaded ({error}): {reason}") from error
            return self._load_module(*build(wanted, self.architecture, rebuild=True))

    @abstractmethod
    def _load_module(self, path: Path, content: bytes) -> Any: ...

    @abstractmethod
    def _find(self, module: Any, kernel_name: str) -> Function: ...


def bytes_of(data: Any) -> memoryview:
    """Return the bytes of a bytes-like object. Raises ValueError unless it is C-contiguous."""
    view = memoryview(data)
    if not view.nbytes:
        return memoryview(b"")
    if not view.c_contiguous:
        raise ValueError(f"data: shape {view.shape} with strides {view.strides} is not C-contiguous")
    return view.cast("B")


def check_range(address: int, nbytes: int, name: str = "address") -> None:
    if nbytes < 0:
        raise ValueError(f"nbytes={nbytes}: expected 0 or more")
    if address <= 0 and nbytes:
        raise ValueError(f"{name}={address} is not a device address")
