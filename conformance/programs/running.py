"""Run an unmodified program on this library instead of cuDNN: ``dualdnn run -- COMMAND``."""

from __future__ import annotations

import argparse
import shlex
import sys

from dualdnn.accelerated import gpu_is_usable
from dualdnn.api import releases
from dualdnn.api.abi.faces import face
from dualdnn.api.handle import BACKENDS
from dualdnn.api.operations.backend import LEVELS, RUN

from . import children, libraries


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--backend", choices=BACKENDS, help="what computes (default: accelerated where a GPU is usable, else reference)"
    )
    parser.add_argument(
        "--face",
        type=int,
        choices=libraries.FACES,
        help="the release that the program links (default: what its file says)",
    )
    parser.add_argument(
        "--as", dest="release", choices=(releases.DOCUMENT, *releases.RELEASES),
        help="the release whose declared differences are served (default: that of the face; 8.0.3 is the document)",
    )  # fmt: skip
    parser.add_argument(
        "--reproducible", choices=LEVELS,
        help="the level at which results are the same bits (docs/reproducibility.md; default: DUALDNN_REPRODUCIBLE)",
    )  # fmt: skip
    parser.add_argument("program", nargs=argparse.REMAINDER, metavar="-- COMMAND...")


def run(chosen: argparse.Namespace) -> int:
    """Run the command on this library, and return its exit status."""
    command = command_of(chosen)
    program = libraries.program_of(command)
    backend = chosen.backend or ("accelerated" if gpu_is_usable() else "reference")
    if backend == "reference" and chosen.reproducible not in (None, RUN):
        raise ValueError(f"--reproducible is {chosen.reproducible}, and the reference backend promises {RUN} alone")
    faces = (chosen.face,) if chosen.face else libraries.faces_of(program)
    release = chosen.release or ("8.9.7" if faces == (8,) else face(9).release)
    built = [libraries.library(number) for number in faces]
    folders = [path.parent for path in built]
    if backend == "reference":  # The reference computes in host memory.
        folders.append(libraries.host_runtime())
    variables = {
        "LD_PRELOAD": libraries.before("LD_PRELOAD", *built),
        "LD_LIBRARY_PATH": libraries.before("LD_LIBRARY_PATH", *folders),
        "TORCH_CUDNN_V8_API_DISABLED": "1",
        "DUALDNN_BACKEND": backend,
        "DUALDNN_AS": str(release),
        **({"DUALDNN_REPRODUCIBLE": chosen.reproducible} if chosen.reproducible else {}),
    }
    names = " and ".join(path.name for path in built)
    print(
        f"dualdnn run: the {backend} backend serves {shlex.join(command)} as {names}, acting as release {release}",
        file=sys.stderr,
        flush=True,
    )
    return children.run(command, program, variables, "run")


def command_of(chosen: argparse.Namespace) -> list[str]:
    """Return the command after the two dashes."""
    given: list[str] = chosen.program
    return given[1:] if given[:1] == ["--"] else given
