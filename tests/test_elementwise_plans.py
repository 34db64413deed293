"""Plans of the memory-bound kernels that no small call makes: several packs of a thread, spread packs, tiles of turns."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from dualdnn.accelerated import geometry
from dualdnn.accelerated import tensor_arithmetic as arithmetic
from dualdnn.accelerated.backend import AcceleratedBackend
from dualdnn.api.operations import AddTensor, TensorSpec, TransformTensor
from dualdnn.api.operations.specs import FLOAT, HALF, INT8, NCHW, NHWC
from dualdnn.conformance.bench import rows
from dualdnn.conformance.layouts import laid_out
from dualdnn.conformance.trial import prepare
from dualdnn.reference import judge


@pytest.fixture
def backend(monkeypatch):
    made = AcceleratedBackend("emulated")
    monkeypatch.setattr(made, "plans", {})
    return made


def check(backend, operation, shift=0):
    """Runs the operation with every operand ``shift`` bytes behind an aligned address and has it judged."""
    memory = prepare(operation, "normal", 0)
    places = {}
    for name, content in memory.items():
        whole = backend.to_device(np.concatenate([np.full(shift, 0xA5, np.uint8), content]))
        places[name] = whole.slice(shift, content.size), whole
    backend.prepare(operation)([places[name][0] if name in places else None for name in operation.operands], None)
    backend.synchronize(None)
    after = {name: places[name][1].to_host(np.uint8, shift + memory[name].size)[shift:] for name in operation.outputs}
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
@pytest.mark.parametrize("packs", [1, 3, 4, 7])
@pytest.mark.parametrize("name", MAKERS)
def test_a_thread_takes_several_packs(backend, monkeypatch, name, packs, shift):
    for module in (geometry, arithmetic):
        monkeypatch.setattr(module, "batch", lambda *_: packs)
    monkeypatch.setattr(arithmetic, "DENSE_BATCH", packs)
    # more than one block of 256 threads with 7 packs of 8 halves, the last one short, the last pack partial
    operation = MAKERS[name](HALF, (3, 7, 31, 37), "nchw")
    check(backend, operation, shift)


def test_blending_takes_several_packs(backend, monkeypatch):
    monkeypatch.setattr(geometry, "batch", lambda *_: 3)
    t = TensorSpec.packed(FLOAT, (1, 5, 31, 33))
    check(backend, rows.ActivationForward(rows.ActivationSpec(0, rows.NAN, 1.0), 1.5, -0.5, t, t))


@pytest.mark.parametrize("shift", [0, 2, 6], ids=lambda s: f"{s}_bytes_on")
@pytest.mark.parametrize("dims", [(2, 3, 5, 14), (2, 5, 3, 8), (3, 2, 4, 41), (1, 2, 3, 9), (2, 2, 1, 12)], ids=str)
@pytest.mark.parametrize("name", MAKERS)
def test_gaps_are_walked_and_kept(backend, name, dims, shift):
    """Rows of at least a pack with the same gaps in all operands, ends of planes and images inside packs."""
    operation = MAKERS[name](HALF, dims, "gaps")
    output = operation.tensor(operation.outputs[0])
    assert geometry.elementwise(dims, [output.strides], 8, backend.device)[0].span
    check(backend, operation, shift)


def test_gaps_of_other_types_and_blended(backend):
    x, y = (laid_out(kind, (2, 3, 5, 19), "gaps") for kind in (FLOAT, INT8))
    check(backend, rows.ActivationForward(rows.ActivationSpec(0, rows.NAN, 1.0), 1.5, -0.5, x, x))
    for shift in (0, 1, 3):
        check(backend, rows.ActivationForward(rows.ActivationSpec(1, rows.NAN, 1.0), 1.0, 0.5, y, y), shift)


@pytest.mark.parametrize(
    "dims, strides",
    [
        ((2, 3, 6), [(40, 12, 1), (40, 12, 1)]),  # rows shorter than a pack
        ((2, 3, 9), [(40, 10, 1), (60, 20, 1)]),  # other gaps
        ((2, 3, 9), [(40, 20, 2), (40, 20, 2)]),  # steps over elements
        ((2, 3, 9), [(90, 30, 1), (90, 30, 1)]),  # mostly gaps
        ((3, 9), [(8, 1), (8, 1)]),  # rows that meet
    ],
    ids=str,
)
def test_what_is_not_walked_in_memory(backend, dims, strides):
    assert not geometry.elementwise(dims, strides, 8, backend.device)[0].span


@pytest.mark.parametrize("row", [2, 3, 7, 14, 28, 41, 56, 224, 1000])
def test_spread_packs_meet_every_position_once(row):
    """The kernels' arithmetic (index.cuh), on rows with gaps."""
    rows_of = 3
    value, grid = geometry.elementwise(
        (rows_of, row), [(row + 1, 1), (row + 3, 1)], 8, AcceleratedBackend("emulated").device
    )
    assert value.spread and not value.spread & (value.spread - 1) and value.width <= geometry.SPREAD_ITEMS
    assert value.batch == 1 and grid[0] * geometry.THREADS >= value.packs
    met = Counter()
    for index in range(value.packs):
        line, pack = divmod(index, value.packs_per_row.divisor)
        first = (pack & -value.spread) * value.width + (pack & (value.spread - 1))
        met.update((line, position) for position in range(first, row, value.spread)[: value.width])
    assert met == Counter((line, position) for line in range(rows_of) for position in range(row))


TURNS = [
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
@pytest.mark.parametrize("dims", TURNS, ids=lambda d: "x".join(map(str, d)))
def test_turns(backend, dims, kind, back, alpha, beta):
    x, y = (TensorSpec.packed(kind, dims, layout) for layout in ((NHWC, NCHW) if back else (NCHW, NHWC)))
    check(backend, TransformTensor(alpha, beta, x, y))


@pytest.mark.parametrize("kind", [FLOAT, HALF], ids=lambda t: t.name)
def test_turns_at_any_address_and_with_gaps(backend, kind):
    x, y = (TensorSpec.packed(kind, (2, 72, 16, 24), layout) for layout in (NCHW, NHWC))
    check(backend, TransformTensor(1.0, 0.0, x, y), shift=4)
    check(
        backend,
        TransformTensor(1.0, 0.0, laid_out(kind, (2, 24, 9, 11), "gaps"), laid_out(kind, (2, 24, 9, 11), "nhwc")),
    )


def test_bias_of_every_walk(backend, monkeypatch):
    monkeypatch.setattr(arithmetic, "batch", lambda *_: 2)
    for shape, layout in (((1, 7, 1, 1), NCHW), ((1, 16, 1, 1), NHWC), ((1, 12, 1, 1), NHWC), ((1, 7, 1, 1), NHWC)):
        dims = (2, shape[1], 9, 13)
        check(backend, AddTensor(1.0, 1.0, TensorSpec.packed(HALF, shape), TensorSpec.packed(HALF, dims, layout)))
