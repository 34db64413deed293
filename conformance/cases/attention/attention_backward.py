"""Holds cases of the gradients of multi-head attention: chains of a training call, BackwardData and BackwardWeights."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from dualdnn.api.enumerations import cudnnWgradMode_t
from dualdnn.api.operations import MultiHeadAttnForward
from dualdnn.api.operations.specs import FLOAT, HALF
from dualdnn.api.status import BAD_PARAM
from dualdnn.conformance.calls.descriptors import made
from dualdnn.conformance.cases.attention.attention_forward import (
    LAYOUTS_OF_TENSOR_CORES,
    LONG_OF_TENSOR_CORES,
    MISFITS,
    OF_TENSOR_CORES,
    ONE_TO_ONE,
    attention,
    changed,
    fill_padding,
    forward,
    layout_of_tensor_cores,
    long_of_tensor_cores,
    of_tensor_cores,
    vectors_in,
    with_projections,
)
from dualdnn.conformance.domains.attention import backward_data, backward_weights
from dualdnn.conformance.marks import shows
from dualdnn.conformance.trial import prepare

DATA, WEIGHTS = "cudnnMultiHeadAttnBackwardData", "cudnnMultiHeadAttnBackwardWeights"
BUFFERS = "cudnnGetMultiHeadAttnBuffers"
ADD, SET = cudnnWgradMode_t


def plain(**others: Any) -> Any:
    return attention(mode=others.pop("mode", 0), **others)


def steps(mode: cudnnWgradMode_t = SET, **others: Any) -> tuple[Any, Any, Any]:
    """Return the three calls of a training step."""
    training = forward(others.pop("attn", None) or plain(), trains=True, **others)
    assert isinstance(training, MultiHeadAttnForward)
    return training, backward_data(training), backward_weights(training, mode)


@shows("cudnnMultiHeadAttnBackwardData/c01-c03 c06-c09 c12-c19 c22", "cudnnMultiHeadAttnBackwardWeights/c01-c04 c06-c10 c13",
       "cudnnGetMultiHeadAttnBuffers/c07-c09", "cudnnMultiHeadAttnForward/c04")  # fmt: skip
@pytest.mark.parametrize("q, k, v, o", list(product((0, 1), repeat=4)))
@pytest.mark.blind("a result off by one", "larger spaces than are needed are accepted")
def test_projections(chain, q, k, v, o):
    """Any of the four projections may be on, each head with weights of its own. Both gradients run in one chain, and
    the data gradient alone."""
    attn = with_projections(q, k, v, o, mode=0)
    training, data, weights = steps(attn=attn, key_lengths=(5, 3), low=(0, 1, 0, 2), high=(5, 4, 2, 5))
    if q or k or v or o:
        chain(training, data, weights)
    else:
        chain(training, data)


@shows(f"{WEIGHTS}/c05", "cudnnWgradMode_t/c01")
def test_weights_add_up(chain):
    """The gradient is added to the contents of dweights, then written over them.

    The case also compares the sums with each other, because judge and backend read the mode from the same record.
    """
    training, data, added = steps(ADD)
    found = chain(training, data, added, added, backward_weights(training, SET), added)
    once, twice, written, again = (call.after["dweights"].view(np.float32) for call in found.whole[2:])
    np.testing.assert_allclose(twice - once, written, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(again, 2 * written, rtol=1e-3, atol=1e-3)
    assert np.abs(written).max() > 0.1


@shows(f"{DATA}/c10", "cudnnSetSeqDataDescriptor/c09", "cudnnGetMultiHeadAttnBuffers/c08")
@pytest.mark.parametrize("on", [(0, 0, 0, 0), (1, 1, 1, 1)], ids=["core", "projected"])
@pytest.mark.blind("a result off by one", "larger spaces than are needed are accepted")
def test_padding_is_not_read(chain, on):
    """NaN in the padding of inputs and incoming gradients changes nothing."""
    attn = with_projections(*on, mode=0)
    training, data, weights = steps(
        attn=attn, lengths=(4, 3, 4, 2), key_lengths=(5, 3), low=(0, 0, 1, 1), high=(5, 1, 4, 2)
    )
    before = prepare(training, "normal", 0) | prepare(data, "normal", 0)
    for name in ("queries", "keys", "values", "dout"):
        spec = getattr(data, name)
        array = before[name].view(np.float32).reshape(spec.dims)
        lengths = np.reshape(spec.lengths, spec.dims[1:3])
        for index in np.argwhere(np.arange(spec.dims[0])[:, None, None] >= lengths):
            array[tuple(index)] = (np.nan, np.inf)[index[0] % 2]
    calls = (training, data, weights) if any(on) else (training, data)
    chain(*calls, before=before)


@shows("cudnnSetSeqDataDescriptor/c06")
@pytest.mark.ours
@pytest.mark.parametrize("data_type", [FLOAT, HALF], ids=lambda t: t.name)
def test_lengths_in_memory_that_no_sequence_has(chain, data_type):
    """Lengths beyond the time-steps count as all steps, and lengths below zero as none."""
    training, data, _ = steps(attn=with_projections(0, 0, 0, 0, mode=ONE_TO_ONE, data_type=data_type), lengths=None)
    lengths = {"QO": (9, -1, 4, 5), "KV": (6, 5, 7, -2)}
    memory = {name: np.array(given, np.int32).view(np.uint8) for name, given in lengths.items()}
    before = {f"devSeqLengths{name}": given for name, given in memory.items()}
    before |= {"devSeqLengthsDQDO": memory["QO"], "devSeqLengthsDKDV": memory["KV"]}
    chain(training, data, before=before)


@shows(f"{DATA}/c01", f"{DATA}/c11")
@pytest.mark.parametrize("name", OF_TENSOR_CORES)
def test_tiles_of_tensor_cores(chain, name):
    """NaN outside of the windows of some keys and queries, and in padding, changes nothing else."""
    training = of_tensor_cores(name, trains=True)
    data = backward_data(training)
    before = prepare(training, "normal", 1) | prepare(data, "normal", 1)
    for operand in ("queries", "keys", "values", "dout"):
        vectors, length = vectors_in(before, data, operand), getattr(data, operand).lengths[0]
        vectors[length:] = np.inf
        if operand in ("queries", "dout"):
            vectors[length - 4, 3] = np.nan
    chain(training, data, before=before)


@shows(f"{DATA}/c01", f"{DATA}/c03", f"{WEIGHTS}/c01")
@pytest.mark.parametrize("order, mode, projected, data_type", LAYOUTS_OF_TENSOR_CORES)
def test_layouts_of_tensor_cores(chain, order, mode, projected, data_type):
    """The layouts and maps of queries also work for sequences that are longer than tiles."""
    training = layout_of_tensor_cores(order, mode, projected, data_type, trains=True)
    assert isinstance(training, MultiHeadAttnForward)
    data, weights = backward_data(training), backward_weights(training)
    before = prepare(training, "normal", 1) | prepare(data, "normal", 1)
    for operand in ("queries", "keys", "values", "dout"):
        fill_padding(before, data, operand)
    chain(training, data, *([weights] if projected else []), before=before)


@shows(f"{WEIGHTS}/c01", f"{DATA}/c10")
def test_padding_beside_full_tiles(chain):
    """Results of padded queries enter no sum, in a tile whose other queries have all keys of another."""
    attn = attention((8, 8, 8, 16), (16, 16, 16), 1, 0, 0.2, HALF, longest=(70, 130), batches=1, beams=1)
    training, data, weights = steps(attn=attn, steps=(70, 130), batches=1, beams=1, lengths=(66,))
    before = prepare(training, "normal", 1) | prepare(data, "normal", 1)
    for operand in ("queries", "dout"):
        fill_padding(before, data, operand)
    chain(training, data, weights, before=before)


@shows(f"{DATA}/c01")
@pytest.mark.parametrize("steps", LONG_OF_TENSOR_CORES[:2], ids=str)
def test_long_sequences_of_tensor_cores(chain, steps):
    training = long_of_tensor_cores(steps, trains=True)
    assert isinstance(training, MultiHeadAttnForward)
    chain(training, backward_data(training))


@shows(f"{WEIGHTS}/c03")
def test_no_weights(cudnn, handle):
    """An attention without weights has no gradients of them; neither buffer need exist."""
    call = Call(cudnn, handle, steps(attn=with_projections(0, 0, 0, 0, mode=0)))
    call.forward()
    call.data()
    call.weights()


# --- refusals ---


class Call:
    """Holds the three calls with good arguments, of which some can be changed."""

    def __init__(self, cudnn: Any, handle: Any, operations: Any) -> None:
        self.cudnn = cudnn
        training, data, weights = operations
        self.operations = operations
        memory = {**prepare(training, "normal", 0), **prepare(data, "normal", 0), **prepare(weights, "normal", 0)}
        self.buffers = {name: handle.to_device(content) for name, content in memory.items() if content.size}
        attn = made(cudnn, training.attn)
        sizes = cudnn.cudnnGetMultiHeadAttnBuffers(handle, attn)
        work, reserve = handle.allocate(max(sizes[1], 16)), handle.allocate(sizes[2])
        get = self.buffers.get
        q, k, v, o = (made(cudnn, getattr(data, name)) for name in ("queries", "keys", "values", "dout"))
        windows = {"loWinIdx": training.lo_win_idx, "hiWinIdx": training.hi_win_idx}
        spaces = {
            "workSpaceSizeInBytes": sizes[1], "workSpace": work,
            "reserveSpaceSizeInBytes": sizes[2], "reserveSpace": reserve,
        }  # fmt: skip
        weighed = {"weightSizeInBytes": sizes[0], "weights": get("weights")}
        first = {"handle": handle, "attnDesc": attn}
        self.of_forward = {
            **first, "currIdx": -1, **windows, "devSeqLengthsQO": get("devSeqLengthsQO"),
            "devSeqLengthsKV": get("devSeqLengthsKV"), "qDesc": q, "queries": get("queries"), "residuals": None,
            "kDesc": k, "keys": get("keys"), "vDesc": v, "values": get("values"), "oDesc": o, "out": get("out"), **weighed, **spaces,
        }  # fmt: skip
        self.of_data = {
            **first, **windows, "devSeqLengthsDQDO": get("devSeqLengthsDQDO"),
            "devSeqLengthsDKDV": get("devSeqLengthsDKDV"), "doDesc": o, "dout": get("dout"),
            "dqDesc": q, "dqueries": get("dqueries"), "queries": get("queries"),
            "dkDesc": k, "dkeys": get("dkeys"), "keys": get("keys"),
            "dvDesc": v, "dvalues": get("dvalues"), "values": get("values"), **weighed, **spaces,
        }  # fmt: skip
        self.of_weights = {
            **first, "addGrad": SET, "qDesc": q, "queries": get("queries"), "kDesc": k, "keys": get("keys"),
            "vDesc": v, "values": get("values"), "doDesc": o, "dout": get("dout"), **weighed,
            "dweights": get("dweights"), **spaces,
        }  # fmt: skip

    def forward(self, **other: Any) -> None:
        self.cudnn.cudnnMultiHeadAttnForward(*(self.of_forward | other).values())

    def data(self, **other: Any) -> None:
        self.cudnn.cudnnMultiHeadAttnBackwardData(*(self.of_data | other).values())

    def weights(self, **other: Any) -> None:
        self.cudnn.cudnnMultiHeadAttnBackwardWeights(*(self.of_weights | other).values())


@shows(f"{DATA}/c23", f"{WEIGHTS}/c14")
@pytest.mark.parametrize("name", MISFITS)
def test_what_does_not_fit(cudnn, handle, refuses, name):
    call = Call(cudnn, handle, steps())
    data = call.operations[1]
    operands = {"qDesc": "queries", "kDesc": "keys", "vDesc": "values", "oDesc": "dout"}
    wrong = {
        parameter: made(cudnn, changed(getattr(data, operands[parameter]), **changes))
        for parameter, changes in MISFITS[name][1].items()
    }
    of_data = {"doDesc" if parameter == "oDesc" else f"d{parameter}": spec for parameter, spec in wrong.items()}
    of_weights = {"doDesc" if parameter == "oDesc" else parameter: spec for parameter, spec in wrong.items()}
    refuses(BAD_PARAM, f"{DATA}/c23", call.data, **of_data)
    refuses(BAD_PARAM, f"{WEIGHTS}/c14", call.weights, **of_weights)


@shows(f"{DATA}/c19", f"{WEIGHTS}/c10", f"{DATA}/c23", f"{WEIGHTS}/c14", f"{BUFFERS}/c13", f"{BUFFERS}/c14")
def test_spaces_that_are_too_small(subject, cudnn, handle, refuses):
    """The calls work in spaces of the reported sizes, and refuse spaces that are a byte smaller."""
    call = Call(cudnn, handle, steps())
    call.forward()
    call.data()
    call.weights()
    for name in ("weightSizeInBytes", "workSpaceSizeInBytes", "reserveSpaceSizeInBytes"):
        if name != "workSpaceSizeInBytes" or subject.cites_clauses:  # Another library may need no work space.
            size = call.of_data[name] - 1
            refuses(BAD_PARAM, f"{DATA}/c23", call.data, **{name: size})
            refuses(BAD_PARAM, f"{WEIGHTS}/c14", call.weights, **{name: size})
