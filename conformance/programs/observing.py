"""Run an unmodified program on its own library, and judge every call: ``dualdnn observe -- COMMAND``."""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from dualdnn.api.abi.faces import face

from ..subjects import find_vendor_library
from ..subjects.binding.elf import fault_of
from . import children, libraries
from .portion import BUDGET, EVERY, MAX_SPOTS, SPOTS
from .running import command_of

# This program prints where an interpreter has NVIDIA's wheel.
WHEEL = "import glob, sys; print(*sorted(sum((glob.glob(p + '/nvidia/cudnn/lib/libcudnn.so.[89]') for p in sys.path if p), []))[-1:])"


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--every", type=_count, default=1, metavar="N", help="judge one of N calls of each configuration"
    )
    parser.add_argument(
        "--budget",
        type=_part,
        default=1.0,
        metavar="PART",
        help="spend at most this share of the time on judging, such as 20%%",
    )
    parser.add_argument(
        "--spots",
        type=int,
        default=MAX_SPOTS,
        metavar="N",
        help="elements of each output of a large call that are judged; 0: all of them (default: %(default)s)",
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="where summary.txt, observed.json and report.html go")
    parser.add_argument(
        "--library", type=Path, metavar="PATH", help="the library that computes (default: what the command would load)"
    )
    parser.add_argument("program", nargs=argparse.REMAINDER, metavar="-- COMMAND...")


def run(chosen: argparse.Namespace) -> int:
    """Run the command on NVIDIA's library and judge it.

    Return the command's exit status, or 1 if something is wrong.
    """
    command = command_of(chosen)
    program = libraries.program_of(command)
    observed = chosen.library or loaded_by(program)
    if observed is None or not observed.is_file():
        raise ValueError(f"{observed or 'libcudnn.so.8 or .9'} is not found: name NVIDIA's library by --library PATH")
    if fault := fault_of(observed):
        raise ValueError(f"{observed} {fault}")
    release = release_of(observed)
    # LD_LIBRARY_PATH is not set: the observed library looks for its parts by names that ours has too.
    built = libraries.library(release)
    with tempfile.TemporaryDirectory(prefix="dualdnn-") as folder:
        out = chosen.out or Path(folder)
        variables = {
            "LD_PRELOAD": libraries.before("LD_PRELOAD", built),
            "TORCH_CUDNN_V8_API_DISABLED": "1",
            "DUALDNN_BACKEND": f"observe:{observed.resolve()}",
            "DUALDNN_OBSERVE_OUT": str(out.resolve()),
            EVERY: str(chosen.every),
            BUDGET: str(chosen.budget),
            SPOTS: str(chosen.spots),
        }
        print(
            f"dualdnn observe: {observed} serves {shlex.join(command)}, its calls are judged",
            file=sys.stderr,
            flush=True,
        )
        found = out / "observed.json"
        found.unlink(missing_ok=True)
        status = children.run(command, program, variables, "observe")
        wrong = found.is_file() and any(json.loads(found.read_text())[kind] for kind in ("wrong", "status", "result"))
    return status or int(wrong)


def loaded_by(program: Path) -> Path | None:
    """Return the library that a program would load: from the interpreter's wheel, the loader's folders, or our
    packages.
    """
    if program.name.startswith("python"):
        told = subprocess.run([str(program), "-c", WHEEL], capture_output=True, text=True)
        if told.returncode == 0 and told.stdout.strip():
            return Path(told.stdout.strip())
    names = [face(number).library for number in libraries.faces_of(program)]
    folders = [Path(folder) for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    listed = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True).stdout
    for name in names:
        for path in (*(folder / name for folder in folders), *map(Path, re.findall(rf"\b{name} .*=> (\S+)", listed))):
            if path.is_file():
                return path
    return find_vendor_library()


def release_of(path: Path) -> int:
    """Return the release in a library's name, or 8 without one."""
    named = re.search(r"\.so\.(\d+)", path.name)
    return int(named[1]) if named and named[1] in ("8", "9") else 8


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return int(text)


def _part(text: str) -> float:
    try:
        part = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        part = -1.0
    if not 0 < part <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share of the time, such as 20% or 0.2")
    return part
