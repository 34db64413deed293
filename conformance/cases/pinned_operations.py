"""Runs the operations that are pinned in conformance/corpus."""

from __future__ import annotations

import pytest
from dualdnn.conformance.corpus import pinned
from dualdnn.conformance.corpus.collecting import run_entry

ENTRIES = pinned()


@pytest.mark.parametrize("name", ENTRIES)
def test_pinned(chain, caller, name):
    run_entry(ENTRIES[name], chain, caller)
