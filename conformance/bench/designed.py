"""States the bytes that a row must move by its documented design, where no design reaches the least bytes.

Batch normalization in training, and its gradient, read their inputs again after a sum over all of them. Bytes that the
multiprocessors keep meanwhile are not read again. A channel with contiguous planes stays in the shared memory of a team
of multiprocessors, at most all of them. Anything else stays in the shared memory and in half of the registers; the
other half computes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from dualdnn.api.operations.normalization.batch import NormalizationGradient, NormalizationTraining

from .row import Row

REGISTER_BYTES = 256 << 10  # bytes per multiprocessor


class OnChip(NamedTuple):
    """Holds the bytes that a device keeps: in the shared memory of all multiprocessors, and with half of their
    registers."""

    of_shared: int
    of_all: int

    @classmethod
    def of(cls, device: Any) -> OnChip:
        shared = device.shared_bytes_per_block
        return cls(device.multiprocessors * shared, device.multiprocessors * (shared + REGISTER_BYTES // 2))


def designed_bytes(row: Row, chip: OnChip) -> int:
    """Return the bytes that must move: the least, and the bytes that are read twice because nothing keeps them."""
    o = row.operation
    if not isinstance(o, NormalizationTraining | NormalizationGradient):
        return row.nbytes
    kept = [o.x, o.dy] if isinstance(o, NormalizationGradient) else [o.x]
    nbytes = sum(spec.count * spec.scalar_bytes for spec in kept)
    spatial = [o.x.strides[d] for d in o.reduced_dims if d > 0 and o.x.dims[d] > 1]
    if spatial and o.x.strides[1] > max(spatial):
        return row.nbytes + max(0, nbytes - o.x.dims[1] * chip.of_shared)
    return row.nbytes + max(0, nbytes - chip.of_all)
