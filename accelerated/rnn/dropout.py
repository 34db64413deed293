"""Plan the dropout between the layers of recurrent networks in training (dropout.cu)."""

from __future__ import annotations

from ctypes import Structure, c_int, c_longlong, c_uint
from typing import Any

from dualdnn.api.operations.dropout import threshold

from ..plans import Launch, factors, fields_of, pointers, structure, type_definitions
from ..primitives.geometry import blocks
from .problem import THREADS, RNNProblem

SOURCE = "rnn/dropout.cu"
OCTET = 8  # elements per thread, as in the kernel
WORD = 0xFFFFFFFF  # the bits of a 32-bit word


def drawn(problem: RNNProblem, layer: int, mask_alone: bool = False) -> list[Launch]:
    """Return the launch that drops elements of a layer's output for the next layer, or no launch where nothing is
    dropped.
    With ``mask_alone`` it writes only the mask, because another kernel drops the elements.
    """
    if not problem.draws:
        return []
    limit = threshold(problem.network.dropout)
    vectors, mask = problem.dropped(layer)
    fields = (
        *fields_of(c_longlong, source=problem.kept(layer)["kept_output"], target=-1 if mask_alone else vectors),
        *_shared(problem, mask),
        ("threshold", c_uint(min(limit, WORD))),
        ("drops_all", c_int(limit > WORD)),
        ("sequence", c_uint(layer + 1)),
    )
    return [_launch(problem, "draw", ("reserveSpace", "states"), *fields)]


def advanced(problem: RNNProblem) -> list[Launch]:
    """Return the launch that counts the call after the draws of all layers, or no launch where nothing is dropped."""
    if not problem.draws:
        return []
    function = problem.device.function(SOURCE, "rnn_dropout_advance", _definitions(problem))
    return [Launch(function, structure(*pointers(1)), ("states",), (1, 1, 1), (32, 1, 1))]


def gradient(problem: RNNProblem, layer: int) -> list[Launch]:
    """Return the launch that drops elements of the gradient of a layer's input, where the forward call dropped them. x
    itself is never dropped.
    """
    if not problem.network.drops or not layer:
        return []
    _, mask = problem.dropped(layer - 1)
    fields = ("target", c_longlong(problem.passed(layer)["input"])), *_shared(problem, mask)
    return [_launch(problem, "gradient", ("workSpace", "reserveSpace"), *fields)]


def described(problem: RNNProblem, layer: int) -> Structure:
    """Return ``Dropout`` of dropout.cuh, which describes the dropout after a layer."""
    drops = problem.network.drops and layer < problem.network.layers - 1 and problem.operation.reserve.nbytes
    vectors, mask = problem.dropped(layer) if drops else (-1, -1)
    return structure(("vectors", c_longlong(vectors)), ("mask", c_longlong(mask)))


def scale(problem: RNNProblem) -> float:
    """Return the factor of the elements that are kept."""
    probability = problem.network.dropout
    return 1 / (1 - probability) if probability < 1 else 0.0


def _shared(problem: RNNProblem, mask: int) -> tuple[tuple[str, Any], ...]:
    """Return the fields that both kernels share; ``mask`` is the mask's offset in the reserve space."""
    return (
        *fields_of(c_longlong, mask=mask, elements=_elements(problem)),
        *factors(problem.operation, scale=scale(problem)),
    )


def _elements(problem: RNNProblem) -> int:
    return problem.steps * problem.batch * problem.network.output_size


def _definitions(problem: RNNProblem) -> tuple[tuple[str, str], ...]:
    return type_definitions(problem.data.data_type, problem.operation)


def _launch(problem: RNNProblem, kernel: str, operands: tuple[str, ...], *fields: tuple[str, Any]) -> Launch:
    function = problem.device.function(SOURCE, f"rnn_dropout_{kernel}", _definitions(problem))
    arguments = structure(*pointers(len(operands)), *fields)
    return Launch(function, arguments, operands, blocks(-(-_elements(problem) // OCTET)), (THREADS, 1, 1))
