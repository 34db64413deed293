"""Implement activation (rows 39 to 44). MIOpen's modes have up to three attributes; cuDNN has one coefficient."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ..enumerations import cudnnActivationMode_t, cudnnNanPropagation_t
from .calls import call, cudnn, unscaled
from .enumerations import miopenActivationMode_t
from .objects import ActivationDescriptor
from .status import NOT_IMPLEMENTED, expect

if TYPE_CHECKING:
    from .objects import MiopenHandle, TensorDescriptor

_M, _C = miopenActivationMode_t, cudnnActivationMode_t
MODES = {
    _M.miopenActivationPASTHRU: _C.CUDNN_ACTIVATION_IDENTITY,
    _M.miopenActivationLOGISTIC: _C.CUDNN_ACTIVATION_SIGMOID,
    _M.miopenActivationTANH: _C.CUDNN_ACTIVATION_TANH,
    _M.miopenActivationRELU: _C.CUDNN_ACTIVATION_RELU,
    _M.miopenActivationCLIPPEDRELU: _C.CUDNN_ACTIVATION_CLIPPED_RELU,
    _M.miopenActivationELU: _C.CUDNN_ACTIVATION_ELU,
}


class Attributes(NamedTuple):
    mode: miopenActivationMode_t
    activAlpha: float
    activBeta: float
    activPower: float


@call("cudnnCreateActivationDescriptor")
def miopenCreateActivationDescriptor() -> ActivationDescriptor:
    """Return a new activation descriptor, to be filled by miopenSetActivationDescriptor. Source: row 39."""
    return ActivationDescriptor()


@call("cudnnSetActivationDescriptor")
def miopenSetActivationDescriptor(
    activDesc: ActivationDescriptor,
    mode: miopenActivationMode_t,
    activAlpha: float,
    activBeta: float,
    activPower: float,
) -> None:
    """Set the function and its attributes.

    TANH is activBeta * tanh(activAlpha * x), CLIPPEDRELU is limited by activAlpha, ELU is activAlpha * (exp(x) - 1)
    below zero. The other functions ignore the attributes.
    Errors: NotImplemented for modes that no operation of cuDNN computes (c02). Source: row 40; docs/errata.md, M006.
    """
    expect(
        mode in MODES,
        NOT_IMPLEMENTED,
        "miopenSetActivationDescriptor/c02",
        f"mode is {mode.name}: cuDNN has no such function",
    )
    activation = cudnn("cudnnCreateActivationDescriptor")()
    coefficient = 0.0 if mode == _M.miopenActivationTANH else activAlpha
    cudnn("cudnnSetActivationDescriptor")(
        activation, MODES[mode], cudnnNanPropagation_t.CUDNN_NOT_PROPAGATE_NAN, coefficient
    )
    activDesc.cudnn, activDesc.attributes = activation, Attributes(mode, activAlpha, activBeta, activPower)


@call("cudnnGetActivationDescriptor")
def miopenGetActivationDescriptor(activDesc: ActivationDescriptor) -> Any:
    """Return (mode, activAlpha, activBeta, activPower) as they were set. Source: row 41."""
    return activDesc.attributes


@call("cudnnDestroyActivationDescriptor", fresh=["activDesc"])
def miopenDestroyActivationDescriptor(activDesc: ActivationDescriptor) -> None:
    """Destroy the descriptor; any later use is BadParm. Source: row 42."""
    activDesc.destroy()


@call("cudnnActivationForward", "cudnnTransformTensor")
def miopenActivationForward(
    handle: MiopenHandle,
    activDesc: ActivationDescriptor,
    alpha: Any,
    xDesc: TensorDescriptor,
    x: Any,
    beta: Any,
    yDesc: TensorDescriptor,
    y: Any,
) -> None:
    """Compute y = f(x), element by element; in place if the descriptors are equal.

    Errors: NotImplemented unless alpha is 1 and beta 0 (c02); BadParm for differing dimensions. Source: row 43.
    """
    unscaled("miopenActivationForward/c02", alpha, beta)
    mode, inner, outer, _ = activDesc.attributes
    if mode == _M.miopenActivationPASTHRU:
        return _copied(handle, 1.0, xDesc, x, yDesc, y)
    if mode != _M.miopenActivationTANH:
        inner = outer = 1.0
    if inner != 1.0:
        _copied(handle, inner, xDesc, x, yDesc, y)
        x, xDesc = y, yDesc
    cudnn("cudnnActivationForward")(handle.cudnn, activDesc.cudnn, outer, xDesc.cudnn, x, 0.0, yDesc.cudnn, y)
    return None


@call("cudnnActivationBackward", "cudnnTransformTensor")
def miopenActivationBackward(
    handle: MiopenHandle,
    activDesc: ActivationDescriptor,
    alpha: Any,
    yDesc: TensorDescriptor,
    y: Any,
    dyDesc: TensorDescriptor,
    dy: Any,
    xDesc: TensorDescriptor,
    x: Any,
    beta: Any,
    dxDesc: TensorDescriptor,
    dx: Any,
) -> None:
    """Compute dx = f'(x) * dy, element by element.

    Errors: NotImplemented unless alpha is 1 and beta 0 (c02); BadParm for differing dimensions. Source: row 44.
    """
    unscaled("miopenActivationBackward/c02", alpha, beta)
    mode, inner, outer, _ = activDesc.attributes
    if mode == _M.miopenActivationPASTHRU:
        return _copied(handle, 1.0, dyDesc, dy, dxDesc, dx)
    if mode != _M.miopenActivationTANH or inner == outer == 1.0:
        return _gradient(handle, activDesc, 1.0, yDesc, y, dyDesc, dy, xDesc, x, dxDesc, dx)
    # The function is beta * tanh(alpha * x). cuDNN's gradient is taken at alpha * x, where tanh is y / beta.
    expect(outer != 0.0, NOT_IMPLEMENTED, "miopenActivationBackward/c03", "activBeta is 0: y says nothing of tanh(x)")
    scaled_x, scaled_y = handle.allocate(xDesc.cudnn.spec.nbytes), handle.allocate(yDesc.cudnn.spec.nbytes)
    try:
        _copied(handle, inner, xDesc, x, xDesc, scaled_x)
        _copied(handle, 1.0 / outer, yDesc, y, yDesc, scaled_y)
        return _gradient(handle, activDesc, inner * outer, yDesc, scaled_y, dyDesc, dy, xDesc, scaled_x, dxDesc, dx)
    finally:
        handle.synchronize()
        scaled_x.free()
        scaled_y.free()


def _gradient(
    handle: Any,
    activDesc: Any,
    scale: Any,
    yDesc: Any,
    y: Any,
    dyDesc: Any,
    dy: Any,
    xDesc: Any,
    x: Any,
    dxDesc: Any,
    dx: Any,
) -> None:
    cudnn("cudnnActivationBackward")(
        handle.cudnn, activDesc.cudnn, scale, yDesc.cudnn, y, dyDesc.cudnn, dy, xDesc.cudnn, x, 0.0, dxDesc.cudnn, dx
    )


def _copied(handle: Any, scale: Any, fromDesc: Any, source: Any, toDesc: Any, target: Any) -> None:
    """Compute target = scale * source; in place if the descriptors are equal."""
    if fromDesc.cudnn.spec == toDesc.cudnn.spec and _one_memory(handle, source, target):
        cudnn("cudnnScaleTensor")(handle.cudnn, toDesc.cudnn, target, scale)
    else:
        cudnn("cudnnTransformTensor")(handle.cudnn, scale, fromDesc.cudnn, source, 0.0, toDesc.cudnn, target)


def _one_memory(handle: Any, *memory: Any) -> bool:
    try:
        return len({handle.backend.operand(each).address for each in memory}) == 1
    except Exception:  # The copy reports the error for values that are not memory.
        return False
