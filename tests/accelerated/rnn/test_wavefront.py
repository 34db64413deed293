"""Tests RNN kernels that overlap the layers of a network in one launch.

Results agree with layer-by-layer execution, in every order that the dependencies allow.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from dualdnn.accelerated.rnn.gradient import GradientSolver
from dualdnn.accelerated.rnn.persistent import MAX_LAYERS
from dualdnn.accelerated.rnn.problem import RNNProblem
from dualdnn.accelerated.rnn.recurrence import RecurrenceSolver
from dualdnn.accelerated.rnn.wavefront import WavefrontBackwardSolver, WavefrontForwardSolver
from dualdnn.accelerated.runtime.devices import open_device
from dualdnn.accelerated.runtime.errors import DeviceError
from dualdnn.accelerated.solver import possible_solvers
from dualdnn.api.operations.rnn.network import GRU, LSTM, RELU, TANH
from dualdnn.api.operations.specs import FLOAT, HALF
from dualdnn.conformance.bench.rnn_rows import forward, inference, network, passes
from dualdnn.conformance.trial import prepare
from test_persistent import H200, elements, run


def skewed(kind, skew, most=MAX_LAYERS, **changes):
    """Return a solver that runs each layer ``skew`` waves after the one before, with up to ``most`` layers per launch.

    changes: fields to replace in its divisions.
    """

    class Skewed(kind):
        def divisions(self, problem, layers):
            found = super().divisions(problem, layers) if layers <= most else []
            return [replace(made, skew=skew, **changes) for made in found[:1]]

    return Skewed()


def training_step(spec, lengths, solvers):
    """Return the outputs of training, inference and data gradients by two solvers, with weights scaled down."""
    forwards, backwards = solvers
    first, data, _ = (operation for _, operation in passes(forward(spec, max(lengths), lengths)))
    memory = prepare(first, "normal", 0)
    scaled = elements(memory["weightSpace"], spec.data_type) / np.sqrt(spec.hidden)
    memory["weightSpace"] = scaled.astype(np.float16 if spec.data_type == HALF else np.float32).view(np.uint8)
    made = run(first, memory, forwards)
    shown = run(inference(first), {n: bytes_ for n, bytes_ in memory.items() if n != "reserveSpace"}, forwards)
    behind = {**prepare(data, "normal", 1), "weightSpace": memory["weightSpace"], "reserveSpace": made["reserveSpace"]}
    behind |= {name: memory[name] for name in ("hx", "cx") if name in memory}
    return {
        **{f"training {n}": made[n] for n in ("y", "hy", "cy") if n in made},
        **{f"inference {n}": shown[n] for n in ("y", "hy", "cy") if n in shown},
        **{n: bytes_ for n, bytes_ in run(data, behind, backwards).items() if n in ("dx", "dhx", "dcx")},
    }


def assert_close(one, other, data_type, layers):
    """Assert closeness within a bound that grows with each layer, for roundings and another order of sums."""
    unit = 2.0**-11 if data_type == HALF else 2.0**-14
    for name in one:
        a, b = elements(one[name], data_type), elements(other[name], data_type)
        assert np.isfinite(b).all(), name
        assert abs(a - b).max() <= 4 * layers * unit * (1 + abs(a).max()), name


@pytest.mark.parametrize("cell, data_type, layers, hidden, lengths", [
    (LSTM, HALF, 2, 24, (3, 1, 0, 2, 3, 3, 1, 2, 3)), (GRU, HALF, 3, 40, (4, 4, 2)), (TANH, HALF, 4, 24, (2,) * 17),
    (RELU, HALF, 2, 72, (5, 4)), (LSTM, FLOAT, 3, 20, (3, 2, 3)), (GRU, FLOAT, 2, 12, (2,) * 9),
])  # fmt: skip
def test_overlapped_layers_agree_with_layers_one_by_one(cell, data_type, layers, hidden, lengths):
    """Results agree for partial slices and groups, for any lengths (0 too), and if the layers need two launches."""
    spec = network(cell, hidden, layers, 1, data_type)
    steps = training_step(spec, lengths, (RecurrenceSolver(), GradientSolver()))
    for most in {2, layers}:
        solvers = skewed(WavefrontForwardSolver, 1, most), skewed(WavefrontBackwardSolver, 1, most)
        assert_close(steps, training_step(spec, lengths, solvers), data_type, layers)


@pytest.mark.parametrize("data_type", [HALF, FLOAT])
def test_infinite_states_meet_no_rows_of_zeros(data_type):
    """A GRU's last gate has two rows, and each product has zeros in the other's. All gates are 1 here."""
    first = forward(network(GRU, 24, 3, 1, data_type), 1, (1, 1))
    kind = np.float16 if data_type == HALF else np.float32
    memory = {name: bytes_.view(kind) for name, bytes_ in prepare(first, "positive", 0).items()}
    states = memory["hx"].reshape(3, 2, 24)
    states[0, 0, 3] = states[1, 1, 5] = np.inf
    made = run(first, {name: numbers.view(np.uint8) for name, numbers in memory.items()}, WavefrontForwardSolver())
    np.testing.assert_array_equal(made["hy"].view(kind), states.reshape(-1))


def test_left_operands_of_both_products_in_shared_memory():
    """K has more pairs than registers hold, in input and recurrent matrices."""
    spec, lengths = network(LSTM, 136, 2, 1, FLOAT), (2, 2)
    solvers = [skewed(kind, 1, max_register_pairs=1) for kind in (WavefrontForwardSolver, WavefrontBackwardSolver)]
    assert_close(training_step(spec, lengths, (RecurrenceSolver(), GradientSolver())),
                 training_step(spec, lengths, solvers), FLOAT, 2)  # fmt: skip


@pytest.mark.parametrize("cell", [LSTM, GRU])
def test_any_order_of_the_waves_gives_the_same(cell):
    """The bits are the same if each layer runs 1, 2 or 6 waves after the one before."""
    spec, lengths = network(cell, 24, 3, 1, HALF), (5, 3, 5)
    one, *others = (
        training_step(spec, lengths, (skewed(WavefrontForwardSolver, skew), skewed(WavefrontBackwardSolver, skew)))
        for skew in (1, 2, 6)
    )
    for other in others:
        for name, content in one.items():
            np.testing.assert_array_equal(content, other[name], name)


@pytest.mark.parametrize("most", [2, 3])
@pytest.mark.parametrize("call", ["training", "inference", "backward"])
def test_vectors_that_blocks_wait_for_are_filled_before_the_launch(call, most):
    """Before the cooperative launch, every vector that blocks wait for holds a value that no cell outputs."""
    training, data, _ = (operation for _, operation in passes(forward(network(LSTM, 24, 3, 1, HALF), 3, (3, 2))))
    operation = {"training": training, "inference": inference(training), "backward": data}[call]
    solver = skewed(WavefrontBackwardSolver if call == "backward" else WavefrontForwardSolver, 1, most)
    device = open_device("emulated")
    problem = RNNProblem(operation, device).apart()
    memory = {name: device.allocate(max(operation.nbytes(name), 1)) for name in operation.operands}
    for name, buffer in memory.items():
        device.fill(buffer.address, max(operation.nbytes(name), 1), 0)
    plan = solver.plan(problem)
    plan.steps = [(launch, positions) for launch, positions in plan.steps if not launch.cooperative]
    plan([memory[name] for name in operation.operands], None)
    for layer in range(3):
        if call == "backward":
            operand, start, numbers = "reserveSpace", 4 * problem.kept(layer)["gradients"], 4
        else:
            (operand, start), numbers = problem.outputs(layer), 1
        found = device.download(memory[operand].address + start, numbers * 3 * 2 * 24 * 2)
        assert set(found) == {0xFF}, layer


@pytest.mark.parametrize("kind, call", [(WavefrontForwardSolver, 0), (WavefrontBackwardSolver, 1)])
def test_an_order_against_a_dependency_is_noticed(kind, call):
    """A layer that runs one wave before its inputs would wait forever, so the kernel traps."""
    operation = [operation for _, operation in passes(forward(network(TANH, 24, 2, 1, HALF), 3, (3, 3)))][call]
    memory = prepare(operation, "normal", 0)
    with pytest.raises(DeviceError, match="__trap"):
        run(operation, memory, skewed(kind, -1))


@pytest.mark.parametrize("cell, size, layers, batch, data_type, forwards, backwards", [
    (LSTM, 256, 4, 32, HALF, [4], [4]), (GRU, 512, 3, 16, HALF, [3], [3]), (LSTM, 1024, 2, 1, HALF, [2], [2]),
    (TANH, 128, 8, 4, FLOAT, [8], [8]), (LSTM, 2048, 2, 8, HALF, [], []),
])  # fmt: skip
def test_layers_of_a_launch_have_room_on_the_device(cell, size, layers, batch, data_type, forwards, backwards):
    """Only divisions whose blocks all run at once are used."""
    first, data, _ = (
        operation for _, operation in passes(forward(network(cell, size, layers, 1, data_type), 64, (64,) * batch))
    )
    for solver, operation, wanted in (
        (WavefrontForwardSolver(), first, forwards), (WavefrontBackwardSolver(), data, backwards)
    ):  # fmt: skip
        problem = RNNProblem(operation, H200())
        groups = solver.groups(problem) if solver.serves(problem) else []
        together = [g for g in groups if solver.divisions(problem, g)[0].runs_together(H200.multiprocessors)]
        assert together == wanted
        for count in together:
            for made in solver.divisions(problem, count):
                blocks = made.blocks(H200.multiprocessors)
                assert made.shared_bytes <= H200.shared_bytes_per_block and blocks <= H200.multiprocessors
                assert blocks % (made.slices * made.parts * count) == 0


def test_networks_that_cannot_overlap_run_layer_by_layer():
    """Networks with two directions, with projections, or with a single layer run layer by layer."""
    spec = network(LSTM, 24, 2, 1, HALF)
    device = open_device("emulated")
    for changed in (network(LSTM, 24, 2, 2, HALF), replace(spec, projected=16), network(LSTM, 24, 1, 1, HALF)):
        for _, operation in list(passes(forward(changed, 3, (3, 3))))[:2]:
            assert "rnn.wavefront" not in possible_solvers(operation, device)
    assert possible_solvers(forward(spec, 3, (3, 3)), device)[0] == "rnn.wavefront"
