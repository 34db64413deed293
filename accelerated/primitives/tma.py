"""Launches whose kernels read tensors through TMA (the host side of primitives/tma.cuh)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from ctypes import c_ubyte, sizeof
from typing import Any, Self

from .. import plans
from ..plans import BackgroundLaunch, Launch, structure
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
    "mapped_structure",
]

TMA_CAPABILITY = 90
ARGUMENT_ALIGNMENT = 64  # of arguments that have tensor maps among them

REMEMBERED_ADDRESSES = 16  # of a launch, for which it has tensor maps


def has_tma(device: Any) -> bool:
    """Return whether a device has TMA: GPUs from compute capability 9.0 on, and the emulated device."""
    return reaches(device, TMA_CAPABILITY)


def mapped_structure(*fields: tuple[str, Any]) -> Any:
    """Return the arguments of a kernel that have tensor maps among them."""
    size = sizeof(structure(*fields))
    return structure(*fields, ("end", (c_ubyte * (-size % ARGUMENT_ALIGNMENT))()))


class TmaLaunch(BackgroundLaunch):
    """A launch whose kernel reads operands through tensor maps.

    maps: for each tensor map its byte offset in the arguments, the index of its operand, the bytes from the operand's
    address, and the map. aligned: indices of other operands whose addresses must be multiples of ALIGNMENT, too.
    fallback: the launch that serves where an address is not, and while the kernel is being compiled; None where the
    plan sees to both. before, after: launches on the same operands that belong to this one.
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
        self.starters: dict[tuple[int, ...], Any] = {}  # with tensor maps, by the addresses
        self.latest: tuple[Sequence[int], Any] = (), None  # of the addresses seen last

    def with_scalars(self, values: Mapping[str, float]) -> Self:
        """Return the launch with the scalars of one call, which has tensor maps of its own."""
        made = super().with_scalars(values)
        before, after = ([launch.with_scalars(values) for launch in part] for part in (self.before, self.after))
        if made is self and (*before, *after) == (*self.before, *self.after):
            return self
        made = copy(self) if made is self else made
        made.before, made.after = tuple(before), tuple(after)
        made.starters, made.latest = {}, ((), None)
        return made

    def start(self, addresses: Sequence[int], stream: Any) -> None:
        """Launch on the operands at these addresses, by the fallback where one is not aligned."""
        if self.function is None:
            self.function = self.ready_kernel()
        known, starter = self.latest
        if known != addresses:
            needed = tuple(addresses[operand] + offset for _, operand, offset, _ in self.maps)
            needed += tuple(addresses[operand] for operand in self.aligned)
            starter = self.starters.get(needed)
            if starter is None:
                if self.fallback and (self.function is None or any(address % ALIGNMENT for address in needed)):
                    self.fallback.start(addresses, stream)
                    return
                starter = self._with_maps(needed)
            self.latest = addresses, starter
        for launch in self.before:
            launch.start(addresses, stream)
        if plans.launched is not None:
            plans.launched.add(self.kernel)
        starter(addresses, stream)
        for launch in self.after:
            launch.start(addresses, stream)

    def _with_maps(self, needed: tuple[int, ...]) -> Any:
        """Return what launches with the tensor maps of these addresses."""
        arguments = bytearray(self.template)
        for (argument_offset, _, _, wanted), address in zip(self.maps, needed, strict=False):
            arguments[argument_offset : argument_offset + MAP_BYTES] = self.device.tensor_map(wanted, address)
        if len(self.starters) >= REMEMBERED_ADDRESSES:
            self.starters.clear()
        self.starters[needed] = self.starter_of(bytes(arguments))
        return self.starters[needed]
