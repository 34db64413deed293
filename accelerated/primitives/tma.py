"""Plans launches whose kernels read tensors through TMA (the host side of primitives/tma.cuh)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from ctypes import c_ubyte
from typing import Any, Self

from ..plans import BackgroundLaunch, Launch, structure
from ..records import KernelStep, Record, Where
from ..runtime.device import reaches
from ..runtime.tensor_map import ALIGNMENT, MAP_BYTES, ROW_BYTES, Im2colMap, TensorMap, TiledMap, UnswizzledTiledMap

__all__ = [
    "ALIGNMENT",
    "MAP_BYTES",
    "ROW_BYTES",
    "Im2colMap",
    "TensorMap",
    "TiledMap",
    "TmaLaunch",
    "UnswizzledTiledMap",
    "has_tma",
    "has_wgmma",
    "mapped_structure",
]

TMA_CAPABILITY = 90
ARGUMENT_ALIGNMENT = 64  # bytes, for arguments that contain tensor maps


def has_tma(device: Any) -> bool:
    """Return whether a device has TMA: a GPU from compute capability 9.0 on, or the emulated device."""
    return reaches(device, TMA_CAPABILITY)


def has_wgmma(device: Any) -> bool:
    """Return whether a device has TMA and wgmma for tiles in shared memory: a GPU of compute capability 9.x, or the
    emulated device. Kernels that need both (WGMMA_INSTRUCTIONS in primitives/mma.cuh) are empty for others."""
    return has_tma(device) and (device.kind != "gpu" or device.architecture.startswith("sm_9"))


def mapped_structure(*fields: tuple[str, Any]) -> Any:
    """Return kernel arguments that contain tensor maps, padded to their alignment."""
    kind = type(structure(*fields))
    size = max(getattr(kind, name).offset + getattr(kind, name).size for name, _ in fields)
    return structure(*fields, ("end", (c_ubyte * (-size % ARGUMENT_ALIGNMENT))()))


class TmaLaunch(BackgroundLaunch):
    """Launch a kernel that reads operands through tensor maps.

    maps: for each tensor map its byte offset in the arguments, its operand's index, the byte offset from the operand's
    address, and the map. aligned: indices of other operands whose addresses must be multiples of ALIGNMENT. fallback:
    the launch for unaligned addresses, and while the kernel is being compiled; None where the plan handles both.
    before, after: launches on the same operands that belong to this one.
    """

    def __init__(
        self,
        device: Any,
        module: tuple[str, tuple[tuple[str, str], ...]],
        kernel: str,
        launch: Launch,
        maps: tuple[tuple[int, int, int, TensorMap], ...],
        fallback: Launch | None,
        aligned: tuple[int, ...] = (),
        before: Sequence[Launch] = (),
        after: Sequence[Launch] = (),
    ) -> None:
        super().__init__(device, module, kernel, launch, fallback)
        self.maps, self.aligned, self.before, self.after = maps, aligned, tuple(before), tuple(after)

    def with_scalars(self, values: Mapping[str, float]) -> Self:
        """Return the launch with the scalars of one call, and the launches that belong to it."""
        made = super().with_scalars(values)
        before, after = ([launch.with_scalars(values) for launch in part] for part in (self.before, self.after))
        if made is self and (*before, *after) == (*self.before, *self.after):
            return self
        made = copy(self) if made is self else made
        made.before, made.after = tuple(before), tuple(after)
        return made

    def record(self, record: Record, operands: Sequence[Where]) -> None:
        """Add the launches on these operands. The fallback is used where an operand is not aligned or the kernel does
        not exist."""
        begins = [operands[operand].behind(offset) for _, operand, offset, _ in self.maps]
        aligned = not any(where.value % ALIGNMENT for where in [*begins, *[operands[i] for i in self.aligned]])
        if self.falls_back(record, aligned, operands):
            return
        for launch in self.before:
            launch.record(record, operands)
        maps = [(offset, begin, wanted) for (offset, _, _, wanted), begin in zip(self.maps, begins, strict=True)]
        record.add(KernelStep(self.function, self.template, self.shape, operands, maps, self.filled))
        for launch in self.after:
            launch.record(record, operands)
