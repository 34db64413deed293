"""Plans: the kernel launches of an operation, with arguments that are packed once.

An implementation is a function of (operation, device) that returns a ``Plan``; plans are cached by operation, so it
may take its time. What a plan launches is a record (records.py), in which only addresses are missing.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import lru_cache
from typing import Any, NamedTuple, Self

from dualdnn.api.operations import Operation
from dualdnn.api.operations.specs import BFLOAT16, DOUBLE, FLOAT, HALF, INT8, INT32, UINT8

from . import records
from .records import NULL, KernelStep, Record, UploadStep, Where
from .runtime import fallbacks
from .runtime.device import Function, LaunchShape
from .runtime.errors import DeviceUnavailable
from .scalars import Note, Scalar, fill, scalars_of, with_values

Extent = tuple[int, int, int]

# C++ names of the stored types, as types.cuh spells them
ELEMENTS = {
    FLOAT: "float",
    DOUBLE: "double",
    HALF: "half",
    BFLOAT16: "bfloat16",
    INT8: "int8",
    UINT8: "uint8",
    INT32: "int32",
}
COMPUTES = {FLOAT: "float", DOUBLE: "double"}
WORKSPACE_ALIGNMENT = 16  # bytes, of what a kernel keeps in the caller's workspace


SCRATCH = "scratch"  # the operand of launches that need memory of the library's own


class Launch:
    """One kernel with its packed arguments.

    arguments: the structure that the kernel takes by value, pointers first. operands: the names of the operands whose
    addresses those pointers are. grid, block: blocks and threads. shared_bytes: of dynamic shared memory per block.
    cooperative: the blocks wait for each other, so that all of them run at the same time, one per multiprocessor.
    scratch_bytes: of the operand SCRATCH.
    """

    scratch_bytes = 0
    filled: Sequence[Note] = ()  # the scalars whose values ``with_scalars`` has written

    def __init__(
        self,
        function: Any,
        arguments: ctypes.Structure,
        operands: Sequence[str],
        grid: Extent,
        block: Extent = (256, 1, 1),
        shared_bytes: int = 0,
        cooperative: bool = False,
    ) -> None:
        self.function, self.operands = function, tuple(operands)
        self.grid, self.block, self.shared_bytes, self.cooperative = grid, block, shared_bytes, cooperative
        self.template, self.scalars = bytes(arguments), scalars_of(arguments)
        if isinstance(function, Function):  # which is compiled; kernels that are being compiled have none yet
            function.require_fields(type(arguments))

    def start(self, addresses: Sequence[int], stream: Any) -> None:
        """Launch on the operands at these addresses, asynchronously on the stream."""
        Record.of(self, addresses).start(addresses, stream)

    def record(self, record: Record, operands: Sequence[Where]) -> None:
        """Add what is launched on these operands."""
        record.add(KernelStep(self.function, self.template, self.shape, operands, scalars=self.filled))

    @property
    def shape(self) -> LaunchShape:
        """Blocks and threads, shared memory."""
        return LaunchShape(self.grid, self.block, self.shared_bytes, self.cooperative)

    def with_scalars(self, values: Mapping[str, float]) -> Self:
        """Return the launch with the scalars of one call among its arguments."""
        if not self.scalars:
            return self
        made = copy(self)
        made.template, made.scalars, made.filled = with_values(self.template, self.scalars, values), (), self.scalars
        return made

    def wait_for_kernel(self) -> None:
        """Wait until the launch's own kernel is compiled, where a fallback serves meanwhile."""


class BackgroundLaunch(Launch):
    """A launch whose kernel is compiled while another launch serves, which serves, too, where an operand is not
    aligned.

    module: the source of the kernel and its definitions. launch: the launch as it is once there is the kernel.
    fallback: the other one, of the first operands. alignment: of each operand, bytes of which its address must be a
    multiple.
    """

    def __init__(
        self,
        device: Any,
        module: tuple[str, tuple[tuple[str, str], ...]],
        kernel: str,
        launch: Launch,
        fallback: Launch | None,
        alignment: Sequence[int] = (),
    ) -> None:
        vars(self).update(vars(launch))
        self.device, self.module, self.kernel, self.fallback = device, module, kernel, fallback
        self.masks = masks(alignment)
        self.refused = False  # whether the kernel cannot be compiled

    def record(self, record: Record, operands: Sequence[Where]) -> None:
        """Add what is launched on these operands: by the fallback where one is not aligned, or there is no kernel."""
        if not self.falls_back(record, are_aligned(operands, self.masks), operands):
            super().record(record, operands)

    def falls_back(self, record: Record, aligned: bool, operands: Sequence[Where]) -> bool:
        """Return whether the fallback serves, and add what it launches: where an operand is not aligned, where the
        kernel is being compiled, or cannot be had. Without a fallback that is an error."""
        if self.function is None and not self.refused:
            self._have(self.ready_kernel)
        if self.fallback is None or (self.function is not None and aligned):
            return False
        record.final &= self.refused or not aligned
        self.fallback.record(record, operands[: len(self.fallback.operands)])
        return True

    def _have(self, ask: Callable[[], Any]) -> None:
        """Keep the kernel that is asked for, or note that it cannot be had."""
        try:
            self.function = ask()
        except DeviceUnavailable as error:
            if self.fallback is None:
                raise
            self.refused = True
            fallbacks.note(self.kernel, getattr(self.fallback.function, "name", "another kernel"), str(error))

    def ready_kernel(self) -> Any:
        """Return the kernel, None while it is being compiled."""
        source, definitions = self.module
        return self.device.function_when_ready(source, self.kernel, definitions)

    def with_scalars(self, values: Mapping[str, float]) -> Self:
        """Return the launch with the scalars of one call among its arguments and those of its fallback."""
        made = super().with_scalars(values)
        fallback = None if self.fallback is None else self.fallback.with_scalars(values)
        if fallback is self.fallback and made is self:
            return self
        made = copy(self) if made is self else made
        made.fallback = fallback
        return made

    def wait_for_kernel(self) -> None:
        """Wait until the kernel is compiled, so that the fallback does not serve in its stead."""
        source, definitions = self.module
        self._have(lambda: self.device.function(source, self.kernel, definitions))


class Launches(Launch):
    """Launches of the same operands, one after another, where one is asked for."""

    def __init__(self, launches: Sequence[Launch]) -> None:
        vars(self).update(vars(launches[0]))
        self.launches = tuple(launches)

    def record(self, record: Record, operands: Sequence[Where]) -> None:
        for launch in self.launches:
            launch.record(record, operands)

    def with_scalars(self, values: Mapping[str, float]) -> Self:
        launches = tuple(launch.with_scalars(values) for launch in self.launches)
        if launches == self.launches:
            return self
        made = copy(self)
        made.launches = launches
        return made


class Upload:
    """Bytes of the host that are copied into an operand, in the order of the stream, before the launches that read
    them."""

    scratch_bytes = 0
    function: Any = None  # no kernel

    def __init__(self, device: Any, data: bytes, operand: str, offset: int = 0) -> None:
        self.device, self.data, self.operands, self.offset = device, data, (operand,), offset

    def record(self, record: Record, operands: Sequence[Where]) -> None:
        """Add the copy into the operand."""
        record.add(UploadStep(self.device, self.data, operands[0].behind(self.offset)))

    def with_scalars(self, values: Mapping[str, float]) -> Self:
        """Return itself: it has none."""
        return self

    def wait_for_kernel(self) -> None:
        """There is none."""


class Plan:
    """The launches of one operation, in order, and the name of the solver that made them. values: of the scalars of one
    of the calls that share the launches; None where calls do not share them."""

    values: Mapping[str, float] | None = None

    def __init__(self, operation: Operation, launches: Sequence[Launch | Upload], solver: str = "") -> None:
        self.solver = solver
        # Where a launch finds its operands; one that the call does not have is the None behind them all.
        indices = {name: i for i, name in enumerate((*operation.operands, SCRATCH))}
        self.scratch_bytes = max((launch.scratch_bytes for launch in launches), default=0)
        self.steps = [(launch, tuple(indices.get(name, -1) for name in launch.operands)) for launch in launches]

    def __call__(self, operands: Sequence[Any], stream: Any) -> None:
        self.start([0 if operand is None else operand.address for operand in operands], stream)

    def start(self, addresses: Sequence[int], stream: Any) -> None:
        """Run on the operands at these addresses, 0 where the call has none."""
        Record.of(self, addresses).start(addresses, stream)

    def record(self, record: Record, operands: Sequence[Where]) -> None:
        """Add what is launched on these operands. Raises ``ValueNeeded`` where a fallback that is made for it cannot be
        shared by calls with other scalars."""
        if self.scratch_bytes:
            record.begin(self.scratch_bytes)
        known = [*operands, Where(records.SCRATCH, 0, 0), NULL]
        for launch, positions in self.steps:
            launch.record(record, [known[i] for i in positions])

    def with_scalars(self, values: Mapping[str, float]) -> Self:
        """Return the plan of one of the calls that share it. Raises ``ValueNeeded`` where calls cannot share it."""
        made = copy(self)
        made.steps = [(launch.with_scalars(values), positions) for launch, positions in self.steps]
        made.values = values
        return made


class AlignedPlan(Plan):
    """A plan whose operands begin at multiples of some bytes and do not share memory; elsewhere a fallback serves,
    which is made when it is needed first.

    alignment: bytes, by operand name. apart: pairs of operands that may not begin together.
    """

    def __init__(
        self,
        operation: Operation,
        first: Plan,
        alignment: Mapping[str, int],
        fallback: Callable[[], Plan],
        apart: Sequence[tuple[str, str]] = (),
    ) -> None:
        self.first, self.steps, self.solver = first, first.steps, first.solver
        self.scratch_bytes = 0  # the plans inside ask for their own
        self.masks = masks([alignment.get(name, 1) for name in operation.operands])
        indices = {name: i for i, name in enumerate(operation.operands)}
        self.apart = [(indices[first], indices[second]) for first, second in apart]
        self.fallback = fallback
        self.other: Plan | None = None

    def record(self, record: Record, operands: Sequence[Where]) -> None:
        apart = all(operands[first].value != operands[second].value for first, second in self.apart)
        plan = self.first if apart and are_aligned(operands, self.masks) else self._served_otherwise()
        plan.record(record, operands)

    def _served_otherwise(self) -> Plan:
        if self.other is None:
            self.other = self.fallback()
        return self.other

    def with_scalars(self, values: Mapping[str, float]) -> Self:
        made = copy(self)
        made.first = self.first.with_scalars(values)
        made.steps, made.other, made.values = made.first.steps, None, values
        made.fallback = lambda: self._served_otherwise().with_scalars(values)
        return made


def masks(alignment: Sequence[int]) -> list[int]:
    """Return the bits of addresses that are 0 in multiples of so many bytes. Raises ``ValueError`` for more bytes than
    addresses that are alike have in common."""
    if any(multiple > records.ALIKE for multiple in alignment):
        raise ValueError(f"alignment={alignment}: {records.ALIKE} bytes at most")
    return [multiple - 1 for multiple in alignment]


def are_aligned(operands: Sequence[Where], masks: Sequence[int]) -> bool:
    """Return whether no address has a bit of its mask."""
    return not any(operand.value & mask for operand, mask in zip(operands, masks, strict=False))


def workspace_aligned(value: int) -> int:
    """Return an address, or bytes from the beginning of what is used of a workspace, up to the next multiple of
    WORKSPACE_ALIGNMENT."""
    return value + -value % WORKSPACE_ALIGNMENT


def with_alignment(used: int) -> int:
    """Return the bytes of a workspace that may begin anywhere, of which ``used`` are used from its first multiple of
    WORKSPACE_ALIGNMENT on."""
    return used + WORKSPACE_ALIGNMENT - 1 if used else 0


class WorkspacePlan(Plan):
    """A plan whose workspace is the last operand."""

    def record(self, record: Record, operands: Sequence[Where]) -> None:
        super().record(record, [*operands[:-1], operands[-1].aligned(WORKSPACE_ALIGNMENT)])


class PlacedPlan(Plan):
    """Launches and plans, one after the other, on the operands of a call and on parts of them.

    workspace: which operand counts from its first multiple of WORKSPACE_ALIGNMENT on. slices: of each part its operand
    and offset. steps: with the positions of their operands, of which parts are behind those of the call; -1: what a
    step does not have.
    """

    def __init__(
        self, workspace: int, slices: Sequence[tuple[int, int]], steps: Sequence[tuple[Any, Sequence[int]]], solver: str
    ) -> None:
        self.workspace, self.slices, self.solver = workspace, tuple(slices), solver
        self.scratch_bytes = 0  # plans inside ask for their own
        self.steps = [
            inner for step, used in steps for inner in (step.steps if isinstance(step, Plan) else [(step, tuple(used))])
        ]
        self.parts = [part for step, used in steps for part in self._flat(step, used)]

    @staticmethod
    def _flat(step: Any, used: Sequence[int]) -> list[tuple[Any, Sequence[int]]]:
        """Return the launches of a plan that does nothing else, any other step as it is."""
        if type(step) is not Plan or step.scratch_bytes:
            return [(step, used)]
        return [(launch, [(*used, -1)[i] for i in positions]) for launch, positions in step.steps]

    def record(self, record: Record, operands: Sequence[Where]) -> None:
        begins = list(operands)
        begins[self.workspace] = begins[self.workspace].aligned(WORKSPACE_ALIGNMENT)
        known = [*operands, *[begins[operand].behind(offset) for operand, offset in self.slices], NULL]
        for part, positions in self.parts:
            part.record(record, [known[i] for i in positions])

    def with_scalars(self, values: Mapping[str, float]) -> Self:
        made = super().with_scalars(values)
        made.parts = [(part.with_scalars(values), positions) for part, positions in self.parts]
        return made


ROOMS: dict[type[Operation], Any] = {}  # what serves an operation, a Room (solver.py)


def workspace_bytes(operation: Operation, device: Any) -> int:
    """Return the bytes of workspace that the plan of an operation uses."""
    room = ROOMS.get(type(operation))
    return room.workspace_bytes(operation, device) if room else 0


def estimated_seconds(operation: Operation, device: Any) -> float:
    """Return about how many seconds an operation takes on a device, to rank algorithms."""
    return ROOMS[type(operation)].estimated_seconds(operation, device)


def implemented() -> tuple[type[Operation], ...]:
    """Return the operations that are served."""
    return tuple(ROOMS)


def plan(operation: Operation, device: Any) -> Plan:
    """Return the plan of an operation on a device."""
    return ROOMS[type(operation)].plan_of(operation, device)


def type_definitions(element: Any, operation: Operation, **others: str) -> tuple[tuple[str, str], ...]:
    """Return the preprocessor definitions of a kernel: the stored type, the arithmetic type, and further ones."""
    chosen = {"ELEMENT": ELEMENTS[element], "COMPUTE": COMPUTES[operation.compute_type], **others}
    return tuple(sorted(chosen.items()))


@lru_cache(maxsize=1024)
def _structure_type(fields: tuple[tuple[str, Any], ...]) -> type[ctypes.Structure]:
    return type("Arguments", (ctypes.Structure,), {"_fields_": fields})


def structure(*fields: tuple[str, Any]) -> ctypes.Structure:
    """Return an argument structure with the given (name, ctypes value) in order, laid out as C++ does."""
    kind = _structure_type(
        tuple((name, value.kind if isinstance(value, Unknown) else type(value)) for name, value in fields)
    )
    return fill(kind(), **{name: value.scalar if isinstance(value, Unknown) else value for name, value in fields})


def factors(operation: Operation, **values: float) -> list[tuple[str, Any]]:
    """Return fields of scalars in the type of the arithmetic, as a conversion costs a thread as much as several
    additions."""
    kind = ctypes.c_double if operation.compute_type == DOUBLE else ctypes.c_float
    return [scalar_field(name, kind, value) for name, value in values.items()]


class Unknown(NamedTuple):
    """A field of a type for a scalar whose value comes with the call."""

    kind: Any
    scalar: Scalar


def scalar_field(name: str, kind: Any, value: Any) -> tuple[str, Any]:
    """Return a field of a scalar of the operation."""
    return (name, Unknown(kind, value) if isinstance(value, Scalar) else kind(value))


def pointers(count: int) -> list[tuple[str, Any]]:
    """Return the fields that hold the addresses of ``count`` operands."""
    return [(f"operand{i}", ctypes.c_void_p()) for i in range(count)]
