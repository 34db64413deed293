"""What the judge's verdicts over the suite take: without the sharper rules, with them, and by another version of the project.

    python reports/judge_cost_suite.py [--every 10] [--other FOLDER]    # FOLDER has the other version's package dualdnn

The suite runs on the reference, and what its judge is given is kept; then each version judges that again, in a process of its own. Core-seconds,
one thread, the least of RUNS runs of each verdict. What the other version does not know is counted by this one, without the sharper rules.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path
from time import process_time
from typing import Any

RUNS = 5
KEPT, FORM = "JUDGE_COST_KEPT", "JUDGE_COST_FORM"


def pytest_configure() -> None:
    """As a plugin of the suite: append what each trial hands the judge to a file."""
    from dualdnn.conformance import trial

    real = trial.judge

    def keeping(operation: Any, before: Any, after: Any, kept: Any = None, random: bool = False) -> Any:
        family = Path(os.environ["PYTEST_CURRENT_TEST"].partition("::")[0]).stem
        with open(os.environ[KEPT], "ab") as file:
            pickle.dump((family, repr(operation), before, after, kept, random), file, protocol=5)
        return real(operation, before, after, kept, random)

    trial.judge = keeping  # type: ignore[assignment]


def serve() -> None:
    """Judge what was kept; print the family and the seconds of each verdict, null for what this version does not know."""
    from dualdnn.api.operations import parse
    from dualdnn.reference import judge

    rules = "random" in inspect.signature(judge).parameters
    found: list[tuple[str, float | None]] = []
    with open(os.environ[KEPT], "rb") as file:
        while file.peek(1):
            family, text, before, after, kept, random = pickle.load(file)
            options = {"random": random and os.environ[FORM] == "rules"} if rules else {}
            try:
                operation, times = parse(text), []
                for _ in range(RUNS):
                    start = process_time()
                    judge(operation, before, after, kept, **options)
                    times.append(process_time() - start)
                found.append((family, min(times)))
            except (ValueError, TypeError, KeyError, NameError, AttributeError):
                found.append((family, None))
    print(json.dumps(found))


def main() -> None:
    """Print a table by family and the sums, times ``every``."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--every", type=int, default=10)
    parser.add_argument("--other", default="")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        here = str(Path(__file__).parent)
        path = os.pathsep.join([here, os.environ.get("PYTHONPATH", "")])
        base = {**os.environ, KEPT: f"{folder}/kept", "OPENBLAS_NUM_THREADS": "1"}
        command = [
            sys.executable,
            "-m",
            "dualdnn.conformance",
            "conformance",
            "--subject",
            "reference",
            "--jobs",
            "1",
            "--every",
            str(chosen.every),
        ]
        subprocess.run(
            [*command, "--out", f"{folder}/report"], check=True, stdout=subprocess.DEVNULL,
            env={**base, "PYTHONPATH": path, "PYTEST_ADDOPTS": "-p judge_cost_suite"},
        )  # fmt: skip
        found = {
            form: json.loads(
                subprocess.run(
                    [sys.executable, __file__, "serve"], check=True, capture_output=True, text=True,
                    env={**base, FORM: form, **({"PYTHONPATH": chosen.other} if form == "other" else {})},
                ).stdout
            )
            for form in ("plain", "rules", *(["other"] if chosen.other else []))
        }  # fmt: skip
    plain, rules, other = found["plain"], found["rules"], found.get("other", found["plain"])
    sums: dict[str, list[float]] = {}
    for (family, before), (_, now), (_, earlier) in zip(plain, rules, other, strict=True):
        for name in (family, "all"):
            counts = sums.setdefault(name, [0.0, 0.0, 0.0])
            for place, seconds in enumerate((before, now, before if earlier is None else earlier)):
                counts[place] += chosen.every * seconds
    print("| cases | without the rules, s | with them, s | the other version, s | ratio to it |\n|---|---|---|---|---|")
    for name, (before, now, earlier) in sorted(sums.items(), key=lambda entry: -entry[1][1]):
        print(f"| {name} | {before:.2f} | {now:.2f} | {earlier:.2f} | {now / earlier:.2f} |")


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["serve"] else main()
