"""Describe an attention call to its kernels: its vectors, their memory, and the schedule of windows and lengths."""

from __future__ import annotations

from ctypes import Structure, c_int, c_longlong
from functools import cached_property
from typing import Any

from dualdnn.api.enumerations import cudnnMultiHeadAttnWeightKind_t as Kind
from dualdnn.api.operations import MultiHeadAttnStep, SeqDataSpec
from dualdnn.api.operations.attention.memory import Regions, gradient_space, inference_space, reserve_space, weights_of
from dualdnn.api.operations.specs import DOUBLE, SCALAR_BYTES

from ..primitives.geometry import FastDivmod
from ..runtime.arguments import declared
from ..solver import Problem

TIME, BATCH, BEAM, VECT = range(4)
INPUTS = ("queries", "keys", "values")
TILE = 64  # queries and keys per tile of the core
DOUBLE_TILE = 32  # queries and keys per tile of the core in double
WEIGHTS = dict(
    zip(INPUTS, (Kind.CUDNN_MH_ATTN_Q_WEIGHTS, Kind.CUDNN_MH_ATTN_K_WEIGHTS, Kind.CUDNN_MH_ATTN_V_WEIGHTS), strict=True)
)
BIASES = dict(
    zip(INPUTS, (Kind.CUDNN_MH_ATTN_Q_BIASES, Kind.CUDNN_MH_ATTN_K_BIASES, Kind.CUDNN_MH_ATTN_V_BIASES), strict=True)
)


class Rows(Structure):
    """Order vectors (vectors.cuh)."""

    _fields_ = [
        *declared(FastDivmod, "middle inner"),
        ("count", c_int),
        *declared(c_int * 3, "address time sequence"),
        *declared(c_int, "first_address first_time"),
    ]

    @classmethod
    def of(cls, data: SeqDataSpec, step: int | None = None) -> Rows:
        """Return the vectors of all time-steps as in memory, or only one time-step's."""
        steps = {TIME: 1} if step is not None else {}
        order = [int(axis) for axis in data.axes[:3]]
        extents = [steps.get(axis, data.dims[axis]) for axis in order]
        strides = vector_strides(data)
        time, sequence = {TIME: 1}, {BATCH: data.dims[BEAM], BEAM: 1}
        return cls(
            FastDivmod.of(extents[1]), FastDivmod.of(extents[2]), extents[0] * extents[1] * extents[2],
            (c_int * 3)(*(strides[axis] for axis in order)), (c_int * 3)(*(time.get(axis, 0) for axis in order)),
            (c_int * 3)(*(sequence.get(axis, 0) for axis in order)), (step or 0) * strides[TIME], step or 0,
        )  # fmt: skip


def vector_strides(data: SeqDataSpec) -> tuple[int, ...]:
    """Return the strides between time-steps, batches and beams, in vectors."""
    return tuple(stride // data.dims[VECT] for stride in data.tensor.strides[:3])


class Schedule(Structure):
    """Locate windows and lengths in a space (vectors.cuh)."""

    _fields_ = [("offset", c_longlong), ("windows", c_int), ("q_sequences", c_int)]


class Vectors(Structure):
    """Locate the vectors of each head (heads.cuh)."""

    _fields_ = [("offset", c_longlong), ("lower", c_longlong), ("vector", c_int), ("head", c_int), ("size", c_int)]


class AttentionProblem(Problem):
    """Describe a call of attention. ``space`` is the operand with the schedule and the projected vectors, and its
    regions.
    """

    def __init__(self, operation: Any, device: Any, aligned: bool = True) -> None:
        super().__init__(operation, device, aligned)
        self.attn = operation.attn
        self.weights = weights_of(self.attn)
        self.trains = not isinstance(operation, MultiHeadAttnStep) and getattr(operation, "trains", True)
        self.space = "reserveSpace" if self.trains else "workSpace"
        regions = reserve_space if self.trains else inference_space
        self.regions: Regions = regions(self.attn, operation.extents)
        self.step: int | None = getattr(operation, "curr_idx", None)
        self.q: SeqDataSpec = operation.queries
        self.k: SeqDataSpec = operation.keys
        self.v: SeqDataSpec = operation.values
        self.inputs = dict(zip(INPUTS, (self.q, self.k, self.v), strict=True))
        self.sizes = dict(zip(INPUTS, (self.attn.query_size, self.attn.key_size, self.attn.value_size), strict=True))
        self.rows = {
            "queries": Rows.of(self.q, self.step), "keys": Rows.of(self.k), "values": Rows.of(self.v),
        }  # fmt: skip
        self.tile = DOUBLE_TILE if self.attn.data_type == DOUBLE else TILE

    @cached_property
    def gradients(self) -> Regions:
        """Return the regions of the work space of BackwardData."""
        return gradient_space(self.attn, self.operation.extents)

    @property
    def element_bytes(self) -> int:
        return SCALAR_BYTES[self.attn.data_type]

    @property
    def windows(self) -> int:
        """Return the range of the queries' time-steps that the call computes."""
        return 1 if self.step is not None else self.operation.extents.q_steps

    @property
    def schedule(self) -> Schedule:
        return Schedule(self.regions.offsets["schedule"], self.windows, self.operation.extents.q_sequences)

    @property
    def result(self) -> tuple[str, int]:
        """Return the operand and the byte offset of the heads' outputs. They are the output itself where no kernel
        follows.
        """
        if self.trains or self.attn.o_projected or self.operation.residuals is not None:
            return self.space, self.regions.offsets["heads"]
        return "out", 0

    def vectors(self, name: str) -> tuple[str, Vectors]:
        """Return the operand with an input's vectors by head, and their layout."""
        size = self.sizes[name]
        if WEIGHTS[name] in self.weights:
            return self.space, Vectors(self.regions.offsets[name], 0, self.attn.heads * size, size, size)
        return name, Vectors(0, 0, size, 0, size)

    def weight_offset(self, kind: Kind) -> int:
        """Return the byte offset of a tensor in the weight buffer."""
        return self.weights[kind].offset * self.q.tensor.scalar_bytes
