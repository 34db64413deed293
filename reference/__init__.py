"""Judge results: compute every operation's documented semantics in NumPy, and the error that a correct implementation
may have.
"""

from typing import TYPE_CHECKING

from dualdnn.api.lazy import lazy

from .backend import ReferenceBackend
from .engine import Exact, evaluate, implemented, run
from .judge import Disagreement, Verdict, judge

if TYPE_CHECKING:
    from .spots import second_opinion
else:
    __getattr__ = lazy(__name__, {"spots": ["second_opinion"]})

__all__ = [
    "Disagreement",
    "Exact",
    "ReferenceBackend",
    "Verdict",
    "evaluate",
    "implemented",
    "judge",
    "run",
    "second_opinion",
]

__version__ = "0.2.0"
