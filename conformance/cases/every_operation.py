"""Holds cases of the memory and the factors of every operation: one small sample of each, by the documented call.

every_operation.toml holds the samples, and the clauses of memory that is wrong, short or shared.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import resources
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from dualdnn.api.document import functions
from dualdnn.api.enumerations import cudnnMathType_t
from dualdnn.api.operations import Operation, parse
from dualdnn.api.operations.specs import TensorSpec
from dualdnn.api.status import BAD_PARAM, INVALID_VALUE
from dualdnn.conformance.calls import function_of, sized
from dualdnn.conformance.marks import needs, shows
from dualdnn.conformance.trial import POISON, prepare
from dualdnn.reference import implemented, judge
from dualdnn.reference.precision import PRECISION
from dualdnn.reference.view import NUMPY_TYPES

if TYPE_CHECKING:
    from dualdnn.conformance.calls import Caller
    from dualdnn.conformance.subjects import Subject
    from dualdnn.conformance.trial import Trial

TABLE: dict[str, Any] = tomllib.loads(
    resources.files("dualdnn.conformance.cases").joinpath("every_operation.toml").read_text(encoding="utf-8")
)
TABLE["short_sizes"] = TABLE["short_memory"] | TABLE["short_sizes"]
SAMPLES: dict[str, Operation] = {name: parse(text) for name, text in TABLE["samples"].items()}
# The results of these calls follow from what an earlier call left in the reserve space. Here it holds noise, so no
# results are compared.
CONTINUED = ("RNNBackwardData", "RNNBackwardWeights")
RAW_STEPS = dict.fromkeys(("indices", "temp", "temp2", "labels", "states"), 4)  # bytes, element without a descriptor
ATTENTION_STEP = 16  # bytes, alignment of work and reserve space (7.2.15)
STEP = 8  # bytes; a multiple of every element's size
# Padding allows only the factors 1 and 0, and the error bound of a long sum may reach zero.
UNSCALED = ("TransformTensorEx", "ReduceTensor-workspace")
# Infinities leave most of these outputs undetermined, few elements are nonzero, or an earlier call's results are read.
# Attention has its own cases.
MOSTLY_OPEN = (
    "ConvolutionForward-FFT", "ConvolutionForward-WINOGRAD", "ScaleBiasActivationConvBnstats", "RNN", "MultiHeadAttn", "Dropout", "CTC",
)  # fmt: skip
SIZE = re.compile("Size(InBytes)?$")  # end of the name of a parameter with the size of the memory before it
samples = pytest.mark.parametrize("sample", SAMPLES)


class ReadOnly:
    """Offers device memory as read-only, by the CUDA array interface."""

    def __init__(self, part: Any, nbytes: int) -> None:
        self.part = part
        self.__cuda_array_interface__ = {
            "version": 3, "data": (part.address, True), "typestr": "|u1", "shape": (nbytes,),
        }  # fmt: skip


def read_only(part: Any, nbytes: int) -> Any:
    """Return a read-only view of the memory."""
    if not isinstance(getattr(part, "array", None), np.ndarray):
        return ReadOnly(part, nbytes)
    view = part.array.view()
    view.flags.writeable = False
    return view


def ready(caller: Any, sample: str) -> Operation:
    """Return the sample with the workspace that the subject asks for."""
    return sized(caller, SAMPLES[sample])


def clause_of(sample: str, operand: str, kind: str = "wrong_memory") -> str:
    """Return the clause that memory of this operand violates if it is wrong in itself, or of another kind of the table."""
    clauses: dict[str, str] = TABLE[kind].get(sample.split("-")[0], {})
    named = (clause for operands, clause in clauses.items() if operand in operands.split())
    return next(named, clauses.get("*", "cudnnStatus_t/c05"))


def placed(caller: Any, memory: Mapping[str, Any], offsets: Mapping[str, int]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (buffers, operands): each operand is at its offset in its own aligned buffer."""
    buffers = {
        name: caller.handle.to_device(np.append(np.full(offsets.get(name, 0), POISON, np.uint8), content))
        for name, content in memory.items()
    }
    return buffers, {name: buffer.slice(offsets.get(name, 0), memory[name].size) for name, buffer in buffers.items()}


def present(operation: Operation) -> tuple[dict[str, Any], dict[str, None]]:
    """Return (memory, absent): seeded contents of the operands, and NULL for operands without memory."""
    memory = {name: content for name, content in prepare(operation, "normal", 0).items() if content.size}
    return memory, dict.fromkeys(set(operation.operands) - set(memory))


def element_bytes(operation: Operation, name: str) -> int:
    """Return the alignment of an operand in bytes, which is its element's; workspaces have no alignment."""
    if name in RAW_STEPS:
        return RAW_STEPS[name]
    if hasattr(operation, "attn") and name in ("workSpace", "reserveSpace"):
        return ATTENTION_STEP
    described = getattr(operation, operation.raw[name]) if name in operation.raw else operation.tensor(name)
    return NUMPY_TYPES[described.scalar_type].itemsize if isinstance(described, TensorSpec) else 1


def test_there_is_a_sample_of_every_operation() -> None:
    assert {type(operation) for operation in SAMPLES.values()} == set(implemented())


@shows("cudnnStatus_t/c05")
@samples
@needs("is_python", "C has no memory that is known to be read-only")
def test_what_is_written_is_not_read_only(caller: Caller, refuses: Callable[..., bool], sample: Any) -> None:
    """Read-only outputs, indices and workspaces are refused; the same memory serves the inputs."""
    operation = ready(caller, sample)
    memory = prepare(operation, "normal", 0)
    written = {*operation.outputs, *operation.raw}
    for name in (name for name in written if name in memory and memory[name].size):
        buffers, operands = placed(caller, memory, {})
        operands[name] = read_only(operands[name], memory[name].size)
        refuses(BAD_PARAM, clause_of(sample, name), caller, operation, operands, unchanged=tuple(buffers.values()))
    buffers, operands = placed(caller, memory, {})
    for name in operands.keys() - written:
        operands[name] = read_only(operands[name], memory[name].size)
    caller(operation, operands)
    after = {name: buffer.to_host(np.uint8, buffer.nbytes) for name, buffer in buffers.items()}
    assert sample in CONTINUED or judge(operation, memory, after).agrees


@shows("cudnnStatus_t/c05")
@samples
@needs("cites_clauses", "the document names no alignment, and a fault on a GPU ends the process's work there")
def test_operands_begin_at_elements(caller: Caller, refuses: Callable[..., bool], sample: Any) -> None:
    """Any address aligned to an element is accepted, and every other refused; workspaces begin anywhere."""
    operation = ready(caller, sample)
    memory, absent = present(operation)
    for shifted in memory:
        step = element_bytes(operation, shifted)
        buffers, operands = placed(caller, memory, {shifted: step})
        caller(operation, {**operands, **absent})
        after = {
            name: buffer.to_host(np.uint8, buffer.nbytes)[-memory[name].size :] for name, buffer in buffers.items()
        }
        verdict = judge(operation, memory, after)
        assert sample in CONTINUED or verdict.agrees, f"{shifted} at a multiple of {step}: {verdict.explanation()}"
        if step > 1:
            buffers, operands = placed(caller, memory, {shifted: 1})
            unchanged = tuple(buffers.values())
            refuses(
                BAD_PARAM, clause_of(sample, shifted), caller, operation, {**operands, **absent}, unchanged=unchanged
            )


@shows("cudnnStatus_t/c05")
@samples
@needs("cites_clauses", "what a foreign library makes of shared memory is not determined")
def test_outputs_share_no_part_of_another_operand(caller: Caller, refuses: Callable[..., bool], sample: Any) -> None:
    """An output that overlaps part of another operand is refused; adjacent operands in one buffer are right."""
    operation = ready(caller, sample)
    memory, absent = present(operation)
    required = operation.memory_requirements()
    ((pair, clause),) = TABLE["shared_memory"].get(sample.split("-")[0], {"": ""}).items()
    for output in sorted(memory.keys() & set(operation.outputs)):
        for other in memory.keys() - {output}:
            if required[other].nbytes < memory[other].size:
                continue  # Its contents decide how much is read, and the host does not read them.
            first, last = memory[other].size, memory[output].size
            step = max(STEP, required[output].alignment)
            for start in {step, (first - 1) // step * step}:
                if start >= first:
                    continue  # These two do not overlap.
                joint = caller.handle.to_device(np.resize(memory[other], first + last))
                _, operands = placed(caller, memory, {})
                operands[other], operands[output] = joint.slice(0, first), joint.slice(start, last)
                expected = clause if {output, other} == set(pair.split()) else "cudnnStatus_t/c05"
                refuses(BAD_PARAM, expected, caller, operation, {**operands, **absent}, unchanged=(joint,))
    starts, size = {}, 0
    for name, content in memory.items():
        starts[name] = size
        size += -(-content.size // 16) * 16
    before = np.zeros(size, np.uint8)
    for name, start in starts.items():
        before[start : start + memory[name].size] = memory[name]
    joint = caller.handle.to_device(before)
    caller(operation, {name: joint.slice(start, memory[name].size) for name, start in starts.items()} | absent)
    now = joint.to_host(np.uint8, joint.nbytes)
    after = {name: now[start : start + memory[name].size] for name, start in starts.items()}
    assert sample in CONTINUED or judge(operation, memory, after).agrees


@pytest.mark.parametrize("sample", [name for name in SAMPLES if name not in UNSCALED])
@pytest.mark.parametrize("inputs", ["normal", "ties"])
def test_infinite_factors(trial: Callable[..., Trial], caller: Caller, sample: Any, inputs: str) -> None:
    """An infinite factor multiplies as in IEEE 754 wherever the result is determined (docs/errata.md, D031)."""
    operation: Any = ready(caller, sample)
    for name in ("alpha", "beta"):
        for value in (np.inf, -np.inf):
            if hasattr(operation, name):
                trial(replace(operation, **{name: value}), inputs)


@pytest.mark.parametrize("sample", [name for name in SAMPLES if not name.startswith(MOSTLY_OPEN)])
def test_infinite_operands(trial: Callable[..., Trial], caller: Caller, sample: Any) -> None:
    """Infinities in an operand give the formula's result, unless it depends on an undocumented order of products."""
    operation = ready(caller, sample)
    for name in operation.inputs:
        if operation.has(name) and name not in operation.raw and operation.tensor(name).scalar_type in PRECISION:
            trial(operation, {**dict.fromkeys(operation.operands, "positive"), name: "infinite"})


# These sentences say how many bytes memory has; other cases of the section say by which clause less is refused.
OF_SIZES = (
    "cudnnRNNForward/c39", "cudnnRNNBackwardData_v8/c47", "cudnnRNNBackwardWeights_v8/c19", "cudnnMultiHeadAttnForward/c31", "cudnnMultiHeadAttnForward/c32",
    "cudnnMultiHeadAttnBackwardData/c19-c21", "cudnnMultiHeadAttnBackwardWeights/c10-c12", "cudnnDropoutForward/c07",
    "cudnnDropoutBackward/c05", "cudnnNormalizationBackward/c06", "cudnnNormalizationForwardTraining/c16",
)  # fmt: skip


@shows(
    "cudnnStatus_t/c05",
    *OF_SIZES,
    *(clause for clauses in TABLE["short_memory"].values() for clause in clauses.values()),
)
@samples
@needs("knows_sizes", "a foreign library cannot know the sizes of buffers")
def test_memory_that_is_short_by_a_byte(caller: Caller, refuses: Callable[..., bool], sample: Any) -> None:
    """Memory of an operand that is a byte too short is refused, by itself or by its size, and all memory stays as it was."""
    operation = ready(caller, sample)
    memory, absent = present(operation)
    required = operation.memory_requirements()
    for name in (name for name in memory if required[name].nbytes):
        buffers, operands = placed(caller, memory, {})
        operands[name] = caller.handle.to_device(memory[name][: required[name].nbytes - 1])
        clause = clause_of(sample, name, "short_memory")
        status = INVALID_VALUE if clause.startswith("cudnnReduceTensor/") else BAD_PARAM
        refuses(status, clause, caller, operation, {**operands, **absent}, unchanged=tuple(buffers.values()))
    function = function_of(type(operation))
    for at, parameter in enumerate(functions()[function].arguments):
        buffers, operands = placed(caller, memory, {})
        values = caller.values(function, operation, {**operands, **absent})
        name = SIZE.sub("", parameter.name)
        if name != parameter.name and values[at]:
            values[at] -= 1
            clause = clause_of(sample, name, "short_sizes")
            status = INVALID_VALUE if clause.startswith(("cudnnReduceTensor/", "cudnnSetDropout")) else BAD_PARAM
            call = getattr(caller.cudnn, function)
            refuses(status, clause, call, *values, unchanged=tuple(buffers.values()))


ODD = 1 + 2.0**-12  # TF32 rounds this number to 1.


@shows("cudnnMathType_t/c03 c04")
@pytest.mark.parametrize("override", [False, True], ids=["FMA", "override"])
@pytest.mark.parametrize("which", TABLE["products"])
def test_factors_keep_their_bits(
    subject: Subject, caller: Caller, monkeypatch: pytest.MonkeyPatch, which: Any, override: bool
) -> None:
    """CUDNN_FMA_MATH rounds no factor to TF32, and NVIDIA_TF32_OVERRIDE=0 forbids it for all math types.

    Sums of few numbers are exact.
    """
    operation, count = parse(TABLE["products"][which]["operation"]), TABLE["products"][which]["count"]
    if override:
        if not subject.is_python:
            pytest.skip("a foreign library reads its environment when it is loaded")
        monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")
        operation = replace(
            operation, convolution=replace(operation.convolution, math_type=cudnnMathType_t.CUDNN_DEFAULT_MATH)
        )
    operation = sized(caller, operation)
    first, second = operation.inputs
    (output,) = operation.outputs
    for odd in (first, second):
        memory = {
            name: caller.handle.to_device(np.full(operation.nbytes(name) // 4, ODD if name == odd else 1, np.float32))
            for name in (first, second, output)
        }
        memory["workSpace"] = caller.handle.allocate(operation.workspace_bytes) if operation.workspace_bytes else None
        caller(operation, memory)
        found = memory[output].to_host(np.float32, operation.nbytes(output) // 4)
        assert np.array_equal(found, np.full(found.size, count * ODD, np.float32))
