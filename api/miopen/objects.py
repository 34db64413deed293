"""Define the opaque objects of MIOpen; each holds the cuDNN object that it uses."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from ..handle import Handle
from .status import BAD_PARM, MiopenError, expect


class Descriptor:
    """Hold a cuDNN descriptor. ``cudnn`` is None before a setter initialises it and after it is destroyed;
    ``attributes`` exist only in MIOpen."""

    type_name: ClassVar[str]

    def __init__(self) -> None:
        self.cudnn: Any = None
        self.attributes: Any = None
        self.alive = True

    def destroy(self) -> None:
        self.cudnn, self.attributes, self.alive = None, None, False

    def __repr__(self) -> str:
        state = "destroyed" if not self.alive else "not initialised" if self.cudnn is None else repr(self.cudnn.spec)
        return f"<{self.type_name} {state}>"


class TensorDescriptor(Descriptor):
    """Describe a tensor. ``filter`` describes the same memory as a filter, because MIOpen has no filter descriptors
    (row 13)."""

    type_name = "miopenTensorDescriptor_t"

    def __init__(self) -> None:
        super().__init__()
        self.filter: Any = None

    def destroy(self) -> None:
        super().destroy()
        self.filter = None


class ConvolutionDescriptor(Descriptor):
    type_name = "miopenConvolutionDescriptor_t"


class PoolingDescriptor(Descriptor):
    type_name = "miopenPoolingDescriptor_t"


class ActivationDescriptor(Descriptor):
    type_name = "miopenActivationDescriptor_t"


class LRNDescriptor(Descriptor):
    type_name = "miopenLRNDescriptor_t"


DESCRIPTORS: dict[str, type[Descriptor]] = {kind.type_name: kind for kind in Descriptor.__subclasses__()}


@dataclass(frozen=True)
class Problem:
    """Hold what Find is called for: a direction and the contents of the descriptors."""

    direction: str
    convolution: Any
    operands: tuple[Any, ...]


@dataclass
class MiopenHandle:
    """Represent the library context behind a ``miopenHandle_t``: a cuDNN handle and the state that MIOpen keeps in its
    own.

    ``to_device``, ``allocate``, ``zeros``, ``new_stream`` and ``synchronize`` belong to the inner handle.
    """

    cudnn: Handle
    queried: set[Problem] = field(default_factory=set)
    found: dict[Problem, dict[Any, int]] = field(default_factory=dict)  # bytes of workspace by algorithm
    # What forward calls have stored in workspaces, the newest last: specifications and a digest (kept.py).
    stored: dict[tuple[Any, ...], None] = field(default_factory=dict)

    @property
    def alive(self) -> bool:
        return self.cudnn.alive

    @property
    def backend(self) -> Any:
        return self.cudnn.backend

    def __getattr__(self, name: str) -> Any:
        if name in ("to_device", "allocate", "zeros", "new_stream", "synchronize"):
            return getattr(self.cudnn, name)
        raise AttributeError(f"a miopenHandle_t has no {name}")

    def address(self, memory: Any, clause: str, name: str, nbytes: int = 0) -> int:
        """Return the address of memory; raise BadParm for values that are not memory or have too few bytes."""
        try:
            operand = self.backend.operand(memory)
        except Exception as error:  # A foreign object may raise anything.
            raise MiopenError(BAD_PARM, clause, f"{name} {error}") from error
        room = operand.nbytes
        expect(room is None or room >= nbytes, BAD_PARM, clause, f"{name} has {room} bytes, {nbytes} are needed")
        address: int = operand.address
        return address

    def __repr__(self) -> str:
        return f"<miopenHandle_t {self.backend.description}{'' if self.alive else ', destroyed'}>"
