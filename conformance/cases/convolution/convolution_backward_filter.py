"""Holds cases of the gradient of a convolution with respect to its filter: formula, algorithms, layouts, tables, workspace, statuses."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from dualdnn.api.enumerations import cudnnConvolutionBwdFilterAlgo_t as Algo
from dualdnn.api.enumerations import cudnnConvolutionMode_t as Mode
from dualdnn.api.enumerations import cudnnMathType_t
from dualdnn.api.operations import ConvolutionBackwardFilter, FilterSpec, TensorSpec
from dualdnn.api.operations.specs import NCHW, NHWC
from dualdnn.conformance.calls import sized
from dualdnn.conformance.marks import by_name, shows
from dualdnn.conformance.solvers import divided_among

from .checks import beside_direct_sums, refuses_a_small_workspace, refuses_each_dimension, takes_a_workspace_anywhere
from .convolution import FLOATING, convolution_spec, formats_of

if TYPE_CHECKING:
    from dualdnn.conformance.calls import Caller
    from dualdnn.conformance.subjects import Subject
    from dualdnn.conformance.trial import Trial

F = "cudnnConvolutionBackwardFilter"
SIZE = "cudnnGetConvolutionBackwardFilterWorkspaceSize"
KINDS = "cudnnConvolutionBwdFilterAlgo_t"
ALGO_0, ALGO_1, FFT, ALGO_3, WINOGRAD, NONFUSED, FFT_TILING = Algo
DIRECT_SUMS = (ALGO_0, ALGO_1, ALGO_3)
FMA, DEFAULT = cudnnMathType_t.CUDNN_FMA_MATH, cudnnMathType_t.CUDNN_DEFAULT_MATH
SERVED = tuple(algo for algo in Algo if algo != WINOGRAD)


def gradient(
    x: tuple[int, ...] | None = None,
    dw: tuple[int, ...] | None = None,
    *,
    configuration: str = "FLOAT",
    algo: Algo = ALGO_1,
    padding: tuple[int, ...] | None = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    formats: Any = NCHW,
    **options: Any,
) -> ConvolutionBackwardFilter:
    """Return a gradient whose dy has the right size. FFT_TILING takes one row.

    formats: one format, or those of x, dw and dy. options: those of ``convolution_spec``.
    """
    one_row = algo == FFT_TILING and x is None
    x = x or ((2, 4, 1, 9) if one_row else (2, 4, 7, 6))
    dw = dw or ((6, 4, 1, 3) if one_row else (6, 4, 3, 3))
    data_type, compute_type = FLOATING[configuration]
    padding = padding or ((0, 1) if one_row else None)
    spec = convolution_spec(len(x) - 2, compute_type, padding=padding, **options)
    x_format, w_format, dy_format = formats_of(formats)
    dy = TensorSpec.packed(data_type, spec.output_dims(x, dw), dy_format)
    x_spec = TensorSpec.packed(data_type, x, x_format)
    return ConvolutionBackwardFilter(spec, algo, 0, alpha, beta, x_spec, dy, FilterSpec(data_type, w_format, dw))


@shows(f"{F}/c02 c23-c28", f"{KINDS}/c02 c03 c05 c07 c09 c11")
@pytest.mark.parametrize("algo", SERVED, ids=by_name)
def test_repeated_calls_are_equal_bit_by_bit(subject: Subject, run: Callable[..., Trial], algo: Any) -> None:
    """Every algorithm gives the same bits here, ALGO_0 and ALGO_3 too (docs/errata.md, D275)."""
    if algo in (ALGO_0, ALGO_1) and not subject.cites_clauses:
        pytest.skip("the document calls their results non-deterministic")
    first, second = (run(gradient(algo=algo, alpha=0.3)).after["dw"] for _ in range(2))
    assert np.array_equal(first, second)


@shows(f"{F}/c29-c31")
@pytest.mark.parametrize("algo, formats", [(ALGO_0, NCHW), (ALGO_3, NCHW), (ALGO_1, NHWC)], ids=by_name)
def test_repeated_volumes_are_equal_bit_by_bit(run: Callable[..., Trial], algo: Any, formats: Any) -> None:
    volume = gradient((4, 3, 4, 5, 6), (5, 3, 2, 3, 2), algo=algo, formats=formats)
    first, second = (run(volume).after["dw"] for _ in range(2))
    assert np.array_equal(first, second)


# Algorithms that take no dilation of an image.
IN_EACH: list[tuple[Algo, dict[str, Any]]] = [(algo, {}) for algo in (FFT, FFT_TILING, NONFUSED, ALGO_3)]
STRIDE_1 = (FFT, FFT_TILING, NONFUSED)


@pytest.mark.ours
@shows(f"{F}/c16-c19 c33 c36 c37")
@pytest.mark.parametrize("algo, options", IN_EACH, ids=by_name)
def test_limits_in_each_dimension(caller: Caller, refuses: Callable[..., bool], algo: Any, options: Any) -> None:
    """Each dimension alone must keep to the limit of the algorithm."""
    for setting in ("dilation", "stride") if algo in STRIDE_1 else ("dilation",):
        refuses_each_dimension(caller, refuses, partial(gradient, algo=algo, **options), setting, f"{F}/c49")


TRANSFORMED: list[tuple[Algo, dict[str, Any]]] = [
    (FFT, {"padding": (2, 0)}), (FFT_TILING, {"x": (2, 4, 1, 70), "dw": (6, 4, 1, 5), "padding": (0, 3)}), (NONFUSED, {"x": (3, 4, 11, 9)}),
    (NONFUSED, {"x": (2, 4, 11, 9), "dw": (6, 4, 5, 5), "padding": (3, 1)}),
]  # fmt: skip


@shows(f"{F}/c01 c16 c18 c19")
@pytest.mark.parametrize("algo, options", TRANSFORMED, ids=by_name)
def test_transforms_beside_direct_sums(caller: Caller, algo: Any, options: Any) -> None:
    for more in ({}, {"mode": Mode.CUDNN_CONVOLUTION, "beta": 1.0}):
        beside_direct_sums(caller, gradient(**options, algo=algo, **more), ALGO_0)
    _, depth, *taps = options.get("dw", (6, 4, 3, 3))
    grouped = {**options, "dw": (6, depth // 2, *taps)}
    for mode in Mode:
        beside_direct_sums(caller, gradient(**grouped, algo=algo, groups=2, mode=mode), ALGO_0)


@shows(f"{F}/c01", f"{SIZE}/c01")
@pytest.mark.parametrize("algo, x", [(NONFUSED, (3, 40, 98, 97)), (FFT, (12, 10, 40, 33))], ids=by_name)
def test_images_that_pass_through_the_workspace_in_slices(caller: Caller, algo: Any, x: Any) -> None:
    """A device of one multiprocessor passes the images through its workspace in slices."""
    with divided_among(caller.handle, 1):
        beside_direct_sums(caller, gradient(x, (4, x[1], 3, 3), algo=algo, beta=1.0), ALGO_0)


@shows(f"{F}/c05 c06", f"{SIZE}/c01 c02")
@pytest.mark.parametrize("algo", SERVED, ids=by_name)
def test_workspace(
    subject: Subject, caller: Caller, run: Callable[..., Trial], refuses: Callable[..., bool], algo: Any
) -> None:
    """The reported size is enough; less, or NULL, is refused before anything is written."""
    operation = sized(caller, gradient(algo=algo, alpha=0.5))
    run(operation)
    refuses_a_small_workspace(subject, caller, refuses, operation, missing=f"{F}/c05", small=f"{F}/c06")


@shows(f"{F}/c05")
@pytest.mark.parametrize("start", [1, 8])
@pytest.mark.parametrize("algo", [algo for algo in SERVED if algo != ALGO_0], ids=by_name)
def test_workspaces_begin_anywhere(subject: Subject, caller: Caller, algo: Any, start: int) -> None:
    """The reported size is enough at any address, no byte outside it is written, and the result has the same bits."""
    shape: Any = (
        {"x": (8, 20, 1, 7), "dw": (24, 20, 1, 3), "padding": (0, 1)}
        if algo == FFT_TILING
        else {"x": (8, 20, 4, 5), "dw": (24, 20, 3, 3)}
    )
    for configuration, math_type in (("FLOAT", FMA), ("PSEUDO_HALF", DEFAULT)):
        operation = sized(caller, gradient(**shape, configuration=configuration, algo=algo, math_type=math_type))
        takes_a_workspace_anywhere(subject, caller, operation, start)
