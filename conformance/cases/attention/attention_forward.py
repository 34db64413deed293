"""Holds cases of multi-head attention forward, for all time-steps or a single one."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from dualdnn.api.enumerations import cudnnDataType_t, cudnnMathType_t, cudnnSeqDataAxis_t
from dualdnn.api.operations import AttnSpec, MultiHeadAttnForward, MultiHeadAttnStep, SeqDataSpec
from dualdnn.api.operations.specs import DOUBLE, FLOAT, HALF
from dualdnn.api.status import BAD_PARAM
from dualdnn.conformance.marks import needs, shows
from dualdnn.conformance.trial import Called, prepare

if TYPE_CHECKING:
    from dualdnn.conformance.calls import Caller
    from dualdnn.conformance.subjects import Subject
    from dualdnn.conformance.trial import Trial

FORWARD = "cudnnMultiHeadAttnForward"
AXES = tuple(cudnnSeqDataAxis_t)
DEFAULT, TENSOR, CONVERSION = list(cudnnMathType_t)[:3]
ONE_TO_ONE = 1
BIASES = 2
INT_MAX = 2**31 - 1
TYPES = [(DOUBLE, DEFAULT), (FLOAT, DEFAULT), (FLOAT, CONVERSION), (HALF, DEFAULT), (HALF, TENSOR), (HALF, CONVERSION)]


def attention(
    projected: tuple[int, int, int, int] = (4, 4, 3, 7), sizes: tuple[int, int, int] = (5, 6, 9), heads: int = 3, mode: int = BIASES,
    scaler: float = 0.3, data_type: cudnnDataType_t = FLOAT, math: cudnnMathType_t = DEFAULT, longest: tuple[int, int] = (6, 8),
    batches: int = 3, beams: int = 3
) -> AttnSpec:  # fmt: skip
    return AttnSpec(mode, heads, scaler, data_type, data_type, math, *sizes, *projected, *longest, batches, beams)


def data(
    attn: AttnSpec, size: int, steps: int, batches: int, beams: int, lengths: Any = None, axes: Any = AXES
) -> SeqDataSpec:
    """Return sequences; without lengths, each has all time-steps."""
    lengths = lengths or (steps,) * (batches * beams)
    return SeqDataSpec(attn.data_type, (steps, batches, beams, size), tuple(axes), tuple(lengths))


def forward(
    attn: AttnSpec | None = None, steps: tuple[int, int] = (4, 5), batches: int = 2, beams: int = 2, lengths: Any = (4, 2, 3, 4),
    key_lengths: Any = None, low: Any = None, high: Any = None, axes: Any = AXES, residuals: bool = False, trains: bool = False,
    current: int | None = None
) -> MultiHeadAttnForward | MultiHeadAttnStep:  # fmt: skip
    """Return a call on small sequences; by default each query attends to all keys."""
    attn = attn or attention()
    key_beams = beams if attn.mode & ONE_TO_ONE else 1
    queries = data(attn, attn.q_size, steps[0], batches, beams, lengths, axes)
    keys, values = (
        data(attn, size, steps[1], batches, key_beams, key_lengths, axes) for size in (attn.k_size, attn.v_size)
    )
    out = data(attn, attn.output_size, steps[0], batches, beams, lengths, axes)
    low, high = low or (0,) * steps[0], high or (steps[1],) * steps[0]
    added = queries if residuals else None
    if current is None:
        return MultiHeadAttnForward(attn, tuple(low), tuple(high), queries, added, keys, values, out, trains)
    windows = (low[current],), (high[current],)
    return MultiHeadAttnStep(attn, current, *windows, queries, added, keys, values, out)


def with_projections(q: int, k: int, v: int, o: int, **others: Any) -> AttnSpec:
    """Return an attention whose sizes fit its projections: a size of 0 switches one off."""
    met, sizes = 4, (5 if q else 4, 6 if k else 4, 9)
    return attention((met * q, met * k, 3 * v, 5 * o), sizes, **others)


@shows("cudnnSetAttnDescriptor/c30 c36-c38", "cudnnMultiHeadAttnForward/c31 c33", "cudnnGetMultiHeadAttnBuffers/c04-c06")  # fmt: skip
@pytest.mark.parametrize("trains", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("data_type, math", TYPES, ids=lambda v: v.name)
@pytest.mark.blind("a result off by one", "larger spaces than are needed are accepted")
def test_types(trial: Callable[..., Trial], data_type: Any, math: Any, trains: bool) -> None:
    """Every row of table 40 works in both modes."""
    trial(forward(attention(data_type=data_type, math=math), trains=trains, low=(0, 0, 1, 3), high=(1, 5, 3, 5)))


@shows(f"{FORWARD}/c03", f"{FORWARD}/c09")
def test_training_and_inference_have_one_result(trial: Callable[..., Trial]) -> None:
    """Training and inference give the same output."""
    operations = [forward(trains=trains, lengths=None) for trains in (False, True)]
    memory = {name: held for name, held in prepare(operations[0], "normal", 3).items() if name not in operations[0].raw}
    first, second = (trial(operation, before=memory).after["out"].view(np.float32) for operation in operations)
    np.testing.assert_allclose(first, second, rtol=1e-4, atol=1e-5)


@shows("cudnnSetSeqDataDescriptor/c06 c07 c09", "cudnnSetAttnDescriptor/c41")
@pytest.mark.parametrize("o", [0, 1], ids=["joined", "projected"])
def test_padding_is_not_read(trial: Callable[..., Trial], o: int) -> None:
    """NaN in the padding of inputs, and lengths of 0, change nothing."""
    attn = with_projections(1, 1, 0, o)
    operation = forward(attn, lengths=(4, 3, 4, 2), key_lengths=(5, 3), low=(0, 0, 1, 1), high=(5, 1, 4, 2))
    before = prepare(operation, "normal", 0)
    for name in ("queries", "keys", "values"):
        fill_padding(before, operation, name)
    trial(operation, before=before)


@shows(f"{FORWARD}/c11", "cudnnSetAttnDescriptor/c16")
def test_numbers_outside_of_windows_are_not_read(trial: Callable[..., Trial]) -> None:
    """A NaN in a key or value reaches only the queries that attend to it."""
    attn = with_projections(0, 0, 0, 0)
    operation = forward(attn, lengths=None, low=(0, 1, 3, 2), high=(2, 3, 5, 4))
    for name, value in product(("keys", "values"), (np.nan, np.inf)):
        before = prepare(operation, "normal", 0)
        array = before[name].view(np.float32).reshape(getattr(operation, name).dims)
        array[1, 0] = value if name == "values" else np.nan
        trial(operation, before=before)


OF_TENSOR_CORES = ["half 64", "half 128", "half 192", "half 256", "float", "float 128", "float 192", "float 256"]


def of_tensor_cores(name: str, **others: Any) -> Any:
    """Return a call with several tiles of queries and keys: full ones, and ones cut by windows and lengths."""
    data_type, heads, sizes, steps, key_steps = {
        "half 64": (HALF, 1, (40, 40, 24), 200, 290),
        "half 128": (HALF, 1, (72, 72, 128), 70, 150),
        "half 192": (HALF, 1, (136, 136, 160), 70, 150),
        "half 256": (HALF, 1, (250, 250, 256), 70, 150),
        "float": (FLOAT, 1, (40, 40, 24), 70, 150),
        "float 128": (FLOAT, 1, (100, 100, 72), 70, 150),
        "float 192": (FLOAT, 1, (136, 136, 160), 70, 150),
        "float 256": (FLOAT, 1, (256, 256, 196), 70, 150),
    }[name]
    attn = attention((0, 0, 0, 0), sizes, heads, 0, 0.2, data_type, longest=(steps, key_steps), batches=1, beams=1)
    edge = 128 if steps > 128 else 64  # All windows skip a whole tile of keys from this query on.
    low = [2 * t - edge + 8 if t >= edge else t - 90 if t >= 100 else 0 for t in range(steps)]
    high = [INT_MAX if t < 64 else 2 * t - 40 for t in range(steps)]
    low[5], high[5] = 80, 70
    return forward(attn, (steps, key_steps), 1, 1, (steps - 1,), (key_steps - 3,), low, high, **others)


def vectors_in(memory: Any, operation: Any, name: str) -> Any:
    """Return the vectors (time, element) of the first sequence of an operand."""
    spec = getattr(operation, name)
    return memory[name].view(np.float16 if spec.data_type == HALF else np.float32).reshape(spec.dims)[:, 0, 0]


@shows(f"{FORWARD}/c01", f"{FORWARD}/c11")
@pytest.mark.parametrize("data_type", [FLOAT, HALF], ids=lambda t: t.name)
def test_scores_that_are_infinite(trial: Callable[..., Trial], data_type: Any) -> None:
    """A key with score minus infinity has weight zero. One with score infinity makes the query NaN."""
    operation = forward(with_projections(0, 0, 0, 0, data_type=data_type), lengths=None)
    before = prepare(operation, "normal", 0)
    keys, queries = (vectors_in(before, operation, name) for name in ("keys", "queries"))
    keys[1, 0], keys[2, 2] = -np.inf, np.inf
    queries[:, 2] = -np.abs(queries[:, 2])
    trial(operation, before=before)


@shows(f"{FORWARD}/c01", f"{FORWARD}/c11")
@pytest.mark.parametrize("data_type", [FLOAT, HALF], ids=lambda t: t.name)
def test_infinite_values_that_have_no_weight(trial: Callable[..., Trial], data_type: Any) -> None:
    """An infinite value gives infinity or NaN where its weight is zero or underflows.

    The weight is zero where the score is minus infinity. Queries whose scores are all minus infinity have no softmax:
    their results are NaN.
    """
    operation = forward(with_projections(0, 0, 0, 0, data_type=data_type), lengths=None)
    for low in (-300.0, -np.inf):
        before = prepare(operation, "normal", 0)
        keys, queries, values = (vectors_in(before, operation, name) for name in ("keys", "queries", "values"))
        queries[:, 0], keys[:, 0], keys[:2, 0] = 200, np.abs(keys[:, 0]), low
        values[0, 1], values[1, 2] = np.inf, -np.inf
        trial(operation, before=before)
        keys[:, 0] = -np.inf
        trial(operation, before=before)


@shows(f"{FORWARD}/c01 c11 c16")
@pytest.mark.parametrize("name", OF_TENSOR_CORES)
def test_tiles_of_tensor_cores(trial: Callable[..., Trial], name: Any) -> None:
    """NaN in padding changes no query, and NaN in a full tile only the queries whose windows cover it."""
    operation = of_tensor_cores(name)
    before = prepare(operation, "normal", 1)
    keys, values = (vectors_in(before, operation, n) for n in ("keys", "values"))
    length = operation.keys.lengths[0]
    keys[length:], values[length:] = np.nan, np.inf
    values[75, 1], values[90, 2] = -np.inf, np.nan
    if len(keys) > 200:
        keys[285, 3] = np.nan
    trial(operation, before=before)


LAYOUTS_OF_TENSOR_CORES = [
    *product([(0, 1, 2), (2, 0, 1)], [0, ONE_TO_ONE], [0, 1], [HALF]),
    *product([(2, 0, 1)], [0, ONE_TO_ONE], [0], [FLOAT]),
]


def layout_of_tensor_cores(
    order: tuple[int, ...], mode: int, projected: int, data_type: cudnnDataType_t, **others: Any
) -> Any:
    """Return vectors of a multiple of 16 bytes, with beams, heads and many queries. Lengths vary and may be zero."""
    attn = attention(
        (projected * 8, projected * 8, projected * 24, projected * 16), (16, 16, 8), 2, mode, 0.2, data_type, longest=(70, 80), beams=2
    )  # fmt: skip
    axes = (*(AXES[i] for i in order), AXES[3])
    keys = (80, 64, 78, 65) if mode else (80, 65)
    low, high = [max(0, t - 50) for t in range(70)], [min(80, 2 * t + 1) for t in range(70)]
    return forward(attn, (70, 80), 2, 2, (70, 66, 0, 70), keys, low, high, axes, **others)


@shows(f"{FORWARD}/c01", f"{FORWARD}/c23", "cudnnSetAttnDescriptor/c32", "cudnnSetAttnDescriptor/c33")
@pytest.mark.parametrize("order, mode, projected, data_type", LAYOUTS_OF_TENSOR_CORES)
def test_layouts_of_tensor_cores(
    trial: Callable[..., Trial], order: Any, mode: Any, projected: Any, data_type: Any
) -> None:
    """Every layout and query map works for sequences longer than a tile."""
    operation = layout_of_tensor_cores(order, mode, projected, data_type)
    before = prepare(operation, "normal", 0)
    for name in ("queries", "keys", "values"):
        fill_padding(before, operation, name)
    trial(operation, before=before)


def fill_padding(memory: Any, operation: Any, name: str) -> None:
    """Write NaN into the padding of an operand, and into keys and values that no query attends to."""
    spec = getattr(operation, name)
    stored = (
        memory[name]
        .view(np.float16 if spec.data_type == HALF else np.float32)
        .reshape([spec.dims[axis] for axis in spec.axes])
    )
    array, lengths = stored.transpose(np.argsort(spec.axes)), np.reshape(spec.lengths, spec.dims[1:3])
    for index in np.argwhere(np.arange(spec.dims[0])[:, None, None] >= lengths):
        array[tuple(index)] = (np.nan, np.inf)[index[0] % 2]
    queries = np.reshape(operation.queries.lengths, operation.queries.dims[1:3])
    for batch, beam in np.argwhere(queries == 0) if queries.shape == lengths.shape else ():
        array[3, batch, beam, 1] = np.nan


LONG_OF_TENSOR_CORES = [(2050, 70), (70, 2050), (190, 130)]


def long_of_tensor_cores(steps: tuple[int, int], **others: Any) -> Any:
    """Return a call with enough queries or keys for three warpgroups."""
    attn = attention((0, 0, 0, 0), (16, 16, 8), 1, 0, 0.3, HALF, longest=steps, batches=1, beams=1)
    return forward(attn, steps, 1, 1, None, None, **others)


@shows("cudnnMathType_t/c03", f"{FORWARD}/c01")
def test_factors_keep_eleven_bits(trial: Callable[..., Trial]) -> None:
    """The mean of equal values keeps its last bits; a factor of fewer bits would lose them in every term."""
    attn = attention((0, 0, 0, 0), (4, 4, 5), 1, 0, scaler=0.0)
    operation = forward(attn, lengths=None)
    before = prepare(operation, "normal", 0)
    before["values"].view(np.float32)[:] = 1 + 2.0**-9
    trial(operation, before=before)


# --- refusals ---


@shows(f"{FORWARD}/c05 c06 c36")
def test_spaces(subject: Subject, caller: Caller, refuses: Callable[..., bool]) -> None:
    """A reserve space without its size, or a size without it, is refused, and so is a space that is a byte too small."""
    inference, training = (Called(caller, forward(trains=trains)) for trains in (False, True))
    sizes = training.arguments
    for size in (1, sizes["reserveSpaceSizeInBytes"]):
        refuses(BAD_PARAM, f"{FORWARD}/c06", inference, reserveSpaceSizeInBytes=size)
    refuses(BAD_PARAM, f"{FORWARD}/c05", training, reserveSpaceSizeInBytes=0)
    for name in ("weightSizeInBytes", "workSpaceSizeInBytes", "reserveSpaceSizeInBytes"):
        if sizes[name] or subject.cites_clauses:
            refuses(BAD_PARAM, f"{FORWARD}/c36", training, **{name: sizes[name] - 1})
    inference(weightSizeInBytes=sizes["weightSizeInBytes"] + 16)


@shows("cudnnGetMultiHeadAttnBuffers/c05")
@pytest.mark.blind("a result off by one", "larger spaces than are needed are accepted")
@needs("cites_clauses", "a fault on a GPU ends the process's work there")
def test_spaces_begin_at_16_bytes(caller: Caller, refuses: Callable[..., bool]) -> None:
    call = Called(caller, forward(trains=True))
    for name in ("workSpace", "reserveSpace"):
        size = call.arguments[f"{name}SizeInBytes"]
        memory = caller.handle.allocate(size + 16)
        for offset in (1, 8):
            clause = f"{FORWARD}/c34" if name == "workSpace" else "cudnnStatus_t/c05"
            refuses(BAD_PARAM, clause, call, **{name: memory.slice(offset, size)})
        call(**{name: memory.slice(16, size)})
