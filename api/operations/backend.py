"""Define the protocol that a backend offers to the documented calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from .operation import Operation

if TYPE_CHECKING:
    from .graph import OperationGraph

# Levels of reproducibility that cudnnCreate(reproducible=...) takes; each includes those before it.
LEVELS = RUN, BATCH, DEVICE, RELEASE = "run", "batch", "device", "release"


class BackendError(Exception):
    """Report that accepted work failed while it ran (CUDNN_STATUS_EXECUTION_FAILED)."""


class Unavailable(BackendError):
    """Report that a compiler or a kernel that the work needs is missing, or that the compiler fails."""


class Unsupported(BackendError):
    """Report that a backend does not serve an operation for a handle (CUDNN_STATUS_NOT_SUPPORTED, by ``clause``)."""

    def __init__(self, clause: str, message: str) -> None:
        super().__init__(message)
        self.clause = clause


class Operand(Protocol):
    """Describe memory that a call was given: its start and, if known, its size."""

    address: int
    nbytes: int | None
    writable: bool


class Buffer(Protocol):
    """Describe memory that a backend allocated. It is an ``Operand``; a ``with`` statement frees it at its end."""

    address: int
    nbytes: int
    writable: bool

    def to_host(self, dtype: Any, shape: Sequence[int] | int | None = None) -> Any:
        """Return a NumPy copy of the contents, after all work of the buffer's handle has finished.

        ``dtype`` and ``shape`` describe the copy (one size may be -1), or ``dtype`` is a tensor or filter descriptor.
        """

    def slice(self, offset: int, nbytes: int) -> Any:
        """Return a buffer of ``nbytes`` bytes from ``offset`` in the same memory."""

    def __enter__(self) -> Any: ...

    def __exit__(self, *_: object) -> None: ...

    def free(self) -> None:
        """Free the memory; any later use of the buffer is an error."""


Launch = Callable[[Sequence[Operand], Any], None]


class Backend(Protocol):
    """Run operations.

    ``operand`` converts what the caller passed into an ``Operand``, or raises TypeError or ValueError with an
    explanation. ``prepare`` returns a launcher. It takes the operands in the order of ``operation.operands`` (None for
    NULL) and a stream. It only launches: it does not allocate or synchronise.
    """

    name: str
    description: str

    def allocate(self, nbytes: int) -> Buffer: ...

    def to_device(self, array: Any) -> Buffer:
        """Return a buffer with the bytes of a contiguous array of at least one dimension."""

    def zeros(self, nbytes: int) -> Buffer:
        """Return a buffer of zero bytes, which are numbers in every type."""

    def operand(self, value: Any) -> Operand: ...

    def prepare(self, operation: Operation) -> Launch: ...

    def workspace_bytes(self, operation: Operation) -> int:
        """Return the bytes of workspace that the operation needs on this backend; its own workspace field is ignored."""

    def preferred_algorithms(self, operations: Sequence[Operation]) -> Sequence[Operation]:
        """Return the same operations, which differ in algorithm and math type, ordered by expected speed."""

    def graph_solvers(self, operation: OperationGraph) -> tuple[str, ...]:
        """Return the names of the solvers that the engine's knob selects from, or an empty tuple if there is no choice."""

    def algorithm_time(
        self,
        operation: Operation,
        operands: Sequence[Operand | None],
        stream: Any,
        timed: dict[Any, float] | None = None,
    ) -> float:
        """Run the operation on these operands and return its time in milliseconds; wait for the result.

        timed: a cache that the caller keeps during one search, so that operations that do the same work are timed once.
        """

    def new_stream(self) -> Any: ...

    def stream(self, value: Any) -> Any:
        """Return the caller's stream in the form that prepared launches take; None is the default stream. Raise
        TypeError if it is not a stream, ValueError if it belongs to another device."""

    def finished(self, stream: Any) -> bool:
        """Return whether all work in the stream is done, without waiting."""

    def synchronize(self, stream: Any) -> None: ...

    def close(self) -> None: ...
