"""Holds cases of dropout: descriptors, properties of every library's masks, and our own random numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from dualdnn.api.operations import DropoutBackward, DropoutForward, TensorSpec
from dualdnn.api.operations.specs import DOUBLE, FLOAT, HALF, INT32
from dualdnn.api.status import BAD_PARAM, INVALID_VALUE, NOT_SUPPORTED
from dualdnn.conformance.calls import Caller
from dualdnn.conformance.calls.descriptors import made
from dualdnn.conformance.cases.attention.attention_descriptors import GOOD
from dualdnn.conformance.cases.attention.attention_forward import forward as attention
from dualdnn.conformance.layouts import laid_out
from dualdnn.conformance.marks import shows
from dualdnn.conformance.suite.fixtures import fresh_descriptor
from dualdnn.conformance.trial import Called, Step, attempt_chain
from dualdnn.reference.philox import words
from dualdnn.reference.view import NUMPY_TYPES

if TYPE_CHECKING:
    from dualdnn.conformance.subjects import Subject
    from dualdnn.conformance.trial import Trial

TYPES = (FLOAT, DOUBLE, HALF)
DIMS = (2, 3, 5, 7)
SEED = 2**63 + 2**35 + 77
DEVIATIONS = 5  # standard deviations; bounds a binomial count's distance from its mean: once in two million
fresh = fresh_descriptor("Dropout")
by_type = pytest.mark.parametrize("data_type", TYPES, ids=lambda t: t.name)


def forward(probability: float = 0.3, x: TensorSpec | None = None, y: TensorSpec | None = None) -> DropoutForward:
    x = x or TensorSpec.packed(FLOAT, DIMS)
    return DropoutForward(float(np.float32(probability)), x, y or x)


def backward(probability: float = 0.3, dy: TensorSpec | None = None, dx: TensorSpec | None = None) -> DropoutBackward:
    dy = dy or TensorSpec.packed(FLOAT, DIMS)
    return DropoutBackward(float(np.float32(probability)), dy, dx or dy)


def states(seed: int = SEED, calls: int = 0) -> dict[str, Any]:
    """Return the memory of a generator after some calls."""
    return {"states": np.array([seed, calls], "<u8").view(np.uint8)}


class Layer:
    """Runs dropout with its own states on one subject, through the documented calls alone."""

    def __init__(self, cudnn: Any, handle: Any, probability: float, seed: int = SEED, memory: Any = None) -> None:
        self.cudnn, self.handle = cudnn, handle
        self.size = cudnn.cudnnDropoutGetStatesSize(handle)
        self.states = memory or handle.allocate(self.size)
        self.descriptor = cudnn.cudnnCreateDropoutDescriptor()
        cudnn.cudnnSetDropoutDescriptor(self.descriptor, handle, probability, self.states, self.size, seed)

    def restored(self, probability: float, memory: Any, seed: int) -> None:
        """Restore the descriptor to states in other memory."""
        self.cudnn.cudnnRestoreDropoutDescriptor(self.descriptor, self.handle, probability, memory, self.size, seed)

    def copy_of_states(self) -> Any:
        return self.handle.to_device(self.states.to_host(np.uint8, self.size))

    def __call__(self, x: Any, descriptor: Any = None) -> tuple[Any, Any, Any]:
        """Return (y, the reserve space, the descriptor of both tensors) of an array of float."""
        descriptor = descriptor or described(self.cudnn, x)
        reserve = self.handle.allocate(self.cudnn.cudnnDropoutGetReserveSpaceSize(descriptor))
        source, y = self.handle.to_device(x), self.handle.to_device(np.full_like(x, np.nan))
        call = self.cudnn.cudnnDropoutForward
        call(self.handle, self.descriptor, descriptor, source, descriptor, y, reserve, reserve.nbytes)
        return y.to_host(x.dtype, x.shape), reserve, descriptor

    def gradient(self, dy: Any, reserve: Any, descriptor: Any) -> Any:
        source, dx = self.handle.to_device(dy), self.handle.to_device(np.full_like(dy, np.nan))
        call = self.cudnn.cudnnDropoutBackward
        call(self.handle, self.descriptor, descriptor, source, descriptor, dx, reserve, reserve.nbytes)
        return dx.to_host(dy.dtype, dy.shape)

    def mask(self, count: int = 3000) -> Any:
        """Return the elements that the next call keeps."""
        return self(np.ones((1, 1, 1, count), np.float32))[0] != 0


def described(cudnn: Any, array: Any) -> Any:
    descriptor = cudnn.cudnnCreateTensorDescriptor()
    strides = tuple(step // array.itemsize for step in array.strides)
    data_type = next(kind for kind in TYPES if NUMPY_TYPES[kind] == array.dtype)
    cudnn.cudnnSetTensorNdDescriptor(descriptor, data_type, array.ndim, array.shape, strides)
    return descriptor


# --- descriptors ---


@shows("cudnnCreateDropoutDescriptor/c01 c02", "cudnnDestroyDropoutDescriptor/c01 c02", "cudnnDropoutDescriptor_t/c01-c03",
       "cudnnSetDropoutDescriptor/c01 c02 c06 c10", "cudnnGetDropoutDescriptor/c01 c03 c05")  # fmt: skip
def test_descriptors_without_states(cudnn: Any, handle: Any) -> None:
    """Descriptors are independent of each other. Without states, the size is ignored."""
    first, second = cudnn.cudnnCreateDropoutDescriptor(), cudnn.cudnnCreateDropoutDescriptor()
    assert tuple(cudnn.cudnnGetDropoutDescriptor(first, handle)) == (0.0, None, 0)
    cudnn.cudnnSetDropoutDescriptor(first, handle, 0.25, None, 0, 2**64 - 1)
    cudnn.cudnnSetDropoutDescriptor(second, handle, 0.1, None, 1, 5)
    cudnn.cudnnDestroyDropoutDescriptor(second)
    assert tuple(cudnn.cudnnGetDropoutDescriptor(first, handle)) == (0.25, None, 2**64 - 1)
    cudnn.cudnnSetDropoutDescriptor(first, handle, 0.1, None, 0, 6)
    assert tuple(cudnn.cudnnGetDropoutDescriptor(first, handle)) == (float(np.float32(0.1)), None, 6)
    cudnn.cudnnDestroyDropoutDescriptor(first)


@shows("cudnnDropoutGetReserveSpaceSize/c01 c05")
@pytest.mark.parametrize("dims", [(1, 1, 1, 1), (2, 3, 5), (2, 4, 5, 6), (2, 3, 5, 7, 11)], ids=str)
def test_reserve_space(cudnn: Any, dims: Any) -> None:
    """The reserve space has room for the mask, a bit for each element, and depends on the dimensions alone."""
    sizes = {
        cudnn.cudnnDropoutGetReserveSpaceSize(made(cudnn, laid_out(data_type, dims, layout)))
        for data_type in (FLOAT, HALF, DOUBLE, INT32)
        for layout in ("nchw", "gaps", "odd")
    }
    count = int(np.prod(dims))
    assert len(sizes) == 1 and sizes.pop() >= -(-count // 32) * 4


@shows("cudnnDropoutGetStatesSize/c01 c03", "cudnnSetDropoutDescriptor/c07 c08 c11", "cudnnRestoreDropoutDescriptor/c04 c09",
       "cudnnGetDropoutDescriptor/c02")  # fmt: skip
@pytest.mark.parametrize("call", ["cudnnSetDropoutDescriptor", "cudnnRestoreDropoutDescriptor"])
def test_states_that_are_too_small(
    cudnn: Any, handle: Any, refuses: Callable[..., bool], fresh: Any, call: str
) -> None:
    """States that are too small are refused and change nothing; more than needed is accepted."""
    needed = cudnn.cudnnDropoutGetStatesSize(handle)
    memory = handle.to_device(np.arange(needed + 4) % 251 * np.ones(1, np.uint8))
    clause = f"{call}/{'c11' if call.startswith('cudnnSet') else 'c09'}"
    cudnn.cudnnSetDropoutDescriptor(fresh, handle, 0.25, None, 0, 3)
    for size in (0, 1, needed - 1):
        refuses(INVALID_VALUE, clause, getattr(cudnn, call), fresh, handle, 0.5, memory, size, 4, unchanged=(memory,))
        assert tuple(cudnn.cudnnGetDropoutDescriptor(fresh, handle)) == (0.25, None, 3)
    getattr(cudnn, call)(fresh, handle, 0.5, memory, needed + 4, 4)
    probability, held, seed = cudnn.cudnnGetDropoutDescriptor(fresh, handle)
    assert (probability, seed, held.address) == (0.5, 4, memory.address)


# --- properties of every library ---


@shows("cudnnDropoutGetReserveSpaceSize/c03", "cudnnDropoutForward/c01", "cudnnDropoutForward/c02", "cudnnDropoutForward/c09", "cudnnDropoutBackward/c01",
       "cudnnDropoutBackward/c02", "cudnnDropoutBackward/c06", "cudnnSetDropoutDescriptor/c06")  # fmt: skip
@by_type
@pytest.mark.parametrize("probability", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_dropped_and_scaled(cudnn: Any, handle: Any, data_type: Any, probability: float) -> None:
    """About the given fraction of x becomes 0 and the rest is scaled; the same elements of dy pass."""
    layer = Layer(cudnn, handle, probability)
    x = np.random.default_rng(1).uniform(1, 2, (2, 3, 25, 20)).astype(NUMPY_TYPES[data_type])
    y, reserve, descriptor = layer(x)
    dx = layer.gradient(-x, reserve, descriptor)
    kept = y != 0
    p = float(np.float32(probability))
    assert abs(kept.sum() - x.size * (1 - p)) <= DEVIATIONS * sqrt(x.size * p * (1 - p))
    if kept.any():
        exact = x[kept].astype(np.float64) / (1 - p)
        unit = np.finfo(x.dtype).eps
        assert np.all(np.abs(y[kept] - exact) <= 4 * unit * exact)
    assert np.array_equal(dx, np.where(kept, -y, 0))


@shows("cudnnDropoutForward/c01")
def test_masks_of_calls_seeds_and_generators(cudnn: Any, handle: Any) -> None:
    """Calls and seeds differ as independent masks do; the same seed gives the same masks again."""
    layer, count = Layer(cudnn, handle, 0.5), 3000
    first, second = layer.mask(count), layer.mask(count)
    again = Layer(cudnn, handle, 0.5)
    assert np.array_equal(again.mask(count), first) and np.array_equal(again.mask(count), second)
    others = [
        second,
        Layer(cudnn, handle, 0.5, SEED + 1).mask(count),
        Layer(cudnn, handle, 0.5, SEED ^ 1 << 40).mask(count),
    ]
    for other in others:
        assert abs((first == other).sum() - count / 2) <= DEVIATIONS * sqrt(count / 4)


@shows("cudnnSetDropoutDescriptor/c02 c09", "cudnnRestoreDropoutDescriptor/c06")
def test_setting_again(cudnn: Any, handle: Any) -> None:
    """New states begin the random numbers anew. Without them only the probability changes, and the states go on
    (D111)."""
    layer = Layer(cudnn, handle, 0.5)
    first, second = layer.mask(), layer.mask()
    set_again = cudnn.cudnnSetDropoutDescriptor
    set_again(layer.descriptor, handle, 0.5, layer.states, layer.size, SEED)
    assert np.array_equal(layer.mask(), first)
    set_again(layer.descriptor, handle, 0.25, None, 0, SEED + 1)
    assert cudnn.cudnnGetDropoutDescriptor(layer.descriptor, handle)[0] == 0.25
    kept = layer.mask()
    assert np.all(kept[second]) and kept.mean() > 0.65  # The second call's random numbers meet a lower probability.
    set_again(layer.descriptor, handle, 0.5, layer.states, layer.size, SEED + 1)
    other = layer.mask()
    assert not np.array_equal(other, first)


@shows("cudnnRestoreDropoutDescriptor/c01-c03 c05 c08", "cudnnDropoutDescriptor_t/c04")
def test_restored_states(cudnn: Any, handle: Any) -> None:
    """Restored states continue from the moment of the copy, whatever the seed."""
    layer = Layer(cudnn, handle, 0.5)
    at_first, masks = layer.copy_of_states(), [layer.mask()]
    later = layer.copy_of_states()
    masks += [layer.mask(), layer.mask()]
    other = Layer(cudnn, handle, 0.9, SEED + 1)
    other.restored(0.5, at_first, SEED + 2)
    probability, memory, seed = cudnn.cudnnGetDropoutDescriptor(other.descriptor, handle)
    assert (probability, memory.address, seed) == (0.5, at_first.address, SEED + 2)
    assert all(np.array_equal(other.mask(), mask) for mask in masks)
    other.restored(0.5, later, SEED)
    assert all(np.array_equal(other.mask(), mask) for mask in masks[1:])


@shows("cudnnDropoutForward/c07 c08", "cudnnDropoutBackward/c04", "cudnnDropoutGetReserveSpaceSize/c02")
def test_states_are_not_what_a_gradient_needs(cudnn: Any, handle: Any) -> None:
    """The gradient needs the reserve space alone, which holds the mask of its forward call.

    Between a forward call and its gradient the states go on, are overwritten and serve another descriptor.
    """
    layer = Layer(cudnn, handle, 0.5)
    x = np.random.default_rng(2).uniform(1, 2, (2, 3, 5, 7)).astype(np.float32)
    first, second = layer(x), layer(x)
    sharing = Layer(cudnn, handle, 0.1, SEED + 9, memory=layer.states)
    sharing(x)
    for y, reserve, descriptor in (first, second):
        assert np.array_equal(layer.gradient(x, reserve, descriptor), y)
    assert not np.array_equal(first[0], second[0])


# --- refusals of the computing calls ---


@shows("cudnnDropoutForward/c06 c07 c14 c15", "cudnnDropoutBackward/c05 c11 c12")
@pytest.mark.parametrize("call", ["cudnnDropoutForward", "cudnnDropoutBackward"])
def test_descriptors_and_reserve_space(
    subject: Subject, cudnn: Any, handle: Any, refuses: Callable[..., bool], fresh: Any, call: str
) -> None:
    reserve_clause, states_clause = {"cudnnDropoutForward": ("c14", "c15"), "cudnnDropoutBackward": ("c11", "c12")}[
        call
    ]
    layer = Layer(cudnn, handle, 0.5)
    x = np.ones(DIMS, np.float32)
    tensor, memory, out = described(cudnn, x), handle.to_device(x), handle.to_device(x)
    needed = cudnn.cudnnDropoutGetReserveSpaceSize(tensor)
    reserve = handle.to_device(np.ones(needed, np.uint8))
    kept = (memory, out, reserve, layer.states)

    def attempt(clause: Any, descriptor: Any, size: Any = needed, space: Any = reserve) -> None:
        arguments = (handle, descriptor, tensor, memory, tensor, out, space, size)
        refuses(BAD_PARAM, f"{call}/{clause}", getattr(cudnn, call), *arguments, unchanged=kept)

    for size in (0, 1, needed - 1):
        attempt(reserve_clause, layer.descriptor, size)
    attempt(states_clause, fresh)
    attempt(states_clause, None)
    cudnn.cudnnSetDropoutDescriptor(fresh, handle, 0.5, None, 0, 1)
    attempt(states_clause, fresh)
    if subject.knows_sizes:  # C cannot see the size of memory.
        attempt(reserve_clause, layer.descriptor, needed, reserve.slice(0, needed - 1))


@shows("cudnnStatus_t/c05")
@pytest.mark.ours
def test_states_that_were_freed(cudnn: Any, handle: Any, refuses: Callable[..., bool]) -> None:
    layer = Layer(cudnn, handle, 0.5)
    x = np.ones(DIMS, np.float32)
    tensor, memory, out = described(cudnn, x), handle.to_device(x), handle.to_device(x)
    reserve = handle.to_device(np.ones(cudnn.cudnnDropoutGetReserveSpaceSize(tensor), np.uint8))
    layer.states.free()
    arguments = (handle, layer.descriptor, tensor, memory, tensor, out, reserve, reserve.nbytes)
    refuses(BAD_PARAM, "cudnnStatus_t/c05", cudnn.cudnnDropoutForward, *arguments, unchanged=(memory, out, reserve))


@shows("cudnnSetAttnDescriptor/c29 c39")
def test_attention_takes_no_dropout(cudnn: Any, handle: Any, refuses: Callable[..., bool]) -> None:
    """A probability of 0 drops nothing. Attention keeps the descriptor by its address, so training refuses what is
    set later."""
    descriptor, call = cudnn.cudnnCreateAttnDescriptor(), cudnn.cudnnSetAttnDescriptor
    names = "attnDropoutDesc", "postDropoutDesc"
    layer, none = Layer(cudnn, handle, 0.25), Layer(cudnn, handle, 0)
    for dropouts in ((layer.descriptor, None), (None, layer.descriptor), (none.descriptor, layer.descriptor)):
        values = GOOD | dict(zip(names, dropouts, strict=True))
        refuses(NOT_SUPPORTED, "cudnnSetAttnDescriptor/c39", call, descriptor, *values.values())
    call(descriptor, *(GOOD | {"postDropoutDesc": none.descriptor}).values())
    assert cudnn.cudnnGetAttnDescriptor(descriptor)[6:8] == (None, none.descriptor)
    operation = attention(trains=True)
    training, fields = Called(Caller(cudnn, handle), operation), astuple(operation.attn)
    values = [*fields[:6], none.descriptor, None, *fields[6:-1]]
    call(training.arguments["attnDesc"], *values)
    training()
    cudnn.cudnnSetDropoutDescriptor(none.descriptor, handle, 0.5, none.states, none.size, SEED)
    refuses(NOT_SUPPORTED, "cudnnSetAttnDescriptor/c39", training, unchanged=(training.memory["out"],))
    training(reserveSpace=None, reserveSpaceSizeInBytes=0)  # Inference drops nothing.
    still_none = Layer(cudnn, handle, 0)
    for pair in ((none, still_none), (still_none, none)):  # Either of the two descriptors may be NULL.
        cudnn.cudnnSetDropoutDescriptor(none.descriptor, handle, 0.0, none.states, none.size, SEED)
        values[6:8] = (one.descriptor for one in pair)
        call(training.arguments["attnDesc"], *values)
        training()
        cudnn.cudnnSetDropoutDescriptor(none.descriptor, handle, 0.5, none.states, none.size, SEED)
        refuses(NOT_SUPPORTED, "cudnnSetAttnDescriptor/c39", training, unchanged=(training.memory["out"],))


# --- our random numbers, element by element as docs/dropout.md says ---


@shows("cudnnDropoutForward/c01 c02")
@pytest.mark.ours
@by_type
@pytest.mark.parametrize("count", [1, 7, 8, 9, 4101])
def test_mask_ends_within_a_byte(chain: Callable[..., Trial], data_type: Any, count: int) -> None:
    """The mask's last byte has unused bits, x and y differ in dimensions, and several blocks run."""
    x, y = TensorSpec.packed(data_type, (count, 1, 1)), TensorSpec.packed(data_type, (1, 1, count, 1))
    chain(forward(0.2, x, y), backward(0.2, y, x), before=states(), seed=3)
    chain(forward(0.2, x), before=states(2**64 - 1, 2**32 - 2))


@shows("cudnnDropoutForward/c01")
@pytest.mark.ours
def test_calls_beyond_words(chain: Callable[..., Trial]) -> None:
    """The count of calls carries into its upper word, and wraps to zero."""
    for calls in (2**32 - 1, 2**64 - 1):
        steps = [Step(forward(), {"x": f"x{i}", "y": f"y{i}", "reserveSpace": f"r{i}"}) for i in range(3)]
        chain(*steps, before=states(SEED, calls))


@shows("cudnnDropoutForward/c01 c02")
@pytest.mark.ours
@pytest.mark.parametrize(
    "layout, dims", [*((layout, DIMS) for layout in ("nchw", "nhwc", "gaps")), ("nhwc", (1, 32, 8, 8))], ids=str
)
@pytest.mark.parametrize(
    "probability, calls, element, beyond", [(0.3, 24265710, 206, 0), (0.3, 1239528, 50, -1), (1.0, 3427424, 150, -1)]
)
def test_words_at_the_threshold(
    caller: Caller, probability: float, calls: int, element: int, beyond: int, layout: Any, dims: Any
) -> None:
    """A number at the threshold keeps its element, and one below drops it; the lower halves decide.

    A probability of 1 also drops the element of the largest number.
    """
    spec = laid_out(FLOAT, dims, layout)
    operation = forward(probability, spec)
    assert int(words(SEED, calls, spec.count)[element]) == operation.threshold + beyond
    infinite = np.full(spec.span, np.inf, np.float32).view(np.uint8)  # Only dropped elements become 0.
    before = states(SEED, calls) | {"x": infinite, "dy": infinite}
    after = attempt_chain(caller, [Step(operation), Step(backward(probability, spec))], before=before)
    assert after.passed, after.explanation()
