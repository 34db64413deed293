"""Launches whose kernels read tensors through TMA (the host side of primitives/tma.cuh)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

from .. import plans
from ..plans import BackgroundLaunch, Launch
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
]

REMEMBERED_ADDRESSES = 16  # of a launch, for which it has tensor maps


class TmaLaunch(BackgroundLaunch):
    """A launch whose kernel reads operands through tensor maps.

    maps: for each tensor map its byte offset in the arguments, the index of its operand, the bytes from the operand's address, and
    the map. aligned: indices of other operands whose addresses must be multiples of ALIGNMENT, too. fallback: the launch that
    serves where an address is not, and while the kernel is being compiled; None where the plan sees to both.
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
    ) -> None:
        super().__init__(device, module, kernel, launch, fallback)
        self.maps, self.aligned = maps, aligned
        self.starters: dict[tuple[int, ...], Any] = {}  # with tensor maps, by the addresses

    def with_scalars(self, values: Mapping[str, float]) -> Self:
        """Return the launch with the scalars of one call, which has tensor maps of its own."""
        made = super().with_scalars(values)
        if made is not self:
            made.starters = {}
        return made

    def start(self, addresses: Sequence[int], stream: Any) -> None:
        """Launch on the operands at these addresses, by the fallback where one is not aligned."""
        if self.function is None:
            self.function = self.ready_kernel()
        needed = tuple(addresses[operand] + offset for _, operand, offset, _ in self.maps)
        needed += tuple(addresses[operand] for operand in self.aligned)
        starter = self.starters.get(needed)
        if starter is None:
            if self.fallback and (self.function is None or any(address % ALIGNMENT for address in needed)):
                self.fallback.start(addresses, stream)
                return
            starter = self._with_maps(needed)
        if plans.launched is not None:
            plans.launched.add(self.kernel)
        starter(addresses, stream)

    def _with_maps(self, needed: tuple[int, ...]) -> Any:
        """Return what launches with the tensor maps of these addresses."""
        arguments = bytearray(self.template)
        for (argument_offset, _, _, wanted), address in zip(self.maps, needed, strict=False):
            arguments[argument_offset : argument_offset + MAP_BYTES] = self.device.tensor_map(wanted, address)
        if len(self.starters) >= REMEMBERED_ADDRESSES:
            self.starters.clear()
        self.starters[needed] = self.starter_of(bytes(arguments))
        return self.starters[needed]
