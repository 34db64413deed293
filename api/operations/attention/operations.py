"""Define the operations of cudnnMultiHeadAttnForward (7.2.35), cudnnMultiHeadAttnBackwardData (8.2.15) and
cudnnMultiHeadAttnBackwardWeights (8.2.16).

Query time-step t attends to the existing keys lo_win_idx[t] <= k < hi_win_idx[t]; a query without keys has zeros as
head results. Sequence lengths in device memory are clamped to the number of steps. Vectors after the length are
padding.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

from ...enumerations import cudnnWgradMode_t
from ..operation import MemoryRequirement, Operation
from ..records import record
from ..specs import INT32, AttnSpec, SeqDataSpec, TensorSpec
from .memory import Extents, space_bytes, weight_count

TIME, BATCH, BEAM = range(3)
ALIGNMENT = 16  # bytes, the alignment of work and reserve space (7.2.15)


def sequences(data: SeqDataSpec) -> int:
    """Return how many sequences there are: batches times beams."""
    return data.dims[BATCH] * data.dims[BEAM]


def lengths(data: SeqDataSpec) -> TensorSpec:
    """Return the tensor of sequence lengths in device memory."""
    return TensorSpec(INT32, (sequences(data),), (1,))


def pairs(o: Any) -> int:
    """Return how many pairs of a query and a key the windows of a call contain."""
    found = sum(max(0, high - low) for low, high in zip(o.lo_win_idx, o.hi_win_idx, strict=True))
    return found * sequences(o.queries)


def projected(attn: AttnSpec, extents: Extents, steps: int) -> int:
    """Return how many multiplications the enabled projections need for ``steps`` query time-steps and all keys."""
    of_queries = attn.q_projected * attn.q_size + attn.o_projected * attn.value_size
    of_keys = attn.k_projected * attn.k_size + attn.v_projected * attn.v_size
    return attn.heads * (of_queries * steps * extents.q_sequences + of_keys * extents.k_vectors)


class Attention(Operation):
    """Define what the operations share: weights and spaces follow from the attention descriptor."""

    attn: AttnSpec
    queries: SeqDataSpec
    keys: SeqDataSpec
    # This maps a length array in device memory to the operand whose sequences it measures.
    lengths_of: ClassVar[dict[str, str]] = {}

    @cached_property
    def weights(self) -> TensorSpec | None:
        """Return all weights as one vector, or None if the attention has none."""
        count = weight_count(self.attn)
        return TensorSpec(self.attn.data_type, (count,), (1,)) if count else None

    @cached_property
    def extents(self) -> Extents:
        return Extents(self.queries.dims[TIME], sequences(self.queries), self.keys.dims[TIME], sequences(self.keys))

    @property
    def counts(self) -> Mapping[str, int]:
        return self._counts(self.attn.q_projected, max(self.attn.k_projected, self.attn.v_projected))

    def _counts(self, query_size: int, key_size: int) -> Mapping[str, int]:
        vectors = {"queries": self.extents.q_vectors * query_size, "keys": self.extents.k_vectors * key_size}
        of_heads = {f"projected {name} of all heads": self.attn.heads * count for name, count in vectors.items()}
        return {**of_heads, "results of all heads": self.attn.heads * self.attn.value_size * self.extents.q_vectors}

    @cached_property
    def workspace_bytes(self) -> int:
        return space_bytes(self.attn)[1]

    def memory_requirements(self) -> dict[str, MemoryRequirement]:
        required = super().memory_requirements()
        spaces = required.keys() & {"workSpace", "reserveSpace"}
        return required | {name: required[name]._replace(alignment=ALIGNMENT) for name in spaces}


class _Forward(Attention):
    lo_win_idx: tuple[int, ...]
    hi_win_idx: tuple[int, ...]

    lengths_of: ClassVar = {"devSeqLengthsQO": "queries", "devSeqLengthsKV": "keys"}

    @cached_property
    def devSeqLengthsQO(self) -> TensorSpec:
        return lengths(self.queries)

    @cached_property
    def devSeqLengthsKV(self) -> TensorSpec:
        return lengths(self.keys)

    @cached_property
    def products(self) -> int:
        """Return how many multiplications the call needs: for scores, for weighted values and for the enabled
        projections."""
        size = self.attn.query_size + self.attn.value_size
        return pairs(self) * self.attn.heads * size + projected(self.attn, self.extents, len(self.lo_win_idx))


@record
class MultiHeadAttnForward(_Forward):
    """Compute out = sum over heads of W_O h + b_O + residuals for all time-steps; without output projection, heads are
    concatenated.

    h = sum over the window of softmax(scaler * (W_K k + b_K) . (W_Q q + b_Q)) * (W_V v + b_V).
    trains: whether reserveSpace receives what the gradients need.
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
        """Return the time-step of the first window."""
        return 0


@record
class MultiHeadAttnStep(_Forward):
    """Compute the same for one time-step of every sequence; the other steps of out keep their values."""

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
        """Return the time-step of the window."""
        return self.curr_idx


class _Gradient(Attention):
    """Define what the gradients share: an earlier training call filled the reserve space."""

    @cached_property
    def reserve_bytes(self) -> int:
        return space_bytes(self.attn)[2]

    @property
    def counts(self) -> Mapping[str, int]:
        """Return the counts of all heads' gradients, which exist without a projection, too."""
        return self._counts(self.attn.query_size, max(self.attn.key_size, self.attn.value_size))


@record
class MultiHeadAttnBackwardData(_Gradient):
    """Compute the gradients of queries, keys and values; residuals do not contribute to them."""

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
        """Return how many multiplications the call needs: for scores, their gradients, the three vectors' gradients and
        the enabled projections."""
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
    """Compute the gradients of all weights in the layout of the weights; they replace dweights or are added to it."""

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
        """Return how many multiplications the call needs: as many as the projections."""
        return projected(self.attn, self.extents, self.extents.q_steps)

    @property
    def factor(self) -> float:
        return 1.0

    @property
    def prior_factor(self) -> float:
        """Return the factor of the prior contents of dweights."""
        return 1.0 if self.add_grad == cudnnWgradMode_t.CUDNN_WGRAD_MODE_ADD else 0.0
