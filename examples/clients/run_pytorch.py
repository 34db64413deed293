"""Run programs with unmodified PyTorch on this library by ``dualdnn run``, and on NVIDIA's library.

    python examples/clients/run_pytorch.py [--part operators|networks|modes|memory] [--out DIR] [--kernels DIR]

operators: compares samples of PyTorch's operator and module database, forward and gradient, with float64 on the CPU.
networks: trains four networks from the same seed, and by NVIDIA's library with proposed and with measured algorithms.
modes: trains by torch.compile, CUDA graphs, two threads on two streams, forked workers. memory: watches GPU and host over 2,000 steps.

Writes DIR/pytorch.json and pytorch.txt, with the parts that DIR has already. Exit status 1 where something is wrong. Skips, with exit
status 0 and a line, where there is no GPU or no PyTorch.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from dualdnn.accelerated.runtime.shipped import archives, targets
from dualdnn.conformance.kernels.kernel_wheel import TARGETS, wheel_name

HERE = Path(__file__).parent / "pytorch"
TIMES_NVIDIA = 2  # an error beyond PyTorch's tolerance passes up to so many times NVIDIA's error
FEW = 2  # samples of an operation that may always be worse than NVIDIA's
WINDOW = 20  # steps, one mean loss
MIN_SPREAD = (
    0.02  # relative difference of losses that always passes, even if NVIDIA's two runs are closer to each other
)
MODE_DIFFERENCE = 5e-3  # largest relative difference of losses between two ways, in float
GROWTH = 32 * 2**20  # bytes, largest growth of memory after a fifth of the steps
PROBE = "import sys, torch; sys.exit(0 if torch.cuda.is_available() and torch.backends.cudnn.is_available() else 3)"
CAPABILITY = "import torch; print('sm_%d%d' % torch.cuda.get_device_capability())"

# PyTorch then makes the documented convolution calls, as with `dualdnn run`, and serves bfloat16 itself.
LEGACY = {"TORCH_CUDNN_V8_API_DISABLED": "1"}

Found = dict[str, Any]


class Runs:
    """Start programs on NVIDIA's or on this library. device: cuda; cpu tests the programs where there is no GPU."""

    def __init__(self, python: str, device: str, limit: float) -> None:
        self.python, self.device, self.limit = python, device, limit
        self.failures: list[str] = []

    def __call__(
        self, name: str, ours: bool, program: str, *arguments: object, variables: dict[str, str] | None = None
    ) -> Found:
        """Run a program that writes JSON and return that; ``failures`` keeps what went wrong."""
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "found.json"
            command = [self.python, str(HERE / program), str(out), self.device, *map(str, arguments)]
            if ours:
                backend = "accelerated" if self.device == "cuda" else "reference"
                command = [
                    sys.executable,
                    "-m",
                    "dualdnn.conformance",
                    "run",
                    "--face",
                    "9",
                    "--backend",
                    backend,
                    "--",
                    *command,
                ]
            began = time.monotonic()
            print(f"{name}:", flush=True)
            try:
                status: object = subprocess.run(
                    command, timeout=self.limit, env={**os.environ, **(variables or {})}
                ).returncode
            except subprocess.TimeoutExpired:
                status = f"none, it was ended after {self.limit:.0f} s"
            print(f"{name}: exit status {status}, {time.monotonic() - began:.0f} s", flush=True)
            if status != 0:
                self.failures.append(f"{name}: exit status {status}")
            return json.loads(out.read_text()) if out.is_file() else {}


def operators(runs: Runs) -> Found:
    """Compare the errors of every sample."""
    with ThreadPoolExecutor() as pool:  # Each one waits for the CPU most of the time.
        asked = [
            pool.submit(runs, f"operators, {who} library", mine, "operators.py", 0.8 * runs.limit, variables=LEGACY)
            for who, mine in (("NVIDIA's", False), ("this", True))
        ]
    theirs, ours = (future.result() for future in asked)
    before = {key_of(row): row for row in theirs.get("rows", [])}
    by_operation: dict[tuple[str, str], Found] = defaultdict(
        lambda: {"samples": 0, "theirs": 0.0, "ours": 0.0, "worse": 0, "worse_outside": 0, "refused by both": 0}
    )
    wrong = []
    for row in ours.get("rows", []):
        other = before.get(key_of(row))
        if other is None:
            continue
        cell = by_operation[row["operation"], row["dtype"]]
        cell["samples"] += 1
        if "refused" in row:
            cell["refused by both"] += "refused" in other
            if "refused" not in other:
                wrong.append({**row, "NVIDIA's error": other["error"]})
            continue
        error, allowed = row["error"], max(1.0, TIMES_NVIDIA * other.get("error", 0.0))
        cell["theirs"], cell["ours"] = max(cell["theirs"], other.get("error", 0.0)), max(cell["ours"], error)
        cell["worse"] += error > other.get("error", 0.0)
        cell["worse_outside"] += error > max(1.0, other.get("error", 0.0))
        if not (error <= allowed or row.get("of_modules_tolerance", float("inf")) <= 1):
            wrong.append({**row, "NVIDIA's error": other.get("error"), "allowed": allowed})
    table = [
        {"operation": operation, "dtype": dtype, **cell} for (operation, dtype), cell in sorted(by_operation.items())
    ]
    left = ours.get("left", 0) + theirs.get("left", 0)
    lines = [
        f"{'operation':16} {'type':9} {'samples':>7} {'NVIDIA':>9} {'ours':>9}   largest error in units of PyTorch's tolerance"
    ]
    lines += [
        f"{row['operation']:16} {row['dtype']:9} {row['samples']:7} {row['theirs']:9.3g} {row['ours']:9.3g}"
        for row in table
    ]
    lines += [f"not run for want of time: {left} samples"] * bool(left)
    said = [
        f"{row['operation']} {row['dtype']} {row['layout']} sample {row['sample']} ({row['text']}): " + reason(row)
        for row in wrong
    ]
    said += [
        f"{row['operation']} {row['dtype']}: {row['worse_outside']} of {row['samples']} samples are outside of the"
        " tolerance and worse than NVIDIA's"
        for row in table
        if row["worse_outside"] > max(FEW, row["samples"] / 2)
    ]
    return {
        "table": table,
        "wrong": wrong,
        "left": left,
        "lines": lines,
        "failures": said if table else [*said, "operators: no sample was compared"],
    }


def key_of(row: Found) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("operation", "sample", "dtype", "layout"))


def reason(row: Found) -> str:
    if "refused" in row:
        return row["refused"]
    return f"{row['where']}: error {row['error']:.3g} of the tolerance, NVIDIA's {row['NVIDIA' + chr(39) + 's error']}"


def networks(runs: Runs, steps: int, names: list[str]) -> Found:
    """Compare the losses of the four networks with the spread of NVIDIA's library."""
    variants = {
        "proposed": runs("networks, NVIDIA's library, proposed algorithms", False, "networks.py", steps, "heuristic", *names, variables=LEGACY),
        "measured": runs("networks, NVIDIA's library, measured algorithms", False, "networks.py", steps, "benchmark", *names),
        "ours": runs("networks, this library", True, "networks.py", steps, "heuristic", *names),
    }  # fmt: skip
    table, failures = [], []
    lines = [
        f"{'network':14} {'first losses':>26} {'last losses: NVIDIA twice, ours':>34} {'spread':>7} {'ours':>7} {'ms a step: NVIDIA twice, ours':>32}"
    ]
    for name in variants["proposed"]:
        found = [variants[which].get(name) for which in ("proposed", "measured", "ours")]
        if None in found:
            failures.append(f"networks: {name} was not trained by all three")
            continue
        curves = [smoothed(run["losses"]) for run in found]
        spread = apart(curves[0], curves[1])
        ours = min(apart(curves[2], curves[0]), apart(curves[2], curves[1]))
        row = {
            "network": name, "steps": steps, "spread": spread, "ours": ours, "first": [run["losses"][0] for run in found], "last": [curve[-1] for curve in curves],
            "step_ms": [run["step_ms"] for run in found], "first_step_s": [run["first_step_s"] for run in found], "losses": [run["losses"] for run in found],
        }  # fmt: skip
        table.append(row)
        firsts, lasts, times = (
            " ".join(f"{v:.{n}f}" for v in row[key]) for key, n in (("first", 4), ("last", 4), ("step_ms", 1))
        )
        lines.append(f"{name:14} {firsts:>26} {lasts:>34} {spread:7.4f} {ours:7.4f} {times:>32}")
        if not ours <= max(spread, MIN_SPREAD):
            failures.append(
                f"networks: the losses of {name} are {ours:.4f} from NVIDIA's nearer run, whose two are {spread:.4f} apart"
            )
        if not abs(row["first"][2] - row["first"][0]) <= 2e-3 * abs(row["first"][0]):
            failures.append(f"networks: the first loss of {name} is {row['first'][2]}, not {row['first'][0]}")
    return {
        "table": table,
        "lines": lines,
        "failures": failures if table else [*failures, "networks: none was compared"],
    }


def smoothed(losses: list[float]) -> list[float]:
    """Return the means of a curve's windows."""
    width = min(WINDOW, len(losses))
    return [sum(losses[at : at + width]) / width for at in range(0, len(losses) - width + 1, width)]


def apart(a: list[float], b: list[float]) -> float:
    """Return the distance of two curves: the root mean square difference in units of the first curve's mean."""
    mean = sum(map(abs, a)) / len(a)
    return (sum((x - y) ** 2 for x, y in zip(a, b, strict=True)) / len(a)) ** 0.5 / mean


def modes(runs: Runs, names: list[str]) -> Found:
    """Compare the ways of training with plain steps, in each library."""
    theirs, ours = (
        runs(f"modes, {who} library", mine, "modes.py", *names) for who, mine in (("NVIDIA's", False), ("this", True))
    )
    failures, lines = [], [f"{'way':24} {'NVIDIA':>12} {'ours':>12}   largest difference of a loss from plain steps"]
    for name in theirs:
        a, b = theirs[name], ours.get(name, {"failed": "it was not reached"})
        lines.append(
            f"{name:24} {a.get('failed') or format(a['largest_difference'], '12.3g'):>12} {b.get('failed') or format(b['largest_difference'], '12.3g'):>12}"
        )
        if "failed" in b and "failed" not in a:
            failures.append(f"modes: {name}: {b['failed']}")
        elif "failed" not in b and not b["largest_difference"] <= MODE_DIFFERENCE:
            failures.append(f"modes: {name}: losses are {b['largest_difference']:.3g} from those of plain steps")
    return {
        "table": {"theirs": theirs, "ours": ours},
        "lines": lines,
        "failures": failures if theirs else ["modes: nothing was run"],
    }


def memory(runs: Runs, steps: int) -> Found:
    """Check whether memory grows after the first fifth of the steps."""
    theirs, ours = (
        runs(f"memory, {who} library", mine, "memory.py", steps) for who, mine in (("NVIDIA's", False), ("this", True))
    )
    failures, lines = (
        [],
        [
            f"{'memory over ' + str(ours.get('steps')) + ' steps':28} {'GPU, MiB':>24} {'host, MiB':>24}   after a fifth, at the end"
        ],
    )
    for who, found in (("NVIDIA's library", theirs), ("this library", ours)):
        if not found:
            failures.append(f"memory: {who} did not finish")
            continue
        ends = {place: (found[f"{place}_bytes"][1], found[f"{place}_bytes"][-1]) for place in ("gpu", "host")}
        lines.append(f"{who:28} " + " ".join(f"{first >> 20:>12} {last >> 20:>11}" for first, last in ends.values()))
        for place, (first, last) in ends.items():
            if who == "this library" and last - first > GROWTH:
                failures.append(f"memory: {place} grew by {(last - first) >> 20} MiB")
    return {"table": {"theirs": theirs, "ours": ours}, "lines": lines, "failures": failures}


def report(out: Path) -> None:
    """Write the table and the text of all parts in a folder."""
    parts = {part: json.loads((out / f"{part}.json").read_text()) for part in PARTS if (out / f"{part}.json").is_file()}
    (out / "pytorch.json").write_text(json.dumps(parts, indent=1) + "\n")
    text = [
        "\n".join([part, *found["lines"], *(f"  wrong: {line}" for line in found["failures"])])
        for part, found in parts.items()
    ]
    (out / "pytorch.txt").write_text("\n\n".join(text) + "\n")


def add_kernels(folder: Path, architecture: str) -> None:
    """Build the wheel of kernels for a GPU and put it on PYTHONPATH, unless an installed package has these kernels.

    Programs then compile nothing. folder: takes the wheel and its unpacked files; a build that was stopped goes on.
    """
    target = next((target for target in targets(architecture) if target in TARGETS), None)
    if target is None or target in {path.stem for path in archives()}:
        return
    command = ["build", "--wheel", "--arch", target, "--out", str(folder)]
    if subprocess.run([sys.executable, "-m", "dualdnn.conformance", *command]).returncode:
        print(f"no wheel of kernels for {target}: the programs compile their kernels", flush=True)
        return
    with zipfile.ZipFile(folder / wheel_name(target)) as wheel:
        wheel.extractall(folder / target)
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str((folder / target).resolve()), before]))


PARTS: dict[str, Callable[[Runs, argparse.Namespace], Found]] = {
    "operators": lambda runs, chosen: operators(runs),
    "networks": lambda runs, chosen: networks(runs, chosen.steps or 200, chosen.only),
    "modes": lambda runs, chosen: modes(runs, chosen.only),
    "memory": lambda runs, chosen: memory(runs, chosen.steps or 2000),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", action="append", choices=PARTS, help="what to run (default: all)")
    parser.add_argument(
        "--out", type=Path, default=Path("build/pytorch"), help="where the table goes (default: %(default)s)"
    )
    parser.add_argument(
        "--only", action="append", default=[], help="run only networks or ways of training with this name"
    )
    parser.add_argument("--steps", type=int, help="training steps of networks (200) and memory (2000)")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that has PyTorch (default: this one)")
    parser.add_argument(
        "--limit", type=float, default=600, help="seconds that one program may take (default: %(default)s)"
    )
    parser.add_argument(
        "--device", default="cuda", choices=("cuda", "cpu"), help="cpu: to test the programs themselves"
    )
    parser.add_argument(
        "--kernels", type=Path, metavar="DIR", help="build the wheel of kernels there first, if none is installed"
    )
    chosen = parser.parse_args()
    if chosen.device == "cuda" and (
        status := subprocess.run([chosen.python, "-c", PROBE], capture_output=True).returncode
    ):
        print("skipped: no GPU" if status == 3 else f"skipped: {chosen.python} has no PyTorch")
        return 0
    chosen.out.mkdir(parents=True, exist_ok=True)
    if chosen.kernels and chosen.device == "cuda":
        asked = subprocess.run([chosen.python, "-c", CAPABILITY], capture_output=True, text=True, check=True)
        add_kernels(chosen.kernels, asked.stdout.strip())
    failed = []
    for part in chosen.part or PARTS:
        runs = Runs(chosen.python, chosen.device, chosen.limit)
        found = PARTS[part](runs, chosen)
        found["failures"] = runs.failures + found["failures"]
        (chosen.out / f"{part}.json").write_text(json.dumps(found, indent=1) + "\n")
        print("\n".join([*found["lines"], *(f"  wrong: {line}" for line in found["failures"])]), flush=True)
        failed += found["failures"]
    report(chosen.out)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
