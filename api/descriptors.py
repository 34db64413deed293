"""The opaque descriptors: a holder for a specification that the setters replace and the calls snapshot."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from .enumerations import cudnnBackendDescriptorType_t, cudnnMathType_t, cudnnReorderType_t
from .operations.specs import LRNSpec

if TYPE_CHECKING:
    from .operations.rnn import RNNPlanSpec, RNNSpec


class Descriptor:
    """An opaque object of the document. ``spec`` is None until a setter initialises it, and again once destroyed."""

    type_name: ClassVar[str]

    def __init__(self) -> None:
        self.spec: Any = None
        self.alive = True
        # Device memory that the descriptor holds for the calls that take it, as the caller passed it: operand -> memory.
        self.memory: dict[str, Any] = {}

    def held(self, operand: str) -> Any:
        """The memory that the descriptor has for an operand of the calls that take it, None where it has none."""
        return self.memory.get(operand)

    def take(self, spec: Any) -> None:
        """Hold what another descriptor of the type holds."""
        self.spec = spec

    @property
    def value(self) -> Any:
        """All that a descriptor of a type without memory or other objects is, as a key."""
        return self.spec

    @value.setter
    def value(self, value: Any) -> None:
        self.spec = value

    @classmethod
    def gone(cls) -> Self:
        """A descriptor that was destroyed, of which nothing else is known."""
        made = cls.__new__(cls)
        Descriptor.__init__(made)
        made.destroy()
        return made

    @property
    def named(self) -> tuple[DropoutDescriptor | None, ...]:
        """The dropout descriptors that it was set with: what they say when it is used counts."""
        return ()

    @named.setter
    def named(self, named: tuple[DropoutDescriptor | None, ...]) -> None:
        if named:
            raise TypeError(f"{self.type_name} names no dropout descriptor")

    def part_from(self, dropout: DropoutDescriptor) -> None:
        """Name a dropout descriptor no more, which was destroyed."""

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
    """A new one has the preset parameters (3.2.83)."""

    type_name = "cudnnLRNDescriptor_t"

    def __init__(self) -> None:
        super().__init__()
        self.spec = LRNSpec(5, 1e-4, 0.75, 2.0)


class RNNDataDescriptor(Descriptor):
    type_name = "cudnnRNNDataDescriptor_t"


class RNNDescriptor(Descriptor):
    """A new one has the preset of the bias mode and reads as zeros otherwise; ``dropout`` is the descriptor that a setter got,
    whose probability and states are the network's, whenever they change. Once that is destroyed, the network has its last
    probability and no states. ``value`` is without what the dropout descriptor says."""

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
        """Replace the specification and the dropout descriptor, whose probability is the network's from now on."""
        self.spec, self.dropout = spec, dropout

    def held(self, operand: str) -> Any:
        return self.dropout.held(operand) if self.dropout else None

    def change(self, **fields: Any) -> None:
        """Replace fields of the specification; a plan for what it was is none for what it is."""
        self._spec = replace(self._spec, plan=None, **fields)

    def plan(self, plan: RNNPlanSpec | None) -> None:
        """Let calls run by a plan."""
        self._spec = replace(self._spec, plan=plan)


class PersistentRNNPlan(Descriptor):
    """A plan of CUDNN_RNN_ALGO_PERSIST_DYNAMIC for ``network``."""

    type_name = "cudnnPersistentRNNPlan_t"
    network: RNNSpec | None = None


class SeqDataDescriptor(Descriptor):
    type_name = "cudnnSeqDataDescriptor_t"


class DropoutDescriptor(Descriptor):
    """``memory`` holds the states of the random numbers, once they were set."""

    type_name = "cudnnDropoutDescriptor_t"
    last = 0.0  # the probability that it said when it was destroyed

    @property
    def said(self) -> float:
        """The probability that it says; 0 before any is set, the last one after it was destroyed."""
        return self.spec.probability if self.spec else self.last

    def destroy(self) -> None:
        self.last = self.said
        super().destroy()


class SpatialTransformerDescriptor(Descriptor):
    type_name = "cudnnSpatialTransformerDescriptor_t"


class AlgorithmDescriptor(Descriptor):
    type_name = "cudnnAlgorithmDescriptor_t"


class AlgorithmPerformance(Descriptor):
    """Figures of one algorithm; ``algorithm`` is the descriptor that a setter got, not a copy of it."""

    type_name = "cudnnAlgorithmPerformance_t"

    def __init__(self) -> None:
        super().__init__()
        self.algorithm: AlgorithmDescriptor | None = None


class AttnDescriptor(Descriptor):
    """``dropouts``: the descriptors of the softmax output and of the result that a setter got; what they say when it is used counts."""

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


class ConvolutionDescriptor(Descriptor):
    """Group count, math type and reorder type may be set before the convolution itself and outlive setting it again."""

    type_name = "cudnnConvolutionDescriptor_t"

    def __init__(self) -> None:
        super().__init__()
        self.options: dict[str, Any] = {
            "group_count": 1,
            "math_type": cudnnMathType_t.CUDNN_DEFAULT_MATH,
            "reorder_type": cudnnReorderType_t.CUDNN_DEFAULT_REORDER,
        }

    def take(self, spec: Any) -> None:
        self.spec = spec
        self.options = {name: getattr(spec, name) for name in self.options}

    @property
    def value(self) -> Any:
        return self.spec, tuple(self.options.items())

    @value.setter
    def value(self, value: Any) -> None:
        self.spec, self.options = value[0], dict(value[1])

    def configure(self, **options: Any) -> None:
        """Change group_count, math_type or reorder_type."""
        self.options.update(options)
        if self.spec is not None:
            self.spec = replace(self.spec, **options)


class FusedOpsConstParamPack(Descriptor):
    """Copies of descriptors and values; of an attribute that has not been set, the preset."""

    type_name = "cudnnFusedOpsConstParamPack_t"


class FusedOpsVariantParamPack(Descriptor):
    """Device pointers, as they were given, and copies of scalars."""

    type_name = "cudnnFusedOpsVariantParamPack_t"


class FusedOpsPlan(Descriptor):
    """A sequence of fused operations, ``ops``, that cudnnMakeFusedOpsPlan makes a plan."""

    type_name = "cudnnFusedOpsPlan_t"
    ops: Any = None


class BackendDescriptor(Descriptor):
    """A descriptor of the backend API (chapter 9) of one type. Its ``spec`` is what finalising made of the attributes."""

    type_name = "cudnnBackendDescriptor_t"
    kind: Any = None  # a cudnnBackendDescriptorType_t, but for one that is gone

    def __init__(self, kind: cudnnBackendDescriptorType_t, spec: Any = None) -> None:
        super().__init__()
        self.begin(kind)
        self.spec = spec

    def begin(self, kind: cudnnBackendDescriptorType_t) -> None:
        """Become a descriptor of this type without attributes, not finalised."""
        self.kind = kind
        self.elements: dict[Any, tuple[Any, ...]] = {}  # what the attributes were set to
        self.spec = None

    def __repr__(self) -> str:
        state = "destroyed" if not self.alive else "not finalised" if self.spec is None else repr(self.spec.record)
        return f"<{self.type_name} {f'{self.kind.name} ' if self.kind else ''}{state}>"


DESCRIPTORS: dict[str, type[Descriptor]] = {kind.type_name: kind for kind in Descriptor.__subclasses__()}
