"""Define the opaque descriptors: each holds a specification that setters replace and calls snapshot."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

from .enumerations import cudnnBackendDescriptorType_t, cudnnMathType_t, cudnnReorderType_t
from .operations.specs import LRNSpec

if TYPE_CHECKING:
    from .operations.rnn import RNNPlanSpec, RNNSpec


class Descriptor:
    """Represent an opaque object of the document. ``spec`` is None before a setter initialises it and after it is
    destroyed."""

    type_name: ClassVar[str]

    def __init__(self) -> None:
        self.spec: Any = None
        self.alive = True
        # This maps an operand to device memory that the caller passed and later calls use.
        self.memory: dict[str, Any] = {}

    def held(self, operand: str) -> Any:
        """Return the memory that the descriptor holds for an operand of a later call, or None."""
        return self.memory.get(operand)

    def take(self, spec: Any) -> None:
        """Copy the state of another descriptor of the same type."""
        self.spec = spec

    @property
    def value(self) -> Any:
        """Return the complete state as a hashable key, for a type that holds neither memory nor other objects."""
        return self.spec

    @value.setter
    def value(self, value: Any) -> None:
        self.spec = value

    @classmethod
    def gone(cls) -> Self:
        """Return a destroyed descriptor, about which nothing else is known."""
        made = cls.__new__(cls)
        Descriptor.__init__(made)
        made.destroy()
        return made

    @property
    def named(self) -> tuple[DropoutDescriptor | None, ...]:
        """Return the dropout descriptors that a setter was given; a call uses their state at the time of the call."""
        return ()

    @named.setter
    def named(self, named: tuple[DropoutDescriptor | None, ...]) -> None:
        if named:
            raise TypeError(f"{self.type_name} names no dropout descriptor")

    def part_from(self, dropout: DropoutDescriptor) -> None:
        """Drop the reference to a dropout descriptor that was destroyed."""

    def destroy(self) -> None:
        self.spec = None
        self.alive = False
        self.memory = {}

    def __repr__(self) -> str:
        state = "destroyed" if not self.alive else "not initialised" if self.spec is None else repr(self.spec)
        return f"<{self.type_name} {state}>"


class TensorDescriptor(Descriptor):
    type_name = "cudnnTensorDescriptor_t"


class FilterDescriptor(Descriptor):
    type_name = "cudnnFilterDescriptor_t"


class TensorTransformDescriptor(Descriptor):
    type_name = "cudnnTensorTransformDescriptor_t"


class ActivationDescriptor(Descriptor):
    type_name = "cudnnActivationDescriptor_t"


class OpTensorDescriptor(Descriptor):
    type_name = "cudnnOpTensorDescriptor_t"


class ReduceTensorDescriptor(Descriptor):
    type_name = "cudnnReduceTensorDescriptor_t"


class PoolingDescriptor(Descriptor):
    type_name = "cudnnPoolingDescriptor_t"


class LRNDescriptor(Descriptor):
    """Represent LRN parameters; a new descriptor has the preset parameters (3.2.83)."""

    type_name = "cudnnLRNDescriptor_t"

    def __init__(self) -> None:
        super().__init__()
        self.spec = LRNSpec(5, 1e-4, 0.75, 2.0)


class RNNDataDescriptor(Descriptor):
    type_name = "cudnnRNNDataDescriptor_t"


class RNNDescriptor(Descriptor):
    """Represent a recurrent network. A new descriptor has the preset bias mode and zeros otherwise.

    ``dropout`` is the descriptor that a setter was given. The network always uses its current probability and states.
    After it is destroyed, the network keeps its last probability and has no states. ``value`` excludes the dropout
    descriptor's state.
    """

    type_name = "cudnnRNNDescriptor_t"
    _spec: Any = None

    def __init__(self) -> None:
        from .operations.rnn import RNNSpec

        self.dropout: DropoutDescriptor | None = None
        super().__init__()
        self.spec = RNNSpec()

    @property
    def spec(self) -> Any:
        if self._spec is not None and self.dropout is not None and self._spec.dropout != self.dropout.said:
            self._spec = replace(self._spec, dropout=self.dropout.said)
        return self._spec

    @spec.setter
    def spec(self, value: Any) -> None:
        self._spec = value

    @property
    def value(self) -> Any:
        return replace(self._spec, dropout=0.0) if self.dropout and self._spec.dropout else self._spec

    @value.setter
    def value(self, value: Any) -> None:
        self._spec = value

    @property
    def named(self) -> tuple[DropoutDescriptor | None, ...]:
        return (self.dropout,)

    @named.setter
    def named(self, named: tuple[DropoutDescriptor | None, ...]) -> None:
        self.dropout = named[0]

    def part_from(self, dropout: DropoutDescriptor) -> None:
        self.spec, self.dropout = self.spec, None

    def configure(self, spec: RNNSpec, dropout: DropoutDescriptor | None) -> None:
        """Replace the specification and the dropout descriptor, which supplies the network's dropout probability."""
        self.spec, self.dropout = spec, dropout

    def held(self, operand: str) -> Any:
        return self.dropout.held(operand) if self.dropout else None

    def change(self, **fields: Any) -> None:
        """Replace fields of the specification, and drop the plan, because it belongs to the old fields."""
        self._spec = replace(self._spec, plan=None, **fields)

    def plan(self, plan: RNNPlanSpec | None) -> None:
        """Set the plan that calls run."""
        self._spec = replace(self._spec, plan=plan)


class PersistentRNNPlan(Descriptor):
    """Represent a plan of CUDNN_RNN_ALGO_PERSIST_DYNAMIC for ``network``."""

    type_name = "cudnnPersistentRNNPlan_t"
    network: RNNSpec | None = None


class SeqDataDescriptor(Descriptor):
    type_name = "cudnnSeqDataDescriptor_t"


class DropoutDescriptor(Descriptor):
    """Represent a dropout; ``memory`` holds the states of the random number generator after they are set."""

    type_name = "cudnnDropoutDescriptor_t"
    last = 0.0  # It is the probability at the time of destruction.

    @property
    def said(self) -> float:
        """Return the probability: 0 before it is set, and the last one after the descriptor is destroyed."""
        return self.spec.probability if self.spec else self.last

    def destroy(self) -> None:
        self.last = self.said
        super().destroy()


class SpatialTransformerDescriptor(Descriptor):
    type_name = "cudnnSpatialTransformerDescriptor_t"


class AlgorithmDescriptor(Descriptor):
    type_name = "cudnnAlgorithmDescriptor_t"


class AlgorithmPerformance(Descriptor):
    """Represent the performance of one algorithm; ``algorithm`` is the descriptor that a setter was given, not a copy."""

    type_name = "cudnnAlgorithmPerformance_t"

    def __init__(self) -> None:
        super().__init__()
        self.algorithm: AlgorithmDescriptor | None = None


class AttnDescriptor(Descriptor):
    """Represent multi-head attention. ``dropouts`` holds the dropout descriptors of the softmax output and of the
    result; a call uses their state at the time of the call."""

    type_name = "cudnnAttnDescriptor_t"
    _spec: Any = None

    def __init__(self) -> None:
        self.dropouts: tuple[DropoutDescriptor | None, DropoutDescriptor | None] = (None, None)
        super().__init__()

    @property
    def spec(self) -> Any:
        probability = max((dropout.said for dropout in self.dropouts if dropout and dropout.alive), default=0.0)
        if self._spec is not None and self._spec.dropout != probability:
            self._spec = replace(self._spec, dropout=probability)
        return self._spec

    @spec.setter
    def spec(self, value: Any) -> None:
        self._spec = value

    @property
    def value(self) -> Any:
        return replace(self._spec, dropout=0.0) if self._spec and self._spec.dropout else self._spec

    @value.setter
    def value(self, value: Any) -> None:
        self._spec = value

    @property
    def named(self) -> tuple[DropoutDescriptor | None, ...]:
        return self.dropouts

    @named.setter
    def named(self, named: tuple[DropoutDescriptor | None, ...]) -> None:
        self.dropouts = (named[0], named[1])

    def part_from(self, dropout: DropoutDescriptor) -> None:
        first, second = (None if each is dropout else each for each in self.dropouts)
        self.dropouts = (first, second)


class CTCLossDescriptor(Descriptor):
    type_name = "cudnnCTCLossDescriptor_t"


class ConvolutionOptions(NamedTuple):
    """Hold the fields of a ConvolutionSpec that have setters of their own, in its order."""

    group_count: int = 1
    math_type: cudnnMathType_t = cudnnMathType_t.CUDNN_DEFAULT_MATH
    reorder_type: cudnnReorderType_t = cudnnReorderType_t.CUDNN_DEFAULT_REORDER


class ConvolutionDescriptor(Descriptor):
    """Represent a convolution. Group count, math type and reorder type may be set first; setting the convolution again
    keeps them."""

    type_name = "cudnnConvolutionDescriptor_t"

    def __init__(self) -> None:
        super().__init__()
        self.options = ConvolutionOptions()

    def take(self, spec: Any) -> None:
        self.spec, self.options = spec, ConvolutionOptions(spec.group_count, spec.math_type, spec.reorder_type)

    @property
    def value(self) -> Any:
        return self.spec, self.options

    @value.setter
    def value(self, value: Any) -> None:
        self.spec, self.options = value

    def configure(self, **options: Any) -> None:
        """Change group_count, math_type or reorder_type."""
        self.options = self.options._replace(**options)
        if self.spec is not None:
            self.spec = replace(self.spec, **options)


class FusedOpsConstParamPack(Descriptor):
    """Hold copies of descriptors and values; an attribute that was not set has its preset."""

    type_name = "cudnnFusedOpsConstParamPack_t"


class FusedOpsVariantParamPack(Descriptor):
    """Hold device pointers as the caller passed them, and copies of scalars."""

    type_name = "cudnnFusedOpsVariantParamPack_t"


class FusedOpsPlan(Descriptor):
    """Represent a plan for the sequence ``ops`` of fused operations; cudnnMakeFusedOpsPlan fills it."""

    type_name = "cudnnFusedOpsPlan_t"
    ops: Any = None


class BackendDescriptor(Descriptor):
    """Represent a backend API descriptor (chapter 9) of one type; finalising sets ``spec`` from the attributes."""

    type_name = "cudnnBackendDescriptor_t"
    kind: Any = None  # This is a cudnnBackendDescriptorType_t, or None for a destroyed descriptor.

    def __init__(self, kind: cudnnBackendDescriptorType_t, spec: Any = None) -> None:
        super().__init__()
        self.begin(kind)
        self.spec = spec

    def begin(self, kind: cudnnBackendDescriptorType_t) -> None:
        """Reset to an unfinalised descriptor of this type, without attributes."""
        self.kind = kind
        self.elements: dict[Any, tuple[Any, ...]] = {}  # It maps each attribute to the values set.
        self.spec = None

    def __repr__(self) -> str:
        state = "destroyed" if not self.alive else "not finalised" if self.spec is None else repr(self.spec.record)
        return f"<{self.type_name} {f'{self.kind.name} ' if self.kind else ''}{state}>"


DESCRIPTORS: dict[str, type[Descriptor]] = {kind.type_name: kind for kind in Descriptor.__subclasses__()}
