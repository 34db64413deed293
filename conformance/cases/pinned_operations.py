"""Operations that a fuzzer found and somebody pinned (conformance/corpus)."""

from __future__ import annotations

import pytest
from dualdnn.conformance.calls import sized
from dualdnn.conformance.corpus import pinned
from dualdnn.conformance.trial import Step

ENTRIES = pinned()


@pytest.mark.parametrize("name", ENTRIES)
def test_pinned(chain, caller, name):
    entry = ENTRIES[name]
    steps = [Step(sized(caller, step), dict(entry.drawn.aliases), entry.drawn.inputs) for step in entry.drawn.steps]
    chain(*steps, seed=entry.seed, before=entry.before, offsets=dict(entry.drawn.offsets))
