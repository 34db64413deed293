"""Softmax on the device (kernels/softmax.cu)."""

from __future__ import annotations

from ctypes import c_double, c_int, c_uint
from dataclasses import dataclass
from typing import Any

from dualdnn.api.enumerations import cudnnSoftmaxMode_t
from dualdnn.api.operations import SoftmaxBackward, SoftmaxForward
from dualdnn.api.operations.specs import SCALAR_BYTES, TensorSpec

from .geometry import geometry
from .plans import Launch, Plan, implements, pointers, structure, type_definitions

# As in kernels/softmax.cu
HELD = 4  # packs of each input that a thread holds in registers
CLUSTER = 8  # blocks of a cluster
PACK_BYTES = 16
WORD_BYTES = 4  # a pack takes at least so much room in shared memory

WARP = 32
LANES_THREADS = 256
BLOCK_THREADS = (128, 256)  # fewest and most
CLUSTER_THREADS = {1: (128, 1024), 2: (128, 512)}  # by the number of inputs
COLUMNS_THREADS = (256, 512)
BLOCK_BYTES = (
    64 * 1024
)  # of a line that one block takes: several blocks fit on a multiprocessor, so reads overlap writes


@dataclass(frozen=True)
class Team:
    """How threads share the lines. size: lanes of a line (lanes), packs of lines of a block (columns), else 1."""

    kind: str
    threads: int
    grid: int
    size: int
    rounds: int  # of HELD packs a thread takes


def _power_of_two(at_least: int) -> int:
    return 1 << (at_least - 1).bit_length()


def _threads(packs: int, limits: tuple[int, int]) -> int:
    """So many that each holds its packs in registers, within limits."""
    return min(max(_power_of_two(-(-packs // HELD)), limits[0]), limits[1])


def _line_team(device: Any, lines: int, packs: int, inputs: int) -> Team:
    """Single lines: a few lanes, a block or a cluster each."""
    if packs <= WARP * HELD:
        # At least 128 neighbouring bytes, where a line has them.
        size = min(max(_power_of_two(-(-packs // HELD)), min(_power_of_two(packs), 8)), WARP)
        return Team("lanes", LANES_THREADS, -(-lines * size // LANES_THREADS), size, -(-packs // (size * HELD)))
    blocks = _cluster(device)
    idle = lines < 2 * device.multiprocessors and packs >= blocks * BLOCK_THREADS[0] * HELD
    if packs * PACK_BYTES * inputs > BLOCK_BYTES or (idle and blocks > 1):
        threads = _threads(-(-packs // blocks), CLUSTER_THREADS[inputs])
        return Team("cluster", threads, lines * blocks, 1, -(-packs // (threads * blocks * HELD)))
    threads = _threads(packs, BLOCK_THREADS)
    return Team("block", threads, lines, 1, -(-packs // (threads * HELD)))


def _column_team(lines: int, length: int) -> Team:
    """Packs of lines: the threads of a block stand side by side over neighbouring packs and share their length."""
    wanted = _power_of_two(-(-length // HELD))
    threads = COLUMNS_THREADS[0] if length <= 4 * WARP * HELD else COLUMNS_THREADS[1]
    shares = min(wanted, threads // 8)
    side_by_side = min(threads // shares, _power_of_two(lines))
    shares = min(wanted, COLUMNS_THREADS[1] // side_by_side)
    side_by_side = max(side_by_side, WARP // shares)
    return Team(
        "columns", side_by_side * shares, -(-lines // side_by_side), side_by_side, -(-length // (shares * HELD))
    )


def _cluster(device: Any) -> int:
    """Blocks of a cluster; GPUs before compute capability 9.0 and the emulated device have none."""
    generation = device.architecture.removeprefix("sm_")
    return CLUSTER if generation.isdigit() and int(generation) >= 90 else 1


def _plan(operation: SoftmaxForward | SoftmaxBackward, device: Any, kernel: str, statistic_words: int) -> Plan:
    operands = operation.operands
    specs: list[TensorSpec] = [operation.tensor(name) for name in operands]
    inputs, output = len(specs) - 1, specs[-1]
    width = 1 if output.scalar_bytes == 1 else PACK_BYTES // output.scalar_bytes
    instance = operation.mode == cudnnSoftmaxMode_t.CUDNN_SOFTMAX_MODE_INSTANCE
    along = range(1, output.rank) if instance else (1,)
    extended = [d for d in range(output.rank) if output.dims[d] > 1]
    innermost = min(extended, key=lambda d: output.strides[d], default=1)
    columns = innermost not in along

    def layout(dimensions: Any, width: int) -> Any:
        dims = [output.dims[d] for d in dimensions]
        return geometry(dims, [[spec.strides[d] for d in dimensions] for spec in specs], width)

    across_lines = layout([d for d in range(output.rank) if d not in along], width if columns else 1)
    along_line = layout(along, 1 if columns else width)
    if columns:
        team = _column_team(across_lines.packs, along_line.packs)
    else:
        # A line that starts anywhere may need one pack more.
        packs = along_line.packs + (along_line.row % width != 0)
        team = _line_team(device, across_lines.packs, packs, inputs)

    function = device.function("softmax.cu", f"{kernel}_{team.kind}", type_definitions(output.scalar_type, operation))
    compute_bytes = SCALAR_BYTES[operation.compute_type]
    groups = team.threads // max(team.size, WARP) if columns else team.threads // WARP
    partial = (
        groups * (team.size * width if columns else 1) * statistic_words * compute_bytes if team.kind != "lanes" else 0
    )
    round_bytes = HELD * inputs * team.threads * max(width * output.scalar_bytes, WORD_BYTES)
    available = device.shared_bytes_per_block - function.static_shared_bytes - partial
    cached = min(team.rounds - 1, available // round_bytes) if team.kind != "lanes" else 0
    arguments = structure(
        *pointers(len(operands)),
        ("lines", across_lines),
        ("along", along_line),
        ("alpha", c_double(operation.alpha)),
        ("beta", c_double(operation.beta)),
        ("algorithm", c_int(operation.algorithm)),
        ("team", c_uint(team.size)),
        ("cached", c_uint(cached)),
    )
    shared_bytes = cached * round_bytes + partial
    return Plan(
        operation, [Launch(function, arguments, operands, (team.grid, 1, 1), (team.threads, 1, 1), shared_bytes)]
    )


@implements(SoftmaxForward)
def softmax_forward(operation: SoftmaxForward, device: Any) -> Plan:
    """One read and one write; the statistic of a line is its maximum and a sum."""
    return _plan(operation, device, "softmax_forward", 2)


@implements(SoftmaxBackward)
def softmax_backward(operation: SoftmaxBackward, device: Any) -> Plan:
    """One read of y and dy and one write; the statistic of a line is a sum."""
    return _plan(operation, device, "softmax_backward", 1)
