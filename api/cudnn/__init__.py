"""Implement the documented calls of the cuDNN 8.0.3 API Reference, with all enumerators.

Names and parameter order follow the document. Pure host outputs are returned, not passed; device outputs are buffers
that the caller passes. None is NULL, and host arrays are sequences. A status other than SUCCESS raises ``CudnnError``.
"""

from __future__ import annotations

from typing import Any

from .. import enumerations
from ..document import SPECIFICATION, functions
from ..functions import FUNCTIONS as _FUNCTIONS
from ..lazy import lazy, load
from ..status import CudnnError
from .homes import HOMES

_ENUMERATORS = {member.name: member for kind in enumerations.ENUMERATIONS.values() for member in kind}
_LIMITS = {name: value for name, value in vars(enumerations).items() if name.startswith("CUDNN_")}

globals().update(enumerations.ENUMERATIONS)
globals().update(_ENUMERATORS)
globals().update(_LIMITS)
_NAMES = [name for names in HOMES.values() for name in names]
_function = lazy(__name__, HOMES)


def __getattr__(name: str) -> Any:
    """Return a function after importing its module, or the map ``FUNCTIONS`` of all functions; raise AttributeError
    with a reason for other names."""
    if name == "FUNCTIONS":
        load(__name__, HOMES)
        return _FUNCTIONS
    if name in _NAMES:
        return _function(name)
    if name in functions():
        entry = functions()[name]
        raise AttributeError(f"{name} (section {entry.section}, {entry.library}) is not implemented yet")
    raise AttributeError(f"{name} is not a function or enumerator of the {SPECIFICATION}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES})


__all__ = ["CudnnError", *_NAMES, *enumerations.ENUMERATIONS, *_ENUMERATORS, *_LIMITS]
