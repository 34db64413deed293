"""Implement the gradient of a convolution with respect to its input (5.2.8)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...functions import computing
from ...operations import ConvolutionBackwardData
from ...relations import same_data_type, scaling, writable_layout
from ...status import BAD_PARAM, NOT_SUPPORTED, expect
from ...support.convolution import Problem, facts
from ...support.convolution_gradients import data_unsupported
from .descriptors import output_dims
from .forward import with_workspace

if TYPE_CHECKING:
    from ...enumerations import cudnnConvolutionBwdDataAlgo_t
    from ...handle import Handle
    from ...operations.specs import ConvolutionSpec, FilterSpec, TensorSpec

_D = "cudnnConvolutionBackwardData"

# CLAUSES maps each check to its clause of cudnnConvolutionBackwardData. Other functions override the clauses that they
# list.
CLAUSES: Mapping[str, str] = {
    "dy_rank": f"{_D}/c23",
    "dx_rank": f"{_D}/c24",
    "data_types": f"{_D}/c26",
    "channels": f"{_D}/c27",
    "dy_dims": f"{_D}/c28",
    "table": f"{_D}/c31",
}


def check_data_problem(problem: Problem, clauses: Mapping[str, str] = CLAUSES) -> None:
    """Raise BAD_PARAM unless the descriptors fit each other. The problem's x describes dx, and its y describes dy."""
    convolution, dx, w, dy = problem.convolution, problem.x, problem.w, problem.y
    expect(dy.rank == len(w.dims), BAD_PARAM, clauses["dy_rank"],
           f"wDesc has {len(w.dims)} dimensions {w.dims}, dyDesc {dy.rank}: {dy.dims}")  # fmt: skip
    expect(dx.rank == len(w.dims), BAD_PARAM, clauses["dx_rank"],
           f"wDesc has {len(w.dims)} dimensions {w.dims}, dxDesc {dx.rank}: {dx.dims}")  # fmt: skip
    same_data_type(clauses["data_types"], wDesc=w.tensor, dxDesc=dx, dyDesc=dy)
    of_geometry = dict.fromkeys(("filter_rank", "convolution_rank", "window"), clauses["dy_dims"])
    dims = output_dims(convolution, dx, w, **of_geometry, channels=clauses["channels"], names=("dxDesc", "wDesc"))
    expect(dy.dims == dims, BAD_PARAM, clauses["dy_dims"],
           f"dyDesc is {dy.dims}, the convolution of dxDesc and wDesc gives {dims}")  # fmt: skip


def check_data_support(problem: Any, algorithm: Any, clauses: Any = CLAUSES) -> None:
    """Raise NOT_SUPPORTED unless the algorithm supports the problem, whose descriptors fit each other."""
    dx, w = problem.x, problem.w
    expect(dx.rank in (4, 5), NOT_SUPPORTED, f"{_D}/c30",
           f"dyDesc, wDesc and dxDesc have {dx.rank} dimensions, 4 and 5 are supported")  # fmt: skip
    groups = problem.convolution.group_count
    expect(w.dims[0] % groups == 0, NOT_SUPPORTED, f"{_D}/c32",
           f"the output channels of dyDesc and wDesc, {w.dims[0]}, must be a multiple of the {groups} groups")  # fmt: skip
    reason = data_unsupported(problem, algorithm)
    expect(reason is None, NOT_SUPPORTED, clauses["table"], str(reason), **facts(problem, algorithm))
    writable_layout(dxDesc=dx)


@computing(
    invalid={"*": "c22", "algo": ("c31", NOT_SUPPORTED), "workSpace": "c03", "workSpaceSizeInBytes": "c03"},
    failed="c34",
    small={"workSpace": ("c03", BAD_PARAM)},
)
def cudnnConvolutionBackwardData(
    handle: Handle,
    alpha: float,
    wDesc: FilterSpec,
    w: Any,
    dyDesc: TensorSpec,
    dy: Any,
    convDesc: ConvolutionSpec,
    algo: cudnnConvolutionBwdDataAlgo_t,
    workSpace: Any,
    workSpaceSizeInBytes: int,
    beta: float,
    dxDesc: TensorSpec,
    dx: Any,
) -> None:
    """Compute dx = alpha * result + beta * dx, where result is the gradient of cudnnConvolutionForward with respect to
    its input; beta == 0 does not read dx.

    result[n, g * C + c, h, ...] = sum of dy[n, k, (h + pad - r * dilation) / stride, ...] * w[k, c, r, ...].
    The sum covers every k in group g and every tap r for which h + pad - r * dilation is a multiple of the stride; dy
    is zero outside its extents. CUDNN_CONVOLUTION rotates w by 180 degrees (docs/errata.md, D212).
    Tables 12 to 15 (api/support/convolution_gradients.py) list the data types, layouts and shapes of each algorithm.
    Every algorithm is bitwise reproducible here; searches report the determinism that its enumerator promises.
    Errors: BAD_PARAM for NULL (c22), ranks that disagree (c23, c24), data types that differ (c26), channels (c27),
    other dimensions of dyDesc than the convolution gives (c28), a missing or too small workspace (c03); NOT_SUPPORTED
    for other ranks than 4 and 5 (c30), output channels that the groups do not divide (c32), what the algorithm does not
    support (c31).
    Source: 5.2.8; docs/errata.md, D212 to D215.
    """
    problem = Problem(convDesc, dxDesc, wDesc, dyDesc)
    check_data_problem(problem)
    check_data_support(problem, algo)
    blend = scaling(alpha, dyDesc), scaling(beta, dxDesc)
    operation = ConvolutionBackwardData(convDesc, algo, 0, *blend, wDesc, dyDesc, dxDesc)
    return with_workspace(handle, operation, workSpaceSizeInBytes, f"{_D}/c03")
