"""Softmax on the device: which of its kernels (kernels/softmax*.cu) serves a call, with what."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import c_int, c_uint
from typing import Any

from dualdnn.api.operations import SoftmaxBackward, SoftmaxForward
from dualdnn.api.operations.specs import FLOAT, SCALAR_BYTES

from ..plans import AlignedPlan, Launch, Plan, factors, implements, pointers, structure, type_definitions
from ..primitives.cluster import CLUSTER_SIZES, has_clusters
from ..primitives.geometry import prefetching_blocks
from . import persistent, small, staged
from .problem import PACK_BYTES, SHORT_LINE, WARP, Problem, Walk, along_of, ceiling, others_of, walk_of
from .register_resident import COLUMN_PACKS, narrow_registers_of, registers_of

# Single elements in registers: of a lane; the shortest line of them, shorter ones make tiles, and so do smaller elements
MOST_ELEMENTS, LEAST_REGISTER_LINE, LEAST_REGISTER_BYTES = 8, 97, 4
# Read and written: between these the cache gives up first what columns, and clusters forward, have read; the results stay for who
# reads them next; and kernels ask it for what they read first before those before them have ended. Of less all stays, of more
# nothing that the next kernel needs.
PASSED_BYTES = (60 << 20, 160 << 20)
NO_STREAM = (0,) * len(persistent.FIELDS)


class Choice:
    """A call, and the ways to serve it, each a method that makes the plan, or None where it does not serve or others do better.

    aligned: whether operands lie at whole packs; where a kernel needs that, its plan has another for other operands.
    """

    def __init__(
        self, operation: SoftmaxForward | SoftmaxBackward, device: Any, kernel: str, aligned: bool = True
    ) -> None:
        self.operation, self.device, self.kernel, self.aligned = operation, device, kernel, aligned
        self.specs = [operation.tensor(name) for name in operation.operands]
        self.inputs, self.scalar_bytes = len(self.specs) - 1, self.specs[-1].scalar_bytes
        self.width = 1 if self.scalar_bytes == 1 else PACK_BYTES // self.scalar_bytes
        self.walk = walk = walk_of(operation, self.specs, self.width)
        self.lines, self.length = walk.lines.packs, walk.along.row
        self.statistic_bytes = 2 * SCALAR_BYTES[operation.compute_type]
        self.whole_lines = (
            aligned
            and not walk.columns
            and walk.aligned
            and self.length % self.width == 0
            and persistent.has_copy_engine(device)
        )
        packs = walk.along.packs + (walk.wide and not walk.aligned)  # a line that starts anywhere has one more
        pack_bytes = PACK_BYTES if walk.wide else self.scalar_bytes
        self.problem = Problem(self.lines, packs, walk.wide, pack_bytes, self.inputs)
        self.moved = self.lines * walk.along.packs * pack_bytes * (self.inputs + 1)
        self.passing = {"PASSING": 1} if PASSED_BYTES[0] <= self.moved < PASSED_BYTES[1] else {}
        # Of columns: kernels of halves need registers for all that they have of a column
        halves_forward = self.scalar_bytes == 2 and self.inputs == 1
        self.known_algorithm = {"ALGORITHM": int(operation.algorithm)} if halves_forward else {}

    def plan(self) -> Plan:
        """That of the first way that serves."""
        ways = (
            self.small_columns,
            self.in_registers,
            self.single_elements,
            self.in_tiles,
            self.few_lines,
            self.by_blocks,
        )
        plans = (way() for way in (*ways, self.by_streams, self.by_clusters, self.by_teams))
        return next(plan for plan in plans if plan is not None)

    def launch(
        self,
        source: str,
        name: str,
        threads: int,
        grid: int,
        team: int,
        kept: int,
        shared_bytes: int,
        stream: Sequence[int] = NO_STREAM,
        of: Walk | None = None,
        definitions: dict[str, int] | None = None,
    ) -> Launch:
        """Of a kernel, with what all of them take. of: how it walks lines, where not as usual."""
        walk, operation = of or self.walk, self.operation
        chosen = {name: str(value) for name, value in (definitions or {}).items()}
        types = type_definitions(self.specs[-1].scalar_type, operation, **chosen)
        function = self.device.function(source, f"{self.kernel}_{name}", types)
        arguments = structure(
            *pointers(len(operation.operands)),
            *factors(operation, alpha=operation.alpha, beta=operation.beta),
            ("algorithm", c_int(operation.algorithm)),
            ("team", c_uint(team)),
            ("kept", c_uint(kept)),
            *((name, c_uint(value)) for name, value in zip(persistent.FIELDS, stream, strict=True)),
            ("lines", walk.lines),
            ("along", walk.along),
        )
        return Launch(function, arguments, operation.operands, (grid, 1, 1), (threads, 1, 1), shared_bytes, any(stream))

    def aligned_plan(self, step: Launch) -> Plan:
        """Of a kernel that needs whole packs."""
        places = dict.fromkeys(self.operation.operands, PACK_BYTES)
        return AlignedPlan(self.operation, Plan(self.operation, [step]), places, self._unaligned_plan)

    def _unaligned_plan(self) -> Plan:
        return Choice(self.operation, self.device, self.kernel, aligned=False).plan()

    def in_registers(self) -> Plan | None:
        """Short lines, columns of a few positions."""
        walk, scalar_bytes = self.walk, self.scalar_bytes
        # Columns of halves: packs of four, where none of eight exist, or where threads have many, so that they stay in registers.
        ways = [(walk, registers_of(walk, scalar_bytes, self.inputs, self.device))]
        if walk.columns and scalar_bytes == 2:
            narrower = walk_of(self.operation, self.specs, self.width // 2)
            fours = registers_of(narrower, scalar_bytes, self.inputs, self.device)
            ways.insert(0 if fours and fours.packs == COLUMN_PACKS else 1, (narrower, fours))
        ways.append((walk, narrow_registers_of(walk, scalar_bytes, self.device)))
        for of, held in ways:
            if held:
                name, shared_bytes = f"{held.kind}_of_{held.packs}", held.parts * self.statistic_bytes
                pack_bytes = of.lines.width * scalar_bytes if held.kind == "columns" else PACK_BYTES
                step = self.launch(
                    "softmax/register_resident.cu",
                    name,
                    held.threads,
                    held.grid,
                    held.team,
                    prefetching_blocks(self.moved) if held.kind == "columns" else 0,
                    shared_bytes,
                    of=of,
                    definitions={"PACK_BYTES": pack_bytes} if pack_bytes < PACK_BYTES else {},
                )
                return Plan(self.operation, [step])
        return None

    def single_elements(self) -> Plan | None:
        """Lines and columns that are no packs, and so short that threads have all of them."""
        walk, length, threads = self.walk, self.length, staged.LANES_THREADS
        if walk.along.outer_rank:
            return None
        long = length >= LEAST_REGISTER_LINE and (self.scalar_bytes >= LEAST_REGISTER_BYTES or not walk.dense)
        if not walk.columns and not (walk.wide and walk.aligned) and long and length <= WARP * MOST_ELEMENTS:
            problem = Problem(self.lines, length, False, self.scalar_bytes, self.inputs)
            lanes = staged.lanes_of(problem, self.device, MOST_ELEMENTS)
            grid, each = ceiling(self.lines * lanes, threads), ceiling(length, lanes)
            return Plan(
                self.operation, [self.launch("softmax/staged.cu", "narrow_registers", threads, grid, lanes, each, 0)]
            )
        if walk.columns and not walk.wide and length <= SHORT_LINE:
            step = self.launch(
                "softmax/staged.cu", "narrow_short_columns", threads, ceiling(self.lines, threads), 1, length, 0
            )
            return Plan(self.operation, [step])
        return None

    def in_tiles(self) -> Plan | None:
        """Short lines that follow each other, whatever their length."""
        lines, length, inputs, scalar_bytes = self.lines, self.length, self.inputs, self.scalar_bytes
        if not self.walk.dense or self.walk.aligned or length > staged.SHORT * WARP:
            return None
        if length <= SHORT_LINE and scalar_bytes > 1:
            name, lanes, of_tile = "short_tile", 1, staged.short_tile(lines, length, inputs, scalar_bytes, self.device)
        elif length >= staged.LEAST_PAIR_LINE and scalar_bytes == 2 and self.operation.compute_type == FLOAT:
            name, (lanes, of_tile) = "pair_tile", staged.pair_tile(length, inputs)
        else:
            name, (lanes, of_tile) = "tile", staged.tile_of(lines, length, inputs, scalar_bytes, self.device)
        tile_bytes = ceiling(of_tile * length * scalar_bytes, PACK_BYTES) * PACK_BYTES
        threads = of_tile * lanes if name == "pair_tile" else staged.TILE_THREADS
        step = self.launch(
            "softmax/staged.cu", name, threads, ceiling(lines, of_tile), lanes, of_tile, tile_bytes * inputs
        )
        return Plan(self.operation, [step])

    def by_blocks(self) -> Plan | None:
        """Lines that the registers of a block, or of a cluster, hold, all at once."""
        return self.held_by(staged.block_team)

    def by_clusters(self) -> Plan | None:
        """More of them, one after the other."""
        return self.held_by(staged.many_team) if has_clusters(self.device) else None

    def held_by(self, team_of: Callable[[Problem, Any, int], staged.Team | None]) -> Plan | None:
        if not self.whole_lines:
            return None
        problem = Problem(self.lines, self.length // self.width, True, PACK_BYTES, self.inputs)
        team = team_of(problem, self.device, self.width * SCALAR_BYTES[self.operation.compute_type])
        if team is None:
            return None
        step = self.launch(
            "softmax/staged.cu",
            f"wide_{team.kind}",
            team.threads,
            team.grid,
            1,
            team.groups,
            team.parts * self.statistic_bytes,
            definitions=_clusters_of(team.cluster) | self.passing,
        )
        return self.aligned_plan(step)

    def by_streams(self) -> Plan | None:
        """Long lines and columns, by all multiprocessors together."""
        if not persistent.is_streamed(self.walk, self.problem, self.scalar_bytes, self.device, self.whole_lines):
            return None
        return self.whole_stream() or self.whole_columns() or self.held_columns() or self.stream()

    def whole_stream(self) -> Plan | None:
        """Of lines of whole packs."""
        if not self.whole_lines or self.walk.lines.outer_rank:
            return None
        stays = self.moved <= persistent.STAYING_BYTES
        for lead, queue in persistent.leads_of(self.inputs, stays, self.specs[-1].scalar_type == FLOAT):
            whole = persistent.whole_stream_of(self.problem, self.device, self.statistic_bytes, lead, queue)
            if whole is None:
                continue
            passing = 0 if stays else 1 | persistent.staying(self.moved // (self.inputs + 1)) << 1
            step = self.launch(
                "softmax/persistent_tma.cu",
                "whole_stream",
                persistent.WHOLE_WORKERS + (persistent.STREAM_HELPERS + (queue == 0)) * WARP,
                self.device.multiprocessors,
                whole.blocks,
                whole.tiles,
                whole.shared_bytes,
                (1, whole.part, whole.steps, whole.ahead, whole.delay, persistent.WHOLE_WORKERS, passing),
                definitions=self.passing | ({"QUEUE_TILES": queue} if queue else {}),
            )
            return self.aligned_plan(step)
        return None

    def whole_columns(self) -> Plan | None:
        """Of columns whose rows follow each other. Gradients of halves take less time where multiprocessors hold them."""
        if not self.aligned or not self.walk.columns or not persistent.has_copy_engine(self.device):
            return None
        is_float = self.specs[-1].scalar_type == FLOAT
        if not is_float and (self.scalar_bytes != 2 or self.inputs == 2):
            return None
        queue = persistent.COLUMN_QUEUE[self.inputs - 1] if is_float else 0
        whole = persistent.whole_columns_of(
            self.problem, self.walk, self.device, self.statistic_bytes, self.width, queue
        )
        passing = PASSED_BYTES[0] <= self.moved
        if whole is None or not (passing or self.lines <= persistent.FEW_BUNDLES * whole.across):
            return None
        step = self.launch(
            "softmax/persistent_tma_strided.cu",
            "whole_columns",
            persistent.COLUMN_WORKERS + persistent.COLUMN_HELPERS[self.inputs - 1] * WARP,
            self.device.multiprocessors,
            0,
            whole.tiles,
            whole.shared_bytes,
            (whole.across, whole.part, whole.steps, whole.ahead, whole.delay, persistent.COLUMN_WORKERS, passing),
            definitions={"ALGORITHM": int(self.operation.algorithm)},
        )
        return self.aligned_plan(step)

    def held_columns(self) -> Plan | None:
        """Of columns that all multiprocessors hold."""
        if not self.aligned or not self.walk.columns:
            return None
        held = persistent.held_columns_of(self.problem, self.walk, self.device, self.statistic_bytes, self.width)
        if held is None:
            return None
        step = self.launch(
            "softmax/persistent_resident_strided.cu",
            "held_columns",
            persistent.HELD_THREADS,
            self.device.multiprocessors,
            held.blocks,
            held.kept,
            held.shared_bytes,
            (held.across, held.part, *NO_STREAM[2:]),
            definitions=self.passing | self.known_algorithm,
        )
        return self.aligned_plan(step)

    def stream(self) -> Plan | None:
        """Of any lines and columns."""
        columns = self.walk.columns
        line_bytes = persistent.LINE_BYTES[2 if columns else self.walk.aligned]
        queues = not columns and self.specs[-1].scalar_type == FLOAT
        width = self.width if columns else 0
        way = persistent.stream_of(self.problem, self.device, self.statistic_bytes, line_bytes, width, queues)
        if way is None:
            return None
        workers = way.warps * WARP
        step = self.launch(
            "softmax/persistent.cu",
            f"{'columns' if columns else 'lines'}_stream",
            workers + persistent.STREAM_HELPERS * WARP,
            self.device.multiprocessors,
            way.blocks,
            way.tiles,
            way.shared_bytes,
            (way.across, way.part, way.steps, way.ahead, way.delay, workers, 0),
            definitions={"QUEUE_TILES": way.queue} if way.queue else {},
        )
        return Plan(self.operation, [step])

    def few_lines(self) -> Plan | None:
        """In the registers of clusters."""
        width = self.width if self.whole_lines else 1
        if self.walk.columns or self.walk.along.packs * width < small.LEAST_LINE:
            return None
        lines = small.lines_at(*others_of(self.operation, self.specs))
        if lines is None or (width == 1 and self.walk.wide):
            return None
        whole = [self.length // width], [[width]] * len(self.specs)
        dims, strides = whole if width > 1 else along_of(self.operation, self.specs)
        for way in small.lines_of(dims, strides, self.lines, self.device, small.EACH[width], width * self.inputs):
            step = self.small_launch(
                "softmax/small_rows.cu",
                f"lines_of_{way.each}",
                way.threads,
                self.lines * way.blocks,
                1,
                lines,
                way.along,
                way.parts * self.statistic_bytes + small.EXCHANGE_BYTES,
                {"PACK_BYTES": width * self.scalar_bytes} | _clusters_of(way.blocks),
            )
            usual = way.blocks <= CLUSTER_SIZES[0]
            if usual or step.function.holds_clusters(step.grid, step.block, step.shared_bytes):
                return self.aligned_plan(step) if width > 1 else Plan(self.operation, [step])
        return None

    def small_columns(self) -> Plan | None:
        """Element by element, in the registers of blocks."""
        walk = walk_of(self.operation, self.specs, 1)
        held = small.columns_of(walk, self.device)
        lines = small.lines_at(*others_of(self.operation, self.specs))
        if held is None or lines is None:
            return None
        extent, steps = walk.along.row, [[step] for step in walk.along.row_stride]
        step = self.small_launch(
            "softmax/small_strided.cu",
            f"{'long_' * (held.threads > held.across * small.LEAST_GROUPS)}columns_of_{held.each}",
            held.threads,
            held.grid,
            held.across,
            lines,
            small.places_of([extent], steps, 0, ceiling(extent, held.threads // held.across)),
            held.threads * self.statistic_bytes,
            {"PACK_BYTES": self.scalar_bytes},
        )
        return Plan(self.operation, [step])

    def small_launch(
        self,
        source: str,
        name: str,
        threads: int,
        grid: int,
        across: int,
        lines: Any,
        along: Any,
        shared_bytes: int,
        definitions: dict[str, int],
    ) -> Launch:
        """Of a kernel of softmax_small.cuh. lines, along: ``Places``."""
        operation = self.operation
        chosen = {name: str(value) for name, value in definitions.items()}
        types = type_definitions(self.specs[-1].scalar_type, operation, **chosen)
        arguments = structure(
            *pointers(len(operation.operands)),
            *factors(operation, alpha=operation.alpha, beta=operation.beta),
            ("algorithm", c_int(operation.algorithm)),
            ("across", c_uint(across)),
            ("lines", lines),
            ("along", along),
        )
        function = self.device.function(source, f"{self.kernel}_{name}", types)
        return Launch(function, arguments, operation.operands, (grid, 1, 1), (threads, 1, 1), shared_bytes)

    def by_teams(self) -> Plan:
        """Whatever is left: lanes, blocks or clusters share a line."""
        problem, walk, device = self.problem, self.walk, self.device
        most = CLUSTER_SIZES[0] * device.shared_bytes_per_block  # of a line, by a cluster
        line_bytes = problem.length * problem.pack_bytes * self.inputs
        large = walk.columns or line_bytes > most or self.lines * CLUSTER_SIZES[0] < device.multiprocessors
        for blocks in reversed(CLUSTER_SIZES[: 1 + large]) if has_clusters(device) else (1,):
            if walk.columns:
                team = staged.column_team(problem, device, self.width, blocks)
            else:
                team = staged.line_team(problem, device, blocks)
            group_bytes = staged.HELD[walk.wide] * self.inputs * team.threads * problem.pack_bytes
            parts_bytes = team.parts * self.statistic_bytes
            kept = min(team.groups, (device.shared_bytes_per_block - parts_bytes) // group_bytes)
            name = f"{'wide' if walk.wide else 'narrow'}_{team.kind}"
            usual, passes = team.cluster <= CLUSTER_SIZES[0], name == "wide_lines_cluster" and self.inputs == 1
            step = self.launch(
                "softmax/staged.cu",
                name,
                team.threads,
                team.grid,
                team.size,
                kept,
                kept * group_bytes + parts_bytes,
                definitions=_clusters_of(team.cluster) | (self.passing if passes else {}),
            )
            if usual or step.function.holds_clusters(step.grid, step.block, step.shared_bytes):
                break
        return Plan(self.operation, [step])


def _clusters_of(blocks: int) -> dict[str, int]:
    """What kernels of clusters are compiled for."""
    return {"CLUSTER_BLOCKS": blocks} if blocks not in (1, CLUSTER_SIZES[0]) else {}


@implements(SoftmaxForward)
def softmax_forward(operation: SoftmaxForward, device: Any) -> Plan:
    """One read and one write."""
    return Choice(operation, device, "softmax_forward").plan()


@implements(SoftmaxBackward)
def softmax_backward(operation: SoftmaxBackward, device: Any) -> Plan:
    """One read of y and dy and one write."""
    return Choice(operation, device, "softmax_backward").plan()
