"""Holds cases of the gradients of multi-head attention: chains of a training call, BackwardData and BackwardWeights."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from dualdnn.api.enumerations import cudnnWgradMode_t
from dualdnn.api.operations import MultiHeadAttnForward
from dualdnn.api.operations.specs import FLOAT, HALF
from dualdnn.api.status import BAD_PARAM
from dualdnn.conformance.cases.attention.attention_forward import (
    LAYOUTS_OF_TENSOR_CORES,
    LONG_OF_TENSOR_CORES,
    OF_TENSOR_CORES,
    ONE_TO_ONE,
    attention,
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
from dualdnn.conformance.trial import Called, prepare

if TYPE_CHECKING:
    from dualdnn.conformance.calls import Caller
    from dualdnn.conformance.subjects import Subject
    from dualdnn.conformance.trial import Trial

DATA = "cudnnMultiHeadAttnBackwardData"
WEIGHTS = "cudnnMultiHeadAttnBackwardWeights"
BUFFERS = "cudnnGetMultiHeadAttnBuffers"
ADD, SET = cudnnWgradMode_t


def plain(**others: Any) -> Any:
    return attention(mode=others.pop("mode", 0), **others)


def steps(mode: cudnnWgradMode_t = SET, **others: Any) -> tuple[Any, Any, Any]:
    """Return the three calls of a training step."""
    training = forward(others.pop("attn", None) or plain(), trains=True, **others)
    assert isinstance(training, MultiHeadAttnForward)
    return training, backward_data(training), backward_weights(training, mode)


@shows(f"{DATA}/c01-c03 c06-c09 c12-c19 c22", f"{WEIGHTS}/c01-c04 c06-c10 c13", f"{BUFFERS}/c07-c09", "cudnnMultiHeadAttnForward/c03 c04", "cudnnSetAttnDescriptor/c07")  # fmt: skip
@pytest.mark.parametrize("q, k, v, o", list(product((0, 1), repeat=4)))
@pytest.mark.blind("a result off by one", "larger spaces than are needed are accepted")
def test_projections(chain: Callable[..., Trial], q: Any, k: Any, v: Any, o: Any) -> None:
    """Any of the four projections may be on, each head with its own weights. Data gradients also run without weight
    gradients."""
    attn = with_projections(q, k, v, o, mode=0)
    training, data, weights = steps(attn=attn, key_lengths=(5, 3), low=(0, 1, 0, 2), high=(5, 4, 2, 5))
    if q or k or v or o:
        chain(training, data, weights)
    else:
        chain(training, data)


@shows(f"{WEIGHTS}/c05", "cudnnWgradMode_t/c01")
def test_weights_add_up(chain: Callable[..., Trial]) -> None:
    """Weight gradients are added to dweights in one mode, and replace it in the other.

    The case also compares the sums with each other, because judge and backend read the mode from the same record.
    """
    training, data, added = steps(ADD)
    found = chain(training, data, added, added, backward_weights(training, SET), added)
    once, twice, written, again = (call.after["dweights"].view(np.float32) for call in found.whole[2:])
    np.testing.assert_allclose(twice - once, written, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(again, 2 * written, rtol=1e-3, atol=1e-3)
    assert np.abs(written).max() > 0.1


@shows(f"{DATA}/c10")
def test_lengths_on_the_device_are_not_compared(caller: Caller) -> None:
    """A call does not notice that lengths on the device differ from those of the descriptors."""
    _, data, _ = steps()
    call = Called(caller, data)
    for name in ("devSeqLengthsDQDO", "devSeqLengthsDKDV"):
        count = call.arguments[name].nbytes // np.dtype(np.int32).itemsize
        call(**{name: caller.handle.to_device(np.ones(count, np.int32))})


@shows("cudnnSetSeqDataDescriptor/c09", "cudnnGetMultiHeadAttnBuffers/c08")
@pytest.mark.parametrize("on", [(0, 0, 0, 0), (1, 1, 1, 1)], ids=["core", "projected"])
@pytest.mark.blind("a result off by one", "larger spaces than are needed are accepted")
def test_padding_is_not_read(chain: Callable[..., Trial], on: Any) -> None:
    """NaN in the padding of inputs and incoming gradients changes nothing."""
    attn = with_projections(*on, mode=0)
    training, data, weights = steps(
        attn=attn, lengths=(4, 3, 4, 2), key_lengths=(5, 3), low=(0, 0, 1, 1), high=(5, 1, 4, 2)
    )
    before = prepare(training, "normal", 0) | prepare(data, "normal", 0)
    for name in ("queries", "keys", "values", "dout"):
        fill_padding(before, data, name)
    calls = (training, data, weights) if any(on) else (training, data)
    chain(*calls, before=before)


@shows("cudnnSetSeqDataDescriptor/c06")
@pytest.mark.ours
@pytest.mark.parametrize("data_type", [FLOAT, HALF], ids=lambda t: t.name)
def test_lengths_in_memory_that_no_sequence_has(chain: Callable[..., Trial], data_type: Any) -> None:
    """Lengths beyond the time-steps count as all steps, and negative lengths as zero."""
    training, data, _ = steps(attn=with_projections(0, 0, 0, 0, mode=ONE_TO_ONE, data_type=data_type), lengths=None)
    lengths = {"QO": (9, -1, 4, 5), "KV": (6, 5, 7, -2)}
    memory = {name: np.array(given, np.int32).view(np.uint8) for name, given in lengths.items()}
    before = {f"devSeqLengths{name}": given for name, given in memory.items()}
    before |= {"devSeqLengthsDQDO": memory["QO"], "devSeqLengthsDKDV": memory["KV"]}
    chain(training, data, before=before)


@shows(f"{DATA}/c01", f"{DATA}/c11")
@pytest.mark.parametrize("name", OF_TENSOR_CORES)
def test_tiles_of_tensor_cores(chain: Callable[..., Trial], name: Any) -> None:
    """NaN in a query or in padding reaches only the keys and queries whose windows cover it."""
    training = of_tensor_cores(name, trains=True)
    data = backward_data(training)
    before = prepare(training, "normal", 1) | prepare(data, "normal", 1)
    for operand in ("queries", "keys", "values", "dout"):
        vectors, length = vectors_in(before, data, operand), getattr(data, operand).lengths[0]
        vectors[length:] = np.inf
        if operand in ("queries", "dout"):
            vectors[length - 4, 3] = np.nan
    chain(training, data, before=before)


@shows(f"{DATA}/c01 c03", f"{WEIGHTS}/c01")
@pytest.mark.parametrize("order, mode, projected, data_type", LAYOUTS_OF_TENSOR_CORES)
def test_layouts_of_tensor_cores(
    chain: Callable[..., Trial], order: Any, mode: Any, projected: Any, data_type: Any
) -> None:
    """Every layout and query map works for sequences longer than a tile."""
    training = layout_of_tensor_cores(order, mode, projected, data_type, trains=True)
    assert isinstance(training, MultiHeadAttnForward)
    data, weights = backward_data(training), backward_weights(training)
    before = prepare(training, "normal", 1) | prepare(data, "normal", 1)
    for operand in ("queries", "keys", "values", "dout"):
        fill_padding(before, data, operand)
    chain(training, data, *([weights] if projected else []), before=before)


@shows(f"{WEIGHTS}/c01", f"{DATA}/c10")
def test_padding_beside_full_tiles(chain: Callable[..., Trial]) -> None:
    """Padded queries enter no sum, even in a tile whose other queries attend to a full tile of keys."""
    attn = attention((8, 8, 8, 16), (16, 16, 16), 1, 0, 0.2, HALF, longest=(70, 130), batches=1, beams=1)
    training, data, weights = steps(attn=attn, steps=(70, 130), batches=1, beams=1, lengths=(66,))
    before = prepare(training, "normal", 1) | prepare(data, "normal", 1)
    for operand in ("queries", "dout"):
        fill_padding(before, data, operand)
    chain(training, data, weights, before=before)


@shows(f"{DATA}/c01")
@pytest.mark.parametrize("steps", [*LONG_OF_TENSOR_CORES[:2], (60, 40)], ids=str)
def test_long_sequences_of_tensor_cores(chain: Callable[..., Trial], steps: Any) -> None:
    """Items of three warpgroups, of two and of one add up the same gradients."""
    training = long_of_tensor_cores(steps, trains=True)
    assert isinstance(training, MultiHeadAttnForward)
    chain(training, backward_data(training))


def calls_of(caller: Any, operations: Any) -> list[Any]:
    """Make the three calls of a training step on shared memory, and return them to be repeated with other arguments."""
    made: list[Any] = []
    for operation in operations:
        made.append(Called(caller, operation, made[-1].memory if made else {}))
        made[-1]()
    return made


@shows(f"{DATA}/c19 c23", f"{WEIGHTS}/c10 c14", f"{BUFFERS}/c01 c13 c14")
def test_spaces_that_are_too_small(subject: Subject, caller: Caller, refuses: Callable[..., bool]) -> None:
    """Spaces of the reported sizes are enough, and spaces a byte smaller are refused."""
    forward, data, weights = calls_of(caller, steps())
    sizes = caller.cudnn.cudnnGetMultiHeadAttnBuffers(caller.handle, data.arguments["attnDesc"])
    for call in (forward, data, weights):
        call(**sizes._asdict())
    for name in sizes._fields:
        if name != "workSpaceSizeInBytes" or subject.cites_clauses:  # Another library may need no work space.
            refuses(BAD_PARAM, f"{DATA}/c23", data, **{name: data.arguments[name] - 1})
            refuses(BAD_PARAM, f"{WEIGHTS}/c14", weights, **{name: weights.arguments[name] - 1})
