"""Run a command with its own environment variables, and check whether it called the library."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from .libraries import is_static

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run(command: list[str], program: Path, variables: Mapping[str, str], name: str) -> int:
    """Run the command and return its exit status, or 128 plus the signal that ended it. Print a note if it called
    nothing.

    variables: environment variables for the command alone. name: our command, for messages.
    """
    with tempfile.TemporaryDirectory(prefix="dualdnn-") as folder:
        served = Path(folder) / "served"
        child = subprocess.Popen(
            [str(program), *command[1:]], env={**os.environ, **variables, "DUALDNN_SERVED": str(served)}
        )
        status = _awaited(child)
        if not served.exists():
            why = (
                "it links cuDNN statically"
                if is_static(program)
                else "nothing that it ran loads libcudnn.so and calls it"
            )
            print(
                f"dualdnn {name}: {command[0]} is not a client: no call of cuDNN came; {why}",
                file=sys.stderr,
                flush=True,
            )
    return status if status >= 0 else 128 - status


def _awaited(child: subprocess.Popen[bytes]) -> int:
    """Return the status of a child, after forwarding signals that would end this process."""
    handlers = {number: signal.signal(number, lambda given, _: child.send_signal(given)) for number in FORWARDED}
    try:
        return child.wait()
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
