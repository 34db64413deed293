"""Implement the opaque objects of MIOpen: each holds the one of cuDNN that serves it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from ..handle import Handle
from .status import BAD_PARM, MiopenError, expect


class Descriptor:
    """``cudnn`` is None until a setter initialises it, and again once destroyed; ``attributes`` are MIOpen's own."""

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
    """``filter`` is the descriptor of the same memory as a filter: MIOpen has no filter descriptors (row 13)."""

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
    """What Find is asked about: a direction and the contents of the descriptors."""

    direction: str
    convolution: Any
    operands: tuple[Any, ...]


@dataclass
class MiopenHandle:
    """The library context behind a ``miopenHandle_t``: a handle of cuDNN's and what MIOpen remembers in its own.

    ``to_device``, ``allocate``, ``zeros``, ``new_stream`` and ``synchronize`` are those of the handle inside.
    """

    cudnn: Handle
    queried: set[Problem] = field(default_factory=set)
    found: dict[Problem, dict[Any, int]] = field(default_factory=dict)  # algorithm -> bytes of workspace
    indexed: dict[tuple[str, int], tuple[Any, ...]] = field(default_factory=dict)  # workspace -> the forward call

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
        """Where memory starts, to tell it from other memory; BadParm for what is none, or has fewer bytes."""
        try:
            operand = self.backend.operand(memory)
        except Exception as error:  # whatever a foreign object raises
            raise MiopenError(BAD_PARM, clause, f"{name} {error}") from error
        room = operand.nbytes
        expect(room is None or room >= nbytes, BAD_PARM, clause, f"{name} has {room} bytes, {nbytes} are needed")
        address: int = operand.address
        return address

    def __repr__(self) -> str:
        return f"<miopenHandle_t {self.backend.description}{'' if self.alive else ', destroyed'}>"
