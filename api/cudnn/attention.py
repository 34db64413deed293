"""Implement multi-head attention: forward (7.2.35), gradients of data and of weights (8.2.15, 8.2.16)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..enumerations import CUDNN_ATTN_QUERYMAP_ONE_TO_ONE, cudnnSeqDataAxis_t
from ..functions import computing
from ..operations import (
    AttnSpec,
    MultiHeadAttnBackwardData,
    MultiHeadAttnBackwardWeights,
    MultiHeadAttnForward,
    MultiHeadAttnStep,
    SeqDataSpec,
)
from ..status import BAD_PARAM, NOT_SUPPORTED, expect
from .attention_weights import buffer_sizes

if TYPE_CHECKING:
    from ..enumerations import cudnnWgradMode_t
    from ..handle import Handle

TIME, BATCH, BEAM, VECT = cudnnSeqDataAxis_t
FORWARD = "cudnnMultiHeadAttnForward"


def check_sequences(clauses: dict[str, str], attn: AttnSpec, **data: SeqDataSpec) -> None:
    """Raise BAD_PARAM unless queries, keys, values and outputs, in this order, fit each other and the attention
    descriptor.

    clauses: maps "lengths" (of keys and values), "output_lengths" (of queries and outputs), "layout" and "*" (all else)
    to clauses.
    """
    q, k, *_ = data.values()
    names = dict(zip("qkvo", data, strict=True))
    others = clauses["*"]
    for name, spec in data.items():
        expect(spec.data_type == attn.data_type, BAD_PARAM, others,
               f"{name} has data type {spec.data_type.name}, attnDesc {attn.data_type.name}")  # fmt: skip
        expect(spec.axes == q.axes, BAD_PARAM, clauses["layout"],
               f"{name} has the axes {[a.name for a in spec.axes]}, {names['q']} {[a.name for a in q.axes]}")  # fmt: skip
        expect(spec.dims[BATCH] == q.dims[BATCH], BAD_PARAM, others,
               f"{name} has {spec.dims[BATCH]} batches, {names['q']} {q.dims[BATCH]}")  # fmt: skip
    sizes = zip(data.items(), (attn.q_size, attn.k_size, attn.v_size, attn.output_size), strict=True)
    for (name, spec), size in sizes:
        expect(spec.dims[VECT] == size, BAD_PARAM, others,
               f"{name} has vectors of {spec.dims[VECT]} elements, those of attnDesc have {size}")  # fmt: skip
    for first, second, clause in (("q", "o", clauses["output_lengths"]), ("k", "v", clauses["lengths"])):
        one, other = data[names[first]], data[names[second]]
        for axis in (TIME, BEAM):
            expect(one.dims[axis] == other.dims[axis], BAD_PARAM, others,
                   f"{names[first]} has {axis.name} {one.dims[axis]}, {names[second]} {other.dims[axis]}")  # fmt: skip
        expect(one.lengths == other.lengths, BAD_PARAM, clause,
               f"sequence lengths differ: {names[first]} {one.lengths}, {names[second]} {other.lengths}")  # fmt: skip
    limits = (
        (names["q"], TIME, q, "qoMaxSeqLength", attn.qo_longest), (names["k"], TIME, k, "kvMaxSeqLength", attn.kv_longest),
        (names["q"], BATCH, q, "maxBatchSize", attn.max_batches), (names["q"], BEAM, q, "maxBeamSize", attn.max_beams),
    )  # fmt: skip
    for name, axis, spec, limit, most in limits:
        expect(spec.dims[axis] <= most, BAD_PARAM, others,
               f"{name} has {axis.name} {spec.dims[axis]}, {limit} of attnDesc is {most}")  # fmt: skip
    one_to_one = attn.mode & CUDNN_ATTN_QUERYMAP_ONE_TO_ONE
    beams = q.dims[BEAM] if one_to_one else 1
    mapping = "ONE_TO_ONE" if one_to_one else "ALL_TO_ONE"
    expect(k.dims[BEAM] == beams, BAD_PARAM, others,
           f"{names['k']} has {k.dims[BEAM]} beams, CUDNN_ATTN_QUERYMAP_{mapping} and {q.dims[BEAM]} query beams need {beams}")  # fmt: skip


def check_spaces(attn: AttnSpec, weights: Any, null: str, other: str, **sizes: int | None) -> None:
    """Raise BAD_PARAM unless weights, work space and reserve space have the sizes of cudnnGetMultiHeadAttnBuffers; None
    skips a space."""
    for (name, size), needed in zip(sizes.items(), buffer_sizes(attn, other), strict=True):
        expect(size is None or size >= needed, BAD_PARAM, other,
               f"{name} is {size}, cudnnGetMultiHeadAttnBuffers says {needed}")  # fmt: skip
    expect(weights is not None or not buffer_sizes(attn, other)[0], BAD_PARAM, null, "weights is NULL")


def windows(low: Any, high: Any, steps: range, keys: int, clause: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the windows of the time-steps in ``steps``, clamped to the existing keys."""
    for name, found in (("loWinIdx", low), ("hiWinIdx", high)):
        expect(len(found) >= steps.stop, BAD_PARAM, clause,
               f"{name} has {len(found)} entries, time-step {steps.stop - 1} needs its own")  # fmt: skip
    low, high = (tuple(min(max(found[i], 0), keys) for i in steps) for found in (low, high))
    return low, high


@computing(
    invalid={
        "attnDesc": "c34", "loWinIdx": "c34", "hiWinIdx": "c34", "devSeqLengthsQO": "c34", "devSeqLengthsKV": "c34",
        "qDesc": "c34", "queries": "c34", "residuals": "c34", "kDesc": "c34", "keys": "c34", "vDesc": "c34", "values": "c34",
        "oDesc": "c34", "out": "c34", "weights": "c34", "workSpace": "c34",
    },
    failed="c38", optional=["weights"],
)  # fmt: skip
def cudnnMultiHeadAttnForward(
    handle: Handle, attnDesc: AttnSpec, currIdx: int, loWinIdx: Sequence[int], hiWinIdx: Sequence[int], devSeqLengthsQO: Any, devSeqLengthsKV: Any, qDesc: SeqDataSpec, queries: Any, residuals: Any, kDesc: SeqDataSpec, keys: Any,
    vDesc: SeqDataSpec, values: Any, oDesc: SeqDataSpec, out: Any, weightSizeInBytes: int, weights: Any, workSpaceSizeInBytes: int, workSpace: Any, reserveSpaceSizeInBytes: int,
    reserveSpace: Any,
) -> MultiHeadAttnForward | MultiHeadAttnStep:  # fmt: skip
    """Compute out = sum over heads of W_O h + b_O + residuals, where h = sum over the window of softmax(smScaler * k .
    q) * v.

    k, q and v are projected vectors; without output projection, out is the concatenation of all h.
    currIdx: the time-step to compute in all sequences, for inference only; a negative value computes all time-steps.
    loWinIdx, hiWinIdx: one entry per time-step of qDesc. The window holds the existing keys with loWinIdx <= index <
    hiWinIdx. An empty window gives h = 0. A call with currIdx uses only its entry.
    devSeqLengthsQO, devSeqLengthsKV: sequence lengths as int32 in device memory, by batch, then beam.
    residuals: described by qDesc, or NULL. weights may be NULL if attnDesc has none.
    In inference reserveSpaceSizeInBytes is 0 and reserveSpace NULL; training needs both. Outputs of padding are zeros.
    Errors: BAD_PARAM for NULL (c34), currIdx beyond the time-steps (c35) or in training (c10), too few windows (c13),
    lengths that differ (c21, c22), differing axes (c24), residuals of another length than the output (c28), a
    reserve space without its size or the reverse (c05, c06), data that does not fit attnDesc, spaces that are too small (c36). Source: 7.2.35; formula:
    7.2.43.
    """
    attn, steps = attnDesc, qDesc.dims[TIME]
    clauses = {
        "lengths": f"{FORWARD}/c21",
        "output_lengths": f"{FORWARD}/c22",
        "layout": f"{FORWARD}/c24",
        "*": f"{FORWARD}/c36",
    }
    check_sequences(clauses, attn, qDesc=qDesc, kDesc=kDesc, vDesc=vDesc, oDesc=oDesc)
    expect(residuals is None or attn.q_size == attn.output_size, BAD_PARAM, f"{FORWARD}/c28",
           f"residuals have vectors of {attn.q_size} elements, outputs of {attn.output_size}")  # fmt: skip
    trains = reserveSpace is not None
    expect(trains == (reserveSpaceSizeInBytes > 0), BAD_PARAM, f"{FORWARD}/{'c05' if trains else 'c06'}",
           f"reserveSpace is {'given' if trains else 'NULL'}, reserveSpaceSizeInBytes is {reserveSpaceSizeInBytes}")  # fmt: skip
    expect(
        not (trains and attn.dropout),
        NOT_SUPPORTED,
        "cudnnSetAttnDescriptor/c39",
        f"training with a dropout of {attn.dropout}",
    )
    expect(currIdx < steps, BAD_PARAM, f"{FORWARD}/c35", f"currIdx is {currIdx}, qDesc has {steps} time-steps")
    expect(currIdx < 0 or not trains, BAD_PARAM, f"{FORWARD}/c10",
           f"currIdx is {currIdx} in the training mode, which needs a negative one")  # fmt: skip
    check_spaces(
        attn, weights, f"{FORWARD}/c34", f"{FORWARD}/c36", weightSizeInBytes=weightSizeInBytes,
        workSpaceSizeInBytes=workSpaceSizeInBytes, reserveSpaceSizeInBytes=reserveSpaceSizeInBytes if trains else None,
    )  # fmt: skip
    chosen = range(steps) if currIdx < 0 else range(currIdx, currIdx + 1)
    low, high = windows(loWinIdx, hiWinIdx, chosen, kDesc.dims[TIME], f"{FORWARD}/c13")
    added = None if residuals is None else qDesc
    if currIdx < 0:
        return MultiHeadAttnForward(attn, low, high, qDesc, added, kDesc, vDesc, oDesc, trains)
    return MultiHeadAttnStep(attn, currIdx, low, high, qDesc, added, kDesc, vDesc, oDesc)


def check_gradient(name: str, bad: str, unsupported: str, attn: AttnSpec, **data: SeqDataSpec) -> None:
    """Raise an error unless the data fits the attention descriptor and there are no biases, as both gradients require."""
    check_sequences(dict.fromkeys(("lengths", "output_lengths", "layout", "*"), f"{name}/{bad}"), attn, **data)
    expect(not attn.has_biases, NOT_SUPPORTED, f"{name}/{unsupported}",
           "attnDesc has CUDNN_ATTN_ENABLE_PROJ_BIASES, which the gradients do not support")  # fmt: skip


DATA = "cudnnMultiHeadAttnBackwardData"
WEIGHTS = "cudnnMultiHeadAttnBackwardWeights"


@computing(invalid={"*": "c23"}, failed="c25", optional=["weights"])
def cudnnMultiHeadAttnBackwardData(
    handle: Handle, attnDesc: AttnSpec, loWinIdx: Sequence[int], hiWinIdx: Sequence[int], devSeqLengthsDQDO: Any, devSeqLengthsDKDV: Any, doDesc: SeqDataSpec, dout: Any, dqDesc: SeqDataSpec, dqueries: Any, queries: Any, dkDesc: SeqDataSpec,
    dkeys: Any, keys: Any, dvDesc: SeqDataSpec, dvalues: Any, values: Any, weightSizeInBytes: int, weights: Any, workSpaceSizeInBytes: int, workSpace: Any, reserveSpaceSizeInBytes: int,
    reserveSpace: Any,
) -> MultiHeadAttnBackwardData:  # fmt: skip
    """Compute the gradients dqueries, dkeys and dvalues of the sum of dout * out; residuals do not contribute.

    The call follows cudnnMultiHeadAttnForward in training mode, with the same windows, lengths, data, weights and
    reserveSpace. It leaves data in reserveSpace for cudnnMultiHeadAttnBackwardWeights.
    dqDesc describes queries and dqueries, dkDesc keys and dkeys, dvDesc values and dvalues. Gradients of padding are
    zeros. Gradients of keys and values that several beams share are summed.
    Errors: BAD_PARAM for NULL, data that does not fit attnDesc, spaces that are too small, too few windows (c23);
    NOT_SUPPORTED for biases (c27). Source: 8.2.15; formula: 7.2.43.
    """
    attn = attnDesc
    check_gradient(DATA, "c23", "c27", attn, dqDesc=dqDesc, dkDesc=dkDesc, dvDesc=dvDesc, doDesc=doDesc)
    check_spaces(
        attn, weights, f"{DATA}/c23", f"{DATA}/c23", weightSizeInBytes=weightSizeInBytes,
        workSpaceSizeInBytes=workSpaceSizeInBytes, reserveSpaceSizeInBytes=reserveSpaceSizeInBytes,
    )  # fmt: skip
    low, high = windows(loWinIdx, hiWinIdx, range(dqDesc.dims[TIME]), dkDesc.dims[TIME], f"{DATA}/c23")
    return MultiHeadAttnBackwardData(attn, low, high, doDesc, dqDesc, dkDesc, dvDesc)


@computing(invalid={"*": "c14"}, failed="c16", optional=["weights", "dweights"])
def cudnnMultiHeadAttnBackwardWeights(
    handle: Handle, attnDesc: AttnSpec, addGrad: cudnnWgradMode_t, qDesc: SeqDataSpec, queries: Any, kDesc: SeqDataSpec, keys: Any, vDesc: SeqDataSpec, values: Any, doDesc: SeqDataSpec, dout: Any, weightSizeInBytes: int, weights: Any, dweights: Any,
    workSpaceSizeInBytes: int, workSpace: Any, reserveSpaceSizeInBytes: int, reserveSpace: Any,
) -> MultiHeadAttnBackwardWeights:  # fmt: skip
    """Compute the gradients of all weights in the layout of the weights; addGrad says whether they are added to
    dweights or replace it.

    The call follows cudnnMultiHeadAttnBackwardData, with the same data, weights, dout and reserveSpace. weights and
    dweights may be NULL if attnDesc has no weights.
    Errors: BAD_PARAM for NULL, an unknown addGrad, data that does not fit attnDesc, spaces that are too small (c14);
    NOT_SUPPORTED for biases (c18). Source: 8.2.16; formula: 7.2.43.
    """
    attn = attnDesc
    check_gradient(WEIGHTS, "c14", "c18", attn, qDesc=qDesc, kDesc=kDesc, vDesc=vDesc, doDesc=doDesc)
    check_spaces(
        attn, weights, f"{WEIGHTS}/c14", f"{WEIGHTS}/c14", weightSizeInBytes=weightSizeInBytes,
        workSpaceSizeInBytes=workSpaceSizeInBytes, reserveSpaceSizeInBytes=reserveSpaceSizeInBytes,
    )  # fmt: skip
    return MultiHeadAttnBackwardWeights(attn, addGrad, qDesc, kDesc, vDesc, doDesc)
