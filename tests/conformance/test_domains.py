"""Test that calls accept the operations that domains draw, and that these reach the solvers of each family."""

from __future__ import annotations

from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from dualdnn.accelerated.runtime.emulated.device import EmulatedDevice
from dualdnn.accelerated.runtime.sources import entry_points
from dualdnn.accelerated.solver import SOLVER_FAMILIES, plan_by, possible_solvers
from dualdnn.api.operations import Operation
from dualdnn.api.support.convolution import Problem
from dualdnn.conformance.domains import DOMAINS, PROFILES, operations
from dualdnn.conformance.domains.convolution import MAX_TRANSFORMED, transformed
from dualdnn.conformance.fuzz.entries import Entry, parse_entry
from dualdnn.conformance.fuzz.judging import Judge
from dualdnn.conformance.fuzz.worker import BATCH
from dualdnn.conformance.subjects import open_subject
from hypothesis import HealthCheck, Phase, given, seed, settings

ALL = tuple(PROFILES.values())
OF_KERNELS = ("rnn", "attention", "ctc", "fused_ops", "graph")  # domains that soon draw every kernel of their folder
LONG = ("fused_ops",)  # domains that need 7 s to draw their last solver
# These solvers need shapes that the emulated device takes too long to judge, or several conditions that seldom coincide.
SELDOM = {
    "convolution": (
        "convolution.copied_patches",
        "convolution.data_gradient_copied_patches",
        "convolution.data_gradient_folded",
        "convolution.depthwise",
        "convolution.filter_gradient_",
        "convolution.implicit_gemm_tma_",
        "convolution.pack_groups",
    ),
}


def each(domain: Any, count: int, look: Any, profiles: Any = ALL, number: int = 1) -> None:
    """Call ``look`` with this number of operations of a domain."""
    drawing = settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )(given(operations(domain, profiles))(look))
    seed(number)(drawing)()


@pytest.fixture(scope="module")
def judge():
    return Judge([open_subject("reference")])


def kinds_of_operations(kind: type[Operation] = Operation) -> set[type[Operation]]:
    """Return the operations that calls make: the classes that no other operation derives from."""
    found = set().union(*map(kinds_of_operations, kind.__subclasses__()))
    return found or {kind}


def test_every_operation_has_a_domain():
    ours = {kind for kind in kinds_of_operations() if kind.__module__.startswith("dualdnn.")}  # Tests have others.
    assert ours == {kind for domain in DOMAINS.values() for kind in domain.operations}


@pytest.mark.long  # make fuzz also judges drawn operations, on both backends
@pytest.mark.parametrize("name", DOMAINS)
def test_drawn_operations_are_accepted_and_judged(name, judge):
    """The reference accepts each drawn operation, the judge passes it, and an entry equals its parsed line."""

    def look(drawn):
        entry = Entry(name, drawn, 3)
        assert judge.examine(entry) is None, str(entry)
        assert parse_entry(str(entry)) == entry

    each(DOMAINS[name], 25, look)


@pytest.mark.parametrize("profile", PROFILES)
def test_a_profile_keeps_its_limits(profile):
    wanted = PROFILES[profile]
    offsets = []

    def look(drawn):
        spec = drawn.operation.tensor("x")
        assert spec.count <= wanted.most
        assert wanted.special == (drawn.inputs in ("special", "ties_and_nan", "infinite"))
        offsets.extend(drawn.offsets)

    each(DOMAINS["activation"], 20, look, (wanted,))
    assert bool(offsets) <= bool(wanted.offset) and bool(offsets) >= (profile == "unaligned")


def test_drawn_fourier_transforms_are_small():
    """The emulated device transforms 12,000 elements a second."""
    read = []

    def look(drawn):
        (o,) = drawn.steps
        if "FFT" in getattr(getattr(o, "algo", None), "name", ""):
            x, y = (
                next(o.tensor(name) for name in names if name in o.operands) for names in (("x", "dx"), ("y", "dy"))
            )
            read.append(transformed(Problem(o.convolution, x, o.dw if "dw" in o.outputs else o.w, y)))

    each(DOMAINS["convolution"], 300, look, (PROFILES["edges"],), number=2)
    assert len(read) > 10 and max(read) <= MAX_TRANSFORMED


class Complete(Exception):
    """End the drawing when everything has been drawn."""


def planned(name: str, wanted: set[str], plans_all: bool) -> set[str]:
    """Return the wanted solvers and kernels that 2,000 operations do not draw.

    They are planned for the emulated device, without compiling anything. plans_all: plan a solver again, to find its
    other kernels.
    """
    device: Any = EmulatedDevice(0)
    missing = {one for one in wanted if not one.startswith(SELDOM.get(name, ("-",)))}

    def function(_source, kernel, *_):
        missing.discard(kernel)
        return SimpleNamespace(static_shared_bytes=0, maximum_threads=1024, holds_clusters=lambda *_: True, name=kernel)

    device.function = device.function_when_ready = function

    def look(drawn):
        for operation in drawn.steps:
            for solver in possible_solvers(operation, device):
                if solver in missing or plans_all:
                    plan_by(operation, device, solver)
                    missing.discard(solver)
        if not missing:
            raise Complete

    with suppress(Complete):
        for number in range(2000 // BATCH):  # The fuzzer draws in batches, too.
            each(DOMAINS[name], BATCH, look, number=number)
    return missing


def solvers_of(name: str) -> set[str]:
    return {solver.name for kind in DOMAINS[name].operations for solver in SOLVER_FAMILIES[kind].solvers}


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in DOMAINS if name not in OF_KERNELS])
def test_the_solvers_of_a_family_are_drawn(name):
    assert not planned(name, solvers_of(name), False)


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.long if n in LONG else ()) for n in OF_KERNELS])
def test_the_solvers_and_kernels_of_a_family_are_drawn(name):
    kernels = {kernel for kernel in entry_points() if kernel.startswith(f"{name}_")}
    assert kernels and not planned(name, solvers_of(name) | kernels, True)
