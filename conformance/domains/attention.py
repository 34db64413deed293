"""Draw multi-head attention: all time-steps or one, and in training the gradients after them."""

from __future__ import annotations

from itertools import permutations

from dualdnn.api.enumerations import (
    CUDNN_ATTN_ENABLE_PROJ_BIASES,
    CUDNN_ATTN_QUERYMAP_ONE_TO_ONE,
    cudnnSeqDataAxis_t,
    cudnnWgradMode_t,
)
from dualdnn.api.operations import (
    AttnSpec,
    MultiHeadAttnBackwardData,
    MultiHeadAttnBackwardWeights,
    MultiHeadAttnForward,
    MultiHeadAttnStep,
    SeqDataSpec,
)
from dualdnn.api.support.attention import PRECISIONS

from .pieces import Drawn, Source, need

OPERATIONS = (MultiHeadAttnForward, MultiHeadAttnStep, MultiHeadAttnBackwardData, MultiHeadAttnBackwardWeights)
TIME, BATCH, BEAM, VECT = cudnnSeqDataAxis_t
AXES = tuple((*outer, VECT) for outer in permutations((TIME, BATCH, BEAM)))
TILED = (8, 16, 32, 64)  # lengths of vectors that tiles divide
LONG = (160, 256)  # lengths of vectors whose gradients have a kernel each
SET = cudnnWgradMode_t.CUDNN_WGRAD_MODE_SET
SCALERS = (0.3, 1.0, 0.0)
MAX_PRODUCTS = 1_500_000


def draw(source: Source) -> Drawn:
    """Draw an attention with its sequences, and the calls on it."""
    attn, steps, batches, beams = attention(source)
    axes, key_beams = source.pick(AXES), beams if attn.mode & CUDNN_ATTN_QUERYMAP_ONE_TO_ONE else 1
    lengths = tuple(source.integer(0, steps[0]) for _ in range(batches * beams))
    key_lengths = tuple(source.integer(0, steps[1]) for _ in range(batches * key_beams))
    queries = SeqDataSpec(attn.data_type, (steps[0], batches, beams, attn.q_size), axes, lengths)
    keys, values = (
        SeqDataSpec(attn.data_type, (steps[1], batches, key_beams, size), axes, key_lengths)
        for size in (attn.k_size, attn.v_size)
    )
    out = SeqDataSpec(attn.data_type, (steps[0], batches, beams, attn.output_size), axes, lengths)
    low, high = windows(source, steps)
    residuals = queries if attn.q_size == attn.output_size and source.chance(50) else None
    kinds = source.inputs(("normal", "positive", "ties"), ("special", "infinite"))
    if source.chance(20):
        at = source.integer(0, steps[0] - 1)
        return Drawn(
            (MultiHeadAttnStep(attn, at, (low[at],), (high[at],), queries, residuals, keys, values, out),), kinds
        )
    trains = not attn.has_biases and source.chance(75)
    first = MultiHeadAttnForward(attn, low, high, queries, residuals, keys, values, out, trains)
    need(first.products <= MAX_PRODUCTS)
    behind = (backward_data(first), backward_weights(first, source.pick(tuple(cudnnWgradMode_t)))) if trains else ()
    return Drawn((first, *(behind if first.weights else behind[:1])), kinds)


def attention(source: Source) -> tuple[AttnSpec, tuple[int, int], int, int]:
    """Draw an attention descriptor, the time-steps of queries and keys, and the numbers of batches and beams.

    Projections are on or off. Queries and keys have the same length where their dot products are taken.
    """
    (data_type, precision), maths = source.pick(tuple(PRECISIONS.items()))
    q, k, v, o = (source.chance(50) for _ in range(4))
    met, of_values = length(source), length(source)
    sizes = length(source) if q else met, length(source) if k else met, length(source)
    projected = met if q else 0, met if k else 0, of_values if v else 0, length(source) if o else 0
    steps = min(source.extent(), 70), min(source.extent(), 140)
    batches, beams = source.integer(1, 3), source.integer(1, 3)
    # The gradients refuse biases.
    mode = source.pick((0, 0, CUDNN_ATTN_ENABLE_PROJ_BIASES)) | source.pick((0, CUDNN_ATTN_QUERYMAP_ONE_TO_ONE))
    spare = source.integer(0, 2)  # The descriptor allows this much more than the call has.
    limits = steps[0] + spare, steps[1] + spare, batches + spare, beams + spare
    heads, scaler = source.integer(1, 4), source.pick(SCALERS)
    spec = AttnSpec(mode, heads, scaler, data_type, precision, source.pick(maths), *sizes, *projected, *limits)
    return spec, steps, batches, beams


def length(source: Source) -> int:
    """Draw the length of a vector: any, one that tiles divide, or a long one."""
    return source.pick((min(source.extent(), TILED[-1]), source.pick(TILED), source.pick((*TILED, *LONG))))


def windows(source: Source, steps: tuple[int, int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Draw windows: all keys, earlier keys, or any, some of them empty."""
    queries, keys = steps
    kind = source.pick(("all", "earlier", "any"))
    if kind == "all":
        return (0,) * queries, (keys,) * queries
    if kind == "earlier":
        return (0,) * queries, tuple(min(step + 1, keys) for step in range(queries))
    low, high = ([source.integer(0, keys) for _ in range(queries)] for _ in range(2))
    return tuple(low), tuple(high)


def backward_data(t: MultiHeadAttnForward) -> MultiHeadAttnBackwardData:
    """Return the gradients of the data of a training call."""
    return MultiHeadAttnBackwardData(t.attn, t.lo_win_idx, t.hi_win_idx, t.out, t.queries, t.keys, t.values)


def backward_weights(t: MultiHeadAttnForward, mode: cudnnWgradMode_t = SET) -> MultiHeadAttnBackwardWeights:
    """Return the gradients of the weights of a training call."""
    return MultiHeadAttnBackwardWeights(t.attn, mode, t.queries, t.keys, t.values, t.out)
