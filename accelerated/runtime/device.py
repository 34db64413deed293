"""What a device is, whichever it is: memory, streams, kernels. gpu.py and emulated/ are the two there are."""

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
from .scratch import Scratch
from .tensor_map import TensorMap

MAXIMUM_GRID = (2**31 - 1, 65535, 65535)
MAXIMUM_BLOCK = (1024, 1024, 64)

Dimensions = tuple[int, ...]


def reaches(device: Any, capability: int) -> bool:
    """Return whether a device has what GPUs of a compute capability have (90: 9.0); the emulated device has all."""
    return device.kind != "gpu" or int(device.architecture.removeprefix("sm_")) >= capability


def concurrent_multiprocessors(device: Any) -> int:
    """Return on how many multiprocessors blocks run at the same time, so that they may wait for each other: one on the
    emulated device, which runs one block after the other however many it divides work among."""
    return int(device.multiprocessors) if device.kind == "gpu" else 1


def bytes_of_lone_block(device: Any) -> int:
    """Return so many bytes of shared memory that a multiprocessor has no room for another block of as many."""
    return -(-int(device.shared_bytes_per_block) // 2)


def bytes_to_spread(device: Any, blocks: int) -> int:
    """Return the bytes of shared memory with which so many blocks go to a multiprocessor each, 0 where they are too
    many: a launch that begins early puts its first blocks where the kernel before leaves room, which may be few."""
    return bytes_of_lone_block(device) if blocks <= device.multiprocessors else 0


_ONLY_BUILT: ContextVar[bool] = ContextVar("only built", default=False)


@contextlib.contextmanager
def only_built() -> Iterator[None]:
    """Kernels that are asked for in this scope are not compiled: NotBuilt is raised where a module is not there."""
    token = _ONLY_BUILT.set(True)
    try:
        yield
    finally:
        _ONLY_BUILT.reset(token)


def is_only_built() -> bool:
    """Return whether a scope of ``only_built`` is open."""
    return _ONLY_BUILT.get()


class LaunchShape(NamedTuple):
    """Blocks and threads of a launch, bytes of dynamic shared memory of a block. cooperative: all blocks run at the
    same time, or the launch fails."""

    grid: Dimensions
    block: Dimensions
    shared_bytes: int = 0
    cooperative: bool = False


class Memory(ABC):
    """Device memory; freed with its last reference, or before that by free()."""

    address: int
    nbytes: int
    freed = False

    def free(self) -> None:
        if self.freed:
            raise ValueError(f"the memory at {self.address:#x} ({self.nbytes} bytes) was freed already")
        self.freed = True
        self._release()

    @abstractmethod
    def _release(self) -> None: ...

    def __del__(self) -> None:
        if not self.freed and hasattr(self, "address"):
            self.freed = True
            self._release()


class Stream(ABC):
    """A queue of work, done in order."""

    handle: int
    device: Device

    @abstractmethod
    def synchronize(self) -> None:
        """Waits for all work of the stream."""

    @abstractmethod
    def done(self) -> bool:
        """Whether all work of the stream has finished."""

    def capture(self) -> int:
        """Return the number of the capture of the stream, 0 where its work is done."""
        return 0


class NativeLaunch(NamedTuple):
    """A kernel as the driver's launches take it: its handle, three sizes each, bytes of shared memory, and which
    attributes the launch has."""

    handle: int
    grid: Dimensions
    block: Dimensions
    shared_bytes: int
    cooperative: bool
    overlaps: bool


class Function(ABC):
    """A compiled kernel. It takes one structure, passed as its bytes."""

    name: str
    module = ""  # the source that it is compiled from, with the definitions
    device: Device
    argument_bytes: int
    maximum_threads: int
    static_shared_bytes: int
    fields: dict[str, Field]  # of the structure

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
        """Launch with a structure of arguments, in a shape as LaunchShape has it."""
        shape = LaunchShape(grid, block, shared_bytes, cooperative)
        self.check(len(arguments), shape)
        self.issue(arguments, shape, stream)

    def check(self, argument_bytes: int, shape: LaunchShape) -> None:
        """Raise TypeError or ValueError unless the kernel takes so many bytes of arguments and such a shape."""
        if argument_bytes != self.argument_bytes:
            raise TypeError(
                f"arguments: {self.name} takes a structure of {self.argument_bytes} bytes, not {argument_bytes}"
            )
        grid, block, shared_bytes, _ = shape
        for name, sizes, limits in (("grid", grid, MAXIMUM_GRID), ("block", block, MAXIMUM_BLOCK)):
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
        """Return the fields of the structure by name. numbers: the offset and the size of each, in bytes."""
        pairs = zip(numbers[::2], numbers[1::2], strict=False)
        return {name: Field(*pair) for name, pair in zip(names.split(","), pairs, strict=False) if name}

    def require_fields(self, structure: type[ctypes.Structure]) -> None:
        """Raise TypeError unless the host's structure has its fields where the kernel's has them."""
        if structure in self._matching:
            return
        if self.fields and (found := difference(self.fields, host_fields(structure))):
            raise TypeError(f"arguments: {self.name}: {found}")
        self._matching.add(structure)

    def holds_clusters(self, grid: Dimensions, block: Dimensions, shared_bytes: int, clusters: int = 1) -> bool:
        """Whether the device has room for so many clusters of this kernel at a time, which may be larger than every GPU
        allows.

        They can be launched from then on.
        """
        return False

    @abstractmethod
    def issue(self, arguments: bytes | bytearray, shape: LaunchShape, stream: Stream | None) -> None:
        """Launch with arguments and in a shape that were checked."""

    def in_shape(self, shape: LaunchShape) -> Callable[[bytes, Stream | None], None]:
        """Return what launches the kernel in a shape with arguments on a stream, many times."""
        return lambda arguments, stream: self.issue(arguments, shape, stream)

    def native(self, shape: LaunchShape) -> NativeLaunch | None:
        """Return how C launches the kernel in a shape; None where Python alone can."""
        return None


class Device(ABC):
    """Where memory lies and kernels run."""

    name: str
    kind: str
    architecture: str
    multiprocessors: int
    shared_bytes_per_block: int
    default_stream: Stream
    adopts_streams = True  # the device takes streams that others made, by their numbers
    knows_extents = False  # the device cannot say how large the memory behind an address is
    native_context = 0  # the driver's context in which C launches kernels; 0: Python alone launches
    compiles_in_background = True  # for whoever has another kernel meanwhile
    choices: Choices | None = None  # times that searches measured, where those of other processes count
    measures_anew = False  # searches measure whatever is known, for whoever judges or reports times

    def __init__(self) -> None:
        self.background = Background()
        self._functions: dict[tuple[str | Path, str, Definitions], Function] = {}
        self._modules: dict[tuple[str | Path, Definitions], Any] = {}
        self._refused: dict[tuple[str | Path, Definitions], CompileError] = {}  # not compiled again
        self._finding = free_in_children(threading.Lock())
        self._compiling: dict[tuple[str | Path, Definitions], threading.Lock] = {}
        self.scratch = Scratch(self)

    @abstractmethod
    def allocate(self, nbytes: int) -> Memory:
        """New memory, of undefined content."""

    def extent(self, address: int) -> int | None:
        """Bytes from an address to the end of its allocation; None where the device does not know.

        ``ValueError`` where the address is in no allocation of the device.
        """
        return None

    @abstractmethod
    def upload(self, address: int, data: Any, stream: Stream | None = None) -> None:
        """Copies bytes-like data to the device. Pinned memory must stay unchanged until the stream has come by."""

    @abstractmethod
    def download(self, address: int, nbytes: int, stream: Stream | None = None) -> bytearray:
        """A copy of device memory, after the work of the stream."""

    @abstractmethod
    def fill(self, address: int, nbytes: int, byte: int, stream: Stream | None = None) -> None: ...

    @abstractmethod
    def copy(self, destination: int, source: int, nbytes: int, stream: Stream | None = None) -> None:
        """Copies within the device; the ranges do not overlap."""

    @abstractmethod
    def new_stream(self) -> Stream: ...

    @abstractmethod
    def adopt_stream(self, handle: int) -> Stream:
        """A stream that somebody else made and destroys."""

    @abstractmethod
    def synchronize(self) -> None:
        """Waits for all work of all streams."""

    @abstractmethod
    def tensor_map(self, wanted: TensorMap, address: int) -> bytes:
        """The description of a tensor at an address for TMA (compute capability 9.0)."""

    def function(self, source_name: str | Path, kernel_name: str, definitions: Definitions = ()) -> Function:
        """A kernel of a source, a file name in accelerated/kernels or an absolute path, under definitions of macros."""
        key = (source_name, kernel_name, definitions)
        if found := self._functions.get(key):
            return found
        wanted = (source_name, self.module_definitions(source_name, kernel_name, definitions))
        with self._finding:
            compiling = self._compiling.setdefault(wanted, free_in_children(threading.Lock()))
        with compiling:  # whoever needs another module does not wait
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
        """The definitions of the module that a kernel is in."""
        return definitions

    def function_when_ready(
        self, source_name: str | Path, kernel_name: str, definitions: Definitions = ()
    ) -> Function | None:
        """As function(), but None while its module is compiled in the background, which the first call begins."""
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
        """As function_when_ready(), but None, too, where the module cannot be had: for whoever has another kernel."""
        try:
            return self.function_when_ready(source_name, kernel_name, definitions)
        except DeviceUnavailable as error:
            if isinstance(error, NotBuilt) and is_only_built() and not self.obstacle():
                raise  # the room has all modules of its plan compiled together
            return None

    def obstacle(self) -> str:
        """Return why modules cannot be compiled for the device; empty where they can."""
        return obstacle(self.architecture)

    @property
    def waits_for_kernels(self) -> bool:
        """Whether a call waits for kernels that have to be compiled, though others might serve meanwhile."""
        return not self.compiles_in_background or policy() == "wait"

    def compile_in_background(self, wanted: tuple[str | Path, Definitions]) -> Task:
        """Begin to compile a module, unless that was begun; function() reports its errors."""
        item = module(*wanted)
        return self.background.begin(wanted, lambda: build(item, self.architecture))

    def _load(self, source_name: str | Path, definitions: Definitions) -> Any:
        """Builds and loads a module; a file that does not load is compiled again, once. Raises NotBuilt within
        ``only_built`` where it is not there."""
        wanted = module(source_name, definitions)
        found = existing(wanted, self.architecture)
        if found is None and is_only_built():
            raise NotBuilt(f"{wanted} is not compiled")
        path, content = found or build(wanted, self.architecture)
        try:
            return self._load_module(path, content)
        except DeviceError:
            return self._load_module(*build(wanted, self.architecture, rebuild=True))

    @abstractmethod
    def _load_module(self, path: Path, content: bytes) -> Any: ...

    @abstractmethod
    def _find(self, module: Any, kernel_name: str) -> Function: ...


def bytes_of(data: Any) -> memoryview:
    """The bytes of a bytes-like object."""
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
        raise ValueError(f"{name}={address} is no device address")
