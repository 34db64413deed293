"""Tests that pooling solvers are right for all that they claim to serve, in any number of blocks, at any alignment."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from dualdnn.accelerated.backend import AcceleratedBackend
from dualdnn.accelerated.plans import AlignedPlan, plan
from dualdnn.accelerated.pooling.plan import SOLVERS
from dualdnn.accelerated.pooling.static_window import WINDOWS
from dualdnn.accelerated.runtime.compiler import compile_all
from dualdnn.accelerated.runtime.sources import KERNELS, declared_entry_points, entry_points
from dualdnn.accelerated.solver import plan_by, possible_solvers
from dualdnn.api.enumerations import cudnnNanPropagation_t as Nan
from dualdnn.api.enumerations import cudnnPoolingMode_t as Mode
from dualdnn.api.operations import PoolingBackward, PoolingForward, PoolingSpec, TensorSpec
from dualdnn.api.operations.specs import BFLOAT16, DOUBLE, FLOAT, HALF, NHWC
from dualdnn.conformance.bench.rows import pooling
from dualdnn.conformance.cases.pooling import pooling as cases
from dualdnn.conformance.corpus import FOLDER
from dualdnn.conformance.corpus import cases as pinned
from dualdnn.conformance.layouts import laid_out
from pooling_support import PlanningDevice, assert_agrees, kernel_of, operations_of, with_ties

PADDED = (3, 2, 1)


@pytest.fixture(scope="module")
def backend():
    return AcceleratedBackend("emulated")


def case_operations():
    """Yield the calls of those conformance cases whose shapes decide which kernel serves."""
    for file in ("pooling.jsonl", "pooling_static_windows.jsonl"):
        for lines in pinned(FOLDER / file).values():
            yield from (one.entry.drawn.operation for several in lines.values() for one in several)


def test_every_kernel_is_launched_by_a_case():
    device = PlanningDevice(1)
    for operation in case_operations():
        for name in possible_solvers(operation, device):
            plan_by(operation, device, name)
    entries = {name for name in entry_points() if name.startswith("pooling_")}
    assert len(entries) > 25
    assert entries <= set(device.kernels)


def test_entry_points_name_their_solver():
    names = {solver.name.removeprefix("pooling.") for solver in SOLVERS}
    for path in (KERNELS / "pooling").rglob("*.cu"):
        assert path.stem in names
        entries = declared_entry_points(path)
        assert entries and {entry.rsplit("_", 1)[0] for entry in entries} == {f"pooling_{path.stem}"}


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@pytest.mark.parametrize("channels", [3, 6, 7])
@pytest.mark.parametrize("data_type", [FLOAT, HALF], ids=lambda t: t.name)
def test_global_windows_are_served_for_any_number_of_channels(backend, data_type, channels):
    """A thread takes the widest vector that divides the channels of an NHWC tensor."""
    x, y = (TensorSpec.packed(data_type, (2, channels, *plane), NHWC) for plane in ((9, 5), (1, 1)))
    average = PoolingSpec(
        Mode.CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING, Nan.CUDNN_PROPAGATE_NAN, (9, 5), (0, 0), (1, 1)
    )
    forward, backward = PoolingForward(average, 1.0, 0.0, x, y), PoolingBackward(average, 0.5, 2.0, y, y, x, x)
    for operation, name in ((forward, "pooling.global_forward"), (backward, "pooling.global_average_backward")):
        assert name in possible_solvers(operation, backend.device)
        assert_agrees(backend, operation, plan_by(operation, backend.device, name))


DIMS = [
    (64, 256, 56, 56), (8, 64, 14, 14), (31, 67, 37, 41), (3, 5, 6, 62), (64, 3, 224, 224),
    (2, 24, 9, 12, 20), (8, 64, 16, 56, 56),
]  # fmt: skip


@pytest.mark.parametrize("layout", ["nchw", "nhwc", "gaps", "chwn"])
@pytest.mark.parametrize("dims", DIMS, ids=str)
@pytest.mark.parametrize("data_type", [FLOAT, HALF], ids=lambda t: t.name)
def test_accesses_are_aligned(data_type, dims, layout):
    """Every vector access is aligned and does not reach beyond its row."""
    for window in sorted(WINDOWS):
        for operation in operations_of(window, data_type, dims, layout):
            device = PlanningDevice()
            for name in possible_solvers(operation, device):
                found = plan_by(operation, device, name)
                if isinstance(found, AlignedPlan):
                    for operand, mask in zip(operation.operands, found.masks, strict=True):
                        assert_vectors(operation.tensor(operand), mask + 1) if mask else None


def assert_vectors(tensor, nbytes):
    """Assert that vectors of ``nbytes`` bytes are aligned in every row and fill it."""
    vector = nbytes // tensor.scalar_bytes
    inner = [next(i for i, stride in enumerate(tensor.strides) if stride == 1 and tensor.dims[i] > 1)]
    while np.prod([tensor.dims[i] for i in inner]) % vector:  # Dimensions without gaps merge into longer rows.
        inner.append(tensor.strides.index(np.prod([tensor.dims[i] for i in inner])))
    others = [s for i, s in enumerate(tensor.strides) if i not in inner and tensor.dims[i] > 1]
    assert all(stride % vector == 0 for stride in others)


# Several blocks divide these shapes, by rows, columns, planes or channels.
SPLIT = [
    ("pooling.max_backward", FLOAT, (1, 2, 70, 132), "nchw"), ("pooling.max_backward", HALF, (1, 3, 64, 33), "nchw"),
    ("pooling.max_backward", HALF, (1, 24, 40, 38), "nhwc"), ("pooling.max_backward", FLOAT, (1, 2, 9, 36, 44), "nchw"),
    ("pooling.max_backward", BFLOAT16, (1, 8, 6, 8, 10), "nhwc"), ("pooling.max_backward", DOUBLE, (2, 3, 12, 14), "nhwc"),
    ("pooling.max_backward", FLOAT, (3, 22, 12, 13), "nchw"), ("pooling.max_backward", HALF, (2, 40, 9, 10), "nhwc"),
    ("pooling.max_backward", DOUBLE, (2, 3, 9, 13), "gaps"), ("pooling.static_forward", FLOAT, (1, 2, 33, 9, 20), "nchw"),
    ("pooling.static_average_backward", HALF, (1, 3, 420, 840), "nchw"),  # 1 MB: rows are written together.
    ("pooling.static_average_backward", FLOAT, (2, 2, 4, 160, 220), "nchw"),
]  # fmt: skip
DISJOINT = [
    ((3, 3, 1), FLOAT, (1, 2, 8, 9, 12), "nchw"), ((3, 3, 1), HALF, (2, 3, 7, 10, 16), "nchw"),
    ((3, 3, 1), HALF, (1, 8, 6, 8, 7), "nhwc"), ((3, 3, 2), FLOAT, (2, 3, 13, 16), "nchw"),
    ((3, 3, 0), HALF, (1, 16, 11, 10), "nhwc"), ((2, 2, 1), FLOAT, (1, 3, 6, 7, 8), "nchw"),
]  # fmt: skip


@pytest.mark.parametrize("multiprocessors", [1, 6])
@pytest.mark.parametrize("name, data_type, dims, layout", SPLIT, ids=str)
def test_any_number_of_blocks(backend, monkeypatch, name, data_type, dims, layout, multiprocessors):
    """NaN, infinities and ties are right for any number of blocks, with and without alpha and beta."""
    monkeypatch.setattr(backend.device, "multiprocessors", multiprocessors, raising=False)
    served = [
        operation
        for operation in operations_of(PADDED, data_type, dims, layout)
        if name in possible_solvers(operation, backend.device)
    ]
    assert served
    for operation in served:
        assert_agrees(backend, operation, plan_by(operation, backend.device, name))


@pytest.mark.parametrize("window, data_type, dims, layout", DISJOINT, ids=str)
def test_windows_that_share_no_input(backend, window, data_type, dims, layout):
    """Static windows side by side are right with padding, and with inputs after the last window."""
    served = set()
    for operation in operations_of(window, data_type, dims, layout):
        for name in possible_solvers(operation, backend.device):
            if "generic" not in name:
                served.add(name)
                assert_agrees(backend, operation, plan_by(operation, backend.device, name))
    assert served


GENERIC = [
    ((3, 1, 1), (2, 3, 40, 37), "nchw"), ((3, 1, 1), (1, 24, 14, 33), "nhwc"), ((2, 1, 0), (1, 5, 6, 20, 19), "nchw"),
    ((2, 1, 0), (1, 35, 4, 7, 6), "nhwc"), ((5, 3, 1), (70, 4, 8, 9), "nchw"), ((9, 1, 4), (1, 8, 20, 21), "nhwc"),
    ((700, 1, 350), (1, 4, 1, 700), "nhwc"), ((9, 5, 2), (3, 8, 21, 40), "nchw"), ((40, 31, 9), (1, 16, 80, 70), "nhwc"), ((3, 7, -2), (2, 3, 30, 31), "gaps"), ((2, 2, 0), (1, 2, 4, 9000), "odd"),
    ((4, 3, 1), (1, 4, 9, 41, 83), "nchw"), ((3, 4, -1), (2, 2, 70, 90), "gaps"), ((2, 1, 3), (2, 6, 5, 4), "nchw"),
]  # fmt: skip


@pytest.mark.parametrize("multiprocessors", [pytest.param(1, marks=pytest.mark.long), 132])
@pytest.mark.parametrize("window, dims, layout", GENERIC, ids=str)
def test_any_window(backend, monkeypatch, window, dims, layout, multiprocessors):
    """Windows of any size are right, also if a tile holds a single input, or if threads share a large window."""
    monkeypatch.setattr(backend.device, "multiprocessors", multiprocessors, raising=False)
    for operation in operations_of(window, FLOAT, dims, layout):
        if layout == "odd" and not isinstance(operation, PoolingForward):
            continue
        name = next(name for name in possible_solvers(operation, backend.device) if "generic" in name)
        assert_agrees(backend, operation, plan_by(operation, backend.device, name))


@pytest.mark.parametrize("dims", [(1, 8, 118, 72), (2, 6, 21, 16), (3, 5, 19, 17)], ids=str)
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_many_threads_share_a_plane(backend, dims, layout):
    """The threads of several warps find the first maximum of a large plane, where there are few planes."""
    geometry = cases.Geometry(dims, dims[2:], (0, 0), (1, 1))
    for nan in Nan:
        operation = cases.backward(Mode.CUDNN_POOLING_MAX, geometry, HALF, layout, layout, nan=nan)
        found = plan_by(operation, backend.device, "pooling.generic_max_backward")
        assert found.steps[0][0].block[0] > 256 or dims[2] < 100
        assert_agrees(backend, operation, found)


@pytest.mark.parametrize("data_type", [FLOAT, HALF, DOUBLE], ids=lambda t: t.name)
@pytest.mark.parametrize("window", [(5, 2, 2), (3, 1, 1), (2, 3, 0)], ids=str)
def test_even_numbers_of_channels_are_read_in_pairs(backend, data_type, window):
    """Two channels are one access where more would not divide them."""
    for operation in operations_of(window, data_type, (2, 6, 11, 9), "nhwc"):
        name = next(name for name in possible_solvers(operation, backend.device) if "generic" in name)
        assert_agrees(backend, operation, plan_by(operation, backend.device, name))


@pytest.mark.parametrize("nan", list(Nan), ids=lambda n: n.name)
@pytest.mark.parametrize("window", [(3, 1, 2), (2, 3, 1)], ids=str)
def test_maxima_of_nothing_but_the_lowest(backend, window, nan):
    """Padding is never the maximum, not even in a window of nothing but -infinity and NaN."""
    geometry = cases.Geometry((2, 4, 7, 9), *((size,) * 2 for size in (window[0], window[2], window[1])))
    operation = cases.backward(Mode.CUDNN_POOLING_MAX, geometry, FLOAT, "nchw", "nchw", nan=nan)
    memory = with_ties(operation)
    x = memory["x"].view(np.float32)
    x[:] = np.where(np.arange(x.size) % 7 == 3, np.nan, -np.inf)
    assert_agrees(backend, operation, plan_by(operation, backend.device, "pooling.generic_max_backward"), memory)


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("shift", [4, 12])
def test_operands_at_any_address(backend, layout, shift):
    """A solver that needs aligned vectors has a fallback for other addresses."""
    for operation in operations_of(PADDED, FLOAT, (2, 8, 6, 8), layout):
        for name in possible_solvers(operation, backend.device):
            assert_agrees(backend, operation, plan_by(operation, backend.device, name), shift=shift)


def one_forward(window, stride, padding, x, outputs=(4, 4)):
    spec = PoolingSpec(
        Mode.CUDNN_POOLING_MAX, Nan.CUDNN_NOT_PROPAGATE_NAN, (window,) * 2, (padding,) * 2, (stride,) * 2
    )
    return PoolingForward(spec, 1.0, 0.0, x, TensorSpec.packed(FLOAT, (*x.dims[:2], *outputs)))


@pytest.mark.parametrize(
    "operation",
    [
        one_forward(2, 2, 0, TensorSpec.packed(FLOAT, (1, 1, 6, 8))),  # Some windows have no inputs.
        one_forward(2, 2, 0, TensorSpec(FLOAT, (2, 3, 8, 8), (2**33, 2**20, 64, 1))),  # The strides exceed 32 bits.
        one_forward(5, 2, 1, TensorSpec.packed(FLOAT, (2, 3, 9, 9))),
        one_forward(3, 1, 0, TensorSpec.packed(FLOAT, (2, 3, 6, 6))),
    ],
    ids=["without inputs", "far apart", "5x5", "stride 1"],
)
def test_only_the_generic_kernel_serves_other_calls(operation):
    assert possible_solvers(operation, PlanningDevice()) == ("pooling.generic_forward",)


@pytest.mark.parametrize(
    ("dims", "layout", "kernel"),
    [
        ((8, 64, 14, 14), "nchw", "max_backward_loose"), ((8, 64, 14, 14), "nhwc", "max_backward_channels"),
        ((64, 256, 56, 56), "nchw", "max_backward_wide"), ((64, 256, 56, 56), "nhwc", "max_backward_channels"),
        ((8, 24, 16, 56, 56), "nhwc", "max_backward_channels"), ((2, 3, 6, 8, 128), "nchw", "max_backward_wide"),
    ],
    ids=str,
)  # fmt: skip
def test_the_expected_kernel_is_preferred(dims, layout, kernel):
    operation = pooling("MAX", *PADDED, True)(HALF, dims, layout)
    device = PlanningDevice()
    plan(operation, device)
    assert device.kernels[0] == f"pooling_{kernel}"


@pytest.mark.parametrize(
    ("window", "stride", "dims", "kernel"),
    [
        (20, 20, (4, 2048, 60, 60), "bands"), (13, 1, (16, 512, 32, 32), "tile"), (5, 3, (32, 128, 28, 28), "tile"),
        (60, 20, (1, 64, 200, 300), "bands"),
    ],
    ids=str,
)  # fmt: skip
def test_high_windows_are_pooled_by_rows_first(window, stride, dims, kernel):
    """A kernel pools rows first if windows hardly overlap or are too large for a tile."""
    operation = pooling("AVERAGE_COUNT_EXCLUDE_PADDING", window, stride, 0, False)(HALF, dims, "nchw")
    assert kernel_of(operation, "pooling.generic_forward") == f"pooling_generic_forward_{kernel}"


@pytest.mark.parametrize("layout", ["nchw", "nhwc", "gaps"])
@pytest.mark.parametrize("dims", [(2, 3, 7, 9), (1, 2, 40, 33), (2, 16, 6, 5), (3, 8, 1, 64), (5, 1, 2, 17)], ids=str)
@pytest.mark.parametrize("data_type", [FLOAT, HALF], ids=lambda t: t.name)
def test_one_window_over_everything(backend, data_type, dims, layout):
    """Global pooling is right for misaligned planes, rows with gaps, and any number of channels."""
    rank = len(dims) - 2
    for mode in (Mode.CUDNN_POOLING_MAX, Mode.CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING):
        geometry = cases.Geometry(dims, dims[2:], (0,) * rank, (1,) * rank)
        for operation in (
            cases.forward(mode, geometry, data_type, layout, layout, nan=Nan.CUDNN_PROPAGATE_NAN, beta=0.5),
            cases.backward(mode, geometry, data_type, layout, layout, alpha=-1.5),
        ):
            for name in possible_solvers(operation, backend.device):
                assert_agrees(backend, operation, plan_by(operation, backend.device, name))


@pytest.mark.parametrize(
    ("columns", "pitch", "over_gaps"),
    [(4, 8, 0), (5, 9, 0), (6, 11, 0), (7, 8, 1), (7, 14, 1), (8, 11, 1), (15, 16, 1)],
)
def test_gaps_are_not_pooled(backend, columns, pitch, over_gaps):
    """NaN in gaps changes no average, even if a vector of 16 bytes reaches across a gap."""
    dims, strides = (3, 5, 6, columns), (31 * pitch + 1, 6 * pitch + 3, pitch, 1)
    x, y = TensorSpec(HALF, dims, strides), TensorSpec.packed(HALF, (3, 5, 1, 1))
    spec = PoolingSpec(
        Mode.CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING, Nan.CUDNN_PROPAGATE_NAN, dims[2:], (0, 0), (1, 1)
    )
    operation = PoolingForward(spec, 1.0, 0.0, x, y)
    assert ("pooling.global_forward" in possible_solvers(operation, backend.device)) == bool(over_gaps)
    name = possible_solvers(operation, backend.device)[0]
    memory = with_ties(operation, "normal")
    elements = np.zeros(memory["x"].size // 2, bool)
    elements[sum(i * s for i, s in zip(np.indices(dims), strides, strict=True)).ravel()] = True
    memory["x"].view(np.float16)[~elements] = np.nan
    assert_agrees(backend, operation, plan_by(operation, backend.device, name), memory)


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc")
def test_kernels_in_double_compile_for_a_gpu():
    """No kernel in double is built ahead or timed, so only this test compiles some of them for a GPU."""
    device = PlanningDevice()
    for layout in ("nchw", "nhwc"):
        operations = operations_of(PADDED, DOUBLE, (2, 24, 9, 12), layout)
        for operation in (operations[0], operations[4], operations[6]):
            plan_by(operation, device, possible_solvers(operation, device)[-2])
    assert len(compile_all(sorted(device.modules), "sm_90", jobs=2)) == len(device.modules)


def test_layouts_without_rows_or_channels_have_generic_kernels():
    x, y = laid_out(FLOAT, (2, 3, 9, 11), "odd"), laid_out(FLOAT, (2, 3, 5, 6), "odd")
    spec = PoolingSpec(Mode.CUDNN_POOLING_MAX, Nan.CUDNN_NOT_PROPAGATE_NAN, (3, 3), (1, 1), (2, 2))
    assert possible_solvers(PoolingForward(spec, 1.0, 0.0, x, y), PlanningDevice()) == ("pooling.generic_forward",)
