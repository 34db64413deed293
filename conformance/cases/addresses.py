"""Holds cases of operands that move between two equal calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from dualdnn.api.operations import Operation
from dualdnn.api.operations.specs import NHWC
from dualdnn.conformance.calls import sized
from dualdnn.conformance.cases.convolution import convolution, convolution_backward_data, convolution_backward_filter
from dualdnn.conformance.trial import prepare

if TYPE_CHECKING:
    from dualdnn.conformance.calls import Caller

IN_SEVERAL_STEPS: dict[str, Operation] = {
    "Winograd": convolution.convolution(algo=convolution.NONFUSED),
    "FFT": convolution.convolution(algo=convolution.FFT),
    "data gradient by FFT": convolution_backward_data.gradient(algo=convolution_backward_data.FFT),
    "filter gradient by FFT": convolution_backward_filter.gradient(algo=convolution_backward_filter.FFT),
    "data gradient on tensor cores": convolution_backward_data.gradient(
        (1, 4, 6, 6), (16, 4, 3, 3), configuration="PSEUDO_HALF", formats=NHWC, math_type=convolution_backward_data.DEFAULT
    ),
}  # fmt: skip


@pytest.mark.ours
@pytest.mark.parametrize("name", IN_SEVERAL_STEPS)
def test_one_operand_has_moved(caller: Caller, name: Any) -> None:
    """A repeated call is right after any one operand has moved and changed its contents."""
    operation = sized(caller, IN_SEVERAL_STEPS[name])
    contents, others = (prepare(operation, "normal", seed) for seed in (0, 1))

    def called(memory: dict[str, Any]) -> list[bytes]:
        caller(operation, memory)
        return [bytes(memory[output].to_host(np.uint8, memory[output].nbytes)) for output in operation.outputs]

    memory = {operand: caller.handle.to_device(content) for operand, content in contents.items()}
    called(memory)
    for operand in contents:
        elsewhere = {**memory, operand: caller.handle.to_device(others[operand])}
        afresh = {name: caller.handle.to_device(content) for name, content in contents.items()}
        found = called(elsewhere)
        assert found == called({**afresh, operand: caller.handle.to_device(others[operand])}), operand
        called(memory)
