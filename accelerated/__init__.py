"""Provides the production backend: CUDA kernels that run on GPUs, or compiled for the host on the emulated device."""

from importlib import import_module

from dualdnn.api.operations import FAMILIES

from .backend import AcceleratedBackend
from .plans import implemented
from .runtime.devices import gpu_is_usable
from .runtime.errors import DeviceError, DeviceUnavailable
from .runtime.information import cuda_version, facts

for family in FAMILIES:  # Each import registers the solvers of the family's operations.
    import_module(f"{__name__}.{family}.plan")

__all__ = [
    "AcceleratedBackend",
    "DeviceError",
    "DeviceUnavailable",
    "cuda_version",
    "facts",
    "gpu_is_usable",
    "implemented",
]

__version__ = "0.2.0"
