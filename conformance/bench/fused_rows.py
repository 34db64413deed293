"""Rows of fused operations: the statistics of a layer, and the tensors of residual networks."""

from __future__ import annotations

from collections.abc import Iterator

from dualdnn.api.operations import BnFinalizeStatisticsInference, BnFinalizeStatisticsTraining, TensorSpec
from dualdnn.api.operations.specs import FLOAT, HALF

from .row import Row

CHANNELS = (64, 2048)


def _vector(channels: int, kind: object = FLOAT) -> TensorSpec:
    return TensorSpec.packed(kind, (1, channels, 1, 1))  # type: ignore[arg-type]


def fused_rows() -> Iterator[Row]:
    """The rows of all sequences."""
    for channels in CHANNELS:
        numbers, eq = _vector(channels), _vector(channels, HALF)
        training = BnFinalizeStatisticsTraining(100352, 0.1, 1e-5, *(numbers,) * 8, eq, eq)
        yield Row(f"fused finalize training {channels} half", "fused finalize training", training)
        inference = BnFinalizeStatisticsInference(1e-5, *(numbers,) * 4, eq, eq)
        yield Row(f"fused finalize inference {channels} half", "fused finalize inference", inference)
