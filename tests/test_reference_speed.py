"""What the reference may cost on a CPU: counted, not timed, so that a busy machine changes nothing."""

from __future__ import annotations

import numpy as np
import pytest
from dualdnn.api.operations import parse
from dualdnn.reference import blas_threads, engine, pooling, run
from threadpoolctl import threadpool_info

CONVOLUTION = (
    "ConvolutionForward(convolution=ConvolutionSpec(mode=CUDNN_CROSS_CORRELATION, compute_type=CUDNN_DATA_FLOAT, padding=(1, 1),"
    " stride=(1, 1), dilation=(1, 1), group_count=1, math_type=CUDNN_DEFAULT_MATH, reorder_type=CUDNN_DEFAULT_REORDER),"
    " algo=CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, workspace_bytes=0, alpha=1.0, beta=0.0,"
    " x=TensorSpec(data_type=CUDNN_DATA_FLOAT, dims=(1, 64, 32, 32), strides=(65536, 1024, 32, 1)),"
    " w=FilterSpec(data_type=CUDNN_DATA_FLOAT, format=CUDNN_TENSOR_NCHW, dims=(64, 64, 3, 3)),"
    " y=TensorSpec(data_type=CUDNN_DATA_FLOAT, dims=(1, 64, 32, 32), strides=(65536, 1024, 32, 1)))"
)


def blas_thread_counts():
    return {entry["num_threads"] for entry in threadpool_info() if entry["user_api"] == "blas"}


@pytest.mark.parametrize("others, expected", [(0, 4), (1, 3), (3, 1), (99, 1)])
def test_a_large_product_has_as_many_threads_as_cores_are_free(monkeypatch, others, expected):
    from threadpoolctl import threadpool_limits

    monkeypatch.setattr(blas_threads.os, "cpu_count", lambda: 4)
    monkeypatch.setattr(blas_threads, "running", lambda: 1 + others)
    operation, seen = parse(CONVOLUTION), []
    memory = {name: np.zeros(operation.nbytes(name), np.uint8) for name in operation.operands}
    original = np.dot

    def dot(*arguments, **options):
        seen.append(blas_thread_counts())
        return original(*arguments, **options)

    monkeypatch.setattr(np, "dot", dot)
    caches = (blas_threads._blas, engine._prepared, engine.launcher)
    for cache in caches:
        cache.cache_clear()
    try:
        with threadpool_limits(4, user_api="blas"):
            run(operation, memory)
            assert seen and all(counts == {expected} for counts in seen)
            assert blas_thread_counts() == {4}
    finally:
        for cache in caches:
            cache.cache_clear()


def test_a_limit_that_was_set_is_never_raised(monkeypatch):
    from threadpoolctl import threadpool_limits

    monkeypatch.setattr(blas_threads.os, "cpu_count", lambda: 64)
    blas_threads._blas.cache_clear()
    seen = []
    with threadpool_limits(1, user_api="blas"):
        blas_threads.beside_others(lambda memory: seen.append(blas_thread_counts()))({})
    assert seen == [{1}]
    blas_threads._blas.cache_clear()


@pytest.mark.parametrize("propagate", [True, False])
@pytest.mark.parametrize("window, padding, stride", [(3, 1, 2), (3, 1, 1), (2, 0, 3), (5, 4, 1), (1, 0, 4), (4, -1, 2)])
def test_window_maxima_are_those_of_plain_loops(propagate, window, padding, stride):
    random = np.random.default_rng(3)
    x = random.standard_normal((2, 3, 11, 9))
    x[random.random(x.shape) < 0.2] = np.nan
    x[0, 0, :5] = np.nan
    spec = parse(
        "PoolingSpec(mode=CUDNN_POOLING_MAX, nan=CUDNN_PROPAGATE_NAN,"
        f" window=({window}, {window}), padding=({padding}, {padding}), stride=({stride}, {stride}))"
    )
    counts = [1 + (size + 2 * padding - window) // stride for size in x.shape[2:]]
    found = pooling.window_maxima(x, spec, counts, propagate)
    for index in np.ndindex(2, 3, *counts):
        rows, columns = (range(i * stride - padding, i * stride - padding + window) for i in index[2:])
        values = [x[*index[:2], r, c] for r in rows for c in columns if 0 <= r < 11 and 0 <= c < 9]
        numbers = [value for value in values if not np.isnan(value)]
        expected = max(numbers, default=np.nan if not propagate else -np.inf)
        if propagate and len(numbers) < len(values):
            expected = np.nan
        np.testing.assert_equal(found[index], expected)
