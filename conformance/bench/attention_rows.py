"""Lists rows of multi-head attention: layers of transformers, awkward sizes, one step of a decoder."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import sqrt

from dualdnn.api.enumerations import cudnnDataType_t, cudnnMathType_t, cudnnSeqDataAxis_t, cudnnWgradMode_t
from dualdnn.api.operations import (
    AttnSpec,
    MultiHeadAttnBackwardData,
    MultiHeadAttnBackwardWeights,
    MultiHeadAttnForward,
    MultiHeadAttnStep,
    Operation,
    SeqDataSpec,
)
from dualdnn.api.operations.specs import DOUBLE, FLOAT, HALF

from .row import Row

TIME, BATCH, BEAM, VECT = cudnnSeqDataAxis_t
AXES = (BATCH, BEAM, TIME, VECT)
DEFAULT = cudnnMathType_t.CUDNN_DEFAULT_MATH
# name -> (query steps, key steps, batches, heads, size of a head, size of the vectors, whether it is causal)
SHAPES = {
    "base encoder": (512, 512, 16, 8, 64, 512, False),
    "large decoder": (1024, 1024, 4, 16, 64, 1024, True),
    "cross": (128, 512, 16, 16, 64, 1024, False),
    "awkward": (77, 131, 5, 3, 40, 90, True),
}


# These rows time attention in half with one head and no projections, with and without a causal mask. The entries are
# steps of queries and keys -> batches.
CORES = {512: 512, 2048: 128, 4096: 64, 16384: 16}
CORE_SIZES = (64, 128)


def spec(
    data_type: cudnnDataType_t,
    heads: int,
    size: int,
    vector: int,
    longest: tuple[int, int],
    batches: int,
    projected: bool,
) -> AttnSpec:
    """Return an attention with all four projections, or with none."""
    sizes = (size, size, size, vector) if projected else (0, 0, 0, 0)
    vectors = (vector,) * 3 if projected else (size,) * 3
    return AttnSpec(0, heads, 1 / sqrt(size), data_type, data_type, DEFAULT, *vectors, *sizes, *longest, batches, 1)


def sequences(attn: AttnSpec, size: int, steps: int, batches: int) -> SeqDataSpec:
    return SeqDataSpec(attn.data_type, (steps, batches, 1, size), AXES, (steps,) * batches)


def forward(attn: AttnSpec, steps: tuple[int, int], batches: int, causal: bool, trains: bool) -> MultiHeadAttnForward:
    """Return the call for all time-steps. A query sees all keys, or with ``causal`` those up to its own time-step."""
    q, o = (sequences(attn, size, steps[0], batches) for size in (attn.q_size, attn.output_size))
    k, v = (sequences(attn, size, steps[1], batches) for size in (attn.k_size, attn.v_size))
    high = tuple(min(t + 1, steps[1]) if causal else steps[1] for t in range(steps[0]))
    return MultiHeadAttnForward(attn, (0,) * steps[0], high, q, None, k, v, o, trains)


def step(attn: AttnSpec, current: int, longest: int, batches: int) -> MultiHeadAttnStep:
    """Return the call for the time-step ``current``, which sees all keys up to its own."""
    q, o = (sequences(attn, size, longest, batches) for size in (attn.q_size, attn.output_size))
    k, v = (sequences(attn, size, longest, batches) for size in (attn.k_size, attn.v_size))
    return MultiHeadAttnStep(attn, current, (0,), (current + 1,), q, None, k, v, o)


def gradients(training: MultiHeadAttnForward) -> Iterator[tuple[str, Operation]]:
    """Yield (name, call) for the gradients of a training call: of the data, and of the weights if there are any."""
    t, mode = training, cudnnWgradMode_t.CUDNN_WGRAD_MODE_SET
    yield "data", MultiHeadAttnBackwardData(t.attn, t.lo_win_idx, t.hi_win_idx, t.out, t.queries, t.keys, t.values)
    if t.weights is not None:
        yield "weights", MultiHeadAttnBackwardWeights(t.attn, mode, t.queries, t.keys, t.values, t.out)


def attention_rows() -> Iterator[Row]:
    for data_type in (FLOAT, HALF):
        kind = data_type.name.removeprefix("CUDNN_DATA_").lower()
        for name, (queries, keys, batches, heads, size, vector, causal) in SHAPES.items():
            for projected in (True, False):
                attn = spec(data_type, heads, size, vector, (queries, keys), batches, projected)
                shape = f"{batches}x{queries}x{keys} heads {heads}x{size}{' causal' if causal else ''} {kind}"
                family = f"attention {'with projections' if projected else 'core'} forward"
                yield Row(f"{family} {name} {shape}", family, forward(attn, (queries, keys), batches, causal, False))
                for of, gradient in gradients(forward(attn, (queries, keys), batches, causal, True)):
                    family = f"attention {'with projections' if projected else 'core'} gradient of {of}"
                    yield Row(f"{family} {name} {shape}", family, gradient)
        attn = spec(data_type, 16, 64, 1024, (512, 512), 32, True)
        yield Row(f"attention step 511 32x512 heads 16x64 {kind}", "attention step", step(attn, 511, 512, 32))
    yield from core_rows()


def core_rows() -> Iterator[Row]:
    for size, (steps, batches), causal in product(CORE_SIZES, CORES.items(), (False, True)):
        attn = spec(HALF, 1, size, size, (steps, steps), batches, False)
        shape = f"{batches}x{steps}x{steps} head {size}{' causal' if causal else ''} half"
        training = forward(attn, (steps, steps), batches, causal, True)
        inference = forward(attn, (steps, steps), batches, causal, False)
        yield Row(f"attention head forward {shape}", "attention head forward", inference)
        data = dict(gradients(training))["data"]
        yield Row(f"attention head gradient of data {shape}", "attention head gradient of data", data)


def attention_kinds() -> Iterator[Operation]:
    """Return small calls that together use every kernel in every data type."""
    for data_type in (FLOAT, HALF, DOUBLE):
        for projected in (True, False):
            attn = spec(data_type, 2, 4, 8, (4, 4), 2, projected)
            training = forward(attn, (4, 4), 2, True, True)
            yield training
            yield from (gradient for _, gradient in gradients(training))
            yield step(attn, 2, 4, 2)
