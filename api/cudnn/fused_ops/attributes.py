"""Read a constant parameter pack for a plan: which operands exist, and what the tables require of their descriptors."""

from __future__ import annotations

from typing import Any

from ...enumerations import cudnnActivationMode_t, cudnnBatchNormMode_t, cudnnFusedOpsPointerPlaceHolder_t
from ...enumerations import cudnnFusedOpsConstParamLabel_t as Const
from ...operations.specs import INT32
from ...relations import writable_layout
from ...status import BAD_PARAM, INCORRECT_PARAMETER, NOT_SUPPORTED, expect
from ...support.fused_ops import ACTIVATION_CLAUSES, MODE_CLAUSES, OPERANDS, SHAPE_CLAUSES, promise_of

UNSUPPORTED = "cudnnCreateFusedOpsPlan/c04"  # This clause applies if no other one does.
NULL = cudnnFusedOpsPointerPlaceHolder_t.CUDNN_PTR_NULL
WORD = 32  # bits per element of a bit mask
SPATIAL = (cudnnBatchNormMode_t.CUDNN_BATCHNORM_SPATIAL, cudnnBatchNormMode_t.CUDNN_BATCHNORM_SPATIAL_PERSISTENT)
RELU, IDENTITY = cudnnActivationMode_t.CUDNN_ACTIVATION_RELU, cudnnActivationMode_t.CUDNN_ACTIVATION_IDENTITY
_PLACEHOLDERS = {name: label for pointer, name in OPERANDS.items() if (label := promise_of(pointer)) is not None}


class Attributes:
    """Read and check the attributes of one constant parameter pack."""

    def __init__(self, pack: Any) -> None:
        self.pack, self.ops = pack, pack.ops

    def descriptor(self, name: Any) -> Any:
        """Return the specification of a descriptor; raise BAD_PARAM if the pack does not have it."""
        spec = self.pack.get(Const[f"CUDNN_PARAM_{name}"])
        expect(
            spec is not None, BAD_PARAM, INCORRECT_PARAMETER, f"CUDNN_PARAM_{name} is NULL, {self.ops.name} needs it"
        )
        return spec

    def promises(self, operand: Any) -> bool:
        """Return whether the variant parameter pack will hold memory for an operand."""
        return (self.pack.get(_PLACEHOLDERS.get(operand)) or NULL) != NULL

    def operand(self, operand: Any, name: Any) -> Any:
        """Return the descriptor of an operand, or None if its pointer will be NULL."""
        return self.descriptor(name) if self.promises(operand) else None

    def optional(self, operand: Any, name: Any) -> Any:
        """Return the descriptor of an operand, or None if its step becomes a NOP because pointer or descriptor is
        missing."""
        return self.pack.get(Const[f"CUDNN_PARAM_{name}"]) if self.promises(operand) else None

    def required(self, operand: Any, name: Any) -> Any:
        """Return the descriptor of an operand that the sequence requires."""
        text = f"{_PLACEHOLDERS[operand].name} is CUDNN_PTR_NULL, {self.ops.name} needs it"
        expect(self.promises(operand), BAD_PARAM, INCORRECT_PARAMETER, text)
        return self.descriptor(name)

    def per_channel(self, channels: Any, rank: Any, **tensors: Any) -> None:
        """Raise BAD_PARAM unless these tensors hold one number per channel: 1 x C x 1 x 1. tensors: maps a label to a
        specification or None."""
        for name, spec in tensors.items():
            if spec is None:
                continue
            wanted = (1, channels, *(1,) * (rank - 2))
            clause = SHAPE_CLAUSES.get((self.ops, Const[f"CUDNN_PARAM_{name}"]), INCORRECT_PARAMETER)
            expect(spec.dims == wanted, BAD_PARAM, clause, f"CUDNN_PARAM_{name} is {spec.dims}, it must be {wanted}")

    def same_dims(self, **tensors: Any) -> None:
        """Raise BAD_PARAM unless the existing tensors have the same dimensions. tensors: maps a label to a
        specification or None."""
        found = {name: spec.dims for name, spec in tensors.items() if spec is not None}
        listed = ", ".join(f"CUDNN_PARAM_{name} {dims}" for name, dims in found.items())
        expect(len(set(found.values())) <= 1, BAD_PARAM, INCORRECT_PARAMETER, f"dimensions differ: {listed}")

    def bit_mask(self, spec: Any, of: Any) -> None:
        """Raise BAD_PARAM or NOT_SUPPORTED unless the bit mask is INT32 with one row per pixel and 32 channels per
        word."""
        if spec is None:
            return
        expect(spec.data_type == INT32, NOT_SUPPORTED, UNSUPPORTED,
               f"CUDNN_PARAM_ACTIVATION_BITMASK_DESC is {spec.data_type.name}, only {INT32.name} is supported")  # fmt: skip
        pixels, words = of.count // of.dims[1], -(-of.dims[1] // WORD)
        fits = spec.dims[0] >= pixels and spec.dims[1] >= words and max(spec.dims[2:]) == 1
        expect(fits, BAD_PARAM, INCORRECT_PARAMETER,
               f"CUDNN_PARAM_ACTIVATION_BITMASK_DESC is {spec.dims}, it must be {(pixels, words, 1, 1)} or larger")  # fmt: skip
        writable_layout(CUDNN_PARAM_ACTIVATION_BITMASK_DESC=spec)

    def spatial(self) -> None:
        """Raise NOT_SUPPORTED for batch normalisation modes that are not spatial."""
        mode = self.pack.get(Const.CUDNN_PARAM_BN_MODE) or cudnnBatchNormMode_t.CUDNN_BATCHNORM_PER_ACTIVATION
        names = " and ".join(kind.name for kind in SPATIAL)
        expect(mode in SPATIAL, NOT_SUPPORTED, MODE_CLAUSES.get(self.ops, UNSUPPORTED),
               f"CUDNN_PARAM_BN_MODE is {mode.name}, {names} are supported")  # fmt: skip

    def activation(self) -> Any:
        """Return the activation, or None for IDENTITY; raise NOT_SUPPORTED for others than RELU and IDENTITY."""
        spec = self.pack.get(Const.CUDNN_PARAM_ACTIVATION_DESC)
        if spec is None:
            return None
        expect(spec.mode in (RELU, IDENTITY), NOT_SUPPORTED, ACTIVATION_CLAUSES.get(self.ops, UNSUPPORTED),
               f"CUDNN_PARAM_ACTIVATION_DESC has mode {spec.mode.name}, {RELU.name} and {IDENTITY.name} are supported")  # fmt: skip
        return spec if spec.mode == RELU else None

    def one_type(self, kinds: Any, **tensors: Any) -> Any:
        """Raise NOT_SUPPORTED unless the existing tensors share one data type in ``kinds``. tensors: maps a label to a
        specification or None."""
        found = {name: spec.data_type for name, spec in tensors.items() if spec is not None}
        listed = ", ".join(f"CUDNN_PARAM_{name} {kind.name}" for name, kind in found.items())
        names = ", ".join(kind.name for kind in kinds)
        expect(len(set(found.values())) <= 1 and set(found.values()) <= set(kinds), NOT_SUPPORTED, UNSUPPORTED,
               f"{listed}: one data type is supported, of {names}")  # fmt: skip
        return next(iter(found.values()), None)
