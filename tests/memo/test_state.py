"""Test that the memo serves networks and dropout descriptors, whose state also depends on other objects and memory."""

from __future__ import annotations

import json

import pytest

from .conftest import EMULATED

NETWORK = """
import json
import numpy as np
handle, out = made(""), []
def call(name, *arguments, outputs=()):
    out.append([name, getattr(C, name)(*arguments), said(), [o.value for o in outputs]])
def network(dropout, hidden=3):
    "A network as PyTorch makes it for each step, and its dropout descriptor."
    r = made("RNNDescriptor")
    call("cudnnSetRNNDescriptor_v8", r, 0, 2, 2, 0, 0, 0, 0, 0, 4, hidden, hidden, 2, dropout, 1)
    return r
def dropout(probability):
    d = made("DropoutDescriptor")
    call("cudnnSetDropoutDescriptor", d, handle, F(probability), None, P(0), ctypes.c_ulonglong(0))
    return d
"""
WEIGHTS = """
memory = device().allocate(1 << 16) if "emulated" in sys.argv else ctypes.create_string_buffer(1 << 16)
begin = getattr(memory, "address", None) or ctypes.addressof(memory) + -ctypes.addressof(memory) % 256
def parameters():
    "Each matrix and bias of a network, as offsets in its memory, and what their descriptors read as."
    d = dropout(0)
    r = network(d)
    size = P()
    call("cudnnGetRNNWeightSpaceSize", handle, r, ref(size), outputs=(size,))
    for layer in (0, 1):
        for weight in range(9):
            m, b, m_address, b_address = made("TensorDescriptor"), made("TensorDescriptor"), P(7), P(7)
            arguments = (handle, r, layer, size, P(begin), weight, m, ref(m_address), b, ref(b_address))
            call("cudnnGetRNNWeightParams", *arguments)
            found = [a.value - begin if a.value and a.value > 7 else a.value for a in (m_address, b_address)]
            for each in (m, b):
                kind, n, dims, strides = Int(), Int(), ints(*[9] * 8), ints(*[9] * 8)
                status = C.cudnnGetTensorNdDescriptor(each, 5, ref(kind), ref(n), dims, strides)
                found.append([status, n.value, *dims, *strides])
                assert C.cudnnDestroyTensorDescriptor(each) == 0
            out[-1].append(found)
    call("cudnnGetRNNWeightParams", handle, r, 0, P(8), P(begin), 8, None, None, made("TensorDescriptor"), ref(P()))
    call("cudnnGetRNNWeightParams", handle, r, 0, size, P(begin + 2), 0, None, None, None, None)
    out[-1][2] = out[-1][2].replace(hex(begin + 2), "there")
    assert C.cudnnDestroyDropoutDescriptor(d) == C.cudnnDestroyRNNDescriptor(r) == 0
for _ in range(4):
    before = counts()["asked"]
    out.clear()
    parameters()
print(json.dumps([out, counts()["asked"] - before, counts()["differ"]]))
"""
FOLLOWS = """
a, b, size, reserve = dropout(0), dropout(0.5), P(), P()
x = made("RNNDataDescriptor")
assert C.cudnnSetRNNDataDescriptor(x, 0, 0, 5, 3, 4, ints(5, 4, 1), None) == 0, said()
def spaces(r):
    "The space of training is larger where elements are dropped between the layers."
    call("cudnnGetRNNTempSpaceSizes", handle, r, 1, x, ref(size), ref(reserve), outputs=(size, reserve))
for _ in range(3):
    first, second = network(a), network(b)
    for r in (first, second):
        spaces(r)
    call("cudnnSetDropoutDescriptor", a, handle, F(0.25), None, P(0), ctypes.c_ulonglong(0))
    spaces(first)
    named = P(1)
    call("cudnnGetRNNDescriptor_v8", first, *[None] * 12, ref(named), None)
    assert named.value == a.value
    call("cudnnSetDropoutDescriptor", a, handle, F(0), None, P(0), ctypes.c_ulonglong(0))
    spaces(first)
    call("cudnnDestroyDropoutDescriptor", b)
    b = dropout(0)
    spaces(second)  # its last probability is the network's for good
    call("cudnnGetRNNDescriptor_v8", second, *[None] * 12, ref(named), None, outputs=(named,))
    b = dropout(0.5)
print(json.dumps([out, counts()["hits"], counts()["differ"]]))
"""
DROPPED = """
states_bytes = P()
assert C.cudnnDropoutGetStatesSize(handle, ref(states_bytes)) == 0
x, values = tensor(2, 3, 4, 5), np.linspace(1, 2, 120).astype(np.float32)
states = [placed(np.zeros(states_bytes.value, np.uint8)) for _ in range(2)]
for each, seed in zip(states, (1, 2)):
    first = made("DropoutDescriptor")
    assert C.cudnnSetDropoutDescriptor(first, handle, F(0.5), P(each.address), states_bytes, ctypes.c_ulonglong(seed)) == 0, said()
reserve, size = P(), P()
assert C.cudnnDropoutGetReserveSpaceSize(x, ref(reserve)) == 0
for turn in range(3):
    for which in (0, 1):
        d = made("DropoutDescriptor")
        call("cudnnRestoreDropoutDescriptor", d, handle, F(0.5), P(states[which].address), states_bytes, ctypes.c_ulonglong(0))
        source, target, kept = placed(values), placed(values), placed(np.zeros(max(reserve.value, 1), np.uint8))
        call("cudnnDropoutForward", handle, d, x, P(source.address), x, P(target.address), P(kept.address), reserve)
        out.append(contents(target, np.float32).tolist())
        call("cudnnDropoutForward", handle, d, x, P(source.address), x, P(states[which].address), P(kept.address), reserve)
        call("cudnnRestoreDropoutDescriptor", d, handle, F(0.5), P(source.address), states_bytes, ctypes.c_ulonglong(0))
print(json.dumps([len({json.dumps(row) for row in out if len(row) == 120}), [row[1] for row in out if len(row) == 4], counts()["hits"], counts()["differ"]]))
"""
RECURRENT = """
d, lengths = dropout(0), ints(5, 5, 5)
x, y, h = made("RNNDataDescriptor"), made("RNNDataDescriptor"), tensor(2, 3, 3, 1)
for each, vector in ((x, 4), (y, 3)):
    assert C.cudnnSetRNNDataDescriptor(each, 0, 1, 5, 3, vector, lengths, None) == 0, said()
assert C.cudnnSetTensorNdDescriptor(h, 0, 3, ints(2, 3, 3), ints(9, 3, 1)) == 0
random = np.random.default_rng(3)
r = network(d)
weights_size, work_size, reserve_size = P(), P(), P()
assert C.cudnnGetRNNWeightSpaceSize(handle, r, ref(weights_size)) == 0
assert C.cudnnGetRNNTempSpaceSizes(handle, r, 1, x, ref(work_size), ref(reserve_size)) == 0
data, weights = random.standard_normal(60).astype(np.float32), random.standard_normal(weights_size.value // 4).astype(np.float32)
def forward():
    r, memory = network(d), [placed(data), placed(np.zeros(45, np.float32)), placed(weights), placed(np.array([5, 5, 5], np.int32))]
    spaces = [placed(np.zeros(size.value, np.uint8)) for size in (work_size, reserve_size)]
    status = C.cudnnRNNForward(handle, r, 1, P(memory[3].address), x, P(memory[0].address), y, P(memory[1].address), h, None, None, h, None, None,
        weights_size, P(memory[2].address), work_size, P(spaces[0].address), reserve_size, P(spaces[1].address))
    assert status == 0, said()
    assert C.cudnnDestroyRNNDescriptor(r) == 0
    return contents(memory[1], np.float32)
first = forward()
before = counts()["asked"]
assert all(np.array_equal(forward(), first) for _ in range(2)) and np.abs(first).sum() > 0
print(counts()["asked"] - before, counts()["differ"])
"""


@pytest.mark.parametrize("place", ["host", "emulated"])
def test_parameters_of_weights(ran, place):
    """Weight addresses and descriptors equal Python's, and the same calls of another network do not ask Python."""
    variables = EMULATED if place == "emulated" else {}
    program = NETWORK + WEIGHTS
    by_memo, asked, _ = json.loads(ran(program, place, **variables))
    by_python, always, _ = json.loads(ran(program, place, DUALDNN_MEMO="0", **variables))
    assert by_memo == by_python
    assert (
        always > 100 and asked <= 3
    )  # Python is asked about refusals that memory may decide, and the end of a dropout descriptor in use.
    compared, _, differ = json.loads(ran(program, place, DUALDNN_MEMO="check", **variables))
    assert compared == by_python and differ == 0


def test_a_network_follows_its_dropout_descriptor(ran):
    """A network follows its dropout descriptor, and keeps the last probability when the descriptor is destroyed."""
    by_memo, hits, _ = json.loads(ran(NETWORK + FOLLOWS))
    by_python, none, _ = json.loads(ran(NETWORK + FOLLOWS, DUALDNN_MEMO="0"))
    assert by_memo == by_python and hits > 20 and none == 0
    sizes = [row[3] for row in by_memo if row[0] == "cudnnGetRNNTempSpaceSizes"][:5]
    assert sizes[0] == sizes[3] != sizes[1] == sizes[2] == sizes[4]
    compared, _, differ = json.loads(ran(NETWORK + FOLLOWS, DUALDNN_MEMO="check"))
    assert compared == by_python and differ == 0


def test_states_of_dropout(ran):
    """Each descriptor draws with its own states, and refuses memory that is too small for them."""
    drawn, statuses, hits, _ = json.loads(ran(NETWORK + DROPPED, **EMULATED))
    assert drawn == 6 and hits > 4
    assert [drawn, statuses] == json.loads(ran(NETWORK + DROPPED, DUALDNN_MEMO="0", **EMULATED))[:2]
    compared, said, _, differ = json.loads(ran(NETWORK + DROPPED, DUALDNN_MEMO="check", **EMULATED))
    assert [compared, said, differ] == [drawn, statuses, 0]


def test_a_network_computes(ran):
    """C repeats the launches of a recurrent network without Python, also with new descriptors."""
    assert ran(NETWORK + RECURRENT, **EMULATED) == "0 0\n"
    assert ran(NETWORK + RECURRENT, DUALDNN_MEMO="check", **EMULATED).endswith(" 0\n")
