"""Test what the reference costs on a CPU: counted, not timed, so that a busy machine changes nothing."""

from __future__ import annotations

import inspect
import json
import tracemalloc

import numpy as np
import pytest
from dualdnn.api.enumerations import cudnnReduceTensorOp_t
from dualdnn.api.operations import parse
from dualdnn.conformance import corpus
from dualdnn.reference import blas_threads, engine, judge, pooling, reduce_tensor, run
from looped import for_each
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


@pytest.fixture
def seen(monkeypatch):
    """Record the number of BLAS threads during each matrix product, on a simulated machine with four cores."""
    from threadpoolctl import threadpool_limits

    counts = []

    def counted(original):
        def product(*arguments, **options):
            counts.append(blas_thread_counts())
            return original(*arguments, **options)

        return product

    monkeypatch.setattr(blas_threads.os, "cpu_count", lambda: 4)
    for name in ("dot", "matmul"):
        monkeypatch.setattr(np, name, counted(getattr(np, name)))
    caches = (engine._prepared, engine.launcher)
    for cache in caches:
        cache.cache_clear()
    with threadpool_limits(4, user_api="blas"):
        yield counts
        assert blas_thread_counts() == {4}
    for cache in caches:
        cache.cache_clear()


def memory_of(operation):
    return {name: np.zeros(operation.nbytes(name), np.uint8) for name in operation.operands}


@pytest.mark.parametrize("others, expected", [(0, 4), (1, 3), (3, 1), (99, 1)])
@pytest.mark.parametrize("judged", [False, True])
def test_a_large_product_uses_one_thread_for_each_free_core(monkeypatch, seen, others, expected, judged):
    monkeypatch.setattr(blas_threads, "running", lambda: 1 + others)
    operation = parse(CONVOLUTION)
    memory = memory_of(operation)
    if judged:
        assert judge(operation, memory, {name: array.copy() for name, array in memory.items()}).agrees
    else:
        run(operation, memory)
    assert seen and all(counts == {expected} for counts in seen)


def test_a_small_product_has_one_thread(monkeypatch, seen):
    monkeypatch.setattr(blas_threads, "running", lambda: 1)
    operation = parse(CONVOLUTION.replace("64, 32, 32", "64, 8, 8").replace("65536, 1024, 32", "4096, 64, 8"))
    run(operation, memory_of(operation))
    assert seen and all(counts == {1} for counts in seen)


def test_a_limit_that_was_set_is_never_raised_and_returns_after_the_last_computation(monkeypatch):
    from threadpoolctl import threadpool_limits

    monkeypatch.setattr(blas_threads, "running", lambda: 1)
    monkeypatch.setattr(blas_threads.os, "cpu_count", lambda: 64)
    large = parse(CONVOLUTION)
    with threadpool_limits(2, user_api="blas"):
        one, other = blas_threads.beside_others(large), blas_threads.beside_others(large)
        with one:
            assert blas_thread_counts() == {2}
        monkeypatch.setattr(blas_threads.os, "cpu_count", lambda: 1)
        one = blas_threads.beside_others(large)
        one.__enter__()
        other.__enter__()
        one.__exit__(None, None, None)
        assert blas_thread_counts() == {1}
        other.__exit__(None, None, None)
        assert blas_thread_counts() == {2}


@pytest.mark.parametrize("stride, padding", [(1, 0), (2, 1)])
def test_a_data_gradient_multiplies_once_and_not_once_for_each_tap(seen, stride, padding):
    extent = 1 + (32 - 3 + 2 * padding) // stride
    operation = parse(
        "ConvolutionBackwardData(convolution=ConvolutionSpec(mode=CUDNN_CROSS_CORRELATION, compute_type=CUDNN_DATA_FLOAT,"
        f" padding=({padding}, {padding}), stride=({stride}, {stride}), dilation=(1, 1), group_count=1,"
        " math_type=CUDNN_DEFAULT_MATH, reorder_type=CUDNN_DEFAULT_REORDER), algo=CUDNN_CONVOLUTION_BWD_DATA_ALGO_0,"
        " workspace_bytes=0, alpha=1.0, beta=0.0,"
        " w=FilterSpec(data_type=CUDNN_DATA_FLOAT, format=CUDNN_TENSOR_NCHW, dims=(8, 2, 3, 3)),"
        f" dy=TensorSpec(data_type=CUDNN_DATA_FLOAT, dims=(1, 8, {extent}, {extent}), strides=({8 * extent**2}, {extent**2}, {extent}, 1)),"
        " dx=TensorSpec(data_type=CUDNN_DATA_FLOAT, dims=(1, 2, 32, 32), strides=(2048, 1024, 32, 1)))"
    )
    run(operation, memory_of(operation))
    assert len(seen) == 1


def test_bounds_are_computed_for_the_judge_alone(monkeypatch):
    """A backend's call does not compute the error bounds of its sums."""
    monkeypatch.setattr(reduce_tensor, "_sums_are_exact", lambda *_, **__: pytest.fail("asked"))
    for op in cudnnReduceTensorOp_t:
        operation = parse(
            f"ReduceTensor(reduction=ReduceTensorSpec(op={op.name}, compute_type=CUDNN_DATA_FLOAT, nan=CUDNN_PROPAGATE_NAN,"
            " indices=CUDNN_REDUCE_TENSOR_NO_INDICES, indices_type=CUDNN_32BIT_INDICES), alpha=1.0, beta=0.0, workspace_bytes=0, indices_bytes=0,"
            " A=TensorSpec(data_type=CUDNN_DATA_FLOAT, dims=(2, 3, 4, 5), strides=(60, 20, 5, 1)),"
            " C=TensorSpec(data_type=CUDNN_DATA_FLOAT, dims=(1, 3, 1, 1), strides=(3, 1, 1, 1)))"
        )
        run(operation, memory_of(operation))


@pytest.mark.parametrize("window, stride", [(2, 2), (3, 2)])
def test_a_maximum_pooling_gradient_needs_less_memory_than_its_tensor(window, stride):
    """The page faults of large temporaries would cost more time than the computation."""
    tensor = "TensorSpec(data_type=CUDNN_DATA_FLOAT, dims=(128, 40, {0}, {0}), strides=({1}, {2}, {0}, 1))"
    x, y = (tensor.format(size, 40 * size**2, size**2) for size in (24, 1 + (24 - window) // stride))
    operation = parse(
        "PoolingBackward(pooling=PoolingSpec(mode=CUDNN_POOLING_MAX, nan=CUDNN_PROPAGATE_NAN,"
        f" window=({window}, {window}), padding=(0, 0), stride=({stride}, {stride})), alpha=1.0, beta=0.0,"
        f" y={y}, dy={y}, x={x}, dx={x})"
    )
    memory = memory_of(operation)
    run(operation, memory)
    tracemalloc.start()
    run(operation, memory)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < memory["x"].nbytes


def pinned_operations(kind):
    """Yield the operations of the corpus that are of this kind."""
    for path in corpus.FOLDER.glob("*.jsonl"):
        for line in path.read_text(encoding="utf-8").splitlines():
            if f"{kind.__name__}(" in line:
                yield from map(
                    parse, (text for text in json.loads(line)["operations"] if text.startswith(f"{kind.__name__}("))
                )


@for_each("kind", [kind for kind in engine.implemented() if kind in engine._UNREAD])
def test_operands_that_a_formula_does_not_need_are_not_read(kind):
    """The smallest operation for each list of unread operands runs without their memory."""
    smallest = {}
    for operation in sorted(
        pinned_operations(kind), key=lambda operation: sum(map(operation.nbytes, operation.operands))
    ):
        smallest.setdefault(engine._UNREAD[kind](operation), operation)
    assert any(smallest)
    for unread, operation in smallest.items():
        run(operation, {name: array for name, array in memory_of(operation).items() if name not in unread})


def test_each_input_without_use_in_a_formula_is_declared():
    """A parameter without use begins with an underscore, as the lint demands."""
    engine.implemented()
    for kind, formula in engine._IMPLEMENTATIONS.items():
        names = [*inspect.signature(formula).parameters][1:]
        if any(name.startswith("_") for name in names):
            assert kind in engine._UNREAD, kind


@pytest.mark.parametrize("window", [2, 3])
def test_the_last_position_of_a_window_inside_the_input_is_not_compared(monkeypatch, window):
    """If no earlier position holds the maximum, the last one must hold it."""
    spec = parse(
        "PoolingSpec(mode=CUDNN_POOLING_MAX, nan=CUDNN_PROPAGATE_NAN,"
        f" window=({window}, {window}), padding=(0, 0), stride=(2, 2))"
    )
    x = np.random.default_rng(3).standard_normal((2, 3, 7, 7))
    axes = pooling.maxima_along_axes(x, spec, [3, 3], propagate=True)
    compared = []
    monkeypatch.setattr(np, "ascontiguousarray", lambda array: compared.append(array) or array)
    pooling.at_first_maxima(axes[-1].best, axes)
    assert len(compared) == 2 * (window - 1)


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


def test_the_data_gradient_of_short_rows_takes_few_products(monkeypatch, seen):
    """Two matrix products, each over all images, compute the data gradient of LeNet's second convolution."""
    spec = CONVOLUTION[CONVOLUTION.index("convolution=") : CONVOLUTION.index(" algo=")].replace("(1, 1)", "(0, 0)", 1)
    w = "FilterSpec(data_type=CUDNN_DATA_FLOAT, format=CUDNN_TENSOR_NCHW, dims=(50, 20, 5, 5))"
    dy = "TensorSpec(data_type=CUDNN_DATA_FLOAT, dims=(64, 50, 8, 8), strides=(3200, 64, 8, 1))"
    dx = "TensorSpec(data_type=CUDNN_DATA_FLOAT, dims=(64, 20, 12, 12), strides=(2880, 144, 12, 1))"
    operation = parse(
        f"ConvolutionBackwardData({spec} algo=CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, workspace_bytes=0, alpha=1.0, beta=0.0, w={w}, dy={dy}, dx={dx})"
    )
    sizes, setbufsize, before = [], np.setbufsize, np.getbufsize()
    monkeypatch.setattr(np, "setbufsize", lambda size: sizes.append(size) or setbufsize(size))
    run(operation, memory_of(operation))
    assert len(seen) == 2
    # NumPy copies rows of 512 elements through its buffer, which takes longer than their sums.
    assert sizes == [16, before] * 2
