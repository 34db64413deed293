"""Run a command in its own process if it loads a foreign library, which might end its process."""

from __future__ import annotations

import argparse
import atexit
import ctypes
import os
import select
import signal
import sys
from collections.abc import Callable
from contextlib import suppress

from .subjects import foreign_path
from .subjects.probe import LibraryUnusable, describe_subject, ending, same_file

SET_PARENT_DEATH_SIGNAL = 1  # prctl's PR_SET_PDEATHSIG

INTERRUPTED = 130  # exit status of an interrupted command, as a shell reports it


def foreign_subjects(chosen: argparse.Namespace) -> list[str]:
    """Return the subjects of a command that this process would load as foreign libraries.

    The suite loads them in its workers.
    """
    if chosen.command == "conformance" and not chosen.operation:
        return []
    named = [*getattr(chosen, "subject", []), getattr(chosen, "vendor", None)]
    return [name for name in named if name and foreign_path(name)]


def run_guarded(chosen: argparse.Namespace, run: Callable[[], int]) -> int:
    """Run a command and return its exit status.

    Raises ``LibraryUnusable`` if a library ends the process first, or takes longer than ``--case-seconds``.
    """
    foreign, seconds = foreign_subjects(chosen), getattr(chosen, "case_seconds", None)
    for name in foreign:
        describe_subject(name, seconds)
    if not foreign:
        return run()
    sys.stdout.flush()
    sys.stderr.flush()
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        ctypes.CDLL(None).prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGTERM)
        _run_and_tell(run, writing)
    os.close(writing)
    names = ", ".join(str(foreign_path(name)) for name in foreign)
    if not _is_readable(reading, seconds):
        os.kill(child, signal.SIGKILL)
        _waited(child)
        raise LibraryUnusable(f"{names} did not return within {seconds:g} seconds, and its process was ended")
    told = _read(reading)
    status = os.waitstatus_to_exitcode(_waited(child))
    if not told:
        raise LibraryUnusable(f"{names} {ending(status)} before the command had come to its end")
    if told[1]:
        raise LibraryUnusable(f"{names} closed the standard output or error of the command")
    if told[2]:
        raise LibraryUnusable(f"the process that loaded {names} could not write its output: {os.strerror(told[2])}")
    return told[0]


def _run_and_tell(run: Callable[[], int], writing: int) -> None:
    """Run the command, report its exit status, and end this process, whatever a library would still do at exit."""
    status, unwritten, before = 2, 0, [(number, os.fstat(number)) for number in (1, 2)]
    try:
        status = run()
        with suppress(Exception):
            atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError as error:
        unwritten = 0 if isinstance(error, BrokenPipeError) else error.errno or 0
    finally:
        closed = not all(same_file(number, status) for number, status in before)
        with suppress(OSError):
            os.write(writing, bytes([status, closed, unwritten]))
        os._exit(status)


def _is_readable(descriptor: int, seconds: float | None) -> bool:
    """Wait until a pipe has contents or its other end is closed. Return False if that takes longer; None waits for ever."""
    try:
        return bool(select.select([descriptor], [], [], seconds)[0])
    except KeyboardInterrupt:  # The other process gets it, too, and reports its status.
        return True


def _read(descriptor: int) -> bytes:
    """Read to the end. An interrupt also reaches the other process, which then reports its status."""
    with os.fdopen(descriptor, "rb") as file:
        while True:
            with suppress(KeyboardInterrupt):
                return file.read()


def _waited(child: int) -> int:
    while True:
        with suppress(KeyboardInterrupt):
            return os.waitpid(child, 0)[1]
