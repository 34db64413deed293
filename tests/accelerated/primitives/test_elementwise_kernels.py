"""Tests memory-bound kernels in plans that only large calls get: several vectors or elements per thread, transposes."""

from __future__ import annotations

import ctypes
import dataclasses
import struct
from math import prod

import numpy as np
import pytest
from dualdnn.accelerated.backend import AcceleratedBackend
from dualdnn.accelerated.plans import plan
from dualdnn.accelerated.primitives import geometry
from dualdnn.accelerated.solver import plan_by
from dualdnn.api.operations import AddTensor, TensorSpec, TransformTensor
from dualdnn.api.operations.specs import FLOAT, HALF, INT8, NCHW, NHWC
from dualdnn.conformance.bench import rows
from dualdnn.conformance.cases.transform import applied, changing
from dualdnn.conformance.layouts import laid_out
from dualdnn.conformance.trial import prepare
from dualdnn.reference import judge


@pytest.fixture
def backend(monkeypatch):
    made = AcceleratedBackend("emulated")
    monkeypatch.setattr(made, "plans", {})
    return made


def check(backend, operation, shift=0, only=None):
    """Run the operation with every operand ``shift`` bytes past an aligned address, and judge the result.

    only: the name of a solver to force.
    """
    memory = prepare(operation, "normal", 0)
    buffers = {}
    for name, content in memory.items():
        padded = backend.to_device(np.concatenate([np.full(shift, 0xA5, np.uint8), content]))
        buffers[name] = padded.slice(shift, content.size), padded
    launches = backend.plan(operation) if only is None else plan_by(operation, backend.device, only)
    launches([buffers[name][0] if name in buffers else None for name in operation.operands], None)
    backend.synchronize(None)
    after = {name: buffers[name][1].to_host(np.uint8, shift + memory[name].size)[shift:] for name in operation.outputs}
    verdict = judge(operation, memory, after)
    assert verdict.agrees, verdict.worst


MAKERS = {
    "activation forward": rows.activation("TANH", False),
    "activation backward": rows.activation("RELU", True),
    "bias": rows.bias,
    "multiply": rows.multiply,
    "scale": rows.scale,
    "fill": rows.fill,
}


@pytest.mark.parametrize("shift", [0, 4], ids=["aligned", "misaligned"])
@pytest.mark.parametrize("rows_of_x, vectors", [(13, 1), (31, 2), (33, 3), (47, 4)])
@pytest.mark.parametrize("name", MAKERS)
def test_a_thread_takes_several_vectors(backend, monkeypatch, name, rows_of_x, vectors, shift):
    """Results are right for any number of vectors per thread, also in a partial last block and last vector.

    vectors: per thread, if the solver takes several.
    """
    monkeypatch.setattr(backend.device, "multiprocessors", 1)
    dims = (3, 7, rows_of_x, 37)
    assert geometry.vectors_per_thread(-(-prod(dims) // 8), backend.device, 8) == vectors
    check(backend, MAKERS[name](HALF, dims, "nchw"), shift)


@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
def test_blocks_of_large_tensors_prefetch(backend, backward):
    for dims, blocks in [((64, 256, 56, 56), geometry.PREFETCH_BLOCKS), ((8, 64, 14, 14), 0)]:
        ((launch, _),) = plan(rows.activation("RELU", backward)(HALF, dims, "nchw"), backend.device).steps
        offset = (40 if backward else 36) + ctypes.sizeof(geometry._geometry_type(3 if backward else 2))
        assert struct.unpack_from("I", launch.template, offset) == (blocks,)


def test_blending_takes_several_vectors(backend, monkeypatch):
    monkeypatch.setattr(backend.device, "multiprocessors", 1)
    t = TensorSpec.packed(FLOAT, (1, 5, 51, 49))
    assert geometry.vectors_per_thread(-(-prod(t.dims) // 4), backend.device, geometry.LONG_VECTORS_PER_THREAD) == 3
    check(backend, rows.ActivationForward(rows.ActivationSpec(0, rows.NAN, 1.0), 1.5, -0.5, t, t))


@pytest.mark.parametrize("shift", [0, 2, 6], ids=lambda s: f"{s}_bytes_on")
@pytest.mark.parametrize("dims", [(2, 3, 5, 14), (2, 5, 3, 8), (3, 2, 4, 41), (1, 2, 3, 9), (2, 2, 1, 12)], ids=str)
@pytest.mark.parametrize("name", MAKERS)
def test_gaps_are_skipped_and_kept(backend, name, dims, shift):
    """Rows whose pitch is not a multiple of a vector move element by element."""
    operation = MAKERS[name](HALF, dims, "gaps")
    output = operation.tensor(operation.outputs[0])
    assert geometry.elementwise(dims, [output.strides], 8, backend.device)[0].width == 1
    check(backend, operation, shift)


def test_gaps_of_other_types_and_blended(backend):
    x, y = (laid_out(kind, (2, 3, 5, 19), "gaps") for kind in (FLOAT, INT8))
    check(backend, rows.ActivationForward(rows.ActivationSpec(0, rows.NAN, 1.0), 1.5, -0.5, x, x))
    for shift in (0, 1, 3):
        check(backend, rows.ActivationForward(rows.ActivationSpec(1, rows.NAN, 1.0), 1.0, 0.5, y, y), shift)


def test_partial_sectors_of_tensors_that_do_not_stay_in_l2(backend):
    """Large results with gaps set partial_sectors; the kernel runs on a small tensor with that field set by hand."""
    kept, left = (laid_out(HALF, (64, channels, 30, 11), "gaps") for channels in (2, 400))
    packed = TensorSpec.packed(HALF, left.dims)
    for x, y, partial_sectors in ((kept, kept, 0), (left, left, 1), (packed, left, 1), (left, packed, 0)):
        planned, _ = geometry.elementwise(y.dims, [x.strides, y.strides], 8, backend.device)
        assert planned.partial_sectors == partial_sectors
    small = laid_out(HALF, (1, 40, 3, 11), "gaps")
    operation = rows.ActivationForward(rows.ActivationSpec(0, rows.NAN, 1.0), 1.0, 0.0, small, small)
    ((launch, _),) = backend.plan(operation).steps
    field = launch.function.fields["geometry.partial_sectors"]
    template = bytearray(launch.template)
    template[field.offset : field.offset + field.size] = (1).to_bytes(field.size, "little")
    launch.template = bytes(template)
    check(backend, operation)


@pytest.mark.parametrize("multiprocessors, elements", [(10, 1), (3, 3), (1, 8)])
@pytest.mark.parametrize("name", MAKERS)
def test_a_thread_takes_several_elements(backend, monkeypatch, name, multiprocessors, elements):
    """A thread takes several single elements if there are many. elements: per thread, in half."""
    monkeypatch.setattr(backend.device, "multiprocessors", multiprocessors)
    most = geometry.vectors_per_thread(3 * 4 * 21 * 11 * geometry.BUSY_BLOCKS, backend.device, geometry.MAX_ITEMS)
    assert most == elements
    for operation in (MAKERS[name](HALF, (3, 4, 21, 11), "gaps"), MAKERS[name](FLOAT, (2, 3, 7, 11, 5), "odd")):
        check(backend, operation)


@pytest.mark.parametrize("shift", [0, 2], ids=["aligned", "misaligned"])
@pytest.mark.parametrize("name", MAKERS)
def test_rows_of_full_vectors(backend, name, shift):
    """Rows whose pitch is a multiple of a vector move vector by vector, at any address."""
    dims, strides = (3, 5, 7, 16), (5 * 7 * 24 + 8, 7 * 24, 24, 1)
    operation = MAKERS[name](HALF, dims, "nchw")
    padded = {
        field: TensorSpec(HALF, dims, strides)
        for field in (*operation.inputs, *operation.outputs)
        if operation.tensor(field).dims == dims
    }
    operation = dataclasses.replace(operation, **padded)
    assert geometry.elementwise(dims, [strides], 8, backend.device)[0].width == 8
    check(backend, operation, shift)


TRANSPOSES = [
    (2, 67, 9, 11),
    (1, 3, 40, 50),
    (1, 50, 3, 1),
    (2, 72, 16, 24),
    (1, 20, 12, 10),
    (3, 8, 8, 40),
    (1, 130, 70, 1),
]


@pytest.mark.parametrize("alpha, beta", [(1.0, 0.0), (0.5, 2.0)], ids=["moves", "blends"])
@pytest.mark.parametrize("back", [False, True], ids=["to_nhwc", "to_nchw"])
@pytest.mark.parametrize("kind", [FLOAT, HALF, INT8], ids=lambda t: t.name)
@pytest.mark.parametrize("dims", TRANSPOSES, ids=lambda d: "x".join(map(str, d)))
def test_transposes_are_correct(backend, dims, kind, back, alpha, beta):
    x, y = (TensorSpec.packed(kind, dims, layout) for layout in ((NHWC, NCHW) if back else (NCHW, NHWC)))
    check(backend, TransformTensor(alpha, beta, x, y))


@pytest.mark.parametrize("kind", [FLOAT, HALF], ids=lambda t: t.name)
def test_transposes_at_any_address_and_with_gaps(backend, kind):
    x, y = (TensorSpec.packed(kind, (2, 72, 16, 24), layout) for layout in (NCHW, NHWC))
    check(backend, TransformTensor(1.0, 0.0, x, y), shift=4)
    check(
        backend,
        TransformTensor(1.0, 0.0, laid_out(kind, (2, 24, 9, 11), "gaps"), laid_out(kind, (2, 24, 9, 11), "nhwc")),
    )


@pytest.mark.parametrize("shift", [0, 4, 8])
@pytest.mark.parametrize("back", [False, True], ids=["to_nhwc", "to_nchw"])
def test_half_planes_of_short_vectors_are_transposed_in_squares(backend, back, shift):
    """Neither 44 pixels nor 36 channels divide into vectors of 8, only into vectors of 4."""
    x, y = (TensorSpec.packed(HALF, (3, 36, 4, 11), layout) for layout in ((NHWC, NCHW) if back else (NCHW, NHWC)))
    for alpha, beta, kernel in ((1.0, 0.0, "short_vectors"), (0.5, 2.0, "short_vectors_blend")):
        operation = TransformTensor(alpha, beta, x, y)
        ((launch, _),) = plan(operation, backend.device).steps
        assert launch.function.name == f"transform_transpose_{kernel}"
        check(backend, operation, shift)


MOVED = {
    "cropped": {"before": (0, 0, -1, -2), "after": (0, 0, 0, -1)},
    "folded": {"before": (0, 4, 0, 0), "fold": (1, 2)},
}


@pytest.mark.parametrize("kind", [FLOAT, INT8], ids=lambda t: t.name)
@pytest.mark.parametrize("changes", MOVED.values(), ids=MOVED)
def test_small_transposes_begin_anywhere(backend, changes, kind):
    """A cropped source, and a destination after other channels, may be misaligned."""
    operation = applied(changing(tensor_format=NHWC, **changes), (2, 4, 6, 8), kind, NCHW)
    (launch, _), *_ = plan_by(operation, backend.device, "transform.transpose").steps
    assert launch.function.name.startswith("transform_transpose")
    check(backend, operation, only="transform.transpose")


def test_bias_of_every_access(backend, monkeypatch):
    monkeypatch.setattr(backend.device, "multiprocessors", 1)  # Each thread takes two vectors.
    for shape, layout in (((1, 7, 1, 1), NCHW), ((1, 16, 1, 1), NHWC), ((1, 12, 1, 1), NHWC), ((1, 7, 1, 1), NHWC)):
        dims = (2, shape[1], 33, 37)
        assert geometry.vectors_per_thread(prod(dims) // 8, backend.device) == 2
        check(backend, AddTensor(1.0, 1.0, TensorSpec.packed(HALF, shape), TensorSpec.packed(HALF, dims, layout)))
