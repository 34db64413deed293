"""Hold the supported data types, compute precisions and math types of multi-head attention (7.2.43, table 40)."""

from __future__ import annotations

from ..enumerations import cudnnMathType_t
from ..operations.specs import DOUBLE, FLOAT, HALF

DEFAULT = cudnnMathType_t.CUDNN_DEFAULT_MATH
TENSOR = cudnnMathType_t.CUDNN_TENSOR_OP_MATH
CONVERSION = cudnnMathType_t.CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION

# PRECISIONS maps (dataType, computePrec) to math types.
PRECISIONS = {
    (DOUBLE, DOUBLE): (DEFAULT,),
    (FLOAT, FLOAT): (DEFAULT, CONVERSION),
    (HALF, HALF): (DEFAULT, TENSOR, CONVERSION),
}
