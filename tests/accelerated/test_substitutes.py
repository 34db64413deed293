"""Tests solvers whose modules are missing: a substitute serves until they are compiled, or if nothing compiles."""

from __future__ import annotations

import logging
import os
import struct
import threading
from pathlib import Path

import pytest
from dualdnn.accelerated.plans import Launch, pointers, structure
from dualdnn.accelerated.runtime import compiler, fallbacks, information
from dualdnn.accelerated.runtime.emulated.device import EmulatedDevice
from dualdnn.accelerated.runtime.errors import DeviceError, DeviceUnavailable
from dualdnn.accelerated.runtime.sources import Module
from dualdnn.accelerated.solver import Problem, Solver, SolverFamily
from dualdnn.api.operations import ScaleTensor, TensorSpec
from dualdnn.api.operations.specs import FLOAT

SOURCE = """
struct Arguments { float* y; };
extern "C" __global__ void store_NAME(const Arguments a) { *a.y = VALUE; }
"""
OPERATION = ScaleTensor(0.5, TensorSpec.packed(FLOAT, (1, 1, 1, 1)))


class Storing(Solver[Problem]):
    """Launches a kernel that stores the solver's value, from a source file that only this solver uses."""

    def __init__(self, folder, name, value, workspace=0):
        self.name, self.value, self.workspace = name, value, workspace
        self.source = folder / f"{name}.cu"
        self.source.write_text(SOURCE.replace("NAME", name).replace("VALUE", str(value)))

    def workspace_bytes(self, problem):
        return self.workspace

    def launches(self, problem):
        function = problem.device.function(self.source, f"store_{self.name}")
        return [Launch(function, structure(*pointers(1)), ("y",), (1, 1, 1), (1, 1, 1))]


@pytest.fixture
def device(monkeypatch, empty_cache):
    monkeypatch.delenv("DUALDNN_JIT", raising=False)
    monkeypatch.setattr(fallbacks, "_noted", set())
    made = EmulatedDevice()
    monkeypatch.setattr(made, "compiles_in_background", True, raising=False)
    return made


@pytest.fixture
def family(device, tmp_path):
    """Return a family whose first solver is preferred, and whose second has its module built."""
    made = SolverFamily(Problem, (Storing(tmp_path, "fast", 1), Storing(tmp_path, "slow", 2)))
    compiler.build(Module(made.solvers[1].source), device.architecture)
    return made


def result(plan, device):
    memory = device.allocate(16)
    plan.start([memory.address], None)
    return struct.unpack("f", device.download(memory.address, 4))[0]


def finish(device):
    for task in device.background.tasks():
        task.join(60)


def test_another_solver_serves_until_the_preferred_one_is_compiled(family, device, gate):
    """Plans with other scalars change to the preferred solver, too, and the note about the substitute disappears."""
    plan = family.plan_of(OPERATION, device)
    assert result(plan, device) == 2 and plan.solver == "slow"
    copied = plan.with_scalars({})
    assert result(copied, device) == 2
    assert "slow instead of fast: its modules are being compiled" in information.facts()["served by fallbacks"]
    gate.set()
    finish(device)
    assert result(plan, device) == 1 and plan.solver == "fast"
    assert result(copied, device) == 1 and result(plan.with_scalars({}), device) == 1
    assert information.facts()["served by fallbacks"] == "nothing"
    assert family.plan_of(OPERATION, device).solver == "fast"


def test_wait_for_kernel_waits_for_the_preferred_solver(family, device, gate):
    plan = family.plan_of(OPERATION, device)
    threading.Timer(0.2, gate.set).start()
    for launch, _ in plan.steps:
        launch.wait_for_kernel()
    assert plan.solver == "fast" and result(plan, device) == 1


def test_a_module_is_compiled_once_for_all_plans(family, device, gate):
    for _ in range(3):
        family.plan_of(OPERATION, device)
    assert len(device.background.tasks()) == 1


def test_without_jit_the_planner_uses_a_built_solver(family, device, monkeypatch, caplog):
    """No compilation starts. The reason is logged once, and other processes can read it."""
    monkeypatch.setenv("DUALDNN_JIT", "off")
    with caplog.at_level(logging.WARNING, "dualdnn"):
        for _ in range(2):
            plan = family.plan_of(OPERATION, device)
            assert plan.solver == "slow" and result(plan, device) == 2
    assert not device.background.tasks()
    (logged,) = caplog.messages
    assert logged.startswith("slow serves instead of fast: ") and logged.endswith("is not compiled: DUALDNN_JIT=off")
    assert "DUALDNN_JIT=off" in information.facts()["served by fallbacks"]


def hide_compiler(monkeypatch, device):
    def missing(self, *_):
        raise DeviceUnavailable("there is no compiler")

    for name in ("require", "run"):
        monkeypatch.setattr(type(compiler.toolchain(device.architecture)), name, missing)


def test_without_a_compiler_the_planner_uses_a_built_solver(family, device, monkeypatch):
    hide_compiler(monkeypatch, device)
    assert family.plan_of(OPERATION, device).solver == "slow"
    monkeypatch.setattr(family.solvers[1], "serves", lambda problem: False)
    with pytest.raises(DeviceUnavailable, match=r"fast\.cu is not compiled: there is no compiler"):
        family.plan_of(OPERATION, device)


def test_of_solvers_that_do_not_apply_the_fastest_serves(device, monkeypatch, tmp_path):
    """The estimate decides, not the order of solvers, in which those for few elements come early."""
    made = SolverFamily(Problem, tuple(Storing(tmp_path, name, i) for i, name in enumerate(("fast", "few", "many"))))
    for solver, seconds in zip(made.solvers[1:], (3.0, 2.0), strict=True):
        compiler.build(Module(solver.source), device.architecture)
        monkeypatch.setattr(solver, "applies", lambda problem: False)
        monkeypatch.setattr(solver, "estimated_seconds", lambda problem, seconds=seconds: seconds)
    monkeypatch.setenv("DUALDNN_JIT", "off")
    assert made.plan_of(OPERATION, device).solver == "many"


def test_a_solver_that_needs_more_workspace_does_not_serve_meanwhile(family, device, monkeypatch):
    """A substitute that needs more workspace than was reported for the preferred solver cannot serve.

    If nothing can be compiled, the substitute's own workspace is reported.
    """
    family.solvers[1].workspace = 64
    with monkeypatch.context() as patch:
        patch.setenv("DUALDNN_JIT", "off")
        assert family.workspace_bytes(OPERATION, device) == 64
        assert family.plan_of(OPERATION, device).solver == "slow"
    assert family.workspace_bytes(OPERATION, device) == 0
    assert family.plan_of(OPERATION, device).solver == "fast" and not device.background.tasks()


@pytest.mark.parametrize("jit", ["", "off"])
def test_the_workspace_of_a_solver_named_by_the_caller_suffices(family, device, monkeypatch, jit):
    """The knob of a graph's engine names a solver."""
    compiler.build(Module(family.solvers[0].source), device.architecture)
    family.solvers[1].workspace = 64
    monkeypatch.setenv("DUALDNN_JIT", jit)
    assert [family.enough(Problem(OPERATION, device), name) for name in ("fast", "slow")] == [0, 64]


def test_a_query_of_a_solver_does_not_wait_for_its_kernel(family, device, monkeypatch):
    """A solver may have to query its kernel, for example for the number of clusters that fit the device."""
    asks = lambda problem: bool(family.solvers[0].launches(problem))  # noqa: E731
    monkeypatch.setattr(family.solvers[0], "serves", asks)
    with monkeypatch.context() as patch:
        patch.setenv("DUALDNN_JIT", "off")
        assert family.workspace_bytes(OPERATION, device) == 0 and family.plan_of(OPERATION, device).solver == "slow"
    assert family.workspace_bytes(OPERATION, device) == 0 and not device.background.tasks()
    plan = family.plan_of(OPERATION, device)
    assert plan.solver == "slow" and device.background.tasks()
    finish(device)
    assert result(plan, device) == 1


def test_an_inner_family_chooses_its_own_substitute(family, device, monkeypatch, tmp_path):
    """The outer solver plans another operation, whose family picks its own substitute."""

    class Outer(Storing):
        def launches(self, problem):
            return [step for step, _ in family.plan_of(OPERATION, device).steps]

    monkeypatch.setenv("DUALDNN_JIT", "off")
    assert result(SolverFamily(Problem, (Outer(tmp_path, "outer", 3),)).plan_of(OPERATION, device), device) == 2


def test_a_forced_solver_without_modules_has_a_substitute(family, device, monkeypatch):
    monkeypatch.setattr("dualdnn.accelerated.solver.forced_solvers", lambda: frozenset({"fast"}))
    with monkeypatch.context() as patch:
        patch.setenv("DUALDNN_JIT", "off")
        assert family.plan_of(OPERATION, device).solver == "slow"
    assert family.plan_of(OPERATION, device).solver == "fast"


def test_a_solver_named_by_the_caller_is_compiled(family, device, monkeypatch):
    assert family.plan(Problem(OPERATION, device), "fast").solver == "fast"


def test_without_a_compiler_a_module_that_does_not_load_has_a_substitute(family, device, monkeypatch):
    """A driver may be too old for a shipped module. A device with a compiler compiles it again."""
    compiler.build(Module(family.solvers[0].source), device.architecture)
    load, refused = device._load_module, []

    def refuse_once(path, content):
        if path.name.startswith(f"{family.solvers[0].source.parent.name}_fast") and not refused:
            refused.append(path)
            raise DeviceError("the driver refuses it")
        return load(path, content)

    monkeypatch.setattr(device, "_load_module", refuse_once)
    with monkeypatch.context() as patch:
        hide_compiler(patch, device)
        assert family.plan_of(OPERATION, device).solver == "slow" and refused
    assert "(the driver refuses it): there is no compiler" in fallbacks.summary()
    refused.clear()
    assert family.plan_of(OPERATION, device).solver == "fast" and refused


def test_a_note_is_logged_once_although_others_come_between(device, caplog):
    with caplog.at_level(logging.WARNING, "dualdnn"):
        for module in ("one.cu", "two.cu") * 2:
            fallbacks.note("fast", "slow", f"{module} is not compiled")
    assert len(caplog.messages) == 2


@pytest.mark.parametrize("waits", ["the environment", "the device"])
def test_the_environment_or_the_device_may_wait_for_compilation(family, device, monkeypatch, waits):
    """The emulated device waits for compilation, so that timing does not decide which kernel serves."""
    if waits == "the environment":
        monkeypatch.setenv("DUALDNN_JIT", "wait")
    else:
        monkeypatch.setattr(device, "compiles_in_background", False)
    assert family.plan_of(OPERATION, device).solver == "fast" and not device.background.tasks()


def test_a_source_that_the_compiler_refuses_leaves_the_other_solver(family, device, caplog):
    family.solvers[0].source.write_text(SOURCE.replace("NAME", "fast").replace("VALUE", "nothing"))
    plan = family.plan_of(OPERATION, device)
    finish(device)
    with caplog.at_level(logging.WARNING, "dualdnn"):
        assert [result(plan, device) for _ in range(2)] == [2, 2]
    assert len(caplog.messages) == 1 and "its modules cannot be had: fast.cu" in caplog.messages[0]


def test_an_unknown_value_of_dualdnn_jit_is_refused(family, device, monkeypatch):
    monkeypatch.setenv("DUALDNN_JIT", "never")
    with pytest.raises(ValueError, match="DUALDNN_JIT='never': expected off or wait, or nothing"):
        family.plan_of(OPERATION, device)


def test_a_summary_of_many_notes_is_short(tmp_path, monkeypatch):
    """The newest notes come first, without definitions, and the last line names the folder with the others."""
    monkeypatch.setenv("DUALDNN_CACHE", str(tmp_path))
    monkeypatch.setattr(fallbacks, "_noted", set())
    named = Module(Path("fast.cu"), (("N", "8"), ("LIST", "{1, 2}"), ("ELEMENT", "half")))
    for i in range(9):
        fallbacks.note(f"fast{i}", "slow", f"{named} is not compiled: no compiler")
        os.utime(max((tmp_path / "fallbacks").iterdir(), key=lambda path: path.stat().st_mtime), (i, i))
    lines = fallbacks.summary().splitlines()
    assert lines[0] == "slow instead of fast8: fast.cu is not compiled: no compiler"
    assert len(lines) == 4 and lines[3] == f"and 6 more in {tmp_path / 'fallbacks'}"
