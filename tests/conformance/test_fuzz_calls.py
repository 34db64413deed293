"""Test that ``dualdnn fuzz --calls`` turns what a drawing process says into findings, each with the line that runs it
again.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pytest
from dualdnn.conformance.fuzz import calls
from dualdnn.conformance.fuzz.drawn_calls import fault

# This stands for the drawing program. Its arguments are a library, the number of calls, a seed, and what to print.
PROGRAM = """
import json, os, signal, sys
count, seed, shown = int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
emulated = "DUALDNN_DEVICE" in os.environ
for n in range(count):
    other = seed == 1 and emulated and n >= 1234
    if seed == 2 and emulated and n == 1500:
        os.kill(os.getpid(), signal.SIGALRM)
    if seed == 3 and n == 7:
        print("fault", n, "cudnnGetStream", 3, "the message cites no clause")
    if shown and int(shown[0]) <= n < int(shown[1]):
        print(n, "cudnnSetStream", 1 if other else 0, flush=True)
    if n % 1000 == 999:
        print(n + 1, "other" if other else "same", flush=True)
print(json.dumps({"grown": 100 if seed == 4 else 1}))
"""


@pytest.fixture
def drawing(monkeypatch, tmp_path):
    """Replace the drawing program with the stand-in, and return the command's arguments."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    monkeypatch.setattr(calls, "PROGRAM", (sys.executable, str(program)))
    monkeypatch.setattr(calls, "library", lambda release: Path(f"library of {release}"))
    return argparse.Namespace(seed=0, count=2000, seconds=0.0, jobs=1, out=tmp_path / "out")


def test_a_run_without_faults_ends_with_success(drawing, capsys):
    assert calls.run(drawing) == 0
    assert "2,000 calls by each of 4 ways, 0 faults" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("seed", "said"),
    [
        (1, "cudnnSetStream: by emulated device '1234 cudnnSetStream 1', by python '1234 cudnnSetStream 0'"),
        (2, "by emulated device: a call took more than 5 s; the last call that ended: 1499 cudnnSetStream"),
        (3, "cudnnGetStream by python: the message cites no clause"),
        (4, "by python the process grew by 100 MiB after its first 400 calls"),
    ],
)
def test_each_kind_of_fault_is_found_once_and_rerun_by_one_line(drawing, capsys, seed, said):
    drawing.seed = seed
    assert calls.run(drawing) == 1
    out = capsys.readouterr().out
    assert (
        out.count(said) == 1
        and f"rerun: dualdnn fuzz --calls --seed {seed} --count {1235 if seed == 1 else 2000}" in out
    )
    assert said.split("'")[0] in (drawing.out / "calls.jsonl").read_text()


def test_sequences_share_the_count_and_have_different_seeds():
    assert list(calls.sequences(7, 12_000)) == [(7, 5000), (8, 5000), (9, 2000)]


@pytest.mark.parametrize(
    ("status", "message", "body", "wrong"),
    [
        (0, "", b"\x01", ""),
        (3, "x [cudnnStatus_t/c05]", b"\t\t", ""),
        (3, "x", b"", "the message cites no clause"),
        (3, "x [cudnnStatus_t/c05]", b"\t\x00", "a refused call wrote an output"),
        (4, "x [cudnnStatus_t/c05]", b"", "status 4 is not documented"),
        (77, "", b"", "status 77 is not documented"),
    ],
)
def test_a_refusal_has_a_documented_status_and_a_clause_and_writes_nothing(status, message, body, wrong):
    assert fault(status, message, body) == wrong
