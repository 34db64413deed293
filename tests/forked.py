"""Run Python programs, each in a fork of one process, which has made the imports once for all of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

# A program runs as the main module, and its interpreter ends as usual.
SERVER = """
import json, os, signal, sys
exec(sys.argv[1])
for line in sys.stdin:
    job = json.loads(line)
    if child := os.fork():
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        continue
    for number, path in ((0, os.devnull), (1, job["out"]), (2, job["err"])):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC), number)
    os.environ.update(job["variables"])
    sys.argv[1:] = job["arguments"]
    signal.alarm(job["seconds"])
    exec(job["program"])
    break
"""


class Forked:
    """Hold a process that has executed ``imports``. A program loads whatever depends on threads or environment."""

    def __init__(self, folder: Path, imports: str, **variables: str) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVER, imports],
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", **variables},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(self, program: str, *arguments: str, seconds: int = 300, **variables: str) -> str:
        """Return what a program printed, after checking that its exit status is 0."""
        out, err = self.folder / "out", self.folder / "err"
        job = {"program": program, "arguments": arguments, "seconds": seconds, "variables": variables}
        assert self.process.stdin and self.process.stdout
        print(json.dumps({**job, "out": str(out), "err": str(err)}), file=self.process.stdin, flush=True)
        status = self.process.stdout.readline().strip()
        assert status == "0", f"{status}: {out.read_text()[-2000:]}{err.read_text()[-4000:]}"
        return out.read_text()

    def close(self) -> None:
        self.process.communicate()
