"""Compute the memory of multi-head attention: the position of each weight (7.2.16) and the sizes of work and reserve
space (7.2.15)."""

from __future__ import annotations

from typing import NamedTuple

from ...enumerations import CUDNN_ATTN_QUERYMAP_ONE_TO_ONE, cudnnMultiHeadAttnWeightKind_t
from ..convolution import allows_tf32
from ..specs import DOUBLE, FLOAT, HALF, SCALAR_BYTES, AttnSpec, packed_strides

Kind = cudnnMultiHeadAttnWeightKind_t
COUNTERS = 3  # counters per work space; kernels count the work that they have started
REGION_BYTES = 16  # bytes, the alignment of each region in work and reserve space (7.2.15)


class Weights(NamedTuple):
    """Locate a weight or bias tensor in the weight buffer: its first element, dimensions (heads, projected size,
    original size), strides."""

    offset: int
    dims: tuple[int, int, int]
    strides: tuple[int, int, int]

    @property
    def end(self) -> int:
        """Return the index after the last element."""
        return self.offset + self.dims[0] * self.dims[1] * self.dims[2]


def allows_tensor_cores(spec: AttnSpec) -> bool:
    """Return whether tensor cores may multiply: always for HALF; for FLOAT, if the math type permits rounding to TF32
    (3.1.2.13)."""
    return spec.data_type == HALF or (spec.data_type == FLOAT and allows_tf32(spec))


def weights_of(spec: AttnSpec) -> dict[Kind, Weights]:
    """Return the tensors of the attention, packed in this order: weights of Q, K, V and O, then their biases.

    An input weight has (original size) rows in memory; each row holds the projected elements of all heads. An output
    weight has one row of projected elements for each element of each head. There is one output bias, shared by all
    heads (docs/errata.md, D312).
    """
    heads = spec.heads
    inputs = {
        Kind.CUDNN_MH_ATTN_Q_WEIGHTS: (spec.q_projected, spec.q_size),
        Kind.CUDNN_MH_ATTN_K_WEIGHTS: (spec.k_projected, spec.k_size),
        Kind.CUDNN_MH_ATTN_V_WEIGHTS: (spec.v_projected, spec.v_size),
    }
    biases = {
        Kind.CUDNN_MH_ATTN_Q_BIASES: (heads, spec.q_projected),
        Kind.CUDNN_MH_ATTN_K_BIASES: (heads, spec.k_projected),
        Kind.CUDNN_MH_ATTN_V_BIASES: (heads, spec.v_projected),
        Kind.CUDNN_MH_ATTN_O_BIASES: (1, spec.o_projected),
    }
    found: dict[Kind, Weights] = {}
    offset = 0

    def add(kind: Kind, dims: tuple[int, int, int], order: tuple[int, int, int]) -> None:
        nonlocal offset
        if dims[1]:
            found[kind] = Weights(offset, dims, packed_strides(dims, order))  # type: ignore[arg-type]  # three as dims
            offset = found[kind].end

    for kind, (projected, original) in inputs.items():
        add(kind, (heads, projected, original), (2, 0, 1))
    add(Kind.CUDNN_MH_ATTN_O_WEIGHTS, (heads, spec.o_projected, spec.value_size), (0, 2, 1))
    if spec.has_biases:
        for kind, (count, projected) in biases.items():
            add(kind, (count, projected, 1), (0, 1, 2))
    return found


def weight_count(spec: AttnSpec) -> int:
    """Return how many elements the weight buffer has."""
    return max((weights.end for weights in weights_of(spec).values()), default=0)


class Extents(NamedTuple):
    """Count a call's time-steps and sequences (batches times beams): of queries and outputs, and of keys and values."""

    q_steps: int
    q_sequences: int
    k_steps: int
    k_sequences: int

    @classmethod
    def largest(cls, spec: AttnSpec) -> Extents:
        """Return the largest extents that the attention descriptor allows."""
        sequences = spec.max_batches * spec.max_beams
        mapped = sequences if spec.mode & CUDNN_ATTN_QUERYMAP_ONE_TO_ONE else spec.max_batches
        return cls(spec.qo_longest, sequences, spec.kv_longest, mapped)

    @property
    def q_vectors(self) -> int:
        return self.q_steps * self.q_sequences

    @property
    def k_vectors(self) -> int:
        return self.k_steps * self.k_sequences


class Regions:
    """Assign offsets to named parts of a work or reserve space, one after the other."""

    def __init__(self, *parts: tuple[str, int]) -> None:
        self.offsets: dict[str, int] = {}
        self.nbytes = 0
        for name, size in parts:
            self.offsets[name] = self.nbytes
            self.nbytes += -(-size // REGION_BYTES) * REGION_BYTES


def _projections(spec: AttnSpec, extents: Extents, prefix: str, present: bool) -> list[tuple[str, int]]:
    """Return names and bytes of the projected inputs of all heads, in the data type. ``present`` selects the enabled
    projections, or the disabled ones."""
    step = SCALAR_BYTES[spec.data_type] * spec.heads
    sizes = {
        "queries": (spec.q_projected, extents.q_vectors * spec.query_size),
        "keys": (spec.k_projected, extents.k_vectors * spec.key_size),
        "values": (spec.v_projected, extents.k_vectors * spec.value_size),
    }
    return [
        (prefix + name, step * elements) for name, (projected, elements) in sizes.items() if bool(projected) == present
    ]


def arithmetic_bytes(spec: AttnSpec) -> int:
    """Return the bytes of a number of the arithmetic: 8 for DOUBLE data, else 4."""
    return 8 if spec.data_type == DOUBLE else 4


def _forward(spec: AttnSpec, extents: Extents) -> list[tuple[str, int]]:
    """Return names and bytes of a forward call's regions: work counters, windows and lengths for the kernels, projected
    inputs, head results."""
    integers = 2 * extents.q_steps + extents.q_sequences + extents.k_sequences
    heads = SCALAR_BYTES[spec.data_type] * spec.heads * extents.q_vectors
    return [
        ("counters", 4 * COUNTERS),
        ("schedule", 4 * integers),
        *_projections(spec, extents, "", True),
        ("heads", heads * spec.value_size),
    ]


def inference_space(spec: AttnSpec, extents: Extents) -> Regions:
    """Return the regions of the work space of a forward call in inference."""
    return Regions(*_forward(spec, extents))


def reserve_space(spec: AttnSpec, extents: Extents) -> Regions:
    """Return the regions that a forward call keeps in training.

    They are the regions of inference, the softmax's maxima and inverse sums, and gradients of projected vectors, which
    BackwardData writes.
    """
    statistics = 2 * arithmetic_bytes(spec) * spec.heads * extents.q_vectors
    return Regions(
        *_forward(spec, extents), ("statistics", statistics), *_projections(spec, extents, "d_", True)
    )  # fmt: skip


def gradient_space(spec: AttnSpec, extents: Extents) -> Regions:
    """Return the regions of BackwardData's work space.

    They hold the gradients of head results; two numbers per query and head that restore the softmax and its gradient;
    and the gradients of inputs per head.
    """
    numbers = spec.heads * extents.q_vectors
    return Regions(
        ("d_heads", SCALAR_BYTES[spec.data_type] * numbers * spec.value_size),
        ("products", 2 * arithmetic_bytes(spec) * numbers),
        *_projections(spec, extents, "d_", False),
    )


def space_bytes(spec: AttnSpec) -> tuple[int, int, int]:
    """Return the bytes of (weights, work space, reserve space) that suffice for any call that the attention descriptor
    allows."""
    largest = Extents.largest(spec)
    work = max(inference_space(spec, largest).nbytes, gradient_space(spec, largest).nbytes)
    return weight_count(spec) * SCALAR_BYTES[spec.data_type], work, reserve_space(spec, largest).nbytes
