"""Divide the K-blocks of a product's tiles among blocks (stream_k.cuh)."""

from __future__ import annotations

import ctypes
from ctypes import c_uint
from typing import NamedTuple

from ..primitives.geometry import FastDivmod


class DivisionStruct(ctypes.Structure):
    """Mirror ``Division`` of stream_k.cuh."""

    _fields_ = (
        ("rest", FastDivmod), ("row_tiles", FastDivmod), ("column_tiles", FastDivmod), ("tiles", FastDivmod),
        ("parts", c_uint), ("share", c_uint), ("longer_parts", c_uint), ("rest_share", c_uint), ("longer", c_uint),
        ("unsplit", c_uint), ("blocks", c_uint), ("k_blocks", c_uint),
    )  # fmt: skip


class Shares(NamedTuple):
    """Divide the K-blocks of some tiles among blocks.

    Each tile has ``parts`` blocks with ``share`` K-blocks each; the first ``longer_parts`` have one more. ``further``
    blocks share the ``rest`` of all tiles. ``unsplit`` tiles before these have one block each; ``lone`` blocks take
    them in turn.
    """

    tiles: int
    parts: int
    share: int
    longer_parts: int
    rest: int
    further: int
    unsplit: int = 0
    lone: int = 0
    k_blocks: int = 0  # per tile, where some are unsplit

    @classmethod
    def of(cls, tiles: int, k_blocks: int, blocks: int) -> Shares:
        """Return equal shares of approximately ``blocks`` blocks."""
        parts, further = divmod(blocks, tiles)
        share = min(-(-tiles * k_blocks // blocks), k_blocks // parts) if parts else 0
        rest = k_blocks - parts * share
        if further and rest:
            return cls(tiles, parts, share, 0, rest, further)
        return cls(tiles, parts, k_blocks // parts, k_blocks % parts, 0, 0)

    @classmethod
    def with_unsplit(cls, unsplit: int, tiles: int, k_blocks: int, blocks: int) -> Shares:
        """Return shares of approximately ``blocks`` blocks that take ``unsplit`` tiles alone and share the others."""
        others = cls.of(tiles - unsplit, k_blocks, blocks) if tiles > unsplit else cls(0, 0, 0, 0, 0, 0)
        return others._replace(unsplit=unsplit, lone=min(blocks, unsplit), k_blocks=k_blocks)

    @property
    def blocks(self) -> int:
        return max(self.lone, self.sharing)

    @property
    def sharing(self) -> int:
        """Return the number of blocks that share tiles."""
        return self.parts * self.tiles + self.further

    @property
    def slots(self) -> int:
        """Return the number of slots for the sums that blocks store."""
        return self.sharing + (self.tiles - 1 if self.further else 0)

    @property
    def max_k_blocks(self) -> int:
        """Return the K-blocks of the busiest block."""
        further = -(-self.tiles * self.rest // self.further) if self.further else 0
        return max(self.share + (self.longer_parts > 0), further)

    def division(self, row_tiles: int, column_tiles: int) -> DivisionStruct:
        rest = divmod(self.tiles * self.rest, self.further) if self.further else (0, 0)
        return DivisionStruct(
            FastDivmod.of(max(self.rest, 1)), FastDivmod.of(row_tiles),
            FastDivmod.of(column_tiles), FastDivmod.of(max(self.tiles, 1)),
            self.parts, self.share, self.longer_parts, *rest, self.unsplit, self.lone, self.k_blocks,
        )  # fmt: skip
