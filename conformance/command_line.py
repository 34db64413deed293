"""The command ``dualdnn``: conformance, report, replay, build, bench, run, observe, port, show, info."""

from __future__ import annotations

import argparse
import shlex
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from dualdnn import accelerated
from dualdnn.accelerated import DeviceUnavailable
from dualdnn.api import __version__
from dualdnn.api.abi.build import build as build_c_library
from dualdnn.api.abi.cuda_runtime import build_runtime
from dualdnn.api.document import SPECIFICATION, functions
from dualdnn.api.miopen.document import functions as miopen_functions
from dualdnn.api.status import CudnnError

from . import build_ahead
from .bench import command as bench
from .fuzz import options as fuzz
from .guarded import run_guarded
from .pages import command as pages
from .port import command as port
from .programs import observing, running
from .replay import command as replay
from .report import ReportError
from .report import command as report
from .run_pytest import INTERRUPTED
from .suite import command as suite
from .suite import merge


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    parser = argparse.ArgumentParser(prog="dualdnn", description=f"The executable edition of the {SPECIFICATION}.")
    parser.add_argument("--version", action="version", version=f"dualdnn {__version__}, {SPECIFICATION}")
    commands = parser.add_subparsers(dest="command", required=True)

    conformance = commands.add_parser("conformance", help="hold subjects to the document and write the report")
    suite.add_options(conformance)
    conformance.set_defaults(run=suite.run)

    again = commands.add_parser("report", help="write the page of a compliance.json again")
    report.add_report_options(again)
    again.set_defaults(run=report.run_report)

    shards = commands.add_parser("merge", help="one report of the shards of a run (conformance --shard I/N)")
    merge.add_options(shards)
    shards.set_defaults(run=merge.run)

    changes = commands.add_parser("diff", help="what changed between two reports; exit status 1 on a regression")
    report.add_diff_options(changes)
    changes.set_defaults(run=report.run_diff)

    replayed = commands.add_parser(
        "replay", help="run a call again that a crosscheck handle has saved, a recorded one, or those of an API log"
    )
    replay.add_options(replayed)
    replayed.set_defaults(run=replay.run)

    drawing = commands.add_parser("fuzz", help="draw operations and judge them, until something is found")
    fuzz.add_options(drawing)
    drawing.set_defaults(run=fuzz.run)

    timed = commands.add_parser("bench", help="times beside the vendor's library and the floor of the hardware")
    bench.add_options(timed)
    timed.set_defaults(run=bench.run)

    ahead = commands.add_parser("build", help="compile the kernels ahead, in parallel")
    build_ahead.add_options(ahead)
    ahead.set_defaults(run=build_ahead.run)

    library = commands.add_parser("abi", help="build libcudnn.so.8 and cudnn.h: the documented calls for programs in C")
    library.add_argument(
        "--out", type=Path, default=Path("abi"), metavar="DIR", help="where they go (default: %(default)s)"
    )
    library.add_argument(
        "--runtime", action="store_true",
        help="a CUDA runtime and driver on memory of the host, too, for machines without a GPU",
    )  # fmt: skip
    library.add_argument(
        "--face",
        type=int,
        choices=(8, 9),
        default=8,
        help="the release whose name and numbers it has (default: %(default)s)",
    )
    library.set_defaults(run=run_abi)

    program = commands.add_parser("run", help="run an unmodified program on this library instead of cuDNN")
    running.add_options(program)
    program.set_defaults(run=running.run)

    watched = commands.add_parser("observe", help="run an unmodified program on its own library and judge every call")
    observing.add_options(watched)
    watched.set_defaults(run=observing.run)

    porting = commands.add_parser("port", help="rewrite sources written for cuDNN as sources for MIOpen")
    port.add_options(porting)
    porting.set_defaults(run=port.run)

    shown = commands.add_parser("show", help="what is known of a function, a clause or an erratum, by its name")
    pages.add_options(shown)
    shown.set_defaults(run=pages.run)

    info = commands.add_parser("info", help="what is here, what is missing and how to get it")
    info.set_defaults(run=run_info)

    chosen = parser.parse_args(arguments)
    chosen.invocation = shlex.join(["dualdnn", *(sys.argv[1:] if arguments is None else arguments)])
    return _told(chosen, lambda: run_guarded(chosen, lambda: _told(chosen, lambda: chosen.run(chosen))))


def _told(chosen: argparse.Namespace, run: Callable[[], int]) -> int:
    """Runs a command; an error is told in one line and becomes an exit status."""
    try:
        return run()
    except KeyboardInterrupt:
        print(f"\ndualdnn {chosen.command}: interrupted", file=sys.stderr)
        return INTERRUPTED
    except (ValueError, CudnnError, OSError, DeviceUnavailable, ReportError) as error:
        print(f"dualdnn {chosen.command}: {error}", file=sys.stderr)
        return 2
    except Exception:  # a mistake of ours: exit status 1 would say that cases failed
        traceback.print_exc()
        return 2


def run_abi(chosen: argparse.Namespace) -> int:
    """Build the C library, its header and, where it is wanted, what stands for CUDA."""
    library = build_c_library(chosen.out, chosen.face)
    made = [library, library.parent / "include" / "cudnn.h"]
    made += build_runtime(chosen.out) if chosen.runtime else []
    print(*made, sep="\n")
    return 0


def run_info(_chosen: argparse.Namespace) -> int:
    """Devices, compilers, functions."""
    from dualdnn.api import cudnn, miopen

    from .subjects import find_vendor_library

    present = [name for name in functions() if hasattr(cudnn, name)]
    vendor = find_vendor_library()
    rows = {
        "specification": SPECIFICATION,
        "functions": f"{len(present)} of {len(functions())} implemented",
        "MIOpen guide": f"{sum(hasattr(miopen, name) for name in miopen_functions())} of {len(miopen_functions())} implemented",
        **accelerated.facts(),
        "vendor library": vendor.name if vendor else "missing: pip install 'dualdnn[vendor]'",
    }
    width = max(map(len, rows))
    for name, value in rows.items():
        print(f"{name:{width}}  {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
