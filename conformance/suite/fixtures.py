"""Provide fixtures to cases: a subject, its handle, and functions that call and judge it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from dualdnn.api import releases
from dualdnn.api.enumerations import cudnnStatus_t
from dualdnn.api.operations import Operation
from dualdnn.api.status import CudnnError

from ..calls import Caller, function_of, roomy, sized
from ..solvers import PREFERRED, by_solvers, noted, threads_ordered, with_workspace
from ..subjects import Subject
from ..trial import Step, Trial, attempt_chain, prepare
from .evidence import EVIDENCE, Evidence
from .items import case_id, opened
from .running import GPU_ONLY


@pytest.fixture(scope="session")
def subject(request: pytest.FixtureRequest) -> Subject:
    return opened(request.param)


@pytest.fixture(autouse=True)
def has_what_the_case_needs(request: pytest.FixtureRequest) -> None:
    """Skip a case that needs what the subject does not have."""
    for mark in request.node.iter_markers("needs"):
        attribute, reason = mark.args
        if not getattr(request.getfixturevalue("subject"), attribute):
            pytest.skip(reason)


@pytest.fixture(autouse=True)
def acts_as_its_release(request: pytest.FixtureRequest) -> Iterator[None]:
    """Answer calls without a handle as the subject's release does."""
    release = request.getfixturevalue("subject").release if "subject" in request.fixturenames else None
    with releases.acting(release):
        releases.noted = []
        yield
    releases.noted = None


def served(clause: str) -> bool:
    """Return whether a release served something in this case that the clause refuses."""
    return any(clause in entry.clauses for entry in releases.noted or ())


@pytest.fixture
def cudnn(subject: Subject) -> Any:
    return subject.cudnn


@pytest.fixture
def handle(request: pytest.FixtureRequest, subject: Subject) -> Iterator[Any]:
    """Yield a handle of the subject, or skip the case without one (a library without a GPU)."""
    if not subject.computes:
        pytest.skip(GPU_ONLY)
    made = subject.new_handle()
    with threads_ordered(made, case_id(request.node, request.node.callspec.params.get("subject", ""))):
        yield made
    if getattr(made, "alive", True):
        subject.cudnn.cudnnDestroy(made)


@pytest.fixture
def logged(cudnn: Any) -> Iterator[Callable[..., list[Any]]]:
    """Yield a function that sets a user callback of a mask and returns the list of its messages; it is removed again."""

    def log(mask: int, udata: Any = None) -> list[Any]:
        messages: list[Any] = []
        cudnn.cudnnSetCallback(mask, udata, lambda *message: messages.append(message))
        return messages

    yield log
    cudnn.cudnnSetCallback(0, None, None)


def fresh_descriptor(kind: str) -> Any:
    """Return a fixture: a descriptor of this kind that no setter has touched."""

    @pytest.fixture
    def fresh(cudnn: Any) -> Iterator[Any]:
        descriptor = getattr(cudnn, f"cudnnCreate{kind}Descriptor")()
        yield descriptor
        getattr(cudnn, f"cudnnDestroy{kind}Descriptor")(descriptor)

    return fresh


@pytest.fixture
def caller(subject: Subject, handle: Any) -> Caller:
    return Caller(subject.cudnn, handle, any_engine=not subject.cites_clauses)


@pytest.fixture
def evidence(request: pytest.FixtureRequest, subject: Subject) -> Evidence:
    found = Evidence(request.node, subject.ours)
    request.node.stash[EVIDENCE] = found
    return found


def judged_by(
    caller: Caller,
    evidence: Evidence,
    solvers: str,
    steps: Sequence[Step],
    seed: int,
    before: Any = None,
    offsets: Mapping[str, int] | None = None,
) -> Trial:
    """Make the calls; fail unless the outputs agree with the judge and nothing else changed.

    For our backends a suspect output fails too.
    """

    seed += evidence.item.config.getoption("--input-seed")
    if not evidence.ours:  # Another library keeps other data in its spaces.
        steps = [replace(step, operation=roomy(caller, step.operation)) for step in steps]

    def run(solver: str | None = None) -> Trial:
        result = attempt_chain(caller, with_workspace(caller.handle, steps) if solver else steps, seed, before, offsets)
        for one in result.whole:
            evidence.note(one)
        suspicions = [said for one in result.whole for said in one.verdict.suspicions] if evidence.ours else []
        if not result.passed or suspicions:
            said = "\n".join(f"{step.operation}\ninputs {step.inputs!r}, seed {seed}" for step in steps)
            by = f" (solver {solver})" if solver else ""
            explanation = "\n".join(filter(None, [result.explanation(), *(f"suspect: {one}" for one in suspicions)]))
            pytest.fail(f"{explanation}{by}\n{said}", pytrace=False)
        return result

    with noted(evidence.used):
        return by_solvers(caller.handle, [step.operation for step in steps], run, solvers, evidence.used)


@pytest.fixture
def trial(caller: Caller, evidence: Evidence, solvers: str) -> Callable[..., Trial]:
    """Return a function that runs an operation and fails unless the outputs agree with the judge and nothing
    else changed.
    """

    def run(
        operation: Operation,
        inputs: str | Mapping[str, str] = "normal",
        seed: int = 0,
        aliases: Mapping[str, str] | None = None,
        before: Any = None,
        offsets: Mapping[str, int] | None = None,
    ) -> Trial:
        return judged_by(caller, evidence, solvers, [Step(operation, aliases or {}, inputs)], seed, before, offsets)

    return run


@pytest.fixture
def run(trial: Callable[..., Trial], caller: Caller) -> Callable[..., Trial]:
    """Return ``trial`` with the workspace that the subject asks for."""
    return lambda operation, **options: trial(sized(caller, operation), **options)


@pytest.fixture
def chain(caller: Caller, evidence: Evidence, solvers: str) -> Callable[..., Trial]:
    """Return a function that runs operations (or ``Step``) in order on shared memory, as ``trial`` runs one.

    Operands with the same name share memory.
    """

    def run(
        *steps: Operation | Step, seed: int = 0, before: Any = None, offsets: Mapping[str, int] | None = None
    ) -> Trial:
        made = [step if isinstance(step, Step) else Step(step) for step in steps]
        return judged_by(caller, evidence, solvers, made, seed, before, offsets)

    return run


@pytest.fixture
def solvers(request: pytest.FixtureRequest, subject: Subject) -> str:
    """Return the solvers by which trials run."""
    wanted: str = request.config.getoption("--solvers")
    return wanted if subject.name.startswith("accelerated") else PREFERRED


@pytest.fixture
def refuses(subject: Subject, evidence: Evidence) -> Callable[..., bool]:
    """Return a check that a call raises this status and, on our backends, cites this clause.

    ``unchanged`` buffers must keep their bytes. A subject that acts as a release may serve the call, if the declared
    differences say so.
    """

    def check(
        status: cudnnStatus_t,
        clause: str,
        call: Callable[..., Any],
        *args: Any,
        unchanged: tuple[Any, ...] = (),
        **kwargs: Any,
    ) -> bool:
        """Return whether the subject's release serves the call instead."""
        evidence.clauses.add(clause)
        before = [buffer.to_host(np.uint8, buffer.nbytes) for buffer in unchanged]
        try:
            call(*args, **kwargs)
        except CudnnError as error:
            if served(clause):
                return True
            if error.status != status:
                pytest.fail(f"expected {status.name}, got: {error}", pytrace=False)
            if subject.cites_clauses and error.clause != clause:
                pytest.fail(f"right status for the wrong reason: expected clause {clause}, got: {error}", pytrace=False)
        else:
            if served(clause):
                return True
            name = function_of(type(args[0])) if isinstance(call, Caller) else getattr(call, "__name__", call)
            pytest.fail(f"{name} succeeded, expected {status.name} [{clause}]", pytrace=False)
        for buffer, bytes_ in zip(unchanged, before, strict=True):
            if not np.array_equal(buffer.to_host(np.uint8, buffer.nbytes), bytes_):
                pytest.fail("the refused call changed memory", pytrace=False)
        return False

    return check


@pytest.fixture
def refused(caller: Caller, refuses: Callable[..., bool], run: Callable[..., Trial]) -> Callable[..., None]:
    """Return a check that an operation's call raises this status and clause, and does not change its operands.

    A call that a release serves is judged.
    """

    def check(
        operation: Operation, status: cudnnStatus_t, clause: str, aliases: Mapping[str, str] | None = None
    ) -> None:
        memory = prepare(operation, "normal", 0, aliases)
        buffers = {name: caller.handle.to_device(memory[name]) for name in memory if name not in (aliases or {})}
        operands = {name: buffers[(aliases or {}).get(name, name)] for name in memory}
        if refuses(status, clause, caller, operation, operands, unchanged=tuple(buffers.values())):
            with suppress(CudnnError):  # The release may refuse something else in the call.
                run(operation, aliases=aliases)

    return check
