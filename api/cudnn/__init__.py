"""The documented calls of the cuDNN 8.0.3 API Reference, with all enumerators.

Conventions: names and parameter order as documented; pure host outputs are returned, not passed; device outputs are
buffers passed in; None is NULL; host arrays are sequences; a status other than SUCCESS raises ``CudnnError``.
"""

from __future__ import annotations

from typing import Any

from .. import enumerations
from ..document import SPECIFICATION, functions
from ..functions import FUNCTIONS
from ..status import CudnnError
from . import (  # noqa: F401 (they register their functions)
    activation,
    convolution,
    convolution_algorithms,
    convolution_descriptors,
    filter_descriptors,
    library,
    pooling,
    reduce_tensor,
    softmax,
    tensor_arithmetic,
    tensor_descriptors,
    transform,
)
from .library import cudnnCreate

_ENUMERATORS = {member.name: member for kind in enumerations.ENUMERATIONS.values() for member in kind}
_LIMITS = {name: value for name, value in vars(enumerations).items() if name.startswith("CUDNN_")}

FUNCTIONS["cudnnCreate"] = cudnnCreate
globals().update(FUNCTIONS)
globals().update(enumerations.ENUMERATIONS)
globals().update(_ENUMERATORS)
globals().update(_LIMITS)


def __getattr__(name: str) -> Any:
    """Names that the document has and this edition does not yet."""
    if name in functions():
        entry = functions()[name]
        raise AttributeError(f"{name} (section {entry.section}, {entry.library}) is not implemented yet")
    raise AttributeError(f"{name} is no function or enumerator of the {SPECIFICATION}")


__all__ = ["CudnnError", *FUNCTIONS, *enumerations.ENUMERATIONS, *_ENUMERATORS, *_LIMITS]
