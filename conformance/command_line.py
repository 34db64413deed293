"""Run the command ``dualdnn``.

Each subcommand is imported only when it is named, so that it does not wait for others' imports.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from dualdnn.api import __version__
from dualdnn.api.document import SPECIFICATION
from dualdnn.api.status import CudnnError

from .guarded import INTERRUPTED, run_guarded
from .report.checks import ReportError


@dataclass(frozen=True)
class Command:
    """Describe a subcommand: its help, its module, and that module's functions to add options and to run."""

    help: str
    module: str
    options: str = "add_options"
    run: str = "run"


COMMANDS = {
    "conformance": Command("hold subjects to the document and write the report", "suite.command"),
    "report": Command("write the page of a compliance.json again", "report.command", "add_report_options", "run_report"),
    "merge": Command("one report of the shards of a run (conformance --shard I/N)", "suite.merge"),
    "diff": Command(
        "what changed between two reports; exit status 1 on a regression", "report.command", "add_diff_options", "run_diff"
    ),
    "replay": Command("run a call again that a crosscheck handle has saved, a recorded one, or those of an API log", "replay.command"),
    "fuzz": Command("draw operations and judge them, until something is found", "fuzz.options"),
    "bench": Command("times beside the vendor's library and the floor of the hardware", "bench.command"),
    "build": Command("compile the kernels ahead, in parallel", "kernels.command"),
    "abi": Command("build libcudnn.so.8 and cudnn.h: the documented calls for programs in C", "programs.library"),
    "run": Command("run an unmodified program on this library instead of cuDNN", "programs.running"),
    "observe": Command("run an unmodified program on its own library and judge every call", "programs.observing"),
    "port": Command("rewrite sources written for cuDNN as sources for MIOpen", "port.command"),
    "show": Command("what is known of a function, a clause or an erratum, by its name", "pages.command"),
    "info": Command("what is here, what is missing and how to get it", "information"),
}  # fmt: skip
EXTRAS = {  # package -> extra that installs it
    **dict.fromkeys(("pytest", "_pytest", "xdist", "pytest_benchmark", "pluggy"), "suite"),
    "hypothesis": "fuzz",
    "cffi": "abi",
}


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit status."""
    if arguments is None:
        _end_as_if_interrupted()
    given = sys.argv[1:] if arguments is None else arguments
    named = next((word for word in given if not word.startswith("-")), None)
    parser = argparse.ArgumentParser(prog="dualdnn", description=f"The executable edition of the {SPECIFICATION}.")
    parser.add_argument("--version", action="version", version=f"dualdnn {__version__}, {SPECIFICATION}")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, command in COMMANDS.items():
        options = commands.add_parser(name, help=command.help)
        if name == named:
            try:
                module = import_module(f".{command.module}", __package__)
            except ModuleNotFoundError as error:
                package = (error.name or "").partition(".")[0]
                if package not in EXTRAS:
                    raise
                missing, extra = package.lstrip("_"), EXTRAS[package]
                print(f"dualdnn {name}: {missing} is missing: pip install 'dualdnn[{extra}]'", file=sys.stderr)
                return 2
            getattr(module, command.options)(options)
            options.set_defaults(run=getattr(module, command.run))

    chosen = parser.parse_args(given)
    chosen.invocation = shlex.join(["dualdnn", *given])
    return _told(chosen, lambda: run_guarded(chosen, lambda: _told(chosen, lambda: chosen.run(chosen))))


def _end_as_if_interrupted() -> None:
    """Say why when SIGTERM ends this process, and report what is done, as after an interrupt. Children just end."""

    def end(*_: object) -> None:
        print("\ndualdnn: another program, or a library under test, sent SIGTERM", file=sys.stderr, flush=True)
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, end)
    os.register_at_fork(after_in_child=lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL))


def _told(chosen: argparse.Namespace, run: Callable[[], int]) -> int:
    """Run a command. An error becomes one line and an exit status."""
    try:
        status = run()
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # The program that reads the output has ended, as head does.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except KeyboardInterrupt:
        print(f"\ndualdnn {chosen.command}: interrupted", file=sys.stderr)
        return INTERRUPTED
    except _explained() as error:
        print(f"dualdnn {chosen.command}: {error}", file=sys.stderr)
        return 2
    except Exception:  # This is our mistake; exit status 1 would say that cases failed.
        traceback.print_exc()
        return 2


def _explained() -> tuple[type[Exception], ...]:
    """Return the errors whose message suffices. It is called after an error, as many commands need no backend."""
    from dualdnn.accelerated import DeviceUnavailable

    from .subjects.binding.types import NothingCreated

    return ValueError, CudnnError, OSError, DeviceUnavailable, ReportError, NothingCreated


if __name__ == "__main__":
    sys.exit(main())
