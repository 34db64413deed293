"""The executable edition of the cuDNN 8.0.3 API Reference: ``dualdnn.api``, ``reference``, ``accelerated``, ``conformance``."""

from typing import Any

__version__ = "0.1.0"


def warm_up(what: Any, device: str = "gpu", index: int = 0) -> int:
    """Compile and load the kernels of operations, or of the API log at a path, in parallel, before they are called.

    Returns how many modules were compiled (``dualdnn.conformance.warm_up``).
    """
    from dualdnn.conformance.warm_up import warm_up

    return warm_up(what, device, index)
