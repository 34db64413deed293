"""Holds cases of the gradient of a convolution with respect to its input: formula, algorithms, layouts, tables, workspace, statuses."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from dualdnn.api.enumerations import cudnnConvolutionBwdDataAlgo_t as Algo
from dualdnn.api.enumerations import cudnnConvolutionMode_t as Mode
from dualdnn.api.enumerations import cudnnMathType_t
from dualdnn.api.operations import ConvolutionBackwardData, FilterSpec, TensorSpec
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

D = "cudnnConvolutionBackwardData"
SIZE = "cudnnGetConvolutionBackwardDataWorkspaceSize"
ALGO_0, ALGO_1, FFT, FFT_TILING, WINOGRAD, NONFUSED = Algo
DIRECT_SUMS = (ALGO_0, ALGO_1)
FMA, DEFAULT = cudnnMathType_t.CUDNN_FMA_MATH, cudnnMathType_t.CUDNN_DEFAULT_MATH


def gradient(
    dx: tuple[int, ...] = (2, 4, 7, 6),
    w: tuple[int, ...] = (6, 4, 3, 3),
    *,
    configuration: str = "FLOAT",
    algo: Algo = ALGO_1,
    alpha: float = 1.0,
    beta: float = 0.0,
    formats: Any = NCHW,
    **options: Any,
) -> ConvolutionBackwardData:
    """Return a gradient whose dy has the right size.

    formats: one format, or those of dx, w and dy. options: those of ``convolution_spec``.
    """
    data_type, compute_type = FLOATING[configuration]
    spec = convolution_spec(len(dx) - 2, compute_type, **options)
    dx_format, w_format, dy_format = formats_of(formats)
    dx_spec = TensorSpec.packed(data_type, dx, dx_format)
    dy = TensorSpec.packed(data_type, spec.output_dims(dx, w), dy_format)
    return ConvolutionBackwardData(spec, algo, 0, alpha, beta, FilterSpec(data_type, w_format, w), dy, dx_spec)


@shows(f"{D}/c11-c13 c15 c17")
@pytest.mark.parametrize("algo", list(Algo), ids=by_name)
def test_repeated_calls_are_equal_bit_by_bit(subject: Subject, run: Callable[..., Trial], algo: Any) -> None:
    """Every algorithm gives the same bits here, ALGO_0 too (docs/errata.md, D213)."""
    if algo == ALGO_0 and not subject.cites_clauses:
        pytest.skip("the document calls its results non-deterministic")
    first, second = (run(gradient((2, 8, 8, 8), (16, 8, 3, 3), algo=algo)).after["dx"] for _ in range(2))
    assert np.array_equal(first, second)


@shows(f"{D}/c11-c13 c15 c17")
def test_repeated_sums_of_many_filters_are_equal_bit_by_bit(caller: Caller, run: Callable[..., Trial]) -> None:
    """Where pixels are few, 132 multiprocessors divide the sum over filters. The results stay right."""
    operation = gradient((1, 24, 4, 4), (1032, 24, 3, 3), configuration="PSEUDO_HALF", formats=NHWC, math_type=DEFAULT)
    with divided_among(caller.handle, 132):
        first, second = (run(operation).after["dx"] for _ in range(2))
    assert np.array_equal(first, second)


# Algorithms that take no dilation, with a gradient of each row of the tables.
IN_EACH: list[tuple[Algo, dict[str, Any]]] = [
    *((algo, {}) for algo in (FFT, FFT_TILING, WINOGRAD, NONFUSED)),
    *((algo, {"dx": (1, 2, 5, 6, 7), "w": (2, 2, 3, 3, 3)}) for algo in (ALGO_1, FFT_TILING)),
]
STRIDE_1 = (FFT, FFT_TILING, WINOGRAD, NONFUSED)


@pytest.mark.ours
@shows(f"{D}/c13-c16 c18 c19")
@pytest.mark.parametrize("algo, options", IN_EACH, ids=by_name)
def test_limits_in_each_dimension(caller: Caller, refuses: Callable[..., bool], algo: Any, options: Any) -> None:
    """Each dimension alone must keep to the limit of the algorithm."""
    for setting in ("dilation", "stride") if algo in STRIDE_1 else ("dilation",):
        refuses_each_dimension(caller, refuses, partial(gradient, algo=algo, **options), setting, f"{D}/c31")


TRANSFORMED: list[tuple[Algo, dict[str, Any]]] = [
    (FFT, {"padding": (2, 0)}), (FFT_TILING, {"dx": (2, 4, 40, 70), "w": (6, 4, 5, 4)}),
    (FFT_TILING, {"dx": (2, 4, 19, 34), "w": (6, 4, 5, 4), "stride": (2, 2)}), (WINOGRAD, {"dx": (2, 4, 11, 9)}), (NONFUSED, {"dx": (2, 4, 11, 9)}),
    (NONFUSED, {"dx": (2, 4, 11, 9), "w": (6, 4, 5, 5), "padding": (3, 1)}),
]  # fmt: skip


@shows(f"{D}/c01 c13-c16")
@pytest.mark.parametrize("algo, options", TRANSFORMED, ids=by_name)
def test_transforms_beside_direct_sums(caller: Caller, algo: Any, options: Any) -> None:
    for more in ({}, {"mode": Mode.CUDNN_CONVOLUTION, "beta": 1.0}):
        beside_direct_sums(caller, gradient(**options, algo=algo, **more), ALGO_0)
    _, depth, *taps = options.get("w", (6, 4, 3, 3))
    grouped = {**options, "w": (6, depth // 2, *taps)}
    beside_direct_sums(caller, gradient(**grouped, algo=algo, groups=2), ALGO_0)


@shows(f"{D}/c03", f"{SIZE}/c01 c02")
@pytest.mark.parametrize("algo", list(Algo), ids=by_name)
def test_workspace(
    subject: Subject, caller: Caller, run: Callable[..., Trial], refuses: Callable[..., bool], algo: Any
) -> None:
    """The reported size is enough; less, or NULL, is refused before anything is written."""
    operation = sized(caller, gradient((2, 8, 9, 8), (8, 8, 3, 3), algo=algo))
    run(operation)
    refuses_a_small_workspace(subject, caller, refuses, operation, missing=f"{D}/c03", small=f"{D}/c03")


@shows(f"{D}/c03")
@pytest.mark.parametrize("start", [1, 8])
@pytest.mark.parametrize("algo", [algo for algo in Algo if algo != ALGO_0], ids=by_name)
def test_workspaces_begin_anywhere(subject: Subject, caller: Caller, algo: Any, start: int) -> None:
    """The reported size is enough at any address, no byte outside it is written, and the result has the same bits."""
    for configuration, math_type in (("FLOAT", FMA), ("PSEUDO_HALF", DEFAULT)):
        operation = sized(
            caller, gradient((1, 20, 5, 5), (24, 20, 3, 3), configuration=configuration, algo=algo, math_type=math_type)
        )
        takes_a_workspace_anywhere(subject, caller, operation, start)
