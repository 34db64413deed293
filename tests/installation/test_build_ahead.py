"""Test that `dualdnn build` compiles everything that is timed, and kernels for any shape in every data type."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from dualdnn.accelerated.plans import plan
from dualdnn.accelerated.runtime.devices import open_device
from dualdnn.accelerated.runtime.sources import KERNELS
from dualdnn.accelerated.solver import plan_by, possible_solvers
from dualdnn.api.operations import ConvolutionForward, Im2Col, ReorderFilter, ReorderFilterAndBias
from dualdnn.conformance.bench.rows import pooling, rows
from dualdnn.conformance.command_line import main
from dualdnn.conformance.kernels import build_ahead, command
from dualdnn.conformance.kernels.convolution_kinds import convolutions


@pytest.fixture(scope="module")
def device():
    return open_device("emulated")


@pytest.fixture(scope="module")
def wanted(listed):
    return set(listed.wanted)


def test_every_kernel_source_is_built(wanted):
    assert {source for source, _ in wanted} == {str(path.relative_to(KERNELS)) for path in KERNELS.rglob("*.cu")}


def test_convolutions_are_built_in_every_data_type(wanted):
    types = {
        "convolution/implicit_gemm/simt.cu": ("float", "double", "half", "bfloat16", "int8", "uint8"),
        "convolution/implicit_gemm/fp32.cu": ("float",),
        "convolution/implicit_gemm/mma.cu": ("float", "half", "bfloat16"),
        "convolution/depthwise/depthwise.cu": ("float", "half", "bfloat16"),
        "convolution/grouped.cu": ("float", "double", "half", "bfloat16"),
        "convolution/implicit_gemm/small_channels.cu": ("float", "half", "bfloat16"),
        "convolution/tiny.cu": ("float", "double", "half", "bfloat16"),
        "convolution/transforms/winograd.cu": ("float", "half", "bfloat16"),
        "convolution/transforms/fft.cu": ("float", "double", "half"),
    }
    built = {(source, dict(definitions).get("ELEMENT")) for source, definitions in wanted}
    assert {(source, element) for source, elements in types.items() for element in elements} <= built
    assert ("convolution/int8x32_reorder.cu", ()) in wanted


def modules_of(operation, device):
    listing = build_ahead.Listing(device)
    plan(operation, listing)
    return set(listing.modules)


@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize("data_type", build_ahead.TYPES, ids=lambda t: t.name)
def test_pooling_that_is_not_timed_is_built_for_any_window(device, wanted, data_type, backward):
    """Three windows are built: one that no kernel knows, one that is known but not timed, one over the whole image."""
    for window, stride, padding in ((4, 3, 1), (3, 2, 0), (0, 0, 0)):
        operation = pooling("MAX" if window else "AVERAGE_COUNT_INCLUDE_PADDING", window, stride, padding, backward)(
            data_type, (3, 5, 9, 14), "nchw"
        )
        if data_type not in build_ahead.TAKEN[type(operation)]:
            continue
        listing = build_ahead.Listing(device)
        plan(operation, listing)
        if window == 3:
            assert not any(map(build_ahead.takes_any_shape, listing.modules))
            listing.modules.clear()
            plan_by(operation, listing, possible_solvers(operation, listing)[-1])
        assert listing.modules and set(listing.modules) <= wanted


def test_specialised_modules_are_those_of_what_is_timed(listed, wanted):
    specialised = {m for m in wanted if not (build_ahead.takes_any_shape(m) or m in listed.generic)}
    assert specialised <= set(listed.timed)
    assert {source for source, _ in specialised} == {
        "attention/online_tma.cu", "attention/gradients_tma.cu",
        "convolution/depthwise/depthwise.cu", "convolution/filter_gradient/depthwise.cu", "pooling/static_forward.cu", "pooling/static_average_backward.cu",
        "pooling/max_backward/max_backward.cu",
        "graph/chain.cu", "rnn/persistent_forward.cu", "rnn/persistent_backward.cu",
        "normalization/lrn_rows.cu", "normalization/lrn_generic.cu", "normalization/lrn_channels.cu", "dropout/dropout.cu",
        "normalization/batch_nhwc/batch_nhwc.cu", "normalization/batch_nhwc/cooperative.cu", "normalization/batch_nchw.cu",
    }  # fmt: skip


def test_timed_kernels_are_built_ahead(device, wanted):
    """One row of each family and every fifth row are built, also for a plan without the listed workspace."""
    for row in [*{row.family: row for row in rows()}.values(), *list(rows())[::5]]:
        assert modules_of(build_ahead.of_few_steps(row.operation, device), device) <= wanted, row.name


def test_a_recurrence_needs_the_same_modules_for_few_steps(device):
    for row in rows("2x1 layers 512, 20 steps"):
        shorter = build_ahead.of_few_steps(row.operation, device)
        assert modules_of(shorter, device) == modules_of(row.operation, device), row.name
        assert (shorter == row.operation) == ("weights" in row.name)


def test_the_kinds_are_those_of_the_tables():
    """The counts follow tables 16 to 18, 20 and 22 of the document, for one problem: 3 x 3 filters, no groups, float."""
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


def test_unfolding_and_reordering_are_planned_with_convolutions(device):
    planned = [*build_ahead.kinds(device), *build_ahead.timed(device, rows())]
    assert {Im2Col, ReorderFilter, ReorderFilterAndBias} <= {type(operation) for operation in planned}
    # Kernels may be chosen by size, so the timed sizes are planned with every algorithm.
    timed = next(row.operation for row in rows("convolution 64x256x56x56 256 of 3x3 stride 1 float NCHW"))
    algorithms = {
        o.algo.name for o in planned if isinstance(o, ConvolutionForward) and (o.x, o.w) == (timed.x, timed.w)
    }
    assert len(algorithms) == 7


def test_the_bar_counts_to_the_end(monkeypatch, capsys):
    def compile_all(modules, architecture, jobs, progress):
        for done, (source, _) in enumerate(modules, 1):
            progress(source, done, len(modules))

    modules = [("ctc/loss.cu", (("ELEMENT", element),)) for element in ("float", "double", "half")]
    monkeypatch.setattr(build_ahead, "wanted_modules", lambda device: modules)
    monkeypatch.setattr(build_ahead, "compile_all", compile_all)
    assert command.run(SimpleNamespace(device="emulated", jobs=1, k="", wheel=False, arch=None, log=None)) == 0
    shown = capsys.readouterr().err
    assert "100%  3 of 3 modules, ctc/loss.cu" in shown and "3 modules for emulated" in shown


def test_a_part_is_built_by_its_path(listed, monkeypatch, capsys):
    built = []
    monkeypatch.setattr(build_ahead, "listed", lambda device: listed)
    monkeypatch.setattr(build_ahead, "compile_all", lambda modules, *_: built.extend(modules))
    assert main(["build", "--device", "emulated", "-k", "ctc/"]) == 0
    assert built and all(source.startswith("ctc/") for source, _ in built)
    assert main(["build", "--device", "emulated", "-k", "nosuch/"]) == 2
    assert "-k nosuch/: no source of a kernel has this in its path" in capsys.readouterr().err


def test_kernels_of_a_benchmark_are_built_before_it(device, monkeypatch):
    built = []
    monkeypatch.setattr(build_ahead, "compile_all", lambda modules, *_: built.extend(modules))
    build_ahead.build_timed(rows("CTC loss"), device)
    assert built and all(source.startswith("ctc/") for source, _ in built)
