"""Holds cases of the calls on recurrent networks before version 8, which describe the same operations differently."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from dualdnn.api.enumerations import cudnnForwardMode_t, cudnnRNNMode_t
from dualdnn.api.operations import BackendError, TensorSpec
from dualdnn.api.operations.rnn import RNNClipSpec
from dualdnn.api.operations.specs import DOUBLE, FLOAT, HALF, INT8, NCHW, FilterSpec
from dualdnn.api.status import BAD_PARAM, EXECUTION_FAILED, NOT_SUPPORTED
from dualdnn.conformance.calls import Caller
from dualdnn.conformance.calls.rnn_before_8 import (
    DATA,
    DATA_DESCRIPTORS,
    EX,
    INFERENCE,
    NAMES,
    RESERVED,
    TRAINING,
    WEIGHTS,
    LegacyCaller,
)  # fmt: skip
from dualdnn.conformance.cases.rnn import rnn_descriptors as rnn
from dualdnn.conformance.cases.rnn.rnn_backward import training
from dualdnn.conformance.cases.rnn.rnn_forward import BATCH_MAJOR, PACKED, SEQ_MAJOR, forward, label, network
from dualdnn.conformance.marks import shows
from dualdnn.conformance.trial import Step, attempt_chain, prepare

if TYPE_CHECKING:
    from dualdnn.conformance.subjects import Subject
    from dualdnn.conformance.suite.evidence import Evidence

# Each call has clauses in this order: rnnDesc, other NULL descriptors, misfits. A refused persistent algorithm, a small
# workspace and a small reserve space follow.
CLAUSES = {
    INFERENCE: ("c45", "c46", "c47", "c44", "c48", None), TRAINING: ("c46", "c47", "c48", "cudnnRNNForward/c41", "c49", "c50"),
    DATA: ("c59", "c60", "c61", "c58", "c62", "c63"), WEIGHTS: ("c25", "c26", "c27", "c24", "c28", "c29"),
    EX[0]: ("c37", "c38", "c38", "c34", "c40", None), EX[1]: ("c41", "c42", "c42", "c38", "c43", "c44"),
    EX[2]: ("c45", "c46", "c46", "c42", "c47", "c48"), EX[3]: ("c19", "c20", "c20", "c18", "c21", "c22"),
}  # fmt: skip
# Each search names the call that it measures. Searches try every algorithm of the network, and refuse unsupported
# types.
FINDS = {f"cudnnFind{name.removeprefix('cudnn')}AlgorithmEx": name for name in NAMES}
CLAUSES |= dict(zip(FINDS, (
    ("c37", "c38", "c39", "c36", "c40", None), ("c52", "c53", "c54", "cudnnRNNForward/c41", "c55", "c56"),
    ("c67", "c68", "c69", "c66", "c70", "c71"), ("c33", "c34", "c35", "c32", "c36", "c37"),
), strict=True))  # fmt: skip
LENGTHS = (3, 2, 1)


@pytest.fixture
def judged(cudnn: Any, handle: Any, evidence: Evidence) -> Any:
    """Return a function that makes calls one after the other on shared memory, and judges each."""

    def run(extended: Any, *operations: Any, seed: int = 0, inputs: str = "normal") -> None:
        steps = [Step(operation, inputs=inputs) for operation in operations]
        found = attempt_chain(LegacyCaller(cudnn, handle, extended), steps, seed)
        evidence.note(found)
        if not found.passed:
            pytest.fail(f"{found.explanation()}\n{found.operation}", pytrace=False)

    return run


def plain(
    *,
    bias: Any = rnn.DOUBLE_BIAS,
    direction: Any = rnn.TWO_WAYS,
    input_mode: Any = rnn.LINEAR,
    cell: Any = rnn.LSTM,
    **others: Any,
) -> Any:
    return network(cell, bias, direction, input_mode, padded=False, **others)


@shows(f"{INFERENCE}/c02 c04-c06 c11 c24 c29 c42 c43", f"{TRAINING}/c02 c04 c05 c07 c12 c19 c26 c37 c44 c45",
       f"{DATA}/c02 c04 c05 c27 c34 c41 c56 c57",
       f"{WEIGHTS}/c02 c03 c05 c07 c21 c22 c23", f"{EX[0]}/c02 c05 c22 c25 c31-c33", f"{EX[1]}/c02 c05 c07 c16 c23 c24 c26 c32-c37",
       f"{EX[2]}/c02 c05 c07 c09 c10 c25 c26 c28 c29 c31 c32 c38-c41", f"{EX[3]}/c02 c05 c07-c09 c11-c17",
       "cudnnGetRNNTrainingReserveSize/c03 c04", "cudnnGetRNNWorkspaceSize/c03", "cudnnRNNMode_t/c01", "cudnnRNNInputMode_t/c01",
       "cudnnDirectionMode_t/c01", "cudnnRNNAlgo_t/c01", "cudnnSetRNNDescriptor_v6/c04")  # fmt: skip
@pytest.mark.parametrize("extended", [False, True], ids=["steps", "extended"])
@pytest.mark.parametrize("cell", cudnnRNNMode_t, ids=label)
def test_cells(judged: Any, cell: Any, extended: bool) -> None:
    """Inference, and the three calls of a training step, are right for packed sequences."""
    judged(extended, *training(plain(cell=cell, layers=1 if extended else 2), PACKED, LENGTHS))
    skipping = plain(cell=cell, bias=rnn.RECURRENT_BIAS, direction=rnn.ONE_WAY, input_mode=rnn.SKIP)
    judged(extended, forward(skipping, PACKED, LENGTHS, training=False))


@shows(f"{EX[0]}/c02-c04 c08 c26", f"{EX[1]}/c02-c04 c08 c27", f"{EX[2]}/c03 c04 c08 c11 c33", f"{EX[3]}/c02-c04")
@pytest.mark.parametrize("layout", [SEQ_MAJOR, BATCH_MAJOR], ids=label)
def test_padded_sequences(judged: Any, layout: Any) -> None:
    """The extended calls take padded sequences; padding of y and dx gets the fill of its descriptor."""
    judged(True, *training(network(rnn.GRU, projected=None), layout, (1, 3, 2), 4, -1.5))
    judged(True, forward(network(rnn.TANH, rnn.NO_BIAS), layout, (1, 3, 0), fill=0.5, training=False))


@shows(f"{INFERENCE}/c17 c23 c35 c41", f"{TRAINING}/c18 c25 c36 c43", f"{DATA}/c20 c26 c33 c40 c49 c55", f"{WEIGHTS}/c15",
       f"{EX[0]}/c15 c21 c28 c30", f"{EX[1]}/c15 c22 c29 c31", f"{EX[2]}/c18 c24 c27 c28 c30 c31 c35 c37", f"{EX[3]}/c10 c11")  # fmt: skip
@pytest.mark.parametrize("extended", [False, True], ids=["steps", "extended"])
def test_states_that_are_null(judged: Any, extended: bool) -> None:
    for null in (("hx", "cy", "dhx", "dcy"), ("hx", "cx", "hy", "cy", "dhy", "dhx", "dcy", "dcx")):
        judged(extended, *training(plain(layers=1), PACKED, LENGTHS, null=null))
        judged(extended, forward(plain(layers=1), PACKED, LENGTHS, training=False, null=null))
    judged(extended, *training(plain(cell=rnn.GRU, layers=1), PACKED, LENGTHS, null=("hx",)))


@shows(f"{EX[0]}/c24", f"{EX[1]}/c25", f"{EX[0]}/c12", f"{EX[1]}/c13", f"{EX[2]}/c15", "cudnnSetRNNProjectionLayers/c04",
       "cudnnRNNSetClip/c04", "cudnnRNNSetClip/c06", "cudnnRNNSetClip/c07", "cudnnSetRNNDescriptor_v6/c09")  # fmt: skip
def test_projection_clipping_and_types(judged: Any) -> None:
    """Projection, clipping and types from the older setters apply in the calls that describe each step."""
    for extended in (False, True):
        judged(extended, forward(plain(projected=3, layers=2), PACKED, LENGTHS, training=False))
        clip = RNNClipSpec(rnn.MINMAX, rnn.PROPAGATE, -0.3, 0.2)
        judged(extended, *training(plain(projected=3, clip=clip, layers=2), PACKED, LENGTHS))
        judged(extended, *training(plain(cell=rnn.GRU, data_type=DOUBLE, layers=1), PACKED, LENGTHS))
        for precision in (FLOAT, HALF):
            halves = plain(cell=rnn.GRU, data_type=HALF, precision=precision, layers=1)
            judged(extended, *training(halves, PACKED, LENGTHS))


@shows("cudnnRNNSetClip/c08")
@pytest.mark.parametrize("nan", [rnn.NOT_PROPAGATE, rnn.PROPAGATE], ids=label)
def test_clipping_of_nan(judged: Any, nan: Any) -> None:
    """A NaN in the cell state becomes the lower bound of the clipping range, or stays."""
    clip = RNNClipSpec(rnn.MINMAX, nan, -0.5, 0.25)
    operation = forward(plain(direction=rnn.ONE_WAY, layers=1, clip=clip), PACKED, (1, 1, 1), training=False)
    judged(False, operation, seed=1, inputs={"cx": "special"})


@shows("cudnnGetRNNTrainingReserveSize/c05")
def test_reserve_space_that_moves(cudnn: Any, handle: Any) -> None:
    """Gradients are the same, bit by bit, if the reserve space moves between the calls, and differ if it is lost."""
    caller = LegacyCaller(cudnn, handle, False)
    first, data, weights = training(plain(), PACKED, LENGTHS)
    random = np.random.default_rng(5)
    memory = {
        name: handle.to_device(random.standard_normal(o.nbytes(name) // 4 + 1).astype(np.float32))
        for o in (first, data, weights) for name in o.operands
    }  # fmt: skip
    found = []
    for moves, factor in ((False, 1), (True, 1), (True, 0)):
        memory["dweightSpace"] = handle.to_device(np.zeros(first.nbytes("weightSpace") // 4, np.float32))
        for operation in (first, data, weights):
            if moves:
                kept = memory["reserveSpace"].to_host(np.uint8, first.nbytes("reserveSpace"))
                moved = np.append(np.zeros(64, np.uint8), np.uint8(factor) * kept)
                memory["reserveSpace"] = handle.to_device(moved).slice(64, kept.size)
            caller(operation, memory)
        found.append(memory["dweightSpace"].to_host(np.float32, weights.dweightSpace.count))
    np.testing.assert_array_equal(*found[:2])
    assert (found[1] != found[2]).any()


def case_of(name: Any, **network: Any) -> Any:
    """Return the operation of a call, with packed sequences."""
    spec, name = plain(**(network or {"projected": 3})), FINDS.get(name, name)
    if name.removesuffix("Ex") == INFERENCE:
        return forward(spec, PACKED, LENGTHS, training=False)
    return training(spec, PACKED, LENGTHS)[(TRAINING, DATA, WEIGHTS).index(name.removesuffix("Ex"))]


class Prepared:
    """Holds a call and its right arguments by the names of the parameters."""

    def __init__(self, cudnn: Any, handle: Any, refuses: Any, name: str, operation: Any) -> None:
        self.name, self.function, self.refuses = name, getattr(cudnn, name), refuses
        self.caller, self.operation = LegacyCaller(cudnn, handle, name in EX), operation
        memory = {o: handle.to_device(np.zeros(operation.nbytes(o), np.uint8)) for o in operation.operands}
        self.good = self.caller.arguments(name, operation, memory)

    def __call__(self, **changes: Any) -> None:
        """Make the call with these arguments in place of others."""
        self.function(*{**self.good, **changes}.values())

    def refused(self, status: Any, clause: str, **changes: Any) -> None:
        """Check that the changed call is refused, by a clause of its own section if none is named."""
        clause = clause if "/" in clause else f"{self.name}/{clause}"
        self.refuses(status, clause, self.function, *{**self.good, **changes}.values())


@pytest.fixture
def prepared(cudnn: Any, handle: Any, refuses: Callable[..., bool]) -> Any:
    """Return a function that prepares a call, of its own sample or of an operation."""
    return lambda name, operation=None: Prepared(cudnn, handle, refuses, name, operation or case_of(name))


@shows(f"{INFERENCE}/c12-c16 c18-c22 c24 c30-c34 c36-c40 c44-c48", f"{TRAINING}/c13-c17 c20-c24 c26 c31-c35 c38-c42 c46-c50",
       f"{DATA}/c15-c19 c21-c25 c27-c32 c35-c39 c44-c48 c50-c54 c58-c63", f"{WEIGHTS}/c10-c14 c21 c24-c29",
       f"{EX[0]}/c09-c12 c14 c16-c20 c22 c27 c29 c34 c37 c38 c40", f"{EX[1]}/c09-c13 c17-c21 c23 c28 c30 c38 c41-c44",
       f"{EX[2]}/c12-c15 c17 c19-c23 c25 c26 c29 c34 c36 c42 c45-c48", f"{EX[3]}/c09 c14 c18-c22",
       "cudnnFindRNNForwardInferenceAlgorithmEx/c09 c10 c12 c13 c15 c20 c21 c23 c24 c37-c40",
       "cudnnFindRNNForwardTrainingAlgorithmEx/c09-c13 c16-c20 c22 c27-c31 c34-c38 c50 c52-c56",
       "cudnnFindRNNBackwardDataAlgorithmEx/c13-c17 c19-c23 c25-c30 c32-c36 c41-c45 c47-c51 c63 c64 c67-c71",
       "cudnnFindRNNBackwardWeightsAlgorithmEx/c08-c12 c29 c30 c33-c37",
       f"{INFERENCE}/c42", f"{TRAINING}/c44", f"{DATA}/c56", f"{WEIGHTS}/c22", f"{EX[0]}/c32", f"{EX[1]}/c36", f"{EX[2]}/c40",
       f"{EX[3]}/c16")  # fmt: skip
@pytest.mark.parametrize("name", CLAUSES)
def test_wrong_descriptors(cudnn: Any, prepared: Any, name: Any) -> None:
    """NULL and uninitialised descriptors, wrong dimensions of states, wrong weights, and small spaces are refused."""
    network_clause, invalid, shape, ragged, work, reserve = CLAUSES[name]
    call = prepared(name)
    for value in (None, cudnn.cudnnCreateRNNDescriptor()):
        call.refused(BAD_PARAM, network_clause, rnnDesc=value)
    others = ("dwDesc", "dyDesc", "dxDesc", *RESERVED)
    states = [p for p in call.good if p.endswith("Desc") and p[0] in "hcd" and p not in others]
    for direction in (rnn.ONE_WAY, rnn.TWO_WAYS):
        call = prepared(name, case_of(name, projected=3, direction=direction))
        n = call.operation.network
        for parameter in states:
            size, count = n.projected if "h" in parameter[:2] else n.hidden, n.pseudo_layers
            call.refused(BAD_PARAM, invalid, **{parameter: None})
            packed = [(count - 1, 3, size), (count + 1, 3, size), (count, 2, size), (count, 3, size + 1)]
            gaps = TensorSpec(FLOAT, (count, 3, size), (3 * size + 1, size, 1))
            for spec in (
                *(TensorSpec.packed(FLOAT, dims) for dims in packed), gaps, TensorSpec.packed(DOUBLE, gaps.dims),
            ):  # fmt: skip
                call.refused(BAD_PARAM, shape, **{parameter: call.caller.tensor(spec)})
    weights = "dwDesc" if "dwDesc" in call.good else "wDesc"
    for data_type, count in ((FLOAT, n.weight_elements - 1), (HALF, 2 * n.weight_elements)):
        wrong = call.caller.filter(FilterSpec(data_type, NCHW, (count, 1, 1)))
        call.refused(BAD_PARAM, shape, **{weights: wrong})
    call.refused(BAD_PARAM, invalid, **{weights: None})
    for parameter in (p for p in call.good if p.endswith("SizeInBytes")):
        clause = reserve if parameter.startswith("reserve") else work
        call.refused(BAD_PARAM, clause, **{parameter: call.good[parameter] - 1})
    memory, container = call.good["x" if "x" in call.good else "y"], call.caller.descriptor(call.operation.y)
    for parameter in (p for p in call.good if p in RESERVED):
        call.refused(NOT_SUPPORTED, invalid, **{parameter: container if parameter.endswith("Desc") else memory})
    if name in FINDS:
        return
    call = prepared(name, case_of(name, cell=rnn.TANH))
    for algo in (rnn.STATIC, rnn.DYNAMIC):
        persistent = call.caller.network(replace(call.operation.network, algo=algo))
        call.refused(NOT_SUPPORTED, ragged, rnnDesc=persistent)


@shows("cudnnSetRNNDescriptor_v6/c10 c11")
@pytest.mark.parametrize("kind, other", [(FLOAT, DOUBLE), (DOUBLE, FLOAT), (FLOAT, HALF), (DOUBLE, HALF)])
def test_arithmetic_in_another_type(prepared: Any, kind: Any, other: Any) -> None:
    call = prepared(INFERENCE, case_of(INFERENCE, data_type=kind))
    network = call.caller.network(replace(call.operation.network, precision=other))
    call.refused(BAD_PARAM, CLAUSES[INFERENCE][2], rnnDesc=network)


@pytest.mark.blind("a result off by one", "searches return times, which may be any")
@shows(f"{EX[0]}/c13", f"{EX[1]}/c14", f"{EX[2]}/c16")
@pytest.mark.parametrize("name", CLAUSES)
def test_wrong_states_of_a_gated_unit(prepared: Any, name: Any) -> None:
    """Without projection hidden states have the hidden size. A gated unit has no cell states."""
    _, _, shape, *_ = CLAUSES[name]
    for cell in (rnn.LSTM, rnn.GRU):
        call = prepared(name, case_of(name, cell=cell))
        for parameter in (p for p in call.good if p in ("hxDesc", "hyDesc", "dhxDesc", "dhyDesc")):
            wrong = call.caller.tensor(TensorSpec.packed(FLOAT, (4, 3, call.operation.network.hidden + 1)))
            call.refused(BAD_PARAM, shape, **{parameter: wrong})
    cells = [p for p in ("cx", "cy", "dcx", "dcy") if p in call.good]
    small = call.good["hx"].slice(0, 4) if call.good.get("hx") else None
    described = {f"{p}Desc": call.caller.tensor(TensorSpec.packed(DOUBLE, (1, 1, 1))) for p in cells}
    call(**described, **dict.fromkeys(cells, small))


@pytest.mark.ours
@shows(f"{INFERENCE}/c03", f"{TRAINING}/c03", f"{DATA}/c03", f"{WEIGHTS}/c04", "cudnnStatus_t/c05", "cudnnFindRNNBackwardDataAlgorithmEx/c63 c64",
       "cudnnFindRNNBackwardWeightsAlgorithmEx/c29 c30", "cudnnFindRNNForwardTrainingAlgorithmEx/c50")  # fmt: skip
@pytest.mark.parametrize("name", CLAUSES)
def test_memory_that_is_short_by_an_element(prepared: Any, name: Any) -> None:
    """Memory that is an element short is refused by the clause of its size, or of all arguments, and nothing is
    written."""
    *_, work, reserve = CLAUSES[name]
    call = prepared(name)
    memory = {p: value for p, value in call.good.items() if hasattr(value, "slice") and value.nbytes}
    assert len(memory) > 4
    for parameter, buffer in memory.items():
        clause = {"w": work, "r": reserve}[parameter[0]] if parameter.lower() in ("workspace", "reservespace") else None
        call.refused(BAD_PARAM, clause or "cudnnStatus_t/c05", **{parameter: buffer.slice(0, buffer.nbytes - 4)})
        if clause:
            call.refused(BAD_PARAM, "cudnnStatus_t/c05", **{parameter: None})


@pytest.mark.ours
@shows("cudnnStatus_t/c08")
@pytest.mark.parametrize("name", [name for name in CLAUSES if name not in FINDS])
def test_kernels_that_fail(handle: Any, prepared: Any, monkeypatch: pytest.MonkeyPatch, name: Any) -> None:
    """The clause is one of the call's own section."""
    from dualdnn.conformance.cases.every_call import clauses_of_failure

    def fails(operands: Any, stream: Any) -> None:
        raise BackendError("an access that is out of bounds")

    call = prepared(name)
    monkeypatch.setattr(handle.backend, "prepare", lambda operation: fails)
    (clause,) = clauses_of_failure(name)
    call.refused(EXECUTION_FAILED, clause)


@shows(f"{INFERENCE}/c06-c10 c25-c28 c46 c47", f"{TRAINING}/c07-c11 c27-c30 c47 c48", f"{DATA}/c07-c14 c41-c43 c60 c61",
       f"{WEIGHTS}/c07-c09 c16-c19 c26 c27", "cudnnFindRNNForwardInferenceAlgorithmEx/c05-c07 c16-c18 c36 c38 c39",
       "cudnnFindRNNForwardTrainingAlgorithmEx/c05-c07 c23-c26 c53 c54",
       "cudnnFindRNNBackwardDataAlgorithmEx/c05-c12 c38-c40 c66 c68 c69", "cudnnFindRNNBackwardWeightsAlgorithmEx/c05-c07 c14-c17 c32 c34 c35")  # fmt: skip
@pytest.mark.blind("a result off by one", "searches return times, which may be any")
@pytest.mark.parametrize("name", [*NAMES, *FINDS])
def test_wrong_steps(subject: Subject, prepared: Any, name: Any) -> None:
    """Descriptors of steps are refused with a wrong count, growing batches, unequal vector lengths, gaps, or batches
    that differ between operands."""
    _, invalid, shape, ragged, _, _ = CLAUSES[name]
    call = prepared(name)
    if subject.ours:
        call()  # Each refused call differs from this one in one argument.

    def steps(*specs: Any) -> Any:
        return [call.caller.tensor(spec) for spec in specs]

    for direction, parameter in product((rnn.ONE_WAY, rnn.TWO_WAYS), [p for p in call.good if p in DATA_DESCRIPTORS]):
        call = prepared(name, case_of(name, projected=3, direction=direction))
        size = getattr(call.operation, parameter.removesuffix("Desc")).vector

        def one(batch: Any, width: Any = size, kind: Any = FLOAT) -> Any:
            return TensorSpec.packed(kind, (batch, width, 1))

        strides = ((size + 1, 1, 1), (size, 2, 1), (size, 1, 2))
        for wrong in (
            steps(one(3), one(1), one(2)), steps(one(3), one(2), one(1, size + 1)), steps(*(one(b, size + 1) for b in (3, 2, 1))),
            steps(one(3), one(3), one(1)), steps(*(TensorSpec.packed(FLOAT, (b, 1, size)) for b in (3, 2, 1))),
            *(steps(*(TensorSpec(FLOAT, (b, size, 1), other) for b in (3, 2, 1))) for other in strides),
            steps(one(3), one(2), one(1, kind=HALF)), steps(*(TensorSpec.packed(FLOAT, (b, size, 1, 1)) for b in (3, 2, 1))),
        ):  # fmt: skip
            call.refused(BAD_PARAM, shape, **{parameter: wrong})
        for batches in ((3, 2), (3, 2, 1, 1)):
            call.refused(BAD_PARAM, "cudnnStatus_t/c05", **{parameter: steps(*map(one, batches))})
        call.refused(BAD_PARAM, invalid, **{parameter: None})
        call.refused(NOT_SUPPORTED, ragged, **{parameter: steps(*(one(b, kind=INT8) for b in (3, 2, 1)))})
    for length in (0, -1):
        call.refused(BAD_PARAM, "cudnnStatus_t/c05", seqLength=length)


@pytest.mark.ours
@shows("cudnnGetRNNWorkspaceSize/c03 c08", "cudnnGetRNNTrainingReserveSize/c03 c10", "cudnnStatus_t/c05")
def test_sizes_of_a_network_that_knows_its_inputs(
    caller: Caller, cudnn: Any, handle: Any, refuses: Callable[..., bool]
) -> None:
    """A network of version 8 reports the bytes that it needs. Other vector sizes, and fewer descriptors than steps, are
    refused."""
    first = forward(plain(layers=1), PACKED, LENGTHS)
    network = caller.descriptor(first.network)
    spaces = cudnn.cudnnGetRNNTempSpaceSizes(handle, network, cudnnForwardMode_t(1), caller.descriptor(first.x))
    x, other = (
        [caller.tensor(TensorSpec.packed(FLOAT, (batch, size, 1))) for batch in LENGTHS] for size in (first.x.vector, 3)
    )
    for call, clause, size in (("Workspace", "c08", spaces[0]), ("TrainingReserve", "c10", spaces[1])):
        function = getattr(cudnn, f"cudnnGetRNN{call}Size")
        assert function(handle, network, 3, x) == size
        refuses(BAD_PARAM, f"cudnnGetRNN{call}Size/{clause}", function, handle, network, 3, other)
        refuses(BAD_PARAM, "cudnnStatus_t/c05", function, handle, network, 3, x[:2])


QUERIES = {"w": "cudnnGetRNNWorkspaceSize", "r": "cudnnGetRNNTrainingReserveSize"}


@pytest.mark.blind("a result off by one", "searches return times, which may be any")
@shows(f"{INFERENCE}/c05", *(f"{name}/c06" for name in (TRAINING, DATA, WEIGHTS)), "cudnnFindRNNForwardTrainingAlgorithmEx/c08",
       *(f"{name}/c04" for name in FINDS if TRAINING[8:] not in name), *(f"{name}/c02" for name in QUERIES.values()), f"{QUERIES['w']}/c03", f"{QUERIES['r']}/c06")  # fmt: skip
@pytest.mark.parametrize("name", [*NAMES, *FINDS])
def test_spaces_of_the_size_that_is_asked_for(cudnn: Any, handle: Any, prepared: Any, name: Any) -> None:
    """The sizes that the queries return for three steps are enough for these, and not for nine."""
    call = prepared(name)
    good = call.good
    steps = good.get("xDesc") or good["dxDesc"]
    for parameter in (p for p in good if p.endswith("SizeInBytes")):
        size = getattr(cudnn, QUERIES[parameter[0]])(handle, good["rnnDesc"], len(steps), steps)
        (space,) = (p for p in good if p.lower() == parameter.removesuffix("SizeInBytes").lower())
        good |= {parameter: size, space: handle.to_device(np.zeros(size, np.uint8))}
    call()
    more = {p: [*good[p], *good[p][-1:] * 6] for p in good if p in DATA_DESCRIPTORS}
    call.refused(BAD_PARAM, CLAUSES[name][4], seqLength=len(steps) + 6, **more)
    if "reserveSpace" in good:  # The workspace alone is then too small.
        size = getattr(cudnn, QUERIES["r"])(
            handle, good["rnnDesc"], len(steps) + 6, more.get("xDesc") or more["dxDesc"]
        )
        more |= {"reserveSpaceSizeInBytes": size, "reserveSpace": handle.to_device(np.zeros(size, np.uint8))}
        call.refused(BAD_PARAM, CLAUSES[name][4], seqLength=len(steps) + 6, **more)


@shows(
    f"{EX[0]}/c06 c07 c23-c25 c38",
    f"{EX[1]}/c06 c07 c25 c26 c42",
    f"{EX[2]}/c06 c07 c10 c32 c46",
    f"{EX[3]}/c06 c07 c12 c20",
)
@pytest.mark.parametrize("name", EX)
def test_wrong_sequences(subject: Subject, prepared: Any, name: Any) -> None:
    """Every wrong field of the containers is refused, one at a time.

    Padded sequences are refused where padding is off, and packed ones that are not sorted.
    """
    shape, call = CLAUSES[name][2], prepared(name)
    if subject.ours:
        call()  # Each refused call differs from this one in one argument.
    containers = {p: getattr(call.operation, p.removesuffix("Desc")) for p in call.good if p in DATA_DESCRIPTORS}

    def changed(spec: Any, **change: Any) -> Any:
        return call.caller.descriptor(replace(spec, **change))

    for parameter, spec in containers.items():
        for change in (
            {"vector": spec.vector + 1}, {"lengths": (3, 1, 1)}, {"data_type": DOUBLE}, {"max_length": 4, "lengths": (4, 2, 1)},
            {"layout": SEQ_MAJOR}, {"batch": 2, "lengths": (3, 2)},
        ):  # fmt: skip
            call.refused(BAD_PARAM, shape, **{parameter: changed(spec, **change)})
    for change in ({"layout": SEQ_MAJOR}, {"lengths": (1, 2, 3)}):
        call.refused(BAD_PARAM, shape, **{p: changed(spec, **change) for p, spec in containers.items()})
    for direction, cell in product((rnn.ONE_WAY, rnn.TWO_WAYS), (rnn.LSTM, rnn.GRU)) if name in EX[:2] else ():
        spec = plain(direction=direction, cell=cell, projected=3 if cell == rnn.LSTM else None)
        call = prepared(name, forward(spec, PACKED, LENGTHS, training=name == EX[1]))
        wider = changed(call.operation.y, vector=call.operation.y.vector + 1)
        call.refused(BAD_PARAM, shape, yDesc=wider)


@shows(f"{EX[0]}/c36", f"{EX[1]}/c40", f"{EX[2]}/c44")
@pytest.mark.parametrize("name", EX[:3])
def test_double_with_the_static_algorithm(prepared: Any, name: Any) -> None:
    spec = plain(cell=rnn.TANH, data_type=DOUBLE)
    inference = forward(spec, PACKED, (3, 3, 3), training=False)
    step = dict(zip(EX, (inference, *training(spec, PACKED, (3, 3, 3))), strict=True))
    call = prepared(name, step[name])
    static = call.caller.network(replace(spec, algo=rnn.STATIC))
    call.refused(NOT_SUPPORTED, {EX[0]: "c36", EX[1]: "c40", EX[2]: "c44"}[name], rnnDesc=static)


@shows(f"{TRAINING}/c02", f"{DATA}/c02", f"{WEIGHTS}/c02", f"{EX[1]}/c02", f"{EX[2]}/c02", f"{EX[3]}/c02")
@pytest.mark.ours
@pytest.mark.parametrize("cell", [rnn.LSTM, rnn.GRU], ids=label)
def test_generations_agree(cudnn: Any, handle: Any, cell: Any) -> None:
    """A training step gives the same bits by the calls of version 8, by those before it and by the extended ones."""
    results = []
    operations = training(plain(cell=cell, layers=1), PACKED, LENGTHS)
    for caller in (Caller(cudnn, handle), LegacyCaller(cudnn, handle, False), LegacyCaller(cudnn, handle, True)):
        memory: dict[str, Any] = {}
        for operation in operations:
            for name, bytes_ in prepare(operation, "normal", 0).items():
                memory.setdefault(name, handle.to_device(bytes_))
            caller(operation, memory)
        written = {name: o for o in operations for name in o.outputs if name not in o.raw and o.has(name)}
        results.append({name: memory[name].to_host(np.uint8, o.nbytes(name)) for name, o in written.items()})
    for other in results[1:]:
        for name, values in other.items():
            np.testing.assert_array_equal(values, results[0][name], err_msg=name)
