"""Test examples/calls: the pages of functions show excerpts of these programs, so each must run."""

from __future__ import annotations

import pytest
from imported_example import EXAMPLES, imported


@pytest.mark.parametrize("program", sorted(path.stem for path in (EXAMPLES / "calls").glob("*.py")))
def test_a_program_succeeds(program):
    with imported("calls", program) as module:
        module.main()
