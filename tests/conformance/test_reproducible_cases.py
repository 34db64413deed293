"""Test that reproducibility cases notice results that depend on what their level rules out."""

from argparse import Namespace

import pytest
from dualdnn.accelerated import reproducible, solver
from dualdnn.accelerated.convolution.tiny import Tiny
from dualdnn.accelerated.reproducible import Order
from dualdnn.accelerated.rnn.persistent import Division
from dualdnn.accelerated.rnn.wavefront import WavefrontForwardSolver
from dualdnn.accelerated.spatial_transformer import plan as spatial_transformer
from dualdnn.api import cudnn
from dualdnn.api.operations import ConvolutionBackwardFilter, ConvolutionForward
from dualdnn.conformance import bits
from dualdnn.conformance.bits import operations
from dualdnn.conformance.bits.graphs import GRAPHS_AND_FUSED
from dualdnn.conformance.calls import Caller
from dualdnn.conformance.cases import reproducible as cases
from dualdnn.conformance.programs import running
from dualdnn.conformance.report import load_clauses
from dualdnn.conformance.subjects import open_subject

FORWARD = operations.convolution(ConvolutionForward, operations.FORWARD(0), "fma-nchw", "3x3")
FILTER = operations.convolution(ConvolutionBackwardFilter, operations.FILTER(1), "fma-nchw", "3x3", 9)


@pytest.fixture
def caller(monkeypatch):
    """Return a function that makes a caller of a level, on a device with 132 SMs and no cached plans."""

    def made(level: str) -> Caller:
        handle = cudnn.cudnnCreate(backend="accelerated", device="emulated", reproducible=level)
        monkeypatch.setattr(handle.backend.device, "multiprocessors", 132)
        monkeypatch.setattr(handle.backend, "plans", {})
        return Caller(cudnn, handle)

    return made


def test_an_order_that_depends_on_the_batch(caller, monkeypatch):
    assert bits.of_batches(caller("batch"), FORWARD) == []
    monkeypatch.setattr(solver, "canonical_operation", lambda operation: operation)
    assert bits.of_batches(caller("batch"), FORWARD)


@pytest.mark.parametrize("name", ["graph-one", "graph-tanh-added", "fused-bnstats", "fused-conv-bias"])
def test_an_order_inside_a_graph_or_a_pack_that_depends_on_the_batch(caller, monkeypatch, name):
    operation = GRAPHS_AND_FUSED[f"{name}-float-nchw"]
    monkeypatch.setattr(solver, "canonical_operation", lambda operation: operation)
    assert bits.of_batches(caller("batch"), operation)


def test_channels_of_a_grid_that_are_divided_by_the_batch(caller, monkeypatch):
    """One image has few pixels for several threads per pixel, six have many: a batch of 32 decides for both."""
    operation = operations.ALONE["sampler-gradient-float-nchw-40x9"]
    monkeypatch.setattr(spatial_transformer, "MANY_PIXELS", 200)
    assert bits.of_batches(caller("batch"), operation) == []
    monkeypatch.setattr(solver, "canonical_operation", lambda operation: operation)
    assert any(found.startswith("dgrid") for found in bits.of_batches(caller("batch"), operation))


def test_chains_of_overlapped_layers_that_depend_on_the_batch(caller, monkeypatch):
    monkeypatch.setattr(Division, "chains", property(lambda division: 1 + division.vectors % 2))
    monkeypatch.setattr(WavefrontForwardSolver, "summation_order", lambda *_: Order("a claim"))
    assert bits.of_batches(caller("device"), operations.ALONE["gru-tf32-overlapped"])


def test_an_order_that_depends_on_the_multiprocessors(caller, monkeypatch):
    assert bits.of_multiprocessors(caller("device"), FILTER) == []
    real = property(lambda device: device.device.multiprocessors)
    monkeypatch.setattr(reproducible.DeviceAtLevel, "multiprocessors", real)
    assert bits.of_multiprocessors(caller("device"), FILTER)


def test_an_order_that_a_solver_does_not_have(caller, monkeypatch):
    assert bits.of_solvers(caller("run"), FORWARD) == []
    problem = solver.SOLVER_FAMILIES[ConvolutionForward].problem(FORWARD, caller("run").handle.backend.device)
    claimed = {
        each.summation_order(problem)
        for each in solver.SOLVER_FAMILIES[ConvolutionForward].solvers
        if each.serves(problem)
    }
    other = next(order for order in claimed if order and "tiny" not in order.walk)
    assert isinstance(other, Order)
    monkeypatch.setattr(Tiny, "summation_order", lambda *_: other)
    assert any("convolution.tiny" in found for found in bits.of_solvers(caller("run"), FORWARD))


def test_the_reference_judges_at_any_level(monkeypatch):
    """A replay with DUALDNN_REPRODUCIBLE runs on both backends, and the reference promises no level but ``run``."""
    monkeypatch.setenv("DUALDNN_REPRODUCIBLE", "batch")
    levels = [open_subject(name).new_handle().reproducible for name in ("reference", "accelerated:emulated")]
    assert levels == ["run", "batch"]
    with pytest.raises(pytest.skip.Exception, match="only the accelerated backend promises levels"):
        cases.only_ours(open_subject("reference"))


def test_every_clause_of_this_edition_has_a_case():
    shown = {
        clause
        for test in vars(cases).values()
        for mark in getattr(test, "pytestmark", ())
        if mark.name == "shows"
        for clause in mark.args
    }
    assert shown == {name for name, clause in load_clauses().items() if clause.library == "this_edition"}


@pytest.mark.parametrize("level, passed", [("batch", {"DUALDNN_REPRODUCIBLE": "batch"}), (None, {})])
def test_run_passes_a_level_to_the_program(monkeypatch, tmp_path, level, passed):
    seen = {}
    monkeypatch.setattr(running.libraries, "library", lambda number: tmp_path / f"libcudnn.so.{number}")
    monkeypatch.setattr(running.children, "run", lambda command, program, variables, name: seen.update(variables) or 0)
    chosen = Namespace(program=["--", "true"], backend="accelerated", face=9, release=None, reproducible=level)
    assert running.run(chosen) == 0
    assert {name: value for name, value in seen.items() if name == "DUALDNN_REPRODUCIBLE"} == passed
    chosen.backend, chosen.reproducible = "reference", "device"
    with pytest.raises(ValueError, match="--reproducible is device, and the reference backend promises run alone"):
        running.run(chosen)
