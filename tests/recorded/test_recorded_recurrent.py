"""Judge recorded RNN training steps of NVIDIA's library, chains of three calls, and repeat them on both backends."""

from __future__ import annotations

from collections import Counter
from functools import cache

import numpy as np
import pytest
from dualdnn.api import cudnn
from dualdnn.api.enumerations import (
    cudnnDataType_t,
    cudnnDirectionMode_t,
    cudnnMathType_t,
    cudnnNanPropagation_t,
    cudnnRNNAlgo_t,
    cudnnRNNBiasMode_t,
    cudnnRNNClipMode_t,
    cudnnRNNDataLayout_t,
    cudnnRNNInputMode_t,
    cudnnRNNMode_t,
)
from dualdnn.api.operations import RNNBackwardData, RNNBackwardWeights, RNNForward, TensorSpec
from dualdnn.api.operations.rnn import RNNClipSpec, RNNDataSpec, RNNSpec, reserve, workspace
from dualdnn.api.operations.specs import HALF
from dualdnn.conformance.calls import Caller
from dualdnn.conformance.recorded import load_recording, packaged_recordings
from dualdnn.conformance.trial import Step, attempt_chain
from dualdnn.reference import judge

CHAIN = "cudnnRNNForward+cudnnRNNBackwardData_v8+cudnnRNNBackwardWeights_v8"
NAMES = {
    "weightSpace": "weights",
    "dweightSpace": "dweights_before",
}  # operand -> the array in the record, where the names differ
AFTER = {"dweightSpace": "dweights"}


@cache
def records():
    """Return the records of algorithms that the document has (docs/errata.md, rnn-small-h)."""
    path = next(path for path in packaged_recordings() if "recurrent" in path.name)
    known = (record for record in load_recording(path).records if record.function == CHAIN)
    return tuple(record for record in known if record.probe["params"]["algo"] in list(cudnnRNNAlgo_t))


def network_of(p) -> RNNSpec:
    clip = RNNClipSpec()
    if p["clip"]:
        lower, upper, nan = p["clip"]
        clip = RNNClipSpec(cudnnRNNClipMode_t.CUDNN_RNN_CLIP_MINMAX, cudnnNanPropagation_t(nan), lower, upper)
    return RNNSpec(
        cudnnRNNAlgo_t(p["algo"]), cudnnRNNMode_t(p["cellMode"]), cudnnRNNBiasMode_t(p["biasMode"]),
        cudnnDirectionMode_t(p["dirMode"]), cudnnRNNInputMode_t(p["inputMode"]), cudnnDataType_t(p["dataType"]),
        cudnnDataType_t(p["mathPrec"]), cudnnMathType_t(p["mathType"]), p["inputSize"], p["hiddenSize"], p["projSize"],
        p["numLayers"], bool(p["auxFlags"]), clip,
    )  # fmt: skip


def operations(record):
    """Yield the operations of a chain: the forward call and, in training, the gradients."""
    p, arrays = record.probe["params"], record.arrays
    spec, lengths = network_of(p), tuple(map(int, arrays["seqLengthArray"]))
    steps, batch, training = p["maxSeqLength"], p["batchSize"], p["fwdMode"] == 1
    x, y = (
        RNNDataSpec(spec.data_type, cudnnRNNDataLayout_t(p["layout"]), steps, batch, size, lengths, fill)
        for size, fill in ((spec.input_size, None), (spec.output_size, p["paddingFill"]))  # Only yDesc had a fill.
    )

    def state(name):
        size = spec.projected if "h" in name else spec.hidden
        return TensorSpec.packed(spec.data_type, (spec.pseudo_layers, batch, size)) if name in arrays else None

    w = TensorSpec.packed(spec.data_type, (1, spec.weight_elements, 1))
    work, kept = workspace(spec, steps, batch), reserve(spec, steps, batch, training)
    yield RNNForward(spec, training, x, state("hx"), state("cx"), w, y, state("hy"), state("cy"), work, kept)
    if training and "dx" in arrays:
        states = map(state, ("hx", "dhy", "cx", "dcy"))
        yield RNNBackwardData(spec, y, y, *states, w, x, state("dhx"), state("dcx"), work, kept)
        yield RNNBackwardWeights(spec, x, state("hx"), y, w, work, kept)


def contents(record, operation, operand, names):
    """Return the recorded bytes of an operand, or 0xFF bytes if it was not recorded."""
    array = record.arrays.get(names.get(operand, operand))
    if array is None:
        return np.full(operation.nbytes(operand), 0xFF, np.uint8)
    return np.ascontiguousarray(array).view(np.uint8).reshape(-1)


def judged(record):
    """Yield (operation, verdict of the library's outputs) for each call."""
    kept = {}
    for operation in operations(record):
        before, after = (
            {name: contents(record, operation, name, {**NAMES, **changed}) for name in operation.operands}
            for changed in ({}, AFTER)
        )
        verdict = judge(operation, before, after, {n: kept[n] for n in operation.raw if n in kept})
        kept |= verdict.kept
        yield operation, verdict


def tag(record):
    return record.probe["tag"]


def decided_otherwise(record):
    """Return why the library need not agree with the reference; empty where it must."""
    if record.probe["params"]["clip"] and record.probe["params"]["clip"][0] > -9:
        return "D351: 9.19 rounds the range to float, and its clipped states follow no formula in a quarter of the configurations"
    reasons = {"zero length": "D304: states of sequences without vectors", "dropout": "its random numbers are its own"}
    half = "D582: 9.19 rounds more to HALF than states and outputs"
    return reasons.get(tag(record), half if record.probe["params"]["dataType"] == HALF else "")


def test_the_library_is_right():
    """The library's outputs are within the bounds of the reference, except where the errata decides otherwise."""
    found, wrong = Counter(), []
    for record in records():
        if decided_otherwise(record):
            found["left"] += 1
            continue
        for operation, verdict in judged(record):
            found[type(operation).__name__] += 1
            if not verdict.agrees:
                wrong.append(f"{record.id} {tag(record)} {type(operation).__name__}: {verdict.explanation()}")
    assert found["RNNForward"] + found["left"] == len(records()) == 177 and found["RNNBackwardWeights"] > 90
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("every", [9, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("backend", ["reference", "accelerated"])
def test_the_backends_do_the_same(backend, every):
    """The backends agree with the reference on every ninth chain; the long test takes all chains."""
    handle = cudnn.cudnnCreate(backend=backend, device="emulated" if backend == "accelerated" else None)
    for record in records()[::every]:
        steps = [Step(operation) for operation in operations(record)]
        before = {
            name: contents(record, step.operation, name, NAMES)
            for step in steps
            for name in step.operation.operands
            if NAMES.get(name, name) in record.arrays and name in step.operation.reads
        }
        found = attempt_chain(Caller(cudnn, handle), steps, 0, before)
        assert found.passed, f"{record.id} {tag(record)}: {found.explanation()}"
    cudnn.cudnnDestroy(handle)
