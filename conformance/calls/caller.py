"""Turn an operation into its documented call, with descriptors made by the subject's own setters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from dualdnn.api.operations import FilterSpec, Operation, RNNBackwardData, RNNBackwardWeights, RNNForward, TensorSpec
from dualdnn.api.status import CudnnError

from .derived import arguments
from .descriptors import made
from .exceptions import FUNCTIONS, RNN, SPACES, WORKSPACES

Memory = Mapping[str, Any]
MAX_SPACE = 1 << 40  # bytes, beyond the memory of any device
RECURRENT = (RNNForward, RNNBackwardData, RNNBackwardWeights)


def function_of(kind: type[Operation]) -> str:
    """Return the documented function that computes an operation."""
    return FUNCTIONS.get(kind, f"cudnn{kind.__name__}")


class Caller:
    """Make calls of one subject on one handle.

    dropout: a dropout descriptor for recurrent networks; without it, they get one with the operation's states. plan:
    the execution plan of the current graph. any_engine: whether any engine may execute graphs, because the set of
    engines is the library's own affair.
    """

    dropout: Any = None
    plan: Any = None

    def __init__(self, cudnn: Any, handle: Any, any_engine: bool = False) -> None:
        self.cudnn = cudnn
        self.handle = handle
        self.any_engine = any_engine

    def __call__(self, operation: Operation, memory: Memory) -> None:
        """Make the call that ``operation`` means on the given operands."""
        self._call(function_of(type(operation)), operation, memory)

    def workspace_bytes(self, operation: Operation) -> int:
        """Return the bytes of workspace that the subject asks for."""
        return self.asked_bytes(WORKSPACES[type(operation)], operation)

    def asked_bytes(self, query: str, operation: Operation) -> int:
        """Return the size that a query answers for an operation."""
        return checked(query, self._call(query, operation, {}))

    def _call(self, name: str, operation: Operation, memory: Memory) -> Any:
        return getattr(self.cudnn, name)(*self.values(name, operation, memory))

    def values(self, name: str, operation: Operation, memory: Memory) -> list[Any]:
        """Return the arguments of a documented function for an operation on the given operands."""
        return [value(self, operation, memory) for value in arguments(name, type(operation))]  # type: ignore[arg-type]  # types are hashable

    def keep(self, descriptor: Any, memory: Any) -> None:
        """Keep memory alive as long as the descriptor that names it."""
        descriptor.kept = memory

    def descriptor(self, spec: Any) -> Any:
        """Return a descriptor with this specification."""
        return made(self.cudnn, spec)

    def tensor(self, spec: TensorSpec) -> Any:
        """Return a tensor descriptor with this specification."""
        return self.descriptor(spec)

    def filter(self, spec: FilterSpec) -> Any:
        """Return a filter descriptor with this specification."""
        return self.descriptor(spec)


def described(make: Caller, operation: Operation) -> tuple[Any, ...]:
    """Return the operation's descriptors in the order of its workspace query."""
    query = WORKSPACES[type(operation)]
    found = arguments(query, type(operation))  # type: ignore[arg-type]  # types are hashable
    return tuple(value(make, operation, {}) for value in found if value.is_descriptor)


def sized(make: Caller, operation: Any) -> Any:
    """Return the operation with the workspace that the subject asks for, or unchanged without one.

    A recurrent network also gets its reserve space.
    """
    if isinstance(operation, RECURRENT):
        x = operation.dx if isinstance(operation, RNNBackwardData) else operation.x
        network = RNN["rnnDesc"](make, operation, {})
        mode = int(getattr(operation, "training", True))
        sizes = make.cudnn.cudnnGetRNNTempSpaceSizes(make.handle, network, mode, make.descriptor(x))
        number, width = operation.workspace.scalar_type, operation.workspace.scalar_bytes
        workspace, reserve = (
            TensorSpec.packed(number, (1, -(-size // width), 1))
            for size in map(partial(checked, "cudnnGetRNNTempSpaceSizes"), sizes)
        )
        return replace(operation, workspace=workspace, reserve=reserve)
    if type(operation) not in WORKSPACES:
        return operation
    return replace(operation, workspace_bytes=make.workspace_bytes(operation))


def checked(function: str, size: int) -> int:
    """Return a size that a subject has answered, or fail if no memory is that large."""
    assert 0 <= size <= MAX_SPACE, f"{function}: the answer is {size} bytes"
    return size


def roomy(make: Caller, operation: Any) -> Any:
    """Return a recurrent network or fused normalisation with spaces enlarged to what the subject asks for.

    Another library stores its own data there. Other operations, and those without a known size, are unchanged.
    """
    try:
        if isinstance(operation, RECURRENT):
            asked = sized(make, operation)
            spaces = ("workspace", "reserve")
            larger = {n: getattr(asked, n) for n in spaces if getattr(asked, n).count > getattr(operation, n).count}
        else:
            queries = SPACES.get(type(operation), {})
            larger = {n: max(make.asked_bytes(query, operation), getattr(operation, n)) for n, query in queries.items()}
    except CudnnError:
        return operation
    return replace(operation, **larger)
