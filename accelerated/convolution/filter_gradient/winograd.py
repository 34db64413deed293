"""Plan Winograd gradients with respect to the filter (convolution/filter_gradient/winograd.cu)."""

from __future__ import annotations

from ctypes import c_int, c_longlong
from functools import cached_property
from math import prod

from dualdnn.api.enumerations import cudnnConvolutionBwdFilterAlgo_t as Algo
from dualdnn.api.enumerations import cudnnConvolutionFwdAlgo_t as ForwardAlgo
from dualdnn.api.operations import ConvolutionForward

from ...plans import Launch, Plan, factors, fields_of, pointers, structure, type_definitions, with_alignment
from ...primitives.geometry import THREADS, FastDivmod, blocks
from ...solver import Solver
from ..composed import At, ComposedLaunch, ComposedPlan, within
from ..implicit_gemm.product import Product
from ..implicit_gemm.products import product_launch
from ..problem import EpilogueStruct, Matrices, Rates, mark_vectors, matrix_product, operation_product, slice_bytes
from ..transforms.winograd import COMPUTE_BYTES, COMPUTE_DEFINITIONS, SLICE_BYTES, TILE, aligned
from .forward_convolution import FilterGradientProblem

SOURCE = "convolution/filter_gradient/winograd.cu"
VALUES = TILE * TILE


class WinogradFilterGradient(Solver[FilterGradientProblem]):
    """Serve with transforms of x and dy, a product for each of the 36 values of a tile, and the inverse transform.

    Large images are transformed slice by slice, and the products add the slices.
    """

    name = "convolution.winograd_filter_gradient"

    def serves(self, problem: FilterGradientProblem) -> bool:
        algo = Algo.CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD_NONFUSED
        return problem.operation.algo == algo and problem.in_one_launch

    def workspace_bytes(self, problem: FilterGradientProblem) -> int:
        return with_alignment(_Tiles(problem).used)

    def estimated_seconds(self, problem: FilterGradientProblem) -> float:
        o, tiles = problem.operation, _Tiles(problem)
        count = problem.images * tiles.of_image
        moved = 2 * COMPUTE_BYTES * VALUES * count * (o.x.dims[1] + o.dy.dims[1])
        products = 2.0 * VALUES * count * prod(o.dw.dims[:2]) / Rates.FLOATS
        return 4 * Rates.LAUNCH + moved / Rates.BANDWIDTH + products

    def plan(self, problem: FilterGradientProblem) -> Plan:
        return ComposedPlan(problem.operation, _Tiles(problem).launches(), self.name)


class _Tiles:
    """Describe the tiles of one gradient, and their regions of the workspace."""

    def __init__(self, problem: FilterGradientProblem) -> None:
        self.problem, self.operation, self.groups = problem, problem.operation, problem.groups
        o = self.operation
        algo = ForwardAlgo.CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED
        self.forward = ConvolutionForward(o.convolution, algo, 0, o.alpha, o.beta, o.x, o.dw, o.dy)
        self.channels, self.filters = o.dw.dims[1], o.dw.dims[0] // self.groups
        outputs = TILE + 1 - o.dw.dims[2]
        self.rows, self.columns = (-(-extent // outputs) for extent in o.dy.dims[2:])
        self.of_image = self.rows * self.columns
        one = VALUES * COMPUTE_BYTES * self.of_image * (o.x.dims[1] + o.dy.dims[1])
        self.images = min(problem.images, max(1, slice_bytes(SLICE_BYTES, problem.device) // one))

    def _bytes(self, channels: int, tiles: int) -> int:
        return aligned(VALUES * COMPUTE_BYTES * channels * tiles)

    @cached_property
    def incoming_at(self) -> int:
        return self._bytes(self.operation.x.dims[1], self.images * self.of_image)

    @cached_property
    def products_at(self) -> int:
        return self.incoming_at + self._bytes(self.operation.dy.dims[1], self.images * self.of_image)

    @cached_property
    def used(self) -> int:
        return self.products_at + self._bytes(self.operation.dw.dims[0], self.channels)

    def launches(self) -> list[ComposedLaunch]:
        o = self.operation
        launches: list[Launch] = []
        for first in range(0, self.problem.images, self.images):
            images = min(self.images, self.problem.images - first)
            tiles = images * self.of_image
            launches.append(self._launch("images", tiles * o.x.dims[1], first, images))
            launches.append(self._launch("incoming", tiles * o.dy.dims[1], first, images))
            launches.append(product_launch(self._product(tiles, first > 0)))
        launches.append(self._launch("results", prod(o.dw.dims[:2])))
        where = {name: At(name) for name in ("x", "dy", "dw", "workSpace")}
        return within(launches, {**where, "products": At("workSpace", self.products_at)})

    def _launch(self, name: str, threads: int, first: int = 0, images: int = 1) -> Launch:
        o = self.operation
        arguments = structure(
            *pointers(4),
            *fields_of(c_longlong, incoming_at=self.incoming_at, products_at=self.products_at),
            ("convolution", operation_product(self.forward)),
            *factors(o, alpha=o.alpha, beta=o.beta),
            *fields_of(FastDivmod.of, tile_rows=self.rows, tile_columns=self.columns, tiles=images * self.of_image),
            *fields_of(FastDivmod.of, channels=self.channels, filters=self.filters),
            *fields_of(c_int, first_image=first, groups=self.groups, channel_step=o.dw.tensor.strides[1]),
        )
        entry = f"convolution_winograd_filter_gradient_{name}"
        function = self.problem.device.function(SOURCE, entry, type_definitions(o.x.scalar_type, o))
        return Launch(function, arguments, ("x", "dy", "dw", "workSpace"), blocks(threads), (THREADS, 1, 1))

    def _product(self, tiles: int, added: bool) -> Product:
        """Return the products over all tiles, of channels by filters for each value of a tile and group.

        ``added`` adds them to the slices before, which a kernel reads from the address of its prior values, without an
        offset.
        """
        batch, channels, filters = VALUES * self.groups, self.channels, self.filters
        x, y = Matrices(tiles, 1, channels * tiles), Matrices(1, channels, channels * filters)
        value = mark_vectors(matrix_product(channels, filters, tiles, x, y), batch, COMPUTE_BYTES)
        return Product(
            self.problem.device, COMPUTE_DEFINITIONS, value, batch,
            ("workSpace", "workSpace", "workSpace", "products", "workSpace"),
            (0, self.incoming_at, self.products_at),
            EpilogueStruct(1.0, float(added)),
        )  # fmt: skip
