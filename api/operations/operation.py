"""What a computing call asks of a backend.

An operation is a record whose fields are specifications and scalars. A field named after an operand (``x``, ``dy``,
``C``) describes that operand's memory; the memory itself travels beside the operation. Everything generic (routing,
logging, crosscheck, recording, tolerance, benchmarks) works on these properties, once for all operations.
"""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar

from ..enumerations import cudnnDataType_t
from .specs import DOUBLE, FLOAT, FilterSpec, TensorSpec


class Operation:
    """Base of all operations."""

    inputs: ClassVar[tuple[str, ...]] = ()
    outputs: ClassVar[tuple[str, ...]] = ()
    # Memory without a tensor description: operand name -> the field that holds its size in bytes. Such an operand may
    # be NULL when its size is zero.
    raw: ClassVar[dict[str, str]] = {}

    @cached_property
    def operands(self) -> tuple[str, ...]:
        """Names of all operands, inputs first, each once."""
        return tuple(dict.fromkeys((*self.inputs, *self.outputs, *self.raw)))

    def tensor(self, operand: str) -> TensorSpec:
        """The tensor description of an operand; a filter is seen as a tensor."""
        spec = getattr(self, operand)
        return spec.tensor if isinstance(spec, FilterSpec) else spec

    def nbytes(self, operand: str) -> int:
        """Bytes of memory that the operand must have."""
        return getattr(self, self.raw[operand]) if operand in self.raw else self.tensor(operand).nbytes

    def alignment(self, operand: str) -> int:
        """Bytes of which the operand's address must be a multiple: those of its elements. Workspaces may begin anywhere."""
        return 1 if operand in self.raw else self.tensor(operand).scalar_bytes

    @cached_property
    def blend(self) -> tuple[float, float]:
        """(alpha, beta) of output = alpha * result + beta * prior output."""
        return getattr(self, "alpha", 1.0), getattr(self, "beta", 0.0)

    @property
    def reads(self) -> tuple[str, ...]:
        """Operands whose contents matter: the inputs, and the outputs that beta blends in."""
        blended = self.outputs if self.blend[1] != 0 else ()
        return tuple(dict.fromkeys((*self.inputs, *(name for name in blended if name not in self.raw))))

    @cached_property
    def compute_type(self) -> cudnnDataType_t:
        """The type of the arithmetic and of alpha and beta: DOUBLE for double data, else FLOAT."""
        names = [name for name in (*self.inputs, *self.outputs) if name not in self.raw]
        return DOUBLE if any(self.tensor(name).data_type == DOUBLE for name in names) else FLOAT
