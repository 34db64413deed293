"""Convolutions of few products on the device (convolution/tiny.cu)."""

from __future__ import annotations

from ctypes import c_int
from math import prod
from typing import Any

from dualdnn.api.operations.specs import BFLOAT16, DOUBLE, FLOAT, HALF

from ..plans import Launch, pointers, structure, type_definitions
from ..primitives.geometry import FastDivmod, blocks
from .problem import Convolution, epilogue, operand_names, operation_product

SOURCE = "convolution/tiny.cu"
THREADS = 128
RESIDENT = 2048  # threads of a multiprocessor: one has a product, or few
LANE_TERMS, MOST_LANES = 4, 32  # terms of a lane that lanes are added for


def is_small(operation: Convolution, device: Any) -> bool:
    """The device has a thread for each product."""
    products = prod(operation.y.dims) * operation.terms
    return operation.x.data_type in (FLOAT, DOUBLE, HALF, BFLOAT16) and products <= RESIDENT * device.multiprocessors


def small(operation: Convolution, device: Any) -> Launch:
    """The whole convolution."""
    o = operation
    value, groups = operation_product(o), o.convolution.group_count
    lanes = 1
    while lanes < MOST_LANES and lanes * LANE_TERMS < o.terms:
        lanes *= 2
    arguments = structure(
        *pointers(5),
        ("convolution", value),
        ("epilogue", epilogue(o)),
        ("channels", FastDivmod.of(value.filters * groups)),
        ("filters", FastDivmod.of(value.filters)),
        ("log_lanes", c_int(lanes.bit_length() - 1)),
    )
    function = device.function(SOURCE, "convolution_small", type_definitions(o.x.scalar_type, o))
    grid = blocks(prod(o.y.dims) * lanes, THREADS)
    return Launch(function, arguments, ("x", "w", *operand_names(o)), grid, (THREADS, 1, 1))
