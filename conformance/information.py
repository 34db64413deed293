"""Print devices, compilers, functions, and how to get what is missing: `dualdnn info`."""

from __future__ import annotations

import argparse

from dualdnn import accelerated
from dualdnn.api import cudnn, miopen
from dualdnn.api.document import SPECIFICATION, functions
from dualdnn.api.handle import level_named
from dualdnn.api.miopen.document import functions as miopen_functions
from dualdnn.api.operations.backend import LEVELS

from .subjects import find_vendor_library


def add_options(_parser: argparse.ArgumentParser) -> None:
    """Add no option."""


def run(_chosen: argparse.Namespace) -> int:
    """Print a line for each device, compiler and list of functions; return 0."""
    present = [name for name in functions() if hasattr(cudnn, name)]
    vendor = find_vendor_library()
    rows = {
        "specification": SPECIFICATION,
        "functions": f"{len(present)} of {len(functions())} implemented",
        "MIOpen guide": f"{sum(hasattr(miopen, name) for name in miopen_functions())} of {len(miopen_functions())} implemented",
        "reproducible": f"{level_named(None)} (DUALDNN_REPRODUCIBLE names another: {', '.join(LEVELS)})",
        **accelerated.facts(),
        "vendor library": vendor.name if vendor else "missing: pip install 'dualdnn[vendor]'",
    }
    width = max(map(len, rows))
    for name, value in rows.items():
        first, *more = value.splitlines()
        print("\n".join([f"{name:{width}}  {first}", *(f"{'':{width}}  {line}" for line in more)]))
    return 0
