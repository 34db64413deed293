"""Defines plans: the kernel launches of an operation, with arguments that are packed once.

Plans are cached by operation, so making one may be slow. A plan makes records (records.py), in which only addresses
are missing.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from functools import lru_cache
from typing import Any, NamedTuple, Self

from dualdnn.api.operations import Operation
from dualdnn.api.operations.specs import BFLOAT16, DOUBLE, FLOAT, HALF, INT8, INT32, UINT8

from . import records
from .records import NULL, KernelStep, Record, Recordable, UploadStep, Where
from .reproducible import require_no_fallback
from .runtime import fallbacks
from .runtime.device import Function, LaunchShape
from .runtime.errors import DeviceUnavailable
from .runtime.scratch import COUNTER_BYTES
from .scalars import Note, Scalar, fill, scalars_of, with_values

Extent = tuple[int, int, int]

# These are the C++ names of the stored types in types.cuh.
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
WORKSPACE_ALIGNMENT = 16  # bytes, alignment of a kernel's data in the caller's workspace


SCRATCH = "scratch"  # name of the operand that is the library's own scratch memory
COUNTERS = "counters"  # name of the zeros before the scratch memory, which every launch leaves as zeros
OWN = {SCRATCH: Where(records.SCRATCH, 0, 0), COUNTERS: Where(records.SCRATCH, -COUNTER_BYTES, 0)}


class Launch(Recordable):
    """Describe the launch of one kernel with its packed arguments.

    arguments: the structure that the kernel takes by value, pointers first. operands: the names of the operands whose
    addresses the pointers hold. grid, block: blocks and threads. shared_bytes: dynamic shared memory per block.
    cooperative: whether blocks wait for each other, so that all run at the same time, one per SM. scratch_bytes: the
    size of the operand SCRATCH.
    """

    scratch_bytes = 0
    filled: Sequence[Note] = ()  # scalars whose values ``with_scalars`` has written

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
        if isinstance(function, Function):  # Kernels that are being compiled have no function yet.
            function.require_fields(type(arguments))

    def record(self, record: Record, operands: Sequence[Where]) -> None:
        """Append the launch on these operands to a record."""
        record.add(KernelStep(self.function, self.template, self.shape, operands, scalars=self.filled))

    @property
    def shape(self) -> LaunchShape:
        """Return the grid, the block and the dynamic shared memory of the launch."""
        return LaunchShape(self.grid, self.block, self.shared_bytes, self.cooperative)

    def with_scalars(self, values: Mapping[str, float]) -> Self:
        """Return the launch with the scalars of a call written into its arguments."""
        if not self.scalars:
            return self
        made = copy(self)
        made.template, made.scalars, made.filled = with_values(self.template, self.scalars, values), (), self.scalars
        return made

    def wait_for_kernel(self) -> None:
        """Wait until the kernel is compiled, so that no fallback serves; a launch without a fallback is ready."""


class BackgroundLaunch(Launch):
    """Describe a launch with a fallback, which serves while the kernel is compiled or an operand is not aligned.

    module: the kernel's source and its macro definitions. launch: the launch once the kernel is compiled. fallback: a
    launch that takes the first operands. alignment: bytes by operand.
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
        """Append this launch to a record, or the fallback where an operand is not aligned or the kernel is missing."""
        if not self.falls_back(record, are_aligned(operands, self.masks), operands):
            super().record(record, operands)

    def falls_back(self, record: Record, aligned: bool, operands: Sequence[Where]) -> bool:
        """Return whether the fallback serves, and append its launches if so.

        It serves where an operand is not aligned, or the kernel is being compiled or unavailable. Without a fallback,
        a kernel that is unavailable raises DeviceUnavailable.
        """
        if self.function is None and not self.refused:
            self._have(self.ready_kernel)
        if self.fallback is None or (self.function is not None and aligned):
            return False
        require_no_fallback(self.kernel, self.device)
        record.final &= self.refused or not aligned
        self.fallback.record(record, operands[: len(self.fallback.operands)])
        return True

    def _have(self, ask: Callable[[], Any]) -> None:
        """Keep the kernel that ``ask`` returns. Where it is unavailable, note that the fallback serves permanently."""
        try:
            self.function = ask()
        except DeviceUnavailable as error:
            if self.fallback is None:
                raise
            self.refused = True
            fallbacks.note(self.kernel, getattr(self.fallback.function, "name", "another kernel"), str(error))

    def ready_kernel(self) -> Any:
        """Return the kernel, or None while it is being compiled."""
        source, definitions = self.module
        return self.device.function_when_ready(source, self.kernel, definitions)

    def with_scalars(self, values: Mapping[str, float]) -> Self:
        """Return the launch and its fallback with the scalars of a call."""
        made = super().with_scalars(values)
        fallback = None if self.fallback is None else self.fallback.with_scalars(values)
        if fallback is self.fallback and made is self:
            return self
        made = copy(self) if made is self else made
        made.fallback = fallback
        return made

    def wait_for_kernel(self) -> None:
        """Wait until the kernel is compiled, so that the fallback does not replace it."""
        source, definitions = self.module
        self._have(lambda: self.device.function(source, self.kernel, definitions))


class Launches(Launch):
    """Combine launches on the same operands, which run one after another, into one launch."""

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
    """Copy bytes of the host into an operand, in stream order, before the launches that read them."""

    scratch_bytes = 0
    function: Any = None  # An upload launches no kernel.

    def __init__(self, device: Any, data: bytes, operand: str, offset: int = 0) -> None:
        self.device, self.data, self.operands, self.offset = device, data, (operand,), offset

    def record(self, record: Record, operands: Sequence[Where]) -> None:
        """Append the copy into the operand to a record."""
        record.add(UploadStep(self.device, self.data, operands[0].behind(self.offset)))

    def with_scalars(self, values: Mapping[str, float]) -> Self:
        """Return the upload itself, which has no scalars."""
        return self

    def wait_for_kernel(self) -> None:
        """Return at once, because an upload has no kernel."""


class Plan(Recordable):
    """Hold the launches of one operation in order, and the name of the solver that made them.

    values: the scalars of this call, where calls with other scalars share the plan; None where the plan is not shared.
    """

    values: Mapping[str, float] | None = None

    def __init__(self, operation: Operation, launches: Sequence[Launch | Upload], solver: str = "") -> None:
        self.solver = solver
        # Each launch finds its operands by index. An operand that the call lacks has index -1, which is address 0.
        indices = {name: i for i, name in enumerate((*operation.operands, *OWN))}
        self.scratch_bytes = max((launch.scratch_bytes for launch in launches), default=0)
        self.steps = [(launch, tuple(indices.get(name, -1) for name in launch.operands)) for launch in launches]

    def __call__(self, operands: Sequence[Any], stream: Any) -> None:
        self.start([0 if operand is None else operand.address for operand in operands], stream)

    def record(self, record: Record, operands: Sequence[Where]) -> None:
        """Append the launches on these operands to a record.

        Raises ``ValueNeeded`` where a fallback must be made that calls with other scalars cannot share.
        """
        if self.scratch_bytes:
            record.begin(self.scratch_bytes)
        known = [*operands, *OWN.values(), NULL]
        for launch, positions in self.steps:
            launch.record(record, [known[i] for i in positions])

    def with_scalars(self, values: Mapping[str, float]) -> Self:
        """Return the plan with the scalars of a call. Raises ``ValueNeeded`` where calls cannot share the plan."""
        made = copy(self)
        made.steps = [(launch.with_scalars(values), positions) for launch, positions in self.steps]
        made.values = values
        return made


class AlignedPlan(Plan):
    """Run a plan that needs aligned, disjoint operands, or else a fallback, which is made when first needed.

    alignment: bytes by operand name. apart: pairs of operands that may not begin at the same address.
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
        self.scratch_bytes = 0  # The inner plans request their own.
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
    """Return, for each alignment, the mask of address bits that must be 0.

    Raises ValueError for an alignment above records.ALIKE, which a record does not distinguish.
    """
    if any(multiple > records.ALIKE for multiple in alignment):
        raise ValueError(f"alignment={alignment}: {records.ALIKE} bytes at most")
    return [multiple - 1 for multiple in alignment]


def are_aligned(operands: Sequence[Where], masks: Sequence[int]) -> bool:
    """Return whether every address is aligned, which means that it has no bit of its mask."""
    return not any(operand.value & mask for operand, mask in zip(operands, masks, strict=False))


def workspace_aligned(value: int) -> int:
    """Return an address or an offset, rounded up to a multiple of WORKSPACE_ALIGNMENT."""
    return value + -value % WORKSPACE_ALIGNMENT


def with_alignment(used: int) -> int:
    """Return the workspace in bytes that holds ``used`` aligned bytes, whatever the address of the workspace."""
    return used + WORKSPACE_ALIGNMENT - 1 if used else 0


class WorkspacePlan(Plan):
    """Hold a plan whose last operand is a workspace, which is used from its first aligned address on."""

    def record(self, record: Record, operands: Sequence[Where]) -> None:
        super().record(record, [*operands[:-1], operands[-1].aligned(WORKSPACE_ALIGNMENT)])


class PlacedPlan(Plan):
    """Run launches and plans one after the other, on the operands of a call and on slices of them.

    workspace: index of the operand that is used from its first aligned address on. slices: operand index and byte
    offset of each slice. steps: launches or plans with the indices of their operands; slices are numbered after the
    operands of the call, then OWN, and -1 is a missing operand.
    """

    def __init__(
        self, workspace: int, slices: Sequence[tuple[int, int]], steps: Sequence[tuple[Any, Sequence[int]]], solver: str
    ) -> None:
        self.workspace, self.slices, self.solver = workspace, tuple(slices), solver
        self.scratch_bytes = 0  # The inner plans and launches request their own.
        self.steps = [
            inner for step, used in steps for inner in (step.steps if isinstance(step, Plan) else [(step, tuple(used))])
        ]
        self.parts = [part for step, used in steps for part in self._flat(step, used)]

    @staticmethod
    def _flat(step: Any, used: Sequence[int]) -> list[tuple[Any, Sequence[int]]]:
        """Return the launches of a plain plan without scratch memory; return any other step unchanged."""
        if type(step) is not Plan or step.scratch_bytes:
            return [(step, used)]
        return [(launch, [(*used, -1)[i] for i in positions]) for launch, positions in step.steps]

    def record(self, record: Record, operands: Sequence[Where]) -> None:
        begins = list(operands)
        begins[self.workspace] = begins[self.workspace].aligned(WORKSPACE_ALIGNMENT)
        known = [*operands, *[begins[operand].behind(offset) for operand, offset in self.slices], *OWN.values(), NULL]
        for part, positions in self.parts:
            if isinstance(part, Launch) and part.scratch_bytes:
                record.begin(part.scratch_bytes)
            part.record(record, [known[i] for i in positions])

    def with_scalars(self, values: Mapping[str, float]) -> Self:
        made = super().with_scalars(values)
        made.parts = [(part.with_scalars(values), positions) for part, positions in self.parts]
        return made


SOLVER_FAMILIES: dict[type[Operation], Any] = {}  # SolverFamily (solver.py) that serves each type of operation


def workspace_bytes(operation: Operation, device: Any) -> int:
    """Return the workspace in bytes that the plan of an operation uses."""
    family = SOLVER_FAMILIES.get(type(operation))
    return family.workspace_bytes(operation, device) if family else 0


def estimated_seconds(operation: Operation, device: Any) -> float:
    """Return the estimated seconds of an operation on a device, to rank algorithms."""
    return SOLVER_FAMILIES[type(operation)].estimated_seconds(operation, device)


def implemented() -> tuple[type[Operation], ...]:
    """Return the types of operations that have solvers."""
    return tuple(SOLVER_FAMILIES)


def plan(operation: Operation, device: Any) -> Plan:
    """Return the plan of an operation on a device."""
    return SOLVER_FAMILIES[type(operation)].plan_of(operation, device)


def type_definitions(element: Any, operation: Operation, **others: str) -> tuple[tuple[str, str], ...]:
    """Return the macro definitions of a kernel: the stored type, the arithmetic type, and ``others``."""
    chosen = {"ELEMENT": ELEMENTS[element], "COMPUTE": COMPUTES[operation.compute_type], **others}
    return tuple(sorted(chosen.items()))


@lru_cache(maxsize=1024)
def _structure_type(fields: tuple[tuple[str, Any], ...]) -> type[ctypes.Structure]:
    return type("Arguments", (ctypes.Structure,), {"_fields_": fields})


def structure(*fields: tuple[str, Any]) -> ctypes.Structure:
    """Return an argument structure of (name, ctypes value) fields in order, with the layout of C++."""
    kind = _structure_type(
        tuple((name, value.kind if isinstance(value, Unknown) else type(value)) for name, value in fields)
    )
    return fill(kind(), **{name: value.scalar if isinstance(value, Unknown) else value for name, value in fields})


def fields_of(kind: Callable[[Any], Any], **values: Any) -> list[tuple[str, Any]]:
    """Return the fields of one type, which ``kind`` makes of each value."""
    return [(name, kind(value)) for name, value in values.items()]


def arrays_of(kind: Callable[..., Any], **values: Iterable[Any]) -> list[tuple[str, Any]]:
    """Return the fields of one array type, which ``kind`` makes of the elements of each value."""
    return [(name, kind(*value)) for name, value in values.items()]


def factors(operation: Operation, **values: float) -> list[tuple[str, Any]]:
    """Return fields for scalars in the arithmetic type of the operation.

    A conversion in the kernel would cost each thread as much as several additions.
    """
    kind = ctypes.c_double if operation.compute_type == DOUBLE else ctypes.c_float
    return [scalar_field(name, kind, value) for name, value in values.items()]


class Unknown(NamedTuple):
    """Hold the ctypes type of a field and the scalar whose value the call will provide."""

    kind: Any
    scalar: Scalar


def scalar_field(name: str, kind: Any, value: Any) -> tuple[str, Any]:
    """Return the field for a scalar of the operation, with its value or as an ``Unknown``."""
    return (name, Unknown(kind, value) if isinstance(value, Scalar) else kind(value))


def pointers(count: int) -> list[tuple[str, Any]]:
    """Return the fields that hold the addresses of ``count`` operands."""
    return [(f"operand{i}", ctypes.c_void_p()) for i in range(count)]
