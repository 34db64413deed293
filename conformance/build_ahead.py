"""``dualdnn build``: compile the kernels before anything calls them, in parallel, with progress."""

from __future__ import annotations

import argparse
import sys
import time
from types import SimpleNamespace
from typing import Any

from dualdnn.accelerated.compiler import compile_all
from dualdnn.accelerated.device import open_device
from dualdnn.accelerated.plans import plan
from dualdnn.api.operations.specs import BFLOAT16, DOUBLE, FLOAT, HALF, INT8

from .bench.rows import LAYOUTS, OPERATIONS

TYPES = (FLOAT, HALF, BFLOAT16, DOUBLE, INT8)
SMALL_SHAPES = ((2, 8, 6, 6), (2, 8, 4, 6, 6))


class Listing:
    """Stands for a device while operations are planned, and notes which modules their kernels are in."""

    def __init__(self, device: Any) -> None:
        self.device = device
        self.modules: dict[tuple[str, tuple[tuple[str, str], ...]], None] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.device, name)

    def function(self, source: str, _kernel: str, definitions: tuple[tuple[str, str], ...] = ()) -> Any:
        self.modules[source, definitions] = None
        return SimpleNamespace(static_shared_bytes=0, maximum_threads=1024, holds_clusters=lambda *_: True)


def wanted_modules(device: Any) -> list[tuple[str, tuple[tuple[str, str], ...]]]:
    """The modules of every operation that is timed, in every data type."""
    listing = Listing(device)
    for make, _ in OPERATIONS.values():
        for dims in SMALL_SHAPES:
            for data_type in TYPES:
                for layout in LAYOUTS:
                    plan(make(data_type, dims, layout), listing)
    return list(listing.modules)


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
