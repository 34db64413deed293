"""``dualdnn build``: compile the kernels before anything calls them, in parallel, with progress."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, product
from types import SimpleNamespace
from typing import Any

from dualdnn.accelerated.compiler import compile_all
from dualdnn.accelerated.device import open_device
from dualdnn.accelerated.plans import plan, workspace_bytes
from dualdnn.api.cudnn.pooling import BACKWARD_TYPES, FORWARD_TYPES
from dualdnn.api.cudnn.transform import CONVERTED, NOT_CONVERTED
from dualdnn.api.enumerations import cudnnConvolutionFwdAlgo_t
from dualdnn.api.operations import Operation, PoolingBackward, PoolingForward, TensorSpec, TransformTensor
from dualdnn.api.operations.specs import BFLOAT16, DOUBLE, FLOAT, HALF, INT8, INT32, UINT8
from dualdnn.api.support.convolution import Problem, unsupported

from .bench.convolution_rows import convolution_rows
from .bench.row import Convolution
from .bench.rows import LAYOUTS, OPERATIONS
from .convolution_kinds import convolutions, filters_and_matrices

TYPES = (FLOAT, HALF, BFLOAT16, DOUBLE, INT8)
# Of the operations that take fewer types
TAKEN = {PoolingForward: FORWARD_TYPES, PoolingBackward: BACKWARD_TYPES}
SMALL_SHAPES = ((2, 8, 6, 6), (2, 8, 4, 6, 6))


class Listing:
    """Stands for a device while operations are planned, and notes which modules their kernels are in."""

    def __init__(self, device: Any) -> None:
        self.device = device
        self.modules: dict[tuple[str, tuple[tuple[str, str], ...]], None] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.device, name)

    def function(self, source: str, _kernel: str, definitions: tuple[tuple[str, str], ...] = ()) -> Any:
        self.modules[source, tuple(definitions)] = None
        return SimpleNamespace(static_shared_bytes=0, maximum_threads=1024, holds_clusters=lambda *_: True)


def wanted_modules(device: Any) -> list[tuple[str, tuple[tuple[str, str], ...]]]:
    """The modules of every operation that is timed, in every data type, and of every kind of convolution."""
    listing = Listing(device)
    for operation in planned(device):
        plan(operation, listing)
    return list(listing.modules)


def planned(device: Any) -> Iterator[Operation]:
    """Operations that between them use every module."""
    for make, shapes in OPERATIONS.values():
        for dims, data_type, layout in product((*SMALL_SHAPES, *shapes), TYPES, LAYOUTS):
            operation = make(data_type, dims, layout)
            if data_type in TAKEN.get(type(operation), TYPES):
                yield operation
    yield from conversions()
    yield from filters_and_matrices()
    for convolution in chain(convolutions(), timed_convolutions()):
        yield replace(convolution, workspace_bytes=workspace_bytes(convolution, device))


def conversions() -> Iterator[Operation]:
    """Transforms from one data type into another or itself."""
    pairs = [pair for pair in product(CONVERTED, CONVERTED) if pair not in NOT_CONVERTED]
    for source, destination in [*pairs, (UINT8, UINT8), (INT32, INT32)]:
        x, y = (TensorSpec.packed(data_type, SMALL_SHAPES[0]) for data_type in (source, destination))
        yield TransformTensor(1.0, 0.0, x, y)


def timed_convolutions() -> Iterator[Convolution]:
    """Of the timed sizes, with every algorithm: kernels may be chosen by size."""
    for row in convolution_rows():
        if isinstance(row.operation, Convolution):
            o = row.operation
            problem = Problem(o.convolution, o.x, o.w, o.y)
            for algorithm in cudnnConvolutionFwdAlgo_t:
                if unsupported(problem, algorithm) is None:
                    yield replace(o, algo=algorithm)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", choices=["gpu", "emulated"], default="gpu")
    parser.add_argument("--jobs", type=int, default=None, metavar="N", help="processes (default: one per core)")


def run(chosen: argparse.Namespace) -> int:
    """Compile what is not in the cache yet."""
    device = open_device(chosen.device)
    modules = wanted_modules(device)
    started = time.perf_counter()

    def progress(built: Any, done: int, total: int) -> None:
        bar = "#" * (30 * done // total)
        print(f"\r[{bar:30}] {done} of {total}  {built!s:60.60}", end="", file=sys.stderr, flush=True)

    compile_all(modules, device.architecture, chosen.jobs, progress)
    print(
        f"\n{len(modules)} modules for {device.architecture} in {time.perf_counter() - started:.1f} s", file=sys.stderr
    )
    return 0
