"""Tests how cudnnIm2Col divides the matrix among blocks, also with little shared memory."""

from __future__ import annotations

import pytest
from convolution_operations import check
from dualdnn.accelerated.backend import AcceleratedBackend
from dualdnn.accelerated.convolution.im2col.im2col import Im2ColProblem
from dualdnn.api.operations.specs import FLOAT, HALF
from dualdnn.conformance.cases.convolution.convolution_filters import im2col

DIVISIONS = {
    "rows of whole packs": {"x": (2, 24, 9, 11), "w": (1, 24, 3, 3), "padding": (1, 1)},
    "chunks of channels": {"x": (2, 40, 9, 11), "w": (1, 40, 3, 3), "padding": (1, 1)},
    "packs of no whole channel": {"x": (1, 13, 8, 9), "w": (1, 13, 3, 3), "padding": (2, 0), "stride": (2, 1)},
    "packs that end within a chunk": {"x": (1, 67, 4, 5), "w": (1, 67, 3, 3), "padding": (1, 1)},
    "dilated": {"x": (2, 8, 11, 12), "w": (1, 8, 3, 2), "padding": (2, 1), "stride": (1, 2), "dilation": (2, 3)},
    "more terms than threads": {"x": (1, 3, 20, 19), "w": (1, 3, 17, 16), "padding": (3, 3)},
    "chunks of fewer channels than make whole packs": {"x": (1, 8, 63, 65), "w": (1, 8, 63, 65), "padding": (0, 0)},
    "a filter that no shared memory holds": {"x": (1, 1, 150, 160), "w": (1, 1, 149, 158), "padding": (0, 0)},
}


@pytest.fixture
def backend():
    return AcceleratedBackend("emulated")


@pytest.mark.parametrize("most", [6000, 2500, 1200, 600])
@pytest.mark.parametrize("data_type", [HALF, FLOAT], ids=lambda t: t.name)
def test_smaller_shared_memory_gives_smaller_blocks(backend, most, data_type):
    """A block with less shared memory takes fewer rows, fewer channels, fewer columns, and at last one channel."""
    operation = im2col((1, 40, 9, 31), (1, 40, 3, 3), data_type=data_type, padding=(1, 1))
    problem = Im2ColProblem(operation, backend.device, max_shared=most)
    plan = check(backend, operation, problem=problem)
    assert plan.solver == "convolution.im2col" and plan.steps[0][0].shared_bytes <= most


def test_a_filter_beyond_shared_memory_has_another_solver(backend):
    problem = Im2ColProblem(im2col(data_type=HALF), backend.device, max_shared=64)
    assert check(backend, problem.operation, problem=problem).solver == "convolution.im2col_elements"


def test_a_small_matrix_is_divided_among_more_blocks(backend):
    operation = im2col((1, 8, 30, 30), (1, 8, 3, 3), padding=(1, 1))
    grids = []
    for enough in (0, 1000):
        problem = Im2ColProblem(operation, backend.device, enough_blocks=enough)
        grids.append(check(backend, operation, problem=problem).steps[0][0].grid[0])
    assert grids[0] < grids[1]


@pytest.mark.parametrize("name", DIVISIONS)
def test_vectors_at_any_address(backend, name):
    for shifted in ("srcData", "colBuffer"):
        check(backend, im2col(data_type=HALF, **DIVISIONS[name]), shift=1, shifted=shifted)
