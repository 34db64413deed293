"""Implement what all searches for convolution algorithms share: candidates, ranking, measuring."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, NamedTuple

from ...enumerations import cudnnDeterminism_t, cudnnMathType_t, cudnnStatus_t
from ...operations import BackendError, ConvolutionSpec, Unsupported
from ...operations.backend import RUN
from ...status import ALLOC_FAILED, BAD_PARAM, EXECUTION_FAILED, NOT_SUPPORTED, CudnnError, expect
from ...support.convolution import Problem

SUCCESS = cudnnStatus_t.CUDNN_STATUS_SUCCESS
DEFAULT_MATH = cudnnMathType_t.CUDNN_DEFAULT_MATH
FMA_MATH = cudnnMathType_t.CUDNN_FMA_MATH
DETERMINISTIC = cudnnDeterminism_t.CUDNN_DETERMINISTIC
NON_DETERMINISTIC = cudnnDeterminism_t.CUDNN_NON_DETERMINISTIC
UNMEASURED = -1.0  # milliseconds, the time of a ranked or failed entry (docs/errata.md, D194, D239)


class AlgorithmResults(NamedTuple):
    returnedAlgoCount: int
    perfResults: tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class Search:
    """Describe the search for one direction of a convolution.

    tensor_op: the algorithms with a CUDNN_TENSOR_OP_MATH variant.
    unordered: the algorithms whose enumerators document that sums have no fixed order.
    operation: returns the operation that computes a problem by an algorithm.
    check_problem: raises an error that cites a call's clauses if the descriptors do not fit each other.
    check_support: raises such an error if the algorithm does not support the problem.
    entry: the documented structure of a result.
    """

    algorithms: type[IntEnum]
    tensor_op: tuple[IntEnum, ...]
    unordered: tuple[IntEnum, ...]
    operation: Callable[[Problem, ConvolutionSpec, Any], Any]
    check_problem: Callable[[Problem, Mapping[str, str]], None]
    check_support: Callable[[Problem, Any, Mapping[str, str]], None]
    entry: type

    @property
    def most(self) -> int:
        """Return the maximum number of results: all algorithms, plus one for each tensor op variant."""
        return len(self.algorithms) + len(self.tensor_op)

    def workspace_bytes(self, handle: Any, problem: Problem, algorithm: IntEnum, clauses: Mapping[str, str]) -> int:
        """Return the bytes that the algorithm needs; raise an error if the descriptors do not fit or it does not
        support the problem."""
        self.check_problem(problem, clauses)
        self.check_support(problem, algorithm, clauses)
        return int(handle.backend.workspace_bytes(self.operation(problem, problem.convolution, algorithm)))

    def math_types(self, asked: cudnnMathType_t, algorithm: IntEnum) -> tuple[cudnnMathType_t, ...]:
        """Return the math types to try an algorithm with, the descriptor's first (docs/errata.md, search-math)."""
        if asked in (DEFAULT_MATH, FMA_MATH):
            return (asked,)
        return (asked, DEFAULT_MATH) if algorithm in self.tensor_op else (DEFAULT_MATH,)

    def candidates(self, problem: Problem) -> Iterator[Any]:
        """Yield the operation of every algorithm with each of its math types; those with the descriptor's math type come first."""
        asked = problem.convolution.math_type
        pairs = [(algorithm, math) for algorithm in self.algorithms for math in self.math_types(asked, algorithm)]
        for algorithm, math_type in sorted(pairs, key=lambda pair: pair[1] != asked):
            yield self.operation(problem, replace(problem.convolution, math_type=math_type), algorithm)

    def ranked(
        self, handle: Any, problem: Problem, count: int, few: str, clauses: Mapping[str, str]
    ) -> AlgorithmResults:
        """Return at most ``count`` results, ordered by expected speed, with unsupported algorithms last.

        few: the clause of a count below 1. clauses: apply to descriptors that do not fit each other.
        """
        some(count, few)
        taken, refused = self._sorted_out(handle, problem, clauses)
        preferred = handle.backend.preferred_algorithms(taken)
        return _first([*(self._result(o, SUCCESS, UNMEASURED) for o in preferred), *refused], count)

    def measured(
        self, handle: Any, problem: Problem, count: int, few: str, clauses: Mapping[str, str], no_memory: str
    ) -> AlgorithmResults:
        """Return at most ``count`` results, measured on zeros in temporary memory; no_memory is the clause for a failed
        allocation."""
        some(count, few)
        taken, refused = self._sorted_out(handle, problem, clauses)
        described = self.operation(problem, problem.convolution, next(iter(self.algorithms)))
        buffers: list[Any] = []
        try:
            for name in (*described.inputs, *described.outputs):
                buffers.append(_zeros(handle, described.nbytes(name), no_memory))
            timed: dict[Any, float] = {}
            found = [self._measured_with_own_workspace(handle, operation, buffers, timed) for operation in taken]
            return _first(_by_time(found) + refused, count)
        finally:
            for buffer in buffers:
                buffer.free()

    def measured_on(
        self,
        handle: Any,
        problem: Problem,
        count: int,
        few: str,
        clauses: Mapping[str, str],
        memory: Mapping[str, Any],
        bytes_said: int,
        unusable: Mapping[str, str],
    ) -> AlgorithmResults:
        """Return at most ``count`` results, measured on the caller's memory.

        memory: maps operand names to memory. bytes_said: the stated size of workSpace, if that is not NULL.
        unusable: the clauses for unusable memory, output and workSpace.
        """
        some(count, few)
        taken, refused = self._sorted_out(handle, problem, clauses)
        room = 0 if memory["workSpace"] is None else bytes_said
        described = self.operation(problem, problem.convolution, next(iter(self.algorithms)))
        names = (*described.inputs, *described.outputs)
        operands = [_operand(handle, name, memory[name], described.nbytes(name), unusable["memory"]) for name in names]
        workspace = (
            None if room == 0 else _operand(handle, "workSpace", memory["workSpace"], room, unusable["workSpace"])
        )
        expect(
            operands[-1].writable, BAD_PARAM, unusable["output"], f"{names[-1]} is written, but its memory is read-only"
        )
        found, timed = [], dict[Any, float]()
        for operation in taken:
            if operation.workspace_bytes > room:
                found.append(self._result(operation, ALLOC_FAILED, UNMEASURED))
            else:
                memory_of = [*operands, workspace if operation.workspace_bytes else None]
                found.append(self._measured(handle, operation, memory_of, timed))
        return _first(_by_time(found) + refused, count)

    def _sorted_out(self, handle: Any, problem: Problem, clauses: Mapping[str, str]) -> tuple[list[Any], list[Any]]:
        """Return (operations of supported algorithms with their workspace, results of unsupported ones)."""
        self.check_problem(problem, clauses)
        taken, refused = [], []
        for operation in self.candidates(problem):
            try:
                self.check_support(problem, operation.algo, clauses)
                taken.append(replace(operation, workspace_bytes=handle.backend.workspace_bytes(operation)))
            except CudnnError as error:
                refused.append(self._result(operation, error.status, UNMEASURED))
            except Unsupported:
                refused.append(self._result(operation, NOT_SUPPORTED, UNMEASURED))
            except BackendError:  # No solver of this algorithm has its kernels here; other algorithms may serve.
                refused.append(self._result(operation, EXECUTION_FAILED, UNMEASURED))
        alike = taken if handle.reproducible == RUN else handle.backend.in_one_order(taken)
        refused += [self._result(o, NOT_SUPPORTED, UNMEASURED) for o in taken if o not in alike]
        return alike, refused

    def _result(self, operation: Any, status: cudnnStatus_t, time: float) -> Any:
        determinism = NON_DETERMINISTIC if operation.algo in self.unordered else DETERMINISTIC
        math_type = operation.convolution.math_type
        return self.entry(operation.algo, status, time, operation.workspace_bytes, determinism, math_type)

    def _measured(self, handle: Any, operation: Any, operands: list[Any], timed: dict[Any, float]) -> Any:
        """Run an operation on these operands, the workspace last, and return its entry.

        timed: the times of this search. Algorithms with the same launches get one time and keep their order.
        """
        try:
            time = handle.backend.algorithm_time(operation, operands, handle.stream, timed)
        except BackendError:
            return self._result(operation, EXECUTION_FAILED, UNMEASURED)
        return self._result(operation, SUCCESS, time)

    def _measured_with_own_workspace(
        self, handle: Any, operation: Any, operands: list[Any], timed: dict[Any, float]
    ) -> Any:
        if operation.workspace_bytes == 0:
            return self._measured(handle, operation, [*operands, None], timed)
        try:
            workspace = handle.allocate(operation.workspace_bytes)
        except CudnnError as error:
            return self._result(operation, error.status, UNMEASURED)
        try:
            return self._measured(handle, operation, [*operands, workspace], timed)
        finally:
            workspace.free()


def some(requested: int, clause: str) -> None:
    """Raise BAD_PARAM unless at least one result is requested."""
    expect(requested > 0, BAD_PARAM, clause, f"requestedAlgoCount is {requested}, not positive")


def _by_time(results: list[Any]) -> list[Any]:
    """Return successes ordered by time, then failures; equal times keep the order of the candidates."""
    return sorted(results, key=lambda result: (result.status != SUCCESS, result.time))


def _first(results: list[Any], count: int) -> AlgorithmResults:
    kept = tuple(results[:count])
    return AlgorithmResults(len(kept), kept)


def _zeros(handle: Any, nbytes: int, clause: str) -> Any:
    """Return device memory filled with zeros, which are numbers in every type."""
    try:
        return handle.zeros(nbytes)
    except CudnnError as error:
        raise CudnnError(error.status, clause, error.message) from error


def _operand(handle: Any, name: str, value: Any, nbytes: int, clause: str) -> Any:
    """Return the operand for the caller's memory, which has at least ``nbytes`` if its size is known."""
    try:
        operand = handle.backend.operand(value)
    except (TypeError, ValueError) as error:
        raise CudnnError(BAD_PARAM, clause, f"{name} {error}") from None
    known = operand.nbytes is not None
    expect(not known or operand.nbytes >= nbytes, BAD_PARAM, clause,
           f"{name} has {operand.nbytes} bytes, {nbytes} are needed")  # fmt: skip
    return operand
