"""Describe the vectors and the work items of the TMA-fed attention kernels (tma_items.cuh)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from ctypes import c_int, c_ubyte
from typing import Any, NamedTuple

from dualdnn.api.operations import SeqDataSpec
from dualdnn.api.operations.attention import allows_tensor_cores
from dualdnn.api.operations.specs import FLOAT

from ..plans import ELEMENTS, SCRATCH, structure, type_definitions
from ..primitives.geometry import FastDivmod
from ..primitives.tma import ALIGNMENT, MAP_BYTES, TensorMap, TiledMap, has_wgmma
from . import split
from .problem import BATCH, BEAM, INPUTS, TIME, AttentionProblem, Vectors, vector_strides

ROWS = 64  # queries or keys per warpgroup
WARPGROUP = 128  # threads per warpgroup
SIZES = (64, 128, 192, 256)  # elements per vector in a tile, padded with zeros
SWIZZLE_BYTES = 1024  # alignment of the tiles
BOX = 64  # elements per row of 128 bytes, and vectors per box
FACTOR_BYTES = 2


def padded_size(problem: AttentionProblem) -> int:
    """Return the elements per vector in a tile, or 0 where no kernel serves this size."""
    size = max(problem.attn.query_size, problem.attn.value_size)
    return next((padded for padded in SIZES if size <= padded), 0)


def parts(problem: AttentionProblem) -> int:
    """Return the number of tensor-core factors per element."""
    return 2 if problem.attn.data_type == FLOAT else 1


def fits_at_once(problem: AttentionProblem, steps: int, sequences: int) -> bool:
    """Return whether the device runs all items of one warpgroup at the same time."""
    return -(-steps // ROWS) * problem.attn.heads * sequences <= problem.device.multiprocessors


def serves(problem: AttentionProblem, incoming: Sequence[tuple[str, Vectors]] = ()) -> bool:
    """Return whether the device has TMA that can load the vectors, and tensor cores that multiply them."""
    if not has_wgmma(problem.device) or not allows_tensor_cores(problem.attn) or not padded_size(problem):
        return False
    return _are_possible(problem, factors(problem, incoming))


def factors(problem: AttentionProblem, incoming: Sequence[tuple[str, Vectors]] = ()) -> split.Parts:
    """Return queries, keys, values and then incoming gradients as TMA can load them. Half data stay in place, or are
    copied where TMA cannot read them.
    """
    extents = problem.operation.extents
    vectors = (*(problem.vectors(name) for name in INPUTS), *incoming)
    counts = (extents.q_vectors, extents.k_vectors, extents.k_vectors, extents.q_vectors)
    given = [(*each, count) for each, count in zip(vectors, counts, strict=False)]
    found = split.factors(problem, given)
    return found if problem.aligned and _are_possible(problem, found) else split.factors(problem, given, copies=True)


def alignment(given: split.Parts) -> Mapping[str, int]:
    """Return the alignment, in bytes, of the operands that TMA loads."""
    return {operand: ALIGNMENT for operand in given.operands if operand != SCRATCH}


def definitions_of(problem: AttentionProblem, **sizes: int) -> tuple[tuple[str, str], ...]:
    """Return the definitions of a kernel."""
    given = {name: str(size) for name, size in sizes.items()}
    return type_definitions(
        problem.attn.data_type, problem.operation, TILE=str(problem.tile), SIZE=str(padded_size(problem)), **given
    )


def _data(problem: AttentionProblem) -> tuple[SeqDataSpec, ...]:
    return problem.q, problem.k, problem.k, problem.q


def _are_possible(problem: AttentionProblem, given: split.Parts) -> bool:
    """Return whether TMA reads the vectors and nothing after them."""
    maps = [_vector_map(problem, of, made) for of, made in zip(_data(problem), given.vectors, strict=False)]
    return all(map_.is_possible and map_.extent[0] * map_.element_bytes % ALIGNMENT == 0 for map_ in maps)


def _vector_map(problem: AttentionProblem, data: SeqDataSpec, vectors: Vectors) -> TiledMap:
    """Return the map of factors by (element, time-step, head, beam, batch), in boxes of 64 elements of 64
    time-steps.
    """
    apart = [stride * vectors.vector * FACTOR_BYTES for stride in vector_strides(data)]
    heads = problem.attn.heads if vectors.head else 1
    extent = (vectors.vector // heads, data.dims[TIME], heads, data.dims[BEAM], data.dims[BATCH])
    strides = (apart[TIME], vectors.head * FACTOR_BYTES, apart[BEAM], apart[BATCH])
    # Even a dimension of size 1 needs a valid stride.
    used = tuple(stride if count > 1 else ALIGNMENT for stride, count in zip(strides, extent[1:], strict=True))
    element = "bfloat16" if data.data_type == FLOAT else ELEMENTS[data.data_type]
    return TiledMap(element, extent, used, (BOX, BOX, 1, 1, 1))


class Located(NamedTuple):
    """Hold the maps of a launch's vectors: fields of its arguments, and the input of a TmaLaunch that fills them."""

    fields: list[tuple[str, Any]]
    maps: list[tuple[str, int, int, int, TensorMap]]  # field, byte in the field, operand, byte of the operand, map

    @classmethod
    def of(cls, problem: AttentionProblem, names: Sequence[str], given: split.Parts) -> Located:
        """Return a map for each part of each operand's vectors; they are the launch's first operands."""
        count = parts(problem)
        located = cls([(name, (c_ubyte * (MAP_BYTES * count))()) for name in names], [])
        for operand, (name, of, made) in enumerate(zip(names, _data(problem), given.vectors, strict=False)):
            wanted = _vector_map(problem, of, made)
            for part in range(count):
                located.maps.append((name, part * MAP_BYTES, operand, made.offset + part * made.lower, wanted))
        return located

    def placed(self, arguments: Any) -> Iterator[tuple[int, int, int, TensorMap]]:
        """Yield the maps with their byte offsets in the arguments."""
        for name, byte, operand, offset, wanted in self.maps:
            yield getattr(type(arguments), name).offset + byte, operand, offset, wanted


def divide(tiles: int, heads: int, beams: int, items: int) -> Any:
    """Return the division of the work into items."""
    counts = map(FastDivmod.of, (tiles, heads, beams))
    return structure(*zip(("tiles", "heads", "beams"), counts, strict=True), ("items", c_int(items)))
