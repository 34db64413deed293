"""How many threads a matrix product may have beside other work.

BLAS's threads wait for each other busily: where one of them has to share its core, all of them burn theirs until it has
caught up, and a product takes many times as long as on one thread. So a large product has as many threads as cores are
free when it begins, and never more than BLAS was set to.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from threadpoolctl import ThreadpoolController

Memory = Mapping[str, Any]
LEAST_TERMS = 2**25  # below, a product ends before others matter, and the limit itself would


@cache
def _blas() -> tuple[Any, int]:
    """(BLAS's thread pools, how many threads they were set to)."""
    pools = ThreadpoolController().select(user_api="blas")
    return pools, max((entry["num_threads"] for entry in pools.info()), default=1)


def running() -> int:
    """Threads of the machine that run or wait for a core, this one among them; 1 where nobody says."""
    try:
        return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[0])
    except (OSError, ValueError, IndexError):
        return 1


def beside_others(launch: Callable[[Memory], None]) -> Callable[[Memory], None]:
    """The same computation, with BLAS limited to the cores that are free when it begins."""

    def limited(memory: Memory) -> None:
        pools, most = _blas()
        threads = max(1, (os.cpu_count() or 1) - (running() - 1))
        if threads >= most:
            launch(memory)
            return
        with pools.limit(limits=threads):
            launch(memory)

    return limited
