"""What the judge's verdicts over the suite take: without the sharper rules, with them, and by other versions of the project.

    python reports/judge_cost_suite.py [--every 10] [-k EXPRESSION] [--other FOLDER] [--other FOLDER:rules]

FOLDER has another version's package dualdnn, which judges without the sharper rules or with those that it has. The suite runs on the reference,
and what its judge is given is kept; then each version judges that again in turns, each in a process of its own.
Core-seconds, one thread, the least of RUNS runs of each verdict. What another version does not know is counted by this one, without the sharper rules.
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
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from time import process_time
from typing import Any

RUNS = 5
KEPT, FORM, NEXT = "JUDGE_COST_KEPT", "JUDGE_COST_FORM", "next"


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
    """For each line that comes judge what was kept next, or the same again; print the family and the seconds, null for what this version does
    not know."""
    from dualdnn.api.operations import parse
    from dualdnn.reference import judge

    rules = "random" in inspect.signature(judge).parameters
    with open(os.environ[KEPT], "rb") as file:
        for line in sys.stdin:
            if line.strip() == NEXT:
                if not file.peek(1):
                    print("null", flush=True)
                    continue
                family, text, before, after, kept, random = pickle.load(file)
                options = {"random": random and os.environ[FORM] == "rules"} if rules else {}
            seconds = None
            with suppress(ValueError, TypeError, KeyError, NameError, AttributeError):
                operation = parse(text)
                start = process_time()
                judge(operation, before, after, kept, **options)
                seconds = process_time() - start
            print(json.dumps([family, seconds]), flush=True)


def measured(forms: dict[str, subprocess.Popen[str]]) -> Iterator[tuple[str, dict[str, float | None]]]:
    """Of each verdict: its family, and the least seconds that each form took, in turns."""
    while True:
        found: dict[str, list[Any]] = {form: [] for form in forms}
        for run in range(RUNS):
            for form, process in forms.items():
                assert process.stdin and process.stdout
                print("again" if run else NEXT, file=process.stdin, flush=True)
                found[form].append(json.loads(process.stdout.readline()))
        if None in next(iter(found.values())):
            return
        family = next(iter(found.values()))[0][0]
        yield (
            family,
            {
                form: min((seconds for _, seconds in answers if seconds is not None), default=None)
                for form, answers in found.items()
            },
        )


def main() -> None:
    """Print a table by family and the sums, times ``every``."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--every", type=int, default=10)
    parser.add_argument("-k", default="", help="only cases whose ids match")
    parser.add_argument("--other", action="append", default=[], metavar="FOLDER[:rules]")
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
            *(["-k", chosen.k] if chosen.k else []),
        ]
        subprocess.run(
            [*command, "--out", f"{folder}/report"], check=True, stdout=subprocess.DEVNULL,
            env={**base, "PYTHONPATH": path, "PYTEST_ADDOPTS": "-p judge_cost_suite"},
        )  # fmt: skip
        ways = {"plain": ("", "plain"), "rules": ("", "rules")}
        for text in chosen.other:
            other, _, rules = text.partition(":")
            ways[text] = other, rules or "plain"
        forms = {
            name: subprocess.Popen(
                [sys.executable, __file__, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                env={**base, FORM: form, **({"PYTHONPATH": other} if other else {})},
            )
            for name, (other, form) in ways.items()
        }  # fmt: skip
        sums: dict[str, dict[str, float]] = {}
        for family, seconds in measured(forms):
            for name in (family, "all"):
                counts = sums.setdefault(name, dict.fromkeys(forms, 0.0))
                for form in forms:
                    counts[form] += chosen.every * (seconds[form] or seconds["plain"] or 0.0)
        for process in forms.values():
            process.communicate()
    titles = [
        "cases",
        "without the rules, s (ratio to it)",
        "with them, s",
        *(f"{other}, s (ratio to it)" for other in chosen.other),
    ]
    print(f"| {' | '.join(titles)} |")
    print("|---" * len(titles) + "|")
    for name, counts in sorted(sums.items(), key=lambda entry: -entry[1]["rules"]):
        now = counts["rules"]
        others = (f"{counts[other]:.2f} ({now / counts[other]:.2f})" for other in chosen.other)
        row = [name, f"{counts['plain']:.2f} ({now / counts['plain']:.2f})", f"{now:.2f}", *others]
        print(f"| {' | '.join(row)} |")


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["serve"] else main()
