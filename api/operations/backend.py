"""What a backend offers to the documented calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from .operation import Operation

if TYPE_CHECKING:
    from .graph import OperationGraph


class BackendError(Exception):
    """Work that was accepted failed while it ran (CUDNN_STATUS_EXECUTION_FAILED)."""


class Operand(Protocol):
    """Memory that a call was given: where it starts and, where that is known, how large it is."""

    address: int
    nbytes: int | None
    writable: bool


class Buffer(Protocol):
    """Memory that a backend allocated. It is an ``Operand``; in a ``with`` statement it is freed at the end."""

    address: int
    nbytes: int
    writable: bool

    def to_host(self, dtype: Any, shape: Sequence[int] | int | None = None) -> Any:
        """Return a NumPy copy of the contents, after all work of the buffer's handle has finished: of ``dtype`` and ``shape``
        (one size may be -1), or of a tensor or filter descriptor."""

    def slice(self, offset: int, nbytes: int) -> Any:
        """Return a buffer of ``nbytes`` bytes from ``offset`` in the same memory."""

    def __enter__(self) -> Any: ...

    def __exit__(self, *_: object) -> None: ...

    def free(self) -> None:
        """Give the memory back; using the buffer afterwards is an error."""


Launch = Callable[[Sequence[Operand], Any], None]


class Backend(Protocol):
    """Runs operations. ``operand`` turns what the caller passed into an ``Operand`` or raises TypeError / ValueError
    with an explanation; ``prepare`` returns a function of (operands in the order of ``operation.operands``, None for
    NULL; stream), which only launches: no allocation, no synchronisation."""

    name: str
    description: str

    def allocate(self, nbytes: int) -> Buffer: ...

    def to_device(self, array: Any) -> Buffer:
        """Return a buffer with the bytes of a contiguous array of at least one dimension."""

    def zeros(self, nbytes: int) -> Buffer:
        """Return a buffer of zeros, numbers in every type."""

    def operand(self, value: Any) -> Operand: ...

    def prepare(self, operation: Operation) -> Launch: ...

    def workspace_bytes(self, operation: Operation) -> int:
        """Return the bytes of workspace that the operation needs here; what its own workspace field says does not matter."""

    def preferred_algorithms(self, operations: Sequence[Operation]) -> Sequence[Operation]:
        """Return the same operations, which differ in algorithm and math type, the one expected to be fastest first."""

    def graph_solvers(self, operation: OperationGraph) -> tuple[str, ...]:
        """Return the solvers among which the knob of the operation's engine chooses, by their names; none where there is no choice."""

    def algorithm_time(self, operation: Operation, operands: Sequence[Operand | None], stream: Any) -> float:
        """Return the milliseconds that the operation takes on these operands, measured by running it; waits for the result."""

    def new_stream(self) -> Any: ...

    def stream(self, value: Any) -> Any:
        """What the caller gave as a stream, for ``prepare``d launches: None is the default stream. TypeError where it
        is no stream at all, ValueError where it belongs to another device."""

    def finished(self, stream: Any) -> bool:
        """Return whether all work in the stream is done, without waiting."""

    def synchronize(self, stream: Any) -> None: ...

    def close(self) -> None: ...
