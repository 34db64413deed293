"""Test that the memo's C code runs alone under ThreadSanitizer."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from dualdnn.api.abi import exports, memo
from dualdnn.api.abi.memo.keys import KINDS, NAMING


@pytest.mark.long
def test_threads_do_not_race(tmp_path: Path) -> None:
    """Two teams of four threads use twenty entries: no race, right answers, and four thread records for both teams."""
    source, program = tmp_path / "threads.c", tmp_path / "threads"
    included = exports.PREAMBLE.partition("static int dualdnn_state")[0]
    source.write_text(included + memo.source() + Path(__file__).with_name("threads.c").read_text())
    statuses = [
        f"-DDUALDNN_{name}={number}"
        for name, number in (("NOT_INITIALIZED", 1), ("ALLOC_FAILED", 2), ("INTERNAL_ERROR", 4))
    ]
    naming = f"-DNAMING={sum(1 << KINDS[name] for name in NAMING)}u"
    command = [
        "gcc",
        *statuses,
        naming,
        "-O1",
        "-g",
        "-w",
        "-fsanitize=thread",
        str(source),
        "-o",
        str(program),
        "-pthread",
    ]
    made = subprocess.run(command, capture_output=True, text=True)
    if "tsan" in made.stderr:
        pytest.skip("gcc has no ThreadSanitizer here")
    assert made.returncode == 0, made.stderr
    ran = subprocess.run([str(program)], capture_output=True, text=True, timeout=300)
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stderr[-4000:]
    assert ran.stdout == "wrong 0, hits 1, emptied 1, entries 1, threads 4\n"
