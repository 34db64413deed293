"""Holds cases of invalid arguments for every function and parameter, with the clause that each violates.

wrong_arguments.json maps a function and a parameter to the violated clause. A clause of another section has the name
of that section. A status other than BAD_PARAM follows it, and "fresh" where descriptors need not be initialised. Wrong
combinations of arguments are cases of the families.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import resources
from typing import TYPE_CHECKING, Any

import pytest
from dualdnn.api import miopen
from dualdnn.api.descriptors import DESCRIPTORS, BackendDescriptor
from dualdnn.api.document import Function, Parameter, functions
from dualdnn.api.enumerations import ENUMERATIONS, cudnnBackendDescriptorType_t, cudnnStatus_t
from dualdnn.api.miopen.document import functions as miopen_functions
from dualdnn.api.miopen.enumerations import ENUMERATIONS as MIOPEN_ENUMERATIONS
from dualdnn.api.miopen.objects import DESCRIPTORS as MIOPEN_DESCRIPTORS
from dualdnn.api.miopen.status import BAD_PARM
from dualdnn.api.status import BAD_PARAM, NOT_INITIALIZED
from dualdnn.conformance.marks import shows

if TYPE_CHECKING:
    from dualdnn.conformance.subjects import Subject

pytestmark = pytest.mark.ours
TABLE: dict[str, dict[str, str]] = json.loads(
    resources.files("dualdnn.conformance.cases").joinpath("wrong_arguments.json").read_text(encoding="utf-8")
)
RANGES = {
    "int": 32, "int32_t": 32, "int64_t": 64, "size_t": 64, "unsigned": 32, "uint32_t": 32, "unsigned long long": 64,
}  # fmt: skip
UNSIGNED = ("size_t", "unsigned", "uint32_t", "unsigned long long")
HANDLES = ("cudnnHandle_t", "miopenHandle_t")
NUMBERS = ("double", "float", "void")


class Anything:
    """Stands for the specification of a descriptor that no call reads."""

    dropout = probability = 0.0


def described(parameter: Parameter, initialised: bool = True) -> Any:
    """Return a descriptor of the parameter's type."""
    if parameter.base_type in MIOPEN_DESCRIPTORS:
        made: Any = MIOPEN_DESCRIPTORS[parameter.base_type]()
        made.cudnn = object() if initialised else None
        return made
    kind = DESCRIPTORS[parameter.base_type]
    made = kind(next(iter(cudnnBackendDescriptorType_t))) if kind is BackendDescriptor else kind()
    if initialised and made.spec is None:
        made.spec = Anything()
    return made


def right(parameter: Parameter, handle: Any, memory: Any) -> Any:
    """Return an argument that breaks no rule about the parameter itself."""
    base = parameter.base_type
    if base in HANDLES:
        return handle
    if base in DESCRIPTORS or base in MIOPEN_DESCRIPTORS:
        one = described(parameter)
    elif parameter.memory == "device":
        return memory
    elif base in ENUMERATIONS or base in MIOPEN_ENUMERATIONS:
        one = next(iter((ENUMERATIONS | MIOPEN_ENUMERATIONS)[base]))
    else:
        one = 1 if base in RANGES else 1.0
    array = parameter.is_pointer and (base in RANGES or base in ENUMERATIONS or base in DESCRIPTORS)
    return [one] if array else one


def wrong(parameter: Parameter, may_be_fresh: bool) -> list[Any]:
    """Return arguments that are invalid whatever the others are."""
    base, array = parameter.base_type, parameter.is_pointer
    found: list[Any] = []
    if base in HANDLES:
        return [None, object(), "handle"]
    if parameter.memory == "device":
        return [None]  # Device memory has its cases in every_operation.py.
    if base in DESCRIPTORS or base in MIOPEN_DESCRIPTORS:
        gone = described(parameter)
        gone.destroy()
        another = next(kind for kind in DESCRIPTORS.values() if kind is not DESCRIPTORS.get(base))
        array = array and base in DESCRIPTORS
        fresh = [] if may_be_fresh or array else [described(parameter, initialised=False)]
        found = [gone, another(), 7, object(), *fresh]
    elif base in ENUMERATIONS or base in MIOPEN_ENUMERATIONS:
        highest = max((ENUMERATIONS | MIOPEN_ENUMERATIONS)[base])
        other = next(kind for name, kind in ENUMERATIONS.items() if name != base)
        found = [highest + 1, -1, "0", 0.0, next(iter(other))]
        array = array and base in ENUMERATIONS
    elif base in RANGES:
        bits = RANGES[base]
        beyond = (2**bits, -1) if base in UNSIGNED else (2 ** (bits - 1), -(2 ** (bits - 1)) - 1)
        found = [*beyond, "1", 1.0, 1j]
    elif base in NUMBERS:
        return [None, "1", b"1", 1j, object()]
    return [None, *([5, "text", *([one] for one in found)] if array else found)]


def listed(function: Function) -> dict[str, str]:
    return TABLE.get(function.name, {})


def of_entry(name: str, entry: str) -> tuple[str, str]:
    """Return the clause of an entry of the table of a function, and the rest of the entry."""
    clause, _, rest = entry.partition(" ")
    return clause if "/" in clause else f"{name}/{clause}", rest


# These clauses only say that an argument is initialised, or has a type. The refusal of a wrong one cites another clause.
OF_ARGUMENTS = (
    "cudnnBatchNormalizationForwardInference/c15", "cudnnRNNBackwardData/c27", "cudnnRNNBackwardDataEx/c25",
    "cudnnRNNBackwardWeights/c21", "cudnnRNNBackwardWeightsEx/c14", "cudnnRNNForwardTraining/c26",
    "cudnnRNNForwardTrainingEx/c23", "cudnnFindRNNForwardTrainingAlgorithmEx/c22",
    "cudnnFindRNNBackwardDataAlgorithmEx/c25", "cudnnRNNForwardInference/c24", "cudnnRNNForwardInferenceEx/c22",
    "cudnnSetConvolution2dDescriptor/c02", "cudnnSetConvolutionNdDescriptor/c02", "cudnnDeriveBNTensorDescriptor/c09",
    "cudnnDeriveNormTensorDescriptor/c10", "cudnnDeriveBNTensorDescriptor/c10", "cudnnDeriveNormTensorDescriptor/c11",
    "cudnnBatchNormMode_t/c01", "cudnnBatchNormOps_t/c01", "cudnnNormMode_t/c01", "cudnnNormOps_t/c01",
    "cudnnRNNClipMode_t/c01", "cudnnFindRNNForwardInferenceAlgorithmEx/c15", "cudnnDivNormMode_t/c01", "cudnnLRNMode_t/c01",
    "cudnnConvolutionDescriptor_t/c03", "cudnnFilterDescriptor_t/c02", "cudnnLRNDescriptor_t/c02", "cudnnRNNDataDescriptor_t/c02",
    "cudnnTensorDescriptor_t/c02", "cudnnDropoutForward/c06",
)  # fmt: skip


@shows(*OF_ARGUMENTS)
@pytest.mark.parametrize("name", TABLE)
def test_of_each_function(cudnn: Any, handle: Any, refuses: Callable[..., bool], name: Any) -> None:
    """Each invalid argument alone is refused with its clause, and memory keeps its bytes."""
    function = functions()[name]
    memory = handle.allocate(64)
    before: list[Any] = []
    for parameter in function.arguments:
        if entry := TABLE[name].get(parameter.name):
            cited, rest = of_entry(name, entry)
            status = next((status for status in cudnnStatus_t if status.name in rest.split()), BAD_PARAM)
            for value in wrong(parameter, "fresh" in rest):
                if value is None and "nullable" in rest:
                    continue
                after = [right(p, handle, memory) for p in function.arguments[len(before) + 1 :]]
                refuses(status, cited, getattr(cudnn, name), *before, value, *after, unchanged=(memory,))
        before.append(right(parameter, handle, memory))


test_of_each_function.cited = frozenset(  # A run of some clauses selects cases by the clauses that they cite.
    of_entry(name, entry)[0] for name, entries in TABLE.items() for entry in entries.values()
)

USERS = {  # the function that destroys a descriptor: a setter that must refuse it afterwards
    "cudnnDestroyActivationDescriptor": "cudnnSetActivationDescriptor",
    "cudnnDestroyAttnDescriptor": "cudnnSetAttnDescriptor",
    "cudnnDestroyCTCLossDescriptor": "cudnnSetCTCLossDescriptor",
    "cudnnDestroyDropoutDescriptor": "cudnnSetDropoutDescriptor",
    "cudnnDestroyRNNDataDescriptor": "cudnnSetRNNDataDescriptor",
    "cudnnDestroySeqDataDescriptor": "cudnnSetSeqDataDescriptor",
    "cudnnDestroySpatialTransformerDescriptor": "cudnnSetSpatialTransformerNdDescriptor",
}


@shows(*(f"{name}/c01" for name in USERS), "cudnnAttnDescriptor_t/c04", "cudnnCTCLossDescriptor_t/c01", "cudnnDropoutDescriptor_t/c01",
       "cudnnSeqDataDescriptor_t/c06", "cudnnSpatialTransformerDescriptor_t/c01")  # fmt: skip
@pytest.mark.parametrize("name", USERS)
def test_what_is_destroyed_cannot_be_used(cudnn: Any, handle: Any, refuses: Callable[..., bool], name: Any) -> None:
    made = getattr(cudnn, name.replace("Destroy", "Create"))()
    getattr(cudnn, name)(made)
    user = functions()[USERS[name]]
    first, *others = user.arguments
    cited, _ = of_entry(user.name, TABLE[user.name][first.name])
    rest = [right(parameter, handle, handle.allocate(64)) for parameter in others]
    refuses(BAD_PARAM, cited, getattr(cudnn, user.name), made, *rest)


def test_every_function_with_a_destroyed_handle(cudnn: Any, subject: Subject, refuses: Callable[..., bool]) -> None:
    handle = subject.new_handle()
    memory = handle.allocate(64)
    cudnn.cudnnDestroy(handle)
    for function in functions().values():
        if function.arguments and function.arguments[0].base_type == "cudnnHandle_t":
            values = [right(parameter, handle, memory) for parameter in function.arguments]
            refuses(NOT_INITIALIZED, "cudnnStatus_t/c03", getattr(cudnn, function.name), *values)


@pytest.mark.parametrize("name", [name for name, function in miopen_functions().items() if function.arguments])
def test_of_each_function_of_the_second_document(miopen_handle: Any, denied: Any, name: Any) -> None:
    """Each invalid argument alone is refused, and memory keeps its bytes."""
    memory = miopen_handle.allocate(64)
    before: list[Any] = []
    function = miopen_functions()[name]
    for parameter in function.arguments:
        for value in wrong(
            parameter, parameter.direction != "in" or name.startswith(("miopenSet", "miopenDestroy", "miopenInit"))
        ):
            if value is None and (parameter.nullable or parameter.base_type == "miopenAcceleratorQueue_t"):
                continue
            after = [right(p, miopen_handle, memory) for p in function.arguments[len(before) + 1 :]]
            denied(BAD_PARM, f"{name}/c01", getattr(miopen, name), *before, value, *after, unchanged=memory)
        before.append(right(parameter, miopen_handle, memory))
