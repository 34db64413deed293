"""Plan the matrix of cudnnIm2Col (convolution/implicit_gemm/simt.cu)."""

from __future__ import annotations

from dataclasses import replace

from ...plans import Launch, type_definitions
from ...primitives.geometry import FastDivmod
from ...reproducible import NO_SUMS
from ...solver import Problem, Solver
from ..implicit_gemm.simt import im2col_launch
from ..problem import VECTOR_BYTES, describe


class Im2ColElements(Solver[Problem]):
    """Serve any filter. A thread locates each element of a vector."""

    name = "convolution.im2col_elements"
    fixed_order = NO_SUMS

    def launches(self, problem: Problem) -> list[Launch]:
        o = problem.operation
        x, window = o.srcData, o.filter.dims
        w = replace(o.filter, dims=(window[0], x.dims[1], *window[2:]))
        value = describe(o.convolution, x, w, o.convolution.output_dims(x.dims, window))
        value.inner_channels = FastDivmod.of(1)  # The columns are (channel, row, column of the filter).
        value.x_channel_block = value.x_channel
        definitions, operands = type_definitions(x.data_type, o), ("srcData", "colBuffer")
        return [im2col_launch(problem.device, definitions, value, 1, value.k, VECTOR_BYTES // x.scalar_bytes, operands)]
