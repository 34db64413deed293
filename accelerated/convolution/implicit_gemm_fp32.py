"""Matrix products of convolutions in float (convolution/implicit_gemm_fp32.cu)."""

from __future__ import annotations

from ctypes import c_int
from typing import Any, NamedTuple

from dualdnn.api.operations import TensorSpec, TransformTensor
from dualdnn.api.operations.specs import FLOAT

from ..plans import Launch, pointers, structure
from ..transform.plan import copy, launch
from .problem import PLAIN, ConvolutionStruct, EpilogueStruct, positions_in_packs, product_fields

SOURCE = "convolution/implicit_gemm_fp32.cu"
DEFINITIONS = (("COMPUTE", "float"), ("ELEMENT", "float"))
LEAST_ARCHITECTURE = 80  # whose copies do not pass through registers
MOST_TAPS = 31  # of all axes together: bits of a mask
LEAST_PRODUCTS, LEAST_POSITIONS = 2**31, 2**12  # for which turning filters first repays
FEW_FILTERS = 16  # for which these tiles are too large
PACK = 4  # floats
FLOAT_BYTES = 4
STAGES, DEPTH, TABLE_TILES = 3, 16, 8  # tiles in flight, terms of one, tiles whose terms are found at once
PADDING = 4  # columns of a tile
TAP_BYTES = 8


class Tile(NamedTuple):
    """What a block computes. resident: blocks that share a multiprocessor; pace: products per clock against the fastest
    tile's."""

    filters: int
    positions: int
    resident: int
    pace: float
    sums: int = 64  # of a thread

    @property
    def threads(self) -> int:
        return self.filters * self.positions // self.sums

    @property
    def shared_bytes(self) -> int:
        """Stages, and the table of terms."""
        columns = self.filters + self.positions + 2 * PADDING
        return STAGES * DEPTH * columns * FLOAT_BYTES + 2 * TABLE_TILES * DEPTH * TAP_BYTES


# For products whose neighbours in x are terms, and positions
ROWS_TILES = (
    Tile(128, 128, 2, 1.0),
    Tile(128, 96, 2, 0.93, 96),
    Tile(128, 64, 4, 0.985),
    Tile(64, 128, 4, 0.96),
    Tile(64, 64, 8, 0.89),
)
PLANES_TILES = (Tile(128, 128, 2, 0.98), Tile(128, 64, 4, 0.99), Tile(64, 128, 4, 0.97), Tile(64, 64, 8, 0.93))
UNEVEN = 0.85  # blocks more than its share that some multiprocessor gets where all blocks are resident at once
ALONE = 0.35  # how much longer a block takes that shares its multiprocessor with none


def serves(value: ConvolutionStruct, device: Any) -> bool:
    """Whether the kernels take this product of floats."""
    if device.kind == "gpu" and int(device.architecture.removeprefix("sm_")) < LEAST_ARCHITECTURE:
        return False
    return value.filters > FEW_FILTERS and sum(taps.divisor for taps in value.filter) <= MOST_TAPS


def _tile(value: ConvolutionStruct, groups: int, tiles: tuple[Tile, ...], multiprocessors: int) -> Tile:
    """The tile that occupies the device for the shortest time."""

    def duration(tile: Tile) -> float:
        count = -(-value.filters // tile.filters) * -(-value.positions // tile.positions) * groups
        share = -(-count // multiprocessors)
        last = share % tile.resident  # blocks that share a multiprocessor in the end
        late = UNEVEN if share < tile.resident else ALONE * last * (1 - last / tile.resident)
        return (share + late) * tile.filters * tile.positions / tile.pace

    return min(tiles, key=duration)


def float_launch(
    device: Any,
    value: ConvolutionStruct,
    groups: int,
    operands: tuple[str, ...],
    offsets: tuple[int, int, int] = (0, 0, 0),
    finish: EpilogueStruct = PLAIN,
    *,
    filters_last: bool = False,
) -> Launch:
    """The product of every group. operands: x, w, y, prior, bias; offsets: bytes to the beginning of x, w and y;
    filters_last: w is [group][term][filter], whole packs of filters, instead of
    [group][filter][term]."""
    kind, tiles = ("rows", ROWS_TILES) if value.x_lane == 1 else ("planes", PLANES_TILES)
    tile = _tile(value, groups, tiles, device.multiprocessors)
    filter_tiles, position_tiles = -(-value.filters // tile.filters), -(-value.positions // tile.positions)
    arguments = structure(
        *pointers(5),
        *product_fields(value, finish, offsets, position_tiles, filter_tiles),
        ("position_packs", c_int(positions_in_packs(value, groups, PACK))),
    )
    kind = f"{kind}_packs" if filters_last else kind
    function = device.function(SOURCE, f"{kind}_{tile.filters}x{tile.positions}", DEFINITIONS)
    grid = (filter_tiles * position_tiles * groups, 1, 1)
    return Launch(function, arguments, operands, grid, (tile.threads, 1, 1), tile.shared_bytes)


def turning_repays(value: ConvolutionStruct, groups: int) -> bool:
    """Whether filters are better laid term by term first: products copy whole packs of them then."""
    large = value.positions * value.filters * value.terms * groups >= LEAST_PRODUCTS
    return value.filters % PACK == 0 and value.positions >= LEAST_POSITIONS and large


def turn_filters(device: Any, value: ConvolutionStruct, groups: int) -> Launch:
    """Writes filters to the beginning of the workspace, term by term."""
    dims, rest = (groups, value.filters, value.terms, 1), value.filters * value.terms
    rows = TensorSpec(FLOAT, dims, (rest, value.terms, 1, 1))
    turn = TransformTensor(1.0, 0.0, rows, TensorSpec(FLOAT, dims, (rest, 1, value.filters, 1)))
    made = launch(copy(turn.x, turn.y), turn, ("x", "y"), device)
    made.operands = ("w", "workSpace")
    return made
