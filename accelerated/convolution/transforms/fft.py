"""Plan convolutions through the Fourier transform on the device (convolution/transforms/fft.cu)."""

from __future__ import annotations

from ctypes import c_int, c_longlong
from dataclasses import dataclass
from functools import cached_property
from math import prod

from dualdnn.api.enumerations import cudnnConvolutionFwdAlgo_t as Algo
from dualdnn.api.operations.specs import DOUBLE

from ...plans import Launch, arrays_of, fields_of, pointers, structure
from ...primitives.geometry import THREADS, FastDivmod
from ..forward import ConvolutionProblem, ConvolutionSolver
from ..implicit_gemm.product import Product
from ..implicit_gemm.products import product_launch
from ..problem import (
    AXES,
    REFERENCE_MULTIPROCESSORS,
    Convolution,
    Matrices,
    Rates,
    epilogue,
    mark_vectors,
    matrix_product,
    operand_names,
    operation_product,
    rounded_up,
    slice_bytes,
    spatial,
)

SOURCE = "convolution/transforms/fft.cu"
ALIGNMENT = 256  # bytes, for each part of the workspace
SLICE_BYTES = 2**28  # bytes of the spectra of images and results in the workspace at a time
MIN_TILE = 32  # extent of FFT_TILING, in each transformed dimension
MIN_TILE_3D = 16  # extent in three dimensions, for filters up to SMALL_FILTER_3D
SMALL_FILTER_3D = 5  # extent of a filter in three dimensions
FILTERS = 16  # filters of the smallest tile of products
LAUNCHES = 8  # launches of a slice of images
DEPTH, ROWS = range(2)  # axes of a transform


def _power_of_two(size: int) -> int:
    """Return the smallest power of two that is at least ``size``."""
    return 1 << (size - 1).bit_length()


@dataclass(frozen=True)
class Spectra:
    """Describe the tiles and the workspace of one operation. ``step`` counts the results of a tile, before striding."""

    operation: Convolution
    max_bytes: int  # bytes of the spectra of images and results at a time

    @cached_property
    def taps(self) -> tuple[int, ...]:
        return spatial(self.operation.w.dims[2:], 1)

    @cached_property
    def results(self) -> tuple[int, ...]:
        """Return the results of an image with strides of 1, as far as they are needed."""
        strides = spatial(self.operation.convolution.stride, 1)
        outputs = spatial(self.operation.y.dims[2:], 1)
        return tuple((output - 1) * stride + 1 for output, stride in zip(outputs, strides, strict=True))

    @cached_property
    def size(self) -> tuple[int, ...]:
        """Return the sizes of a tile. A dimension where the filter has one element is not transformed. Columns are
        transformed if no other dimension is.
        """
        untiled = [_power_of_two(result + tap - 1) for result, tap in zip(self.results, self.taps, strict=True)]
        if self.operation.algo == Algo.CUDNN_CONVOLUTION_FWD_ALGO_FFT:
            return tuple(untiled)
        smallest = MIN_TILE
        if self.operation.convolution.rank == AXES and max(self.taps) <= SMALL_FILTER_3D:
            smallest = MIN_TILE_3D
        sizes = [1 if tap == 1 else max(smallest, _power_of_two(2 * tap - 2)) for tap in self.taps]
        if max(sizes) == 1:
            sizes[-1] = smallest
        return tuple(min(sides) for sides in zip(sizes, untiled, strict=True))

    @cached_property
    def step(self) -> tuple[int, ...]:
        return tuple(size - tap + 1 for size, tap in zip(self.size, self.taps, strict=True))

    @cached_property
    def tiles(self) -> tuple[int, ...]:
        """Return the tiles of one image, by dimension."""
        return tuple(-(-result // step) for result, step in zip(self.results, self.step, strict=True))

    @cached_property
    def frequencies(self) -> int:
        return self.size[0] * self.size[1] * (self.size[2] // 2 + 1)

    @cached_property
    def compute_bytes(self) -> int:
        return 8 if self.operation.compute_type == DOUBLE else 4

    def spectrum_bytes(self, columns: int) -> int:
        return -(-columns * self.frequencies * 2 * self.compute_bytes // ALIGNMENT) * ALIGNMENT

    @cached_property
    def images(self) -> int:
        """Return the number of images that are transformed at a time."""
        o = self.operation
        one = self.spectrum_bytes(prod(self.tiles) * (o.x.dims[1] + o.y.dims[1]))
        return min(o.x.dims[0], max(1, self.max_bytes // one))

    @cached_property
    def images_at(self) -> int:
        """Return the offset of the images. The spectra of the filters, twice their size, come first."""
        return 2 * self.spectrum_bytes(prod(self.operation.w.dims[:2]))

    @cached_property
    def results_at(self) -> int:
        return self.images_at + self.spectrum_bytes(self.images * prod(self.tiles) * self.operation.x.dims[1])

    @cached_property
    def nbytes(self) -> int:
        """Return the bytes of the workspace. Filters pass through the memory of images and results before those are
        computed.
        """
        o = self.operation
        results = self.spectrum_bytes(self.images * prod(self.tiles) * o.y.dims[1])
        return max(self.results_at + results, self.images_at + self.spectrum_bytes(prod(o.w.dims[:2])))


def spectra_of(problem: ConvolutionProblem) -> Spectra:
    return Spectra(problem.operation, slice_bytes(SLICE_BYTES, problem.device))


class _Kernels:
    """Launch the kernels of fft.cu for one operation."""

    def __init__(self, problem: ConvolutionProblem) -> None:
        operation = problem.operation
        self.operation, self.device, self.spectra = operation, problem.device, spectra_of(problem)
        self.definitions = problem.definitions
        self.names = ("x", "w", *operand_names(operation), "workSpace")
        self.lines = 64 // self.spectra.compute_bytes
        self.groups = operation.convolution.group_count

    def launch(
        self, name: str, blocks: int, spectrum_at: int, columns: int, channels: int, axis: int = 2,
        first_image: int = 0, images: int = 1, inverse: bool = False,
    ) -> Launch:  # fmt: skip
        """Return a kernel on a spectrum of ``columns`` columns that begins ``spectrum_at`` bytes into the workspace."""
        s = self.spectra
        integers, divisors = c_int * AXES, FastDivmod * AXES
        arguments = structure(
            *pointers(6),
            ("spectrum_at", c_longlong(spectrum_at)),
            ("convolution", operation_product(self.operation)),
            ("epilogue", epilogue(self.operation)),
            *arrays_of(integers, size=s.size, log_size=(size.bit_length() - 1 for size in s.size), step=s.step),
            ("stride", integers(*spatial(self.operation.convolution.stride, 1))),
            ("tiles", divisors(*(FastDivmod.of(count) for count in s.tiles))),
            *fields_of(FastDivmod.of, all_tiles=images * prod(s.tiles), channels=channels, columns=columns),
            *fields_of(c_int, first_image=first_image, inverse=inverse, axis=axis),
        )
        function = self.device.function(SOURCE, name, self.definitions)
        shared = 0 if name == "convolution_fft_expand" else self._shared_bytes(s.size[axis])
        return Launch(function, arguments, self.names, (blocks, 1, 1), (THREADS, 1, 1), shared)

    def _shared_bytes(self, size: int) -> int:
        """Return the bytes of two arrays of ``lines`` transforms, padded, and the factors."""
        return (2 * size * (self.lines + 1) + size // 2) * 2 * self.spectra.compute_bytes

    def _blocks(self, columns: int) -> int:
        return -(-columns // self.lines)

    def forward(
        self, name: str, spectrum_at: int, columns: int, channels: int, first: int = 0, images: int = 1
    ) -> list[Launch]:
        """Return the launches to the spectrum of images or filters: columns, then rows, then the depth."""
        depth, rows, _ = self.spectra.size
        blocks = depth * -(-rows // 2) * self._blocks(columns)
        first_pass = self.launch(name, blocks, spectrum_at, columns, channels, first_image=first, images=images)
        return [first_pass, *self._lines(spectrum_at, columns, inverse=False)]

    def _lines(self, spectrum_at: int, columns: int, inverse: bool) -> list[Launch]:
        depth, rows, width = self.spectra.size
        kept = width // 2 + 1
        passes = []
        if rows > 1:
            passes.append(
                self.launch(
                    "convolution_fft_lines",
                    depth * self._blocks(kept * columns),
                    spectrum_at,
                    columns,
                    1,
                    ROWS,
                    inverse=inverse,
                )
            )
        if depth > 1:
            passes.append(
                self.launch(
                    "convolution_fft_lines",
                    self._blocks(rows * kept * columns),
                    spectrum_at,
                    columns,
                    1,
                    DEPTH,
                    inverse=inverse,
                )
            )
        return passes

    def filters(self) -> list[Launch]:
        """Return the launches to the spectra of the filters, as matrices of real numbers."""
        s, filters, channels = self.spectra, *self.operation.w.dims[:2]
        columns = filters * channels
        expand = self.launch(
            "convolution_fft_expand", -(-columns // THREADS) * s.frequencies, s.images_at, columns, channels
        )
        return [*self.forward("convolution_fft_filters", s.images_at, columns, channels), expand]

    def images(self, first: int, images: int) -> list[Launch]:
        """Return the launches from images to results."""
        s, o, groups = self.spectra, self.operation, self.groups
        tiles = images * prod(s.tiles)
        channels, filters = o.w.dims[1], o.w.dims[0] // groups
        batch = s.frequencies * groups
        product = matrix_product(
            tiles, 2 * filters, 2 * channels,
            Matrices(2 * channels, 1, 2 * channels * tiles), Matrices(2 * filters, 1, 2 * filters * tiles),
        )  # fmt: skip
        kind = "double" if s.compute_bytes == 8 else "float"
        multiply = product_launch(
            Product(
                self.device, (("COMPUTE", kind), ("ELEMENT", kind)), mark_vectors(product, batch, s.compute_bytes),
                batch,
                ("workSpace",) * 5, (s.images_at, 0, s.results_at),
            )
        )  # fmt: skip
        columns = groups * tiles * filters
        blocks = s.step[0] * -(-s.step[1] // 2) * self._blocks(columns)
        return [
            *self.forward("convolution_fft_images", s.images_at, groups * tiles * channels, channels, first, images),
            multiply,
            *self._lines(s.results_at, columns, inverse=True),
            self.launch(
                "convolution_fft_results",
                blocks,
                s.results_at,
                columns,
                filters,
                first_image=first,
                images=images,
                inverse=True,
            ),
        ]


class Fft(ConvolutionSolver):
    """Serve with spectra of filters and of images or tiles, their products, and the inverse transform.

    Images are transformed slice by slice where the spectra are large.
    """

    def __init__(self, name: str, algo: Algo) -> None:
        self.name, self.algorithms = name, (algo,)

    def used_bytes(self, problem: ConvolutionProblem) -> int:
        return spectra_of(problem).nbytes

    def estimated_seconds(self, problem: ConvolutionProblem) -> float:
        o, spectra = problem.operation, spectra_of(problem)
        tiles = o.x.dims[0] * prod(spectra.tiles)
        filters, channels = o.w.dims[:2]
        columns = tiles * (o.x.dims[1] + o.y.dims[1]) + 3 * filters * channels
        passes = 2 * sum(size > 1 for size in spectra.size)
        spectrum_bytes = 2.0 * spectra.frequencies * spectra.compute_bytes * columns
        rate = Rates.DOUBLES if spectra.compute_bytes == 8 else Rates.FLOATS
        rate *= problem.device.multiprocessors / REFERENCE_MULTIPROCESSORS
        filled = problem.groups * rounded_up(filters // problem.groups, FILTERS)
        products = 8.0 * spectra.frequencies * tiles * filled * channels / rate
        launches = LAUNCHES * -(-o.x.dims[0] // spectra.images)
        return launches * Rates.LAUNCH + passes * spectrum_bytes / Rates.BANDWIDTH + products

    def launches(self, problem: ConvolutionProblem) -> list[Launch]:
        kernels = _Kernels(problem)
        launches = kernels.filters()
        images, at_a_time = problem.operation.x.dims[0], kernels.spectra.images
        for first in range(0, images, at_a_time):
            launches += kernels.images(first, min(at_a_time, images - first))
        return launches


FFT = (
    Fft("convolution.fft", Algo.CUDNN_CONVOLUTION_FWD_ALGO_FFT),
    Fft("convolution.fft_tiling", Algo.CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING),
)
