"""From an operation to the documented call: descriptors made through the subject's own setters, then the call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dualdnn.api.operations import FilterSpec, Operation, TensorSpec
from dualdnn.api.operations.specs import NCHW_VECT_C

Memory = Mapping[str, Any]


class Caller:
    """Makes calls of one subject on one handle."""

    def __init__(self, cudnn: Any, handle: Any) -> None:
        self.cudnn = cudnn
        self.handle = handle

    def __call__(self, operation: Operation, memory: Memory) -> None:
        """Make the call that ``operation`` stands for on the given operands."""
        CALLS[type(operation)](self, operation, memory)

    def tensor(self, spec: TensorSpec) -> Any:
        """A tensor descriptor with this specification."""
        descriptor = self.cudnn.cudnnCreateTensorDescriptor()
        if spec.vector_length > 1:
            self.cudnn.cudnnSetTensorNdDescriptorEx(descriptor, NCHW_VECT_C, spec.data_type, spec.rank, spec.dims)
        else:
            self.cudnn.cudnnSetTensorNdDescriptor(descriptor, spec.data_type, spec.rank, spec.dims, spec.strides)
        return descriptor

    def filter(self, spec: FilterSpec) -> Any:
        """A filter descriptor with this specification."""
        descriptor = self.cudnn.cudnnCreateFilterDescriptor()
        self.cudnn.cudnnSetFilterNdDescriptor(descriptor, spec.data_type, spec.format, len(spec.dims), spec.dims)
        return descriptor


Call = Callable[[Caller, Any, Memory], None]
CALLS: dict[type[Operation], Call] = {}


def calls(operation_type: type[Operation]) -> Callable[[Call], Call]:
    """Register how an operation is called."""

    def register(call: Call) -> Call:
        CALLS[operation_type] = call
        return call

    return register
