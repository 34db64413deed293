"""Judge recorded attention calls of NVIDIA's library, alone and in chains of three, and repeat them on both backends."""

from __future__ import annotations

from collections import Counter
from functools import cache

import numpy as np
import pytest
from dualdnn.api import cudnn
from dualdnn.api.enumerations import cudnnDataType_t, cudnnMathType_t, cudnnSeqDataAxis_t, cudnnWgradMode_t
from dualdnn.api.operations import (
    AttnSpec,
    MultiHeadAttnBackwardData,
    MultiHeadAttnBackwardWeights,
    MultiHeadAttnForward,
    MultiHeadAttnStep,
    SeqDataSpec,
)
from dualdnn.api.status import CudnnError
from dualdnn.conformance.calls import Caller
from dualdnn.conformance.recorded import load_recording, packaged_recordings
from dualdnn.conformance.trial import Step, attempt_chain
from dualdnn.reference import judge

FORWARD = "cudnnMultiHeadAttnForward"
LENGTHS = {
    "devSeqLengthsQO": "qLengths", "devSeqLengthsKV": "kLengths",
    "devSeqLengthsDQDO": "qLengths", "devSeqLengthsDKDV": "kLengths",
}  # fmt: skip
# Version 9.19 is wrong in these calls, but right in the similar 1543, 1549 and 1551 (docs/errata.md, D614).
WRONG = {"1544", "1547", "1552"}
BEFORE = LENGTHS | {"dweights": "dweights_before"}  # operand -> the array in the record, where the names differ


@cache
def records():
    path = next(path for path in packaged_recordings() if "recurrent" in path.name)
    return tuple(r for r in load_recording(path).records if r.function.startswith(FORWARD) and r.arrays)


def operations(record):
    """Yield the operations of a record: the forward call and, in training, the gradients."""
    p, arrays = record.probe["params"], record.arrays
    attn = AttnSpec(
        p["attnMode"], p["nHeads"], p["smScaler"], cudnnDataType_t(p["dataType"]), cudnnDataType_t(p["computePrec"]),
        cudnnMathType_t(p["mathType"]), p["qSize"], p["kSize"], p["vSize"], p["qProjSize"], p["kProjSize"],
        p["vProjSize"], p["oProjSize"], p["qoMaxSeqLength"], p["kvMaxSeqLength"], p["maxBatchSize"], p["maxBeamSize"],
    )  # fmt: skip
    axes = tuple(map(cudnnSeqDataAxis_t, p["axes"]))

    def data(dims, lengths):
        return SeqDataSpec(attn.data_type, tuple(p[dims]), axes, tuple(map(int, arrays[lengths])))

    queries, keys = data("qDims", "qLengths"), data("kDims", "kLengths")
    values, out = data("vDims", "kLengths"), data("oDims", "qLengths")
    residuals = out if "residuals" in arrays else None
    low, high = (tuple(map(int, arrays[name])) for name in ("loWinIdx", "hiWinIdx"))
    if p["currIdx"] >= 0:
        at = p["currIdx"]
        yield MultiHeadAttnStep(attn, at, low[at : at + 1], high[at : at + 1], queries, residuals, keys, values, out)
        return
    yield MultiHeadAttnForward(attn, low, high, queries, residuals, keys, values, out, p["training"])
    if attn.has_biases:  # The document does not support gradients of biases.
        return
    if "dqueries" in arrays:
        yield MultiHeadAttnBackwardData(attn, low, high, out, queries, keys, values)
    if "dweights" in arrays:
        yield MultiHeadAttnBackwardWeights(attn, cudnnWgradMode_t(p["addGrad"]), queries, keys, values, out)


def contents(record, operation, operand, names):
    """Return the recorded bytes of an operand; poison for outputs before the call, 0xFF for spaces."""
    array = record.arrays.get(names.get(operand, operand))
    if array is not None and not (names is BEFORE and operand in operation.outputs and operand != "dweights"):
        return np.ascontiguousarray(array).view(np.uint8).reshape(-1)
    if operand in operation.raw:
        return np.full(operation.nbytes(operand), 0xFF, np.uint8)
    poison = record.probe["params"]["poison"]["out" if operand == "out" else "gradients"]
    kind = {2: np.float16, 4: np.float32, 8: np.float64}[operation.tensor(operand).scalar_bytes]
    return np.full(operation.tensor(operand).count, poison, kind).view(np.uint8)


def judged(record):
    """Yield (operation, verdict of the library's outputs) for each call."""
    kept = {}
    for operation in operations(record):
        before = {name: contents(record, operation, name, BEFORE) for name in operation.operands}
        after = {name: contents(record, operation, name, LENGTHS) for name in operation.operands}
        verdict = judge(operation, before, after, {n: kept[n] for n in operation.raw if n in kept})
        kept |= verdict.kept
        yield operation, verdict


def test_the_library_is_right():
    """The library's outputs are within the bounds of the reference, except in the three records of WRONG."""
    found, wrong = Counter(), {}
    for record in records():
        for operation, verdict in judged(record):
            found[type(operation).__name__] += 1
            if not verdict.agrees:
                wrong.setdefault(record.id, f"{type(operation).__name__}: {verdict.explanation()}")
    assert len(records()) == 103
    names = ("MultiHeadAttnForward", "MultiHeadAttnStep", "MultiHeadAttnBackwardData", "MultiHeadAttnBackwardWeights")
    assert [found[name] for name in names] == [93, 10, 28, 27]
    assert wrong.keys() == WRONG, wrong


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("backend", ["reference", "accelerated"])
def test_the_backends_do_the_same(backend, every):
    """The backends agree with the reference on every fourth record, and refuse configurations that table 40 does not list.

    The long test takes all records.
    """
    refused, taken = 0, records()[::every]
    handle = cudnn.cudnnCreate(backend=backend, device="emulated" if backend == "accelerated" else None)
    for record in taken:
        steps = [Step(operation) for operation in operations(record)]
        before = {
            name: contents(record, step.operation, name, BEFORE)
            for step in steps
            for name in step.operation.operands
            if BEFORE.get(name, name) in record.arrays
        }
        try:
            found = attempt_chain(Caller(cudnn, handle), steps, 0, before)
        except CudnnError as error:
            assert error.clause == "cudnnSetAttnDescriptor/c47", f"{record.id}: {error}"
            refused += 1
        else:
            assert found.passed, f"{record.id} {record.probe['tag']}: {found.explanation()}"
    assert 0 < refused < len(taken) / 5
    cudnn.cudnnDestroy(handle)
