"""From an operation to the documented call: descriptors made through the subject's own setters, then the call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dualdnn.api.operations import FilterSpec, Operation, RNNBackwardData, RNNBackwardWeights, RNNForward, TensorSpec
from dualdnn.api.status import CudnnError

from .derived import arguments
from .descriptors import made
from .exceptions import FUNCTIONS, RNN, SPACES, WORKSPACES

Memory = Mapping[str, Any]
RECURRENT = (RNNForward, RNNBackwardData, RNNBackwardWeights)


def function_of(kind: type[Operation]) -> str:
    """The documented function that computes an operation."""
    return FUNCTIONS.get(kind, f"cudnn{kind.__name__}")


class Caller:
    """Makes calls of one subject on one handle.

    dropout: a dropout descriptor for the networks of its calls, which else get one with the operation's states.
    plan: the execution plan of the graph that it calls.
    any_engine: graphs are executed by whichever engine takes them, for which there are is the library's own affair.
    """

    dropout: Any = None
    plan: Any = None

    def __init__(self, cudnn: Any, handle: Any, any_engine: bool = False) -> None:
        self.cudnn = cudnn
        self.handle = handle
        self.any_engine = any_engine

    def __call__(self, operation: Operation, memory: Memory) -> None:
        """Make the call that ``operation`` stands for on the given operands."""
        self._call(function_of(type(operation)), operation, memory)

    def workspace_bytes(self, operation: Operation) -> int:
        """Bytes of workspace that the subject asks for."""
        return self._call(WORKSPACES[type(operation)], operation, {})

    def _call(self, name: str, operation: Operation, memory: Memory) -> Any:
        return getattr(self.cudnn, name)(*self.values(name, operation, memory))

    def values(self, name: str, operation: Operation, memory: Memory) -> list[Any]:
        """The arguments of a documented function for an operation on the given operands."""
        return [value(self, operation, memory) for value in arguments(name, type(operation))]  # type: ignore[arg-type]  # types are hashable

    def keep(self, descriptor: Any, memory: Any) -> None:
        """Keep memory as long as the descriptor that names it."""
        descriptor.kept = memory

    def descriptor(self, spec: Any) -> Any:
        """A descriptor of the kind that the specification is of, with this specification."""
        return made(self.cudnn, spec)

    def tensor(self, spec: TensorSpec) -> Any:
        """A tensor descriptor with this specification."""
        return self.descriptor(spec)

    def filter(self, spec: FilterSpec) -> Any:
        """A filter descriptor with this specification."""
        return self.descriptor(spec)


def described(make: Caller, operation: Operation) -> tuple[Any, ...]:
    """The descriptors of the operation in the order in which the query of its workspace takes them."""
    query = WORKSPACES[type(operation)]
    found = arguments(query, type(operation))  # type: ignore[arg-type]  # types are hashable
    return tuple(value(make, operation, {}) for value in found if value.is_descriptor)


def sized(make: Caller, operation: Any) -> Any:
    """The operation with the workspace that the subject asks for, of a recurrent network with its spaces; itself where it has none."""
    if isinstance(operation, RECURRENT):
        x = operation.dx if isinstance(operation, RNNBackwardData) else operation.x
        network = RNN["rnnDesc"](make, operation, {})
        mode = int(getattr(operation, "training", True))
        sizes = make.cudnn.cudnnGetRNNTempSpaceSizes(make.handle, network, mode, make.descriptor(x))
        number, width = operation.workspace.scalar_type, operation.workspace.scalar_bytes
        workspace, reserve = (TensorSpec.packed(number, (1, -(-size // width), 1)) for size in sizes)
        return replace(operation, workspace=workspace, reserve=reserve)
    if type(operation) not in WORKSPACES:
        return operation
    return replace(operation, workspace_bytes=make.workspace_bytes(operation))


def roomy(make: Caller, operation: Any) -> Any:
    """A call of a recurrent network or of a fused normalisation with spaces that are as large as the subject asks for, where that is
    more than it has: what another library keeps there is its own affair. Itself where it is none, or where the subject says no size."""
    try:
        if isinstance(operation, RECURRENT):
            asked = sized(make, operation)
            spaces = ("workspace", "reserve")
            larger = {n: getattr(asked, n) for n in spaces if getattr(asked, n).count > getattr(operation, n).count}
        else:
            queries = SPACES.get(type(operation), {})
            larger = {n: max(make._call(query, operation, {}), getattr(operation, n)) for n, query in queries.items()}
    except CudnnError:
        return operation
    return replace(operation, **larger)
