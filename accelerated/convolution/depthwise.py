"""Depthwise convolutions on the device (convolution/depthwise.cu)."""

from __future__ import annotations

from ctypes import c_int, c_longlong, c_ubyte, sizeof
from math import lcm
from typing import Any

from dualdnn.api.operations import TensorSpec

from ..plans import Launch, factors, pointers, structure, type_definitions
from ..primitives.geometry import FastDivmod, blocks
from ..primitives.tma import MAP_BYTES, TmaLaunch
from .depthwise_tma import Ring, RingStruct, ring, ring_definitions
from .problem import (
    PACK_BYTES,
    PLAIN,
    Convolution,
    ConvolutionStruct,
    channels_last,
    epilogue,
    operand_names,
    operation_product,
)

SOURCE, RING_KERNEL = "convolution/depthwise.cu", "depthwise_ring"
ALIGNMENT = 64  # of the arguments
CHANNELS = 4  # of a thread of the kernel for any filter, where they lie side by side
NEIGHBOURS = 32  # threads with packs of channels of the same position, at most

# Windows that have a kernel of their own, and what a thread of it takes: channels of 16 bits, of more; columns of them
WINDOWS: dict[tuple[int, ...], tuple[int, int, int]] = {(3, 3): (4, 2, 4), (5, 5): (2, 2, 4), (7, 7): (2, 1, 2)}
STEPS = ((1, 1), (2, 2))
THREADS = 128
BLOCKS = 1  # of a multiprocessor, at least
AHEAD = 2  # rows of x that are read before they are needed
ROWS = range(7, 15)  # of a strip: as many as leave enough threads
ENOUGH = 300_000  # threads, a few times what a GPU holds
STRIP_COST = 20  # what a strip costs beside its products, in products


def is_depthwise(operation: Convolution) -> bool:
    """Every channel has one filter of its own."""
    groups = operation.convolution.group_count
    return groups > 1 and operation.w.dims[:2] == (groups, 1) and operation.x.scalar_bytes > 1


def depthwise(operation: Convolution, device: Any) -> list[Launch]:
    """One kernel: a strip of rows and columns for each thread; for rare windows and layouts a position."""
    o = operation
    value = operation_product(o)
    definitions = _definitions(o, device)
    last = channels_last(o.x) and channels_last(o.y)
    channels, (_, height, width) = o.x.dims[1], (output.divisor for output in value.output)
    if definitions:
        per_thread, columns = definitions["CHANNELS"], -(-width // definitions["COLUMNS"])
    else:
        per_thread, columns = CHANNELS if last else 1, width
    packs = -(-channels // per_thread)
    neighbours = -(-packs // -(-packs // NEIGHBOURS)) if last else 1
    channel_blocks = -(-packs // neighbours)
    threads = o.x.dims[0] * value.output[0].divisor * neighbours * channel_blocks * columns
    rows = _strip_rows(height, threads) if definitions else 1
    strips = -(-height // rows)
    arguments = _arguments(o, value, RingStruct(), (neighbours, columns, strips, channel_blocks), rows)
    name = "depthwise_strips" if definitions else f"depthwise_{'channels' if last else 'columns'}"
    module = type_definitions(o.x.scalar_type, o, **{key: str(number) for key, number in definitions.items()})
    function = device.function(SOURCE, name, module)
    grid, block = blocks(threads * strips, THREADS), (THREADS, 1, 1)
    launch = Launch(function, arguments, ("x", "w", *operand_names(o)), grid, block)
    if "RING_THREADS" not in definitions:
        return [launch]
    return [_fed(o, value, ring(o, definitions, device), device, module, launch)]


def _fed(o: Convolution, value: ConvolutionStruct, found: Ring, device: Any, module: Any, fallback: Launch) -> Launch:
    """The launch of the kernel that TMA feeds."""
    channel_blocks, tiles, strips = found.shape.blocks(o)
    arguments = _arguments(o, value, found.arguments, (1, tiles, strips, channel_blocks), found.shape.rows)
    grid, block = (o.x.dims[0] * channel_blocks * tiles * strips, 1, 1), (found.shape.threads, 1, 1)
    function = device.function(SOURCE, RING_KERNEL, module)
    launch = Launch(function, arguments, fallback.operands, grid, block, found.shape.shared_bytes)
    places = ((type(arguments).image.offset, 0, 0, found.image),)
    return TmaLaunch(device, (SOURCE, module), RING_KERNEL, launch, places, fallback, aligned=(1, 2, 3))


def _arguments(
    o: Convolution, value: ConvolutionStruct, ring: RingStruct, divisors: tuple[int, int, int, int], rows: int
) -> Any:
    """``Arguments`` in convolution_depthwise.cu."""
    names, last = ("packs", "columns", "strips", "blocks"), channels_last(o.x) and channels_last(o.y)
    fields = [
        *pointers(5),
        ("reserved", (c_longlong * 3)()),
        ("image", (c_ubyte * MAP_BYTES)()),
        ("ring", ring),
        ("convolution", value),
        ("epilogue", epilogue(o)),
        *((name, FastDivmod.of(divisor)) for name, divisor in zip(names, divisors, strict=True)),
        *_factors(o),
        ("plain", c_int(bytes(epilogue(o)) == bytes(PLAIN))),
        ("channels", c_int(o.x.dims[1])),
        ("images", c_int(o.x.dims[0])),
        ("rows", c_int(rows)),
        ("packed", c_int(last and _pack(CHANNELS, o.x.dims[1], _steps(o.x, 1)) == CHANNELS)),
    ]
    return structure(*fields, ("padding", (c_ubyte * (-sizeof(structure(*fields)) % ALIGNMENT))()))


def _factors(operation: Convolution) -> list[tuple[str, Any]]:
    values = epilogue(operation)
    return factors(operation, alpha=values.alpha, beta=values.beta)


def _steps(tensor: TensorSpec, innermost: int) -> tuple[int, ...]:
    """Distances between neighbours along every dimension but the innermost."""
    return (*tensor.strides[:innermost], *tensor.strides[innermost + 1 :])


def _pack(most: int, extent: int, steps: tuple[int, ...]) -> int:
    """The largest pack, a power of two up to ``most``, that divides an extent and every distance."""
    return next(size for size in (16, 8, 4, 2, 1) if size <= most and not any(n % size for n in (extent, *steps)))


def _definitions(o: Convolution, device: Any) -> dict[str, int]:
    """The definitions of a window's own kernel; none for the kernel for any filter."""
    window, step = o.w.dims[2:], o.convolution.stride
    if window not in WINDOWS or step not in STEPS or max(o.convolution.dilation) > 1:
        return {}
    chosen = {
        "WINDOW_ROWS": window[0], "WINDOW_COLUMNS": window[1], "STEP": step[0],
        "THREADS": THREADS, "BLOCKS": BLOCKS, "AHEAD": max(1, AHEAD // step[0]),
    }  # fmt: skip
    if o.x.strides[1] == o.y.strides[1] == 1:
        return chosen | _of_channels(o) | ring_definitions(o, device)
    if o.x.strides[3] == o.y.strides[3] == 1 and o.convolution.padding[1] < window[1]:
        return chosen | _of_columns(o)
    return {}


def _of_channels(o: Convolution) -> dict[str, int]:
    narrow, wide, columns = WINDOWS[o.w.dims[2:]]
    most = narrow if o.x.scalar_bytes == 2 else wide if o.x.scalar_bytes == 4 else 1
    channels = _pack(most, o.x.dims[1], (*_steps(o.x, 1), *_steps(o.y, 1)))
    return {"CHANNELS_LAST": 1, "CHANNELS": channels, "COLUMNS": columns}


def _of_columns(o: Convolution) -> dict[str, int]:
    step, width, most = o.convolution.stride[1], o.y.dims[3], PACK_BYTES // o.x.scalar_bytes
    x_pack = _pack(most, o.x.dims[3], _steps(o.x, 3))
    y_pack = _pack(most // step, width, _steps(o.y, 3))
    taps, unit = o.w.dims[2] * o.w.dims[3], lcm(y_pack, max(1, x_pack // step))
    columns = min(
        range(unit, max(unit, most // step) + 1, unit),
        key=lambda count: -(-width // count) * (count * taps + STRIP_COST),
    )
    return {
        "CHANNELS": 1,
        "COLUMNS": columns,
        "PADDING": o.convolution.padding[1],
        "X_PACK": x_pack,
        "Y_PACK": y_pack,
    }


def _strip_rows(height: int, threads: int) -> int:
    """Rows of a strip, all strips about alike: neighbours share rows, so they are long while there are enough."""
    rows = height
    for strips in range(1, height + 1):
        rows = -(-height // strips)
        if rows < ROWS.stop and (threads * strips >= ENOUGH or rows <= ROWS.start):
            break
    return rows
