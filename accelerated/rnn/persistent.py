"""Divide a layer among the blocks of the persistent kernels of recurrent networks (persistent.cuh)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ctypes import c_int
from dataclasses import dataclass, replace
from itertools import product
from math import inf, prod
from typing import Any

from dualdnn.api.operations.backend import RUN
from dualdnn.api.operations.rnn import RNNDataSpec
from dualdnn.api.operations.rnn.network import GRU, LSTM

from ..plans import Launch, pointers, structure
from ..primitives.cluster import has_clusters
from ..reproducible import Order, level_of
from ..runtime import fallbacks
from ..runtime.device import concurrent_multiprocessors, resident_multiprocessors
from ..runtime.errors import NotBuilt
from ..solver import LAUNCH_SECONDS, Solver
from . import dropout, inputs
from .problem import RNNProblem, stacked

WARPS = 8  # per block
LANES = 32  # per warp
THREADS = LANES * WARPS
BARRIER_BYTES = 16
MAX_LAYERS = 8  # per launch
PAIR_BYTES = 64  # bytes of K per pair of products
LOAD_BYTES = 16, 4, 2  # bytes per load of a vector; the alignment of the hidden size selects the widest
TILE_M = 16  # rows of mma.sync
TILE_N = 8  # columns of mma.sync
FRAGMENT_BYTES = 16  # bytes per lane, of a left operand
FLOAT_BYTES = 4
REGISTERS = 255  # per thread
OTHER_REGISTERS = {1: 72, 2: 88, 4: 96}  # per thread, not for operands or sums, by the tiles of 8 sequences
PIECE_REGISTERS = 6  # registers per piece, with its address
# A warp may keep one of these numbers of pairs of K in registers, by the block's tiles of 16 rows.
REGISTER_PAIRS = {1: (1, 2, 3, 6, 12), 2: (1, 2, 3, 6), 3: (1, 2, 4), 4: (1, 2, 3), 6: (1, 2), 8: (1, 2)}
N_TILES = (1, 2, 4)  # tiles of 8 sequences per block
PARTS = (1, 2, 4, 8)  # parts of K, blocks per cluster
MAX_KEPT = {1: 128, 2: 96, 4: 32}  # registers per thread with left operands, by the tiles of 8 sequences
FRAGMENT_REGISTERS = 4  # per left operand
# These rates were measured on an H100.
STEP_SECONDS = 0.55e-6  # per step
GROUP_SECONDS = 0.4e-6  # per group of a block and step
CELL_SECONDS = 3e-9  # per cell of a group and step
CLOCK = 1.7e9  # clocks a second
L2_BYTES_PER_SECOND = 90e9  # per multiprocessor
ALL_L2_BYTES_PER_SECOND = 3e12  # rate of all multiprocessors, which read the same lines
SHARED_BYTES_PER_SECOND = 128 * CLOCK
PART_SECONDS = 0.06e-6  # per part of K
CLUSTER_BYTES_PER_SECOND = 8e9  # rate at which the blocks of a cluster exchange sums
PRODUCT_CLOCKS = 2 * 6  # per product of a warp; four schedulers have two warps each
CHAINED_CLOCKS = 33  # latency of a product, as published for an H100; each waits for the one before in its chain
PRODUCTS_PER_SECOND = 400e12  # operations of the input products, two per multiply-add
BYTES_PER_SECOND = 2e12  # bytes of the input products
CHAINS = (1, 2)  # possible sums of a warp for one result above level RUN
MIN_GAIN = 1.15  # minimum speedup by parts of K
# The values are clocks from a block's barrier until others' output arrives, if blocks read DELAYED_BYTES in a step.
# The first key says whether K includes the gates of a unit; the second is the cell.
READ_DELAYS = {False: {LSTM: 1200, GRU: 1000}, True: {LSTM: 1400, GRU: 1000}}
DELAYED_BYTES = 400e3  # per step
NAMED = ("m_tiles", "n_tiles", "register_pairs", "loaded_pairs", "chains")  # sizes that kernels are compiled with


@dataclass(frozen=True)
class Division:
    """Describe one way to divide a layer.

    ``m_tiles``: tiles of 16 rows per block. ``n_tiles``: tiles of 8 sequences per block. ``units``: hidden units per
    block. ``slices``, ``groups``: number of slices of units and of groups of sequences. ``depth``: bytes of K per
    block. ``vectors``: sequences per block that exist, at most. ``max_register_pairs``: a limit of register
    pairs below the device's. ``parts``: blocks of a cluster, which have the same rows and a part of K each.
    ``layers``: per launch. ``directions``: per layer. ``skew``: waves between two layers, which matter only where a
    block has several layers. ``level_chains``: sums of a warp for one result, which only a level of reproducibility
    states.
    """

    m_tiles: int
    n_tiles: int
    units: int
    slices: int
    groups: int
    depth: int
    vectors: int = TILE_N
    max_register_pairs: int | None = None
    parts: int = 1
    layers: int = 1
    directions: int = 1
    skew: int = 1
    level_chains: int | None = None

    @property
    def all_slices(self) -> int:
        """Return the slices that run side by side."""
        return self.slices * self.layers * self.directions

    @property
    def sequences(self) -> int:
        return self.n_tiles * TILE_N

    @property
    def pairs(self) -> int:
        return -(-self.depth // (PAIR_BYTES * WARPS))

    @property
    def register_pairs(self) -> int:
        most = min(MAX_KEPT[self.n_tiles], self._free_registers - PIECE_REGISTERS * self.n_tiles)
        possible = [pairs for pairs in REGISTER_PAIRS[self.m_tiles] if self._kept_registers(pairs) <= most]
        wanted = min(self.pairs, self.max_register_pairs or self.pairs)
        return next((pairs for pairs in possible if pairs >= wanted), possible[-1])

    @property
    def is_possible(self) -> bool:
        """Return whether a warp has registers for its left operands and for the sums of its tiles."""
        kept, loaded = self._kept_registers(1), PIECE_REGISTERS * self.n_tiles
        return kept <= MAX_KEPT[self.n_tiles] and kept + loaded <= self._free_registers and self._tiles <= 16

    @property
    def is_worth_trying(self) -> bool:
        """Return whether the division may be the fastest.

        In larger groups, exchanged sums cost more than parts of K gain. Only such parts need more than four tiles of
        rows.
        """
        return self.n_tiles == 1 if self.parts > 1 else self.m_tiles <= 4

    def takes_several(self, multiprocessors: int) -> bool:
        """Return whether a block takes several groups or slices in turn."""
        return self.groups * self.all_slices * self.parts > self.blocks(multiprocessors)

    def runs_together(self, multiprocessors: int) -> bool:
        """Return whether every slice has a multiprocessor for each part of K."""
        return self.all_slices <= multiprocessors // self.parts

    @property
    def _tiles(self) -> int:
        return self.m_tiles * self.n_tiles

    @property
    def chains(self) -> int:
        """Return the sums of a warp for one result: chains of dependent products, of which few tiles need more."""
        return self.level_chains or (4 if self._tiles == 1 else 2 if self._tiles < 4 else 1)

    @property
    def _free_registers(self) -> int:
        """Return the registers per thread for operands."""
        return REGISTERS - OTHER_REGISTERS[self.n_tiles] - FRAGMENT_REGISTERS * self._tiles * self.chains

    def _kept_registers(self, pairs: int) -> int:
        return FRAGMENT_REGISTERS * 2 * self.m_tiles * pairs

    @property
    def loaded_pairs(self) -> int:
        """Return the pairs whose right operands are in flight together: the most that fit in registers."""
        room = self._free_registers - self._kept_registers(self.register_pairs)
        most = max(1, room // (PIECE_REGISTERS * self.n_tiles))
        return -(-self.pairs // -(-self.pairs // most))

    @property
    def pitch(self) -> int:
        if self.parts == 1:
            return self.sequences + 2
        return self.sequences if self.sequences % 16 else self.sequences + 8

    @property
    def shared_bytes(self) -> int:
        rows = self.m_tiles * TILE_M
        sums = 2 * WARPS * rows * self.pitch * FLOAT_BYTES
        if self.parts > 1:
            sums += 2 * rows * (self.sequences + 2) * FLOAT_BYTES + BARRIER_BYTES
        return sums + self._rest_bytes

    @property
    def _rest_bytes(self) -> int:
        """Return the bytes of left operands in shared memory: those that do not fit in registers, and all that multiply
        another layer's output.
        """
        rest = max(0, self.pairs - self.register_pairs) + (self.pairs if self.layers > 1 else 0)
        return rest * WARPS * self.m_tiles * 2 * LANES * FRAGMENT_BYTES

    def blocks(self, multiprocessors: int) -> int:
        """Return the blocks of a launch: a multiple of all slices, or the number of multiprocessors."""
        slices, clusters = self.all_slices, multiprocessors // self.parts
        return self.parts * (slices * min(self.groups, clusters // slices) if slices <= clusters else clusters)

    def step_seconds(self, multiprocessors: int) -> float:
        """Return the approximate seconds of a step, where every slice has a multiprocessor."""
        blocks = self.blocks(multiprocessors)
        rounds = -(-self.groups * self.all_slices // (blocks // self.parts))
        products = 1 if self.layers == 1 else 2  # products per block
        vectors, rows = products * self.vectors * self.depth, self.m_tiles * TILE_M
        sums = 2 * WARPS * rows * self.sequences * FLOAT_BYTES
        of_half = max(self._tiles * PRODUCT_CLOCKS, CHAINED_CLOCKS / self.chains)
        multiplied = products * self.pairs * 2 * of_half / CLOCK
        loads = max(vectors / L2_BYTES_PER_SECOND, blocks * vectors / ALL_L2_BYTES_PER_SECOND)
        group = GROUP_SECONDS + loads + (self._rest_bytes + sums) / SHARED_BYTES_PER_SECOND + multiplied
        group += self.units * self.sequences * CELL_SECONDS
        if self.parts == 1:
            return STEP_SECONDS + rounds * group
        exchanged = rows * self.sequences * FLOAT_BYTES
        group += self.parts * PART_SECONDS + exchanged / CLUSTER_BYTES_PER_SECOND
        return MIN_GAIN * (STEP_SECONDS + rounds * group)

    def read_delay(self, problem: RNNProblem) -> int:
        """Return the clocks that a warp waits before it reads the output of other blocks."""
        n, multiprocessors = problem.network, concurrent_multiprocessors(problem.device)
        read = self.blocks(multiprocessors) * self.vectors * self.depth
        if self.takes_several(multiprocessors) or read < DELAYED_BYTES:
            return 0
        has_gates = self.depth * self.parts > n.hidden * inputs.element_bytes(problem)
        reads_late = (
            has_gates and n.cell == LSTM and self.parts == 1
        )  # All gates of all units take longer than one gate.
        return 0 if reads_late else READ_DELAYS[has_gates].get(n.cell, 0)

    def definitions(self, problem: RNNProblem) -> tuple[tuple[str, str], ...]:
        """Return the definitions of a kernel."""
        sizes = {name.upper(): getattr(self, name) for name in NAMED}
        sizes |= {"PARTS": self.parts, "MAX_LAYERS": MAX_LAYERS if self.layers > 1 else 1}
        sizes["LOAD_BYTES"] = load_bytes(problem)
        return (*problem.definitions, *((name, str(value)) for name, value in sizes.items()))

    def fields(self, problem: RNNProblem) -> list[tuple[str, Any]]:
        """Return the fields of a kernel's arguments."""
        found = [(name, c_int(getattr(self, name))) for name in ("layers", "slices", "groups", "pairs", "skew")]
        return [*found, ("read_delay", c_int(self.read_delay(problem)))]


class PersistentSolver(Solver[RNNProblem]):
    """Keep the recurrent matrices of a layer on chip, where they fit the multiprocessors, with a launch for each
    layer.
    """

    def divisions(self, problem: RNNProblem) -> list[Division]:
        """Return the divisions of a layer, the fastest first."""
        raise TypeError(f"{type(self).__name__} does not define divisions()")

    def serves(self, problem: RNNProblem) -> bool:
        return can_serve(problem) and bool(self.divisions(problem))

    def applies(self, problem: RNNProblem) -> bool:
        together = planned_multiprocessors(problem.device)
        return self.serves(problem) and self.divisions(problem)[0].runs_together(together)

    def summation_order(self, problem: RNNProblem) -> Order:
        return Order(self.name, (self.divisions(problem)[0].chains,))

    def alignment(self, problem: RNNProblem) -> Mapping[str, int]:
        return {"workSpace": 16, "reserveSpace": 16}

    def estimated_seconds(self, problem: RNNProblem) -> float:
        possible = self.divisions(problem)
        if not possible:
            return super().estimated_seconds(problem)
        return seconds(problem, possible[:1] * problem.network.layers)


def planned_multiprocessors(device: Any) -> int:
    """Return the SMs by which divisions are chosen. Above level RUN it is what planners see, on every device."""
    return concurrent_multiprocessors(device) if level_of(device) == RUN else int(device.multiprocessors)


def can_serve(problem: RNNProblem) -> bool:
    """Return whether the kernels serve the problem: tensor cores multiply its data type, and it has no projection."""
    has_barriers = has_clusters(problem.device) or problem.device.kind == "emulated"
    projected = problem.network.is_projected
    return has_barriers and problem.aligned and not projected and inputs.uses_tensor_cores(problem)


def load_bytes(problem: RNNProblem) -> int:
    """Return the bytes per load of a vector. The vectors of every step and direction are aligned to them."""
    nbytes = problem.network.hidden * inputs.element_bytes(problem)
    return next(width for width in LOAD_BYTES if nbytes % width == 0)


def divisions(problem: RNNProblem, gates_of_rows: int, gates_of_depth: int, layers: int = 1) -> list[Division]:
    """Return the divisions whose blocks fit the device, the fastest first, or only those whose blocks run all at once,
    where there are any.

    ``gates_of_rows``: rows of the block's matrix per unit. ``gates_of_depth``: terms of a sum per unit. ``layers``: per
    launch. Above level RUN each block has all of K, because not every device holds the clusters. All divisions then
    have the chains that take the least time.
    """
    sizes = gates_of_rows, gates_of_depth, layers
    if level_of(problem.device) == RUN:
        return ranked(problem, *sizes, None)

    def seconds_with(chains: int) -> float:
        fastest = (ranked(each, *sizes, chains)[:1] for each in problem.representatives)
        return prod(made[0].step_seconds(planned_multiprocessors(problem.device)) if made else inf for made in fastest)

    return ranked(problem, *sizes, min(CHAINS, key=seconds_with))


def ranked(
    problem: RNNProblem, gates_of_rows: int, gates_of_depth: int, layers: int, chains: int | None
) -> list[Division]:
    """Return the divisions with these chains, the fastest first. None stands for the chains that suit the tiles."""
    key = problem.batch, gates_of_rows, gates_of_depth, layers, chains
    if key in problem.ranked:
        return problem.ranked[key]
    device, found = problem.device, list[Division]()
    divides_k = has_clusters(device) and level_of(device) == RUN
    for m_tiles, n_tiles, parts in product(REGISTER_PAIRS, N_TILES, PARTS if divides_k else (1,)):
        made = divided(problem, gates_of_rows, gates_of_depth, m_tiles, n_tiles, parts)
        made = made and replace(made, layers=layers, level_chains=chains)
        if made and made.is_possible and made.is_worth_trying and made.shared_bytes <= device.shared_bytes_per_block:
            found.append(made)
    multiprocessors = planned_multiprocessors(device)
    found = [made for made in found if made.parts == 1 or not made.takes_several(multiprocessors)]
    together = [made for made in found if made.runs_together(multiprocessors)]
    problem.ranked[key] = sorted(together or found, key=lambda made: made.step_seconds(multiprocessors))
    return problem.ranked[key]


def divided(
    problem: RNNProblem, gates_of_rows: int, gates_of_depth: int, m_tiles: int, n_tiles: int, parts: int
) -> Division | None:
    """Return the division with these tiles and parts of K, or None."""
    n, size = problem.network, inputs.element_bytes(problem)
    units, rest = divmod(m_tiles * TILE_M, gates_of_rows * parts)
    depth, odd = divmod(gates_of_depth * n.hidden * size, parts)
    if rest or not units or units & (units - 1) or odd or depth % load_bytes(problem):
        return None
    groups = -(-problem.batch // (n_tiles * TILE_N))
    slices, vectors = -(-n.hidden // (units * parts)), min(problem.batch, n_tiles * TILE_N)
    sizes = m_tiles, n_tiles, units, slices, groups, depth, vectors
    return Division(*sizes, parts=parts, directions=n.directions)


def seconds(problem: RNNProblem, launches: Sequence[Division]) -> float:
    """Return the approximate seconds of the steps of all layers, with one launch per division. They include the input
    products of each launch's first layer, or, backward, the gradients of its inputs.
    """
    n, multiprocessors = problem.network, planned_multiprocessors(problem.device)
    of_gate = 2 * n.hidden / PRODUCTS_PER_SECOND + FLOAT_BYTES / BYTES_PER_SECOND
    before = 5 * LAUNCH_SECONDS + n.directions * n.gates * n.hidden * problem.steps * problem.batch * of_gate
    return sum(before + (problem.steps + made.layers - 1) * made.step_seconds(multiprocessors) for made in launches)


def launch(
    problem: RNNProblem, possible: Sequence[Division], kernel: tuple[str, str], operands: Sequence[str],
    layers: Sequence[int], filled: RNNDataSpec, *fields: tuple[str, Any],
) -> Launch:  # fmt: skip
    """Return the launch of a kernel in the first of these divisions whose clusters all run at once.

    Where nothing can be compiled, divisions without a compiled module are passed over. Raises NotBuilt where none has
    one. ``layers`` are in the order of computation. ``filled`` is the container whose padding is written.
    """
    missing = None
    for made in possible:
        blocks = made.blocks(resident_multiprocessors(problem.device))
        shape = (blocks, 1, 1), (THREADS, 1, 1), made.shared_bytes
        try:
            function = problem.device.function(*kernel, made.definitions(problem))
        except NotBuilt as error:
            missing = missing or error
            if not problem.device.obstacle():
                raise
            continue
        if made.parts == 1 or function.holds_clusters(*shape, blocks // made.parts):
            break
    else:
        if missing is not None:
            raise missing
    if missing is not None:
        fallbacks.note(kernel[1], f"another division of {kernel[1]}", str(missing))
    count = MAX_LAYERS if len(layers) > 1 else 1
    described = (
        ("layer", stacked([problem.layer(layer) for layer in layers], count)),
        ("regions", stacked([problem.regions(layer) for layer in layers], count)),
        ("dropout", stacked([dropout.described(problem, layer) for layer in layers], count)),
        ("shape", problem.shape(filled)),
    )
    arguments = structure(*pointers(len(operands)), *fields, *described, *made.fields(problem))
    return Launch(function, arguments, operands, *shape, cooperative=True)
