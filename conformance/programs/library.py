"""Build the documented calls as a library for programs in C: `dualdnn abi`."""

from __future__ import annotations

import argparse
from pathlib import Path

from dualdnn.api.abi.build import build as build_c_library
from dualdnn.api.abi.cuda_runtime import build_runtime


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "--out", type=Path, default=Path("abi"), metavar="DIR", help="where they go (default: %(default)s)"
    )
    parser.add_argument(
        "--runtime", action="store_true",
        help="a CUDA runtime and driver on memory of the host, too, for machines without a GPU",
    )  # fmt: skip
    parser.add_argument(
        "--face",
        type=int,
        choices=(8, 9),
        default=8,
        help="the release whose name and numbers it has (default: %(default)s)",
    )


def run(chosen: argparse.Namespace) -> int:
    """Build the C library, its header and, if wanted, the replacement of CUDA."""
    library = build_c_library(chosen.out, chosen.face)
    made = [library, library.parent / "include" / "cudnn.h"]
    made += build_runtime(chosen.out) if chosen.runtime else []
    print(*made, sep="\n")
    return 0
