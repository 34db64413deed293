"""Draw reductions: every operation, any dimensions, indices of every width."""

from __future__ import annotations

from math import prod

from dualdnn.api.cudnn.reduce_tensor import SCALAR_TYPES
from dualdnn.api.enumerations import (
    cudnnIndicesType_t,
    cudnnNanPropagation_t,
    cudnnReduceTensorIndices_t,
    cudnnReduceTensorOp_t,
)
from dualdnn.api.operations import ReduceTensor, ReduceTensorSpec
from dualdnn.api.operations.reduce_tensor import FLATTENED, INDEX_BYTES, INDEXED, required_indices
from dualdnn.api.operations.specs import DOUBLE, FLOAT, HALF, INT8

from .pieces import NUMBERS, Drawn, Source, need

OPERATIONS = (ReduceTensor,)
MAX_INDEXED = 256  # elements of a reduction whose indices have 8 bits
PRODUCTS = (cudnnReduceTensorOp_t.CUDNN_REDUCE_TENSOR_MUL, cudnnReduceTensorOp_t.CUDNN_REDUCE_TENSOR_MUL_NO_ZEROS)


def draw(source: Source) -> Drawn:
    """Draw a reduction over at least one dimension."""
    dims = source.dims(source.pick((4, 4, 5, 3, 6)))
    if source.profile.most > MAX_INDEXED:  # Indices of 8 bits count to MAX_INDEXED.
        dims = source.pick((dims, dims, (*dims[:1], MAX_INDEXED - source.integer(0, 1), *(1 for _ in dims[2:]))))
    out = tuple(extent if source.chance(40) else 1 for extent in dims)
    need(out != dims)
    op, stored = source.pick(tuple(cudnnReduceTensorOp_t)), source.pick(SCALAR_TYPES)
    result = stored if stored == DOUBLE or source.chance(60) else FLOAT
    need({stored, result} != {HALF, INT8})
    indexed = op in INDEXED and source.chance(50)
    indices = FLATTENED if indexed else next(kind for kind in cudnnReduceTensorIndices_t if kind != FLATTENED)
    width = source.pick(tuple(INDEX_BYTES)) if indexed else cudnnIndicesType_t.CUDNN_32BIT_INDICES
    need(prod(d for d, o in zip(dims, out, strict=True) if o == 1) <= 256 ** INDEX_BYTES[width])
    nan = source.pick(tuple(cudnnNanPropagation_t))
    reduction = ReduceTensorSpec(op, DOUBLE if stored == DOUBLE else FLOAT, nan, indices, width)
    first, last = source.tensor(stored, dims), source.tensor(result, out)
    alpha, beta = source.blend()
    operation = ReduceTensor(reduction, required_indices(reduction, last), 0, alpha, beta, first, last)
    return Drawn((operation,), source.inputs(("near_one",) if op in PRODUCTS else NUMBERS, ("special", "ties_and_nan")))
