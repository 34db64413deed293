"""What `dualdnn build` compiles: everything that is called afterwards."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from dualdnn.accelerated.compiler import KERNELS
from dualdnn.accelerated.device import open_device
from dualdnn.accelerated.plans import plan, workspace_bytes
from dualdnn.api.operations import ConvolutionForward, Im2Col, ReorderFilter, ReorderFilterAndBias
from dualdnn.conformance import build_ahead
from dualdnn.conformance.bench.rows import rows
from dualdnn.conformance.convolution_kinds import convolutions
from test_convolution_kernels import SERVED


@pytest.fixture(scope="module")
def device():
    return open_device("emulated")


@pytest.fixture(scope="module")
def wanted(device):
    return set(build_ahead.wanted_modules(device))


def test_every_kernel_source_is_built(wanted):
    assert {source for source, _ in wanted} == {path.name for path in KERNELS.glob("*.cu")}


def test_convolutions_are_built_in_every_data_type(wanted):
    types = {
        "convolution_gemm.cu": ("float", "double", "half", "bfloat16", "int8", "uint8"),
        "convolution_tensor_core.cu": ("float", "half", "bfloat16"),
        "convolution_repack.cu": ("float", "half", "bfloat16"),
        "convolution_depthwise.cu": ("float", "double", "half", "bfloat16"),
        "convolution_winograd.cu": ("float", "half", "bfloat16"),
        "convolution_fft.cu": ("float", "double", "half"),
    }
    built = {(source, dict(definitions).get("ELEMENT")) for source, definitions in wanted}
    assert {(source, element) for source, elements in types.items() for element in elements} <= built
    assert ("convolution_reorder.cu", ()) in wanted


def modules_of(operation, device):
    listing = build_ahead.Listing(device)
    plan(operation, listing)
    return set(listing.modules)


@pytest.mark.parametrize("name", SERVED)
def test_what_serves_a_convolution_is_built(name, device, wanted):
    operation, _ = SERVED[name]
    assert workspace_bytes(operation, device) >= 0 and modules_of(operation, device) <= wanted


def test_what_is_timed_is_built(device, wanted):
    for row in rows():
        assert modules_of(row.operation, device) <= wanted, row.name


def test_the_kinds_are_those_of_the_tables():
    """Counted by hand in tables 16 to 18, 20 and 22 of the document, for one problem: 3 x 3 filters, no groups, float."""
    found = [
        o for o in convolutions()
        if o.x.data_type.name == "CUDNN_DATA_FLOAT" and o.w.dims[2:] == (3, 3) and o.convolution.group_count == 1
        and o.convolution.math_type.name == "CUDNN_FMA_MATH"
    ]  # fmt: skip
    plain = [(o.w.format.name, o.algo.name.split("ALGO_")[1]) for o in found if not hasattr(o, "bias")]
    gemms = ["IMPLICIT_GEMM", "IMPLICIT_PRECOMP_GEMM"]
    nchw = [*gemms, "GEMM", "FFT", "FFT_TILING", "WINOGRAD", "WINOGRAD_NONFUSED"]
    expected = [("CUDNN_TENSOR_NCHW", name) for name in nchw] + [("CUDNN_TENSOR_NHWC", name) for name in gemms]
    assert sorted(plain) == sorted(expected)
    assert len(found) == 2 * len(plain)


def test_what_goes_with_convolutions_is_planned(device):
    planned = list(build_ahead.planned(device))
    assert {Im2Col, ReorderFilter, ReorderFilterAndBias} <= {type(operation) for operation in planned}
    # Kernels may be chosen by size: the timed sizes are planned with every algorithm.
    timed = next(row.operation for row in rows("convolution 64x256x56x56 256 of 3x3 stride 1 float NCHW"))
    algorithms = {
        o.algo.name for o in planned if isinstance(o, ConvolutionForward) and (o.x, o.w) == (timed.x, timed.w)
    }
    assert len(algorithms) == 7


def test_the_bar_counts_to_the_end(monkeypatch, capsys):
    def compile_all(modules, architecture, jobs, progress):
        for done, (source, _) in enumerate(modules, 1):
            progress(source, done, len(modules))

    monkeypatch.setattr(build_ahead, "compile_all", compile_all)
    assert build_ahead.run(SimpleNamespace(device="emulated", jobs=1)) == 0
    shown = capsys.readouterr().err
    total = len(build_ahead.wanted_modules(open_device("emulated")))
    assert f"[{'#' * 30}] {total} of {total}" in shown and f"{total} modules for emulated" in shown
