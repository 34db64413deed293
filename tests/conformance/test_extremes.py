"""Test small tensors whose dimensions, strides or offsets come near the limit of 32 bits."""

from __future__ import annotations

import ctypes
import mmap
import random
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import pytest
from dualdnn.api import cudnn
from dualdnn.api.functions import SCALARS
from dualdnn.api.operations import Operation, TensorSpec
from dualdnn.api.operations.graph_nodes import GraphTensor
from dualdnn.api.operations.graph_patterns import NoPatternError
from dualdnn.api.operations.specs import FLOAT, HALF, INT8
from dualdnn.api.status import CudnnError
from dualdnn.conformance.calls import Caller, sized
from dualdnn.conformance.calls.exceptions import WORKSPACES
from dualdnn.conformance.cases import every_operation, transform
from dualdnn.conformance.domains import DOMAINS, PROFILES
from dualdnn.conformance.domains.pieces import LARGE
from dualdnn.conformance.fuzz.entries import Entry
from dualdnn.conformance.fuzz.judging import Judge
from dualdnn.conformance.kernels import graph_kinds
from dualdnn.conformance.solvers import ALL, by_solvers
from dualdnn.conformance.subjects import open_subject
from dualdnn.conformance.trial import Step, attempt_chain
from dualdnn.reference.view import strided
from test_domains import each

EXTREMES = (PROFILES["extremes"],)
DRAWN = 12  # operations of a domain
LAYOUTS = 4  # layouts of an operation
BESIDE = 2**35  # bytes without access on both sides of an operand, where a wrong 32-bit offset faults
NOT_RESERVED = 0x4000  # flag MAP_NORESERVE of mmap
MIN_RANK = 3  # rank of the smallest tensor whose strides change
MOVED = 0.7  # share of these tensors whose strides change
OF_GRAPHS = (2**63 - 1, 2**62, 2**40)  # strides of graphs, which are 64-bit numbers
TRIED = 40  # layouts per operation, because calls refuse some
# FIXED: operands whose descriptors have no strides. PACKED: prefixes of operations that need packed tensors.
FIXED = ("weightSpace", "dweightSpace", "biasData", "reorderedBiasData")
PACKED = ("RNN", "MultiHeadAttn", "SetDropoutStates", "ReorderFilter", "TransformFilter", "SpatialTfGrid", "BnFinalize")

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]


class SparseMemory:
    """Hold zeros in pages that the system allocates on first access, between inaccessible addresses."""

    def __init__(self, nbytes: int) -> None:
        self.accessible = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        kind = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NOT_RESERVED
        self.base = libc.mmap(None, self.accessible + 2 * BESIDE, 0, kind, -1, 0)
        assert self.base != ctypes.c_void_p(-1).value
        self.first = self.base + BESIDE
        assert not libc.mprotect(self.first, self.accessible, mmap.PROT_READ | mmap.PROT_WRITE)
        self.array = np.frombuffer((ctypes.c_ubyte * nbytes).from_address(self.first), np.uint8)

    def is_zero(self) -> bool:
        """Return whether every touched page holds zeros."""
        states = np.zeros(self.accessible // mmap.PAGESIZE, np.uint8)
        assert not libc.mincore(self.first, self.accessible, states.ctypes.data)
        starts = np.flatnonzero(states & 1) * mmap.PAGESIZE
        return not any(self.array[start : start + mmap.PAGESIZE].any() for start in starts.tolist())

    def free(self) -> None:
        del self.array
        libc.munmap(self.base, self.accessible + 2 * BESIDE)


def far_strides(rng: random.Random, dims: tuple[int, ...], most: int, large: Sequence[int] = LARGE) -> tuple[int, ...]:
    """Return strides that span at most ``most`` elements: one or two very large, the others packed in some order.

    large: strides for the dimensions of size 1.
    """
    order = [*range(len(dims))]
    if rng.random() < 0.5:
        rng.shuffle(order)
    strides, span = [rng.choice(large) for _ in dims], 1
    long = [d for d in order if dims[d] > 1]
    far = rng.choice((long[:1], rng.sample(long, 1), long[:2][::-1]))
    for d in [d for d in reversed(long) if d not in far]:
        strides[d], span = span, span * dims[d]
    for d, room in zip(far, (most // dims[far[-1]], most)[-len(far) :], strict=True):
        furthest = (room - span) // (dims[d] - 1)
        strides[d] = rng.choice((furthest, *(stride for stride in LARGE if span <= stride <= furthest)))
        span += (dims[d] - 1) * strides[d]
    return tuple(strides)


def relaid(value: Any, change: Any, fixed: Sequence[str] = ()) -> Any:
    """Return a record with other tensor descriptions in all fields except the ``fixed`` ones."""
    if isinstance(value, TensorSpec | GraphTensor):
        return change(value)
    if type(value) is tuple:
        return tuple(relaid(part, change) for part in value)
    if not is_dataclass(value):
        return value
    named = {field.name: getattr(value, field.name) for field in fields(value) if field.name not in fixed}
    return replace(value, **{name: relaid(part, change) for name, part in named.items()})


class FarCaller(Caller):
    """Make calls on sparse copies of the operands, whose elements are far apart. Equal descriptors stay equal."""

    def __init__(self, handle: Any, number: str, known: Mapping[Any, Any] | None = None) -> None:
        super().__init__(cudnn, handle)
        self.rng, self.known = random.Random(number), dict(known or {})

    def far(self, operation: Any) -> Any:
        """Return the operation with the elements of some tensors far apart."""
        return relaid(operation, self._far, (*FIXED, *operation.raw.values()))

    def _far(self, spec: Any) -> Any:
        if spec not in self.known:
            of_graph = isinstance(spec, GraphTensor)
            vector, large = (spec.vector_count, OF_GRAPHS) if of_graph else (1, LARGE)
            described = not spec.is_virtual if of_graph else spec.vector_length == 1
            described = described and len(spec.dims) >= MIN_RANK and max(spec.dims) > 1
            moves = described and self.rng.random() < MOVED
            strides = far_strides(self.rng, spec.dims, (SCALARS - 1) // vector, large) if moves else spec.strides
            self.known[spec] = replace(spec, strides=strides)
        return self.known[spec]

    def __call__(self, operation: Operation, memory: Mapping[str, Any]) -> None:
        far = self.far(operation)
        if "workspace_bytes" in far.raw.values():
            asked = sized(self, far).workspace_bytes if type(far) in WORKSPACES else 0
            far = replace(far, workspace_bytes=max(asked, self.handle.backend.workspace_bytes(far)))
        moved = [name for name in far.operands if name not in far.raw and far.nbytes(name)]
        scratch = [name for name, size in far.raw.items() if size == "workspace_bytes" and far.nbytes(name)]
        sparse = {name: SparseMemory(far.nbytes(name)) for name in (*moved, *scratch)}
        try:
            for name in moved:
                packed = memory[name].to_host(np.uint8, memory[name].nbytes)
                strided(far.tensor(name), sparse[name].array)[...] = strided(operation.tensor(name), packed)
            super().__call__(far, {**memory, **{name: held.first for name, held in sparse.items()}})
            for name in moved:
                packed = memory[name].to_host(np.uint8, memory[name].nbytes)
                elements = strided(far.tensor(name), sparse[name].array)
                strided(operation.tensor(name), packed)[...] = elements
                elements[...] = 0
                assert sparse[name].is_zero(), f"{name} of {far}: written beside its elements"
                self.handle.backend.device.upload(memory[name].address, packed)
        finally:
            for held in sparse.values():
                held.free()


@pytest.fixture(scope="module")
def judge() -> Judge:
    return Judge([open_subject("reference"), open_subject("accelerated:emulated")])


@pytest.mark.long
@pytest.mark.parametrize("name", DOMAINS)
def test_drawn_operations_near_the_limits_are_correct(judge, name):
    """Both backends compute the drawn operations correctly, by every solver."""

    def look(drawn: Any) -> None:
        entry = Entry(name, drawn, 3)
        assert judge.examine(entry) is None, str(entry)

    each(DOMAINS[name], DRAWN, look, EXTREMES)


def is_served(handle: Any, steps: Sequence[Step], number: str) -> bool:
    """Check each solver's results on elements far apart, and return whether the calls are served."""
    caller = FarCaller(handle, number)
    far = [caller.far(step.operation) for step in steps]

    def judged(solver: str | None) -> None:
        trial = attempt_chain(caller, steps)
        assert trial.passed, f"{solver}: {trial.explanation()} {far}"

    try:
        by_solvers(handle, far, judged, ALL)
    except NoPatternError:  # The engine does not execute these layouts.
        return False
    except CudnnError as error:
        assert error.clause, error
        return False
    return True


@pytest.fixture
def handle(monkeypatch) -> Any:
    """Return a handle of an emulated device that accepts memory of the process."""
    made = cudnn.cudnnCreate(backend="accelerated", device="emulated")
    monkeypatch.setattr(made.backend.device, "takes_foreign", True)
    return made


# The descriptors of sequence data have no strides.
@pytest.mark.parametrize("name", [name for name in DOMAINS if name not in ("rnn", "attention")])
def test_elements_far_apart_in_drawn_operations(handle, name):
    served = []

    def look(drawn: Any) -> None:
        ready = [sized(Caller(cudnn, handle), step) for step in drawn.steps]
        served.append(is_served(handle, [Step(step, {}, drawn.inputs) for step in ready], str(len(served))))

    each(DOMAINS[name], DRAWN, look, EXTREMES)
    assert any(served)


OPERATIONS: dict[str, Operation] = {
    **{name: sample for name, sample in every_operation.SAMPLES.items() if not name.startswith(PACKED)},
    **{f"graph {number}": graph for number, graph in enumerate(graph_kinds.graphs())},
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_elements_far_apart(handle, name):
    step = Step(OPERATIONS[name])
    served = (number for number in range(TRIED) if is_served(handle, [step], f"{name} {number}"))
    assert len(list(islice(served, LAYOUTS))) == LAYOUTS


@pytest.mark.parametrize("data_type", [FLOAT, HALF, INT8], ids=lambda t: t.name)
@pytest.mark.parametrize("stride", [2**30, 2**29 + 3, 2**31 - 8])
def test_padding_next_to_elements_far_apart(handle, data_type, stride):
    """Offsets of the padding that exceed 32 bits do not lead a vector access to a wrong element."""
    for before in (1, 2, 3, 5, 9):
        operation = transform.applied(transform.changing(before=(0, 0, 0, before)), (1, 1, 2, 2), data_type)
        source = replace(operation.srcData, strides=(1, 1, 1, stride))
        caller = FarCaller(handle, "", {operation.srcData: source, operation.destData: operation.destData})
        trial = attempt_chain(caller, [Step(operation)])
        assert trial.passed, f"{trial.explanation()} {caller.far(operation)}"


@pytest.mark.parametrize("number", range(len(list(graph_kinds.graphs()))))
def test_graphs_with_strides_of_64_bits(judge, number):
    """Graphs accept strides of size-1 dimensions that exceed NumPy's strides in bytes."""

    def far(spec: Any) -> Any:
        strides = tuple(2**62 if d == 1 else stride for d, stride in zip(spec.dims, spec.strides, strict=True))
        return replace(spec, strides=strides)

    operation = relaid(list(graph_kinds.graphs())[number], far)
    for caller in judge.callers:
        assert attempt_chain(caller, [Step(operation)]).passed
