"""Test that every engine of examples/graph computes the block, and that the README shows its drawing."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

GRAPH = Path(__file__).parents[2] / "examples/graph"


def printed(*arguments):
    command = [sys.executable, str(GRAPH / "residual.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("arguments", [("--backend", "reference"), ("--backend", "crosscheck", "--device", "emulated")])
def test_every_engine_computes_the_block(arguments):
    rows = re.findall(r"engine +(\d+): workspace +\d+ bytes, error ([\d.e-]+) *(.*)", printed(*arguments))
    assert sorted(int(index) for index, _, _ in rows) == list(range(11))
    assert all(float(error) < (3e-2 if "DOWN_CONVERT_INPUTS" in notes else 2e-4) for _, error, notes in rows)


def test_the_readme_shows_the_drawing():
    drawing, engines = printed("--backend", "reference").split("\n 1. engine")
    assert engines and f"```mermaid\n{drawing}\n```" in (GRAPH / "README.md").read_text()
