"""Show which rules of the judge catch which injected faults, by family and number of terms.

    python -m dualdnn.conformance.faults [--terms 9 64 576] [--family float] [--write]
    python -m dualdnn.conformance.faults --subject accelerated:gpu     # measure the errors of a subject's sums

Sums of products are computed in float with a fault in every output. Each is judged as the output of a 1x1 convolution
with one channel for each term. A row gives the share of outputs outside the worst case and outside the interval of the
2-norm. It also gives the root mean square R and the bias of the whole output (docs/tolerance.md). Softmax and sigmoid
use exponentials that are off by some units in the last place.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from dualdnn.api.enumerations import (
    cudnnActivationMode_t,
    cudnnConvolutionFwdAlgo_t,
    cudnnConvolutionMode_t,
    cudnnDataType_t,
    cudnnMathType_t,
    cudnnNanPropagation_t,
    cudnnReorderType_t,
    cudnnSoftmaxAlgorithm_t,
    cudnnSoftmaxMode_t,
)
from dualdnn.api.operations import (
    ActivationForward,
    ActivationSpec,
    ConvolutionForward,
    ConvolutionSpec,
    FilterSpec,
    Operation,
    SoftmaxForward,
    TensorSpec,
)
from dualdnn.api.operations.specs import BFLOAT16, FLOAT, HALF, NCHW
from dualdnn.reference import Verdict, judge
from dualdnn.reference.view import rounded

from .calls import Caller
from .subjects import open_subject
from .trial import attempt

Array = np.ndarray[Any, Any]
TERMS = (9, 64, 576, 2304, 4608)
SIDE = 16  # positions along each axis
FILTERS = 16  # filters, which make 4096 outputs of 256 positions
WRITTEN = Path(__file__).parent / "report/faults.md"
HEAD = """\
Injected faults and the rules of the judge that see them (docs/tolerance.md); written by `python -m dualdnn.conformance.faults --write`.

Functions of float, their exponentials off by up to so many units in the last place. Share of outputs in percent beyond the worst case; root mean square.

"""
SUMS_HEAD = """\
Sums of products, 4096 outputs. Shares in percent beyond the worst case / beyond the interval of the 2-norm; root mean square; bias.

"""
TF32_BITS = 13  # bits of a float that TF32 drops
VECTOR = 4  # terms of the last vector


@dataclass(frozen=True)
class Family:
    """Describe sums of products of one type: the factors' data type, and whether the math type allows TF32."""

    name: str
    data_type: cudnnDataType_t
    tf32: bool = False

    def operation(self, terms: int, alpha: float) -> ConvolutionForward:
        """Return the 1x1 convolution whose outputs are the sums."""
        math = cudnnMathType_t.CUDNN_DEFAULT_MATH if self.tf32 else cudnnMathType_t.CUDNN_FMA_MATH
        once, reorder = (1, 1), cudnnReorderType_t.CUDNN_DEFAULT_REORDER
        convolution = ConvolutionSpec(
            cudnnConvolutionMode_t.CUDNN_CROSS_CORRELATION, FLOAT, (0, 0), once, once, 1, math, reorder
        )
        dims = {"x": (1, terms, SIDE, SIDE), "w": (FILTERS, terms, 1, 1), "y": (1, FILTERS, SIDE, SIDE)}
        x, y = (TensorSpec.packed(self.data_type, dims[name]) for name in "xy")
        algo = cudnnConvolutionFwdAlgo_t.CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM
        return ConvolutionForward(convolution, algo, 0, alpha, 0.0, x, FilterSpec(self.data_type, NCHW, dims["w"]), y)


FAMILIES = (
    Family("float", FLOAT),
    Family("half", HALF),
    Family("bfloat16", BFLOAT16),
    Family("TF32", FLOAT, tf32=True),
)
KINDS = ("normal", "positive")


def added(products: Array, dtype: Any = np.float32) -> Array:
    """Return the sums along the last axis, added one product after the other in this type."""
    total = np.zeros(products.shape[:-1], dtype)
    for k in range(products.shape[-1]):
        total = (total + products[..., k].astype(dtype)).astype(dtype)
    return total


def truncated(values: Array, bits: int) -> Array:
    """Return floats with the last bits cleared: rounded towards zero."""
    return (values.astype(np.float32).view(np.uint32) & np.uint32(0xFFFFFFFF << bits & 0xFFFFFFFF)).view(np.float32)


def _plain(x: Array, w: Array, _random: np.random.Generator) -> Array:
    return added(x[:, None] * w[None])


def _dropped(x: Array, w: Array, random: np.random.Generator) -> Array:
    products = x[:, None] * w[None]
    where = random.integers(0, products.shape[-1], products.shape[:-1])
    np.put_along_axis(products, where[..., None], 0.0, -1)
    return added(products)


def _in_half(x: Array, w: Array, _random: np.random.Generator) -> Array:
    return added(x[:, None] * w[None], np.float16).astype(np.float32)


def in_tf32(values: Array) -> Array:
    """Return numbers rounded to TF32."""
    half_step = np.uint32(1 << TF32_BITS - 1)
    return truncated((values.astype(np.float32).view(np.uint32) + half_step).view(np.float32), TF32_BITS).astype(float)


def _in_tf32(x: Array, w: Array, random: np.random.Generator) -> Array:
    return _plain(in_tf32(x), in_tf32(w), random)


def _cut_off(x: Array, w: Array, _random: np.random.Generator) -> Array:
    products, total = x[:, None] * w[None], np.zeros((len(x), len(w)), np.float32)
    for k in range(products.shape[-1]):
        exact = total.astype(np.float64) + products[..., k]
        nearest = exact.astype(np.float32)
        total = np.where(np.abs(nearest) > np.abs(exact), np.nextafter(nearest, np.float32(0)), nearest)
    return total


def _short(x: Array, w: Array, random: np.random.Generator) -> Array:
    return _plain(x[:, :-VECTOR], w[:, :-VECTOR], random)


def moved(ulps: int) -> Callable[[Array, Array, np.random.Generator], Array]:
    """Return a fault that moves each output by this many units in the last place of float."""

    def fault(x: Array, w: Array, random: np.random.Generator) -> Array:
        sums = _plain(x, w, random)
        return np.asarray(sums + ulps * np.spacing(np.abs(sums)), np.float32)

    return fault


FAULTS: dict[str, Callable[[Array, Array, np.random.Generator], Array]] = {
    "none": _plain,
    "one product dropped in each output": _dropped,
    "the last vector of terms left out": _short,
    "accumulates in half": _in_half,
    "factors rounded to TF32": _in_tf32,
    "sums cut off, not rounded": _cut_off,
    "moved by 16 units in the last place": moved(16),
    "moved by 256 units in the last place": moved(256),
}
ALPHA_AS_HALF = "alpha 0.1 rounded to half"


def judged(family: Family, fault: str, terms: int, seed: int = 0) -> Verdict:
    """Return the verdict on an output with a fault."""
    random = np.random.default_rng(seed)
    x, w = (
        rounded(random.standard_normal((count, terms)), family.data_type).astype(np.float64)
        for count in (SIDE * SIDE, FILTERS)
    )
    alpha, applied = (0.1, float(np.float16(0.1))) if fault == ALPHA_AS_HALF else (1.0, 1.0)
    factors = (in_tf32(x), in_tf32(w)) if family.tf32 else (x, w)
    parts = np.array_split(factors[0], SIDE)  # All products at once would not fit in memory.
    sums = np.concatenate([FAULTS.get(fault, _plain)(part, factors[1], random) for part in parts])
    y = rounded(np.float32(applied) * sums.T.reshape(1, FILTERS, SIDE, SIDE), family.data_type)
    operation = family.operation(terms, alpha)
    before = {
        "x": np.ascontiguousarray(rounded(x.T.reshape(1, terms, SIDE, SIDE), family.data_type)),
        "w": rounded(w.reshape(FILTERS, terms, 1, 1), family.data_type),
        "y": np.full_like(y, np.nan),
    }
    memory = {name: array.reshape(-1).view(np.uint8) for name, array in before.items()}
    return judge(operation, memory, {**memory, "y": y.reshape(-1).view(np.uint8)}, random=True)


# --- functions: an exponential that is off by some units in the last place ---

ULPS = (0, 2, 4, 8, 32)  # units in the last place
ROWS = 256  # rows per softmax
FUNCTIONS = ("softmax of 10", "softmax of 64", "softmax of 1000", "sigmoid")


def of_function(name: str, ulps: int, seed: int = 0) -> Verdict:
    """Return the verdict on a float function with exponentials off by up to this many units in the last place."""
    random = np.random.default_rng(seed)
    terms = int(name.rpartition(" ")[2]) if name != "sigmoid" else 16
    spec = TensorSpec.packed(FLOAT, (ROWS, terms, 1, 1))
    x = random.standard_normal((ROWS, terms)).astype(np.float32)
    off = 1 + ulps * random.uniform(-1, 1, x.shape) * 2.0**-23
    wide = x.astype(np.float64)
    operation: Operation
    if name == "sigmoid":
        rules = ActivationSpec(
            cudnnActivationMode_t.CUDNN_ACTIVATION_SIGMOID, cudnnNanPropagation_t.CUDNN_PROPAGATE_NAN, 0.0
        )
        operation = ActivationForward(rules, 1.0, 0.0, spec, spec)
        y = np.float32(1) / (np.float32(1) + (np.exp(-wide) * off).astype(np.float32))
    else:
        accurate, channel = (
            cudnnSoftmaxAlgorithm_t.CUDNN_SOFTMAX_ACCURATE,
            cudnnSoftmaxMode_t.CUDNN_SOFTMAX_MODE_CHANNEL,
        )
        operation = SoftmaxForward(accurate, channel, 1.0, 0.0, spec, spec)
        exponentials = (np.exp(wide - wide.max(1, keepdims=True)) * off).astype(np.float32)
        y = exponentials / added(exponentials)[:, None]
    memory = {"x": x.reshape(-1).view(np.uint8), "y": np.full(spec.nbytes, 0xFF, np.uint8)}
    return judge(operation, memory, {**memory, "y": np.ascontiguousarray(y).reshape(-1).view(np.uint8)}, random=True)


def functions_table() -> str:
    """Return the Markdown table: share in percent beyond the worst case; root mean square, for softmax within rows."""
    head = " | ".join(f"exp off by {ulps} ulp" for ulps in ULPS)
    lines = [f"| float | {head} |", "|---" * (len(ULPS) + 1) + "|"]
    for name in FUNCTIONS:
        found = [of_function(name, ulps) for ulps in ULPS]
        cells = [f"{100 * verdict.wrong / verdict.checked:.0f}; {verdict.errors['y'].rms:.2g}" for verdict in found]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


# --- subjects ---


def measured(caller: Caller, family: Family, terms: int, kind: str) -> Verdict:
    """Return the verdict on a subject's sums."""
    return attempt(caller, family.operation(terms, 1.0), kind).verdict


def measurements(subject: str, families: Sequence[Family], terms: Sequence[int]) -> str:
    """Return the Markdown table of a subject: largest error in units of the 2-norm's interval; R; bias."""
    opened = open_subject(subject)
    caller = Caller(opened.cudnn, opened.new_handle())
    lines = [f"| {opened.name}, terms = | " + " | ".join(map(str, terms)) + " |", "|---" * (len(terms) + 1) + "|"]
    for family in families:
        for kind in KINDS:
            found = [measured(caller, family, count, kind) for count in terms]
            cells = [f"{e.ratio:.2g}; {e.rms:.2g}; {e.bias:.2g}" for e in (verdict.errors["y"] for verdict in found)]
            wrong = sum(verdict.wrong for verdict in found)
            lines.append(f"| {family.name}, {kind}{f' ({wrong} WRONG)' if wrong else ''} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def table(families: Sequence[Family], terms: Sequence[int]) -> str:
    """Return the Markdown table: shares in percent beyond the worst case / beyond the 2-norm; R; bias."""
    lines = []
    for family in families:
        lines += [f"| {family.name}, terms = | " + " | ".join(map(str, terms)) + " |", "|---" * (len(terms) + 1) + "|"]
        for fault in (*FAULTS, ALPHA_AS_HALF):
            cells = []
            for count in terms:
                verdict = judged(family, fault, count)
                errors = verdict.errors["y"]
                shares = [100 * number / verdict.checked for number in (verdict.wrong, errors.beyond)]
                cells.append(f"{shares[0]:.0f} / {shares[1]:.0f}; {errors.rms:.2g}; {errors.bias:.2g}")
            lines.append(f"| {fault} | " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables, or write those that the report shows."""
    parser = argparse.ArgumentParser(prog="python -m dualdnn.conformance.faults", description=__doc__)
    parser.add_argument("--terms", type=int, nargs="+", default=TERMS, help="terms of each sum")
    parser.add_argument("--family", choices=[family.name for family in FAMILIES], action="append")
    parser.add_argument("--subject", help="judge the sums of this subject instead of injected faults")
    parser.add_argument("--write", action="store_true", help="write the tables that the report shows")
    chosen = parser.parse_args(arguments)
    families = [f for f in FAMILIES if not chosen.family or f.name in chosen.family]
    if chosen.subject:
        print(measurements(chosen.subject, families, chosen.terms))
        return
    if chosen.write:
        WRITTEN.write_text(
            f"{HEAD}{functions_table()}\n\n{SUMS_HEAD}{table(families, chosen.terms).rstrip()}\n", encoding="utf-8"
        )
        print(WRITTEN)
        return
    print(table(families, chosen.terms))
    print(functions_table())


if __name__ == "__main__":
    main()
