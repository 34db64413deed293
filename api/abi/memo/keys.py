"""Decide which functions the memo answers, and generate the C statements that build a call's key.

The memo answers a function if every argument can be part of a key. Such arguments are a descriptor's value, a number, a
host array, or a device address (whether it is NULL, and its low bits). ``answers.py`` declares the exceptions that the
rules cannot detect.
"""

from __future__ import annotations

from struct import calcsize

from ... import cudnn
from ...answers import VALUES, depends_on_more, is_replaced_by
from ...descriptors import DESCRIPTORS
from ...document import Function, Parameter
from ...enumerations import ENUMERATIONS
from ...enumerations import cudnnBackendAttributeName_t as Name
from ...enumerations import cudnnBackendAttributeType_t as Type
from ...functions import computing_of
from ..backend_attributes import CODES, MAX_ELEMENTS, OBJECTS
from ..c_types import NUMBERS, RESULTS, depth, destroys, sized

HANDLE_KIND = 31
KINDS = {name: number for number, name in enumerate(sorted(DESCRIPTORS))}
DROPOUT = "cudnnDropoutDescriptor_t"
NAMING = ("cudnnRNNDescriptor_t", "cudnnAttnDescriptor_t")  # These refer to dropout descriptors, which may change.
NUMBERED = VALUES | {DROPOUT, *NAMING}  # C stores their values by number.
# SIZED maps a function that only takes the address of memory to the parameters of the address and of its size.
SIZED = {
    "cudnnRestoreDropoutDescriptor": ("states", "stateSizeInBytes"),
    "cudnnGetRNNWeightParams": ("weightSpace", "weightSpaceSize"),
}
EXECUTES = "cudnnBackendExecute"  # Its operands are the pointers of its variant pack.
BACKEND = "cudnnBackend"  # the beginning of the names of functions for backend descriptors
POINTERS = 32  # addresses of a variant pack, as in objects.c
# ADDRESSES maps an attribute to the index of its first address among a variant pack's.
ADDRESSES = {Name.CUDNN_ATTR_VARIANT_PACK_WORKSPACE: 0, Name.CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS: 1}
WRITES_STATES = "cudnnSetDropoutDescriptor"  # It writes states only if it gets memory for them.
FILL_BYTES = (
    "a{0} == 1 ? 8 : a{0} == 2 ? 2 : 4"  # It is the C expression for the bytes of a padding value, by cudnnDataType_t.
)
MAX_ARGUMENTS = 39  # arguments, one less than ARGUMENTS in keys.c, because a descriptor's memory follows them
WEIGHTS = {"exponentialAverageFactor"}  # The memo treats all values between 0 and 1 of these doubles alike.


def is_answered(function: Function) -> bool:
    """Return whether the memo answers calls of a function."""
    return key_of(function) is not None


def key_of(function: Function) -> list[str] | None:
    """Return the statements that build a call's key, or None if its answer may depend on more than a key holds."""
    name = function.name
    if name == EXECUTES:
        objects = [f"key_object(&k, {i}, a{i}, 0)" for i in (1, 2)]
        return [_handle(function, 0), f"if (!({' && '.join(objects)} && key_variant(&k, 1, 2, 3))) goto ask;"]
    if name.startswith(BACKEND):
        return _backend_key(name)
    if depends_on_more(name) or name in RESULTS or not hasattr(cudnn, name):
        return None
    parts = [_part(function, index) for index in range(len(function.parameters))]
    if None in parts or len(parts) > MAX_ARGUMENTS:
        return None
    return [part for part in parts if part]


def _backend_key(name: str) -> list[str]:
    """Return the statements for a call that makes, sets, finalises, reads or destroys a backend descriptor.

    Python has the state of a descriptor that refers to objects, and of a plan, which names its handle.
    """
    described = ["if (!a0 || !key_object(&k, 0, a0, 0) || k.slots[0]->named[0]) goto ask;"]
    numbers = [f"key_bits(&k, (uint64_t)a{i});" for i in (1, 2, 3)]
    if name == f"{BACKEND}CreateDescriptor":
        return ["key_bits(&k, (uint64_t)a0);", "key_output(&k, 1, a1);"]
    if name == f"{BACKEND}Initialize":
        return [*described, *numbers[:2]]
    if name not in (f"{BACKEND}SetAttribute", f"{BACKEND}GetAttribute"):
        return described
    refers = " || ".join(f"a2 == {kind:d}" for kind in OBJECTS)
    if name == f"{BACKEND}GetAttribute":
        outputs = [f"key_output(&k, {i}, a{i});" for i in (4, 5)]
        return [f"if (a2 == {Type.CUDNN_TYPE_VOID_PTR:d} || {refers}) goto ask;", *described, *numbers, *outputs]
    sizes = "".join(f"a2 == {kind:d} ? {calcsize(code)} : " for kind, code in CODES.items() if calcsize(code) != 4)
    array = f"key_array(&k, a4, a3, {MAX_ELEMENTS}, 0, {sizes}4)"
    addresses = f"a2 == {Type.CUDNN_TYPE_VOID_PTR:d} ? key_addresses(&k, a4, a3) : {array}"
    return [f"if ({refers}) goto ask;", *described, *numbers, f"if (!({addresses})) goto ask;"]


def scalars_of(function: Function) -> dict[str, int]:
    """Return the scalars that a launch may take from the call if they are neither 0 nor 1: a map from name to argument
    index."""
    found = {p.name: i for i, p in enumerate(function.parameters) if p.typed_by is not None or p.name in WEIGHTS}
    return found if computing_of(function.name) else {}


def _part(function: Function, index: int) -> str | None:
    """Return the statement for one argument, "" if the key does not need it, or None if no key can hold it."""
    parameter = function.parameters[index]
    base, pointers = parameter.base_type, depth(parameter)
    if parameter.memory == "device" and function.name == WRITES_STATES:
        return f"if (a{index}) goto ask;"
    if parameter.memory == "device" and pointers == 1:
        is_keyed = computing_of(function.name) or parameter.name in SIZED.get(function.name, ())
        return f"key_address(&k, {index}, a{index});" if is_keyed else None
    if base == "cudnnHandle_t":
        return None if pointers else _handle(function, index)
    if base in DESCRIPTORS:
        return _descriptor(function, index)
    if pointers:
        return _behind_a_pointer(function, index)
    if parameter.name in WEIGHTS:
        return f"key_weight(&k, {index}, a{index});"
    if base in ("double", "float"):
        return f"key_{base}(&k, a{index});"
    if base == "cudaStream_t":
        return f"key_bits(&k, k.addresses[{index}] = a{index});"
    if base in ENUMERATIONS or base in NUMBERS:
        return f"key_bits(&k, (uint64_t)a{index});"
    return None


def _handle(function: Function, index: int) -> str:
    made = f"if (!key_object(&k, {index}, a{index}, 0)) goto ask;\n        k.handle = k.slots[{index}];"
    if function.name == "cudnnGetStream":
        made += "\n        if (k.handle) key_bits(&k, k.handle->held);"
    return made


def _descriptor(function: Function, index: int) -> str | None:
    parameter = function.parameters[index]
    base, pointers = parameter.base_type, depth(parameter)
    if base not in NUMBERED or parameter.length is not None:
        return None
    if pointers:
        is_new = parameter.direction == "out" and function.name.startswith("cudnnCreate")
        return f"key_output(&k, {index}, a{index});" if is_new else None
    is_ignored, behind = is_replaced_by(function.name, parameter) or destroys(function), len(function.parameters)
    made = f"if (!key_object(&k, {index}, a{index}, {int(is_ignored)})"
    if destroys(function):
        return f"{made}{f' || objects_naming(a{index}, NULL, 0)' * (base == DROPOUT)}) goto ask;"
    made += f"{f' || !key_named(&k, {index}, {behind})' * (base in NAMING)}) goto ask;"
    return made + f"\n        key_held(&k, {behind}, k.slots[{index}]);" * (base == DROPOUT)


def _behind_a_pointer(function: Function, index: int) -> str | None:
    """Return the statement for host memory: the key holds an output's NULL state and an input's contents."""
    parameter, names = function.parameters[index], [p.name for p in function.parameters]
    if parameter.typed_by is not None:
        return f"key_scaling(&k, {index}, a{index}, a{names.index(parameter.typed_by)});"
    if parameter.name == "paddingFill" and parameter.direction == "in":
        size = FILL_BYTES.format(names.index("dataType"))
        return f"if (!key_array(&k, a{index}, 1, 1, 0, {size})) goto ask;"
    if parameter.direction == "out":
        is_said = _is_copied(parameter) or function.name in SIZED
        return f"key_output(&k, {index}, a{index});" if is_said else None
    if parameter.direction == "in" and parameter.length is not None and depth(parameter) == 1:
        return _array(function, index)
    return None


def _is_copied(parameter: Parameter) -> bool:
    """Return whether the bytes that a call writes behind the pointer are its complete effect."""
    if parameter.base_type == "cudnnAlgorithm_t" or (parameter.base_type == "void" and parameter.name != "paddingFill"):
        return False
    return depth(parameter) == 1 or parameter.base_type == "cudaStream_t"


def _array(function: Function, index: int) -> str | None:
    parameter, array = function.parameters[index], sized(function, index)
    counted = function.parameters[array.counter]
    is_counted = not depth(counted) and counted.base_type not in DESCRIPTORS
    if not is_counted or parameter.base_type not in (*ENUMERATIONS, *NUMBERS):
        return None
    size = calcsize(array.code)
    return f"if (!key_array(&k, a{index}, a{array.counter}, {array.most}, {array.less}, {size})) goto ask;"
