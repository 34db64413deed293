"""Reductions of small tensors to one element by a cluster (reduce_tensor/to_scalar.cu)."""

from __future__ import annotations

from collections.abc import Mapping
from ctypes import c_int, c_uint
from math import gcd
from typing import Any, NamedTuple

from dualdnn.api.enumerations import cudnnReduceTensorOp_t
from dualdnn.api.operations import ReduceTensor
from dualdnn.api.operations.specs import SCALAR_BYTES

from ..plans import ELEMENTS, Launch, factors, pointers, structure, type_definitions
from ..primitives.cluster import has_clusters
from .problem import ReduceProblem, ReduceSolver, Walk

# As in the kernel
READS, WARP, MOST_WARPS = 8, 32, 16  # accesses of a thread; threads of a warp; warps of a block
PACK, PACK_BYTES = 4, 16  # elements of an access, and bytes, at most
LEAST_SHARES = 96  # fewer threads do it as fast in a block each
BLOCKS = 16  # of a cluster
AVERAGE = cudnnReduceTensorOp_t.CUDNN_REDUCE_TENSOR_AVG


class Reading(NamedTuple):
    """A thread reads as many packs of ``width`` elements as it has accesses, ``step`` elements apart. shares: of
    threads. number: of A's packs."""

    width: int
    shares: int
    number: int
    step: int


def reading(operation: ReduceTensor) -> Reading | None:
    """Return how threads read A, None where A is no packs side by side, or few."""
    extents, (steps,) = Walk(operation).axes()[0]
    width = min(PACK, PACK_BYTES // operation.A.scalar_bytes)
    if steps != [1]:
        return None
    width = gcd(extents[0], width)
    packs, shares = extents[0] // width, -(-extents[0] // (width * READS))
    return Reading(width, shares, packs, shares * width) if shares >= READS else None


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


def launch(operation: ReduceTensor, device: Any) -> Launch | None:
    """Return the launch, or None for what the cluster cannot read at once and devices without such clusters."""
    found = reading(operation) if operation.C.count == 1 else None
    blocks = blocks_of_cluster(device)
    if found is None or found.shares > blocks * MOST_WARPS * WARP:
        return None
    made = launch_of(operation, device, found, blocks)
    held = blocks == 1 or made.function.holds_clusters(made.grid, made.block, made.shared_bytes)
    return made if held else None


def blocks_of_cluster(device: Any) -> int:
    """Return the blocks of the cluster: 0 on devices without clusters; on the emulated one a cluster is one block."""
    return BLOCKS if has_clusters(device) else int(device.kind == "emulated")


def launch_of(operation: ReduceTensor, device: Any, found: Reading, blocks: int) -> Launch:
    """Return the launch of a cluster of ``blocks`` that reads so."""
    reduction, state_bytes = operation.reduction, SCALAR_BYTES[operation.compute_type]
    divisor = operation.length if reduction.op == AVERAGE else 1
    definitions = {
        "PACK_BYTES": str(found.width * operation.A.scalar_bytes),
        "CLUSTER_BLOCKS": str(blocks),
        "RESULT": ELEMENTS[operation.C.scalar_type],
    }
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
    )
    warps = -(-found.shares // (WARP * blocks))
    shared_bytes = -(-state_bytes * (blocks + MOST_WARPS) // 16) * 16 + 16
    return Launch(function, arguments, ("A", "C"), (blocks, 1, 1), (WARP * warps, 1, 1), shared_bytes)
