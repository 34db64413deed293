"""Softmax of long columns in a stream of whole rows: what walks through it comes out as the judge expects."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from dualdnn.accelerated.backend import AcceleratedBackend
from dualdnn.accelerated.softmax import persistent as softmax_streams
from dualdnn.accelerated.softmax.persistent import whole_columns_of
from dualdnn.accelerated.softmax.problem import Problem, walk_of
from dualdnn.api.operations.specs import DOUBLE, FLOAT, HALF
from test_softmax_small import agrees, choice_of, operation_of

H200 = SimpleNamespace(multiprocessors=132, shared_bytes_per_block=227 * 1024, architecture="sm_90", kind="gpu")


@pytest.fixture(scope="module")
def backend():
    return AcceleratedBackend("emulated")


# A bundle that fits, fewer tiles than registers hold, rings of which tiles come to the same places again, more bundles than are open at a time, rows that are no multiple of a tile's
@pytest.mark.parametrize(
    "dims, kilobytes",
    [
        ((2, 300, 8, 8), 227),
        ((1, 150, 8, 8), 227),
        ((5, 131, 8, 8), 100),
        ((19, 131, 2, 8), 120),
        ((1, 999, 1, 16), 227),
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "backward, data_type, algorithm",
    [
        *((False, FLOAT, algorithm) for algorithm in ("FAST", "ACCURATE", "LOG")),
        *((True, FLOAT, algorithm) for algorithm in ("ACCURATE", "LOG")),  # the gradient of FAST is that of ACCURATE
        *((False, HALF, algorithm) for algorithm in ("ACCURATE", "LOG")),
    ],
)
def test_every_row_is_taken_and_written(backend, monkeypatch, backward, data_type, algorithm, dims, kilobytes):
    monkeypatch.setattr(softmax_streams, "COLUMN_LEAD", 0)  # one block agrees with itself alone here
    monkeypatch.setattr(softmax_streams, "FEW_BUNDLES", 100)
    monkeypatch.setattr(backend.device, "shared_bytes_per_block", kilobytes * 1024)
    operation = operation_of(
        backward, algorithm, data_type, dims, "nchw", 0.5 if algorithm == "LOG" else 0.0, "CHANNEL"
    )
    plan = choice_of(backend, operation).whole_columns()
    verdict = agrees(backend, operation, plan)
    assert verdict.agrees, verdict.worst


@pytest.mark.parametrize("layout, data_type, backward, dims", [
    ("gaps", FLOAT, False, (2, 2000, 8, 8)), ("nchw", DOUBLE, False, (2, 2000, 4, 8)), ("nchw", HALF, True, (2, 2000, 8, 8)),
    ("nchw", FLOAT, False, (2, 2000, 6, 8)), ("nchw", FLOAT, False, (2, 2000, 8, 16)), ("nchw", FLOAT, False, (2, 2000, 3, 5)),
], ids=str)  # fmt: skip
def test_other_columns_are_left_to_others(backend, layout, data_type, backward, dims):
    """Rows with gaps between them, wider ones, not of a power of two of packs; numbers that registers have no room for."""
    assert (
        choice_of(backend, operation_of(backward, "ACCURATE", data_type, dims, layout, 0.0, "CHANNEL")).whole_columns()
        is None
    )


def test_warps_hand_over_sums_of_gradients_alone():
    """That leaves shared memory for one tile more."""
    operation = operation_of(True, "ACCURATE", FLOAT, (4, 32000, 8, 8), "nchw", 0.0, "CHANNEL")
    walk = walk_of(operation, [operation.tensor(name) for name in operation.operands], 4)
    queue, spare = softmax_streams.COLUMN_QUEUE[1], softmax_streams.COLUMN_SPARE
    whole = whole_columns_of(Problem(walk.lines.packs, 32000, True, 16, 2), walk, H200, 8, 4, queue)
    assert whole is not None and whole.tiles == 14 and whole.delay + whole.ahead + spare == 14 + queue
    few = whole_columns_of(Problem(16, 15000, True, 16, 2), walk, H200, 8, 4, queue)
    assert few is not None and few.tiles == 4 and few.delay == queue


@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
def test_tiles_hold_every_row_and_places_are_free_in_time(backward):
    found, inputs, opened = 0, 1 + backward, softmax_streams.OPEN_BUNDLES
    for images in (1, 2, 4, 7, 16, 64, 600):
        for length in (1030, 3000, 8000, 19001, 32000, 50257, 300000):
            for side in ((8, 8), (4, 8), (4, 4)):
                operation = operation_of(backward, "ACCURATE", FLOAT, (images, length, *side), "nchw", 0.0, "CHANNEL")
                walk, queue = (
                    walk_of(operation, [operation.tensor(n) for n in operation.operands], 4),
                    softmax_streams.COLUMN_QUEUE[backward],
                )
                whole = whole_columns_of(Problem(walk.lines.packs, length, True, 16, inputs), walk, H200, 8, 4, queue)
                if whole is None:
                    continue
                found += 1
                rows = H200.multiprocessors * whole.part
                # of a bundle, the last tile alone may lack rows; a tile is what the workers have at a time
                assert (whole.steps - 1) * rows < length <= whole.steps * rows
                assert (
                    whole.part * whole.across * inputs <= softmax_streams.COLUMN_WORKERS * softmax_streams.COLUMN_PACKS
                )
                assert whole.shared_bytes <= H200.shared_bytes_per_block and whole.tiles <= softmax_streams.MOST_TILES
                every = images * whole.steps
                assert queue <= whole.delay <= max(every, queue) and 1 <= whole.ahead <= whole.tiles <= every
                assert whole.tiles == every or whole.delay + whole.ahead <= whole.tiles + queue
                # what a bundle has left behind is gone when its places are taken again
                assert images <= opened or whole.tiles + queue < (opened - 1) * whole.steps
                assert images <= opened * softmax_streams.MOST_ROUNDS
    assert found > 20
