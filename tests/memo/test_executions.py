"""Test that C repeats an execution plan of a graph on any variant pack with the same unique ids."""

from __future__ import annotations

import json
from typing import Any

from .conftest import EMULATED

GRAPH = """
import json
import numpy as np
from dualdnn.api import cudnn as names
from dualdnn.api.enumerations import cudnnBackendAttributeName_t as Name, cudnnBackendDescriptorType_t as Kind
CODES = {"INT64": ctypes.c_int64, "FLOAT": F, "VOID_PTR": P, "HANDLE": P, "BACKEND_DESCRIPTOR": P}
def descriptor(kind, **attributes):
    "Return a finalised descriptor; each attribute is (type, values)."
    found = P()
    assert C.cudnnBackendCreateDescriptor(Kind[f"CUDNN_BACKEND_{kind}_DESCRIPTOR"], ref(found)) == 0, said()
    return settled(found, **attributes)
def settled(found, **attributes):
    for name, (type_, values) in attributes.items():
        array = (CODES.get(type_, Int) * len(values))(*values)
        given = names.cudnnBackendAttributeType_t[f"CUDNN_TYPE_{type_}"]
        assert C.cudnnBackendSetAttribute(found, Name[f"CUDNN_ATTR_{name}"], given, ctypes.c_int64(len(values)), array) == 0, said()
    assert C.cudnnBackendFinalize(found) == 0, said()
    return found
def graph_tensor(uid):
    return descriptor("TENSOR", TENSOR_UNIQUE_ID=("INT64", [uid]), TENSOR_DATA_TYPE=("DATA_TYPE", [0]), TENSOR_BYTE_ALIGNMENT=("INT64", [4]),
        TENSOR_DIMENSIONS=("INT64", [1, 4, 64]), TENSOR_STRIDES=("INT64", [256, 64, 1])).value
def plan_of(handle, factor):
    "Return a plan of y = x + factor * b."
    add = descriptor("POINTWISE", POINTWISE_MODE=("POINTWISE_MODE", [0]), POINTWISE_MATH_PREC=("DATA_TYPE", [0]))
    node = descriptor("OPERATION_POINTWISE", OPERATION_POINTWISE_PW_DESCRIPTOR=("BACKEND_DESCRIPTOR", [add.value]),
        **{f"OPERATION_POINTWISE_{role}DESC": ("BACKEND_DESCRIPTOR", [graph_tensor(uid)]) for role, uid in (("X", 5), ("B", -6), ("Y", 7))},
        OPERATION_POINTWISE_ALPHA2=("FLOAT", [factor]))
    graph = descriptor("OPERATIONGRAPH", OPERATIONGRAPH_HANDLE=("HANDLE", [handle.value]), OPERATIONGRAPH_OPS=("BACKEND_DESCRIPTOR", [node.value]))
    engine = descriptor("ENGINE", ENGINE_OPERATION_GRAPH=("BACKEND_DESCRIPTOR", [graph.value]), ENGINE_GLOBAL_INDEX=("INT64", [0]))
    config = descriptor("ENGINECFG", ENGINECFG_ENGINE=("BACKEND_DESCRIPTOR", [engine.value]))
    return descriptor("EXECUTION_PLAN", EXECUTION_PLAN_HANDLE=("HANDLE", [handle.value]), EXECUTION_PLAN_ENGINE_CONFIG=("BACKEND_DESCRIPTOR", [config.value]))
def attributes(pointers, uids=(5, -6, 7)):
    return dict(VARIANT_PACK_UNIQUE_IDS=("INT64", uids), VARIANT_PACK_DATA_POINTERS=("VOID_PTR", pointers), VARIANT_PACK_WORKSPACE=("VOID_PTR", [0]))
def pack_of(*pointers, **given):
    return descriptor("VARIANT_PACK", **attributes(pointers, **given))
handle, other = made(""), made("")
x, b = (np.random.default_rng(seed).standard_normal(256).astype(np.float32) for seed in (1, 2))
def operands():
    return [placed(x), placed(b), placed(np.zeros(256, np.float32))]
def run(plan, pack, of=handle):
    asked = counts()["asked"]
    status = C.cudnnBackendExecute(of, plan, pack)
    return status, counts()["asked"] - asked
"""
REPEATED = """
half, twice = plan_of(handle, 0.5), plan_of(handle, 2)
shown, memory = [], [operands() for _ in range(3)]
for plan, factor in ((half, 0.5), (twice, 2), (half, 0.5)):
    for each in memory:
        pack = pack_of(*(piece.address for piece in each))
        shown.append(run(plan, pack))
        assert np.array_equal(contents(each[2], np.float32), x + np.float32(factor) * b)
        assert C.cudnnBackendDestroyDescriptor(pack) == 0
print(json.dumps([shown, counts()["differ"]]))
"""
REFUSED = """
plan, of_other, each = plan_of(handle, 0.5), plan_of(other, 0.5), operands()
pointers = [piece.address for piece in each]
pack = pack_of(*pointers)
shown = {"first": run(plan, pack), "again": run(plan, pack)}
shown["another handle"] = run(plan, pack, other), run(of_other, pack), run(of_other, pack, other), run(of_other, pack, other)
shown["swapped"] = run(pack, plan)
shown["other ids"] = run(plan, pack_of(*pointers, uids=(5, -6, 8)))
shown["ids in another order"] = run(plan, pack_of(*pointers[::-1], uids=(7, -6, 5))), run(plan, pack_of(*pointers[::-1], uids=(7, -6, 5)))
assert np.array_equal(contents(each[0], np.float32), x)
shown["misaligned"] = run(plan, pack_of(pointers[0] + 2, *pointers[1:]))
shown["short"] = run(plan, pack_of(pointers[0] + 512, *pointers[1:]))
shown["overlapping"] = run(plan, pack_of(pointers[0], pointers[1], pointers[0] + 4))
shown["in place"] = run(plan, pack_of(pointers[0], pointers[1], pointers[0]))
shown["still"] = run(plan, pack)
assert C.cudnnBackendInitialize(pack, Kind.CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, P(8)) == 0, said()
shown["begun anew"] = run(plan, pack)
settled(pack, **attributes(pointers))
shown["finalised anew"] = run(plan, pack)
C.cudnnBackendDestroyDescriptor(pack)
shown["destroyed pack"] = run(plan, pack)
pack = pack_of(*pointers)
C.cudnnDestroy(handle)
shown["destroyed handle"] = run(plan, pack)
C.cudnnBackendDestroyDescriptor(plan)
shown["destroyed plan"] = run(plan, pack, other)
print(json.dumps(shown))
"""

PACKS = """
plan, memory, asked = plan_of(handle, 0.5), [operands() for _ in range(3)], []
for each in memory:
    before = counts()["asked"]
    pack = pack_of(*(piece.address for piece in each))
    status = C.cudnnBackendExecute(handle, plan, pack)
    assert C.cudnnBackendDestroyDescriptor(pack) == 0 == status, said()
    asked.append(counts()["asked"] - before)
    assert np.array_equal(contents(each[2], np.float32), x + np.float32(0.5) * b)
print(json.dumps([asked, counts()["differ"]]))
"""
DESCRIPTORS = """
def number_of(kind):
    return getattr(names.cudnnBackendAttributeType_t, f"CUDNN_TYPE_{kind}")
def call(function, *arguments, outputs=()):
    shown.append([function, getattr(C, f"cudnnBackend{function}")(*arguments), said(), [bytes(o).hex() for o in outputs]])
def new(kind):
    found = P()
    call("CreateDescriptor", Kind[f"CUDNN_BACKEND_{kind}_DESCRIPTOR"], ref(found))
    return found
def set_(d, name, kind, *values, count=None):
    array = (CODES.get(kind, Int) * max(len(values), 1))(*values)
    call("SetAttribute", d, Name[f"CUDNN_ATTR_{name}"], number_of(kind), ctypes.c_int64(len(values) if count is None else count), array if values else None)
def get(d, name, kind, requested):
    array, found = (CODES.get(kind, Int) * 8)(*[9] * 8), ctypes.c_int64(77)
    call("GetAttribute", d, Name[f"CUDNN_ATTR_{name}"], number_of(kind), ctypes.c_int64(requested), ref(found), array, outputs=(found, array))
def tensor_set(t, uid=5):
    for name, kind, values in (("UNIQUE_ID", "INT64", [uid]), ("DATA_TYPE", "DATA_TYPE", [0]), ("BYTE_ALIGNMENT", "INT64", [4]),
            ("DIMENSIONS", "INT64", [1, 4, 64]), ("STRIDES", "INT64", [256, 64, 1])):
        set_(t, f"TENSOR_{name}", kind, *values)
def sequence():
    p = new("VARIANT_PACK")
    set_(p, "VARIANT_PACK_DATA_POINTERS", "VOID_PTR", 64, 0, 128)
    set_(p, "VARIANT_PACK_DATA_POINTERS", "VOID_PTR", count=-1)
    set_(p, "VARIANT_PACK_DATA_POINTERS", "VOID_PTR", count=3)
    call("Finalize", p)  # Two attributes are missing.
    set_(p, "VARIANT_PACK_UNIQUE_IDS", "INT64", 3, 4, 3)
    set_(p, "VARIANT_PACK_WORKSPACE", "VOID_PTR", 4096)
    call("Finalize", p)  # The ids repeat.
    set_(p, "VARIANT_PACK_UNIQUE_IDS", "INT64", 3, 4, 5)
    call("Finalize", p)
    call("Finalize", p)
    get(p, "VARIANT_PACK_DATA_POINTERS", "VOID_PTR", 8)
    get(p, "VARIANT_PACK_UNIQUE_IDS", "INT64", 2)
    get(p, "VARIANT_PACK_WORKSPACE", "VOID_PTR", 1)
    set_(p, "VARIANT_PACK_WORKSPACE", "VOID_PTR", 0)
    call("Initialize", p, Kind.CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, P(8))
    set_(p, "VARIANT_PACK_DATA_POINTERS", "VOID_PTR", *range(16, 16 * 41, 16))
    set_(p, "VARIANT_PACK_UNIQUE_IDS", "INT64", *range(40))
    set_(p, "VARIANT_PACK_WORKSPACE", "VOID_PTR", 0)
    call("Finalize", p)
    get(p, "VARIANT_PACK_DATA_POINTERS", "VOID_PTR", 8)
    call("Initialize", p, Kind.CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, P(8))
    set_(p, "VARIANT_PACK_WORKSPACE", "VOID_PTR", 0)
    call("DestroyDescriptor", p)
    call("DestroyDescriptor", p)
    w = new("POINTWISE")
    set_(w, "POINTWISE_MODE", "POINTWISE_MODE", 0)
    set_(w, "POINTWISE_MODE", "POINTWISE_MODE", 99)
    set_(w, "POINTWISE_MATH_PREC", "DATA_TYPE", 0)
    for clip in (float("nan"), float("nan"), 0.0, -0.0):
        set_(w, "POINTWISE_RELU_LOWER_CLIP", "FLOAT", clip)
    call("Finalize", w)
    get(w, "POINTWISE_RELU_LOWER_CLIP", "FLOAT", 1)
    ts = [new("TENSOR") for _ in range(3)]
    for uid, t in enumerate(ts[:2]):
        tensor_set(t, uid)
        call("Finalize", t)
    node = new("OPERATION_POINTWISE")
    set_(node, "OPERATION_POINTWISE_PW_DESCRIPTOR", "BACKEND_DESCRIPTOR", w.value)
    for role, t in zip("XBY", ts):
        set_(node, f"OPERATION_POINTWISE_{role}DESC", "BACKEND_DESCRIPTOR", t.value)
    call("Finalize", node)  # One tensor is not finalised.
    tensor_set(ts[2], 2)
    call("Finalize", ts[2])
    call("Finalize", node)
    read = new("TENSOR")
    array, found = (P * 1)(read.value), ctypes.c_int64(77)
    call("GetAttribute", node, Name.CUDNN_ATTR_OPERATION_POINTWISE_YDESC, number_of("BACKEND_DESCRIPTOR"), ctypes.c_int64(1), ref(found), array)
    get(read, "TENSOR_UNIQUE_ID", "INT64", 1)
    get(read, "TENSOR_STRIDES", "INT64", 3)
    second = new("OPERATION_POINTWISE")
    set_(second, "OPERATION_POINTWISE_PW_DESCRIPTOR", "BACKEND_DESCRIPTOR", w.value)
    for role, t in zip("XBY", ts):
        set_(second, f"OPERATION_POINTWISE_{role}DESC", "BACKEND_DESCRIPTOR", t.value)
    call("DestroyDescriptor", ts[0])
    call("Finalize", second)  # A tensor was destroyed.
    for d in (w, *ts, node, second, read):
        call("DestroyDescriptor", d)
answers, asked = [], []
for _ in range(3):
    shown, before = [], counts()["asked"]
    sequence()
    answers.append(shown)
    asked.append(counts()["asked"] - before)
print(json.dumps([answers, asked, counts()["differ"]]))
"""

DRAWN = """
import random
from dualdnn.conformance.fuzz.drawn_descriptors import BackendCalls
calls = BackendCalls(opened, random.Random(5), [made("").value for _ in range(2)])
shown = [[name, status, text, body.hex()] for name, status, text, body in (calls.step() for _ in range(600))]
print(json.dumps([shown, counts()["hits"]]))
"""


def test_an_execution_enters_python_once_for_each_plan(ran: Any) -> None:
    """C answers executions with new variant packs on other memory."""
    shown, differ = json.loads(ran(GRAPH + REPEATED, **EMULATED))
    assert [asked for _, asked in shown] == [1, 0, 0, 1, 0, 0, 0, 0, 0] and not differ
    assert all(status == 0 for status, _ in shown)


def test_a_variant_pack_is_made_without_python(ran: Any) -> None:
    """C creates, sets, finalises and destroys packs whose addresses are new."""
    assert json.loads(ran(GRAPH + PACKS, **EMULATED)) == [[7, 0, 0], 0]
    assert json.loads(ran(GRAPH + PACKS, DUALDNN_MEMO="check", **EMULATED))[1] == 0


def test_backend_descriptors(ran: Any) -> None:
    """C answers calls for descriptors as Python does: refused ones, others that fill, renew or refer to descriptors."""
    by_python, _, _ = json.loads(ran(GRAPH + DESCRIPTORS, DUALDNN_MEMO="0"))
    by_memo, asked, _ = json.loads(ran(GRAPH + DESCRIPTORS))
    compared, _, differ = json.loads(ran(GRAPH + DESCRIPTORS, DUALDNN_MEMO="check"))
    assert by_memo == compared == by_python and not differ
    assert by_python[0] == by_python[1] and {status for _, status, *_ in by_python[0]} >= {0, 1, 3}
    assert asked[1] == asked[2] < asked[0] - 30


def test_drawn_calls_for_backend_descriptors(ran: Any) -> None:
    """C answers calls that ``dualdnn fuzz --calls`` draws as Python does."""
    by_python, none = json.loads(ran(GRAPH + DRAWN, DUALDNN_MEMO="0"))
    by_memo, hits = json.loads(ran(GRAPH + DRAWN))
    assert by_memo == by_python and hits > 50 and not none
    assert {0, 1, 3} <= {status for _, status, *_ in by_python} <= {0, 1, 3, 9}


def statuses(shown: dict[str, Any]) -> dict[str, Any]:
    return {name: [s for s, _ in found] if isinstance(found[0], list) else found[0] for name, found in shown.items()}


def test_nothing_is_lost_where_c_executes(ran: Any) -> None:
    """C returns Python's statuses for handles, kinds, ids, alignment, sizes, overlap and ended or renewed objects."""
    by_python, by_memo, compared = (
        json.loads(ran(GRAPH + REFUSED, **EMULATED, DUALDNN_MEMO=mode)) for mode in ("0", "1", "check")
    )
    assert statuses(by_memo) == statuses(compared) == statuses(by_python)
    assert by_memo["again"] == by_memo["still"] == by_memo["finalised anew"] == [0, 0]
    assert by_memo["another handle"][3] == by_memo["ids in another order"][1] == [0, 0]
