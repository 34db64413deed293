"""Describe a recurrent network to its solvers: offsets in the weights, the work space and the reserve space."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from ctypes import Array, Structure, c_int, c_longlong
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from dualdnn.api.enumerations import cudnnNanPropagation_t, cudnnRNNDataLayout_t
from dualdnn.api.operations.backend import RUN
from dualdnn.api.operations.rnn import RNNDataSpec, RNNSpec
from dualdnn.api.operations.rnn.network import GRU, LSTM, PROJECTION, Weights
from dualdnn.api.operations.rnn.spaces import KEPT_GATES, aligned, dropped, gate_gradients, kept, layer_output
from dualdnn.api.operations.specs import SCALAR_BYTES

from ..plans import Launch, factors, fields_of, pointers, structure, type_definitions
from ..primitives.geometry import Grid
from ..reproducible import CANONICAL_IMAGES, level_of
from ..solver import Problem

CANONICAL_BATCHES = (1, 32, 256)  # sequences over which an order of sums above level RUN takes the least time
LENGTHS = 256  # sequences per launch whose lengths it passes
THREADS = 256
TILE = 64  # rows and columns per block of a product, as in product.cuh
LAYOUTS = {kind: int(kind) for kind in cudnnRNNDataLayout_t}


class Located(NamedTuple):
    """Locate something: an operand, and bytes from its address."""

    operand: str
    offset: int


def tiles(columns: int, rows: int, directions: int) -> Grid:
    """Return the grid of a product."""
    return (-(-columns // TILE), -(-rows // TILE), directions)


def stacked(structures: Sequence[Structure], count: int) -> Array[Any]:
    """Return an array of structures with the same fields, padded with zeros."""
    kind = type(structures[0])
    return (kind * count)(*(kind.from_buffer_copy(each) for each in structures))


class RNNProblem(Problem):
    """Describe one pass through a network.

    ``data`` describes the sequences; x and y differ only in the length of their vectors. ``is_apart`` says whether
    every layer has its own memory in the work space for its states and its output, or all layers share it.
    """

    is_apart = False

    def __init__(self, operation: Any, device: Any, aligned: bool = True) -> None:
        super().__init__(operation, device, aligned)
        self.network: RNNSpec = operation.network
        self.data: RNNDataSpec = getattr(operation, "x", None) or operation.dx
        self.steps, self.batch = self.data.max_length, self.data.batch
        self.ranked = dict[Any, list[Any]]()  # divisions of this problem and its copies, which persistent.py keeps here

    @cached_property
    def canonical(self) -> Self:
        """Return the problem of CANONICAL_IMAGES sequences at aligned addresses, or at level RUN this problem."""
        return self if level_of(self.device) == RUN else self.of_sequences(CANONICAL_IMAGES)

    @property
    def representatives(self) -> list[Self]:
        """Return the problems over which choices that decide an order of sums take the least time: this problem at
        level RUN, else the problems of CANONICAL_BATCHES.
        """
        return [self] if level_of(self.device) == RUN else [self.of_sequences(count) for count in CANONICAL_BATCHES]

    def of_sequences(self, count: int) -> Self:
        """Return the problem of another number of sequences at aligned addresses, for estimates."""
        made = copy(self)
        made.batch, made.aligned = count, True
        return made

    @property
    def definitions(self) -> tuple[tuple[str, str], ...]:
        """Return the definitions of the kernels."""
        cell = str(int(self.network.cell))
        return type_definitions(self.data.data_type, self.operation, CELL=cell, LENGTHS=str(LENGTHS))

    @property
    def draws(self) -> bool:
        """Return whether the call drops elements of a layer's output before the next layer."""
        return bool(self.operation.draws)

    def apart(self) -> Self:
        """Return the problem with separate memory for every layer."""
        made = copy(self)
        made.is_apart = True
        return made

    def work(self) -> dict[str, int]:
        """Return the offsets of the parts of the work space, counted in values."""
        n, vectors = self.network, self.steps * self.batch
        width = max(n.output_size, n.input_width(0))
        sizes = {
            "offsets": aligned(self.batch) + aligned(self.steps),
            "products": aligned(n.directions * vectors * n.gates * n.hidden),
            "outputs": max(2 * aligned(vectors * width), n.layers * layer_output(n, self.steps, self.batch)),
            "hidden": 2 * aligned(n.directions * self.batch * n.projected),
            "cell": aligned(n.directions * self.batch * n.hidden),
            "before": aligned(n.directions * self.batch * n.hidden),
        }
        return dict(zip([*sizes, "next"], np.cumsum([0, *sizes.values()]).tolist(), strict=True))

    def passed(self, layer: int) -> dict[str, int]:
        """Return the offsets of a layer's input and of its output in the work space. Layers alternate between two
        regions, or have one each; the first then holds the vectors of x.
        """
        n, start = self.network, self.work()["outputs"]
        if self.is_apart:
            size = layer_output(n, self.steps, self.batch)
            last = aligned(self.steps * self.batch * max(n.output_size, n.input_width(0)))
            return {"input": start + (layer - 1) * size if layer else start + last, "output": start + layer * size}
        size = aligned(self.steps * self.batch * max(n.output_size, n.input_width(0)))
        return {"input": start + (1 - layer % 2) * size, "output": start + layer % 2 * size}

    def regions(self, layer: int) -> Structure:
        """Return the offsets of the parts of the work space and of the layer's reserve space, counted in values."""
        starts, passed = self.work(), self.passed(layer)
        kept_parts = self.kept(layer)
        states = layer * (starts["next"] - starts["hidden"]) if self.is_apart else 0
        return structure(
            *((name, c_longlong(starts[name])) for name in ("offsets", "products")),
            *((name, c_longlong(begin)) for name, begin in passed.items()),
            *((name, c_longlong(starts[name] + states)) for name in ("hidden", "cell", "before")),
            *((name, c_longlong(begin)) for name, begin in kept_parts.items()),
            ("kept_below", c_longlong(self.below(layer))),
        )

    def kept(self, layer: int) -> dict[str, int]:
        """Return the offsets of a layer's parts in the reserve space, or -1 where nothing is kept."""
        n, vectors = self.network, self.steps * self.batch
        gates, cell = vectors * KEPT_GATES[n.cell] * n.hidden, vectors * n.hidden
        gradients = gate_gradients(n, self.steps, self.batch)
        parts = {
            "kept": gates,
            "gradients": gradients,
            "kept_cell": cell * (n.cell == LSTM),
            "kept_hidden": cell * n.is_projected,
        }
        inner, output = aligned(sum(parts.values())), aligned(vectors * n.projected)
        step = inner + output * n.is_projected
        start = layer * n.directions * (step + output)
        if not self.operation.reserve.nbytes:
            return {**dict.fromkeys((*parts, "kept_gradient", "kept_output"), -1), "kept_step": 0}
        found, at = {}, start
        for name, size in parts.items():
            found[name] = at if size else -1
            at += size
        if not gradients:  # These replace the gates.
            found["gradients"] = start
        found["kept_gradient"] = start + inner if n.is_projected else -1
        return {**found, "kept_output": start + n.directions * step, "kept_step": step}

    def below(self, layer: int) -> int:
        """Return the offset of a layer's inputs in the reserve space, or -1 where nothing is kept or they are x."""
        if not layer or not self.operation.reserve.nbytes:
            return -1
        return self.dropped(layer - 1)[0] if self.network.drops else self.kept(layer - 1)["kept_output"]

    def dropped(self, layer: int) -> tuple[int, int]:
        """Return the offsets in the reserve space of the next layer's input and of the mask, after a layer."""
        vectors, mask = dropped(self.network, self.steps, self.batch)
        start = kept(self.network, self.steps, self.batch) + layer * (vectors + mask)
        return start, start + vectors

    def outputs(self, layer: int) -> Located:
        """Return the location of a layer's output, (step, sequence, direction, unit)."""
        kept = self.kept(layer)["kept_output"]
        size = SCALAR_BYTES[self.operation.compute_type]
        if kept >= 0:
            return Located("reserveSpace", kept * size)
        return Located("workSpace", self.passed(layer)["output"] * size)

    @property
    def kept_gates(self) -> int:
        """Return the numbers per cell in the reserve space, without its states."""
        return KEPT_GATES[self.network.cell]

    @property
    def recurrent_slots(self) -> tuple[tuple[int, int], ...]:
        """Return the first gate whose gradient reaches the states, and the number of such gates, in the order of the
        matrices.
        """
        return ((0, 2), (3, 1)) if self.network.cell == GRU else ((0, self.network.gates),)

    def weights(self, layer: int, kind: str) -> tuple[int, int]:
        """Return the element where the first "input" or "recurrent" matrix of a layer begins, and the stride to the
        second direction.
        """
        n = self.network
        gate = 0 if kind == "input" else n.gates
        first, *other = (
            n.matrix(layer * n.directions + direction, gate).offset  # type: ignore[union-attr]
            for direction in range(n.directions)
        )
        return first, other[0] - first if other else 0

    def layer(self, layer: int) -> Structure:
        """Return the weights of a layer and the offsets of its inputs and outputs."""
        n = self.network

        def pair(find: Any, weight_id: int) -> Structure:
            """Return the offset of the weights of the first direction, and the stride to the second."""
            found: list[Weights | None] = [find(layer * n.directions + d, weight_id) for d in range(n.directions)]
            start = found[0].offset if found[0] else -1
            step = found[-1].offset - start if found[-1] else 0
            return structure(("start", c_longlong(start)), ("step", c_longlong(step)))

        absent = structure(("start", c_longlong(-1)), ("step", c_longlong(0)))
        return structure(
            ("input", pair(n.matrix, 0)),
            ("recurrent", pair(n.matrix, n.gates)),
            ("input_bias", pair(n.bias_vector, 0)),
            ("recurrent_bias", pair(n.bias_vector, n.gates)),
            ("projection", pair(n.matrix, PROJECTION) if n.is_projected else absent),
            *fields_of(c_int, width=n.input_width(layer), pseudo_layer=layer * n.directions, first=layer == 0),
            ("last", c_int(layer == n.layers - 1)),
        )  # fmt: skip

    @property
    def clip(self) -> Structure:
        """Return the range of the states."""
        clip = self.network.clip
        propagates = clip.nan == cudnnNanPropagation_t.CUDNN_PROPAGATE_NAN
        return structure(
            *factors(self.operation, lower=clip.lower, upper=clip.upper),
            *fields_of(c_int, on=clip.is_on, propagates=propagates),
        )

    def shape(self, filled: RNNDataSpec) -> Structure:
        """Return the sizes of the network and its sequences; ``filled`` is the container whose padding is written."""
        n, layout = self.network, self.data.layout
        batch_major = layout == cudnnRNNDataLayout_t.CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED
        packed = layout == cudnnRNNDataLayout_t.CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED
        return structure(
            *((name, c_int(value)) for name, value in (
                ("steps", self.steps), ("batch", self.batch), ("hidden", n.hidden), ("projected", n.projected),
                ("directions", n.directions), ("sequence_step", self.steps if batch_major else 1),
                ("fills", filled.padding_fill is not None and not packed),
            )),
        )  # fmt: skip

    def described(self, layer: int, filled: RNNDataSpec) -> list[tuple[str, Any]]:
        """Return the fields that describe a layer and the sequences; ``filled`` is the container whose padding is
        written.
        """
        return [("layer", self.layer(layer)), ("regions", self.regions(layer)), ("shape", self.shape(filled))]

    def launch(
        self,
        source: str,
        kernel: str,
        operands: Sequence[str],
        grid: Grid,
        *fields: tuple[str, Any],
        threads: int = THREADS,
    ) -> Launch:
        """Return the launch of a kernel with these fields and the addresses of operands as arguments."""
        arguments = structure(*pointers(len(operands)), *fields)
        function = self.device.function(source, kernel, self.definitions)
        return Launch(function, arguments, operands, grid, (threads, 1, 1))

    def fill(self, filled: RNNDataSpec) -> list[tuple[str, Any]]:
        """Return the field with the fill value of the padding."""
        return factors(self.operation, fill=filled.padding_fill or 0.0)
