"""Launches whose kernels read tensors through TMA (the host side of primitives/tma.cuh)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any, Self

from .. import plans
from ..plans import Launch
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

REMEMBERED_ADDRESSES = 16  # of a launch: the arguments with tensor maps for the addresses seen last


class TmaLaunch(Launch):
    """A launch whose kernel reads operands through tensor maps.

    maps: for each tensor map its byte offset in the arguments, the index of its operand, the bytes from the operand's address, and
    the map. aligned: indices of other operands whose addresses must be multiples of ALIGNMENT, too. fallback: the launch, or
    launches, on the same operands that serve where an address is not, and while the kernel is being compiled; None where the plan
    sees to both. before, after: launches on the same operands that belong to this one.
    """

    def __init__(
        self,
        device: Any,
        module: tuple[str, tuple[tuple[str, str], ...]],
        kernel: str,
        launch: Launch,
        maps: tuple[tuple[int, int, int, TensorMap], ...],
        fallback: Launch | Sequence[Launch] | None,
        aligned: tuple[int, ...] = (),
        before: Sequence[Launch] = (),
        after: Sequence[Launch] = (),
    ) -> None:
        vars(self).update(vars(launch))
        self.device, self.module, self.kernel = device, module, kernel
        self.maps, self.aligned = maps, aligned
        self.fallback = (fallback,) if isinstance(fallback, Launch) else tuple(fallback or ())
        self.before, self.after = tuple(before), tuple(after)
        self.encoded: dict[tuple[int, ...], bytes] = {}  # arguments with tensor maps, by the addresses

    def with_scalars(self, values: Mapping[str, float]) -> Self:
        """Return the launch with the scalars of one call among its arguments and those of its fallback."""
        made = super().with_scalars(values)
        others = {
            name: tuple(launch.with_scalars(values) for launch in getattr(self, name))
            for name in ("fallback", "before", "after")
        }
        if made is self and all(getattr(self, name) == launches for name, launches in others.items()):
            return self
        made = copy(self) if made is self else made
        vars(made).update(others, encoded={})
        return made

    def start(self, addresses: Sequence[int], stream: Any) -> None:
        """Launch on the operands at these addresses, by the fallback where one is not aligned."""
        if self.function is None:
            source, definitions = self.module
            self.function = self.device.function_when_ready(source, self.kernel, definitions)
        needed = tuple(addresses[operand] + offset for _, operand, offset, _ in self.maps)
        needed += tuple(addresses[operand] for operand in self.aligned)
        found = self.encoded.get(needed)
        if found is None:
            if self.fallback and (self.function is None or any(address % ALIGNMENT for address in needed)):
                for launch in self.fallback:
                    launch.start(addresses, stream)
                return
            found = self._with_maps(needed)
        for launch in self.before:
            launch.start(addresses, stream)
        if plans.launched is not None:
            plans.launched.add(self.kernel)
        arguments = bytearray(found)
        self.pack_addresses(arguments, 0, *addresses)
        self.function.launch(arguments, self.grid, self.block, self.shared_bytes, stream)
        for launch in self.after:
            launch.start(addresses, stream)

    def wait_for_kernel(self) -> None:
        """Wait until the kernel is compiled, so that the fallback does not serve in its stead."""
        source, definitions = self.module
        self.function = self.device.function(source, self.kernel, definitions)

    def _with_maps(self, needed: tuple[int, ...]) -> bytes:
        arguments = bytearray(self.template)
        for (argument_offset, _, _, wanted), address in zip(self.maps, needed, strict=False):
            arguments[argument_offset : argument_offset + MAP_BYTES] = self.device.tensor_map(wanted, address)
        if len(self.encoded) >= REMEMBERED_ADDRESSES:
            self.encoded.clear()
        self.encoded[needed] = bytes(arguments)
        return self.encoded[needed]
