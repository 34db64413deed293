"""Break what the packs of fused operations hold when a plan is made from them or runs on them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

import numpy as np
from dualdnn.api.descriptors import FusedOpsConstParamPack, FusedOpsVariantParamPack
from dualdnn.api.enumerations import (
    cudnnActivationMode_t,
    cudnnFusedOpsConstParamLabel_t,
    cudnnFusedOpsVariantParamLabel_t,
    cudnnNanPropagation_t,
)
from dualdnn.api.operations import ActivationSpec, TensorSpec
from dualdnn.api.operations.specs import FusedOpsParamsSpec
from dualdnn.api.support.fused_ops import const_type, scalar_type

from .border import REFUSALS, Border, Call
from .operands import placed, with_handle, with_spec
from .rules import Break
from .values import others

SETTER = "cudnnSetFusedOpsConstParamPackAttribute"
TRIED = 40  # descriptors to try in place of NULL until a plan takes one
RELU = ActivationSpec(cudnnActivationMode_t.CUDNN_ACTIVATION_RELU, cudnnNanPropagation_t.CUDNN_NOT_PROPAGATE_NAN, 0.0)


@with_handle
def pointed(border: Border, broken: Break, name: str, function: Call, values: list[Any]) -> Any:
    """Run on other memory than the pointer of a label says, or with another value of its scalar."""
    label = cudnnFusedOpsVariantParamLabel_t[broken.point]
    at = next((i for i, value in enumerate(values) if isinstance(value, FusedOpsVariantParamPack)), None)
    value = None if at is None else values[at].spec.get(label)
    if at is None or value is None:
        return function(*values)
    if scalar_type(label) is not None:
        other: Any = next(others(value))
    else:
        held = value.to_host(np.uint8, value.nbytes)
        other = placed(border, values, np.zeros_like(held) if broken.kind == "input" else held)
    taken = with_spec(values[at], values[at].spec.changed(label, other))
    result = function(*values[:at], taken, *values[at + 1 :])
    border.applied |= broken.kind == "input" or scalar_type(label) is not None
    border.applied |= hasattr(other, "to_host") and bool((other.to_host(np.uint8, held.size) != held).any())
    return result


def taken(border: Border, broken: Break, name: str, function: Call, values: list[Any]) -> Any:
    """Make a plan with the step that a NULL of the label leaves out."""
    label = cudnnFusedOpsConstParamLabel_t[broken.point]
    at = next((i for i, value in enumerate(values) if isinstance(value, FusedOpsConstParamPack)), None)
    if at is None or label not in values[at].spec.labels or values[at].spec.get(label) is not None:
        return function(*values)
    for other in islice(_steps(values[at].spec, const_type(label)), TRIED):
        with suppress(*REFUSALS):
            pack = with_spec(values[at], values[at].spec.changed(label, other))
            result = function(*values[:at], pack, *values[at + 1 :])
            border.applied = True
            return result
    return function(*values)


def late(border: Border, broken: Break, name: str, function: Call, values: list[Any]) -> Any:
    """Copy the descriptor of a label into a pack when the pack is next used, not when the label is set."""
    pack = next((value for value in values if isinstance(value, FusedOpsConstParamPack)), None)
    if name == SETTER and hasattr(values[-1], "spec"):
        border.first[f"{id(pack)} {int(values[1])}"] = values[1], values[-1]
    elif name != SETTER and pack is not None:
        for key, (label, param) in border.first.items():
            if key.startswith(f"{id(pack)} ") and param.spec not in (None, pack.spec.get(label)):
                pack.spec, border.applied = pack.spec.changed(label, param.spec), True
    return function(*values)


def _steps(pack: FusedOpsParamsSpec, kind: str) -> Iterator[Any]:
    """Yield specifications with which a step may be made: tensors of the pack, and vectors for their channels."""
    if kind == "cudnnActivationDescriptor_t":
        yield RELU
        return
    known = [value for value in pack.values if hasattr(value, "dims")]
    yield from (value for value in known if isinstance(value, TensorSpec))
    for value in known:
        for channels in value.dims[:2]:
            dims = (1, channels, *(1 for _ in value.dims[2:]))
            yield from (TensorSpec.packed(data_type, dims) for data_type in sorted({v.data_type for v in known}))
