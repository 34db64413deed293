"""The documented calls of the cuDNN 8.0.3 API Reference, with all enumerators.

Conventions: names and parameter order as documented; pure host outputs are returned, not passed; device outputs are
buffers passed in; None is NULL; host arrays are sequences; a status other than SUCCESS raises ``CudnnError``.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from .. import enumerations
from ..document import SPECIFICATION, functions
from ..functions import FUNCTIONS
from ..status import CudnnError
from .library import cudnnCreate

for module in iter_modules(__path__):  # they register their functions
    import_module(f"{__name__}.{module.name}")

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
