"""Evaluate multi-head attention, one query at a time (7.2.35, cudnnMultiHeadAttnForward/c01 to c27; 8.2.15, 8.2.16).

Gradients follow by the chain rule from the same loops. Places of weights: 7.2.16 and docs/errata.md, D312.
"""

from __future__ import annotations

import math
from typing import Any

from dualdnn.api.enumerations import cudnnMultiHeadAttnWeightKind_t as Kind
from dualdnn.api.operations import (
    AttnSpec,
    MultiHeadAttnBackwardData,
    MultiHeadAttnBackwardWeights,
    MultiHeadAttnForward,
    MultiHeadAttnStep,
    SeqDataSpec,
    TensorSpec,
)
from dualdnn.api.operations.attention.memory import weights_of
from dualdnn.api.operations.attention.operations import projected
from dualdnn.api.operations.specs import INT32

from .chain_rule import Matrix, Number, Tape, Vector, leaves, limit
from .elements import Elements, Found, Index, Untold

Place = tuple[int, int, int]  # time-step, batch, beam


class Attended:
    """Hold the numbers of a call: its vectors by place, its weights, and the outputs of the queries.

    first: time-step of the first window. lengths: operands with the lengths of queries and of keys.
    """

    def __init__(self, o: Any, windows: Any, lengths: tuple[str, str], read: Elements) -> None:
        attn: AttnSpec = o.attn
        self.attn, self.tape, self.scaler = attn, Tape(), read.parameter(attn.scaler)
        steps, batches, beams, _ = o.queries.dims
        keys = o.keys.dims[0]
        self.first = getattr(windows, "first_step", 0)
        scored = attn.heads * o.extents.q_vectors * keys * (attn.query_size + attn.value_size)
        limit(scored + projected(attn, o.extents, steps))
        self.queries, self.keys, self.values = (
            vectors(read, name, getattr(o, name)) for name in ("queries", "keys", "values")
        )
        self.weights = leaves(read.whole("weights", o.weights)) if o.weights else []
        self.parts = weights_of(attn)
        of_queries, of_keys = (read.whole(name, _lengths(spec)) for name, spec in zip(lengths, (o.queries, o.keys), strict=True))  # fmt: skip
        self.projected: dict[tuple[int, Kind, Place], Vector] = {}
        self.outputs: dict[Place, Vector] = {}
        for batch in range(batches):
            for beam in range(beams):
                key_beam = beam if o.keys.dims[2] > 1 else 0
                longest = min(keys, max(0, int(of_keys[batch * o.keys.dims[2] + key_beam])))
                for key in range(longest):  # A key outside all windows has its projections, too (D327).
                    for head in range(attn.heads):
                        self._key(head, (key, batch, key_beam))
                        self._value(head, (key, batch, key_beam))
                for turn, (low, high) in enumerate(zip(windows.lo_win_idx, windows.hi_win_idx, strict=True)):
                    step = self.first + turn
                    if step < min(steps, of_queries[batch * beams + beam]):
                        window = [(k, batch, key_beam) for k in range(max(0, low), min(high, longest))]
                        self.outputs[step, batch, beam] = self._output((step, batch, beam), window)

    def _output(self, place: Place, window: list[Place]) -> Vector:
        """Return the sum over heads of W_O h + b_O. Without an output projection, heads are concatenated."""
        heads = [self._head(head, place, window) for head in range(self.attn.heads)]
        if Kind.CUDNN_MH_ATTN_O_WEIGHTS not in self.parts:
            return [number for head in heads for number in head]
        parts = [
            self.tape.products(self._matrix(Kind.CUDNN_MH_ATTN_O_WEIGHTS, i), head) for i, head in enumerate(heads)
        ]
        bias = self._bias(Kind.CUDNN_MH_ATTN_O_BIASES, 0)
        return [self.tape.total(*terms, *bias[i : i + 1]) for i, terms in enumerate(zip(*parts, strict=True))]

    def _head(self, head: int, place: Place, window: list[Place]) -> Vector:
        """Return the values weighted by the softmax of the scaled products; zeros for an empty window."""
        t = self.tape
        q = self._projection(head, Kind.CUDNN_MH_ATTN_Q_WEIGHTS, Kind.CUDNN_MH_ATTN_Q_BIASES, self.queries, place)
        if not window:
            return leaves([0.0] * self.attn.value_size)
        keys, values = [self._key(head, at) for at in window], [self._value(head, at) for at in window]
        scores = [t.scaled(score, self.scaler) for score in t.products(keys, q)]
        if not all(math.isfinite(score.value) for score in scores):
            raise Untold("a score is not finite")  # The document does not say what a softmax is then (D364).
        top = Number(-max(score.value for score in scores))
        terms = [t.exponential(t.total(score, top)) for score in scores]
        total = t.total(*terms)
        return t.products([list(row) for row in zip(*values, strict=True)], [t.quotient(term, total) for term in terms])

    def _key(self, head: int, place: Place) -> Vector:
        return self._projection(head, Kind.CUDNN_MH_ATTN_K_WEIGHTS, Kind.CUDNN_MH_ATTN_K_BIASES, self.keys, place)

    def _value(self, head: int, place: Place) -> Vector:
        return self._projection(head, Kind.CUDNN_MH_ATTN_V_WEIGHTS, Kind.CUDNN_MH_ATTN_V_BIASES, self.values, place)

    def _projection(self, head: int, kind: Kind, bias: Kind, given: dict[Place, Vector], place: Place) -> Vector:
        """Return W x + b, or the vector itself where the projection is off."""
        if kind not in self.parts:
            return given[place]
        if (head, kind, place) not in self.projected:
            found, added = self.tape.products(self._matrix(kind, head), given[place]), self._bias(bias, head)
            self.projected[head, kind, place] = [self.tape.total(*pair) for pair in zip(found, added, strict=True)] if added else found  # fmt: skip
        return self.projected[head, kind, place]

    def _matrix(self, kind: Kind, head: int) -> Matrix:
        part = self.parts[kind]
        (_, rows, columns), (first, row, column) = part.dims, part.strides
        start = part.offset + head * first
        return [[self.weights[start + i * row + j * column] for j in range(columns)] for i in range(rows)]

    def _bias(self, kind: Kind, head: int) -> Vector:
        return [row[0] for row in self._matrix(kind, head)] if kind in self.parts else []


def _lengths(data: SeqDataSpec) -> TensorSpec:
    return TensorSpec(INT32, (data.dims[1] * data.dims[2],), (1,))


def place_of(data: SeqDataSpec, index: Index) -> tuple[Place, int]:
    """Return the place and the element that the axes give an element (7.2.53); the strides say where it is."""
    before, found = sum(i * stride for i, stride in zip(index, data.tensor.strides, strict=True)), [0] * len(data.dims)
    for axis in reversed(data.axes):
        before, found[axis] = divmod(before, data.dims[axis])
    return (found[0], found[1], found[2]), found[3]


def vectors(read: Elements, operand: str, data: SeqDataSpec) -> dict[Place, Vector]:
    """Return the vectors of an operand by their places; ``axes`` lists the axes from the outermost (7.2.53)."""
    values = read.whole(operand, TensorSpec.packed(data.data_type, (1, data.tensor.elements)))
    steps, batches, beams, size = data.dims

    def element(*index: int) -> float:
        before = 0
        for axis in data.axes:
            before = before * data.dims[axis] + index[axis]
        return values[before]

    return {
        (step, batch, beam): leaves(element(step, batch, beam, i) for i in range(size))
        for step in range(steps)
        for batch in range(batches)
        for beam in range(beams)
    }


def forward(o: MultiHeadAttnForward | MultiHeadAttnStep, _output: str, index: Index, read: Elements) -> Found:
    """Return an element of out, to which residuals are added (c26, c27). Other time-steps than currIdx keep theirs."""
    run: Attended = read.once("run", lambda: Attended(o, o, ("devSeqLengthsQO", "devSeqLengthsKV"), read))
    place, i = place_of(o.out, index)
    if isinstance(o, MultiHeadAttnStep) and place[0] != o.curr_idx:
        return Found(read("out", index))
    if place not in run.outputs:
        raise Untold("what padding has is not defined")
    added, residuals = 0.0, o.residuals
    if residuals is not None:
        added = read.once("residuals", lambda: vectors(read, "residuals", residuals))[place][i].value
    return Found(run.outputs[place][i].value + added)


def _derived(o: Any, read: Elements) -> Attended:
    """Return the run whose outputs have the gradients dout, with the windows of the last call that names them."""
    named = [call for call in (*read.earlier, o) if hasattr(call, "lo_win_idx")]
    if not any(isinstance(call, MultiHeadAttnForward) for call in named):
        raise Untold("no forward call filled its reserve space")
    lengths = tuple(named[-1].lengths_of)
    run = Attended(o, named[-1], (lengths[0], lengths[1]), read)
    gradients = vectors(read, "dout", o.dout)
    run.tape.derive(
        (number, gradient.value)
        for place, output in run.outputs.items()
        for number, gradient in zip(output, gradients[place], strict=True)
    )
    return run


def backward_data(o: MultiHeadAttnBackwardData, output: str, index: Index, read: Elements) -> Found:
    """Return the derivative of sum(out dout) by an element of the queries, keys or values (8.2.15)."""
    run: Attended = read.once("run", lambda: _derived(o, read))
    given = {"dqueries": run.queries, "dkeys": run.keys, "dvalues": run.values}[output]
    place, i = place_of(getattr(o, output), index)
    return Found(given[place][i].gradient)


def backward_weights(o: MultiHeadAttnBackwardWeights, _output: str, index: Index, read: Elements) -> Found:
    """Return the same derivative by a weight (8.2.16)."""
    run: Attended = read.once("run", lambda: _derived(o, read))
    return Found(run.weights[index[0]].gradient)


FORMULAS: dict[type, Any] = {
    MultiHeadAttnBackwardData: backward_data,
    MultiHeadAttnBackwardWeights: backward_weights,
    MultiHeadAttnForward: forward,
    MultiHeadAttnStep: forward,
}
