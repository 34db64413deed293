"""Test the reference of transforms against loops over single elements, by the definition in docs/errata.md."""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np
import pytest
from dualdnn.api.enumerations import cudnnFoldingDirection_t
from dualdnn.api.operations import TensorSpec, TransformSpec, TransformTensor, TransformTensorEx
from dualdnn.api.operations.specs import FLOAT, HALF, INT32, NCHW, NHWC
from dualdnn.api.operations.transform import destination_dims
from dualdnn.reference import evaluate, run
from dualdnn.reference.transform import transformed

FOLD = cudnnFoldingDirection_t.CUDNN_TRANSFORM_FOLD
UNFOLD = cudnnFoldingDirection_t.CUDNN_TRANSFORM_UNFOLD

TRANSFORMS = [
    ((0, 0, 0, 0), (0, 0, 0, 0), (0, 0)),
    ((1, 2, 0, 3), (0, 1, 2, 0), (1, 1)),
    ((0, 0, -1, 1), (-1, 0, 0, -2), (0, 1)),
    ((0, 0, 0, 0), (0, 0, 0, 0), (2, 3)),
    ((0, 0, 0, 0), (0, 0, 0, 0), (4, 1)),
    ((0, 0, 1, 1), (0, 0, 0, 2), (2, 2)),
    ((0, 1, 0, 1), (1, 1, 1, 0), (2, 2)),
    ((0, 0, -1, -2), (0, -1, 0, 1), (3, 2)),
]
TRANSFORMS_3D = [((0, 0, 0, 0, 0), (0, 0, 0, 0, 0), (2, 2, 2)), ((0, 1, 1, 0, 1), (0, 0, 0, 1, 0), (2, 1, 3))]


def folded_element(source: np.ndarray, transform: TransformSpec, at: tuple[int, ...]) -> float:
    """Return one element after folding: the channel gives the offset within its block of pixels."""
    factors = [max(1, factor) for factor in transform.fold]
    image = at[0] - transform.pad_before[0]
    channel = at[1] - transform.pad_before[1]
    if not 0 <= channel < source.shape[1] * prod(factors):
        return 0.0
    offset, channel = divmod(channel, source.shape[1])
    place = [image, channel]
    for d in reversed(range(len(factors))):
        offset, inside = divmod(offset, factors[d])
        place.insert(2, at[2 + d] * factors[d] + inside - transform.pad_before[2 + d])
    inside_source = all(0 <= p < extent for p, extent in zip(place, source.shape, strict=True))
    return float(source[tuple(place)]) if inside_source else 0.0


def unfolded_element(source: np.ndarray, transform: TransformSpec, at: tuple[int, ...]) -> float:
    """Return one element after unfolding and padding: its offset within a block selects the group of channels."""
    factors = [max(1, factor) for factor in transform.fold]
    kept = -(-source.shape[1] // prod(factors))
    image, channel, *spatial = (p - before for p, before in zip(at, transform.pad_before, strict=True))
    extents = [extent * factor for extent, factor in zip(source.shape[2:], factors, strict=True)]
    if not (0 <= image < source.shape[0] and 0 <= channel < kept):
        return 0.0
    if not all(0 <= p < extent for p, extent in zip(spatial, extents, strict=True)):
        return 0.0
    offset = 0
    for p, factor in zip(spatial, factors, strict=True):
        offset = offset * factor + p % factor
    channel += offset * kept
    if channel >= source.shape[1]:
        return 0.0
    return float(source[(image, channel, *(p // factor for p, factor in zip(spatial, factors, strict=True)))])


@pytest.mark.parametrize("direction", [FOLD, UNFOLD], ids=lambda d: d.name)
@pytest.mark.parametrize("before, after, fold", TRANSFORMS + TRANSFORMS_3D, ids=str)
def test_transforms_agree_with_plain_loops(before, after, fold, direction):
    dims = (2, 13, 5, 7) if len(before) == 4 else (1, 9, 3, 4, 5)
    transform = TransformSpec(NCHW, before, after, fold, direction)
    source = 1.0 + np.arange(prod(dims)).reshape(dims)
    got = transformed(transform, source)
    assert got.shape == destination_dims(transform, dims)
    unfolding = direction == UNFOLD and any(factor > 1 for factor in fold)
    element = unfolded_element if unfolding else folded_element
    for at in product(*map(range, got.shape)):
        assert got[at] == element(source, transform, at), at


def test_unfolding_undoes_folding():
    source = np.random.default_rng(0).standard_normal((2, 3, 4, 6, 6))
    both = [TransformSpec(NCHW, (0,) * 5, (0,) * 5, (2, 3, 2), direction) for direction in (FOLD, UNFOLD)]
    assert np.array_equal(transformed(both[1], transformed(both[0], source)), source)


def test_layouts_are_honoured():
    """NHWC becomes NCHW with gaps; the offsets are computed by hand, and the gaps are not written."""
    dims = (2, 3, 2, 4)
    x, y = TensorSpec.packed(HALF, dims, NHWC), TensorSpec(HALF, dims, (64, 16, 5, 1))
    memory = np.arange(x.count).astype(np.float16)
    result = np.full(y.span, -1, np.float16)
    run(TransformTensor(1.0, 0.0, x, y), {"x": memory.view(np.uint8), "y": result.view(np.uint8)})
    expected = np.full(y.span, -1, np.float16)
    for n, c, h, w in product(*map(range, dims)):
        expected[64 * n + 16 * c + 5 * h + w] = memory[((n * 2 + h) * 4 + w) * 3 + c]
    assert np.array_equal(result, expected)


def test_blending_and_bounds():
    """Elements are moved exactly; then alpha and beta blend them."""
    spec = TensorSpec.packed(INT32, (1, 1, 1, 3))
    x, y = (np.array(values, np.int32) for values in ([2**31 - 1, -7, 10], [4, 4, 4]))
    operation = TransformTensor(-1.5, 0.25, spec, spec)
    memory = {"x": x.view(np.uint8), "y": y.view(np.uint8)}
    exact = evaluate(operation, memory)["y"]
    assert exact.roundings == 0
    run(operation, memory)
    assert list(y) == [-(2**31), 12, -14]  # saturated, tie to even, exact


def test_conversion_rounds_once():
    transform = TransformSpec(NCHW, (0,) * 4, (0,) * 4, (0, 0), FOLD)
    dims = (1, 1, 1, 2)
    source, destination = TensorSpec.packed(FLOAT, dims), TensorSpec.packed(HALF, dims)
    x = np.array([1 + 2**-11, 1 + 3 * 2**-11], np.float32)
    result = np.zeros(2, np.float16)
    operation = TransformTensorEx(transform, 1.0, 0.0, source, destination)
    run(operation, {"srcData": x.view(np.uint8), "destData": result.view(np.uint8)})
    assert list(result) == [1.0, 1 + 2**-9]  # ties to even
