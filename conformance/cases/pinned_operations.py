"""Runs the operations that are pinned in conformance/corpus."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from dualdnn.conformance.corpus import pinned
from dualdnn.conformance.corpus.collecting import run_entry

if TYPE_CHECKING:
    from dualdnn.conformance.calls import Caller
    from dualdnn.conformance.trial import Trial

ENTRIES = pinned()


@pytest.mark.parametrize("name", ENTRIES)
def test_pinned(chain: Callable[..., Trial], caller: Caller, name: Any) -> None:
    run_entry(ENTRIES[name], chain, caller)
