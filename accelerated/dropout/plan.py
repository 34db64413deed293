"""Dropout (3.2.34, 4.1.7): octets of elements in packs of 16 bytes, or of any layout; the states of its random numbers
(3.2.80)."""

from __future__ import annotations

from collections.abc import Mapping
from ctypes import c_int, c_uint
from math import gcd, prod
from typing import Any

from dualdnn.api.operations import DropoutBackward, DropoutForward, SetDropoutStates
from dualdnn.api.operations.specs import FLOAT, TensorSpec

from ..plans import Launch, factors, pointers, structure, type_definitions
from ..primitives.geometry import PACK_BYTES, THREADS, FastDivmod, blocks, geometry_in_order, merge_in_order
from ..solver import Problem, Solver, serve

SOURCE = "dropout/dropout.cu"
OCTET = 8  # elements of a thread, as in the kernel
WORD = 0xFFFFFFFF
WARP = 32


class DropoutProblem(Problem):
    """A dropout, forward or backward, or the states of a new generator."""

    def __init__(self, operation: Any, device: Any, aligned: bool = True) -> None:
        super().__init__(operation, device, aligned)
        self.sets_states = isinstance(operation, SetDropoutStates)
        if not self.sets_states:
            self.forward = isinstance(operation, DropoutForward)
            names = ("x", "y") if self.forward else ("dy", "dx")
            self.operands = (*names, "reserveSpace", "states")
            self.source, self.target = (operation.tensor(name) for name in names)
            self.octets = -(-self.source.count // OCTET)

    @property
    def drawn(self) -> Any:
        """The argument that says which random words are kept."""
        threshold = self.operation.threshold if self.forward else 0
        return structure(("threshold", c_uint(min(threshold, WORD))), ("drops_all", c_int(threshold > WORD)))

    def launch(self, kernel: str, *others: tuple[str, Any]) -> list[Launch]:
        """Return the launch of a kernel, and behind a forward call that of the states' advance."""
        probability = self.operation.probability
        arguments = structure(
            *pointers(len(self.operands)),
            *factors(self.operation, scale=1 / (1 - probability) if probability < 1 else 0.0),
            ("drawn", self.drawn),
            ("elements", c_uint(self.source.count)),
            *others,
        )
        definitions = type_definitions(self.source.scalar_type, self.operation)
        function = self.device.function(SOURCE, kernel, definitions)
        found = [Launch(function, arguments, self.operands, blocks(self.octets), (THREADS, 1, 1))]
        return [*found, self.states(definitions, advances=True)] if self.forward else found

    def states(self, definitions: Any, seed: int = 0, advances: bool = False) -> Launch:
        """Return the launch that writes the states."""
        words = (c_uint * 2)(seed & WORD, seed >> 32)
        arguments = structure(*pointers(1), ("seed", words), ("advances", c_int(advances)))
        function = self.device.function(SOURCE, "dropout_states", definitions)
        return Launch(function, arguments, ("states",), (1, 1, 1), (WARP, 1, 1))


class StatesSolver(Solver[DropoutProblem]):
    """The states of a new generator."""

    name = "dropout.states"

    def serves(self, problem: DropoutProblem) -> bool:
        return problem.sets_states

    def launches(self, problem: DropoutProblem) -> list[Launch]:
        return [problem.states(type_definitions(FLOAT, problem.operation), problem.operation.seed)]


class PackedSolver(Solver[DropoutProblem]):
    """Tensors that lie in row-major order without gaps: packs of 16 bytes."""

    name = "dropout.packed"

    def serves(self, problem: DropoutProblem) -> bool:
        if problem.sets_states or not problem.aligned:
            return False
        return all(merge_in_order(t.dims, t.strides)[1] in ([1], [0]) for t in (problem.source, problem.target))

    def alignment(self, problem: DropoutProblem) -> Mapping[str, int]:
        return dict.fromkeys(problem.operands[:2], PACK_BYTES)

    def launches(self, problem: DropoutProblem) -> list[Launch]:
        return problem.launch("dropout_packed")


class StridedSolver(Solver[DropoutProblem]):
    """Tensors of any layout, element by element."""

    name = "dropout.strided"

    def serves(self, problem: DropoutProblem) -> bool:
        return not problem.sets_states

    def launches(self, problem: DropoutProblem) -> list[Launch]:
        channels, octets = _planes(problem.target)
        return problem.launch(
            "dropout_strided",
            ("channels", FastDivmod.of(channels)),
            ("octets", FastDivmod.of(octets)),
            *(
                (name, geometry_in_order(spec.dims, spec.strides))
                for name, spec in (("in", problem.source), ("out", problem.target))
            ),
        )


def _planes(spec: TensorSpec) -> tuple[int, int]:
    """Return (groups of channels, octets of a group) where channels lie side by side; else (1, 1). A group has the
    channels whose planes are octets without a rest."""
    channels, pixels = spec.dims[1], prod(spec.dims[2:])
    grouped = OCTET // gcd(pixels, OCTET)
    interleaved = spec.strides[1] == 1 and pixels > 1 and channels > 1
    return (channels // grouped, pixels * grouped // OCTET) if interleaved and channels % grouped == 0 else (1, 1)


SOLVERS = (StatesSolver(), PackedSolver(), StridedSolver())
serve(DropoutProblem, SOLVERS, SetDropoutStates, DropoutForward, DropoutBackward)
