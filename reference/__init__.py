"""The judge: every operation's documented semantics in NumPy, and the error a correct implementation may have."""

from importlib import import_module

from dualdnn.api.operations import FAMILIES

from .backend import ReferenceBackend
from .engine import Exact, evaluate, implemented, run
from .formulas import second_opinion
from .judge import Disagreement, Verdict, judge

for family in FAMILIES:  # registers the family's operations
    import_module(f"{__name__}.{family}")

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

__version__ = "0.1.0"
