"""Define what a computing call asks of a backend.

An operation is a record whose fields are specifications and scalars. A field named after an operand (``x``, ``dy``,
``C``) describes that operand's memory. The memory itself is passed beside the operation. Routing, logging, crosscheck,
recording, tolerance and benchmarks use only these properties, so they work for every operation.

There are two kinds of operands:

- Tensors are read (``inputs``), written (``outputs``) or both, like running statistics. The field of an ``optional``
tensor is None if the call got NULL; the operation then lacks that operand.
- ``raw`` memory has a size. It has a tensor description only if it is laid out like another tensor. Raw memory that is
neither input nor output is a workspace.

A raw output holds data for a later call, which reads it as a raw input: reserve space, dropout states. Its format is
private to the backend, so it is judged through the later call.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import ClassVar, NamedTuple

from ..enumerations import cudnnDataType_t
from .specs import DOUBLE, FLOAT, TensorSpec

NOT_BLENDED = (1.0, 0.0)


class MemoryRequirement(NamedTuple):
    """State what a call requires of an operand's memory.

    nbytes: the minimum size; it is smaller than ``Operation.nbytes`` if the contents decide how much is read.
    alignment: divides the address; it is the size of a scalar in bytes, or 1 for memory without a description.
    writes: whether the call writes the memory.
    scalars: counts the scalars from the first to the last one, gaps included; it is 0 for raw memory.
    """

    nbytes: int
    alignment: int
    writes: bool
    scalars: int


class Operation:
    """Define the interface of all operations."""

    inputs: ClassVar[tuple[str, ...]] = ()
    outputs: ClassVar[tuple[str, ...]] = ()
    # These operands may be NULL; their field is then None.
    optional: ClassVar[tuple[str, ...]] = ()
    # This maps raw memory to the field with its size in bytes or with a tensor of the same layout. It may be NULL if
    # its size is zero.
    raw: ClassVar[dict[str, str]] = {}
    # The document defines the contents of these raw operands, so they are not private to the backend.
    public: ClassVar[tuple[str, ...]] = ()
    # This maps a parameter of the call to the operand or field that it sets, where the names differ.
    parameters: ClassVar[Mapping[str, str]] = {}
    # This maps an output to the fields of its (alpha, beta), or to None if it is not blended.
    # Other outputs use the fields ``alpha`` and ``beta`` if the operation has them.
    blends: ClassVar[dict[str, tuple[str, str] | None]] = {}
    # It is True if outputs depend on random numbers, which differ between libraries for the same states.
    draws: ClassVar[bool] = False

    @property
    def family(self) -> str:
        """Return the operation's family, one of ``FAMILIES`` in this package."""
        return type(self).__module__.removeprefix(f"{__package__}.").partition(".")[0]

    @cached_property
    def operands(self) -> tuple[str, ...]:
        """Return the names of the call's operands, each once: inputs, outputs, then other raw memory."""
        names = dict.fromkeys((*self.inputs, *self.outputs, *self.raw))
        return tuple([name for name in names if self.has(name)])

    def parameter_of(self, operand: str) -> str:
        """Return the parameter of the call that passes an operand."""
        for name, passed in self.parameters.items():
            if passed == operand:
                return name
        return operand

    def has(self, operand: str) -> bool:
        """Return whether the operation has this operand; an optional one may be NULL."""
        return operand not in self.optional or operand in self.raw or getattr(self, operand) is not None

    @cached_property
    def tensors_read(self) -> tuple[str, ...]:
        """Return the names of the tensors that the call reads, apart from blending."""
        return tuple(name for name in self.inputs if name not in self.raw and self.has(name))

    @cached_property
    def tensors_written(self) -> tuple[str, ...]:
        """Return the names of the tensors that the call writes."""
        return tuple(name for name in self.outputs if name not in self.raw and self.has(name))

    def tensor(self, operand: str) -> TensorSpec:
        """Return the tensor description of an operand; filters and sequence data are described as tensors."""
        spec = getattr(self, operand)
        return spec if isinstance(spec, TensorSpec) else spec.tensor

    @property
    def counts(self) -> Mapping[str, int]:
        """Return the numbers of elements that kernels count with 32 bits, by description, without those of the operands."""
        return {}

    def nbytes(self, operand: str) -> int:
        """Return the bytes of memory that the operand occupies."""
        size = getattr(self, self.raw[operand]) if operand in self.raw else self.tensor(operand)
        return size.nbytes if isinstance(size, TensorSpec) else size

    def memory_requirements(self) -> dict[str, MemoryRequirement]:
        """Return what the call requires of each operand's memory, in the order of ``operands``."""
        found = {}
        for name in self.operands:
            is_raw = name in self.raw
            kind = getattr(self, self.raw[name]) if is_raw else self.tensor(name)
            nbytes, alignment = (kind.nbytes, kind.scalar_bytes) if isinstance(kind, TensorSpec) else (kind, 1)
            scalars = 0 if is_raw else nbytes // alignment
            found[name] = MemoryRequirement(nbytes, alignment, is_raw or name in self.outputs, scalars)
        return found

    def blend_of(self, output: str) -> tuple[float, float]:
        """Return (alpha, beta) of output = alpha * result + beta * prior output."""
        fields = self.blends.get(output, ("alpha", "beta"))
        if fields is None:
            return NOT_BLENDED
        return getattr(self, fields[0], 1.0), getattr(self, fields[1], 0.0)

    @property
    def reads(self) -> tuple[str, ...]:
        """Return the operands whose contents affect the result: inputs, and outputs that beta blends in."""
        blended = (name for name in self.tensors_written if self.blend_of(name)[1] != 0)
        kept = (name for name in self.raw if name in self.inputs)
        return tuple(dict.fromkeys((*self.tensors_read, *blended, *kept)))

    @cached_property
    def compute_type(self) -> cudnnDataType_t:
        """Return the type of the arithmetic and of alpha and beta: DOUBLE for double data, else FLOAT."""
        names = (*self.tensors_read, *self.tensors_written)
        return DOUBLE if any(self.tensor(name).data_type == DOUBLE for name in names) else FLOAT
