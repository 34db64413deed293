"""Test the tables of refusals: mistakes in a table are reported, and a case checks both of its calls."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from dualdnn.api.status import BAD_PARAM, CudnnError
from dualdnn.conformance.calls import Caller
from dualdnn.conformance.refusals import FOLDER, read
from dualdnn.conformance.refusals.collecting import module_of
from dualdnn.conformance.subjects import open_subject

SETTER = 'set = { function = "cudnnSetActivationDescriptor", activationDesc = "fresh", mode = "CUDNN_ACTIVATION_TANH", '
SETTER += 'reluNanOpt = "CUDNN_PROPAGATE_NAN", coef = 1.0 }'


@pytest.fixture
def table(tmp_path):
    def written(refused, accepted=SETTER):
        path = tmp_path / "family.toml"
        path.write_text(f"[accepted]\n{accepted}\n[refused]\n{refused}\n", encoding="utf-8")
        return path

    return written


def refuses(status, clause, call, *arguments, unchanged=(), **named):
    """Stand in for the suite's fixture ``refuses``, without a subject."""
    with pytest.raises(CudnnError) as caught:
        call(*arguments, **named)
    assert (caught.value.status, caught.value.clause) == (status, clause)


@pytest.mark.parametrize("path", FOLDER.glob("*.toml"), ids=lambda path: path.stem)
def test_every_accepted_call_has_a_refused_change(path):
    used = {id(row.accepted) for case in read(path).values() for rows in case.rows.values() for row in rows}
    accepted = path.read_text(encoding="utf-8").partition("[accepted]\n")[2].partition("\n\n")[0].splitlines()
    assert len(used) == len(accepted)


def test_values_in_turn_are_rows_with_one_id(table):
    case = read(table('case = { of = "set", "c07 BAD_PARAM" = [{ id = "mode", each.mode = [-1, 9] }] }'))["case"]
    assert [row.refused["mode"] for row in case.rows["mode"]] == [-1, 9]
    row = case.rows["mode"][0]
    assert (row.status, row.clause, row.accepted["coef"]) == (BAD_PARAM, "cudnnSetActivationDescriptor/c07", 1.0)


def test_arguments_that_are_null_in_turn_are_rows(table):
    case = read(table('case = { of = "set", "c07 BAD_PARAM" = [{ id = "one", null = ["mode", "coef"] }] }'))["case"]
    assert [row.arguments for row in case.rows["one"]] == [{"mode": None}, {"coef": None}]


def test_a_parameter_may_have_its_own_need(table):
    """Its cases are skipped, and the others run."""
    subject, calls = open_subject("reference"), []
    changes = '{ id = "always", mode = -1 }, { id = "seldom", mode = 9, needs = "is_python" }'
    case = module_of(table(f'case = {{ of = "set", "c07 BAD_PARAM" = [{changes}] }}')).test_case
    foreign = SimpleNamespace(cudnn=subject.cudnn, ours=True, cites_clauses=False, is_python=False)
    case(foreign, lambda *call, unchanged: calls.append(call), "always")
    assert len(calls) == 1
    with pytest.raises(pytest.skip.Exception, match="C has no such argument"):
        case(foreign, lambda *call, unchanged: calls.append(call), "seldom")


def test_values_in_turn_may_be_in_their_ids(table):
    case = read(table('case = { of = "set", "c07 BAD_PARAM" = [{ id = "mode-*", each.mode = [-1, 9] }] }'))["case"]
    assert {name: row.refused["mode"] for name, (row,) in case.rows.items()} == {"mode--1": -1, "mode-9": 9}


@pytest.mark.parametrize("change, said", [
    ("{ coef = 1.0 }", "changes nothing of the accepted call"),
    ("{ coefficient = 1.0 }", "cudnnSetActivationDescriptor has no argument coefficient"),
    ('{ mode = "CUDNN_ACTIVATION_NONE" }', "not the text of an operation"),
])  # fmt: skip
def test_a_change_that_says_nothing_is_told(table, change, said):
    with pytest.raises(ValueError, match=said):
        read(table(f'case = {{ of = "set", "c07 BAD_PARAM" = [{change}] }}'))


@pytest.mark.parametrize("entry, said", [
    ('{ of = "set" }', "nothing is refused"),
    ('{ of = "set", needs = "luck", "c07 BAD_PARAM" = [{ mode = 9 }] }', "needs is 'luck', expected one of"),
    ('{ of = "set", query = "c01", "c07 BAD_PARAM" = [{ mode = 9 }] }', "no query returns the workspace of cudnnSetActivation"),
])  # fmt: skip
def test_a_case_that_says_nothing_is_told(table, entry, said):
    with pytest.raises(ValueError, match=said):
        read(table(f"case = {entry}"))


def test_rows_are_in_the_order_of_the_table(table):
    """Processes that share the cases must agree on their order."""
    clauses = [f"c{number:02d}" for number in range(9)]
    changes = ", ".join(f'"{clause} BAD_PARAM" = [{{ id = "{clause}", mode = 9 }}]' for clause in clauses)
    assert list(read(table(f'case = {{ of = "set", {changes} }}'))["case"].rows) == clauses


def test_each_row_of_a_table_names_only_its_clauses(table):
    """A run that proves clauses skips a case only when all that its rows cite are proven."""
    changes = '"c07 BAD_PARAM" = [{ id = "mode", mode = 9 }], "c08 BAD_PARAM" = [{ id = "nan", reluNanOpt = 9 }]'
    case = module_of(table(f'case = {{ of = "set", shows = ["cudnnStatus_t/c05"], {changes} }}')).test_case
    parametrize = next(mark for mark in case.pytestmark if mark.name == "parametrize")
    named = {row.values[0]: row.marks[0].args for row in parametrize.args[1]}
    assert named == {"mode": ("cudnnSetActivationDescriptor/c07",), "nan": ("cudnnSetActivationDescriptor/c08",)}


def test_the_accepted_call_must_succeed(table):
    """A case fails if its accepted call is refused: its change could then be refused for the same reason."""
    subject = open_subject("reference")
    change = '"c07 BAD_PARAM" = [{ mode = 9 }]'
    module_of(table(f'case = {{ of = "set", {change} }}')).test_case(subject, refuses, "")
    wrong = SETTER.replace("CUDNN_PROPAGATE_NAN", "CUDNN_ACTIVATION_TANH")
    with pytest.raises(CudnnError, match="cudnnNanPropagation_t"):
        module_of(table(f'case = {{ of = "set", {change} }}', wrong)).test_case(subject, refuses, "")


def test_a_refused_setter_may_not_change_its_descriptor(table, monkeypatch):
    """The case compares what the getter returns before and after the refusal."""
    subject = open_subject("reference")
    right = subject.cudnn.cudnnSetActivationDescriptor

    def careless(descriptor, mode, nan, coefficient):
        right(descriptor, max(mode, 0), nan, coefficient)
        right(descriptor, mode, nan, coefficient)

    monkeypatch.setattr(subject.cudnn, "cudnnSetActivationDescriptor", careless)
    spec = "ActivationSpec(mode=CUDNN_ACTIVATION_RELU, relu_nan=CUDNN_PROPAGATE_NAN, coefficient=2.0)"
    case = module_of(table('case = { of = "set", "c07 BAD_PARAM" = [{ mode = -1 }] }', SETTER.replace("fresh", spec)))
    with pytest.raises(AssertionError, match="the refused call changed a descriptor"):
        case.test_case(subject, refuses, "")


def test_a_destroyed_descriptor_was_made_as_in_the_accepted_call(table, monkeypatch):
    subject, gone = open_subject("reference"), []
    right = subject.cudnn.cudnnDestroyActivationDescriptor

    def destroyed(descriptor):
        gone.append(subject.cudnn.cudnnGetActivationDescriptor(descriptor).coef)
        right(descriptor)

    monkeypatch.setattr(subject.cudnn, "cudnnDestroyActivationDescriptor", destroyed)
    spec = "ActivationSpec(mode=CUDNN_ACTIVATION_RELU, relu_nan=CUDNN_PROPAGATE_NAN, coefficient=2.0)"
    change = '"cudnnStatus_t/c05 BAD_PARAM" = [{ activationDesc = "destroyed" }]'
    case = module_of(table(f'case = {{ of = "set", {change} }}', SETTER.replace("fresh", spec)))
    case.test_case(subject, refuses, "")
    assert gone == [2.0]


def test_the_query_of_the_workspace_must_refuse_too(table):
    subject = open_subject("reference")
    reduction = "ReduceTensorSpec(op=CUDNN_REDUCE_TENSOR_ADD, compute_type=CUDNN_DATA_FLOAT, nan=CUDNN_PROPAGATE_NAN, "
    reduction += "indices=CUDNN_REDUCE_TENSOR_NO_INDICES, indices_type=CUDNN_32BIT_INDICES)"
    a, c = (f"TensorSpec(data_type=CUDNN_DATA_FLOAT, dims=(1, 1, 1, {n}), strides=({n}, {n}, {n}, 1))" for n in (4, 1))
    call = f"ReduceTensor(reduction={reduction}, indices_bytes=0, workspace_bytes=0, alpha=1.0, beta=0.0, A={a}, C={c})"
    entry = 'case = { of = "reduce", query = "c01", "c29 BAD_PARAM" = [{ A.data_type = "CUDNN_DATA_DOUBLE" }] }'
    case, asked = module_of(table(entry, f"reduce = {json.dumps(call)}")).test_case, []
    assert case.cited == {"cudnnReduceTensor/c29", "cudnnGetReductionWorkspaceSize/c01"}
    handle = subject.new_handle()
    caller = Caller(subject.cudnn, handle)
    case(subject, caller, lambda *call, aliases: None, lambda *call: asked.append(call), "")
    ((status, clause, query, operation),) = asked
    assert (status, clause, query) == (BAD_PARAM, "cudnnGetReductionWorkspaceSize/c01", caller.workspace_bytes)
    assert operation.A.data_type.name == "CUDNN_DATA_DOUBLE"
    subject.cudnn.cudnnDestroy(handle)


def test_a_plan_with_changed_attributes_is_refused(table):
    subject = open_subject("reference")
    vector = "TensorSpec(data_type=CUDNN_DATA_FLOAT, dims=(1, 5, 1, 1), strides=(5, 1, 1, 1))"
    names = ("scale", "bias", "runningMean", "runningVar", "eqScale", "eqBias")
    fused = f"BnFinalizeStatisticsInference(epsilon=0.001, {', '.join(f'{name}={vector}' for name in names)})"
    change = '"cudnnFusedOpsConstParamLabel_t/c141 NOT_SUPPORTED" = [{ attributes.BN_MODE = "NULL" }]'
    made = module_of(table(f'case = {{ of = "plan", {change} }}', f'plan = "{fused}"'))
    plans = []
    handle = subject.new_handle()
    caller = Caller(subject.cudnn, handle)
    made.test_case(subject, caller, None, lambda *call, **named: plans.append(refuses(*call, **named)), "")
    assert len(plans) == 1
    subject.cudnn.cudnnDestroy(handle)
