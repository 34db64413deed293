"""Test that the memo answers what Python would answer, and Python still sees every call that it has to see."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from .conftest import EMULATED, HELP

HOST = """
def calls():
    "Statuses, messages and bytes of host-side calls, valid and invalid."
    out = []
    d, f, c, r = made("TensorDescriptor"), made("FilterDescriptor"), made("ConvolutionDescriptor"), made("RNNDataDescriptor")
    def call(name, *arguments, outputs=()):
        out.append([name, getattr(C, name)(*arguments), said(), [bytes(o).hex() for o in outputs]])
    for dims in ((1, 2, 3, 4), (5, 6, 7, 8), (1, -2, 3, 4)):
        for data_type in (0, 2, 77):
            call("cudnnSetTensor4dDescriptor", d, 0, data_type, *dims)
            n, kind, got, strides = Int(), Int(), ints(*[9] * 8), ints(*[9] * 8)
            call("cudnnGetTensorNdDescriptor", d, 5, ref(kind), ref(n), got, strides, outputs=(n, kind, got, strides))
            size = P()
            call("cudnnGetTensorSizeInBytes", d, ref(size), outputs=(size,))
            call("cudnnGetTensorSizeInBytes", d, None)
    call("cudnnSetFilter4dDescriptor", f, 0, 0, 8, 6, 3, 3)
    call("cudnnSetConvolution2dDescriptor", c, 1, 1, 1, 1, 1, 1, 1, 0)
    call("cudnnSetConvolutionGroupCount", c, 2)
    call("cudnnSetFilter4dDescriptor", f, 0, 0, 8, 3, 3, 3)
    got = ints(0, 0, 0, 0)
    call("cudnnGetConvolutionNdForwardOutputDim", c, d, f, 4, got, outputs=(got,))
    call("cudnnSetTensor4dDescriptor", d, 0, 0, 5, 6, 7, 8)
    call("cudnnGetConvolutionNdForwardOutputDim", c, d, f, 4, got, outputs=(got,))
    for fill in (F(1.5), F(-0.0)):
        call("cudnnSetRNNDataDescriptor", r, 0, 0, 5, 3, 16, ints(5, 4, 1), ref(fill))
        found, lengths = F(7), ints(0, 0, 0)
        call("cudnnGetRNNDataDescriptor", r, None, None, None, None, None, 3, lengths, ref(found), outputs=(found, lengths))
    a = made("ActivationDescriptor")
    for coefficient in (0.0, -0.0, float("nan"), 1.5, -0.0):
        call("cudnnSetActivationDescriptor", a, 1, 0, D(coefficient))
        found = D(7)
        call("cudnnGetActivationDescriptor", a, ref(Int()), ref(Int()), ref(found), outputs=(found,))
        assert bytes(found) == bytes(D(coefficient)), coefficient  # -0.0 equals 0.0, and is another number
    for stray in (0, 7, 0x12345670, 2**63 + 16):
        call("cudnnSetTensor4dDescriptor", P(stray), 0, 0, 1, 1, 1, 1)
    for kind, it in (("Tensor", d), ("Filter", f), ("Convolution", c), ("RNNData", r), ("Tensor", d), ("Filter", P(0))):
        call(f"cudnnDestroy{kind}Descriptor", it)
    call("cudnnSetTensor4dDescriptor", d, 0, 0, 1, 1, 1, 1)
    return out
import json
answers = [calls() for _ in range(3)]
print(json.dumps([answers, counts()]))
"""


def test_host_side_calls(ran):
    """The same calls are made three times: the answers equal Python's, and the later ones do not ask Python."""
    by_memo, counted = json.loads(ran(HOST))
    by_python, without = json.loads(ran(HOST, DUALDNN_MEMO="0"))
    assert by_memo == by_python and by_memo[0] == by_memo[1] == by_memo[2]
    assert without["hits"] == without["entries"] == 0
    calls = len(by_memo[0])
    assert counted["hits"] > 2 * 0.8 * calls and counted["entries"] > 20
    compared, found = json.loads(ran(HOST, DUALDNN_MEMO="check"))
    assert compared == by_memo and found["compared"] > 2 * 0.8 * calls and found["differ"] == found["hits"] == 0


IMPURE = """
from dualdnn.api import cudnn
asked = []
size_of = cudnn.cudnnGetTensorSizeInBytes
cudnn.cudnnGetTensorSizeInBytes = lambda descriptor: asked.append(1) or size_of(descriptor) + len(asked)
d, size = tensor(1, 2, 3, 4), P()
print([C.cudnnGetTensorSizeInBytes(d, ref(size)) for _ in range(3)], said(), counts()["differ"])
"""


def test_a_function_that_is_not_pure_is_noticed(ran):
    """If an answer depends on more than the arguments, DUALDNN_MEMO=check makes the call fail and say why."""
    text = "cudnnGetTensorSizeInBytes: CUDNN_STATUS_INTERNAL_ERROR: the memo differs from Python: bytes of an output"
    assert ran(IMPURE, DUALDNN_MEMO="check") == f"[0, 4, 4] {text} 2\n"
    assert ran(IMPURE) == "[0, 0, 0]  0\n"


COMPUTED = """
import numpy as np
handle, x = made(""), tensor(2, 3, 4, 5)
relu = made("ActivationDescriptor")
assert C.cudnnSetActivationDescriptor(relu, 1, 0, D(0)) == 0
values = np.linspace(-1, 1, 120).astype(np.float32)
def forward(source, target, alpha=1.0, beta=0.0, offset=0, kind=x, scaling=F):
    return C.cudnnActivationForward(handle, relu, ref(scaling(alpha)), kind, P(source.address), ref(scaling(beta)), kind, P(target.address + offset))
wanted, found = np.maximum(values, 0), []
for alpha, beta in ((1, 0), (0.5, 0), (1, 1), (1, 0), (0.5, 0), (1, 1)):
    source, target = placed(values), placed(values)
    assert forward(source, target, alpha, beta) == 0, said()
    assert np.allclose(contents(target, np.float32), alpha * wanted + beta * values, atol=1e-6)
before = counts()
assert (before["hits"] > 2) == (sys.argv[2] == "1"), before
for _ in range(2):  # in place, which Python has allowed; any other overlap is refused each time
    source = placed(values)
    assert forward(source, source) == 0, said()
    assert np.array_equal(contents(source, np.float32), wanted)
    assert forward(source, source, offset=4) == 3 and ("overlap" in (text := said()) or "has 476 bytes" in text), text
doubles = tensor(2, 3, 4, 5, data_type=1)
for alpha in (0.25, 1.0, 0.25):  # scaling factors of doubles are doubles
    source, target = placed(values.astype(np.float64)), placed(values.astype(np.float64))
    assert forward(source, target, alpha, kind=doubles, scaling=D) == 0, said()
    assert np.allclose(contents(target, np.float64), alpha * wanted.astype(np.float64))
source, target, small = placed(values), placed(values), placed(values[:-1])
for _ in range(2):
    assert forward(source, small) == 3 and "has 476 bytes, 480 are needed" in (text := said()), text
    assert forward(source, placed(np.zeros(124, np.float32)), offset=2) == 3 and "no multiple of the 4 bytes" in (text := said()), text
    assert C.cudnnActivationForward(handle, relu, None, x, P(source.address), None, x, P(target.address)) == 3
    assert C.cudnnActivationForward(handle, relu, ref(F(1)), x, P(0), ref(F(0)), x, P(target.address)) == 3
address = target.address
target.free()
for _ in range(2):
    assert C.cudnnActivationForward(handle, relu, ref(F(1)), x, P(source.address), ref(F(0)), x, P(address)) == 3
    assert "in no memory of the emulated device" in (text := said()), text
target = placed(values)
assert forward(source, target) == 0
assert C.cudnnDestroyActivationDescriptor(relu) == 0
assert forward(source, target) == 3 and "was destroyed" in said()
assert C.cudnnDestroy(handle) == 0
assert forward(source, target) in (1, 3) and C.cudnnSetStream(handle, P(0)) != 0
print(counts()["differ"])
"""


@pytest.mark.parametrize("mode", ["0", "1", "check"])
def test_computing_calls(ran, mode):
    """A hit computes what Python computes, and refuses wrong memory, overlap and destroyed objects as Python does."""
    assert ran(COMPUTED, mode, DUALDNN_MEMO=mode, **EMULATED) == "0\n"


SCALARS = """
import numpy as np
handle, x, relu = made(""), tensor(2, 3, 4, 5), made("ActivationDescriptor")
assert C.cudnnSetActivationDescriptor(relu, 1, 0, D(0)) == 0
values = np.linspace(-1, 1, 120).astype(np.float32)
def activated(alpha, beta):
    source, target = placed(values), placed(values)
    status = C.cudnnActivationForward(handle, relu, ref(F(alpha)), x, P(source.address), ref(F(beta)), x, P(target.address))
    assert status == 0, said()
    return contents(target, np.float32)
per_channel, ones = tensor(1, 3, 1, 1), np.ones(3, np.float32)
def averaged(factor):
    source, target, scale, bias, mean, variance = placed(values), placed(values), *(placed(ones * n) for n in (1, 0, 2, 1))
    status = C.cudnnBatchNormalizationForwardTraining(
        handle, 1, ref(F(1)), ref(F(0)), x, P(source.address), x, P(target.address), per_channel, P(scale.address), P(bias.address), D(factor),
        P(mean.address), P(variance.address), D(1e-5), None, None)
    assert status == 0, said()
    return contents(mean, np.float32)
means = values.reshape(2, 3, 20).transpose(1, 0, 2).reshape(3, 40).astype(np.float64).mean(1)
found = []
for alpha, beta in ((0.5, 0.25), (0.125, -3), (1, 0.25), (0.5, 0), (2.5, 1e30), (float("nan"), 0.5), (float("inf"), 0.5), (-0.0, -1), (-2, 7)):
    with np.errstate(invalid="ignore"):
        wanted = np.float32(alpha) * np.maximum(values, 0) + np.float32(beta) * values
    assert np.allclose(activated(alpha, beta), wanted, rtol=1e-6, equal_nan=True), (alpha, beta)
    found.append(counts()["hits"])
for n in range(1, 9):
    assert np.allclose(averaged(1 / n), 2 * (1 - 1 / n) + means / n, rtol=1e-5, atol=1e-6), n
    found.append(counts()["hits"])
print([b - a for a, b in zip(found, found[1:])], counts()["differ"])
"""


def test_scalars_that_change(ran):
    """C reads scalars at each call. Python plans once for usual numbers, and once each for 0, 1, NaN and infinity."""
    assert ran(SCALARS, **EMULATED) == "[1, 0, 0, 1, 0, 0, 0, 1, 0, 0, 1, 1, 1, 1, 1, 1] 0\n"
    assert ran(SCALARS, DUALDNN_MEMO="check", **EMULATED).endswith(" 0\n")


WATCHED = """
from dualdnn.accelerated.records import noting_launches
from dualdnn.accelerated.solver import forcing, solver_names
from dualdnn.api import api_log
d, size = tensor(1, 2, 3, 4), P()
def is_answered():
    C.cudnnGetTensorSizeInBytes(d, ref(size))
    before = counts()["hits"]
    C.cudnnGetTensorSizeInBytes(d, ref(size))
    return counts()["hits"] > before
found = [is_answered()]
with noting_launches():
    found.append(is_answered())
with forcing(solver_names()[0]):
    found.append(is_answered())
found.append(is_answered())
lines = []
api_log.configure(api_log.CHANNELS, None, lambda severity, udata, metadata, message: lines.append(message))
found.append(is_answered())
api_log.configure(0, None, None)
print([*found, is_answered()], len(lines))
"""


def test_python_serves_every_call_that_is_watched(ran):
    """While a log, notes of launches or a forced solver need every call, Python serves each one."""
    assert ran(WATCHED) == "[True, False, False, True, False, True] 2\n"
    assert ran(WATCHED, DUALDNN_SHOW_ERRORS="1").startswith("[False, False, False, False, False, False]")


def test_an_unknown_mode_is_named(library, ran):
    program = "print(C.cudnnCreateTensorDescriptor(ref(P())))"
    command = [sys.executable, "-c", HELP + program, str(library)]
    variables = {**os.environ, "DUALDNN_MEMO": "yes"}
    assert subprocess.run(command, env=variables, capture_output=True, text=True).stdout == "1\n"
    assert ran(program, DUALDNN_MEMO_ENTRIES="-1") == "1\n"
