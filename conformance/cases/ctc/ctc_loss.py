"""Holds cases of the CTC loss with labels in host memory (cudnnCTCLoss) and in device memory (cudnnCTCLoss_v8)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from dualdnn.api.enumerations import cudnnCTCLossAlgo_t, cudnnLossNormalizationMode_t, cudnnNanPropagation_t
from dualdnn.api.operations import CTCLoss, CTCLoss_v8, CTCLossSpec, TensorSpec
from dualdnn.api.operations.specs import FLOAT, INT32
from dualdnn.api.status import BAD_PARAM
from dualdnn.conformance.calls import sized
from dualdnn.conformance.layouts import laid_out
from dualdnn.conformance.marks import needs, shows
from dualdnn.conformance.trial import Called, prepare

if TYPE_CHECKING:
    from dualdnn.conformance.calls import Caller
    from dualdnn.conformance.subjects import Subject
    from dualdnn.conformance.trial import Trial

DETERMINISTIC, OTHER = cudnnCTCLossAlgo_t
NONE, SOFTMAX = cudnnLossNormalizationMode_t
ZERO, KEEP = cudnnNanPropagation_t
HOST = "cudnnCTCLoss"
DEVICE = "cudnnCTCLoss_v8"
DIMS = (9, 3, 5)
LABELS = (1, 4, 4, 2, 3, 1, 1)
LABEL_LENGTHS = (4, 1, 2)
INPUT_LENGTHS = (9, 4, 7)
KINDS = {NONE: "positive", SOFTMAX: "wide"}
modes = pytest.mark.parametrize("mode", [NONE, SOFTMAX], ids=["none", "softmax"])
algorithms = pytest.mark.parametrize("algo", [DETERMINISTIC, OTHER], ids=["deterministic", "other"])
calls = pytest.mark.parametrize("call", [HOST, DEVICE])


def host(dims: tuple[int, ...] = DIMS, labels: Sequence[int] = LABELS, label_lengths: Sequence[int] = LABEL_LENGTHS,
         input_lengths: Sequence[int] = INPUT_LENGTHS, *, mode: Any = SOFTMAX, nan: Any = ZERO, algo: Any = DETERMINISTIC,
         layout: str = "nchw", gradients: bool = True) -> CTCLoss:  # fmt: skip
    """Return an operation on labels in host memory."""
    spec = laid_out(FLOAT, dims, layout)
    costs = TensorSpec(FLOAT, (dims[1],), (1,))
    return CTCLoss(
        CTCLossSpec(FLOAT, mode, nan), algo, tuple(labels), tuple(label_lengths), tuple(input_lengths), 0, spec, costs,
        spec if gradients else None,
    )  # fmt: skip


def device(dims: tuple[int, ...] = DIMS, longest: int = 4, *, mode: Any = SOFTMAX, nan: Any = ZERO, algo: Any = DETERMINISTIC,
           layout: str = "nchw", gradients: bool = True) -> CTCLoss_v8:  # fmt: skip
    """Return an operation on labels in device memory."""
    spec = laid_out(FLOAT, dims, layout)
    each, lengths = TensorSpec(FLOAT, (dims[1],), (1,)), TensorSpec(INT32, (dims[1],), (1,))
    labels = TensorSpec(INT32, (max(1, longest * dims[1]),), (1,))
    loss = CTCLossSpec(FLOAT, mode, nan, longest)
    return CTCLoss_v8(loss, algo, 0, spec, labels, lengths, lengths, each, spec if gradients else None)


CALLS: dict[str, Callable[..., Any]] = {HOST: host, DEVICE: device}


def lists(
    labels: Sequence[int], label_lengths: Sequence[int], input_lengths: Sequence[int], room: int = 0
) -> dict[str, Any]:
    """Return the lists of a call on labels in device memory as bytes of its memory."""
    listed = [*labels, *[-1] * (room - len(labels))]
    named = {"labels": listed, "labelLengths": label_lengths, "inputLengths": input_lengths}
    return {name: np.array(values, np.int32).view(np.uint8) for name, values in named.items()}


def zeros(caller: Any, nbytes: int) -> Any:
    """Return zeros in device memory."""
    return caller.handle.to_device(np.zeros(nbytes, np.uint8))


@pytest.fixture
def judged(trial: Callable[..., Trial], caller: Caller) -> Any:
    """Run a trial with positive probabilities and the workspace that the subject asks for."""

    def run(operation: Any, inputs: str | None = None, **options: Any) -> Any:
        return trial(sized(caller, operation), inputs or KINDS[operation.ctc_loss.normalization], **options)

    return run


FORMULA = (1, 3, 4, 5, 9, 10, 11, 12, 13)


@shows("cudnnCTCLoss/c01-c13", "cudnnLossNormalizationMode_t/c02 c03", "cudnnGetCTCLossWorkspaceSize/c02")
@algorithms
@modes
def test_labels_of_the_host(judged: Any, mode: Any, algo: Any) -> None:
    """Labels may repeat, input lengths may be shorter than the time steps, and labels after the last sequence do not
    count."""
    judged(host(mode=mode, algo=algo))
    judged(host(labels=(*LABELS, -1), mode=mode, algo=algo))


@shows("cudnnCTCLoss_v8/c01 c04-c15", "cudnnSetCTCLossDescriptor_v8/c02", "cudnnGetCTCLossWorkspaceSize_v8/c02")
@algorithms
@modes
def test_labels_of_the_device(judged: Any, mode: Any, algo: Any) -> None:
    for longest in (4, 9):  # The lengths bound each list, not the longest label.
        before = lists(LABELS, LABEL_LENGTHS, INPUT_LENGTHS, 3 * longest)
        judged(device(longest=longest, mode=mode, algo=algo), before=before)


@shows(f"{HOST}/c08", f"{HOST}/c10")
@modes
def test_gradients_end_with_the_input(judged: Any, mode: Any) -> None:
    found = judged(host(mode=mode), None if mode == NONE else "normal")
    gradients = found.after["gradients"].view(np.float32).reshape(DIMS)
    for n, times in enumerate(INPUT_LENGTHS):
        assert gradients[:times, n].all() and not gradients[times:, n].any()


@shows(f"{HOST}/c03", f"{DEVICE}/c05")
def test_probabilities_of_zero(judged: Any) -> None:
    """Labels whose alignments all have probability 0 cost infinity, and NaN counts only on an alignment that meets it."""
    p = np.random.default_rng(2).uniform(0.1, 1, (6, 5, 4)).astype(np.float32)
    p[:, 0, 2] = 0
    p[3, 1] = (0, 0.5, 0, 0)
    p[0, 2, 3] = np.nan
    p[2, 3, 1] = np.nan
    for nan in (ZERO, KEEP):
        operation = host((6, 5, 4), (2, 1, 2, 1, 2, 3, 1, 3), (1, 2, 3, 1, 1), (6,) * 5, mode=NONE, nan=nan)
        judged(operation, before={"probs": p.reshape(-1).view(np.uint8)})


@shows(f"{HOST}/c04", f"{DEVICE}/c06")
def test_probabilities_that_underflow(judged: Any) -> None:
    """Costs are right where probabilities underflow, because their logarithms fit."""
    x = (80 * np.random.default_rng(5).standard_normal((7, 3, 5))).astype(np.float32)
    judged(host((7, 3, 5), input_lengths=(7, 4, 5)), before={"probs": x.reshape(-1).view(np.uint8)})


# The first sequence has more labels than time steps; the last one lacks a step because a label repeats. Where the labels
# or lengths are read one place further on, one of them becomes feasible.
INFEASIBLE: Mapping[str, Any] = {
    "labels": (1, 2, 3, 1, 1, 1, 3, 2, 2),
    "label_lengths": (5, 1, 3),
    "input_lengths": (4, 4, 3),
}


@shows("cudnnSetCTCLossDescriptorEx/c03-c05", "cudnnSetCTCLossDescriptor_v8/c04-c06")
@modes
@pytest.mark.parametrize("nan", [ZERO, KEEP], ids=["zero", "keep"])
@calls
def test_more_labels_than_time_steps(judged: Any, call: Any, nan: Any, mode: Any) -> None:
    """Where L + R > T the cost is 0 and gradients are zero or unchanged, even NaN. The sequence in between is right."""
    operation = host((5, 3, 4), **INFEASIBLE, mode=mode, nan=nan)
    before = {}
    if call == DEVICE:
        operation = device((5, 3, 4), 5, mode=mode, nan=nan)
        before = lists(INFEASIBLE["labels"], INFEASIBLE["label_lengths"], INFEASIBLE["input_lengths"], 9)
    prior = np.random.default_rng(3).standard_normal((5, 3, 4)).astype(np.float32)
    prior[::2] = np.nan
    before["gradients"] = prior.reshape(-1).view(np.uint8)
    found = judged(operation, None if mode == NONE else "normal", before=before)
    gradients = found.after["gradients"].view(np.float32).reshape(5, 3, 4)
    expected = prior if nan == KEEP else np.zeros_like(prior)
    np.testing.assert_array_equal(gradients[:, ::2], expected[:, ::2])
    assert np.isfinite(gradients[:, 1]).all() and gradients[:4, 1].all()
    assert not found.after["costs"].view(np.float32)[::2].any()


@shows("cudnnCTCLossAlgo_t/c01")
@calls
@algorithms
def test_the_same_again(caller: Caller, call: Any, algo: Any) -> None:
    """Two calls with many equal labels give the same bits."""
    operation: Any = sized(caller, host((40, 2, 3), [1, 2] * 20, (20, 20), (40, 39), algo=algo))
    lists_ = {}
    if call == DEVICE:
        operation = sized(caller, device((40, 2, 3), 20, algo=algo))
        lists_ = lists([1, 2] * 20, (20, 20), (40, 39))
    x = np.random.default_rng(4).standard_normal((40, 2, 3)).astype(np.float32)
    found = set()
    for _ in range(3):
        memory = {
            **lists_,
            "probs": x,
            "gradients": np.full(x.shape, np.nan, np.float32),
            "costs": np.zeros(2, np.float32),
        }
        buffers = {name: caller.handle.to_device(array) for name, array in memory.items()}
        caller(operation, {**buffers, "workspace": caller.handle.allocate(operation.workspace_bytes)})
        found.add(
            buffers["costs"].to_host(np.uint8, 8).tobytes() + buffers["gradients"].to_host(np.uint8, x.nbytes).tobytes()
        )
    assert len(found) == 1


@shows(f"{DEVICE}/c08-c10")
@pytest.mark.parametrize("nan", [ZERO, KEEP], ids=["zero", "keep"])
@needs("cites_clauses", "what a foreign library reads then is not determined")
def test_lists_of_the_device_are_not_trusted(judged: Any, nan: Any) -> None:
    """A sequence with an invalid label (such as the blank) or length counts as one without an alignment."""
    labels = (1, 2, 3, 3, 2, 0, 3, 4, 1, 2**31 - 1, 2, 1, 3)
    label_lengths, input_lengths = (4, 2, -1, 1, 2, 2, 1, 1, 1), (6, 6, 6, 6, 6, 6, 7, -1, 6)
    before = lists(labels, label_lengths, input_lengths, 27)
    judged(device((6, 9, 4), 3, nan=nan), before=before)


@shows(f"{DEVICE}/c08", f"{DEVICE}/c09")
@needs("knows_sizes", "a foreign library is not told how large memory is")
def test_labels_have_the_memory_that_their_lengths_say(caller: Caller) -> None:
    """The list of labels may be shorter than maxLabelLength for each sequence, empty, or end within a label."""
    for lengths in ((2, 0, 1), (0, 0, 0)):
        found = []
        for room in (sum(lengths), 12):
            operation: Any = sized(caller, device())
            memory = lists((1, 2, 3)[: sum(lengths)], lengths, (9, 9, 9), room)
            memory["probs"] = np.linspace(-2, 2, 135, dtype=np.float32) ** 3
            if room < 12:
                memory["labels"] = np.append(memory["labels"], np.full(3, 1, np.uint8))
            buffers = {name: caller.handle.to_device(array) for name, array in memory.items()}
            buffers |= {name: zeros(caller, operation.nbytes(name)) for name in ("costs", "gradients", "workspace")}
            caller(operation, buffers)
            found.append(buffers["gradients"].to_host(np.float32, 135))
        np.testing.assert_array_equal(*found)


@shows("cudnnGetCTCLossWorkspaceSize/c01 c05", "cudnnGetCTCLossWorkspaceSize_v8/c01 c03 c04", "cudnnCTCLoss/c12 c16", "cudnnCTCLoss_v8/c14 c18")  # fmt: skip
@algorithms
@calls
def test_workspaces(subject: Subject, caller: Caller, refuses: Callable[..., bool], call: Any, algo: Any) -> None:
    """The queried size is enough, and one byte less is refused."""
    operation: Any = sized(caller, CALLS[call](algo=algo))
    assert operation.workspace_bytes > 0
    assert operation.workspace_bytes == sized(caller, replace(operation, workspace_bytes=0)).workspace_bytes
    clause, size = (
        (f"{HOST}/c16", "workspaceSizeInBytes") if call == HOST else (f"{DEVICE}/c18", "workSpaceSizeInBytes")
    )
    made = Called(caller, operation)
    made()
    for few in (operation.workspace_bytes - 1, 0):
        refuses(BAD_PARAM, clause, made, **{size: few})
    if subject.knows_sizes:  # A foreign library cannot see the size of memory.
        refuses(BAD_PARAM, clause, made, workspace=made.memory["workspace"].slice(0, operation.workspace_bytes - 1))


@shows(f"{HOST}/c09", f"{DEVICE}/c11")
@calls
@needs("survives_stray_pointers", "a fault on a GPU ends the process's work there")
def test_a_descriptor_without_gradients(caller: Caller, call: Any) -> None:
    """NULL gradients are not computed, even if they are described: the costs are the same."""
    operation = sized(caller, CALLS[call]())
    buffers = {name: caller.handle.to_device(bytes_) for name, bytes_ in prepare(operation, "positive", 0).items()}
    costs = []
    for gradients in (buffers["gradients"], None):
        buffers["costs"] = zeros(caller, operation.nbytes("costs"))
        caller(operation, {**buffers, "gradients": gradients})
        costs.append(buffers["costs"].to_host(np.float32, operation.costs.count))
    assert np.array_equal(*costs) and np.isfinite(costs[0]).all() and costs[0].any()
