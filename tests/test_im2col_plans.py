"""How blocks of cudnnIm2Col divide the matrix: channels, output rows and columns of a patch, filters too large for one."""

from __future__ import annotations

import pytest
from dualdnn.accelerated.backend import AcceleratedBackend
from dualdnn.accelerated.convolution import im2col as plans
from dualdnn.api.operations.specs import DOUBLE, FLOAT, HALF
from dualdnn.conformance.cases.convolution_filters import im2col
from dualdnn.conformance.trial import prepare
from dualdnn.reference import judge

OPERATIONS = {
    "rows of whole packs": {"x": (2, 24, 9, 11), "w": (1, 24, 3, 3), "padding": (1, 1)},
    "chunks of channels": {"x": (2, 40, 9, 11), "w": (1, 40, 3, 3), "padding": (1, 1)},
    "packs of no whole channel": {"x": (1, 13, 8, 9), "w": (1, 13, 3, 3), "padding": (2, 0), "stride": (2, 1)},
    "dilated": {"x": (2, 8, 11, 12), "w": (1, 8, 3, 2), "padding": (2, 1), "stride": (1, 2), "dilation": (2, 3)},
    "volume": {"x": (1, 6, 4, 5, 6), "w": (1, 6, 2, 3, 2), "padding": (1, 1, 0), "stride": (2, 1, 1), "dilation": (1, 1, 2)},
    "more terms than threads": {"x": (1, 3, 20, 19), "w": (1, 3, 17, 16), "padding": (3, 3)},
}  # fmt: skip


@pytest.fixture
def backend(monkeypatch):
    made = AcceleratedBackend("emulated")
    monkeypatch.setattr(made, "plans", {})
    return made


def check(backend, operation):
    """Runs and judges the operation; its launch's kernel, grid and shared memory."""
    memory = prepare(operation, "normal", 0)
    buffers = {name: backend.to_device(content) for name, content in memory.items()}
    backend.prepare(operation)([buffers[name] for name in operation.operands], None)
    backend.synchronize(None)
    verdict = judge(operation, memory, {"colBuffer": buffers["colBuffer"].to_host("u1", operation.nbytes("colBuffer"))})
    assert verdict.agrees, verdict.worst
    return plans.im2col(operation, backend.device).steps[0][0]


@pytest.mark.parametrize("data_type", [HALF, FLOAT, DOUBLE], ids=lambda t: t.name)
@pytest.mark.parametrize("name", OPERATIONS)
def test_divisions(backend, name, data_type):
    launch = check(backend, im2col(data_type=data_type, **OPERATIONS[name]))
    assert launch.function.name == "im2col" and launch.shared_bytes <= plans.MOST_SHARED


@pytest.mark.parametrize("most", [6000, 2500, 1200, 600])
@pytest.mark.parametrize("data_type", [HALF, FLOAT], ids=lambda t: t.name)
def test_less_room(backend, monkeypatch, most, data_type):
    """Patches shrink to fewer rows, fewer channels, fewer columns, one channel."""
    monkeypatch.setattr(plans, "MOST_SHARED", most)
    operation = im2col((1, 40, 9, 31), (1, 40, 3, 3), data_type=data_type, padding=(1, 1))
    launch = check(backend, operation)
    assert launch.shared_bytes <= most
    assert launch.function.name == "im2col"


def test_a_filter_that_no_block_holds(backend, monkeypatch):
    monkeypatch.setattr(plans, "MOST_SHARED", 64)
    assert check(backend, im2col(data_type=HALF)).function.name == "convolution_matrix"


def test_few_blocks_become_more(backend, monkeypatch):
    operation = im2col((1, 8, 30, 30), (1, 8, 3, 3), padding=(1, 1))
    grids = []
    for enough in (0, 1000):
        monkeypatch.setattr(plans, "ENOUGH_BLOCKS", enough)
        backend.plans.clear()
        grids.append(check(backend, operation).grid[0])
    assert grids[0] < grids[1]
