"""The judge: every operation's documented semantics in NumPy, and the error a correct implementation may have."""

from . import activation, convolution, pooling, reduce_tensor, softmax, tensor_arithmetic, transform
from .backend import ReferenceBackend
from .engine import Exact, evaluate, implemented, run
from .formulas import second_opinion
from .judge import Disagreement, Verdict, judge

__all__ = [
    "Disagreement",
    "Exact",
    "ReferenceBackend",
    "Verdict",
    "activation",
    "convolution",
    "evaluate",
    "implemented",
    "judge",
    "pooling",
    "reduce_tensor",
    "run",
    "second_opinion",
    "softmax",
    "tensor_arithmetic",
    "transform",
]

__version__ = "0.1.0"
