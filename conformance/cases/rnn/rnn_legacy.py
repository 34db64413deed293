"""Holds cases of the calls on recurrent networks before version 8, which describe the same operations differently."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from dualdnn.api.document import functions
from dualdnn.api.enumerations import cudnnForwardMode_t, cudnnRNNMode_t
from dualdnn.api.operations import BackendError, RNNBackwardData, RNNBackwardWeights, RNNForward, TensorSpec
from dualdnn.api.operations.rnn import RNNClipSpec, RNNSpec
from dualdnn.api.operations.specs import DOUBLE, FLOAT, HALF, INT8, NCHW, FilterSpec
from dualdnn.api.status import BAD_PARAM, EXECUTION_FAILED, NOT_SUPPORTED
from dualdnn.conformance.calls import Caller
from dualdnn.conformance.cases.rnn.rnn_backward import training
from dualdnn.conformance.cases.rnn.rnn_descriptors import (
    DOUBLE_BIAS,
    DYNAMIC,
    GRU,
    LINEAR,
    LSTM,
    MINMAX,
    NO_BIAS,
    NOT_PROPAGATE,
    ONE_WAY,
    PROPAGATE,
    RECURRENT_BIAS,
    SKIP,
    STATIC,
    TANH,
    TWO_WAYS,
)  # fmt: skip
from dualdnn.conformance.cases.rnn.rnn_forward import BATCH_MAJOR, PACKED, SEQ_MAJOR, forward, label, network
from dualdnn.conformance.marks import shows
from dualdnn.conformance.trial import Step, attempt_chain, prepare

INFERENCE, TRAINING = "cudnnRNNForwardInference", "cudnnRNNForwardTraining"
DATA, WEIGHTS = "cudnnRNNBackwardData", "cudnnRNNBackwardWeights"
NAMES = (INFERENCE, TRAINING, DATA, WEIGHTS)
EX = tuple(f"{name}Ex" for name in NAMES)
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
OPERANDS = {"w": "weightSpace", "dw": "dweightSpace", "workspace": "workSpace"}
RESERVED = (
    "kDesc",
    "keys",
    "cDesc",
    "cAttn",
    "iDesc",
    "iAttn",
    "qDesc",
    "queries",
    "dcDesc",
    "dcAttn",
    "dkDesc",
    "dkeys",
)
LENGTHS = (3, 2, 1)


class LegacyCaller(Caller):
    """Makes the calls before version 8 of the operations: the extended ones, or those that take a descriptor for each step."""

    def __init__(self, cudnn: Any, handle: Any, extended: bool) -> None:
        super().__init__(cudnn, handle)
        self.extended = extended

    def __call__(self, operation, memory):
        name = self.name_of(operation)
        getattr(self.cudnn, name)(*self.arguments(name, operation, memory).values())

    def name_of(self, operation) -> str:
        kinds = {RNNBackwardData: DATA, RNNBackwardWeights: WEIGHTS, RNNForward: TRAINING}
        name = kinds[type(operation)] if getattr(operation, "training", True) else INFERENCE
        return f"{name}Ex" if self.extended else name

    def arguments(self, name, operation, memory) -> dict[str, Any]:
        """Return the arguments by the names of the parameters."""
        return {p.name: self.argument(p.name, operation, memory) for p in functions()[name].arguments}

    def argument(self, name, o, memory):
        n = o.network
        if name == "handle":
            return self.handle
        if name == "rnnDesc":
            return self.network(n, o.y.batch)
        if name == "seqLength":
            return o.y.max_length
        if name in ("findIntensity", "requestedAlgoCount"):
            return 3
        if name in ("wDesc", "dwDesc"):
            return self.descriptor(FilterSpec(n.data_type, NCHW, (n.weight_elements, 1, 1)))
        if name in ("xDesc", "yDesc", "dyDesc", "dxDesc"):
            return self.sequences(getattr(o, name.removesuffix("Desc")))
        if name in RESERVED:
            return None
        if name.endswith("Desc"):
            size = n.projected if "h" in name[:2] else n.hidden
            return self.descriptor(TensorSpec.packed(n.data_type, (n.pseudo_layers, o.y.batch, size)))
        if name.endswith("SizeInBytes"):
            return (o.reserve if name.startswith("reserve") else o.workspace).nbytes
        return memory.get(OPERANDS.get(name, name))

    def network(self, n: RNNSpec, batch: int = 0):
        """Return the descriptor of a network by the setters before version 8, with a plan for ``batch`` sequences where
        needed."""
        made = self.cudnn.cudnnCreateRNNDescriptor()
        values = n.hidden, n.layers, self.dropout, n.input_mode, n.direction, n.cell, n.algo, n.precision
        self.cudnn.cudnnSetRNNDescriptor_v6(self.handle, made, *values)
        self.cudnn.cudnnSetRNNBiasMode(made, n.bias)
        self.cudnn.cudnnSetRNNPaddingMode(made, int(n.padded))
        self.cudnn.cudnnSetRNNMatrixMathType(made, n.math_type)
        if n.is_projected:
            self.cudnn.cudnnSetRNNProjectionLayers(self.handle, made, n.projected, 0)
        self.cudnn.cudnnRNNSetClip(self.handle, made, n.clip.mode, n.clip.nan, n.clip.lower, n.clip.upper)
        if n.algo == DYNAMIC and batch:
            plan = self.cudnn.cudnnCreatePersistentRNNPlan(made, batch, n.data_type)
            self.cudnn.cudnnSetPersistentRNNPlan(made, plan)
        return made

    def sequences(self, spec):
        if self.extended:
            return self.descriptor(spec)
        return [self.descriptor(TensorSpec.packed(spec.data_type, (batch, spec.vector, 1))) for batch in spec.batches]


@pytest.fixture
def judged(cudnn, handle, evidence):
    """Make the calls one after the other on shared memory, and judge each."""

    def run(extended, *operations, seed=0, inputs="normal"):
        steps = [Step(operation, inputs=inputs) for operation in operations]
        found = attempt_chain(LegacyCaller(cudnn, handle, extended), steps, seed)
        evidence.note(found)
        if not found.passed:
            pytest.fail(f"{found.explanation()}\n{found.operation}", pytrace=False)

    return run


def plain(*, bias=DOUBLE_BIAS, direction=TWO_WAYS, input_mode=LINEAR, cell=LSTM, **others):
    return network(cell, bias, direction, input_mode, padded=False, **others)


ALL = [f"{name}/{clause}" for name, clauses in {
    INFERENCE: (2, 4, 6, 11, 29, 42, 43), TRAINING: (2, 4, 5, 7, 12, 19, 37, 44, 45), DATA: (2, 4, 5, 34, 41, 56, 57),
    WEIGHTS: (2, 3, 5, 7, 22, 23), EX[0]: (2, 5, 25, 31, 32, 33), EX[1]: (2, 5, 7, 16, 24, 26, *range(32, 38)),
    EX[2]: (2, 5, 7, 9, 10, 26, 28, 29, 31, 32, 38, 39, 40, 41), EX[3]: (2, 5, 7, 8, 9, 11, 12, 13, 15, 16, 17),
}.items() for clause in (f"c{i:02}" for i in clauses)]  # fmt: skip


@shows(*ALL, *(f"cudnnGetRNNTrainingReserveSize/c0{i}" for i in (3, 4)), "cudnnGetRNNWorkspaceSize/c03", "cudnnRNNMode_t/c01",
       "cudnnRNNInputMode_t/c01", "cudnnDirectionMode_t/c01", "cudnnRNNAlgo_t/c01", "cudnnSetRNNDescriptor_v6/c04")  # fmt: skip
@pytest.mark.parametrize("extended", [False, True], ids=["steps", "extended"])
@pytest.mark.parametrize("cell", cudnnRNNMode_t, ids=label)
def test_cells(judged, cell, extended):
    """Inference, and the three calls of a training step, are right for packed sequences."""
    judged(extended, *training(plain(cell=cell, layers=1 if extended else 2), PACKED, LENGTHS))
    judged(
        extended,
        forward(
            plain(cell=cell, bias=RECURRENT_BIAS, direction=ONE_WAY, input_mode=SKIP), PACKED, LENGTHS, training=False
        ),
    )


@shows(*(f"{EX[0]}/c{i:02}" for i in (3, 4, 8, 26)), *(f"{EX[1]}/c{i:02}" for i in (3, 4, 8, 27)), *(f"{EX[2]}/c{i:02}" for i in (3, 4, 8, 11, 33)),
       *(f"{EX[3]}/c{i:02}" for i in (3, 4)))  # fmt: skip
@pytest.mark.parametrize("layout", [SEQ_MAJOR, BATCH_MAJOR], ids=label)
def test_padded_sequences(judged, layout):
    """The extended calls take padded sequences; padding of y and dx gets the fill of its descriptor."""
    judged(True, *training(network(GRU, projected=None), layout, (1, 3, 2), 4, -1.5))
    judged(True, forward(network(TANH, NO_BIAS), layout, (1, 3, 0), fill=0.5, training=False))


@shows(*(f"{INFERENCE}/c{i}" for i in (17, 23, 35, 41)), *(f"{TRAINING}/c{i}" for i in (18, 25, 36, 43)), *(f"{DATA}/c{i}" for i in (20, 26, 33, 40, 49, 55)),
       f"{WEIGHTS}/c15", *(f"{EX[0]}/c{i}" for i in (15, 21, 28, 30)), *(f"{EX[1]}/c{i}" for i in (15, 22, 29, 31)),
       *(f"{EX[2]}/c{i}" for i in (18, 24, 27, 30, 35, 37)), f"{EX[3]}/c10")  # fmt: skip
@pytest.mark.parametrize("extended", [False, True], ids=["steps", "extended"])
def test_states_that_are_null(judged, extended):
    for null in (("hx", "cy", "dhx", "dcy"), ("hx", "cx", "hy", "cy", "dhy", "dhx", "dcy", "dcx")):
        judged(extended, *training(plain(layers=1), PACKED, LENGTHS, null=null))
        judged(extended, forward(plain(layers=1), PACKED, LENGTHS, training=False, null=null))


@shows(f"{EX[0]}/c24", f"{EX[1]}/c25", f"{EX[0]}/c12", f"{EX[1]}/c13", f"{EX[2]}/c15", "cudnnSetRNNProjectionLayers/c04",
       "cudnnRNNSetClip/c04", "cudnnRNNSetClip/c06", "cudnnRNNSetClip/c07")  # fmt: skip
def test_projection_clipping_and_types(judged):
    """The other setters act on a network in calls that describe each step."""
    for extended in (False, True):
        judged(extended, forward(plain(projected=3, layers=2), PACKED, LENGTHS, training=False))
        clip = RNNClipSpec(MINMAX, PROPAGATE, -0.3, 0.2)
        judged(extended, *training(plain(projected=3, clip=clip, layers=1), PACKED, LENGTHS))
        judged(extended, *training(plain(cell=GRU, data_type=DOUBLE, layers=1), PACKED, LENGTHS))
        judged(extended, *training(plain(cell=GRU, data_type=HALF, layers=1), PACKED, LENGTHS))


@shows("cudnnRNNSetClip/c08")
@pytest.mark.parametrize("nan", [NOT_PROPAGATE, PROPAGATE], ids=label)
def test_clipping_of_nan(judged, nan):
    """A NaN in the cell state becomes the lower bound of the clipping range, or stays."""
    clip = RNNClipSpec(MINMAX, nan, -0.5, 0.25)
    operation = forward(plain(direction=ONE_WAY, layers=1, clip=clip), PACKED, (1, 1, 1), training=False)
    judged(False, operation, inputs={"cx": "special"})


@shows("cudnnGetRNNTrainingReserveSize/c05")
def test_reserve_space_that_moves(cudnn, handle):
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


def case_of(name, **network):
    """Return the operation of a call, with packed sequences."""
    spec, name = plain(**(network or {"projected": 3})), FINDS.get(name, name)
    if name.removesuffix("Ex") == INFERENCE:
        return forward(spec, PACKED, LENGTHS, training=False)
    return training(spec, PACKED, LENGTHS)[(TRAINING, DATA, WEIGHTS).index(name.removesuffix("Ex"))]


@pytest.fixture
def prepared(cudnn, handle):
    """Return a caller, and the good arguments of a call by the names of its parameters."""

    def make(name, operation=None):
        caller, operation = LegacyCaller(cudnn, handle, name in EX), operation or case_of(name)
        memory = {o: handle.to_device(np.zeros(operation.nbytes(o), np.uint8)) for o in operation.operands}
        return caller, operation, caller.arguments(name, operation, memory)

    return make


def refusal(cudnn, refuses, name, good, status, clause, **changes):
    refuses(
        status, clause if "/" in clause else f"{name}/{clause}", getattr(cudnn, name), *{**good, **changes}.values()
    )


SHAPES = [f"{name}/c{i:02}" for name, clauses in {
    INFERENCE: (12, 13, 14, 15, 16, 18, 19, 20, 21, 22, 24, 30, 31, 32, 33, 34, 36, 37, 38, 39, 40, 44, 45, 46, 47, 48),
    TRAINING: (13, 14, 15, 16, 17, 20, 21, 22, 23, 24, 26, 31, 32, 33, 34, 35, 38, 39, 40, 41, 42, 46, 47, 48, 49, 50),
    DATA: (15, 16, 17, 18, 19, 21, 22, 23, 24, 25, 27, 28, 29, 30, 31, 32, 35, 36, 37, 38, 39, 44, 45, 46, 47, 48, 50, 51, 52, 53, 54, 58, 59, 60,
           61, 62, 63),
    WEIGHTS: (10, 11, 12, 13, 14, 21, 24, 25, 26, 27, 28, 29),
    EX[0]: (9, 10, 11, 12, 14, 16, 17, 18, 19, 20, 22, 27, 29, 34, 37, 38, 40),
    EX[1]: (9, 10, 11, 12, 13, 17, 18, 19, 20, 21, 23, 28, 30, 38, 41, 42, 43, 44),
    EX[2]: (12, 13, 14, 15, 17, 19, 20, 21, 22, 23, 25, 34, 36, 42, 45, 46, 47, 48),
    EX[3]: (14, 18, 19, 20, 21, 22),
    **dict(zip(FINDS, (
        (9, 10, 12, 13, 15, 20, 21, 23, 24, 37, 38, 39, 40), (*range(9, 14), *range(16, 21), 22, *range(27, 32), *range(34, 39), *range(52, 57)),
        (*range(13, 18), *range(19, 24), 25, *range(26, 31), *range(32, 37), *range(41, 46), *range(47, 52), *range(67, 72)),
        (*range(8, 13), *range(33, 38)),
    ), strict=True)),
}.items() for i in clauses]  # fmt: skip


@shows(*SHAPES)
@pytest.mark.parametrize("name", CLAUSES)
def test_wrong_descriptors(cudnn, refuses, prepared, name):
    """NULL and uninitialised descriptors, wrong dimensions of states, wrong weights, and small spaces are refused."""
    network_clause, invalid, shape, ragged, work, reserve = CLAUSES[name]
    _, _, good = prepared(name)
    for value in (None, cudnn.cudnnCreateRNNDescriptor()):
        refusal(cudnn, refuses, name, good, BAD_PARAM, network_clause, rnnDesc=value)
    states = [
        p for p in good if p.endswith("Desc") and p[0] in "hcd" and p not in ("dwDesc", "dyDesc", "dxDesc", *RESERVED)
    ]
    for direction in (ONE_WAY, TWO_WAYS):
        caller, operation, good = prepared(name, case_of(name, projected=3, direction=direction))
        n = operation.network
        for parameter in states:
            size, count = n.projected if "h" in parameter[:2] else n.hidden, n.pseudo_layers
            refusal(cudnn, refuses, name, good, BAD_PARAM, invalid, **{parameter: None})
            packed = [(count - 1, 3, size), (count, 2, size), (count, 3, size + 1)]
            gaps = TensorSpec(FLOAT, (count, 3, size), (3 * size + 1, size, 1))
            for spec in (
                *(TensorSpec.packed(FLOAT, dims) for dims in packed), gaps, TensorSpec.packed(DOUBLE, gaps.dims),
            ):  # fmt: skip
                refusal(cudnn, refuses, name, good, BAD_PARAM, shape, **{parameter: caller.tensor(spec)})
    weights = "dwDesc" if "dwDesc" in good else "wDesc"
    for spec in (
        FilterSpec(FLOAT, NCHW, (n.weight_elements - 1, 1, 1)),
        FilterSpec(HALF, NCHW, (2 * n.weight_elements, 1, 1)),
    ):
        refusal(cudnn, refuses, name, good, BAD_PARAM, shape, **{weights: caller.filter(spec)})
    refusal(cudnn, refuses, name, good, BAD_PARAM, invalid, **{weights: None})
    for parameter in (p for p in good if p.endswith("SizeInBytes")):
        clause = reserve if parameter.startswith("reserve") else work
        refusal(cudnn, refuses, name, good, BAD_PARAM, clause, **{parameter: good[parameter] - 1})
    for parameter in (p for p in good if p in RESERVED):
        value = good["x" if "x" in good else "y"] if not parameter.endswith("Desc") else caller.descriptor(operation.y)
        refusal(cudnn, refuses, name, good, NOT_SUPPORTED, invalid, **{parameter: value})
    if name in FINDS:
        return
    caller, operation, good = prepared(name, case_of(name, cell=TANH))
    for algo in (STATIC, DYNAMIC):
        persistent = caller.network(replace(operation.network, algo=algo))
        refusal(cudnn, refuses, name, good, NOT_SUPPORTED, ragged, rnnDesc=persistent)


@shows("cudnnSetRNNDescriptor_v6/c10 c11")
@pytest.mark.parametrize("kind, other", [(FLOAT, DOUBLE), (DOUBLE, FLOAT), (FLOAT, HALF), (DOUBLE, HALF)])
def test_arithmetic_in_another_type(cudnn, refuses, prepared, kind, other):
    caller, operation, good = prepared(INFERENCE, case_of(INFERENCE, data_type=kind))
    network = caller.network(replace(operation.network, precision=other))
    refusal(cudnn, refuses, INFERENCE, good, BAD_PARAM, CLAUSES[INFERENCE][2], rnnDesc=network)


@pytest.mark.blind("a result off by one", "searches return times, which may be any")
@shows(f"{EX[0]}/c13", f"{EX[1]}/c14", f"{EX[2]}/c16")
@pytest.mark.parametrize("name", CLAUSES)
def test_wrong_states_of_a_gated_unit(cudnn, refuses, prepared, name):
    """A gated unit has no cell states, and its hidden states must still have their shape."""
    _, _, shape, *_ = CLAUSES[name]
    caller, operation, good = prepared(name, case_of(name, cell=GRU))
    n = operation.network
    for parameter in (p for p in good if p in ("hxDesc", "hyDesc", "dhxDesc", "dhyDesc")):
        wrong = caller.tensor(TensorSpec.packed(FLOAT, (4, 3, n.hidden + 1)))
        refusal(cudnn, refuses, name, good, BAD_PARAM, shape, **{parameter: wrong})
    cells = [p for p in ("cx", "cy", "dcx", "dcy") if p in good]
    small = good["hx"].slice(0, 4) if good.get("hx") else None
    anything = {f"{p}Desc": caller.tensor(TensorSpec.packed(DOUBLE, (1, 1, 1))) for p in cells} | dict.fromkeys(
        cells, small
    )
    getattr(cudnn, name)(*{**good, **anything}.values())


@pytest.mark.ours
@shows(f"{INFERENCE}/c03", f"{TRAINING}/c03", f"{DATA}/c03", f"{WEIGHTS}/c04", "cudnnStatus_t/c05", "cudnnFindRNNBackwardDataAlgorithmEx/c63", "cudnnFindRNNBackwardDataAlgorithmEx/c64",
       "cudnnFindRNNBackwardWeightsAlgorithmEx/c29", "cudnnFindRNNBackwardWeightsAlgorithmEx/c30", "cudnnFindRNNForwardTrainingAlgorithmEx/c50")  # fmt: skip
@pytest.mark.parametrize("name", CLAUSES)
def test_memory_that_is_short_by_an_element(cudnn, refuses, prepared, name):
    """Memory that is an element short is refused by the clause of its size, or of all arguments, and nothing is
    written."""
    *_, work, reserve = CLAUSES[name]
    _, _, good = prepared(name)
    memory = {p: value for p, value in good.items() if hasattr(value, "slice") and value.nbytes}
    assert len(memory) > 4
    for parameter, buffer in memory.items():
        clause = {"w": work, "r": reserve}[parameter[0]] if parameter.lower() in ("workspace", "reservespace") else None
        refusal(
            cudnn,
            refuses,
            name,
            good,
            BAD_PARAM,
            clause or "cudnnStatus_t/c05",
            **{parameter: buffer.slice(0, buffer.nbytes - 4)},
        )
        if clause:
            refusal(cudnn, refuses, name, good, BAD_PARAM, "cudnnStatus_t/c05", **{parameter: None})


@pytest.mark.ours
@shows("cudnnStatus_t/c08")
@pytest.mark.parametrize("name", [name for name in CLAUSES if name not in FINDS])
def test_kernels_that_fail(cudnn, handle, refuses, prepared, monkeypatch, name):
    """The clause is one of the call's own section."""
    from dualdnn.conformance.cases.every_call import clauses_of_failure

    _, _, good = prepared(name)

    def fails(operands, stream):
        raise BackendError("an access that is out of bounds")

    monkeypatch.setattr(handle.backend, "prepare", lambda operation: fails)
    (clause,) = clauses_of_failure(name)
    refusal(cudnn, refuses, name, good, EXECUTION_FAILED, clause)


STEPS = [f"{name}/c{i:02}" for name, clauses in {
    INFERENCE: (6, 7, 8, 9, 10, 25, 26, 27, 28), TRAINING: (7, 8, 9, 10, 11, 27, 28, 29, 30), DATA: (7, 8, 9, 10, 11, 12, 13, 14, 41, 42, 43),
    WEIGHTS: (7, 8, 9, 16, 17, 18, 19),
    **dict(zip(FINDS, (
        (5, 6, 7, 16, 17, 18, 36), (5, 6, 7, 23, 24, 25, 26), (5, 6, 7, 8, 9, 10, 11, 12, 38, 39, 40, 66), (5, 6, 7, 14, 15, 16, 17, 32),
    ), strict=True)),
}.items() for i in clauses]  # fmt: skip


@shows(*STEPS)
@pytest.mark.parametrize("name", [*NAMES, *FINDS])
def test_wrong_steps(subject, cudnn, refuses, prepared, name):
    """Descriptors of steps are refused with a wrong count, growing batches, unequal vector lengths, gaps, or batches
    that differ between operands."""
    _, invalid, shape, ragged, _, _ = CLAUSES[name]
    _, _, good = prepared(name)
    if subject.ours:
        getattr(cudnn, name)(*good.values())  # Each refused call differs from this one in one argument.

    def steps(*specs):
        return [caller.tensor(spec) for spec in specs]

    data = [p for p in good if p in ("xDesc", "yDesc", "dyDesc", "dxDesc")]
    for direction, parameter in product((ONE_WAY, TWO_WAYS), data):
        caller, operation, good = prepared(name, case_of(name, projected=3, direction=direction))
        size = getattr(operation, parameter.removesuffix("Desc")).vector

        def one(batch, width=size, kind=FLOAT):
            return TensorSpec.packed(kind, (batch, width, 1))

        gaps = TensorSpec(FLOAT, (3, size, 1), (size + 1, 1, 1))
        for wrong in (
            steps(one(3), one(1), one(2)), steps(one(3), one(2), one(1, size + 1)), steps(*(one(b, size + 1) for b in (3, 2, 1))),
            steps(one(3), one(3), one(1)), steps(gaps, gaps, gaps), steps(*(TensorSpec.packed(FLOAT, (b, 1, size)) for b in (3, 2, 1))),
            steps(one(3), one(2), one(1, kind=HALF)),
        ):  # fmt: skip
            refusal(cudnn, refuses, name, good, BAD_PARAM, shape, **{parameter: wrong})
        refusal(cudnn, refuses, name, good, BAD_PARAM, invalid, **{parameter: None})
        refusal(
            cudnn,
            refuses,
            name,
            good,
            NOT_SUPPORTED,
            ragged,
            **{parameter: steps(*(one(b, kind=INT8) for b in (3, 2, 1)))},
        )
    for length in (0, -1):
        refusal(cudnn, refuses, name, good, BAD_PARAM, "cudnnStatus_t/c05", seqLength=length)


@pytest.mark.ours
@shows("cudnnGetRNNWorkspaceSize/c03 c08", "cudnnGetRNNTrainingReserveSize/c03 c10", "cudnnStatus_t/c05")
def test_sizes_of_a_network_that_knows_its_inputs(caller, cudnn, handle, refuses):
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
       *(f"{name}/c04" for name in FINDS if TRAINING[8:] not in name), *(f"{name}/c02" for name in QUERIES.values()), f"{QUERIES['w']}/c03")  # fmt: skip
@pytest.mark.parametrize("name", [*NAMES, *FINDS])
def test_spaces_of_the_size_that_is_asked_for(cudnn, handle, refuses, prepared, name):
    """The sizes that the queries return for three steps are enough for these, and not for nine."""
    _, _, good = prepared(name)
    steps = good.get("xDesc") or good["dxDesc"]
    for parameter in (p for p in good if p.endswith("SizeInBytes")):
        size = getattr(cudnn, QUERIES[parameter[0]])(handle, good["rnnDesc"], len(steps), steps)
        (space,) = (p for p in good if p.lower() == parameter.removesuffix("SizeInBytes").lower())
        good |= {parameter: size, space: handle.to_device(np.zeros(size, np.uint8))}
    getattr(cudnn, name)(*good.values())
    more = {p: [*good[p], *good[p][-1:] * 6] for p in good if p in ("xDesc", "yDesc", "dyDesc", "dxDesc")}
    refusal(cudnn, refuses, name, good, BAD_PARAM, CLAUSES[name][4], seqLength=len(steps) + 6, **more)


SEQUENCES = [f"{name}/c{i:02}" for name, clauses in {EX[0]: (6, 7, 23), EX[1]: (6,), EX[2]: (6,), EX[3]: (6,)}.items()
             for i in clauses]  # fmt: skip


@shows(*SEQUENCES)
@pytest.mark.parametrize("name", EX)
def test_wrong_sequences(cudnn, refuses, prepared, name):
    """Every wrong field of the containers is refused, one at a time.

    Padded sequences are refused where padding is off, and packed ones that are not sorted.
    """
    shape = CLAUSES[name][2]
    caller, operation, good = prepared(name)
    kinds = [p for p in good if p in ("xDesc", "yDesc", "dyDesc", "dxDesc")]
    for parameter in kinds:
        spec = getattr(operation, parameter.removesuffix("Desc"))
        for change in (
            {"vector": spec.vector + 1},
            {"lengths": (3, 1, 1)},
            {"data_type": DOUBLE},
            {"max_length": 4, "lengths": (4, 2, 1)},
        ):
            refusal(
                cudnn, refuses, name, good, BAD_PARAM, shape, **{parameter: caller.descriptor(replace(spec, **change))}
            )
    for change in ({"layout": SEQ_MAJOR}, {"lengths": (1, 2, 3)}):
        changed = {p: caller.descriptor(replace(getattr(operation, p.removesuffix("Desc")), **change)) for p in kinds}
        refusal(cudnn, refuses, name, good, BAD_PARAM, shape, **changed)


@shows(f"{EX[0]}/c36", f"{EX[1]}/c40", f"{EX[2]}/c44")
@pytest.mark.parametrize("name", EX[:3])
def test_double_with_the_static_algorithm(cudnn, refuses, prepared, name):
    spec = plain(cell=TANH, data_type=DOUBLE)
    operation = case_of(name)
    made = (
        forward(spec, PACKED, (3, 3, 3), training=False)
        if name == EX[0]
        else training(spec, PACKED, (3, 3, 3))[0 if name == EX[1] else 1]
    )
    caller, _, good = prepared(name, made)
    assert type(made) is type(operation)
    static = caller.network(replace(spec, algo=STATIC))
    clause = {EX[0]: "c36", EX[1]: "c40", EX[2]: "c44"}[name]
    refusal(cudnn, refuses, name, good, NOT_SUPPORTED, clause, rnnDesc=static)


@shows(f"{TRAINING}/c02", f"{DATA}/c02", f"{WEIGHTS}/c02", f"{EX[1]}/c02", f"{EX[2]}/c02", f"{EX[3]}/c02")
@pytest.mark.ours
@pytest.mark.parametrize("cell", [LSTM, GRU], ids=label)
def test_generations_agree(cudnn, handle, cell):
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
