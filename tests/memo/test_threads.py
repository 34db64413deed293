"""A memo of few entries, which is emptied all the time, under several threads, children of fork and many shapes."""

from __future__ import annotations

import json

from .conftest import EMULATED

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
FUZZ = """
import json, random
draw = random.Random(int(sys.argv[2]))
kinds = ("Tensor", "Filter", "Convolution", "Activation", "Pooling")
objects, out = [(kind, P(0)) for kind in kinds], []
def some(kind):
    "Mostly an object of the kind, which may be destroyed; sometimes another or none that there ever was."
    fitting = [it for name, it in objects if name == kind] or [P(0)]
    return draw.choice(fitting) if draw.random() < 0.9 else draw.choice([it for _, it in objects] + [P(64 * draw.randrange(1 << 30))])
def size():
    return draw.choice((1, 2, 3, 4, 0, -1, 5))
def call(name, *arguments, outputs=()):
    status = getattr(C, name)(*arguments)
    out.append((name, status, said() if status else "", b"".join(map(bytes, outputs)).hex() if not status else ""))
def step():
    what, n, got, more = draw.randrange(13), Int(), ints(*[0] * 8), ints(*[0] * 8)
    number = D()
    if what == 0:
        kind = draw.choice(kinds)
        objects.append((kind, made(f"{kind}Descriptor")))
        if len(objects) > 30:
            objects.pop(draw.randrange(len(objects)))
    elif what == 1:
        kind = draw.choice(kinds)
        call(f"cudnnDestroy{kind}Descriptor", some(kind))
    elif what in (2, 3): call("cudnnSetTensor4dDescriptor", some("Tensor"), draw.randrange(3), draw.randrange(4), *[size() for _ in range(4)])
    elif what == 4: call("cudnnSetFilter4dDescriptor", some("Filter"), draw.randrange(3), draw.randrange(2), *[size() for _ in range(4)])
    elif what == 5: call("cudnnSetConvolution2dDescriptor", some("Convolution"), size(), size(), *[size() for _ in range(4)], draw.randrange(3), draw.randrange(2))
    elif what == 6: call("cudnnSetConvolutionGroupCount", some("Convolution"), size())
    elif what == 7: call("cudnnGetConvolutionNdForwardOutputDim", some("Convolution"), some("Tensor"), some("Filter"), 4, got, outputs=(got,))
    elif what == 8: call("cudnnGetTensorNdDescriptor", some("Tensor"), draw.randrange(9), ref(n), ref(n), got, more if draw.random() < 0.9 else None, outputs=(got, more))
    elif what == 12: call("cudnnGetActivationDescriptor", some("Activation"), ref(n), ref(Int.from_buffer(got)), ref(number), outputs=(n, got, number))
    elif what == 9: call("cudnnSetActivationDescriptor", some("Activation"), draw.randrange(8), draw.randrange(3), D(draw.choice((0, -0.0, 1.5, float("nan")))))
    elif what == 10: call("cudnnSetPooling2dDescriptor", some("Pooling"), draw.randrange(5), draw.randrange(2), *[size() for _ in range(6)])
    else: call("cudnnGetPooling2dForwardOutputDim", some("Pooling"), some("Tensor"), *[ref(Int.from_buffer(got, 4 * i)) for i in range(4)], outputs=(got,))
for _ in range(int(sys.argv[3])): step()
import hashlib
print(json.dumps([len(out), hashlib.sha256(repr(out).encode()).hexdigest(), counts()]))
"""


def test_threads_and_children(ran):
    """Twenty entries: the answers are right, in four threads at a time and in a child that they leave."""
    shown = ran(WORK + FORKED, DUALDNN_MEMO_ENTRIES="20", **EMULATED)
    assert shown == "[]\nTrue True True\n"


def test_many_shapes_take_bounded_memory(ran):
    """In C and in Python, whose values are forgotten with the entries that name them; what an object is stays known."""
    assert ran(SHAPES, DUALDNN_MEMO_ENTRIES="200") == "True True True\n"


def test_values_are_forgotten_without_the_memo(ran):
    """Where Python serves every call, many shapes take bounded memory, too."""
    program = SHAPES.replace("print(", "print(most[1] < 2500, ")
    limit = 'C.cudnnGetVersion(); sys.modules["_dualdnn_c"].lib.memo_limits(1000, 1 << 20)\n'
    assert ran(limit + program, DUALDNN_MEMO="0") == "True True False False\n"


def test_drawn_calls(ran):
    """Valid and invalid ones on objects that live, are destroyed, or never were: with and without the memo, and with a small one."""
    by_python = json.loads(ran(FUZZ, "5", "4000", DUALDNN_MEMO="0"))
    by_memo = json.loads(ran(FUZZ, "5", "4000"))
    small = json.loads(ran(FUZZ, "5", "4000", DUALDNN_MEMO_ENTRIES="20"))
    assert by_memo[:2] == by_python[:2] == small[:2] and by_memo[0] > 3000
    assert by_memo[2]["hits"] > 500 and small[2]["emptied"] > 50
