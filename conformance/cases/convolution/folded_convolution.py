"""Holds cases of the folding of data gradients: the folded gradient, unfolded, is the gradient."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from dualdnn.api.enumerations import cudnnConvolutionMode_t as Mode
from dualdnn.api.operations import TensorSpec
from dualdnn.api.operations.specs import FLOAT, NCHW, NHWC
from dualdnn.conformance.calls import described, sized
from dualdnn.conformance.marks import by_name, shows

from .convolution_backward_data import ALGO_0, gradient

if TYPE_CHECKING:
    from dualdnn.conformance.calls import Caller

G = "cudnnGetFoldedConvBackwardDataDescriptors"
NAMES = ("foldedFilterDesc", "paddedDiffDesc", "foldedConvDesc", "foldedGradDesc", "filterFoldTransDesc", "diffPadTransDesc",
         "gradFoldTransDesc", "gradUnfoldTransDesc")  # fmt: skip
KINDS = ("Filter", "Tensor", "Convolution", "Tensor", *("TensorTransform",) * 4)


def asked(caller: Any, operation: Any, tensor_format: Any = NHWC, **changed: Any) -> dict[str, Any]:
    """Return the descriptors that the call fills, by name."""
    w, dy, convolution, dx = described(caller, operation)
    made = {n: getattr(caller.cudnn, f"cudnnCreate{kind}Descriptor")() for n, kind in zip(NAMES, KINDS, strict=True)}
    given = {"handle": caller.handle, "filterDesc": w, "diffDesc": dy, "convDesc": convolution, "gradDesc": dx,
             "transformFormat": tensor_format, **made, **changed}  # fmt: skip
    getattr(caller.cudnn, G)(*given.values())
    return made


SHAPES: dict[str, dict[str, Any]] = {
    "3x3 by 2": {"dx": (2, 3, 8, 8), "w": (8, 3, 3, 3), "padding": (1, 1), "stride": (2, 2)},
    "7x7 by 2": {"dx": (2, 3, 16, 16), "w": (8, 3, 7, 7), "padding": (3, 3), "stride": (2, 2)},
    "3 by 2": {"dx": (2, 3, 11, 9), "w": (8, 3, 5, 3), "padding": (2, 1), "stride": (3, 2)},
    "no stride": {"dx": (2, 3, 8, 8), "w": (8, 3, 3, 3), "padding": (1, 1), "stride": (1, 1)},
    "odd sizes": {"dx": (2, 4, 9, 7), "w": (8, 4, 3, 3), "padding": (1, 1), "stride": (2, 2)},
    "even filter": {"dx": (2, 4, 8, 8), "w": (8, 4, 4, 4), "padding": (1, 1), "stride": (2, 2)},
    "no padding": {"dx": (2, 4, 9, 9), "w": (8, 4, 3, 3), "padding": (0, 0), "stride": (2, 2)},
    "five filters": {"dx": (2, 4, 8, 8), "w": (5, 4, 3, 3), "padding": (1, 1), "stride": (2, 2)},
    "stride beyond the filter": {"dx": (1, 5, 10, 11), "w": (3, 5, 2, 1), "padding": (0, 2), "stride": (4, 3)},
    "stride beside dilation": {"dx": (1, 2, 9, 8), "w": (8, 2, 3, 2), "padding": (2, 0), "stride": (1, 2), "dilation": (2, 1)},
    "one tap, flipped": {"dx": (2, 3, 9, 8), "w": (8, 3, 1, 3), "padding": (1, 1), "stride": (2, 1), "mode": Mode.CUDNN_CONVOLUTION},
    "one output": {"dx": (1, 2, 5, 5), "w": (4, 2, 5, 5), "padding": (0, 0), "stride": (2, 2)},
}  # fmt: skip


@shows(f"{G}/c01-c07")
@pytest.mark.parametrize(
    "formats", [(NCHW, NHWC), (NHWC, NHWC), (NCHW, NCHW), (NHWC, NCHW)], ids=lambda f: "-".join(map(by_name, f))
)
@pytest.mark.parametrize("shape", SHAPES)
def test_the_folded_gradient_is_the_gradient(caller: Caller, shape: Any, formats: Any) -> None:
    """The folded gradient, unfolded, equals the gradient exactly in small whole numbers.

    Calls of the subject fold the filter, pad dy, compute and unfold; they also fold dx and unfold it.
    """
    cudnn, handle = caller.cudnn, caller.handle
    operation = sized(caller, gradient(**SHAPES[shape], formats=formats[0], algo=ALGO_0))
    random = np.random.default_rng(5)
    w, dy, dx = (
        handle.to_device(random.integers(-3, 4, operation.tensor(name).count).astype(np.float32))
        for name in ("w", "dy", "dx")
    )
    w_desc, dy_desc, _, dx_desc = described(caller, operation)
    found = asked(caller, operation, formats[1])

    padded, unfolded = cudnn.cudnnCreateTensorDescriptor(), cudnn.cudnnCreateTensorDescriptor()
    diff_bytes = cudnn.cudnnInitTransformDest(found["diffPadTransDesc"], dy_desc, padded)
    grad_bytes = cudnn.cudnnInitTransformDest(found["gradFoldTransDesc"], dx_desc, cudnn.cudnnCreateTensorDescriptor())
    assert (
        cudnn.cudnnInitTransformDest(found["gradUnfoldTransDesc"], found["foldedGradDesc"], unfolded)
        == operation.dx.nbytes
    )
    assert cudnn.cudnnGetTensorSizeInBytes(found["paddedDiffDesc"]) == diff_bytes
    assert cudnn.cudnnGetTensorSizeInBytes(found["foldedGradDesc"]) == grad_bytes
    filter_bytes = cudnn.cudnnGetFilterSizeInBytes(found["foldedFilterDesc"])

    folded_w, padded_dy, folded_dx = (handle.allocate(nbytes) for nbytes in (filter_bytes, diff_bytes, grad_bytes))
    back = handle.allocate(operation.dx.nbytes)

    def moved(transform: str, source_desc: Any, source: Any, desc: Any, target: Any) -> None:
        call = cudnn.cudnnTransformFilter if transform == "filterFoldTransDesc" else cudnn.cudnnTransformTensorEx
        call(handle, found[transform], 1.0, source_desc, source, 0.0, desc, target)

    moved("filterFoldTransDesc", w_desc, w, found["foldedFilterDesc"], folded_w)
    moved("diffPadTransDesc", dy_desc, dy, found["paddedDiffDesc"], padded_dy)
    moved("gradFoldTransDesc", dx_desc, dx, found["foldedGradDesc"], folded_dx)
    moved("gradUnfoldTransDesc", found["foldedGradDesc"], folded_dx, dx_desc, back)
    count = operation.dx.count
    assert np.array_equal(back.to_host(np.float32, count), dx.to_host(np.float32, count))

    descriptors = (found["foldedFilterDesc"], found["paddedDiffDesc"], found["foldedConvDesc"], found["foldedGradDesc"])
    needed = cudnn.cudnnGetConvolutionBackwardDataWorkspaceSize(handle, *descriptors, 1)
    workspace = handle.allocate(needed) if needed else None
    folded_w_desc, padded_desc, folded, folded_dx_desc = descriptors
    cudnn.cudnnConvolutionBackwardData(handle, 1.0, folded_w_desc, folded_w, padded_desc, padded_dy, folded, 1, workspace, needed, 1.0,
                                       folded_dx_desc, folded_dx)  # fmt: skip
    moved("gradUnfoldTransDesc", folded_dx_desc, folded_dx, dx_desc, back)
    caller(replace(operation, beta=1.0), {"w": w, "dy": dy, "dx": dx, "workSpace": None})
    assert np.array_equal(back.to_host(np.float32, count), dx.to_host(np.float32, count))
    assert dx.to_host(np.float32, count).any()


# Each row has (folded filter, padded diff, folded gradient, padding).
DESCRIBED = {
    "3x3 by 2": ((8, 12, 2, 2), (2, 8, 5, 5), (2, 12, 4, 4), (1, 1)), "7x7 by 2": ((8, 12, 4, 4), (2, 8, 9, 9), (2, 12, 8, 8), (2, 2)),
    "3 by 2": ((8, 18, 2, 2), (2, 8, 5, 6), (2, 18, 4, 5), (1, 1)), "no stride": ((8, 8, 3, 3), (2, 8, 8, 8), (2, 8, 8, 8), (1, 1)),
    "odd sizes": ((8, 16, 2, 2), (2, 8, 6, 5), (2, 16, 5, 4), (1, 1)), "even filter": ((8, 16, 3, 3), (2, 8, 4, 4), (2, 16, 4, 4), (1, 1)),
    "no padding": ((8, 16, 2, 2), (2, 8, 4, 4), (2, 16, 5, 5), (0, 0)), "five filters": ((8, 16, 2, 2), (2, 8, 5, 5), (2, 16, 4, 4), (1, 1)),
}  # fmt: skip


@shows(f"{G}/c03-c05")
@pytest.mark.parametrize("tensor_format", [NCHW, NHWC], ids=by_name)
@pytest.mark.parametrize("shape", DESCRIBED)
def test_what_is_described(caller: Caller, shape: Any, tensor_format: Any) -> None:
    cudnn = caller.cudnn
    found = asked(caller, gradient(**SHAPES[shape]), tensor_format)
    filter_dims, diff_dims, grad_dims, padding = DESCRIBED[shape]
    assert cudnn.cudnnGetFilterNdDescriptor(found["foldedFilterDesc"], 4)[1:] == (tensor_format, 4, filter_dims)
    for name, dims in (("paddedDiffDesc", diff_dims), ("foldedGradDesc", grad_dims)):
        expected = TensorSpec.packed(FLOAT, dims, tensor_format)
        assert cudnn.cudnnGetTensorNdDescriptor(found[name], 4) == (FLOAT, 4, expected.dims, expected.strides)
    described_as = cudnn.cudnnGetConvolution2dDescriptor(found["foldedConvDesc"])
    assert described_as[:6] == (*padding, 1, 1, 1, 1)
    for name in NAMES[4:7]:
        assert cudnn.cudnnGetTensorTransformDescriptor(found[name], 4)[0] == tensor_format
