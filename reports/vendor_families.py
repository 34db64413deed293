"""Judge NVIDIA's library by the whole suite, each family in its own process, so that a process that ends or hangs stops no other.

    python reports/vendor_families.py OUT LIBRARY [--jobs 14] [--seconds 140] [--family NAME ...]

Writes OUT/NAME.json.gz for every file of cases, which `python -m dualdnn.conformance.differences.occurrences` takes, and prints a line
each. The message of a case says what ended its process. Families that ended processes before run last.
"""

from __future__ import annotations

import argparse
import gzip
import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from dualdnn.conformance.plugin import CASES

SLOWEST = "graph"
FIRST = (
    "softmax",
    "reduce_tensor",
    "tensor_arithmetic",
    "convolution",
    "pooling",
    "transform",
    "attention",
    "rnn",
    "dropout",
)
LAST = ("fused_ops", "graph")
STOP_SECONDS = 12  # seconds, from the interrupt, after which a run writes its report, to the end of the process
MAX_CRASHES = 40


def order(name: str) -> tuple[int, str]:
    """Return the rank in which a family is started."""
    late = -1 if name == SLOWEST else 2 if name.startswith(LAST) else 0 if name.startswith(FIRST) else 1
    return late, name


def run(name: str, cases: Path, out: Path, library: str, until: float) -> str:
    """Judge one family; return what to say of it."""
    folder = Path(tempfile.mkdtemp()) / name
    left = until - time.monotonic() - STOP_SECONDS
    if left <= 0:
        return f"{name}: no time was left"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "dualdnn.conformance.plugin", "-p", "no:cacheprovider"]
    command += ["--no-header", "--rootdir", str(CASES), "-c", os.devnull, "-n", "1", "--dist", "worksteal"]
    command += ["--subject", f"library:{library}", "--selection", name, "--report", str(folder), str(cases)]
    options = f"--max-worker-restart={MAX_CRASHES} -o faulthandler_timeout=30"
    environment = {**os.environ, "PYTEST_ADDOPTS": options, "OPENBLAS_NUM_THREADS": "1"}
    started = time.monotonic()
    with open(out / f"{name}.log", "wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
        told = ""
        try:
            process.wait(left)
        except subprocess.TimeoutExpired:
            told = ", stopped"
            process.send_signal(signal.SIGINT)
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                told = ", hung"
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)  # The group is that of this process alone.
            process.wait()
    found = [path for path in folder.parent.glob(f"{name}*/compliance.json")]
    for path in found:
        (out / f"{name}.json.gz").write_bytes(gzip.compress(path.read_bytes(), 9, mtime=0))
    said = [
        line
        for line in (out / f"{name}.log").read_text(errors="replace").splitlines()
        if line.startswith(("vendor", "library"))
    ]
    seconds = time.monotonic() - started
    return f"{name}: exit status {process.returncode}{told}, {seconds:.0f} s, {said[-1] if said else 'no report'}"


def main() -> None:
    """Judge all families."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("library")
    parser.add_argument("--jobs", type=int, default=14)
    parser.add_argument("--seconds", type=float, default=140)
    parser.add_argument("--family", action="append", default=[])
    chosen = parser.parse_args()
    files = {path.stem: path for path in CASES.rglob("[!_]*.py") if "\ndef test_" in path.read_text(encoding="utf-8")}
    chosen.out.mkdir(parents=True, exist_ok=True)
    wanted = sorted(files.keys() & chosen.family if chosen.family else files, key=order)
    until = time.monotonic() + chosen.seconds
    with ThreadPoolExecutor(chosen.jobs) as pool:
        runs = [pool.submit(run, name, files[name], chosen.out, chosen.library, until) for name in wanted]
        for done in runs:
            print(done.result(), flush=True)


if __name__ == "__main__":
    main()
