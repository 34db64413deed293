"""Cases of the gradient of a convolution's bias."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from dualdnn.api.enumerations import cudnnDataType_t
from dualdnn.api.operations import ConvolutionBackwardBias, TensorSpec
from dualdnn.api.operations.specs import BFLOAT16, DOUBLE, FLOAT, HALF, INT8, INT32, NCHW, NCHW_VECT_C, NHWC, INT8x4
from dualdnn.api.status import BAD_PARAM, NOT_SUPPORTED
from dualdnn.conformance.layouts import laid_out
from dualdnn.conformance.marks import shows
from dualdnn.conformance.trial import prepare

B = "cudnnConvolutionBackwardBias"
DIMS = (2, 3, 5, 7)


def by_name(value: Any) -> str:
    return getattr(value, "name", None) or "x".join(map(str, value))


def bias_gradient(
    dims: tuple[int, ...] = DIMS,
    data_type: cudnnDataType_t = FLOAT,
    layout: str = "nchw",
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    db: TensorSpec | None = None,
) -> ConvolutionBackwardBias:
    db = db or TensorSpec.packed(data_type, (1, dims[1], *(1 for _ in dims[2:])))
    return ConvolutionBackwardBias(alpha, beta, laid_out(data_type, dims, layout), db)


@shows(f"{B}/c03")
def test_bias_gradient_twice_in_a_row(trial):
    """The second call blends what the first one wrote: a weighted sum that is kept between steps."""
    operation = bias_gradient(beta=-3.0)
    memory = prepare(operation, "normal", 0)
    first = trial(operation, before=memory)
    trial(operation, before={**memory, "db": np.array(first.after["db"])})


@shows(f"{B}/c07")
@pytest.mark.parametrize("to", [(2, 3, 1, 1), (1, 3, 5, 1), (1, 3, 1, 7), (1, 3, 1), (1, 3, 1, 1, 1)], ids=by_name)
def test_db_is_one_element_for_each_channel(refused, to):
    refused(bias_gradient(db=TensorSpec.packed(FLOAT, to)), BAD_PARAM, f"{B}/c07")


@shows(f"{B}/c07")
def test_db_has_no_depth(refused):
    db = TensorSpec.packed(FLOAT, (1, 3, 2, 1, 1))
    refused(bias_gradient((2, 3, 2, 3, 5), db=db), BAD_PARAM, f"{B}/c07")


@shows(f"{B}/c08", f"{B}/c02")
@pytest.mark.parametrize("channels", [1, 2, 4])
def test_db_has_other_channels(refused, channels):
    refused(bias_gradient(db=TensorSpec.packed(FLOAT, (1, channels, 1, 1))), BAD_PARAM, f"{B}/c08")


@shows(f"{B}/c09")
@pytest.mark.parametrize("data_type", [HALF, DOUBLE, BFLOAT16], ids=by_name)
def test_db_has_another_type(refused, data_type):
    refused(bias_gradient(db=TensorSpec.packed(data_type, (1, 3, 1, 1))), BAD_PARAM, f"{B}/c09")


@shows(f"{B}/c06")
@pytest.mark.parametrize("data_type", [INT8, INT32], ids=by_name)
def test_bias_gradient_of_whole_numbers(refused, data_type):
    refused(bias_gradient(data_type=data_type), NOT_SUPPORTED, f"{B}/c06")


@shows(f"{B}/c06")
def test_bias_gradient_of_vectorised_channels(refused):
    dy, db = (TensorSpec.packed(INT8x4, dims, NCHW_VECT_C) for dims in ((2, 4, 3, 3), (1, 4, 1, 1)))
    refused(ConvolutionBackwardBias(1.0, 0.0, dy, db), NOT_SUPPORTED, f"{B}/c06")


@shows(f"{B}/c06")
@pytest.mark.parametrize("tensor_format", [NCHW, NHWC], ids=by_name)
def test_bias_gradient_of_three_dimensions(refused, tensor_format):
    dy = TensorSpec.packed(FLOAT, (2, 6, 5), tensor_format)
    refused(ConvolutionBackwardBias(1.0, 0.0, dy, TensorSpec.packed(FLOAT, (1, 6, 1))), NOT_SUPPORTED, f"{B}/c06")
