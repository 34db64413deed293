"""Tests the workspaces and the ranking of convolution algorithms, and that searches measure time."""

from __future__ import annotations

from math import prod

import pytest
from convolution_operations import (
    EXPLICIT,
    FFT,
    FFT_TILING,
    FMA,
    IMPLICIT,
    NONFUSED,
    PRECOMPUTED,
    WINOGRAD,
    convolution,
)
from dualdnn.accelerated import AcceleratedBackend
from dualdnn.accelerated import backend as backend_module
from dualdnn.accelerated.convolution.forward import ConvolutionProblem
from dualdnn.accelerated.convolution.implicit_gemm.fp32 import FP32
from dualdnn.accelerated.plans import estimated_seconds
from dualdnn.accelerated.records import Part, Record
from dualdnn.api.operations.specs import BFLOAT16, FLOAT, HALF, NCHW, NHWC


@pytest.fixture
def backend():
    return AcceleratedBackend("emulated")


def test_workspace_of_transforms(backend, monkeypatch):
    """FFT_TILING needs less workspace than FFT for large images, and WINOGRAD less than WINOGRAD_NONFUSED for many
    (5.1.3.10); implicit GEMM needs no workspace."""
    # A smaller device slices the im2col matrix of EXPLICIT and needs less workspace.
    monkeypatch.setattr(backend.device, "multiprocessors", 132)
    needed = {
        algo: backend.workspace_bytes(convolution(algo, (1, 8, 200, 200), 8, (3, 3), math=FMA))
        for algo in (IMPLICIT, PRECOMPUTED, EXPLICIT, FFT, FFT_TILING, WINOGRAD, NONFUSED)
    }
    assert needed[IMPLICIT] == needed[PRECOMPUTED] == 0
    assert needed[WINOGRAD] > 0 and 0 < needed[FFT_TILING] < needed[FFT]
    many = (convolution(algo, (64, 64, 200, 200), 64, (3, 3), math=FMA) for algo in (WINOGRAD, NONFUSED))
    winograd, nonfused = map(backend.workspace_bytes, many)
    assert winograd <= 2**28 + 2**20 < nonfused
    assert needed[EXPLICIT] >= prod((200, 200, 8, 3, 3)) * 4


def test_the_expected_algorithm_is_ranked_first():
    """Transforms win for large float images, tensor cores win in half, and implicit GEMM wins for 1 x 1 filters."""
    backend = AcceleratedBackend("emulated")

    def ranked(algorithms, **options):
        operations = [convolution(algo, (64, 256, 56, 56), 256, (3, 3), **options) for algo in algorithms]
        return [operation.algo for operation in backend.preferred_algorithms(operations)]

    plain = ranked((EXPLICIT, IMPLICIT, WINOGRAD, NONFUSED), math=FMA)
    assert plain[0] in (WINOGRAD, NONFUSED) and plain[-1] == EXPLICIT
    half = ranked((EXPLICIT, IMPLICIT, PRECOMPUTED, WINOGRAD, NONFUSED), data_type=HALF)
    assert half[0] == PRECOMPUTED
    small = [convolution(algo, (1, 16, 7, 7), 16, (1, 1), padding=0) for algo in (EXPLICIT, PRECOMPUTED, IMPLICIT)]
    assert backend.preferred_algorithms(small)[0].algo in (IMPLICIT, PRECOMPUTED)
    for operation in small:
        assert estimated_seconds(operation, backend.device) > 0


def test_products_with_few_tiles_are_ranked_by_their_rounds(backend, monkeypatch):
    """26 tiles leave most multiprocessors of an H200 idle: WINOGRAD took 39 us there, and IMPLICIT_GEMM 176 us.

    A 1 x 1 filter with 25 tiles took 69 us by fp32.cu, and 15 us after its copy for tensor cores.
    """
    monkeypatch.setattr(backend.device, "multiprocessors", 132)
    few = [convolution(algo, (53, 184, 11, 11), 7, (3, 3), math=FMA) for algo in (IMPLICIT, WINOGRAD)]
    assert backend.preferred_algorithms(few)[0].algo == WINOGRAD
    product = ConvolutionProblem(
        convolution(IMPLICIT, (32, 832, 7, 7), 128, (1, 1), padding=0), backend.device
    ).products[0]
    one = FP32[0].computing_seconds(product)
    assert 55e-6 < one < 80e-6
    monkeypatch.setattr(backend.device, "multiprocessors", 25)
    assert FP32[0].computing_seconds(product) == one


@pytest.mark.parametrize("channels, taps, stride", [(3, 7, 2), (3, 3, 1), (1, 3, 1), (4, 3, 2)])
@pytest.mark.parametrize("layout", [NCHW, NHWC])
@pytest.mark.parametrize("data_type", [HALF, BFLOAT16, FLOAT])
def test_ranking_of_first_layers(channels, taps, stride, layout, data_type):
    """The same kernel serves IMPLICIT_GEMM and IMPLICIT_PRECOMP_GEMM for few channels, so their estimates are equal."""
    backend = AcceleratedBackend("emulated")
    options = {"stride": stride, "padding": taps // 2, "layout": layout, "data_type": data_type}
    operations = [
        convolution(algo, (64, channels, 224, 224), 64, (taps, taps), **options)
        for algo in (IMPLICIT, PRECOMPUTED, EXPLICIT)
    ]
    assert backend.preferred_algorithms(operations)[0].algo == IMPLICIT
    assert backend.workspace_bytes(operations[1]) == 0
    expected = [estimated_seconds(operation, backend.device) for operation in operations]
    assert expected[0] == expected[1] < expected[2]


def test_time_is_measured(backend):
    operation = convolution(IMPLICIT, (2, 3, 6, 7), 5, (3, 3))
    operands = [backend.allocate(operation.nbytes(name)) for name in ("x", "w", "y")]
    assert backend.algorithm_time(operation, [*operands, None], None) > 0


def test_a_search_runs_equal_launches_once(backend):
    """Algorithms with the same launches get the same time, and others are timed on their own."""
    operations = [convolution(algo, (2, 3, 6, 7), 5, (3, 3)) for algo in (IMPLICIT, PRECOMPUTED, EXPLICIT)]
    nbytes = backend.workspace_bytes(operations[-1])
    operands = [backend.allocate(operations[0].nbytes(name)) for name in ("x", "w", "y")]
    room, timed = backend.allocate(nbytes), {}
    times = [
        backend.algorithm_time(o, [*operands, room if backend.workspace_bytes(o) else None], None, timed)
        for o in operations
    ]
    assert times[0] == times[1] and sorted(timed.values()) == sorted({times[0], times[2]}) and len(timed) == 2


@pytest.mark.parametrize("seconds, scratch, expected", [(1e-5, 0, 3e-3), (1e-5, 64, 1e-2), (1e-3, 0, 1.0)])
def test_short_launches_are_timed_in_graphs(backend, monkeypatch, seconds, scratch, expected):
    """A graph excludes the host's time. Long launches are timed one by one, and those with scratch memory."""

    class Told:
        def __init__(self, device, stream):
            self.seconds, self.median = lambda work: work() or seconds, lambda work, *_: work() or 3e-6

    operation = convolution(IMPLICIT, (2, 3, 6, 7), 5, (3, 3))
    operands = [*(backend.allocate(operation.nbytes(name)) for name in ("x", "w", "y")), None]
    monkeypatch.setattr(Record, "begin", lambda self, nbytes: self.parts.append(Part(scratch, [])))
    monkeypatch.setattr(backend_module, "Clock", Told)
    monkeypatch.setattr(backend.device, "kind", "gpu")
    monkeypatch.setattr(backend.device, "choices", None)
    assert backend.algorithm_time(operation, operands, None) == pytest.approx(expected)


def test_products_that_read_x_and_w_in_place_need_no_workspace(backend):
    """The reported workspace is 0 if TMA reads x and w in place, in NCHW or NHWC."""
    planes = convolution(PRECOMPUTED, (3, 64, 8, 8), 64, (1, 1), data_type=HALF, padding=0)
    channels = convolution(PRECOMPUTED, (1, 64, 5, 6), 40, (3, 3), data_type=HALF, layout=NHWC)
    for operation in (planes, channels):
        plan = backend.plan(operation)
        assert plan.solver.startswith("convolution.implicit_gemm_tma") and len(plan.steps) == 1
        assert backend.workspace_bytes(operation) == 0
