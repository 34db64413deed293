"""Make the calls on recurrent networks before version 8."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dualdnn.api.document import functions
from dualdnn.api.enumerations import cudnnRNNAlgo_t
from dualdnn.api.operations import RNNBackwardData, RNNBackwardWeights, RNNForward, TensorSpec
from dualdnn.api.operations.rnn import RNNSpec
from dualdnn.api.operations.specs import NCHW, FilterSpec

from .caller import Caller

INFERENCE = "cudnnRNNForwardInference"
TRAINING = "cudnnRNNForwardTraining"
DATA = "cudnnRNNBackwardData"
WEIGHTS = "cudnnRNNBackwardWeights"
NAMES = (INFERENCE, TRAINING, DATA, WEIGHTS)
EX = tuple(f"{name}Ex" for name in NAMES)
OPERANDS = {"w": "weightSpace", "dw": "dweightSpace", "workspace": "workSpace"}
RESERVED = (
    "kDesc", "keys", "cDesc", "cAttn", "iDesc", "iAttn", "qDesc", "queries", "dcDesc", "dcAttn", "dkDesc", "dkeys",
)  # fmt: skip
DATA_DESCRIPTORS = ("xDesc", "yDesc", "dyDesc", "dxDesc")


class LegacyCaller(Caller):
    """Make the calls before version 8 of the operations: the extended ones, or those that take a descriptor for each step."""

    def __init__(self, cudnn: Any, handle: Any, extended: bool) -> None:
        super().__init__(cudnn, handle)
        self.extended = extended

    def __call__(self, operation: Any, memory: Mapping[str, Any]) -> None:
        name = self.name_of(operation)
        getattr(self.cudnn, name)(*self.arguments(name, operation, memory).values())

    def name_of(self, operation: Any) -> str:
        """Return the function that makes the call of an operation."""
        kinds = {RNNBackwardData: DATA, RNNBackwardWeights: WEIGHTS, RNNForward: TRAINING}
        name = kinds[type(operation)] if getattr(operation, "training", True) else INFERENCE
        return f"{name}Ex" if self.extended else name

    def arguments(self, name: str, operation: Any, memory: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments by the names of the parameters."""
        return {p.name: self.argument(p.name, operation, memory) for p in functions()[name].arguments}

    def argument(self, name: str, o: Any, memory: Mapping[str, Any]) -> Any:
        """Return the argument of a parameter."""
        n = o.network
        if name == "handle":
            return self.handle
        if name == "rnnDesc":
            return self.network(n, o.y.batch)
        if name == "seqLength":
            return o.y.max_length
        if name in ("findIntensity", "requestedAlgoCount"):
            return 3
        if name in ("wDesc", "dwDesc"):
            return self.descriptor(FilterSpec(n.data_type, NCHW, (n.weight_elements, 1, 1)))
        if name in DATA_DESCRIPTORS:
            return self.sequences(getattr(o, name.removesuffix("Desc")))
        if name in RESERVED:
            return None
        if name.endswith("Desc"):
            size = n.projected if "h" in name[:2] else n.hidden
            return self.descriptor(TensorSpec.packed(n.data_type, (n.pseudo_layers, o.y.batch, size)))
        if name.endswith("SizeInBytes"):
            return (o.reserve if name.startswith("reserve") else o.workspace).nbytes
        return memory.get(OPERANDS.get(name, name))

    def network(self, n: RNNSpec, batch: int = 0) -> Any:
        """Return the descriptor of a network by the setters before version 8, with a plan for ``batch`` sequences where
        needed."""
        made = self.cudnn.cudnnCreateRNNDescriptor()
        values = n.hidden, n.layers, self.dropout, n.input_mode, n.direction, n.cell, n.algo, n.precision
        self.cudnn.cudnnSetRNNDescriptor_v6(self.handle, made, *values)
        self.cudnn.cudnnSetRNNBiasMode(made, n.bias)
        self.cudnn.cudnnSetRNNPaddingMode(made, int(n.padded))
        self.cudnn.cudnnSetRNNMatrixMathType(made, n.math_type)
        if n.is_projected:
            self.cudnn.cudnnSetRNNProjectionLayers(self.handle, made, n.projected, 0)
        self.cudnn.cudnnRNNSetClip(self.handle, made, n.clip.mode, n.clip.nan, n.clip.lower, n.clip.upper)
        if n.algo == cudnnRNNAlgo_t.CUDNN_RNN_ALGO_PERSIST_DYNAMIC and batch:
            plan = self.cudnn.cudnnCreatePersistentRNNPlan(made, batch, n.data_type)
            self.cudnn.cudnnSetPersistentRNNPlan(made, plan)
        return made

    def sequences(self, spec: Any) -> Any:
        """Return the container of sequences, or the descriptors of their steps."""
        if self.extended:
            return self.descriptor(spec)
        return [self.descriptor(TensorSpec.packed(spec.data_type, (batch, spec.vector, 1))) for batch in spec.batches]
