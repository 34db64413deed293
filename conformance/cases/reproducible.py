"""Holds cases of this edition's levels of reproducibility (docs/reproducibility.md).

They judge the accelerated backend at each level. The option --reproducible judges any subject as it computes by
default.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from dualdnn.api import cudnn as api
from dualdnn.api import operations as ops
from dualdnn.api.operations.backend import LEVELS
from dualdnn.api.operations.graph_patterns import ALGORITHMS
from dualdnn.api.status import BAD_PARAM, NOT_SUPPORTED, CudnnError
from dualdnn.conformance import bits
from dualdnn.conformance.bits.graphs import FUSED_OVER_IMAGES, GRAPHS_AND_FUSED
from dualdnn.conformance.bits.operations import (
    ALONE,
    DROPPING,
    OVER_IMAGES,
    OVER_SEQUENCES,
    OVERLAPPED,
    SEQUENCES_AND_GRIDS,
    WITHIN_IMAGES,
    convolution,
)
from dualdnn.conformance.calls import Caller
from dualdnn.conformance.marks import shows

if TYPE_CHECKING:
    from dualdnn.conformance.subjects import Subject

CLAUSE = "dualdnnReproducible"
FORWARD = api.cudnnConvolutionFwdAlgo_t
EVERY_ALONE = {**ALONE, **GRAPHS_AND_FUSED}
EVERY_OVER = {**OVER_IMAGES, **OVER_SEQUENCES, **FUSED_OVER_IMAGES, **DROPPING}


@pytest.fixture
def at(request: pytest.FixtureRequest, subject: Any) -> Callable[[str], Caller]:
    """Return a function that makes a caller of a level; it skips subjects and levels that were not requested."""
    asked = request.config.getoption("--reproducible")

    def caller(level: str) -> Caller:
        if asked and LEVELS.index(level) > LEVELS.index(asked):
            pytest.skip(f"--reproducible {asked} asks for no more")
        if has_levels(subject):
            made = subject.cudnn.cudnnCreate(backend=subject.backend, device=subject.device, reproducible=level)
            return Caller(subject.cudnn, made)
        if not asked:
            pytest.skip(
                "levels of reproducibility are a promise of the accelerated backend; --reproducible judges others"
            )
        return Caller(subject.cudnn, request.getfixturevalue("handle"))

    return caller


def has_levels(subject: Any) -> bool:
    """Return whether handles of a subject take every level; those of the reference take ``run`` alone."""
    return getattr(subject, "backend", "") in ("accelerated", "crosscheck")


def all_the_same(wrong: list[str]) -> None:
    if wrong:
        pytest.fail("other bits: " + "; ".join(wrong[:6]), pytrace=False)


@shows(f"{CLAUSE}/c01")
def test_a_level_is_one_of_four(subject: Subject) -> None:
    if not subject.ours or not hasattr(subject, "backend"):
        pytest.skip("handles of C take no level")
    for level in ("bits", "", 1, "BATCH"):
        with pytest.raises(CudnnError, match=f"reproducible is {level!r}, not one of run, batch, device") as refusal:
            subject.cudnn.cudnnCreate(backend=subject.backend, device=subject.device, reproducible=level)
        assert (refusal.value.status, refusal.value.clause) == (BAD_PARAM, f"{CLAUSE}/c01")


@shows(f"{CLAUSE}/c02")
@pytest.mark.parametrize("name", [*WITHIN_IMAGES, *OVER_IMAGES][::7])
def test_a_call_that_is_made_again(at: Any, name: Any) -> None:
    caller, operation = at("run"), {**WITHIN_IMAGES, **OVER_IMAGES}[name]
    memory = bits.memory_of(operation)
    assert len({bits.hashed(bits.results(caller, operation, memory)) for _ in range(3)}) == 1


@shows(f"{CLAUSE}/c03")
@pytest.mark.parametrize("name", EVERY_ALONE)
def test_an_image_alone_and_in_batches(at: Any, name: Any) -> None:
    caller, operation = at("device" if name in OVERLAPPED else "batch"), EVERY_ALONE[name]
    all_the_same(bits.of_batches(caller, operation))
    for solver in bits.solvers_of(caller, operation):
        with bits.by_solver(caller, solver):
            all_the_same(bits.of_batches(caller, operation))


@shows(f"{CLAUSE}/c04")
@pytest.mark.parametrize("name", [*EVERY_ALONE, *EVERY_OVER])
def test_any_number_of_multiprocessors(at: Any, subject: Subject, name: Any) -> None:
    caller, operation = at("device"), {**EVERY_ALONE, **EVERY_OVER}[name]
    if not subject.ours:
        pytest.skip("nobody can tell a foreign library how many multiprocessors it has")
    all_the_same(bits.of_multiprocessors(caller, operation))


@shows(f"{CLAUSE}/c08")
@pytest.mark.parametrize(
    "name",
    [
        *[name for name in WITHIN_IMAGES if not name.startswith(("data", "activation"))][::2],
        *(name for name in SEQUENCES_AND_GRIDS if name.startswith("sampler")),
        *(name for name in GRAPHS_AND_FUSED if name.startswith("fused-conv")),
    ],
)
def test_solvers_of_one_order(at: Any, subject: Subject, name: Any) -> None:
    caller = at("run")
    if getattr(subject, "backend", "") != "accelerated":
        pytest.skip("only the accelerated backend has solvers")
    all_the_same(bits.of_solvers(caller, EVERY_ALONE[name]))


def refused_as(call: Callable[[], object], clause: str) -> None:
    with pytest.raises(CudnnError) as refusal:
        call()
    assert (refusal.value.status, refusal.value.clause) == (NOT_SUPPORTED, f"{CLAUSE}/{clause}")


def only_ours(subject: Any) -> None:
    if not has_levels(subject):
        pytest.skip("only the accelerated backend promises levels, and refuses calls for one")


@shows(f"{CLAUSE}/c05")
@pytest.mark.parametrize("level", LEVELS[1:])
def test_a_family_without_orders_is_refused(at: Any, subject: Subject, level: Any) -> None:
    caller, operation = at(level), convolution(ops.ConvolutionForward, FORWARD(4), "fma-nchw", "3x3")
    only_ours(subject)
    refused_as(lambda: bits.results(caller, operation, bits.memory_of(operation)), "c05")


@shows(f"{CLAUSE}/c05")
def test_an_engine_without_an_order_is_refused(at: Any, subject: Subject) -> None:
    """A graph of one operation is refused like the operation itself: the engine of FFT declares no order."""
    caller, graph = at("batch"), GRAPHS_AND_FUSED["graph-one-float-nchw"]
    only_ours(subject)
    by_fft = replace(graph, engine=ALGORITHMS.index(replace(ALGORITHMS[graph.engine], algo=FORWARD(4))))
    refused_as(lambda: bits.results(caller, by_fft, bits.memory_of(by_fft)), "c05")


@shows(f"{CLAUSE}/c06")
def test_addresses_that_need_another_order_are_refused(at: Any, subject: Subject) -> None:
    caller, operation = at("batch"), convolution(ops.ConvolutionForward, FORWARD(1), "half-nhwc", "1x1")
    only_ours(subject)
    memory = {name: caller.handle.to_device(np.zeros(operation.nbytes(name) + 2, np.uint8)) for name in ("x", "w", "y")}
    bits.results(caller, operation, bits.memory_of(operation))
    apart = {name: buffer.slice(2, operation.nbytes(name)) for name, buffer in memory.items()}
    refused_as(lambda: caller(operation, {**apart, "workSpace": None}), "c06")


@shows(f"{CLAUSE}/c07")
def test_statistics_of_a_batch_are_refused_for_its_images(at: Any, subject: Subject) -> None:
    refused_by_definition(at("batch"), subject, "training-fma-nchw")


@shows(f"{CLAUSE}/c07")
@pytest.mark.parametrize("name", ["fused-dbatchnorm-float-nchw", *DROPPING])
def test_images_that_depend_on_others_are_refused(at: Any, subject: Subject, name: Any) -> None:
    refused_by_definition(at("batch"), subject, name)


def refused_by_definition(caller: Caller, subject: Any, name: str) -> None:
    only_ours(subject)
    operation = EVERY_OVER[name]
    refused_as(lambda: bits.results(caller, operation, bits.memory_of(operation)), "c07")


@shows(f"{CLAUSE}/c09")
@pytest.mark.parametrize("name", bits.recorded()["emulated"])
def test_hashes_of_an_earlier_release(at: Any, subject: Subject, name: Any) -> None:
    caller = at("release")
    only_ours(subject)
    backend = caller.handle.backend
    architecture = getattr(backend, "accelerated", backend).planned_on.architecture
    known = bits.recorded().get(architecture, {}).get(name)
    if known is None:
        pytest.skip(f"no release has recorded hashes of {architecture}")
    assert bits.hash_of(caller, {**WITHIN_IMAGES, **OVER_IMAGES}[name]) == known


@shows(f"{CLAUSE}/c10")
def test_searches_report_one_order(at: Any, subject: Subject) -> None:
    caller, operation = at("batch"), convolution(ops.ConvolutionForward, FORWARD(1), "fma-nchw", "3x3")
    only_ours(subject)
    make, cudnn = caller.descriptor, caller.cudnn
    described = (make(operation.x), make(operation.w), make(operation.convolution), make(operation.y))
    for search in (cudnn.cudnnGetConvolutionForwardAlgorithm_v7, cudnn.cudnnFindConvolutionForwardAlgorithm):
        found = search(caller.handle, *described, 8).perfResults
        served = [each for each in found if each.status == api.CUDNN_STATUS_SUCCESS]
        hashes = set()
        for each in served:
            by = replace(operation, algo=each.algo, convolution=replace(operation.convolution, math_type=each.mathType))
            hashes.add(bits.hashed(bits.results(caller, by, bits.memory_of(operation))))
        assert len(served) > 1 and len(hashes) == 1
