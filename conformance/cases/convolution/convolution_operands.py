"""Convolutions and their gradients of the kinds that have kernels of their own: where operands begin, how far their elements lie apart,
factors of 0."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from dualdnn.api.operations import Operation, TensorSpec
from dualdnn.api.operations.specs import NCHW, NCHW_VECT_C, NHWC, packed_strides
from dualdnn.conformance.cases.every_operation import element_bytes
from dualdnn.conformance.marks import shows

from . import convolution_backward_data as data
from . import convolution_backward_filter as filters
from .convolution import DEFAULT, FMA, IMPLICIT, NONFUSED, PRECOMP, WINOGRAD, Mode, convolution
from .convolution_bias_activation import IDENTITY, fused
from .convolution_filters import im2col

F = "cudnnConvolutionForward"
HALF: dict[str, Any] = {"configuration": "PSEUDO_HALF", "math_type": DEFAULT}
PACK = 16  # elements; those of every type fill 16 bytes
ANY: dict[str, Any] = {"formats": (NHWC, NCHW, NHWC)}  # beside a plain filter pixels may lie anywhere
DEPTHWISE_CHANNELS: dict[str, Any] = {"configuration": "PSEUDO_HALF", "formats": NHWC, "groups": 8}
FORWARD: dict[str, Operation] = {
    "depthwise in rows": convolution((2, 4, 6, 16), (4, 1, 3, 3), groups=4),
    "depthwise in channels": convolution((2, 8, 6, 7), (8, 1, 3, 3), **{**DEPTHWISE_CHANNELS, **ANY}),
    "few channels in rows": convolution((2, 3, 8, 16), (20, 3, 3, 3), **HALF),
    "few channels in pixels": convolution((2, 4, 8, 8), (20, 4, 3, 3), **HALF, **ANY),
    "rows": convolution((2, 4, 4, 16), (12, 4, 3, 3), algo=PRECOMP),
    "planes": convolution((2, 16, 4, 16), (16, 16, 1, 1), padding=(0, 0), **HALF),
    "pixels": convolution((2, 16, 5, 4), (16, 16, 1, 1), padding=(0, 0), **HALF, **ANY),
}  # fmt: skip
GRADIENTS: dict[str, Operation] = {
    "data gradient in rows": data.gradient((2, 4, 4, 16), (12, 4, 3, 3)),
    "data gradient in planes": data.gradient((2, 16, 4, 16), (16, 16, 1, 1), padding=(0, 0), **HALF),
    "data gradient of few channels": data.gradient((2, 4, 6, 16), (16, 4, 3, 3), stride=(2, 1), **HALF),
    "filter gradient of few channels": filters.gradient(
        (2, 3, 8, 9), (16, 3, 3, 3), formats=NHWC, stride=(2, 2), **HALF
    ),
    "filter gradient in rows": filters.gradient((2, 4, 4, 16), (12, 4, 3, 3)),
    "filter gradient in planes": filters.gradient((2, 16, 4, 16), (16, 16, 1, 1), padding=(0, 0), **HALF),
    "filter gradient of pixels": filters.gradient((2, 16, 5, 4), (16, 16, 3, 3), formats=NHWC, **HALF),
    "depthwise filter gradient in rows": filters.gradient((2, 4, 6, 16), (4, 1, 3, 3), groups=4),
    "depthwise filter gradient in channels": filters.gradient((2, 8, 6, 7), (8, 1, 3, 3), **DEPTHWISE_CHANNELS),
}
PRODUCTS: dict[str, Operation] = {**FORWARD, **GRADIENTS}
UNALIGNED: dict[str, Operation] = {
    **{name: operation for name, operation in PRODUCTS.items() if "depthwise" in name},
    "few channels with a bias": fused("PSEUDO_HALF", x=(2, 3, 8, 16), w=(20, 3, 3, 3), alpha2=0.5, algo=PRECOMP, math_type=DEFAULT),
    "pixels with a bias": fused("PSEUDO_HALF", x=(2, 16, 5, 4), w=(16, 16, 3, 3), formats=NHWC, alpha2=0.5, algo=PRECOMP, math_type=DEFAULT),
    "rows": FORWARD["rows"],
    "data gradient of filters between packs": data.gradient((1, 136, 2, 4), (21, 136, 1, 1), padding=(0, 0), formats=NHWC, **HALF),
    "filter gradient in planes": GRADIENTS["filter gradient in planes"],
    "filter gradient of few channels": GRADIENTS["filter gradient of few channels"],
    "filter gradient in float": filters.gradient((2, 16, 5, 4), (16, 16, 3, 3), formats=NHWC, math_type=DEFAULT),
    "Winograd": convolution((1, 8, 6, 6), (8, 8, 3, 3), algo=NONFUSED),
    "matrix": im2col((1, 8, 5, 6), (1, 8, 3, 3), padding=(1, 1)),
}  # fmt: skip


FUSED: dict[str, Any] = {
    "depthwise in rows": {"configuration": "FLOAT", "x": (2, 4, 6, 16), "w": (4, 1, 3, 3), "groups": 4},
    "depthwise in channels": {"x": (2, 8, 6, 7), "w": (8, 1, 3, 3), "groups": 8, "formats": NHWC},
    "planes as they lie": {"x": (2, 16, 8, 8), "w": (72, 16, 1, 1), "padding": (0, 0)},
    "planes as they lie in float": {
        "configuration": "FLOAT",
        "x": (2, 16, 8, 8),
        "w": (72, 16, 1, 1),
        "padding": (0, 0),
    },
    "planes of the result": {"x": (2, 16, 8, 8), "w": (72, 16, 1, 1), "padding": (0, 0), "formats": (NHWC, NHWC, NCHW)},
    "groups": {"x": (1, 128, 3, 4), "w": (48, 64, 1, 1), "padding": (0, 0), "groups": 2, "formats": NHWC},
    "groups into planes": {
        "x": (1, 128, 3, 4), "w": (48, 64, 1, 1), "padding": (0, 0), "groups": 2, "formats": (NHWC, NHWC, NCHW),
    },
    "one filter": {"mode": IDENTITY, "x": (2, 16, 3, 5), "w": (1, 16, 1, 1), "padding": (0, 0), "formats": (NHWC, NHWC, NCHW)},
    "three filters": {"x": (2, 16, 3, 5), "w": (3, 16, 1, 1), "padding": (0, 0), "formats": (NHWC, NHWC, NCHW)},
    "groups of planes": {"x": (2, 128, 8, 8), "w": (96, 64, 1, 1), "padding": (0, 0), "groups": 2},
}  # fmt: skip


@shows("cudnnConvolutionBiasActivationForward/c01")
@pytest.mark.parametrize("name", FUSED)
def test_a_bias_of_each_filter(run, name):
    """On tensor cores, but for depthwise ones."""
    math_type = FMA if "depthwise" in name else DEFAULT
    for alpha2 in (0.0, -0.5):
        run(
            fused(
                **{"configuration": "PSEUDO_HALF", **FUSED[name]},
                alpha1=0.5,
                alpha2=alpha2,
                algo=PRECOMP,
                math_type=math_type,
            )
        )


@shows("cudnnStatus_t/c05")
@pytest.mark.ours
@pytest.mark.parametrize("name", UNALIGNED)
def test_one_operand_of_a_kind_begins_at_an_element(caller, run, name):
    """The others are aligned."""
    operation = UNALIGNED[name]
    for operand in operation.operands:
        if operand not in operation.raw:
            run(operation, offsets={operand: element_bytes(operation, operand)})


def apart(tensor: TensorSpec, odd: int) -> TensorSpec:
    """Every distance is a multiple of whole packs, but for one dimension's and where elements lie side by side."""
    strides, step = [0] * tensor.rank, 1
    for dimension in sorted(range(tensor.rank), key=lambda d: (tensor.strides[d], -d)):
        strides[dimension] = step + (dimension == odd)
        step = -(-strides[dimension] * tensor.dims[dimension] // PACK) * PACK
    return replace(tensor, strides=tuple(strides))


def distances(operation: Any) -> Iterator[Operation]:
    """The operation with one distance that is no whole pack, of each tensor and dimension in turn."""
    for name in operation.operands:
        tensor = getattr(operation, name, None)
        if not isinstance(tensor, TensorSpec):
            continue
        if name == {"dx": "dy", "dw": "x"}.get(next(iter(operation.outputs))):  # whose images alone may lie apart
            yield replace(operation, **{name: replace(tensor, strides=(tensor.strides[0] + 1, *tensor.strides[1:]))})
            continue
        for dimension in range(tensor.rank):
            if tensor.strides[dimension] > 1:
                yield replace(operation, **{name: apart(tensor, dimension)})


@shows(f"{F}/c24")
@pytest.mark.ours
@pytest.mark.parametrize("name", PRODUCTS)
def test_one_distance_is_no_whole_pack(run, name):
    for operation in distances(PRODUCTS[name]):
        run(operation)


@shows(f"{F}/c02")
@pytest.mark.ours
@pytest.mark.parametrize("name", PRODUCTS)
def test_one_factor_is_0(run, name):
    """The output's memory holds NaN before the call that does not read it."""
    operation = PRODUCTS[name]
    for alpha, beta in ((0.5, 0.0), (0.0, 0.5)):
        run(replace(operation, alpha=alpha, beta=beta))


@shows(f"{F}/c24", "cudnnMathType_t/c01")
@pytest.mark.ours
@pytest.mark.parametrize("width", [4, 8])
@pytest.mark.parametrize("formats", [NCHW, (NHWC, NCHW, NCHW)], ids=["planes", "of pixels"])
def test_columns_that_lie_side_by_side(run, formats, width):
    """Planes of y that are turned: two rows of half a pack, or of one, whose last element lies where that of a whole run does."""
    operation = convolution((2, 16, 2, width), (16, 16, 1, 1), padding=(0, 0), formats=formats, **HALF)
    turned = replace(operation.y, strides=(32 * width, 2 * width, 1, 2))
    run(replace(operation, y=turned, beta=0.5))


@shows(f"{F}/c01", f"{F}/c02")
def test_many_filters_and_channels_of_transformed_tiles(run):
    """More of both than the products of transformed tiles take at once."""
    run(convolution((1, 20, 5, 6), (132, 20, 3, 3), algo=NONFUSED, alpha=0.5, beta=-1.0))


@shows(f"{F}/c01", f"{F}/c02", f"{F}/c29")
def test_groups_of_many_filters_of_fused_transforms(run):
    """More filters, tiles and channels of a group than a block takes, and no multiples of them."""
    run(convolution((2, 20, 9, 13), (80, 10, 3, 3), groups=2, algo=WINOGRAD, alpha=0.5, beta=-1.0))


@shows("cudnnConvolutionBackwardFilter/c13", "cudnnMathType_t/c01")
@pytest.mark.parametrize(
    "x, w, options",
    [
        ((2, 8, 16, 16), (16, 8, 1, 1), {"stride": (2, 2), "padding": (0, 0)}),
        ((2, 8, 6, 16), (16, 8, 1, 1), {"padding": (1, 1)}),
        ((2, 8, 8, 18), (16, 8, 3, 3), {"padding": (0, 0)}),
    ],
    ids=["stride", "padding", "taps"],
)
def test_planes_of_full_boxes_that_are_no_product(run, x, w, options):
    """Gradients whose planes fill boxes of 128 bytes, but not pixel by pixel."""
    run(filters.gradient(x, w, **options, **HALF))


@shows(f"{F}/c24", "cudnnMathType_t/c01")
@pytest.mark.ours
@pytest.mark.parametrize(
    "w, options, gap",
    [((16, 16), {"beta": 0.5}, 0), ((48, 64), {"groups": 2}, 0), ((16, 16), {}, 16)],
    ids=["blended", "groups", "images"],
)
def test_rows_of_pixels_that_lie_apart(run, w, options, gap):
    """By whole packs; behind each image lies a gap of its own, or none."""
    groups = options.get("groups", 1)
    operation = convolution((2, w[1] * groups, 3, 4), (*w, 1, 1), padding=(0, 0), **HALF, **ANY, **options)
    row = 4 * w[0] + 16
    run(replace(operation, y=replace(operation.y, strides=(3 * row + gap, 1, row, w[0]))))


VOLUMES: dict[str, dict[str, Any]] = {
    "padded": {"padding": (1, 2, 0), "stride": (2, 1, 1)},
    "turned": {"padding": (2, 0, 1), "dilation": (2, 1, 1), "mode": Mode.CUDNN_CONVOLUTION},
}


@shows(f"{F}/c38")
@pytest.mark.parametrize("name", VOLUMES)
def test_volumes_of_one_filter_for_each_channel(run, name):
    run(convolution((2, 4, 5, 4, 6), (4, 1, 3, 2, 3), groups=4, **VOLUMES[name], alpha=0.5, beta=-1.0))


@shows(f"{F}/c24", "cudnnMathType_t/c01")
@pytest.mark.parametrize("configuration", ["PSEUDO_HALF", "FLOAT"])
@pytest.mark.parametrize("formats", [NCHW, NHWC], ids=lambda f: f.name[-4:])
def test_rows_of_few_channels_that_begin_anywhere(run, formats, configuration):
    """Rows of several packs whose number of elements is odd, in more images than a block has teams."""
    run(
        convolution(
            (5, 3, 3, 45), (9, 3, 3, 3), configuration=configuration, formats=formats, math_type=DEFAULT, algo=PRECOMP
        )
    )


@shows(f"{F}/c14", f"{F}/c17")
@pytest.mark.parametrize("configuration", ["INT8x4", "UINT8x4"])
def test_groups_that_end_within_a_vector(run, configuration):
    for algo in (IMPLICIT, PRECOMP):
        for groups, filters_ in ((4, 8), (2, 12)):
            run(convolution((2, 4 * groups, 3, 4), (filters_, 4, 3, 3), configuration=configuration, formats=NCHW_VECT_C,
                            groups=groups, algo=algo, beta=0.5))  # fmt: skip


def permuted(operation: Any, name: str, order: tuple[int, ...]) -> Any:
    """Return the operation with an operand whose dimensions lie in this order, the last one innermost, without gaps."""
    spec = operation.tensor(name)
    return replace(operation, **{name: replace(spec, strides=packed_strides(spec.dims, order))})


# The first and the last result of a vector are as far apart as in order; those between them are permuted.
PERMUTED = {
    "planes": ((1, 64, 2, 2, 2), (0, 1, 3, 2, 4)),
    "images": ((2, 64, 2, 2), (1, 2, 0, 3)),
    "rows of images": ((2, 64, 2, 4), (1, 2, 0, 3)),
}


@shows(f"{F}/c24", f"{F}/c25", f"{F}/c26")
@pytest.mark.parametrize("formats", [NCHW, (NHWC, NCHW, NCHW)], ids=("planes", "pixels"))
@pytest.mark.parametrize("configuration", ["FLOAT", "PSEUDO_HALF"])
@pytest.mark.parametrize("layout", PERMUTED)
def test_results_that_lie_permuted_between_the_first_and_the_last(run, layout, configuration, formats):
    """By tensor cores and without them."""
    (x, order), ones = PERMUTED[layout], (1,) * (len(PERMUTED[layout][0]) - 2)
    for math_type in (DEFAULT, FMA):
        plain = convolution(
            x,
            (64, 64, *ones),
            padding=(0,) * len(ones),
            configuration=configuration,
            formats=formats,
            math_type=math_type,
        )
        run(permuted(plain, "y", order))
