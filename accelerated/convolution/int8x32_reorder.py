"""Reorder filters and biases of INT8x32 convolutions (5.2.32; convolution/int8x32_reorder.cu)."""

from __future__ import annotations

from ctypes import c_int
from math import prod
from typing import Any

from dualdnn.api.enumerations import cudnnReorderType_t
from dualdnn.api.operations import ReorderFilterAndBias

from ..plans import Launch, fields_of, pointers, structure
from ..primitives.geometry import FastDivmod, blocks
from ..reproducible import NO_SUMS
from ..solver import Problem, Solver
from .problem import WORD

SOURCE = "convolution/int8x32_reorder.cu"


class Int8x32Reorder(Solver[Problem]):
    """Serve with a thread for each word of four 8-bit channels. The first block also moves the bias."""

    name = "convolution.int8x32_reorder"
    fixed_order = NO_SUMS

    def launches(self, problem: Problem) -> list[Launch]:
        operation: Any = problem.operation
        biased = isinstance(operation, ReorderFilterAndBias)
        filters, words = operation.filterData.dims[0], prod(operation.filterData.dims[1:]) // WORD
        arguments = structure(
            *pointers(4),
            ("words", FastDivmod.of(words)),
            *fields_of(c_int, filters=filters, biased=biased),
            ("reorders", c_int(operation.reorder_type == cudnnReorderType_t.CUDNN_DEFAULT_REORDER)),
        )
        names: tuple[str, ...] = ("filterData", "reorderedFilterData")
        names += ("biasData", "reorderedBiasData") if biased else names
        function = problem.device.function(SOURCE, "convolution_int8x32_reorder")
        return [Launch(function, arguments, names, blocks(filters * words))]
