"""The production backend: CUDA kernels on PyCUDA's devices, or compiled for the host and emulated."""

from . import activation, convolution, im2col, pooling, reduce_tensor, softmax, tensor_arithmetic, transform
from .backend import AcceleratedBackend
from .devices import gpu_is_usable
from .errors import DeviceError, DeviceUnavailable
from .information import cuda_version, facts
from .plans import implemented

__all__ = [
    "AcceleratedBackend",
    "DeviceError",
    "DeviceUnavailable",
    "activation",
    "convolution",
    "cuda_version",
    "facts",
    "gpu_is_usable",
    "im2col",
    "implemented",
    "pooling",
    "reduce_tensor",
    "softmax",
    "tensor_arithmetic",
    "transform",
]

__version__ = "0.1.0"
