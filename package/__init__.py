"""Provide the executable edition of the cuDNN 8.0.3 API Reference: ``dualdnn.api``, ``reference``, ``accelerated``, ``conformance``."""

from collections.abc import Mapping
from typing import Any

__version__ = "0.2.0"


def judge(operation: Any, inputs: Mapping[str, Any], outputs: Mapping[str, Any], random: bool = False) -> Any:
    """Judge the outputs that any kernel made of these inputs; returns a verdict.

    operation: an ``Operation``, or the text that ``dualdnn.api.operations.parse`` reads. inputs, outputs: operand -> array. random: whether the inputs
    are independent random numbers; then the judge also checks the root mean square and the mean of the errors (docs/tolerance.md).
    """
    from dualdnn.reference.harness import judge

    return judge(operation, inputs, outputs, random)


def warm_up(what: Any, device: str = "gpu", index: int = 0) -> int:
    """Compile and load the kernels of operations, or of the API log at a path, in parallel, before they are called.

    Returns how many modules were compiled (``dualdnn.conformance.kernels.warm_up``).
    """
    from dualdnn.conformance.kernels.warm_up import warm_up

    return warm_up(what, device, index)
