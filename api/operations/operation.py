"""What a computing call asks of a backend.

An operation is a record whose fields are specifications and scalars. A field named after an operand (``x``, ``dy``,
``C``) describes that operand's memory; the memory itself travels beside the operation. Everything generic (routing,
logging, crosscheck, recording, tolerance, benchmarks) works on these properties, once for all operations.

Kinds of operands:

- tensors, read (``inputs``), written (``outputs``) or both (in-out: a name in both, running statistics say). The description of
  an ``optional`` one is None where the call got NULL; it is then no operand of that operation.
- ``raw`` memory has a size, no description, unless it is described as another tensor is: temporary tensors. One that is neither input nor output is scratch, a workspace. A raw output keeps what a
  later call reads as its raw input: reserve space, dropout states. What is in it is the backend's affair, so that it is judged
  through that later call.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import ClassVar

from ..enumerations import cudnnDataType_t
from .specs import DOUBLE, FLOAT, TensorSpec

NOT_BLENDED = (1.0, 0.0)


class Operation:
    """Base of all operations."""

    inputs: ClassVar[tuple[str, ...]] = ()
    outputs: ClassVar[tuple[str, ...]] = ()
    # Operands that may be NULL: their field is None then.
    optional: ClassVar[tuple[str, ...]] = ()
    # Memory without a tensor description: operand name -> the field that holds its size in bytes, or the tensor as which it is
    # described. Such an operand may be NULL when its size is zero.
    raw: ClassVar[dict[str, str]] = {}
    # Raw operands whose contents the document describes, so that they are no affair of the backend.
    public: ClassVar[tuple[str, ...]] = ()
    # Parameter of the call -> the operand or field that it passes, where that has another name.
    parameters: ClassVar[Mapping[str, str]] = {}
    # Output -> the fields of its (alpha, beta). Others are blended by the fields ``alpha`` and ``beta`` where the operation has them.
    # An output that is written as it is maps to None.
    blends: ClassVar[dict[str, tuple[str, str] | None]] = {}
    # Whether outputs follow from random numbers: another library draws others of the same states.
    draws: ClassVar[bool] = False

    @property
    def family(self) -> str:
        """Return the operation's family, as ``FAMILIES`` of this package lists them."""
        return type(self).__module__.removeprefix(f"{__package__}.").partition(".")[0]

    @cached_property
    def operands(self) -> tuple[str, ...]:
        """Return the names of the operands that the call has, inputs first, each once."""
        names = dict.fromkeys((*self.inputs, *self.outputs, *self.raw))
        return tuple(name for name in names if self.has(name))

    def parameter_of(self, operand: str) -> str:
        """Return the parameter of the call that passes an operand."""
        return next((name for name, passed in self.parameters.items() if passed == operand), operand)

    def has(self, operand: str) -> bool:
        """Return whether the call got this operand: one that is optional may be NULL."""
        return operand not in self.optional or operand in self.raw or getattr(self, operand) is not None

    @cached_property
    def tensors_read(self) -> tuple[str, ...]:
        """Return the names of the described operands that the call reads for themselves."""
        return tuple(name for name in self.inputs if name not in self.raw and self.has(name))

    @cached_property
    def tensors_written(self) -> tuple[str, ...]:
        """Return the names of the described operands that the call writes."""
        return tuple(name for name in self.outputs if name not in self.raw and self.has(name))

    def tensor(self, operand: str) -> TensorSpec:
        """Return the tensor description of an operand; filters and containers of sequences are seen as tensors."""
        spec = getattr(self, operand)
        return spec if isinstance(spec, TensorSpec) else spec.tensor

    def nbytes(self, operand: str) -> int:
        """Return the bytes of memory that the operand must have."""
        size = getattr(self, self.raw[operand]) if operand in self.raw else self.tensor(operand)
        return size.nbytes if isinstance(size, TensorSpec) else size

    def least_bytes(self, operand: str) -> int:
        """Return the bytes that the operand's memory may not be smaller than: fewer where its contents say how much of it is read."""
        return self.nbytes(operand)

    def alignment(self, operand: str) -> int:
        """Return the bytes of which the operand's address must be a multiple: those of its elements. Memory without any may begin anywhere."""
        kind = getattr(self, self.raw[operand]) if operand in self.raw else self.tensor(operand)
        return kind.scalar_bytes if isinstance(kind, TensorSpec) else 1

    def blend_of(self, output: str) -> tuple[float, float]:
        """(alpha, beta) of output = alpha * result + beta * prior output."""
        fields = self.blends.get(output, ("alpha", "beta"))
        if fields is None:
            return NOT_BLENDED
        return getattr(self, fields[0], 1.0), getattr(self, fields[1], 0.0)

    @property
    def reads(self) -> tuple[str, ...]:
        """Return the operands whose contents matter: the inputs, and the outputs that beta blends in."""
        blended = (name for name in self.tensors_written if self.blend_of(name)[1] != 0)
        kept = (name for name in self.raw if name in self.inputs)
        return tuple(dict.fromkeys((*self.tensors_read, *blended, *kept)))

    @cached_property
    def compute_type(self) -> cudnnDataType_t:
        """Return the type of the arithmetic and of alpha and beta: DOUBLE for double data, else FLOAT."""
        names = (*self.tensors_read, *self.tensors_written)
        return DOUBLE if any(self.tensor(name).data_type == DOUBLE for name in names) else FLOAT
