"""Serve the CTC loss of any sequences (ctc/loss.cu)."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from ctypes import c_int, c_longlong
from functools import cached_property

from dualdnn.api.operations import CTCLoss, CTCLoss_v8
from dualdnn.api.operations.ctc import MAX_LABEL
from dualdnn.api.operations.specs import FLOAT

from ..plans import WORKSPACE_ALIGNMENT, Launch, Plan, Upload, WorkspacePlan, pointers, structure, type_definitions
from ..primitives.geometry import blocks
from ..reproducible import Order
from ..solver import Problem, Solver

SOURCE = "ctc/loss.cu"
WORD_BYTES = 4
WARP = 32  # threads
SEQUENCE_WORDS = 4  # words of struct Sequence in loss.cu
ROW_THREADS = 256  # per block of rows
GRADIENT_THREADS = 128  # per block of gradients
# These are fields of struct Arguments in loss.cu: areas of the workspace, lists of labels, and strides of the
# dimensions.
AREAS = ("sequences", "links", "normalizers", "forward", "backward")
LABEL_FIELDS = ("label_lengths", "input_lengths", "labels")
AXES = ("time", "sequence", "class")
LAUNCH_SECONDS = 6e-6  # three launches
STEP_SECONDS = 2e-7  # per time step of the recursions


class CTCProblem(Problem):
    """Describe a CTC loss, and the areas of its workspace in words of 4 bytes."""

    operation: CTCLoss | CTCLoss_v8

    @cached_property
    def states(self) -> int:
        """Return the states of the longest possible label: its labels, and the blanks around them."""
        return 2 * self.operation.max_labels + 1

    @cached_property
    def uploaded(self) -> bytes:
        """Return the host data that the kernels read: label lengths, input lengths, labels."""
        o = self.operation
        if isinstance(o, CTCLoss_v8):
            return b""
        words = (*o.hostLabelLengths, *o.hostInputLengths, *o.hostLabels)
        return struct.pack(f"{len(words)}i", *words)

    @cached_property
    def areas(self) -> dict[str, int]:
        """Return the offset of each area, and the end of all areas, in words."""
        o = self.operation
        gradients = o.gradients is not None
        table = o.sequences * o.times * self.states
        sizes = {
            "sequences": SEQUENCE_WORDS * o.sequences,
            "links": o.sequences * o.max_labels if gradients else 0,
            "normalizers": o.sequences * o.times if o.normalizes else 0,
            "forward": table if gradients else 0,
            "backward": table if gradients else 0,
            "uploaded": len(self.uploaded) // WORD_BYTES,
        }
        found, end = {}, 0
        for name, size in sizes.items():
            found[name] = end
            end += size
        return {**found, "end": end}


class LossSolver(Solver[CTCProblem]):
    """Serve any strides and lengths with a block per sequence and direction, then one per sequence and time step."""

    name = "ctc.loss"
    fixed_order = Order("ctc")  # Neither other sequences nor the longest label change a block's sums.

    def workspace_bytes(self, problem: CTCProblem) -> int:
        return WORD_BYTES * problem.areas["end"] + WORKSPACE_ALIGNMENT - 1

    def estimated_seconds(self, problem: CTCProblem) -> float:
        return LAUNCH_SECONDS + STEP_SECONDS * problem.operation.times

    def plan(self, problem: CTCProblem) -> Plan:
        return WorkspacePlan(problem.operation, self.steps(problem), self.name)

    def steps(self, problem: CTCProblem) -> Sequence[Launch | Upload]:
        """Return the launches, after the upload of the host's labels."""
        if not problem.uploaded:
            return self.launches(problem)
        offset = WORD_BYTES * problem.areas["uploaded"]
        return [Upload(problem.device, problem.uploaded, "workspace", offset), *self.launches(problem)]

    def launches(self, problem: CTCProblem) -> list[Launch]:
        o, areas = problem.operation, problem.areas
        gradients = o.gradients is not None
        lists: tuple[str, ...] = ("labelLengths", "inputLengths", "labels")
        starts: tuple[int, ...] = (0, 0, 0)
        if isinstance(o, CTCLoss):
            lists = ("workspace",) * 3
            starts = tuple(areas["uploaded"] + start * o.sequences for start in (0, 1, 2))
        operands = ("probs", *lists, "costs", "gradients", "workspace")
        strides = {"probs": o.probs.strides, "gradients": o.gradients.strides if o.gradients else (0, 0, 0)}
        arguments = structure(
            *pointers(len(operands)),
            *((f"{name}_at", c_longlong(areas[name])) for name in AREAS),
            *((f"{name}_at", c_longlong(start)) for name, start in zip(LABEL_FIELDS, starts, strict=True)),
            *(
                (f"{name}_{axis}", c_int(stride))
                for name, of in strides.items() for axis, stride in zip(AXES, of, strict=True)
            ),
            ("times", c_int(o.times)), ("count", c_int(o.sequences)), ("classes", c_int(o.classes)),
            ("max_labels", c_int(o.max_labels)), ("states", c_int(problem.states)),
            ("normalizes", c_int(o.normalizes)), ("keeps", c_int(o.keeps)), ("wants_gradients", c_int(gradients)),
        )  # fmt: skip
        definitions = type_definitions(FLOAT, o, MAX_LABEL=str(MAX_LABEL))

        def launch(kernel: str, grid: tuple[int, int, int], threads: int) -> Launch:
            function = problem.device.function(SOURCE, f"ctc_loss_{kernel}", definitions)
            return Launch(function, arguments, operands, grid, (threads, 1, 1))

        rows = o.times * o.sequences
        found = [launch("normalizers", blocks(rows, ROW_THREADS // WARP), ROW_THREADS)] if o.normalizes else []
        found.append(launch("alignments", (o.sequences, 1 + gradients, 1), -(-problem.states // WARP) * WARP))
        if gradients:
            found.append(launch("gradients", (rows, 1, 1), GRADIENT_THREADS))
        return found
