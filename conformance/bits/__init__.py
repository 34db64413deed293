"""Compare the bits of results: of an image alone and in batches, of solvers, and for numbers of multiprocessors."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from dualdnn.accelerated.reproducible import IN_IMAGES
from dualdnn.accelerated.solver import SOLVER_FAMILIES, forcing
from dualdnn.api.operations import (
    CTCLoss,
    MultiHeadAttnBackwardData,
    MultiHeadAttnBackwardWeights,
    MultiHeadAttnForward,
    Operation,
    OperationGraph,
    RNNBackwardData,
    RNNBackwardWeights,
    RNNForward,
    SeqDataSpec,
    TensorSpec,
)
from dualdnn.api.operations.specs import FLOAT

from ..calls import Caller, sized
from ..solvers import divided_among
from ..trial import prepare
from . import graphs

Array = np.ndarray[Any, Any]
IMAGES = 6  # images of the memory from which batches are taken
BATCHES = ((0, 1), (0, 2), (0, 6), (3, 1), (2, 3), (5, 1))  # first image and number of images
MULTIPROCESSORS = (132, 1, 48)
# These fields of recurrent networks describe vectors of each sequence and step, and states of each sequence.
OF_SEQUENCES = ("x", "y", "dx", "dy", "hx", "cx", "hy", "cy", "dhx", "dcx", "dhy", "dcy")
RECORDED = Path(__file__).with_name("recorded.json")


def with_images(operation: Any, images: int, first: int = 0) -> Any:
    """Return the operation on some of its images; ``first`` matters if it has values for each image, such as lengths."""
    if isinstance(operation, CTCLoss):
        return _with_sequences(operation, slice(first, first + images))
    if isinstance(operation, RNNForward | RNNBackwardData):
        return _with_states(operation, slice(first, first + images))
    if isinstance(operation, OperationGraph):
        return graphs.with_images(operation, images)

    def resized(spec: Any) -> Any:
        if isinstance(spec, SeqDataSpec):
            steps, _, beams, size = spec.dims
            lengths = spec.lengths[first * beams : (first + images) * beams]
            return replace(spec, dims=(steps, images, beams, size), lengths=lengths)
        return replace(spec, dims=(images, *spec.dims[1:]))

    given = {name: getattr(operation, name) for name in IN_IMAGES[type(operation).__name__]}
    return replace(operation, **{name: resized(spec) for name, spec in given.items() if spec is not None})


def _with_sequences(operation: CTCLoss, chosen: slice) -> CTCLoss:
    """Return the CTC loss of some of its sequences."""
    lengths = operation.hostLabelLengths
    labels = operation.hostLabels[sum(lengths[: chosen.start]) : sum(lengths[: chosen.stop])]
    times, _, classes = operation.probs.dims
    probs = TensorSpec.packed(FLOAT, (times, len(lengths[chosen]), classes))
    return replace(
        operation, hostLabels=labels, hostLabelLengths=lengths[chosen], probs=probs, gradients=probs,
        hostInputLengths=operation.hostInputLengths[chosen], costs=TensorSpec(FLOAT, (len(lengths[chosen]),), (1,)),
    )  # fmt: skip


def results(caller: Caller, operation: Operation, memory: dict[str, Array]) -> dict[str, Array]:
    """Return the bytes of the outputs of one call on this memory."""
    operation = sized(caller, operation)
    buffers = _called(caller, operation, memory)
    return {
        name: buffers[name].to_host(np.uint8, buffers[name].nbytes)
        for name in operation.outputs
        if buffers.get(name) is not None
    }


def _with_states(operation: RNNForward | RNNBackwardData, chosen: slice) -> Any:
    """Return the recurrent call on some of its sequences and their states."""
    lengths = operation.y.lengths[chosen]

    def resized(spec: Any) -> Any:
        if isinstance(spec, TensorSpec):
            return TensorSpec.packed(spec.data_type, (spec.dims[0], len(lengths), spec.dims[2]))
        return replace(spec, batch=len(lengths), lengths=lengths)

    given = {name: getattr(operation, name, None) for name in OF_SEQUENCES}
    changed: dict[str, Any] = {name: resized(spec) for name, spec in given.items() if spec is not None}
    return replace(operation, **changed)


def _called(caller: Caller, operation: Operation, memory: dict[str, Array]) -> dict[str, Any]:
    """Make a call, after the calls that fill its reserve space, and return its buffers."""
    buffers: dict[str, Any] = {}
    for name in operation.operands:
        nbytes = operation.nbytes(name)
        content = np.zeros(nbytes, np.uint8) if name in operation.raw else memory[name]
        buffers[name] = caller.handle.to_device(content) if nbytes else None
    if earlier := EARLIER.get(type(operation)):
        before = earlier(operation)
        same = {EARLIER_NAMES.get(name, name): content for name, content in memory.items()}
        known = {name: same.get(name, content) for name, content in memory_of(before).items()}
        buffers["reserveSpace"] = _called(caller, before, known)["reserveSpace"]
    caller(operation, buffers)
    return buffers


def _forward(o: MultiHeadAttnBackwardData) -> MultiHeadAttnForward:
    """Return the forward call before a gradient of the data."""
    given = (o.attn, o.lo_win_idx, o.hi_win_idx, o.queries, None, o.keys, o.values)
    return MultiHeadAttnForward(*given, o.dout, True)


def _data_gradient(o: MultiHeadAttnBackwardWeights) -> MultiHeadAttnBackwardData:
    """Return the gradient of the data before a gradient of the weights, with windows of all keys."""
    steps, keys = o.queries.dims[0], o.keys.dims[0]
    return MultiHeadAttnBackwardData(o.attn, (0,) * steps, (keys,) * steps, o.dout, o.queries, o.keys, o.values)


def _recurrent_forward(o: RNNBackwardData) -> RNNForward:
    """Return the forward call before a gradient of the data."""
    return RNNForward(o.network, True, o.dx, o.hx, o.cx, o.weightSpace, o.y, None, None, o.workspace, o.reserve)


def _recurrent_gradient(o: RNNBackwardWeights) -> RNNBackwardData:
    """Return the gradient of the data before a gradient of the weights, without gradients of the last states."""
    given = (o.network, o.y, o.y, o.hx, None, None, None, o.dweightSpace, o.x, None, None)
    return RNNBackwardData(*given, o.workspace, o.reserve)


# Each of these gradients reads the reserve space that the call before it filled.
EARLIER: dict[Any, Callable[[Any], Any]] = {
    MultiHeadAttnBackwardData: _forward,
    MultiHeadAttnBackwardWeights: _data_gradient,
    RNNBackwardData: _recurrent_forward,
    RNNBackwardWeights: _recurrent_gradient,
}
EARLIER_NAMES = {"devSeqLengthsDQDO": "devSeqLengthsQO", "devSeqLengthsDKDV": "devSeqLengthsKV"}


def hashed(found: dict[str, Array]) -> str:
    """Return a short hash of outputs."""
    joined = b"".join(name.encode() + found[name].tobytes() for name in sorted(found))
    return hashlib.sha256(joined).hexdigest()[:16]


def hash_of(caller: Caller, operation: Operation) -> str:
    """Return the hash of the outputs of a call on its random inputs."""
    return hashed(results(caller, operation, memory_of(operation)))


def recorded() -> dict[str, dict[str, str]]:
    """Return the recorded hashes: architecture -> name of an operation of the cases -> hash."""
    found: dict[str, dict[str, str]] = json.loads(RECORDED.read_text(encoding="utf-8"))
    return found


def memory_of(operation: Operation, seed: int = 0) -> dict[str, Array]:
    """Return memory for all operands: inputs are random, other operands are zeros."""
    found = prepare(operation, "normal", seed)
    return {name: found[name] if name in operation.reads else np.zeros_like(found[name]) for name in operation.operands}


def of_batches(caller: Caller, operation: Any) -> list[str]:
    """Return the images whose bits differ between two of BATCHES, each compared with the first batch that has it."""
    whole = with_images(operation, IMAGES)
    every = memory_of(whole)
    owners: dict[str, Any] = dict.fromkeys(every, whole)
    if earlier := EARLIER.get(type(whole)):
        before = earlier(whole)
        every, owners = memory_of(before) | every, dict.fromkeys(before.operands, before) | owners
    seen: dict[tuple[str, int], bytes] = {}
    wrong = []
    for first, images in BATCHES:
        batch = with_images(operation, images, first)
        memory = {
            name: _images(owners[name], name, content, _axis(owners[name], name), slice(first, first + images))
            for name, content in every.items()
        }
        for name, found in results(caller, batch, memory).items():
            axis = _axis(whole, name)  # A batch of one sequence cannot tell its dimension of sequences.
            if axis is None:
                continue
            for i in range(images):
                image = _images(batch, name, found, axis, slice(i, i + 1)).tobytes()
                if seen.setdefault((name, first + i), image) != image:
                    wrong.append(f"{name} of image {first + i} in a batch of {images} from image {first} on")
    return wrong


def _images(operation: Any, name: str, content: Array, axis: int | None, chosen: slice) -> Array:
    """Return some images of an operand along a dimension, or the whole operand without one."""
    if axis is None:
        return content
    dims = operation.tensor(name).dims
    return np.ascontiguousarray(content.reshape(prod(dims[:axis]), dims[axis], -1)[:, chosen]).reshape(-1)


def _axis(operation: Any, name: str) -> int | None:
    """Return the dimension of images of an operand of several images, or None where it is not divided by images."""
    if name in operation.raw:
        return None
    one, two = (with_images(operation, images).tensor(name).dims for images in (1, 2))
    return next((d for d, (of_one, of_two) in enumerate(zip(one, two, strict=True)) if of_one != of_two), None)


def of_multiprocessors(caller: Caller, operation: Operation) -> list[str]:
    """Return the numbers of multiprocessors whose result differs in bits from the result for the first number."""
    memory, found = memory_of(operation), dict[int, str]()
    for count in MULTIPROCESSORS:
        with divided_among(caller.handle, count):
            found[count] = hashed(results(caller, operation, memory))
    return [f"{count} multiprocessors: {found[count]}" for count in found if found[count] != found[MULTIPROCESSORS[0]]]


def of_solvers(caller: Caller, operation: Operation) -> list[str]:
    """Return the pairs of solvers that declare the same order of sums but give different bits."""
    device, memory = caller.handle.backend.planned_on, memory_of(operation)
    family = SOLVER_FAMILIES[type(operation)]
    problem, first, wrong = family.problem(operation, device), dict[Any, tuple[str, str]](), []
    for solver in family.solvers:
        order = solver.summation_order(problem) if solver.serves(problem) else None
        if order is None:
            continue
        with by_solver(caller, solver.name):
            found = hashed(results(caller, operation, memory))
        name, expected = first.setdefault(order, (solver.name, found))
        if found != expected:
            wrong.append(f"{solver.name} and {name}, which both add in {order}")
    return wrong


@contextmanager
def by_solver(caller: Caller, name: str) -> Iterator[None]:
    """Make calls by a solver in this scope."""
    caller.handle.answers.clear()
    with forcing(name):
        yield
    caller.handle.answers.clear()


def solvers_of(caller: Caller, operation: Operation) -> Sequence[str]:
    """Return the solvers by which a subject may compute an operation; no solver for a foreign library."""
    solvers = getattr(getattr(caller.handle, "backend", None), "solvers", None)
    return solvers(operation) if solvers else ()
