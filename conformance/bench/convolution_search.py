"""Finds the algorithm of a library that serves a convolution best: by its own searches for ours, by time for any
library."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

from dualdnn.api import cudnn
from dualdnn.api.enumerations import cudnnConvolutionFwdAlgo_t, cudnnMathType_t, cudnnStatus_t
from dualdnn.api.operations import ConvolutionBackwardData, ConvolutionBackwardFilter, ConvolutionForward
from dualdnn.api.status import CudnnError

from ..calls import Caller, described, sized
from ..subjects import NotRunnable
from .row import Convolution

MAX_WORKSPACE = 8 << 30  # bytes; algorithms that need more are left out
SUCCESS = cudnnStatus_t.CUDNN_STATUS_SUCCESS
FMA = cudnnMathType_t.CUDNN_FMA_MATH
RANKED_BY = {
    ConvolutionForward: "cudnnGetConvolutionForwardAlgorithm_v7",
    ConvolutionBackwardData: "cudnnGetConvolutionBackwardDataAlgorithm_v7",
    ConvolutionBackwardFilter: "cudnnGetConvolutionBackwardFilterAlgorithm_v7",
}  # calls that rank algorithms without a run


def algorithm_name(algorithm: IntEnum) -> str:
    return algorithm.name.rpartition("_ALGO_")[2]


def variants(functions: Any, handle: Any, operation: Convolution) -> list[Convolution]:
    """Yield the operation with each algorithm that a library accepts, and with the workspace that it needs there."""
    found = []
    for algorithm in cudnnConvolutionFwdAlgo_t:
        try:
            variant = sized(Caller(functions, handle), replace(operation, algo=algorithm))
        except (CudnnError, NotRunnable):
            continue
        if variant.workspace_bytes <= MAX_WORKSPACE:
            found.append(variant)
    return found


@dataclass(frozen=True)
class Search:
    """Holds the results of both searches.

    times: seconds by algorithm and math type as cudnnFindConvolutionForwardAlgorithmEx measured them, the fastest
    first. ranked: the first choice of cudnnGetConvolutionForwardAlgorithm_v7.
    """

    times: dict[tuple[cudnnConvolutionFwdAlgo_t, cudnnMathType_t], float]
    ranked: tuple[cudnnConvolutionFwdAlgo_t, cudnnMathType_t]

    @property
    def ratio(self) -> float | None:
        """Return how many times as long as the fastest the first choice takes, both measured by the search."""
        chosen = self.times.get(self.ranked)
        return None if chosen is None else chosen / min(self.times.values())

    def text(self) -> dict[str, float]:
        """Return microseconds by name."""
        return {
            f"{algorithm_name(algorithm)} {math.name.removeprefix('CUDNN_')}": seconds * 1e6
            for (algorithm, math), seconds in self.times.items()
        }


def search(handle: Any, operation: Convolution, memory: Mapping[str, Any], scratch: Any) -> Search:
    """Return the results of our searches for the convolution of an operation, on its own memory; y is overwritten."""
    x, w, convolution, y = described(Caller(cudnn, handle), operation)
    most = cudnn.cudnnGetConvolutionForwardAlgorithmMaxCount(handle)
    found = cudnn.cudnnFindConvolutionForwardAlgorithmEx(
        handle, x, memory["x"].address, w, memory["w"].address, convolution, y, memory["y"].address, most,
        scratch.address, scratch.nbytes,
    )  # fmt: skip
    first = first_choice(handle, operation)
    times = {(r.algo, r.mathType): r.time * 1e-3 for r in found.perfResults if r.status == SUCCESS}
    return Search(times, (first.algo, first.mathType))


def first_choice(handle: Any, operation: Any) -> Any:
    """Return the first entry that our ranking lists for a convolution or a gradient."""
    rank = getattr(cudnn, RANKED_BY[type(operation)])
    return rank(handle, *described(Caller(cudnn, handle), operation), 1).perfResults[0]


def in_order(
    found: Search, own: list[Convolution], seconds: Callable[[Convolution], float]
) -> list[tuple[Convolution, float]]:
    """Return our variants with the row's math type and their times, the fastest first, without those that failed.

    A search also tries algorithms with CUDNN_DEFAULT_MATH, which lets float data be TF32. Where the row forbids TF32,
    such an entry does not count, and ``seconds`` times the variant again.
    """
    timed = []
    for variant in own:
        strict = variant.convolution.math_type == FMA
        entries = {math: time for (algorithm, math), time in found.times.items() if algorithm == variant.algo}
        if not entries:
            continue
        if strict:
            timed.append((variant, entries[FMA] if FMA in entries else seconds(variant)))
        else:
            timed.append((variant, min(entries.values())))
    if not timed:
        raise ValueError("no algorithm runs")
    return sorted(timed, key=lambda pair: pair[1])


def plain(operation: Convolution) -> ConvolutionForward:
    """Return the convolution alone."""
    o = operation
    if isinstance(o, ConvolutionForward):
        return o
    return ConvolutionForward(o.convolution, o.algo, o.workspace_bytes, 1.0, 0.0, o.x, o.w, o.y)
