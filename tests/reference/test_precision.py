"""Test the listed precision of floating-point types against their own definitions."""

import ml_dtypes
import numpy as np
import pytest
from dualdnn.api.operations.specs import BFLOAT16, DOUBLE, FLOAT, HALF
from dualdnn.reference.precision import PRECISION

TYPES = {HALF: np.float16, BFLOAT16: ml_dtypes.bfloat16, FLOAT: np.float32, DOUBLE: np.float64}


@pytest.mark.parametrize("data_type", TYPES, ids=lambda data_type: data_type.name)
def test_precision_is_that_of_the_type(data_type):
    limits = ml_dtypes.finfo(TYPES[data_type])
    assert PRECISION[data_type] == (float(limits.eps) / 2, float(limits.smallest_normal), float(limits.max))
