"""Build the documented calls as a library for programs in C: `dualdnn abi`."""

from __future__ import annotations

import argparse
from pathlib import Path

from dualdnn.api.abi.build import build as build_c_library
from dualdnn.api.abi.cuda_runtime import RELEASES, build_runtime


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "--out", type=Path, default=Path("abi"), metavar="DIR", help="where they go (default: %(default)s)"
    )
    parser.add_argument(
        "--runtime", nargs="?", type=int, choices=RELEASES, const=0, metavar="CUDA",
        help="a CUDA runtime and driver on memory of the host, too, for machines without a GPU; "
        "-lcudart links that of CUDA 11, 12 or 13 (default: of the headers on this machine)",
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
    made += [] if chosen.runtime is None else build_runtime(chosen.out, chosen.runtime or None)
    print(*made, sep="\n")
    return 0
