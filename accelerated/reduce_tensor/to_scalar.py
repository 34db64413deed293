"""Reductions of small tensors to one element by a cluster (reduce_tensor/to_scalar.cu)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ctypes import c_int, c_uint
from math import gcd
from typing import Any, NamedTuple

from dualdnn.api.enumerations import cudnnReduceTensorOp_t
from dualdnn.api.operations import ReduceTensor
from dualdnn.api.operations.specs import SCALAR_BYTES

from ..plans import ELEMENTS, Launch, factors, pointers, structure, type_definitions
from ..primitives.cluster import has_clusters
from ..primitives.geometry import FastDivmod
from .problem import ReduceProblem, ReduceSolver, Walk

# As in the kernel
READS, WARP, MOST_WARPS = 8, 32, 16  # accesses of a thread; threads of a warp; warps of a block
PACK, PACK_BYTES = 4, 16  # elements of an access, and bytes, at most
LEAST_SHARES = 96  # fewer threads do it as fast in a block each
ROW_DIMENSIONS = 3  # at most
BLOCKS = 16  # of a cluster
FAR = 2**31 - 1  # a step beyond all rows
AVERAGE = cudnnReduceTensorOp_t.CUDNN_REDUCE_TENSOR_AVG


class Reading(NamedTuple):
    """A thread reads as many packs of ``width`` elements as it has accesses, ``step`` elements apart. shares: of
    threads. number: of A's packs, or rows. gaps: where there are any, the rest of the kernel's arguments."""

    width: int
    shares: int
    number: int
    step: int
    gaps: tuple[tuple[str, Any], ...] = ()


def reading(operation: ReduceTensor) -> Reading | None:
    """Return how threads read A, None where A is neither packs side by side nor rows of neighbours, or has few
    packs."""
    extents, (steps,) = Walk(operation).axes()[0]
    width = min(PACK, PACK_BYTES // operation.A.scalar_bytes)
    if steps[-1] != 1:
        return None
    if len(extents) > 1:
        return _with_gaps(extents, steps, width)
    width = gcd(extents[0], width)
    packs, shares = extents[0] // width, -(-extents[0] // (width * READS))
    return Reading(width, shares, packs, shares * width) if shares >= READS else None


def _with_gaps(extents: list[int], steps: list[int], width: int) -> Reading | None:
    """Return how threads read rows of up to three dimensions, gaps included, which begin anywhere: by the packs that
    hold each."""
    (rows, *inner), (row_step, *inner_steps) = extents, steps
    row = 1
    for extent, step in zip(reversed(inner), reversed(inner_steps), strict=True):
        if step < row:
            return None
        row += (extent - 1) * step
    if len(inner) > ROW_DIMENSIONS or not width <= row <= row_step:
        return None
    groups, before = -(-rows // READS), width - 1 if row_step % width else 0
    packs = -(-(row + before) // width)
    absent = ROW_DIMENSIONS - len(inner)
    (_, lines, line), (plane_step, line_step, _) = [1] * absent + inner, [FAR] * absent + inner_steps
    gaps = (
        ("groups", c_uint(groups)),
        ("row_step", c_uint(row_step)),
        ("row", c_uint(row)),
        ("end", c_uint((rows - 1) * row_step + row)),
        ("extents", (c_uint * 2)(line, lines)),
        ("packs", FastDivmod.of(packs)),
        ("line", FastDivmod.of(line_step)),
        ("plane", FastDivmod.of(plane_step)),
    )
    return Reading(width, packs * groups, rows, groups * row_step, gaps)


class ToScalar(ReduceSolver):
    """Reductions without indices to one element, of which the threads of a cluster read everything at once."""

    name = "reduce_tensor.to_scalar"

    def serves(self, problem: ReduceProblem) -> bool:
        return problem.aligned and not problem.operation.wants_indices and self._found(problem) is not None

    def applies(self, problem: ReduceProblem) -> bool:
        return self.serves(problem) and self._reading(problem).shares >= LEAST_SHARES

    def launches(self, problem: ReduceProblem) -> list[Launch]:
        found = self._found(problem)
        assert found is not None
        return [found]

    def alignment(self, problem: ReduceProblem) -> Mapping[str, int]:
        return {"A": self._reading(problem).width * problem.operation.A.scalar_bytes}

    def _found(self, problem: ReduceProblem) -> Launch | None:
        return problem.once(self.name, lambda: launch(problem.operation, problem.device))

    def _reading(self, problem: ReduceProblem) -> Reading:
        found = reading(problem.operation)
        assert found is not None
        return found


def preferred(operation: ReduceTensor, device: Any, operands: Sequence[str] = ("A", "C")) -> tuple[Launch, int] | None:
    """Return the launch and the bytes at a multiple of which A has to begin; None where it cannot serve or fewer
    threads are as fast."""
    found = reading(operation) if operation.C.count == 1 else None
    if found is None or found.shares < LEAST_SHARES:
        return None
    made = launch(operation, device, operands)
    return (made, found.width * operation.A.scalar_bytes) if made else None


def launch(operation: ReduceTensor, device: Any, operands: Sequence[str] = ("A", "C")) -> Launch | None:
    """Return the launch, or None for what the cluster cannot read at once and devices without such clusters."""
    found = reading(operation) if operation.C.count == 1 else None
    blocks = blocks_of_cluster(device)
    if found is None or found.shares > blocks * MOST_WARPS * WARP:
        return None
    made = launch_of(operation, device, found, blocks, operands)
    held = blocks == 1 or made.function.holds_clusters(made.grid, made.block, made.shared_bytes)
    return made if held else None


def blocks_of_cluster(device: Any) -> int:
    """Return the blocks of the cluster: 0 on devices without clusters; on the emulated one a cluster is one block."""
    return BLOCKS if has_clusters(device) else int(device.kind == "emulated")


def launch_of(
    operation: ReduceTensor, device: Any, found: Reading, blocks: int, operands: Sequence[str] = ("A", "C")
) -> Launch:
    """Return the launch of a cluster of ``blocks`` that reads so."""
    reduction, state_bytes = operation.reduction, SCALAR_BYTES[operation.compute_type]
    divisor = operation.length if reduction.op == AVERAGE else 1
    definitions = {
        "PACK_BYTES": str(found.width * operation.A.scalar_bytes),
        "CLUSTER_BLOCKS": str(blocks),
        "RESULT": ELEMENTS[operation.C.scalar_type],
    }
    if found.gaps:
        definitions["GAPS"] = "1"
    function = device.function(
        "reduce_tensor/to_scalar.cu",
        "reduce_tensor_to_scalar",
        type_definitions(operation.A.scalar_type, operation, **definitions),
    )
    arguments = structure(
        *pointers(2),
        ("shares", c_uint(found.shares)),
        ("number", c_uint(found.number)),
        ("step", c_uint(found.step)),
        *factors(operation, alpha=operation.alpha / divisor, beta=operation.beta),
        ("op", c_int(reduction.op)),
        ("propagate", c_int(reduction.nan)),
        *found.gaps,
    )
    warps = -(-found.shares // (WARP * blocks))
    shared_bytes = -(-state_bytes * (blocks + MOST_WARPS) // 16) * 16 + 16
    return Launch(function, arguments, operands, (blocks, 1, 1), (WARP * warps, 1, 1), shared_bytes)
