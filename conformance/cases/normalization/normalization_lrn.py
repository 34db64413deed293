"""Cases of local response normalization."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from dualdnn.api.enumerations import (
    CUDNN_LRN_MAX_N,
    CUDNN_LRN_MIN_BETA,
    CUDNN_LRN_MIN_K,
    CUDNN_LRN_MIN_N,
    cudnnLRNMode_t,
)
from dualdnn.api.operations import LRNCrossChannelBackward, LRNCrossChannelForward, LRNSpec, TensorSpec
from dualdnn.api.operations.specs import BFLOAT16, DOUBLE, FLOAT, HALF, INT8, INT32, NHWC
from dualdnn.api.status import BAD_PARAM, NOT_SUPPORTED
from dualdnn.conformance.layouts import LAYOUTS, laid_out
from dualdnn.conformance.marks import shows
from dualdnn.conformance.trial import prepare

CROSS_CHANNEL = cudnnLRNMode_t.CUDNN_LRN_CROSS_CHANNEL_DIM1
TYPES = [FLOAT, DOUBLE, HALF]
DIMS = (2, 11, 3, 8)
DIMS_5D = (2, 7, 2, 3, 4)
BLENDS = [(1.0, 0.0), (-1.75, 0.5)]
LRN = LRNSpec(5, 2.5, 0.75, 1.5)
FORWARD, BACKWARD = "cudnnLRNCrossChannelForward", "cudnnLRNCrossChannelBackward"
type_name = pytest.mark.parametrize("data_type", TYPES, ids=lambda t: t.name)


def forward(x: TensorSpec | None = None, y: TensorSpec | None = None, lrn: LRNSpec = LRN, *, alpha: float = 1.0,
            beta: float = 0.0) -> LRNCrossChannelForward:  # fmt: skip
    x = x or TensorSpec.packed(FLOAT, DIMS)
    return LRNCrossChannelForward(lrn, alpha, beta, x, y or x)


def backward(spec: TensorSpec | None = None, lrn: LRNSpec = LRN, *, alpha: float = 1.0, beta: float = 0.0,
             **specs: TensorSpec) -> LRNCrossChannelBackward:  # fmt: skip
    spec = spec or TensorSpec.packed(FLOAT, DIMS)
    return LRNCrossChannelBackward(lrn, alpha, beta, **{n: specs.get(n, spec) for n in ("y", "dy", "x", "dx")})


CALLS = {"forward": forward, "backward": backward}
both_calls = pytest.mark.parametrize("call", CALLS)


# --- the descriptor ---


@shows("cudnnCreateLRNDescriptor/c01", "cudnnCreateLRNDescriptor/c03", "cudnnSetLRNDescriptor/c07", "cudnnSetLRNDescriptor/c10",
       "cudnnSetLRNDescriptor/c12", "cudnnSetLRNDescriptor/c14", "cudnnLRNDescriptor_t/c01")  # fmt: skip
def test_presets(cudnn):
    assert cudnn.cudnnGetLRNDescriptor(cudnn.cudnnCreateLRNDescriptor()) == (5, 1e-4, 0.75, 2.0)


@shows("cudnnSetLRNDescriptor/c01", "cudnnSetLRNDescriptor/c15", "cudnnGetLRNDescriptor/c01", "cudnnGetLRNDescriptor/c02",
       "cudnnGetLRNDescriptor/c03", "cudnnGetLRNDescriptor/c04", "cudnnGetLRNDescriptor/c07")  # fmt: skip
@pytest.mark.parametrize("values", [(3, 0.5, 0.25, 1.5), (16, -2.0, 12.0, 1e9), (1, 0.0, 0.01, 1e-5)])
def test_set_and_get(cudnn, values):
    descriptor = cudnn.cudnnCreateLRNDescriptor()
    cudnn.cudnnSetLRNDescriptor(descriptor, *values)
    found = cudnn.cudnnGetLRNDescriptor(descriptor)
    assert found == values
    assert found._fields == ("lrnN", "lrnAlpha", "lrnBeta", "lrnK")


@shows(
    "cudnnSetLRNDescriptor/c02", "cudnnSetLRNDescriptor/c16", "cudnnSetLRNDescriptor/c17", "cudnnSetLRNDescriptor/c18"
)
def test_ranges(cudnn, refuses):
    """The limits are in; the next number beyond is out, and leaves what was set."""
    descriptor = cudnn.cudnnCreateLRNDescriptor()
    for limit in (CUDNN_LRN_MIN_N, CUDNN_LRN_MAX_N):
        cudnn.cudnnSetLRNDescriptor(descriptor, limit, 1e300, CUDNN_LRN_MIN_BETA, CUDNN_LRN_MIN_K)
    for n in (CUDNN_LRN_MIN_N - 1, CUDNN_LRN_MAX_N + 1, 2**32 - 1):
        refuses(BAD_PARAM, "cudnnSetLRNDescriptor/c16", cudnn.cudnnSetLRNDescriptor, descriptor, n, 1.0, 0.75, 2.0)
    for beta in (np.nextafter(CUDNN_LRN_MIN_BETA, 0), 0.0, -0.75, -np.inf):
        refuses(BAD_PARAM, "cudnnSetLRNDescriptor/c17", cudnn.cudnnSetLRNDescriptor, descriptor, 5, 1.0, beta, 2.0)
    for k in (np.nextafter(CUDNN_LRN_MIN_K, 0), 0.0, -2.0):
        refuses(BAD_PARAM, "cudnnSetLRNDescriptor/c18", cudnn.cudnnSetLRNDescriptor, descriptor, 5, 1.0, 0.75, k)
    assert cudnn.cudnnGetLRNDescriptor(descriptor) == (CUDNN_LRN_MAX_N, 1e300, CUDNN_LRN_MIN_BETA, CUDNN_LRN_MIN_K)


@shows("cudnnDestroyLRNDescriptor/c01", "cudnnDestroyLRNDescriptor/c02")
def test_destroy(cudnn, subject, refuses):
    descriptor = cudnn.cudnnCreateLRNDescriptor()
    cudnn.cudnnDestroyLRNDescriptor(descriptor)
    if subject.survives_stray_pointers:
        refuses(BAD_PARAM, "cudnnStatus_t/c05", cudnn.cudnnGetLRNDescriptor, descriptor)


@shows("cudnnCreateLRNDescriptor/c02", "cudnnLRNDescriptor_t/c02", "cudnnSetLRNDescriptor/c01")
def test_what_is_set_is_what_counts(caller):
    """One descriptor serves calls before and after it is set again, each with what it held then; a new one with the presets."""
    cudnn, handle, spec = caller.cudnn, caller.handle, TensorSpec.packed(FLOAT, (1, 1, 1, 8))
    x = np.arange(1, 9, dtype=np.float32)
    memory, y = handle.to_device(x), handle.to_device(np.full(8, np.nan, np.float32))
    descriptor, tensor = cudnn.cudnnCreateLRNDescriptor(), caller.tensor(spec)
    for n, alpha, beta, k in ((5, 1e-4, 0.75, 2.0), (1, 3.0, 1.0, 0.5), (1, 1.0, 2.0, 1.0)):
        if n == 1:
            cudnn.cudnnSetLRNDescriptor(descriptor, n, alpha, beta, k)
        cudnn.cudnnLRNCrossChannelForward(handle, descriptor, CROSS_CHANNEL, 1.0, tensor, memory, 0.0, tensor, y)
        found = y.to_host(np.float32, 8)
        assert np.allclose(found, x * (k + alpha / n * x.astype(np.float64) ** 2) ** -beta, rtol=1e-5, atol=0)


# --- the computation ---


@shows("cudnnLRNCrossChannelForward/c01", "cudnnLRNCrossChannelForward/c02", "cudnnLRNCrossChannelForward/c08",
       "cudnnLRNCrossChannelForward/c09", "cudnnLRNCrossChannelForward/c12", "cudnnSetLRNDescriptor/c08", "cudnnSetLRNDescriptor/c11",
       "cudnnSetLRNDescriptor/c13", "cudnnLRNMode_t/c01")  # fmt: skip
@pytest.mark.parametrize("alpha, beta", BLENDS)
@type_name
def test_forward_formula(trial, data_type, alpha, beta):
    trial(forward(TensorSpec.packed(data_type, DIMS), alpha=alpha, beta=beta))
    trial(forward(laid_out(data_type, (2, 16, 3, 5), "nhwc"), alpha=alpha, beta=beta))


@shows("cudnnLRNCrossChannelBackward/c01", "cudnnLRNCrossChannelBackward/c06", "cudnnLRNCrossChannelBackward/c07",
       "cudnnLRNCrossChannelBackward/c09", "cudnnLRNMode_t/c01")  # fmt: skip
@pytest.mark.parametrize("alpha, beta", BLENDS)
@type_name
def test_backward_formula(trial, data_type, alpha, beta):
    """y is no result of x: it is not read."""
    trial(backward(TensorSpec.packed(data_type, DIMS), alpha=alpha, beta=beta))
    trial(backward(laid_out(data_type, (2, 16, 3, 5), "nhwc"), alpha=alpha, beta=beta))


@shows("cudnnSetLRNDescriptor/c04", "cudnnSetLRNDescriptor/c05", "cudnnSetLRNDescriptor/c08")
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("n", [1, 2, 4, 10, 16])
@both_calls
def test_windows(trial, call, n, layout):
    """Even windows reach one further ahead; windows larger than C; the factor is alpha / n at the edges too."""
    for channels in (3, 24):
        trial(CALLS[call](laid_out(FLOAT, (2, channels, 2, 4), layout), lrn=LRNSpec(n, 1.5, 0.75, 1.0)), inputs="wide")


@shows("cudnnSetLRNDescriptor/c11", "cudnnSetLRNDescriptor/c13")
@pytest.mark.parametrize("alpha, beta, k", [
    (1e-4, 0.75, 2.0), (1.0, 0.01, 1e-5), (2.0, 5.0, 1.0), (0.5, 1.0, 1e6), (-1e-3, 0.75, 2.0), (-9.0, 2.0, 1.0), (-9.0, 1.0, 1.0),
])  # fmt: skip
@both_calls
def test_parameters(trial, call, alpha, beta, k):
    """A negative sum has powers with whole exponents only; others give NaN."""
    trial(CALLS[call](lrn=LRNSpec(5, alpha, beta, k)), inputs="near_one")


@shows("cudnnSetLRNDescriptor/c03")
@both_calls
def test_an_exponent_beyond_the_data_type(trial, call):
    """Which is infinite there; powers of what is above 1 are 0."""
    trial(CALLS[call](lrn=LRNSpec(5, 1.0, 1e300, 1.0), beta=0.5), inputs="near_one")


@shows("cudnnSetLRNDescriptor/c04")
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_there_are_no_channels_beyond_the_edges(trial, layout):
    """Around them the power of k and the small values at the edges would be infinite, and its product with a zero NaN."""
    channels = 16
    x = np.ones((2, channels, 2, 4), np.float32)
    x[:, [0, 1, -2, -1]] = 1e-3
    stored = x if layout == "nchw" else x.transpose(0, 2, 3, 1)
    operation = backward(laid_out(FLOAT, x.shape, layout), lrn=LRNSpec(5, 5.0, 9.0, 1e-5))
    trial(operation, before={"x": np.frombuffer(stored.tobytes(), np.uint8)})


@shows("cudnnSetLRNDescriptor/c03")
@both_calls
def test_parameters_are_cast_to_the_data_type(trial, caller, call):
    """8.0035 is 8 in HALF, 1.0004 is 1: the results of the doubles would be outside the bound, those of 8 and 1 are the same."""
    spec, results = laid_out(HALF, DIMS, "nchw"), []
    contents = prepare(CALLS[call](spec), "near_one", 0)
    for lrn in (LRNSpec(3, 1.0004, 8.0035, 1.0004), LRNSpec(3, 1.0, 8.0, 1.0)):
        operation = CALLS[call](spec, lrn=lrn)
        trial(operation, inputs="near_one")
        memory = {name: caller.handle.to_device(content) for name, content in contents.items()}
        caller(operation, memory)
        results += [memory[name].to_host(np.uint8, memory[name].nbytes).tobytes() for name in operation.outputs]
    assert results[0] == results[1]


@shows("cudnnLRNCrossChannelForward/c04", "cudnnLRNCrossChannelForward/c06")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_forward_takes_every_layout(trial, layout):
    for source in ("nchw", layout):
        trial(forward(laid_out(HALF, DIMS, source), laid_out(HALF, DIMS, layout), beta=0.5))


@shows("cudnnLRNCrossChannelBackward/c02")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_backward_takes_every_layout(trial, layout):
    first, second = laid_out(FLOAT, DIMS, layout), laid_out(FLOAT, DIMS, "nchw")
    trial(backward(first, beta=0.5))
    trial(backward(y=second, dy=first, x=second, dx=first))


@shows("cudnnLRNCrossChannelForward/c04", "cudnnLRNCrossChannelBackward/c02")
@both_calls
def test_results_apart(trial, call):
    """Many pixels that are neighbours in x and apart in the result."""
    dims = (3, 17, 12, 20)
    x, apart = TensorSpec.packed(FLOAT, dims), TensorSpec(FLOAT, dims, (2 * 240 * 17, 2 * 240, 40, 2))
    trial(CALLS[call](x, **{"y" if call == "forward" else "dx": apart}, beta=0.5))


@shows("cudnnLRNCrossChannelForward/c10", "cudnnLRNCrossChannelBackward/c08")
@both_calls
def test_channels_of_the_result_apart(trial, call):
    """As many elements from pixel to pixel as there are channels, in x side by side, in the result in planes."""
    dims = (2, 4, 3, 8)
    x, apart = TensorSpec.packed(FLOAT, dims, NHWC), TensorSpec(FLOAT, dims, (4 * 96, 96, 32, 4))
    trial(CALLS[call](x, **{"y" if call == "forward" else "dx": apart}, beta=0.5))


@shows("cudnnLRNCrossChannelForward/c04", "cudnnLRNCrossChannelBackward/c02")
@both_calls
def test_planes_at_no_multiple_of_a_pack(trial, call):
    """Images and rows begin at packs, channels do not: of all operands, or of the result alone; or rows do not."""
    dims = (2, 3, 4, 8)
    channels, rows = TensorSpec(FLOAT, dims, (100, 33, 8, 1)), TensorSpec(FLOAT, dims, (108, 36, 9, 1))
    for x, apart in ((channels, channels), (TensorSpec.packed(FLOAT, dims), channels), (rows, rows)):
        trial(CALLS[call](x, **{"y" if call == "forward" else "dx": apart}, beta=0.5))


@shows("cudnnLRNCrossChannelForward/c05", "cudnnLRNCrossChannelBackward/c03")
@both_calls
def test_five_dimensions(trial, call):
    trial(CALLS[call](TensorSpec.packed(FLOAT, DIMS_5D), beta=0.5))
    gaps = TensorSpec(FLOAT, DIMS_5D, (200, 26, 12, 4, 1))  # between channels and images
    trial(CALLS[call](gaps, beta=0.5))
    plane = TensorSpec(FLOAT, (2, 3, 1, 4, 5), (60, 20, 7, 5, 1))  # any stride of a dimension of size 1
    trial(CALLS[call](plane, beta=0.5))


@shows("cudnnLRNCrossChannelForward/c05", "cudnnLRNCrossChannelForward/c16", "cudnnLRNCrossChannelBackward/c03",
       "cudnnLRNCrossChannelBackward/c13")  # fmt: skip
@pytest.mark.parametrize("strides", [(168, 1, 84, 28, 7), (400, 50, 25, 6, 1), (336, 48, 24, 8, 2), (168, 24, 1, 2, 6)])
@both_calls
def test_five_dimensions_are_dhw_packed(refused, call, strides):
    """Not NDHWC, not with gaps in D, H or W, not in another order."""
    packed, other = TensorSpec.packed(FLOAT, DIMS_5D), TensorSpec(FLOAT, DIMS_5D, strides)
    if call == "forward":
        refused(forward(other, packed), BAD_PARAM, f"{FORWARD}/c16")
        refused(forward(packed, other), BAD_PARAM, f"{FORWARD}/c16")
    for name in ("y", "dy", "x", "dx") if call == "backward" else ():
        refused(backward(packed, **{name: other}), BAD_PARAM, f"{BACKWARD}/c13")


@shows("cudnnLRNCrossChannelForward/c01", "cudnnLRNCrossChannelBackward/c01")
@type_name
@both_calls
def test_special_values(trial, call, data_type):
    """A negative factor makes negative infinities of infinite squares, whose powers are NaN, too."""
    for layout, alpha in product(("nchw", "nhwc"), (1.0, -0.1)):
        spec = laid_out(data_type, (2, 16, 3, 8), layout)
        trial(CALLS[call](spec, lrn=LRNSpec(3, alpha, 0.75, 2.0)), inputs="special")


@shows("cudnnLRNCrossChannelForward/c01")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_forward_in_place(trial, layout):
    trial(forward(laid_out(FLOAT, DIMS, layout), beta=0.25), aliases={"y": "x"})
    trial(forward(laid_out(FLOAT, (3, 40, 1, 8), layout)), aliases={"y": "x"})
    trial(forward(laid_out(FLOAT, (5, 3, 8, 8), layout), beta=0.25), aliases={"y": "x"})


@shows("cudnnLRNCrossChannelForward/c04", "cudnnLRNCrossChannelBackward/c02")
@pytest.mark.parametrize("dims, layout", [((1, 300, 1, 4), "nchw"), ((3, 37, 1, 1), "nhwc"), ((1, 256, 3, 3), "nhwc"), ((2, 4, 9, 64), "nchw"),
                                          ((1, 3, 5, 5), "nchw"), ((2, 3, 8, 8), "nhwc"), ((1, 72, 16, 32), "nchw"), ((2, 16, 23, 27), "nchw"),
                                          ((1, 3, 24, 24), "nhwc"), ((5, 40, 3, 3), "nhwc")])  # fmt: skip
@type_name
@both_calls
def test_other_shapes(trial, call, data_type, dims, layout):
    """Many channels and few positions, odd numbers of channels, many positions, few channels, many of both."""
    trial(CALLS[call](laid_out(data_type, dims, layout), beta=-0.5))


@pytest.mark.parametrize("channels", [1, 2, 4])
@both_calls
def test_few_channels(trial, call, channels):
    """A thread has all of them, of packs of pixels, side by side or in planes."""
    for layout in ("nchw", "nhwc"):
        trial(CALLS[call](laid_out(FLOAT, (2, channels, 4, 8), layout), lrn=LRNSpec(3, 1.5, 0.75, 1.0), beta=0.5))


@shows("cudnnSetLRNDescriptor/c04")
@pytest.mark.parametrize("dims, layout", [((1, 72, 16, 32), "nchw"), ((5, 40, 3, 3), "nhwc")], ids=str)
@type_name
@both_calls
def test_long_windows_of_many_channels(trial, call, data_type, dims, layout):
    trial(CALLS[call](laid_out(data_type, dims, layout), lrn=LRNSpec(16, 1.5, 0.75, 1.0)))


@shows("cudnnLRNCrossChannelBackward/c08")
def test_backward_leaves_x(trial):
    trial(backward(laid_out(HALF, DIMS, "gaps"), beta=1.0))


@shows("cudnnLRNCrossChannelForward/c01", "cudnnLRNCrossChannelBackward/c01")
def test_forward_then_backward(chain):
    x = TensorSpec.packed(HALF, DIMS)
    chain(forward(x), backward(x))


# --- what is refused ---


@pytest.mark.parametrize("name", ["y", "dy", "x", "dx"])
def test_backward_operands_must_agree(refused, name):
    refused(backward(**{name: TensorSpec.packed(DOUBLE, DIMS)}), NOT_SUPPORTED, f"{BACKWARD}/c14")
    refused(backward(**{name: TensorSpec.packed(FLOAT, (2, 11, 3, 7))}), NOT_SUPPORTED, f"{BACKWARD}/c15")


@shows("cudnnLRNCrossChannelForward/c20")
@pytest.mark.parametrize("data_type", [BFLOAT16, INT8, INT32], ids=lambda t: t.name)
def test_other_types_are_not_supported(refused, data_type):
    spec = TensorSpec.packed(data_type, DIMS)
    refused(forward(spec), NOT_SUPPORTED, f"{FORWARD}/c20")
    refused(backward(spec), NOT_SUPPORTED, f"{BACKWARD}/c04")
