"""List the precision of the floating-point types."""

from __future__ import annotations

import numpy as np
from dualdnn.api.operations.specs import BFLOAT16, DOUBLE, FLOAT, HALF

# Each entry has the unit roundoff, the smallest normal number and the largest finite number.
PRECISION = {
    HALF: (2.0**-11, 2.0**-14, 65504.0),
    BFLOAT16: (2.0**-8, 2.0**-126, float.fromhex("0x1.fep127")),
    FLOAT: (2.0**-24, 2.0**-126, float(np.finfo(np.float32).max)),
    DOUBLE: (2.0**-53, 2.0**-1022, float(np.finfo(np.float64).max)),
}
