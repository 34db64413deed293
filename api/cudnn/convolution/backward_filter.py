"""Implement the gradient of a convolution with respect to its filter (6.2.2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...functions import computing
from ...operations import ConvolutionBackwardFilter
from ...relations import same_data_type, scaling
from ...status import BAD_PARAM, NOT_SUPPORTED, expect
from ...support.convolution import Problem, facts
from ...support.convolution_gradients import filter_unsupported
from .descriptors import output_dims
from .forward import with_workspace

if TYPE_CHECKING:
    from ...enumerations import cudnnConvolutionBwdFilterAlgo_t
    from ...handle import Handle
    from ...operations.specs import ConvolutionSpec, FilterSpec, TensorSpec

_F = "cudnnConvolutionBackwardFilter"
INCORRECT = (
    "cudnnStatus_t/c05"  # This clause covers errors for which the section lists no status (docs/errata.md, D281).
)

# CLAUSES maps each check to its clause of cudnnConvolutionBackwardFilter. Other functions override the clauses that
# they list.
CLAUSES: Mapping[str, str] = {
    "dy_rank": f"{_F}/c41",
    "dw_rank": f"{_F}/c42",
    "data_types": f"{_F}/c44",
    "channels": f"{_F}/c45",
    "groups": f"{_F}/c46",
    "dy_dims": INCORRECT,
    "table": f"{_F}/c49",
}


def check_filter_problem(problem: Problem, clauses: Mapping[str, str] = CLAUSES) -> None:
    """Raise BAD_PARAM unless the descriptors fit each other. The problem's w describes dw, and its y describes dy."""
    convolution, x, dw, dy = problem.convolution, problem.x, problem.w, problem.y
    expect(x.rank == dy.rank, BAD_PARAM, clauses["dy_rank"],
           f"xDesc has {x.rank} dimensions {x.dims}, dyDesc {dy.rank}: {dy.dims}")  # fmt: skip
    expect(x.rank == len(dw.dims), BAD_PARAM, clauses["dw_rank"],
           f"xDesc has {x.rank} dimensions {x.dims}, dwDesc {len(dw.dims)}: {dw.dims}")  # fmt: skip
    same_data_type(clauses["data_types"], xDesc=x, dyDesc=dy, dwDesc=dw.tensor)
    of_geometry = dict.fromkeys(("filter_rank", "convolution_rank", "window"), clauses["dy_dims"])
    dims = output_dims(convolution, x, dw, **of_geometry, channels=clauses["channels"], names=("xDesc", "dwDesc"))
    groups = convolution.group_count
    expect(dy.dims[1] % groups == 0 and dw.dims[0] % groups == 0, BAD_PARAM, clauses["groups"],
           f"the output channels of dyDesc {dy.dims[1]} and dwDesc {dw.dims[0]} must be multiples of the {groups} groups")  # fmt: skip
    expect(dy.dims == dims, BAD_PARAM, clauses["dy_dims"],
           f"dyDesc is {dy.dims}, the convolution of xDesc and dwDesc gives {dims}")  # fmt: skip


def check_filter_support(problem: Any, algorithm: Any, clauses: Any = CLAUSES) -> None:
    """Raise NOT_SUPPORTED unless the algorithm supports the problem, whose descriptors fit each other."""
    rank = problem.x.rank
    expect(
        rank in (4, 5),
        NOT_SUPPORTED,
        f"{_F}/c48",
        f"xDesc, dyDesc and dwDesc have {rank} dimensions, 4 and 5 are supported",
    )
    reason = filter_unsupported(problem, algorithm)
    expect(reason is None, NOT_SUPPORTED, clauses["table"], str(reason), **facts(problem, algorithm))


@computing(
    invalid={"*": "c40", "algo": ("c49", NOT_SUPPORTED), "workSpace": "c05", "workSpaceSizeInBytes": "c06"},
    failed="c51",
    small={"workSpace": ("c06", BAD_PARAM)},
)
def cudnnConvolutionBackwardFilter(
    handle: Handle,
    alpha: float,
    xDesc: TensorSpec,
    x: Any,
    dyDesc: TensorSpec,
    dy: Any,
    convDesc: ConvolutionSpec,
    algo: cudnnConvolutionBwdFilterAlgo_t,
    workSpace: Any,
    workSpaceSizeInBytes: int,
    beta: float,
    dwDesc: FilterSpec,
    dw: Any,
) -> None:
    """Compute dw = alpha * result + beta * dw, where result is the gradient of cudnnConvolutionForward with respect to
    its filter; beta == 0 does not read dw.

    result[k, c, r, ...] = sum over n, p, ... of dy[n, k, p, ...] * x[n, g * C + c, p * stride + r * dilation - pad,
    ...].
    x is zero outside its extents. CUDNN_CONVOLUTION rotates the result by 180 degrees (docs/errata.md, D280).
    Tables 36 to 39 (api/support/convolution_gradients.py) list the data types, layouts and shapes of each algorithm.
    Every algorithm is bitwise reproducible here; searches report the determinism that its enumerator promises.
    Errors: BAD_PARAM for NULL (c40), ranks that disagree (c41, c42), data types that differ (c44), channels (c45),
    output channels that the groups do not divide (c46), other dimensions of dyDesc than the convolution gives, a
    missing (c05) or too small (c06) workspace; NOT_SUPPORTED for other ranks than 4 and 5 (c48), what the algorithm
    does not support (c49).
    Source: 6.2.2; docs/errata.md, D274 to D281.
    """
    problem = Problem(convDesc, xDesc, dwDesc, dyDesc)
    check_filter_problem(problem)
    check_filter_support(problem, algo)
    blend = scaling(alpha, dyDesc), scaling(beta, xDesc)
    operation = ConvolutionBackwardFilter(convDesc, algo, 0, *blend, xDesc, dyDesc, dwDesc)
    return with_workspace(handle, operation, workSpaceSizeInBytes, f"{_F}/c06")
