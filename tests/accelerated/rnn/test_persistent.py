"""Tests persistent RNN kernels, in divisions that only large networks get, against kernels that run step by step."""

from __future__ import annotations

import itertools
import struct
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from dualdnn.accelerated.gemm import matrix_tma
from dualdnn.accelerated.reproducible import DeviceAtLevel, at_level
from dualdnn.accelerated.rnn import persistent, persistent_forward
from dualdnn.accelerated.rnn.persistent import Division
from dualdnn.accelerated.rnn.persistent_backward import PersistentBackwardSolver
from dualdnn.accelerated.rnn.persistent_forward import PersistentForwardSolver
from dualdnn.accelerated.rnn.problem import RNNProblem
from dualdnn.accelerated.rnn.wavefront import WavefrontForwardSolver
from dualdnn.accelerated.runtime import fallbacks
from dualdnn.accelerated.runtime.devices import open_device
from dualdnn.accelerated.runtime.errors import NotBuilt
from dualdnn.accelerated.runtime.listing import Listing
from dualdnn.accelerated.solver import SOLVER_FAMILIES
from dualdnn.api.operations import RNNBackwardData, RNNForward
from dualdnn.api.operations.rnn.network import GRU, LSTM, TANH
from dualdnn.api.operations.specs import FLOAT, HALF
from dualdnn.conformance.bench.rnn_rows import forward, network, passes
from dualdnn.conformance.kernels import kernel_wheel
from dualdnn.conformance.trial import prepare

KERNELS = Path(__file__).parent / "kernels"


class Divided:
    """Makes a solver use the division that the test chooses."""

    made: ClassVar[Division]

    def divisions(self, problem):
        return [replace(self.made, directions=problem.network.directions)]


def run(operation, memory, solver, level="run"):
    """Run the plan of a solver on copies of the operands, and return the copies."""
    device = open_device("emulated")
    problem = RNNProblem(operation, at_level(device, level))
    buffers = {}
    for name, content in memory.items():
        buffers[name] = device.allocate(max(content.nbytes, 1))
        device.upload(buffers[name].address, content.view(np.uint8).reshape(-1))
    solver.plan(problem)([buffers.get(name) for name in operation.operands], None)
    return {
        name: np.frombuffer(device.download(buffers[name].address, memory[name].nbytes), np.uint8) for name in memory
    }


def elements(content, data_type):
    return content.view(np.float16 if data_type == HALF else np.float32).astype(np.float64)


def gradients_agree(cell, data_type, hidden, batch, divisions):
    """Assert that a training step with these solvers agrees with one that launches a kernel per time step."""
    from dualdnn.accelerated.rnn.gradient import GradientSolver
    from dualdnn.accelerated.rnn.recurrence import RecurrenceSolver

    spec = network(cell, hidden, 1, 2, data_type)
    first, data, _ = (operation for _, operation in passes(forward(spec, 3, tuple(3 - i % 3 for i in range(batch)))))
    results = []
    for forwards, backwards in ((RecurrenceSolver(), GradientSolver()), divisions):
        memory = prepare(first, "normal", 0)
        scale = elements(memory["weightSpace"], data_type) / np.sqrt(hidden)
        memory["weightSpace"] = scale.astype(np.float16 if data_type == HALF else np.float32).view(np.uint8)
        made = run(first, memory, forwards)
        behind = {
            **prepare(data, "normal", 1),
            "weightSpace": memory["weightSpace"],
            "reserveSpace": made["reserveSpace"],
        }
        behind |= {name: memory[name] for name in ("hx", "cx") if name in memory}
        results.append((made, run(data, behind, backwards)))
    unit = 2.0**-11 if data_type == HALF else 2.0**-14  # Both round to TF32, but add in another order.
    for names, (one, other) in zip((("y", "hy", "cy"), ("dx", "dhx", "dcx")), zip(*results, strict=True), strict=True):
        for name in names:
            if name in one:
                a, b = elements(one[name], data_type), elements(other[name], data_type)
                assert np.isfinite(b).all()
                assert abs(a - b).max() <= 8 * unit * (1 + abs(a).max()), name


def solvers(forwards, backwards):
    """Return a forward and a backward solver with these divisions."""
    return (
        type("Forward", (Divided, PersistentForwardSolver), {"made": forwards})(),
        type("Backward", (Divided, PersistentBackwardSolver), {"made": backwards})(),
    )


@pytest.mark.parametrize("m_tiles, n_tiles, batch", [(1, 1, 3), (2, 4, 9), (4, 2, 17)])
def test_left_operands_in_shared_memory(m_tiles, n_tiles, batch):
    """K has more pairs than registers hold, so shared memory has the rest; the last group of sequences is partial."""
    # K has 608 bytes forward, two pairs for some warps, and 2432 bytes for all gates backward, five pairs.
    hidden, size = 152, 4
    groups = -(-batch // (8 * n_tiles))
    forwards = Division(
        m_tiles, n_tiles, 4 * m_tiles, -(-hidden // (4 * m_tiles)), groups, hidden * size, max_register_pairs=1
    )
    back = min(m_tiles, 2)
    backwards = Division(
        back, n_tiles, 16 * back, -(-hidden // (16 * back)), groups, 4 * hidden * size, max_register_pairs=3
    )
    assert forwards.pairs > forwards.register_pairs and backwards.pairs > backwards.register_pairs
    gradients_agree(LSTM, FLOAT, hidden, batch, solvers(forwards, backwards))


@pytest.mark.parametrize("cell, rows, gates", [(GRU, 3, 3), (TANH, 1, 1)])
def test_other_cells(cell, rows, gates):
    """A unit has three rows in GRU and one in TANH; loads come in several parts."""
    hidden, batch = 40, 19
    forwards = Division(rows, 4, 16, -(-hidden // 16), 1, hidden * 2)
    backwards = Division(1, 4, 16, -(-hidden // 16), 1, gates * hidden * 2)
    gradients_agree(cell, HALF, hidden, batch, solvers(forwards, backwards))


@pytest.mark.parametrize("cell, data_type, hidden", [(GRU, HALF, 21), (LSTM, HALF, 22), (GRU, FLOAT, 19)])
def test_vectors_that_begin_between_multiples_of_16_bytes(cell, data_type, hidden):
    """If hidden sizes misalign vectors, loads of 2 or 4 bytes give the right results, forward and backward."""
    gates, size = 3 if cell == GRU else 4, 2 if data_type == HALF else 4
    forwards = Division(gates, 1, 16, -(-hidden // 16), 1, hidden * size)
    backwards = Division(1, 1, 16, -(-hidden // 16), 1, gates * hidden * size)
    gradients_agree(cell, data_type, hidden, 5, solvers(forwards, backwards))


@pytest.mark.parametrize("groups, blocks", [(1, 4), (1, 6), (3, 6), (2, 5), (2, 12)])
def test_an_item_goes_on_with_the_states_of_the_item_before_if_both_have_one_slice_and_group(groups, blocks):
    """Two of four blocks that share six slices have one each, and would read other states before these are stored."""
    device, steps = open_device("emulated"), 4
    problem = RNNProblem(forward(network(LSTM, 40, 1, 2, FLOAT), steps, (steps,) * 3), device)
    definitions = Division(4, 1, 16, 3, groups, 160).definitions(problem)
    found = device.allocate(blocks * 64 * 3 * 4)
    device.upload(found.address, np.full(blocks * 64 * 3, -1, np.int32))
    device.function(KERNELS / "items.cu", "rnn_items", definitions).launch(
        struct.pack("Qiiii", found.address, 3, 2, groups, steps), (blocks,), (256,)
    )
    listed = np.frombuffer(device.download(found.address, found.nbytes), np.int32).reshape(blocks, 64, 3)
    seen = 0
    for of_block in listed:
        items = [tuple(map(int, item)) for item in of_block if item[0] >= 0]
        seen += len(items)
        for (*places, goes_on), (*behind, _) in itertools.pairwise(items):
            assert goes_on == (places == behind), items
    assert seen == 6 * groups * steps


class H200:
    """Holds the properties of an H200 on which the choice of a division depends."""

    kind, architecture, multiprocessors, shared_bytes_per_block = "gpu", "sm_90", 132, 227 * 1024


@pytest.mark.parametrize(
    "cell, batch, hidden, fits",
    [
        (LSTM, 16, 768, True),
        (LSTM, 8, 2048, True),
        (GRU, 64, 512, True),
        (LSTM, 256, 1024, True),
        (LSTM, 8, 4096, False),
    ],
)
def test_divisions_fit_the_device(cell, batch, hidden, fits):
    """All blocks of a division run at once; otherwise the solver does not apply."""
    spec = network(cell, hidden, 1, 1, HALF)
    problem = RNNProblem(forward(spec, 4, (4,) * batch), H200())
    for rows, depth in ((spec.gates, 1), (1, spec.gates)):
        for made in persistent.divisions(problem, rows, depth):
            if not fits:
                assert not made.runs_together(H200.multiprocessors)
                continue
            blocks = made.blocks(H200.multiprocessors)
            assert made.shared_bytes <= H200.shared_bytes_per_block
            assert made.units * made.parts * made.slices >= hidden and made.sequences * made.groups >= batch
            assert blocks <= H200.multiprocessors and blocks % (made.slices * made.parts) == 0
    assert PersistentForwardSolver().applies(problem) == fits


def test_persistent_kernels_serve_any_hidden_size_at_aligned_addresses():
    """Any hidden size is served at aligned addresses; float without TF32 is left to other kernels."""
    for hidden, aligned, served in ((309, True, True), (20, True, True), (24, True, True), (24, False, False)):
        problem = RNNProblem(forward(network(TANH, hidden, 1, 1, HALF), 2, (2,)), H200(), aligned)
        assert PersistentForwardSolver().serves(problem) == served
    exact = replace(
        network(TANH, 24, 1, 1, FLOAT),
        math_type=next(k for k in type(network(TANH, 24, 1, 1, FLOAT).math_type) if k.name == "CUDNN_FMA_MATH"),
    )
    assert not PersistentForwardSolver().serves(RNNProblem(forward(exact, 2, (2,)), H200()))


def test_a_network_is_planned_where_only_two_layers_divide():
    """A GRU with 2048 units in float is such a network, but the blocks of its two layers do not run at once."""
    spec = network(GRU, 2048, 2, 1, FLOAT)
    problem = RNNProblem(forward(spec, 4, (4,)), H200())
    assert not PersistentForwardSolver().divisions(problem)
    assert WavefrontForwardSolver().serves(problem) and not WavefrontForwardSolver().applies(problem)


@pytest.mark.parametrize("cell, hidden, layers, overlap", [
    (LSTM, 650, 2, False), (GRU, 512, 4, False), (GRU, 1024, 1, False), (LSTM, 256, 4, True), (TANH, 64, 3, True)
])  # fmt: skip
def test_above_level_run_no_batch_and_no_device_decides_how_k_is_divided(cell, hidden, layers, overlap):
    """One solver serves with one order and one instruction of products, in different tiles, by the SMs of its device.

    Overlapped layers serve where no batch is much slower by them.
    """
    for call in (0, 1):
        served, tiles, found = set(), set(), RNNForward if call == 0 else RNNBackwardData
        for multiprocessors in (132, 114, 66, 48, 1):
            for batch in (1, 32, 128):
                device = Listing(kernel_wheel.StandIn("sm_90", multiprocessors, H200.shared_bytes_per_block))
                steps = passes(forward(network(cell, hidden, layers, 1, HALF), 64, (64,) * batch))
                problem = RNNProblem([operation for _, operation in steps][call], DeviceAtLevel(device, "device"))
                solver = SOLVER_FAMILIES[found].solver(problem)
                assert persistent.resident_multiprocessors(problem.device) == multiprocessors
                solver.launches(problem)
                by_tma = any(source == matrix_tma.SOURCE for source, _ in device.modules)
                served.add((solver.name, solver.summation_order(problem), by_tma))
                made = solver.divisions(problem, layers)[0] if overlap else solver.divisions(problem)[0]
                tiles.add((made.m_tiles, made.n_tiles, made.parts))
        assert len(served) == 1 and (served.pop()[0] == "rnn.wavefront") == overlap
        assert len(tiles) > 1 and {parts for *_, parts in tiles} == {1}


def first_sequence(whole, solver, layers):
    """Return the bits of the first of twenty sequences in its batch and alone, and the tiles of both calls."""
    bits, tiles, device = [], set(), at_level(open_device("emulated"), "batch")
    for batch in (20, 1):
        operation = forward(network(LSTM, 200, layers, 1, FLOAT), 2, (2,) * batch)
        problem = RNNProblem(operation, device)
        division = (solver.divisions(problem, layers) if layers > 1 else solver.divisions(problem))[0]
        tiles.add((division.m_tiles, division.n_tiles))
        memory = prepare(operation, "normal", 0)
        for name in {"x", "hx", "cx", "weightSpace"} & set(memory):
            steps = 2 if name == "x" else layers
            given = whole.setdefault(name, memory[name]).view(np.uint8)
            memory[name] = (
                given if name == "weightSpace" else given.reshape(steps, 20, -1)[:, :batch].reshape(-1).copy()
            )
        y = run(operation, memory, solver, "batch")["y"]
        bits.append(y.reshape(2, batch, -1)[:, 0].tobytes())
    return bits, tiles


@pytest.mark.parametrize("solver, layers", [(PersistentForwardSolver(), 1), (WavefrontForwardSolver(), 2)])
def test_a_sequence_has_the_same_bits_alone_and_among_twenty(monkeypatch, solver, layers):
    """The tiles of the two calls differ. With the chains that suit the tiles, the bits differ, too."""
    monkeypatch.setattr(open_device("emulated"), "multiprocessors", 132)
    whole = {}
    (among, alone), tiles = first_sequence(whole, solver, layers)
    assert among == alone and len(tiles) == 2
    monkeypatch.setattr(persistent, "CHAINS", (None,))
    (among, alone), _ = first_sequence(whole, solver, layers)
    assert among != alone


class Lacking(Listing):
    """Stand in for a device that lacks one module."""

    def __init__(self, lacks, obstacle):
        super().__init__(kernel_wheel.TARGETS["sm_90a"][1][0])
        self.lacks, self.obstacle = lacks, lambda: obstacle

    def function(self, source, kernel, definitions=()):
        if (source, definitions) == self.lacks:
            raise NotBuilt(f"{source} is not compiled")
        return super().function(source, kernel, definitions)


def test_another_division_serves_where_a_module_is_missing_and_nothing_compiles(tmp_path, monkeypatch):
    monkeypatch.setenv("DUALDNN_CACHE", str(tmp_path))
    ((_, first), *_) = passes(forward(network(LSTM, 1024, 1, 1, HALF), 20, (20,) * 64))
    problem = RNNProblem(first, kernel_wheel.TARGETS["sm_90a"][1][0])
    fastest, second, *_ = (each.definitions(problem) for each in PersistentForwardSolver().divisions(problem))
    source = persistent_forward.SOURCE
    device = Lacking((source, fastest), "no compiler")
    PersistentForwardSolver().launches(RNNProblem(first, device))
    assert (source, second) in device.modules and (source, fastest) not in device.modules
    assert any("another division" in note for note in fallbacks.notes())
    with pytest.raises(NotBuilt):  # It will be compiled, and the fastest division serves then.
        PersistentForwardSolver().launches(RNNProblem(first, Lacking((source, fastest), "")))
