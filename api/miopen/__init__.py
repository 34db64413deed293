"""Implement the calls of the MIOpen porting guide and its enumerators, as a strict facade over the same operations.

The conventions are those of ``dualdnn.api.cudnn``: host outputs are returned, None is NULL, and a status other than
success raises ``MiopenError``. The facade checks everything that the guide or MIOpen requires, so that a wrong port is
noticed. Examples are Find before every convolution, alpha 1 and beta 0, workspaces of backward calls, and that
miopenOpTensor broadcasts only B.
"""

from __future__ import annotations

from typing import Any

from ..cudnn import FUNCTIONS as _CUDNN  # noqa: F401 (the operations behind the calls)
from . import (  # noqa: F401 (they register their calls)
    activation,
    batch_norm,
    convolution,
    library,
    lrn,
    pooling,
    softmax,
    tensors,
)
from .calls import CALLS, available, missing
from .convolution import miopenConvAlgoPerf_t
from .document import SPECIFICATION, functions
from .enumerations import ENUMERATIONS
from .status import MiopenError

_ENUMERATORS = {member.name: member for kind in ENUMERATIONS.values() for member in kind}
_AVAILABLE = {name: call for name, call in CALLS.items() if available(name)}

globals().update(_AVAILABLE)
globals().update(ENUMERATIONS)
globals().update(_ENUMERATORS)


def __getattr__(name: str) -> Any:
    """Raise AttributeError for calls of the guide whose operations do not exist yet."""
    if name in functions():
        raise AttributeError(
            f"{name} (row {functions()[name].row}) is not implemented yet: it waits for {', '.join(missing(name))}"
        )
    raise AttributeError(f"{name} is not a function or enumerator of the {SPECIFICATION}")


__all__ = ["MiopenError", "miopenConvAlgoPerf_t", *_AVAILABLE, *ENUMERATIONS, *_ENUMERATORS]
