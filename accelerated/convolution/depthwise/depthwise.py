"""Plan depthwise convolutions on the device (convolution/depthwise/depthwise.cu)."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_int
from math import lcm
from typing import Any

from dualdnn.api.operations import TensorSpec

from ...plans import Launch, factors, fields_of, pointers, structure, type_definitions
from ...primitives.geometry import FastDivmod, blocks
from ...reproducible import Order
from ..forward import IMPLICIT, ConvolutionProblem, ConvolutionSolver
from ..problem import (
    PLAIN,
    VECTOR_BYTES,
    Convolution,
    ConvolutionStruct,
    Rates,
    blend,
    channels_last,
    epilogue,
    operand_names,
    operation_product,
)

SOURCE = "convolution/depthwise/depthwise.cu"
CHANNELS = 4  # channels per vector where a thread computes one output at a time
NEIGHBOURS = 32  # maximum of neighbouring threads that share a pixel

# These windows have their own kernels. The values are per thread: channels of 16 bits, channels of 32 bits, and
# columns.
WINDOWS: dict[tuple[int, ...], tuple[int, int, int]] = {(3, 3): (4, 2, 4), (5, 5): (2, 2, 4), (7, 7): (2, 1, 2)}
STEPS = ((1, 1), (2, 2))
THREADS = 128
BLOCKS = 1  # minimum of blocks per multiprocessor
AHEAD = 2  # rows of x that are read before they are needed
ROWS = range(7, 15)  # rows per thread tile; fewer rows give more threads
ENOUGH = 300_000  # threads, several times as many as a GPU holds at once
TILE_COST = 20  # fixed cost of a thread tile, in products


class DepthwiseSolver(ConvolutionSolver):
    """Serve convolutions where every channel has its own filter, by one kernel."""

    algorithms = IMPLICIT

    def can_launch(self, problem: ConvolutionProblem) -> bool:
        o, groups = problem.operation, problem.groups
        depthwise = groups > 1 and o.w.dims[:2] == (groups, 1) and o.x.scalar_bytes > 1
        return depthwise and self.takes(o, problem.device)

    def takes(self, o: Convolution, device: Any) -> bool:
        """Return whether the kernel has the window, strides and layouts of a depthwise convolution."""
        return True

    def summation_order(self, problem: ConvolutionProblem) -> Order:
        return Order("fma", (problem.definitions, "rows, columns", self.name))

    def estimated_seconds(self, problem: ConvolutionProblem) -> float:
        return Rates.LAUNCH + problem.memory_seconds


class Depthwise(DepthwiseSolver):
    """Serve common windows with thread tiles: rows and columns for each thread."""

    name = "convolution.depthwise"

    def takes(self, o: Convolution, device: Any) -> bool:
        in_rows = (
            o.x.strides[3] == o.y.strides[3] == 1 and o.convolution.padding[1] < o.w.dims[3] if _is_static(o) else False
        )
        return _is_static(o) and (_has_channels_last(o) or in_rows)

    def launches(self, problem: ConvolutionProblem) -> list[Launch]:
        o = problem.operation
        definitions = _definitions_of_channels(o) if _has_channels_last(o) else _definitions_of_rows(o)
        return [_static_launch(problem, definitions)]


def _static_launch(problem: ConvolutionProblem, definitions: dict[str, int]) -> Launch:
    width = operation_product(problem.operation).output[2].divisor
    columns = -(-width // definitions["COLUMNS"])
    return _launch(problem, "convolution_depthwise_static", definitions, definitions["CHANNELS"], columns, _tile_rows)


def _launch(
    problem: ConvolutionProblem, name: str, definitions: dict[str, int], per_thread: int, columns: int,
    rows_of: Callable[[int, int], int] | None,
) -> Launch:  # fmt: skip
    """Return a launch of threads that each have ``per_thread`` channels of one of ``columns`` thread tiles.

    ``rows_of`` returns the rows per thread tile from the height of y and the threads of one row; None means one row.
    """
    o, value = problem.operation, operation_product(problem.operation)
    last, height = channels_last(o.x) and channels_last(o.y), value.output[1].divisor
    vectors = -(-o.x.dims[1] // per_thread)
    neighbours = -(-vectors // -(-vectors // NEIGHBOURS)) if last else 1
    channel_blocks = -(-vectors // neighbours)
    threads = o.x.dims[0] * value.output[0].divisor * neighbours * channel_blocks * columns
    rows = rows_of(height, threads) if rows_of else 1
    row_tiles = -(-height // rows)
    arguments = _arguments(o, value, (neighbours, columns, row_tiles, channel_blocks), rows)
    function = problem.device.function(SOURCE, name, _module(o, definitions))
    grid, block = blocks(threads * row_tiles, THREADS), (THREADS, 1, 1)
    return Launch(function, arguments, ("x", "w", *operand_names(o)), grid, block)


def _module(o: Convolution, definitions: dict[str, int]) -> tuple[tuple[str, str], ...]:
    return type_definitions(o.x.scalar_type, o, **{key: str(number) for key, number in definitions.items()})


def _arguments(o: Convolution, value: ConvolutionStruct, divisors: tuple[int, int, int, int], rows: int) -> Any:
    """Return ``Arguments`` of depthwise.cu."""
    names, last = ("vectors", "columns", "row_tiles", "blocks"), channels_last(o.x) and channels_last(o.y)
    fields = [
        *pointers(5),
        ("convolution", value),
        ("epilogue", epilogue(o)),
        *((name, FastDivmod.of(divisor)) for name, divisor in zip(names, divisors, strict=True)),
        *_factors(o),
        *fields_of(c_int, plain=bytes(epilogue(o)) == bytes(PLAIN), channels=o.x.dims[1], images=o.x.dims[0]),
        *fields_of(
            c_int, rows=rows, packed=last and vector_of(CHANNELS, o.x.dims[1], steps_around(o.x, 1)) == CHANNELS
        ),
    ]
    return structure(*fields)


def _factors(operation: Convolution) -> list[tuple[str, Any]]:
    alpha, beta = blend(operation)
    return factors(operation, alpha=alpha, beta=beta)


def steps_around(tensor: TensorSpec, innermost: int) -> tuple[int, ...]:
    """Return the strides along every dimension but the innermost."""
    return (*tensor.strides[:innermost], *tensor.strides[innermost + 1 :])


def vector_of(most: int, extent: int, steps: tuple[int, ...]) -> int:
    """Return the largest vector, a power of two up to ``most``, that divides an extent and every stride."""
    return next(size for size in (16, 8, 4, 2, 1) if size <= most and not any(n % size for n in (extent, *steps)))


def _is_static(o: Convolution) -> bool:
    """Return whether a kernel is compiled for the window and stride."""
    return o.w.dims[2:] in WINDOWS and o.convolution.stride in STEPS and max(o.convolution.dilation) == 1


def _has_channels_last(o: Convolution) -> bool:
    return o.x.strides[1] == o.y.strides[1] == 1


def _definitions_of_window(o: Convolution) -> dict[str, int]:
    window, step = o.w.dims[2:], o.convolution.stride
    return {
        "WINDOW_ROWS": window[0], "WINDOW_COLUMNS": window[1], "STEP": step[0],
        "THREADS": THREADS, "BLOCKS": BLOCKS, "AHEAD": max(1, AHEAD // step[0]),
    }  # fmt: skip


def _definitions_of_channels(o: Convolution) -> dict[str, int]:
    """Return the macros of a kernel for NHWC."""
    narrow, wide, columns = WINDOWS[o.w.dims[2:]]
    most = narrow if o.x.scalar_bytes == 2 else wide if o.x.scalar_bytes == 4 else 1
    channels = vector_of(most, o.x.dims[1], (*steps_around(o.x, 1), *steps_around(o.y, 1)))
    return _definitions_of_window(o) | {"CHANNELS_LAST": 1, "CHANNELS": channels, "COLUMNS": columns}


def _definitions_of_rows(o: Convolution) -> dict[str, int]:
    """Return the macros of a kernel for NCHW."""
    step, width, most = o.convolution.stride[1], o.y.dims[3], VECTOR_BYTES // o.x.scalar_bytes
    x_vector = vector_of(most, o.x.dims[3], steps_around(o.x, 3))
    y_vector = vector_of(most // step, width, steps_around(o.y, 3))
    taps, unit = o.w.dims[2] * o.w.dims[3], lcm(y_vector, max(1, x_vector // step))
    columns = min(
        range(unit, max(unit, most // step) + 1, unit),
        key=lambda count: -(-width // count) * (count * taps + TILE_COST),
    )
    vectors = {"PADDING": o.convolution.padding[1], "X_VECTOR": x_vector, "Y_VECTOR": y_vector}
    return _definitions_of_window(o) | {"CHANNELS": 1, "COLUMNS": columns} | vectors


def _tile_rows(height: int, threads: int) -> int:
    """Return the rows per thread tile. All tiles have almost equal heights. Neighbouring tiles read the same halo, so
    they are as tall as possible while there are enough threads.
    """
    rows = height
    for row_tiles in range(1, height + 1):
        rows = -(-height // row_tiles)
        if rows < ROWS.stop and (threads * row_tiles >= ENOUGH or rows <= ROWS.start):
            break
    return rows
