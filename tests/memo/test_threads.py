"""Test that a memo of few entries, which is emptied often, stays right under threads, forks and many shapes."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from .conftest import EMULATED

DRAWN = ("-m", "dualdnn.conformance.fuzz.drawn_calls")
WORK = """
import os, threading
import numpy as np
one, zero = F(1), F(0)
device()
def work(seed, wrong, rounds):
    random = np.random.default_rng(seed)
    handle = made("")
    for _ in range(rounds):
        n = int(random.integers(1, 40)) + seed % 2
        values = random.standard_normal(n * 8).astype(np.float32)
        source, target = placed(values), placed(values)
        x, relu = tensor(n, 2, 2, 2), made("ActivationDescriptor")
        assert C.cudnnSetActivationDescriptor(relu, 1, 0, D(0)) == 0
        def forward(to, offset=0):
            return C.cudnnActivationForward(handle, relu, ref(one), x, P(source.address), ref(zero), x, P(to.address + offset))
        if forward(target) or not np.array_equal(contents(target, np.float32), np.maximum(values, 0)):
            wrong.append(("values", said()))
        if forward(source) or not np.array_equal(contents(source, np.float32), np.maximum(values, 0)):
            wrong.append(("in place", said()))
        if not forward(source, 4):
            wrong.append("overlap")
        if C.cudnnDestroyTensorDescriptor(x) or C.cudnnDestroyActivationDescriptor(relu):
            wrong.append(("destroyed", said()))
        if forward(target) != 3:
            wrong.append("a destroyed descriptor serves")
    if C.cudnnDestroy(handle) or not C.cudnnSetStream(handle, P(0)):
        wrong.append("handle")
wrong = []
team = [threading.Thread(target=work, args=(seed, wrong, 40)) for seed in range(4)]
for thread in team: thread.start()
for thread in team: thread.join()
assert not wrong, wrong[:3]
"""
FORKED = """
child = os.fork()
if not child:
    lost = []
    try:
        work(11, lost, 15), work(0, lost, 15)
    finally:
        print(lost[:3], flush=True)
        os._exit(0)
assert os.waitpid(child, 0)[1] == 0
found = counts()
print(found["emptied"] > 20, found["entries"] <= 20, found["hits"] > 0)
"""
SHAPES = """
import gc
from dualdnn.api.abi.objects import Objects
kept, other = tensor(1, 2, 3, 4), made("TensorDescriptor")
(objects,) = [found for found in gc.get_objects() if isinstance(found, Objects)]
n, kind, dims, strides = Int(), Int(), ints(0, 0, 0, 0), ints(0, 0, 0, 0)
def said_dims(descriptor):
    assert C.cudnnGetTensorNdDescriptor(descriptor, 4, ref(kind), ref(n), dims, strides) == 0
    return list(dims)
most = [0, 0]
for i in range(3000):
    shape = [1, 1 + i // 100, 1 + i % 100, 7]
    assert C.cudnnSetTensor4dDescriptor(other, 0, 0, *shape) == 0 and said_dims(other) == shape == said_dims(other)
    found = counts()
    most = [max(most[0], found["entries"]), max(most[1], len(objects.numbers))]
assert said_dims(kept) == [1, 2, 3, 4]
print(most[0] <= 200, most[1] <= 500, counts()["emptied"] > 20)
"""


def test_threads_and_children(ran):
    """A memo of twenty entries gives right answers in four threads at a time and in a forked child."""
    shown = ran(WORK + FORKED, DUALDNN_MEMO_ENTRIES="20", **EMULATED)
    assert shown == "[]\nTrue True True\n"


def test_many_shapes_take_bounded_memory(ran):
    """Memory is bounded in C and in Python, which forgets values with their entries. Descriptors keep their state."""
    assert ran(SHAPES, DUALDNN_MEMO_ENTRIES="200") == "True True True\n"


def test_values_are_forgotten_without_the_memo(ran):
    """Many shapes take bounded memory also where Python serves every call."""
    program = SHAPES.replace("print(", "print(most[1] < 2500, ")
    limit = 'C.cudnnGetVersion(); sys.modules["_dualdnn_c"].lib.memo_limits(1000, 1 << 20)\n'
    assert ran(limit + program, DUALDNN_MEMO="0") == "True True False False\n"


@pytest.mark.long
def test_drawn_calls(library):
    """Valid and invalid calls on living, destroyed and foreign objects have the same answers with the memo, without it, and
    with a small one. No answer is an internal error."""

    def run(**variables):
        command = [sys.executable, *DRAWN, str(library), "2500", "1", "0", "2500"]
        done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr[-4000:]
        *calls, last = done.stdout.splitlines()
        return calls, json.loads(last)

    (by_python, without), (by_memo, kept), (small, few) = (
        run(DUALDNN_MEMO="0"),
        run(),
        run(DUALDNN_MEMO_ENTRIES="20"),
    )
    assert by_memo == by_python == small and without["hits"] == 0
    assert kept["hits"] > 500 and few["emptied"] > 50
    assert not [call for call in by_python if call.split()[2:3] == ["4"]]
