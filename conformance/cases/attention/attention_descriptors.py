"""Holds cases of the attention descriptors."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
from dualdnn.api import cudnn as api
from dualdnn.api.operations.specs import BFLOAT16, DOUBLE, FLOAT, HALF, INT8
from dualdnn.api.status import BAD_PARAM, NOT_SUPPORTED
from dualdnn.conformance.marks import shows
from dualdnn.conformance.suite.fixtures import fresh_descriptor

if TYPE_CHECKING:
    from dualdnn.conformance.subjects import Subject

DEFAULT, TENSOR, CONVERSION = list(api.cudnnMathType_t)[:3]
TABLE_40 = [
    (DOUBLE, DOUBLE, DEFAULT),
    *((FLOAT, FLOAT, math) for math in (DEFAULT, CONVERSION)),
    *((HALF, HALF, math) for math in (DEFAULT, TENSOR, CONVERSION)),
]
GOOD = {
    "attnMode": api.CUDNN_ATTN_ENABLE_PROJ_BIASES, "nHeads": 2, "smScaler": 0.5,
    "dataType": FLOAT, "computePrec": FLOAT, "mathType": DEFAULT, "attnDropoutDesc": None, "postDropoutDesc": None,
    "qSize": 4, "kSize": 5, "vSize": 6, "qProjSize": 3, "kProjSize": 3, "vProjSize": 2, "oProjSize": 7,
    "qoMaxSeqLength": 8, "kvMaxSeqLength": 9, "maxBatchSize": 10, "maxBeamSize": 11,
}  # fmt: skip
SET = "cudnnSetAttnDescriptor"
fresh = fresh_descriptor("Attn")


def fill(cudnn: Any, descriptor: Any, **changed: Any) -> Any:
    """Set the descriptor, and return the values that it must then have."""
    values = tuple((GOOD | changed).values())
    cudnn.cudnnSetAttnDescriptor(descriptor, *values)
    return values


@pytest.fixture
def accepted(cudnn: Any, fresh: Any) -> Any:
    """Check that a setting with some arguments changed reads back as it was set."""

    def check(**changed: Any) -> None:
        values = fill(cudnn, fresh, **changed)
        assert tuple(cudnn.cudnnGetAttnDescriptor(fresh)) == values

    return check


@pytest.fixture
def refused(subject: Subject, cudnn: Any, fresh: Any, refuses: Callable[..., bool]) -> Any:
    """Check that a setting with some arguments changed is refused, and leaves our descriptor as it was."""

    def check(status: Any, clause: Any, **changed: Any) -> None:
        before = fill(cudnn, fresh)
        clause = clause if "/" in clause else f"{SET}/{clause}"
        refuses(status, clause, cudnn.cudnnSetAttnDescriptor, fresh, *(GOOD | changed).values())
        if subject.cites_clauses:
            assert tuple(cudnn.cudnnGetAttnDescriptor(fresh)) == before

    return check


@shows("cudnnCreateAttnDescriptor/c01 c03 c04", "cudnnDestroyAttnDescriptor/c01 c04", "cudnnAttnDescriptor_t/c04")
def test_create_and_destroy(cudnn: Any) -> None:
    """Descriptors are independent of each other and live until they are destroyed."""
    first, second = cudnn.cudnnCreateAttnDescriptor(), cudnn.cudnnCreateAttnDescriptor()
    fill(cudnn, first)
    values = fill(cudnn, second, nHeads=5, smScaler=2.0)
    cudnn.cudnnDestroyAttnDescriptor(first)
    assert tuple(cudnn.cudnnGetAttnDescriptor(second)) == values
    cudnn.cudnnDestroyAttnDescriptor(second)


@shows("cudnnDestroyAttnDescriptor/c02")
def test_destroy_of_null(cudnn: Any) -> None:
    cudnn.cudnnDestroyAttnDescriptor(None)


@shows("cudnnCreateAttnDescriptor/c01")
def test_fresh_reads_as_zeros(cudnn: Any, fresh: Any) -> None:
    assert tuple(cudnn.cudnnGetAttnDescriptor(fresh)) == (0, 0, 0.0, FLOAT, FLOAT, DEFAULT, None, None, *(0,) * 11)


@shows("cudnnSetAttnDescriptor/c01 c31 c42", "cudnnGetAttnDescriptor/c01 c03-c09", "cudnnAttnDescriptor_t/c01 c02")
@pytest.mark.parametrize("data_type, precision, math", TABLE_40, ids=lambda v: v.name)
def test_what_was_set(accepted: Any, data_type: Any, precision: Any, math: Any) -> None:
    """Every value reads back as it was set, for each row of table 40."""
    accepted(dataType=data_type, computePrec=precision, mathType=math)


@shows(f"{SET}/c26")
@pytest.mark.parametrize("biases", [api.CUDNN_ATTN_DISABLE_PROJ_BIASES, api.CUDNN_ATTN_ENABLE_PROJ_BIASES])
@pytest.mark.parametrize("mapped", [api.CUDNN_ATTN_QUERYMAP_ALL_TO_ONE, api.CUDNN_ATTN_QUERYMAP_ONE_TO_ONE])
def test_modes(accepted: Any, mapped: Any, biases: Any) -> None:
    accepted(attnMode=mapped | biases)


@shows(f"{SET}/c18", f"{SET}/c19")
@pytest.mark.parametrize("scaler", [0.0, 1e-300, 1.0, 7.5, 1e30])
def test_scalers(accepted: Any, scaler: float) -> None:
    accepted(smScaler=scaler)


@shows(f"{SET}/c09", f"{SET}/c43")
@pytest.mark.parametrize("q_projected, k_projected", list(product((0, 3, 4, 5), repeat=2)))
def test_queries_and_keys_must_meet(
    accepted: Any, refused: Callable[..., None], q_projected: Any, k_projected: Any
) -> None:
    """Vectors of queries and keys must have equal lengths after projection, or as given where there is no
    projection."""
    if (q_projected or GOOD["qSize"]) == (k_projected or GOOD["kSize"]):
        accepted(qProjSize=q_projected, kProjSize=k_projected)
    else:
        refused(BAD_PARAM, "c43", qProjSize=q_projected, kProjSize=k_projected)


@shows(f"{SET}/c42")
def test_projections_off(accepted: Any) -> None:
    for v_projected, o_projected in product((0, 2), (0, 7)):
        accepted(kSize=4, qProjSize=0, kProjSize=0, vProjSize=v_projected, oProjSize=o_projected)


@shows(f"{SET}/c47")
@pytest.mark.parametrize("data_type, precision, math",
                         [row for row in product((FLOAT, DOUBLE, HALF, BFLOAT16, INT8), (FLOAT, DOUBLE, HALF, BFLOAT16),
                                                 (DEFAULT, TENSOR, CONVERSION)) if row not in TABLE_40],
                         ids=lambda v: v.name)  # fmt: skip
def test_what_table_40_does_not_list(refused: Callable[..., None], data_type: Any, precision: Any, math: Any) -> None:
    refused(NOT_SUPPORTED, "c47", dataType=data_type, computePrec=precision, mathType=math)
