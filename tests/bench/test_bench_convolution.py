"""Test convolutions in the benchmark: the search for algorithms, with stand-ins for the vendor's library and PyTorch."""

from __future__ import annotations

import contextlib
import ctypes
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from dualdnn.accelerated.runtime.timing import Graph
from dualdnn.api import cudnn
from dualdnn.api.enumerations import cudnnConvolutionBwdDataAlgo_t as DataAlgo
from dualdnn.api.enumerations import cudnnConvolutionFwdAlgo_t as Algo
from dualdnn.api.enumerations import cudnnMathType_t as Math
from dualdnn.api.operations import ConvolutionBackwardData, ConvolutionForward
from dualdnn.api.operations.specs import NCHW, NHWC
from dualdnn.conformance.bench import convolution_search, graph_rows, measure
from dualdnn.conformance.bench.ceilings import Ceilings, data_sheet
from dualdnn.conformance.bench.command import cell, remarks, summary, table
from dualdnn.conformance.bench.convolution_rows import TINY, convolution, convolution_rows, input_matrix, rectified
from dualdnn.conformance.bench.convolution_search import Search, in_order, variants
from dualdnn.conformance.bench.graph_path import GraphPath
from dualdnn.conformance.bench.measure import Bench, with_floor
from dualdnn.conformance.bench.row import Row

IMPLICIT, PRECOMPUTED = (
    Algo.CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM,
    Algo.CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM,
)
WINOGRAD = Algo.CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD
DEFAULT, FMA, TENSOR_OP = Math.CUDNN_DEFAULT_MATH, Math.CUDNN_FMA_MATH, Math.CUDNN_TENSOR_OP_MATH
CEILINGS = Ceilings(4e12, 1e-6, {"half": 800e12, "float": 50e12}, "stand-in")
FLAT = Row("tiny float", "tiny", convolution(TINY, "float", NHWC))


class StandInBenchmark:
    """Stand in for pytest-benchmark's fixture."""

    def __init__(self):
        self.stats = SimpleNamespace(stats=SimpleNamespace(median=None))

    def pedantic(self, work, setup, rounds, warmup_rounds):
        for _ in range(2):
            setup()
            work()
        self.stats.stats.median = 1e-3


class StandInVendor:
    """Stand in for a vendor's library with our emulated backend, refuse some algorithms, and record the arguments."""

    description = "stand-in"

    def __init__(self, refused=(), broken=None):
        self.refused, self.broken, self.calls = refused, broken, []
        self.cudnn = self

    def new_handle(self):
        return cudnn.cudnnCreate(backend="accelerated", device="emulated")

    def __getattr__(self, name):
        return StandInFunction(self, name)


class StandInFunction:
    def __init__(self, vendor, name):
        self.vendor, self.name, self.function = vendor, name, getattr(cudnn, name)

    def __call__(self, *arguments):
        if self.name.startswith("cudnnConvolution"):
            algorithm = next(a for a in arguments if isinstance(a, Algo))
            self.vendor.calls.append((algorithm, arguments))
            if algorithm in self.vendor.refused:
                raise cudnn.CudnnError(cudnn.CUDNN_STATUS_NOT_SUPPORTED, "stand-in", "refused")
            if self.vendor.broken:
                raise self.vendor.broken
        return self.function(*arguments)

    def prepare(self, *arguments):
        return lambda: self(*arguments)


def measured(row, vendor=None, torch=None):
    return with_floor(Bench("emulated", vendor, torch).measure(row, StandInBenchmark()), CEILINGS)


@pytest.mark.parametrize("chosen", (0, 1))
def test_the_first_choice_for_a_gradient_is_timed(monkeypatch, chosen):
    """A gradient is timed with ALGO_1, and by the algorithm that the ranking lists first where it is another one."""
    o = FLAT.operation
    algorithm = DataAlgo.CUDNN_CONVOLUTION_BWD_DATA_ALGO_1
    gradient = ConvolutionBackwardData(o.convolution, algorithm, 0, 1.0, 0.0, o.w, o.y, o.x)
    first = DataAlgo(chosen)
    monkeypatch.setattr(measure, "first_choice", lambda *_: SimpleNamespace(algo=first))
    result = measured(Row("tiny data gradient", "data gradient", gradient))
    assert result["message"] is None and result["v7_algorithm"] == str(chosen)
    assert (result["v7_us"] is None, result["v7_ratio"] == 1) == ((True, True) if chosen else (False, False))


def test_a_convolution_is_timed_by_every_algorithm_of_a_vendor():
    vendor = StandInVendor(refused=(IMPLICIT,))
    result = measured(FLAT, vendor)
    assert result["message"] is None and result["ours_us"] == pytest.approx(1000) and result["vendor_us"] > 0
    assert result["vendor_algorithm"] == "IMPLICIT_PRECOMP_GEMM"  # NHWC has two algorithms, and one is refused.
    assert set(result["algorithms_us"]) == {"IMPLICIT_GEMM", "IMPLICIT_PRECOMP_GEMM"}
    assert result["algorithm"] == min(result["algorithms_us"], key=result["algorithms_us"].get)
    assert result["v7_ratio"] >= 1 and result["v7_algorithm"] in result["algorithms_us"]
    assert result["speedup"] == pytest.approx(result["vendor_us"] / 1000)
    assert {algorithm for algorithm, _ in vendor.calls} == {IMPLICIT, PRECOMPUTED}
    for _, arguments in vendor.calls:  # A library may write through any pointer.
        assert all(argument is not None for argument in arguments)


@pytest.mark.parametrize("added", [False, True], ids=["bias", "bias and addition"])
def test_a_fused_convolution_counts_the_bytes_of_each_operand_once(added):
    row = Row("fused", "fused", rectified(convolution(TINY, "half", NHWC), added))
    result = measured(row, StandInVendor())
    assert result["message"] is None and result["algorithm"] and result["vendor_us"] > 0
    o = row.operation
    moved = ("x", "w", "bias", "y") + (("z",) if added else ())
    assert row.nbytes == sum(o.tensor(name).nbytes for name in moved)


@pytest.mark.parametrize("which", ["graph convolution bias ReLU 1x8", "graph convolution statistics"])
def test_a_graph_is_timed_beside_separate_calls(which, monkeypatch):
    monkeypatch.setattr(graph_rows, "STATISTICS_LAYERS", (TINY,))
    row = next(row for row in graph_rows.graph_rows() if row.name.startswith(which))
    result = measured(row, StandInVendor())
    assert result["message"] is None and result["vendor_us"] > 0 and result["separate_us"] > 0
    plain = row.separate[0].operation
    assert row.flops == 2 * plain.y.count * 8 * 9 and result["pace"] == "half"
    assert row.nbytes == sum(o.nbytes for o in (plain.x, plain.w, plain.y)) + (16 if len(row.separate) == 1 else 64)


def test_the_matrix_of_the_input():
    result = measured(Row("im2col", "im2col", input_matrix(convolution(TINY, "float", NCHW))), None)
    assert result["message"] is None and result["ours_us"] and "algorithm" not in result


def test_a_failing_vendor_is_reported_and_our_time_is_kept():
    result = measured(FLAT, StandInVendor(broken=RuntimeError("lost its way")))
    assert result["ours_us"] and result["vendor_us"] is None and result["speedup"] is None
    assert "vendor" in result["message"] and "lost its way" in result["message"]


def test_a_vendor_that_fails_while_it_is_timed():
    vendor = StandInVendor()
    bench = Bench("emulated", vendor)
    begin = bench._ours

    def ours(operation, memory):
        vendor.broken = RuntimeError("broke later")
        return begin(operation, memory)

    bench._ours = ours
    result = bench.measure(FLAT, StandInBenchmark())
    assert result["ours_us"] and result["vendor_us"] is None and "broke later" in result["message"]


def test_everybody_is_timed_in_every_round(monkeypatch):
    """A contender that is timed after the others would have a warmer device."""
    timed_graphs = []

    class Noted(Graph):
        def __call__(self):
            timed_graphs.append(self)
            super().__call__()

    monkeypatch.setattr("dualdnn.accelerated.runtime.timing.Graph", Noted)
    bench = Bench("emulated", StandInVendor())
    result = bench.measure(FLAT, StandInBenchmark())
    assert result["message"] is None
    *_, vendor, ours, vendor_again, ours_again = timed_graphs
    assert vendor is vendor_again and ours is ours_again and vendor is not ours


def test_a_row_of_ours_that_fails(monkeypatch):
    def fails(*_):
        raise ValueError("no search today")

    monkeypatch.setattr("dualdnn.conformance.bench.measure.search", fails)
    result = measured(FLAT)
    assert result["ours_us"] is None and result["fraction"] is None and result["speedup"] is None
    assert result["message"] == "ours: ValueError: no search today"
    assert "no search today" in table([result]) and "1 rows without a time" in summary([result])


def test_strict_arithmetic_is_not_judged_by_times_of_tf32():
    strict = convolution(TINY, "float", NHWC)
    own = [replace(strict, algo=IMPLICIT), replace(strict, algo=PRECOMPUTED)]
    found = Search(
        {(IMPLICIT, DEFAULT): 1e-6, (PRECOMPUTED, FMA): 2e-6, (PRECOMPUTED, DEFAULT): 1e-6}, (IMPLICIT, DEFAULT)
    )
    ordered = in_order(found, own, lambda variant: 5e-6)
    assert [(variant.algo, seconds) for variant, seconds in ordered] == [(PRECOMPUTED, 2e-6), (IMPLICIT, 5e-6)]
    loose = [replace(v, convolution=replace(v.convolution, math_type=DEFAULT)) for v in own]
    assert [seconds for _, seconds in in_order(found, loose, pytest.fail)] == [1e-6, 1e-6]
    assert found.ratio == pytest.approx(1)


def test_algorithms_that_failed_are_no_choice():
    strict = convolution(TINY, "float", NHWC)
    own = [replace(strict, algo=IMPLICIT), replace(strict, algo=PRECOMPUTED)]
    found = Search({(PRECOMPUTED, FMA): 2e-6}, (IMPLICIT, DEFAULT))
    assert [variant.algo for variant, _ in in_order(found, own, pytest.fail)] == [PRECOMPUTED]
    assert found.ratio is None  # The first choice did not run.
    with pytest.raises(ValueError, match="no algorithm"):
        in_order(Search({}, (IMPLICIT, DEFAULT)), own, pytest.fail)


def test_algorithms_that_need_too_much_workspace_are_left_out(monkeypatch):
    handle = cudnn.cudnnCreate(backend="accelerated", device="emulated")
    every = variants(cudnn, handle, convolution(TINY, "float", NCHW))
    assert {v.algo for v in every} == set(Algo) - {Algo.CUDNN_CONVOLUTION_FWD_ALGO_DIRECT}
    monkeypatch.setattr(convolution_search, "MAX_WORKSPACE", 0)
    assert {v.algo for v in variants(cudnn, handle, convolution(TINY, "float", NCHW))} == {IMPLICIT, PRECOMPUTED}


# PyTorch


class Tensor:
    """Stand in for a PyTorch tensor over host memory."""

    def __init__(self, array):
        self.array = array

    def view(self, dtype):
        return Tensor(self.array.view(dtype))

    def as_strided(self, dims, strides):
        steps = [stride * self.array.itemsize for stride in strides]
        return Tensor(np.lib.stride_tricks.as_strided(self.array, dims, steps))

    def flatten(self):
        return Tensor(self.array.reshape(-1))


def correlated(x, w, stride, padding, groups):
    """Compute conv2d by its definition, tap by tap."""
    x = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (padding[0],) * 2, (padding[1],) * 2))
    w = w.astype(np.float64)
    rows, columns = (1 + (x.shape[2 + d] - w.shape[2 + d]) // stride[d] for d in range(2))
    n, k = x.shape[0], w.shape[0] // groups
    y = np.zeros((n, groups, k, rows, columns))
    for r in range(w.shape[2]):
        for s in range(w.shape[3]):
            part = x[:, :, r : r + rows * stride[0] : stride[0], s : s + columns * stride[1] : stride[1]]
            part = part[:, :, :rows, :columns].reshape(n, groups, -1, rows, columns)
            y += np.einsum("ngcpq,gkc->ngkpq", part, w[:, :, r, s].reshape(groups, k, -1))
    return y.reshape(n, groups * k, rows, columns)


class StandInTorch:
    """Implement the parts of PyTorch that the baseline uses on NumPy."""

    __version__ = "0.stand-in"
    float32, float16 = np.float32, np.float16

    def __init__(self):
        self.results, self.settings = [], []
        precision = SimpleNamespace(allow_tf32=None)
        self.backends = SimpleNamespace(
            cudnn=SimpleNamespace(benchmark=False, allow_tf32=None, version=lambda: 91900),
            cuda=SimpleNamespace(matmul=precision),
        )
        self.cuda = SimpleNamespace(
            ExternalStream=lambda handle: SimpleNamespace(synchronize=lambda: None),
            stream=lambda stream: contextlib.nullcontext(),
            empty_cache=lambda: None,
        )
        self.nn = SimpleNamespace(functional=SimpleNamespace(conv2d=self.conv2d))

    def no_grad(self):
        return contextlib.nullcontext()

    def as_tensor(self, memory, device):
        assert device == "cuda"
        interface = memory.__cuda_array_interface__
        (nbytes,), (address, _) = interface["shape"], interface["data"]
        return Tensor(np.frombuffer((ctypes.c_ubyte * nbytes).from_address(address), np.uint8))

    def _keep(self, name, y):
        self.settings.append((name, self.backends.cudnn.benchmark, self.backends.cudnn.allow_tf32))
        self.results.append(y)

    def conv2d(self, x, w, bias, stride, padding, dilation, groups):
        assert bias is None and tuple(dilation) == (1, 1)
        self._keep("conv2d", correlated(x.array, w.array, stride, padding, groups))

    def cudnn_convolution(self, x, w, padding, stride, dilation, groups, benchmark, deterministic, allow_tf32):
        assert benchmark and not deterministic and allow_tf32 == self.backends.cudnn.allow_tf32
        self._keep("cudnn_convolution", correlated(x.array, w.array, stride, padding, groups))

    def cudnn_convolution_relu(self, x, w, bias, stride, padding, dilation, groups):
        sums = correlated(x.array, w.array, stride, padding, groups) + bias.array[:, None, None]
        self._keep("relu", np.maximum(sums, 0))

    def cudnn_convolution_add_relu(self, x, w, z, alpha, bias, stride, padding, dilation, groups):
        sums = correlated(x.array, w.array, stride, padding, groups) + bias.array[:, None, None]
        self._keep("add relu", np.maximum(sums + alpha * z.array, 0))


def with_layer(layer, layout, wrap=lambda o: o, kind="float"):
    return wrap(replace(convolution(layer, kind, layout), algo=IMPLICIT))


CALLED = {
    "NHWC": (with_layer(TINY, NHWC), ["conv2d"]),
    "NCHW": (with_layer(TINY, NCHW), ["conv2d"]),
    "strided": (with_layer(replace(TINY, stride=2, filters=4), NHWC), ["conv2d"]),
    "depthwise": (with_layer(replace(TINY, groups=8), NHWC), ["conv2d", "cudnn_convolution"]),
    "half": (with_layer(TINY, NHWC, kind="half"), ["conv2d"]),
    "bias": (with_layer(TINY, NHWC, lambda o: rectified(o, False)), ["relu"]),
    "bias and addition": (with_layer(TINY, NCHW, lambda o: rectified(o, True)), ["add relu"]),
}


@pytest.mark.parametrize("operation, names", CALLED.values(), ids=CALLED)
def test_pytorch_is_asked_for_the_same_convolution(operation, names):
    """The stand-in computes from its arguments what our call computes from the same memory."""
    bench = Bench("emulated", None)
    torch = StandInTorch()
    path = GraphPath(torch, 0)
    with bench._memory(Row("a layer", "layers", operation)) as memory:
        bench._own_call(operation, memory)()
        bench.handle.synchronize()
        y = operation.y
        element = np.dtype(np.float16 if y.scalar_bytes == 2 else np.float32)
        flat = memory["y"].to_host(element, y.span)
        ours = np.lib.stride_tricks.as_strided(flat, y.dims, [stride * element.itemsize for stride in y.strides])
        for _, work in path.calls(operation, memory):
            work()
    assert [name for name, *_ in torch.settings] == names
    tf32 = operation.x.scalar_bytes == 2  # Float rows forbid TF32, and half rows do not set it.
    assert all(benchmark and allowed is tf32 for _, benchmark, allowed in torch.settings)
    for result in torch.results:
        np.testing.assert_allclose(
            ours, result, rtol=0.02 if element.itemsize == 2 else 1e-4, atol=0.05 if element.itemsize == 2 else 1e-4
        )


def test_both_baselines_are_timed_and_the_better_one_counts():
    torch = StandInTorch()
    result = measured(FLAT, StandInVendor(), torch)
    assert result["message"] is None and result["graph_us"] > 0 and result["vendor_us"] > 0
    assert result["graph_algorithm"] == "conv2d" and len(torch.results) > 2
    assert result["speedup"] == pytest.approx(min(result["graph_us"], result["vendor_us"]) / result["ours_us"])


def test_pytorch_without_a_fused_call():
    torch = StandInTorch()
    torch.cudnn_convolution_relu = None
    row = Row("fused", "fused", rectified(convolution(TINY, "float", NHWC), False))
    result = measured(row, None, torch)
    assert result["ours_us"] and result["graph_us"] is None and result["message"].startswith("graph: TypeError")


# Floors and figures


def test_the_floor_of_a_convolution_is_the_slowest_of_three():
    row = next(
        row
        for row in convolution_rows()
        if row.name.startswith("convolution 64x256x56x56 256 of 3x3") and "float NCHW" in row.name
    )
    assert row.flops == 2 * 64 * 256 * 56 * 56 * 256 * 9 and row.pace == "float"
    assert row.nbytes == 4 * (2 * 64 * 256 * 56 * 56 + 256 * 256 * 9)
    assert CEILINGS.floor(row.nbytes, row.flops, row.pace) == pytest.approx(row.flops / 50e12)
    assert CEILINGS.floor(row.nbytes, row.flops, "tf32") == pytest.approx(row.nbytes / 4e12)  # This ceiling is unknown.
    assert CEILINGS.floor(1, 1, "half") == 1e-6
    assert data_sheet("NVIDIA H200")[0]["tf32"] == 494.7e12 and data_sheet("emulated device") == ({}, None)


def test_the_paces_are_those_of_the_data():
    paces = {row.name.split()[-2]: row.pace for row in convolution_rows() if row.flops}
    assert paces == {"half": "half", "bfloat16": "bfloat16", "TF32": "tf32", "float": "float"}


def test_every_layer_is_timed_in_every_type_and_layout():
    every = list(convolution_rows())
    plain = [row for row in every if row.family == "convolution"]
    assert len(plain) == 7 * 4 * 2 + 6 * 2 * 2 and len({row.name for row in every}) == len(every)
    assert all(isinstance(row.operation, ConvolutionForward) for row in plain)
    depthwise = next(row for row in plain if "groups 256" in row.name)
    assert depthwise.operation.w.dims == (256, 1, 3, 3) and depthwise.operation.y.dims == (64, 256, 56, 56)
    first = next(row for row in plain if "7x7" in row.name)
    assert first.operation.y.dims == (64, 64, 112, 112)


def result(**others):
    empty = dict.fromkeys(("ours_us", "vendor_us", "graph_us", "host_us", "floor_us", "fraction", "speedup", "message"))
    return {"name": "a row", "family": "convolution", "bytes": 1, "flops": 1, "wall_s": 0.5, **empty, **others}


def test_the_summary_counts_the_heuristic():
    rows = [result(ours_us=1.0, v7_ratio=ratio) for ratio in (1.0, 1.09, 1.2)]
    assert "within 10 % of Find's best on 2 of 3 convolutions" in summary(rows)
    assert "0 rows without a time, 2 s" in summary(rows)


def test_remarks_name_algorithms_and_failures():
    told = remarks(result(algorithm="GEMM", v7_algorithm="FFT", v7_us=7.0, vendor_algorithm="WINOGRAD", message="late"))
    assert told == "GEMM; v7 FFT 7.0; vendor WINOGRAD; late"
    assert cell({"GEMM": 1.25, "FFT": 3.0}) == "GEMM 1.2, FFT 3.0" and cell(None) is None
