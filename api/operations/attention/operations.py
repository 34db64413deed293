"""Operations of cudnnMultiHeadAttnForward (7.2.35), cudnnMultiHeadAttnBackwardData (8.2.15) and cudnnMultiHeadAttnBackwardWeights (8.2.16).

Query time-step t attends to the keys lo_win_idx[t] <= k < hi_win_idx[t] that exist; a query without any has zeros for its heads.
Lengths of sequences are those in device memory, limited to the steps that there are; what lies behind them is padding.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar

from ...enumerations import cudnnWgradMode_t
from ..operation import Operation
from ..records import record
from ..specs import INT32, AttnSpec, SeqDataSpec, TensorSpec
from .memory import Extents, space_bytes, weight_count

TIME, BATCH, BEAM = range(3)
ALIGNMENT = 16  # bytes, of work and reserve space (7.2.15)


def sequences(data: SeqDataSpec) -> int:
    """Return how many sequences there are, batches times beams."""
    return data.dims[BATCH] * data.dims[BEAM]


def lengths(data: SeqDataSpec) -> TensorSpec:
    """Return the lengths of the sequences in device memory."""
    return TensorSpec(INT32, (sequences(data),), (1,))


def pairs(o: Any) -> int:
    """Queries and keys that meet in the windows of a call."""
    found = sum(max(0, high - low) for low, high in zip(o.lo_win_idx, o.hi_win_idx, strict=True))
    return found * sequences(o.queries)


def projected(attn: AttnSpec, extents: Extents, steps: int) -> int:
    """Return the products of the projections that are on, of some time-steps of queries."""
    of_queries = attn.q_projected * attn.q_size + attn.o_projected * attn.value_size
    of_keys = attn.k_projected * attn.k_size + attn.v_projected * attn.v_size
    return attn.heads * (of_queries * steps * extents.q_sequences + of_keys * extents.k_vectors)


class Attention(Operation):
    """What the operations have in common: weights and spaces follow from the attention descriptor."""

    attn: AttnSpec
    # Length arrays in device memory -> the sequences that they are of.
    lengths_of: ClassVar[dict[str, str]] = {}

    @cached_property
    def weights(self) -> TensorSpec | None:
        """All weights as one vector; None where the attention has none."""
        count = weight_count(self.attn)
        return TensorSpec(self.attn.data_type, (count,), (1,)) if count else None

    @cached_property
    def workspace_bytes(self) -> int:
        return space_bytes(self.attn)[1]

    def alignment(self, operand: str) -> int:
        return ALIGNMENT if operand in ("workSpace", "reserveSpace") else super().alignment(operand)


class _Forward(Attention):
    lo_win_idx: tuple[int, ...]
    hi_win_idx: tuple[int, ...]
    queries: SeqDataSpec
    keys: SeqDataSpec

    lengths_of: ClassVar = {"devSeqLengthsQO": "queries", "devSeqLengthsKV": "keys"}

    @cached_property
    def devSeqLengthsQO(self) -> TensorSpec:
        return lengths(self.queries)

    @cached_property
    def devSeqLengthsKV(self) -> TensorSpec:
        return lengths(self.keys)

    @cached_property
    def products(self) -> int:
        """Return the products of numbers: of the windows' scores and weighed values, and of the projections that are on."""
        size = self.attn.query_size + self.attn.value_size
        return pairs(self) * self.attn.heads * size + projected(self.attn, self.extents, len(self.lo_win_idx))

    @cached_property
    def extents(self) -> Extents:
        return Extents(self.queries.dims[TIME], sequences(self.queries), self.keys.dims[TIME], sequences(self.keys))


@record
class MultiHeadAttnForward(_Forward):
    """Compute out = sum over heads of W_O h + b_O (their concatenation without output projection) + residuals, for all time-steps.

    h = sum over the window of softmax(scaler * (W_K k + b_K) . (W_Q q + b_Q)) * (W_V v + b_V). trains: what the gradients need is
    kept in reserveSpace.
    """

    attn: AttnSpec
    lo_win_idx: tuple[int, ...]
    hi_win_idx: tuple[int, ...]
    queries: SeqDataSpec
    residuals: SeqDataSpec | None
    keys: SeqDataSpec
    values: SeqDataSpec
    out: SeqDataSpec
    trains: bool

    inputs = ("devSeqLengthsQO", "devSeqLengthsKV", "queries", "residuals", "keys", "values", "weights")
    outputs = ("out", "reserveSpace")
    optional = ("residuals", "weights")
    raw: ClassVar = {"workSpace": "workspace_bytes", "reserveSpace": "reserve_bytes"}

    @cached_property
    def reserve_bytes(self) -> int:
        return space_bytes(self.attn)[2] if self.trains else 0

    @property
    def first_step(self) -> int:
        """Return the time-step that the first window is of."""
        return 0


@record
class MultiHeadAttnStep(_Forward):
    """The same for one time-step of every sequence; the other steps of out keep what they have."""

    attn: AttnSpec
    curr_idx: int
    lo_win_idx: tuple[int, ...]
    hi_win_idx: tuple[int, ...]
    queries: SeqDataSpec
    residuals: SeqDataSpec | None
    keys: SeqDataSpec
    values: SeqDataSpec
    out: SeqDataSpec

    inputs = ("devSeqLengthsQO", "devSeqLengthsKV", "queries", "residuals", "keys", "values", "weights", "out")
    outputs = ("out",)
    optional = ("residuals", "weights")
    raw: ClassVar = {"workSpace": "workspace_bytes"}

    @property
    def first_step(self) -> int:
        """Return the time-step that the window is of."""
        return self.curr_idx


class _Gradient(Attention):
    """What the gradients have in common: a training call before them filled the reserve space."""

    queries: SeqDataSpec
    keys: SeqDataSpec

    @cached_property
    def reserve_bytes(self) -> int:
        return space_bytes(self.attn)[2]

    @cached_property
    def extents(self) -> Extents:
        return Extents(self.queries.dims[TIME], sequences(self.queries), self.keys.dims[TIME], sequences(self.keys))


@record
class MultiHeadAttnBackwardData(_Gradient):
    """The gradients of queries, keys and values; residuals add nothing to them."""

    attn: AttnSpec
    lo_win_idx: tuple[int, ...]
    hi_win_idx: tuple[int, ...]
    dout: SeqDataSpec
    queries: SeqDataSpec
    keys: SeqDataSpec
    values: SeqDataSpec

    inputs = (
        "devSeqLengthsDQDO", "devSeqLengthsDKDV", "dout", "queries", "keys", "values", "weights", "reserveSpace",
    )  # fmt: skip
    outputs = ("dqueries", "dkeys", "dvalues", "reserveSpace")
    optional = ("weights",)
    raw: ClassVar = {"workSpace": "workspace_bytes", "reserveSpace": "reserve_bytes"}
    lengths_of: ClassVar = {"devSeqLengthsDQDO": "queries", "devSeqLengthsDKDV": "keys"}

    @cached_property
    def products(self) -> int:
        """Return the products of numbers: scores, their gradients and the three of the vectors, each once, and the projections that are on."""
        size = 3 * self.attn.query_size + 2 * self.attn.value_size
        return pairs(self) * self.attn.heads * size + projected(self.attn, self.extents, self.extents.q_steps)

    @property
    def dqueries(self) -> SeqDataSpec:
        return self.queries

    @property
    def dkeys(self) -> SeqDataSpec:
        return self.keys

    @property
    def dvalues(self) -> SeqDataSpec:
        return self.values

    @cached_property
    def devSeqLengthsDQDO(self) -> TensorSpec:
        return lengths(self.queries)

    @cached_property
    def devSeqLengthsDKDV(self) -> TensorSpec:
        return lengths(self.keys)


@record
class MultiHeadAttnBackwardWeights(_Gradient):
    """The gradients of all weights, which dweights has, or to which they are added, in the layout of the weights."""

    attn: AttnSpec
    add_grad: cudnnWgradMode_t
    queries: SeqDataSpec
    keys: SeqDataSpec
    values: SeqDataSpec
    dout: SeqDataSpec

    inputs = ("queries", "keys", "values", "dout", "weights", "reserveSpace")
    outputs = ("dweights",)
    optional = ("weights", "dweights")
    raw: ClassVar = {"workSpace": "workspace_bytes", "reserveSpace": "reserve_bytes"}
    blends: ClassVar = {"dweights": ("factor", "prior_factor")}

    @property
    def dweights(self) -> TensorSpec | None:
        return self.weights

    @cached_property
    def products(self) -> int:
        """Return the products of numbers: as many as of the projections."""
        return projected(self.attn, self.extents, self.extents.q_steps)

    @property
    def factor(self) -> float:
        return 1.0

    @property
    def prior_factor(self) -> float:
        """Of what dweights has before the call."""
        return 1.0 if self.add_grad == cudnnWgradMode_t.CUDNN_WGRAD_MODE_ADD else 0.0
