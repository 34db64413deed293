"""Share fixtures among the cases of the MIOpen guide; ``plugin`` loads them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from typing import Any

import numpy as np
import pytest
from dualdnn.api import miopen
from dualdnn.api.enumerations import cudnnNanPropagation_t
from dualdnn.api.operations import TensorSpec
from dualdnn.api.operations.specs import FLOAT
from dualdnn.conformance.calls.miopen import MiopenCaller
from dualdnn.conformance.trial import attempt

NAN = cudnnNanPropagation_t.CUDNN_NOT_PROPAGATE_NAN
DIMS = (2, 3, 5, 4)
X = TensorSpec.packed(FLOAT, DIMS)
ONE_AND_ZERO = [(2.0, 0.0), (1.0, 0.5)]


@pytest.fixture
def miopen_handle(subject: Any) -> Iterator[Any]:
    """Yield an MIOpen handle on the subject."""
    made = miopen.miopenCreate(backend=subject.backend, device=subject.device)
    yield made
    if made.alive:
        miopen.miopenDestroy(made)


@pytest.fixture
def computes(miopen_handle: Any, evidence: Any) -> Callable[..., None]:
    """Return a check that the call for an operation agrees with the judge and changes nothing else."""

    def check(operation: Any, inputs: str = "normal", aliases: Any = None) -> None:
        result = attempt(MiopenCaller(miopen_handle), operation, inputs, 0, aliases)  # type: ignore[arg-type]
        evidence.note(result)
        if not result.passed:
            pytest.fail(f"{result.explanation()}\n{operation}", pytrace=False)

    return check


@pytest.fixture
def denied(evidence: Any) -> Callable[..., None]:
    """Return a check that a call raises this status and clause. ``unchanged`` buffers must keep their bytes.

    A clause without a section is one of the call's function.
    """

    def check(status: Any, clause: str, call: Any, *args: Any, unchanged: Any = None, **named: Any) -> None:
        clause = clause if "/" in clause else f"{call.__name__}/{clause}"
        evidence.clauses.add(clause)
        before = None if unchanged is None else unchanged.to_host(np.uint8, unchanged.nbytes)
        with pytest.raises(miopen.MiopenError) as caught:
            call(*args, **named)
        assert (caught.value.status, caught.value.clause) == (status, clause), str(caught.value)
        assert before is None or np.array_equal(before, unchanged.to_host(np.uint8, unchanged.nbytes))

    return check


def filled(handle: Any, *dims: int) -> Any:
    values = np.random.default_rng(prod(dims)).standard_normal(dims)
    return handle.to_device(values.astype(np.float32))


def available(*names: str) -> Any:
    """Skip cases until the named calls exist."""
    missing = [name for name in names if not hasattr(miopen, name)]
    return pytest.mark.skipif(bool(missing), reason=f"not implemented yet: {', '.join(missing)}")
