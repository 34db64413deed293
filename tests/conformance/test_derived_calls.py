"""Test that the suite derives calls from the function table. Each parameter gets its value, or an error names it."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from dualdnn.api import cudnn
from dualdnn.api.document import functions
from dualdnn.api.enumerations import cudnnActivationMode_t, cudnnConvolutionFwdAlgo_t, cudnnNanPropagation_t
from dualdnn.api.enumerations import cudnnBackendDescriptorType_t as Kind
from dualdnn.api.operations import ActivationForward, ActivationSpec, Operation, TensorSpec
from dualdnn.api.operations.records import record
from dualdnn.api.operations.specs import FLOAT, HALF
from dualdnn.api.status import NOT_SUPPORTED, CudnnError
from dualdnn.api.support.fused_ops import OPERANDS
from dualdnn.conformance.calls import Caller, described, sized
from dualdnn.conformance.calls.caller import function_of
from dualdnn.conformance.calls.derived import arguments
from dualdnn.conformance.calls.graph import DESCRIPTOR, INT64, Builder
from dualdnn.conformance.cases.every_operation import SAMPLES
from dualdnn.conformance.cases.graph import graph_engines as graph_cases
from dualdnn.conformance.cases.wrong_arguments import TABLE as WRONG_ARGUMENTS
from dualdnn.conformance.subjects import SpansMore
from dualdnn.conformance.trial import attempt


class Given(dict):
    """Stand for a descriptor, which keeps attributes as well."""


class Recorder:
    """Record calls with their arguments. A descriptor is a dictionary of what its setters got."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        def call(*values: Any) -> Any:
            if name.startswith("cudnnCreate"):
                return Given({"made by": name})
            given = dict(zip((p.name for p in functions()[name].arguments), values, strict=True))
            if name.endswith("ParamPackAttribute"):
                values[0][values[1]] = values[2]
                return None
            self.calls.append((name, given))
            if name.startswith(("cudnnSet", "cudnnRestore")) and isinstance(values[0], dict):
                values[0].update(list(given.items())[1:])
            if name == "cudnnGetMultiHeadAttnBuffers":
                return (0, 0, 0)  # The operation's own spaces suffice.
            return 4096 if "WorkspaceSize" in name or "MakeFused" in name else 16 if "StatesSize" in name else None

        return call


class Handle:
    def allocate(self, nbytes: int) -> str:
        return f"{nbytes} new bytes"

    def to_device(self, _array: Any) -> str:
        return "copied"


HANDLE = Handle()


def called(operation: Operation) -> tuple[str, dict[str, Any]]:
    """Return the function that is called for an operation, and its arguments by name."""
    recorder = Recorder()
    Caller(recorder, HANDLE)(operation, {name: f"memory of {name}" for name in operation.operands})
    return recorder.calls[-1]


def test_every_call_on_device_memory_is_made_with_wrong_arguments():
    """Otherwise a new function would have no case for NULL, and nothing would say so."""
    computing = {
        name for name, function in functions().items() if any(p.memory == "device" for p in function.parameters)
    }
    assert computing <= set(WRONG_ARGUMENTS)


# An operation graph needs a plan and a pack, which the recorder cannot finalise.
@pytest.mark.parametrize("sample", [name for name in SAMPLES if name != "OperationGraph"])
def test_every_parameter_gets_what_it_is_named_after(sample):
    operation: Any = SAMPLES[sample]
    name, given = called(operation)
    assert name == function_of(type(operation)) and given.pop("handle") is HANDLE
    used = set()
    for parameter in (p for p in functions()[name].arguments if p.name in given):
        value = given[parameter.name]
        if value == "copied":  # The caller copied fields of the operation to device memory.
            continue
        if parameter.memory == "device" and value is not None:
            size = given.get("workspaceSizeInBytes", given.get("workSpaceSizeInBytes"))
            enlarged = parameter.name == "workspace" and value == "4096 new bytes" and size == 4096
            operand = operation.parameters.get(parameter.name, parameter.name)
            assert value == f"memory of {operand}" or enlarged
            used.add(operand)
        elif parameter.name == "varPack":
            operands = {
                OPERANDS[label]: memory for label, memory in value.items() if OPERANDS.get(label) in operation.operands
            }
            enlarged = {operand: "4096 new bytes" for operand in operation.raw}
            assert operands == {operand: enlarged.get(operand, f"memory of {operand}") for operand in operands}
            used |= set(operands)
        elif isinstance(value, dict):
            assert value["made by"] == f"cudnnCreate{parameter.base_type.removeprefix('cudnn').removesuffix('_t')}"
            used |= {operand for operand in operation.operands if value.get(operand) == f"memory of {operand}"}
            stem = parameter.name.removesuffix("Desc")
            spec = next(
                (getattr(operation, n) for n in (stem, stem.upper(), f"{stem}Data") if hasattr(operation, n)), None
            )
            if hasattr(spec, "dims"):
                assert tuple(value["dimA" if "dimA" in value else "filterDimA"]) == spec.dims
    assert used == set(operation.operands)


def test_scalars_are_not_exchanged():
    x, y = TensorSpec.packed(FLOAT, (1, 2, 3, 4)), TensorSpec(HALF, (1, 2, 3, 4), (40, 20, 5, 1))
    spec = ActivationSpec(cudnnActivationMode_t.CUDNN_ACTIVATION_ELU, cudnnNanPropagation_t.CUDNN_PROPAGATE_NAN, 0.5)
    _, given = called(ActivationForward(spec, 2.0, 3.0, x, y))
    assert (given["alpha"], given["beta"]) == (2.0, 3.0)
    assert given["activationDesc"] == {
        "made by": "cudnnCreateActivationDescriptor", "mode": spec.mode, "reluNanOpt": spec.relu_nan, "coef": 0.5,
    }  # fmt: skip
    assert (given["xDesc"]["strideA"], given["yDesc"]["strideA"]) == (x.strides, y.strides)
    assert (given["xDesc"]["dataType"], given["yDesc"]["dataType"]) == (FLOAT, HALF)


def test_workspaces_are_those_that_the_subject_asks_for():
    operation: Any = SAMPLES["ConvolutionForward-GEMM"]
    recorder = Recorder()
    caller = Caller(recorder, None)
    assert sized(caller, operation).workspace_bytes == 4096
    name, given = recorder.calls[-1]
    assert name == "cudnnGetConvolutionForwardWorkspaceSize"
    assert given["algo"] == cudnnConvolutionFwdAlgo_t.CUDNN_CONVOLUTION_FWD_ALGO_GEMM
    assert [d["made by"][11:-10] for d in described(caller, operation)] == ["Tensor", "Filter", "Convolution", "Tensor"]
    assert sized(caller, SAMPLES["AddTensor"]) is SAMPLES["AddTensor"]


def test_a_parameter_that_nothing_tells_is_named():
    @record
    class Unheard(Operation):
        x: TensorSpec
        inputs: ClassVar = ("x",)

    with pytest.raises(LookupError, match="cudnnActivationForward: nothing tells activationDesc of a Unheard"):
        arguments("cudnnActivationForward", Unheard)


def test_absent_operands_and_arrays_of_descriptors():
    @record
    class Recurrent(Operation):
        xs: tuple[TensorSpec, ...]
        hx: TensorSpec | None

        inputs: ClassVar = ("hx",)
        optional: ClassVar = ("hx",)

    x = TensorSpec.packed(FLOAT, (1, 2, 3))
    caller = Caller(Recorder(), None)
    from dualdnn.conformance.calls import derived

    parameters = {p.name: p for p in functions()["cudnnRNNForwardInference"].arguments}
    hx_desc, hx = (derived._argument("cudnnRNNForwardInference", parameters[n], Recurrent) for n in ("hxDesc", "hx"))
    assert hx_desc(caller, Recurrent((x, x), None), {}) is None and hx(caller, Recurrent((x, x), None), {}) is None
    assert hx_desc(caller, Recurrent((x,), x), {})["dimA"] == (1, 2, 3)
    assert [d["dimA"] for d in derived._described(caller, (x, x))] == [(1, 2, 3)] * 2


def test_a_graph_by_whichever_engine_takes_it():
    """The first heuristic configuration that makes a plan serves, else the first engine by number that does. Otherwise the call fails."""
    operation = graph_cases.executed(*graph_cases.GRAPHS["fused"], engine=graph_cases.ABLE["fused"][-1])
    handle = cudnn.cudnnCreate(backend="reference")
    caller = Caller(cudnn, handle, any_engine=True)
    assert attempt(caller, operation).passed
    config = Builder(cudnn).get(caller.plan, Kind.CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, "ENGINE_CONFIG", DESCRIPTOR)[
        0
    ]
    engine = Builder(cudnn).get(config, Kind.CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, "ENGINE", DESCRIPTOR)[0]
    chosen = Builder(cudnn).get(engine, Kind.CUDNN_BACKEND_ENGINE_DESCRIPTOR, "GLOBAL_INDEX", INT64)
    assert chosen != (operation.engine,)
    refusing = Caller(
        Refusing(cudnn, "cudnnBackendFinalize", Kind.CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR), handle, any_engine=True
    )
    assert attempt(refusing, operation).passed  # Without heuristics the engine is found by its number.
    none = Caller(
        Refusing(cudnn, "cudnnBackendFinalize", Kind.CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR), handle, any_engine=True
    )
    with pytest.raises(CudnnError, match="engine 29, node by node on tensor cores"):
        attempt(none, operation)


class Refusing:
    """Pass calls on, but let one function refuse descriptors of one kind."""

    def __init__(self, functions_: Any, name: str, kind: Kind) -> None:
        self.functions, self.name, self.kind = functions_, name, kind

    def __getattr__(self, name: str) -> Any:
        function = getattr(self.functions, name)

        def call(descriptor: Any, *others: Any) -> Any:
            if name == self.name and descriptor.kind == self.kind:
                raise CudnnError(NOT_SUPPORTED, None, "no plan here", name)
            return function(descriptor, *others)

        return call


class Lying:
    """Is the reference, but its reductions need a workspace as large as no memory."""

    cudnnGetReductionWorkspaceSize = staticmethod(lambda *_: -1 & (1 << 64) - 1)

    def __getattr__(self, name):
        return getattr(cudnn, name)


class Spanning(Caller):
    """Finds, as the binding of a library does, that a descriptor spans more than its memory."""

    def __call__(self, operation, memory):
        raise SpansMore("cudnnReduceTensor", "A: aDesc spans 99 bytes, the buffer has 24")


def test_a_size_that_a_library_should_not_have_answered_is_a_finding():
    """The case would be skipped, or end in an error of NumPy, while the library is at fault."""
    operation = SAMPLES["ReduceTensor"]
    handle = cudnn.cudnnCreate(backend="reference")
    with pytest.raises(
        AssertionError, match="cudnnGetReductionWorkspaceSize: the answer is 18446744073709551615 bytes"
    ):
        sized(Caller(Lying(), handle), operation)
    with pytest.raises(AssertionError, match="aDesc spans 99 bytes"):
        attempt(Spanning(cudnn, handle), operation)
