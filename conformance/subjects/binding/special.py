"""Convert parameters whose C form the function table cannot express. ``SPECIAL_SLOTS`` assigns the slots."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from dualdnn.api.document import Parameter
from dualdnn.api.enumerations import (
    cudnnBackendAttributeType_t,
    cudnnBatchNormMode_t,
    cudnnFusedOpsConstParamLabel_t,
    cudnnFusedOpsPointerPlaceHolder_t,
    cudnnFusedOpsVariantParamLabel_t,
    cudnnSeverity_t,
)

from .objects import Callback, Library, Opaque
from .slots import Call, OpaqueOut, Slot, created
from .tables import (
    ATTRIBUTE_DESCRIPTORS,
    ATTRIBUTE_ELEMENTS,
    ATTRIBUTES_OF_SEVERAL_TYPES,
    BACKEND_DATA_TYPES,
    CONST_PARAM_DESCRIPTORS,
    VARIANT_PARAM_SCALARS,
)
from .types import (
    CALLBACK,
    SCALARS,
    Crashes,
    NotExpressible,
    callback_text,
    debug_record,
    element_type,
    named,
    python_value,
    scalar,
)

BACKEND_DESCRIPTOR = "cudnnBackendDescriptor_t"
PERFORMANCE = "cudnnAlgorithmPerformance_t"


class UserDataIn(Slot):
    """Convert any Python object: the library sees a token, and the callback gets the object."""

    def encode(self, call: Call) -> Any:
        value = call.values[self.name]
        return ctypes.c_void_p(None if value is None else id(value))


class CallbackIn(Slot):
    """Convert a Python function (severity, user data, DebugRecord, text), or None for the library's own log."""

    def encode(self, call: Call) -> Any:
        function, user_data = call.values[self.name], call.values["udata"]
        if function is None:
            call.storage[self.name] = CALLBACK()
        elif callable(function):
            token = None if user_data is None else id(user_data)

            def run(severity: int, address: int | None, debug: Any, text: int) -> None:
                handed = user_data if address == token else address  # The library may pass another pointer than ours.
                function(named(cudnnSeverity_t, severity), handed, debug_record(debug[0]), callback_text(text))

            call.storage[self.name] = CALLBACK(run)
        else:
            raise NotExpressible(f"{call.where(self.name)}: a function is needed, not {function!r}")
        return call.storage[self.name]

    def finish(self, call: Call) -> None:
        if call.succeeded:
            call.library.callback = Callback(call.values[self.name], call.values["udata"], call.storage[self.name])


class UserDataOut(OpaqueOut):
    """Return the object that was set, or the pointer if the library holds another one."""

    def decode(self, call: Call) -> Any:
        address, ours = call.storage[self.name].value, call.library.callback.user_data
        return ours if ours is not None and address == id(ours) else address


class CallbackOut(OpaqueOut):
    """Return the function that was set, None, or the address of the library's own function."""

    def decode(self, call: Call) -> Any:
        address, ours = call.storage[self.name].value, call.library.callback
        if ours.function is not None and address == ctypes.cast(ours.c_function, ctypes.c_void_p).value:
            return ours.function
        return address


class PerformancesOut(Slot):
    """Return the requested number of objects from cudnnCreateAlgorithmPerformance."""

    passed, returned = False, True

    def encode(self, call: Call) -> Any:
        count = max(0, int(call.values["numberToCreate"]))
        return call.place(self.name, ctypes.c_void_p * count)

    def decode(self, call: Call) -> Any:
        addresses = call.storage[self.name][: max(0, int(call.values["numberToCreate"]))]
        for index, address in enumerate(addresses):
            created(call.function, f"{self.name}[{index}]", address)
        return tuple(call.library.adopt(PERFORMANCE, address) for address in addresses)


def as_objects(value: object) -> Sequence[object]:
    """Return one object, or a sequence of them, as a sequence."""
    return value if isinstance(value, Sequence) else (value,)


class PerformancesDestroyed(Slot):
    """Convert one object, or a sequence of them as cudnnCreateAlgorithmPerformance returned it."""

    def encode(self, call: Call) -> Any:
        objects = as_objects(call.values[self.name])
        if objects == (None,):
            return ctypes.c_void_p(None)
        addresses = [call.library.opaque_address(o, PERFORMANCE, call.function, self.name) for o in objects]
        return call.place(self.name, ctypes.c_void_p * len(addresses), *addresses)

    def finish(self, call: Call) -> None:
        for value in as_objects(call.values[self.name])[: max(0, int(call.values["numberToDestroy"]))]:
            if call.succeeded and isinstance(value, Opaque):
                value.alive = False
                call.library.objects.pop(value.address, None)


class SearchResults(Slot):
    """Return the objects that an RNN search fills. They are created here, because they are results to the caller."""

    passed, returned = False, True

    def encode(self, call: Call) -> Any:
        count = max(0, int(call.values["requestedAlgoCount"]))
        array = call.place(self.name, ctypes.c_void_p * count)
        if count:
            create(call, "cudnnCreateAlgorithmPerformance", array, ctypes.c_int(count))
        return array

    def decode(self, call: Call) -> Any:
        count = min(int(call.values["requestedAlgoCount"]), call.storage["returnedAlgoCount"].value)
        return tuple(call.library.adopt(PERFORMANCE, call.storage[self.name][i]) for i in range(max(0, count)))


def create(call: Call, function: str, *arguments: Any) -> None:
    """Create an object that the current call needs."""
    symbol = call.library.symbol(function)
    if symbol is None or (status := symbol(*arguments)) != 0:
        reason = "is not exported" if symbol is None else f"returned {status}"
        raise RuntimeError(f"{call.function}: {function}, needed for its results, {reason}")


class BackendDescriptorOut(OpaqueOut):
    """Return a new backend descriptor, which remembers its type."""

    def decode(self, call: Call) -> Any:
        made = super().decode(call)
        if made is not None:
            made.kind = int(call.values["descriptorType"])
        return made


class ElementsIn(Slot):
    """Convert the values of a backend attribute to the C type that ``attributeType`` names."""

    def encode(self, call: Call) -> Any:
        values, where = call.values[self.name], call.where(self.name)
        if values is None:
            return ctypes.c_void_p(None)
        if isinstance(values, str | bytes) or not hasattr(values, "__len__"):
            raise NotExpressible(f"{where}: a sequence is needed, not {values!r}")
        count = int(call.values["elementCount"])
        if len(values) < count:
            raise NotExpressible(f"{where}: {len(values)} elements for elementCount {count}")
        base = ATTRIBUTE_ELEMENTS.get(int(call.values["attributeType"]), "int64_t")
        if base == "cudnnDataType_t" and any(int(value) not in BACKEND_DATA_TYPES for value in values):
            raise Crashes(call.function, f"{self.name}: {tuple(values)} are not data types; finalising would crash")
        elements = [
            element(call.library, base, value, call.function, f"{self.name}[{index}]")
            for index, value in enumerate(values)
        ]
        return call.place(self.name, storage_type(base) * len(elements), *elements)

    def finish(self, call: Call) -> None:
        values = call.values[self.name]
        is_descriptor = call.values["attributeType"] == cudnnBackendAttributeType_t.CUDNN_TYPE_BACKEND_DESCRIPTOR
        if call.succeeded and is_descriptor and values is not None:
            call.values["descriptor"].elements[int(call.values["attributeName"])] = tuple(values)


def storage_type(base: str) -> Any:
    """Return the ctypes type of one attribute element."""
    if base == "bool":
        return ctypes.c_bool
    return ctypes.c_void_p if base in ("cudnnHandle_t", BACKEND_DESCRIPTOR, "void *") else element_type(base)


def element(library: Library, base: str, value: Any, function: str, name: str) -> Any:
    """Return one attribute element in C form."""
    if base == "void *":
        return library.device_address(value, function, name)
    if base in ("cudnnHandle_t", BACKEND_DESCRIPTOR):
        return library.opaque_address(value, base, function, name)
    if base == "bool":
        return bool(value)
    where = f"{function}: {name}"
    if base in SCALARS:
        return scalar(SCALARS[base], value, where).value
    return scalar(ctypes.c_int, value, where).value


class ElementsOut(Slot):
    """Return the requested values of a backend attribute that exist."""

    passed, returned = False, True

    def encode(self, call: Call) -> Any:
        count = max(0, int(call.values["requestedElementCount"]))
        base = ATTRIBUTE_ELEMENTS.get(int(call.values["attributeType"]), "int64_t")
        array = call.place(self.name, storage_type(base) * count)
        if base == BACKEND_DESCRIPTOR:
            for index, kind in enumerate(self.kinds(call)[:count]):
                pointer = ctypes.c_void_p()
                create(call, "cudnnBackendCreateDescriptor", ctypes.c_int(kind), ctypes.byref(pointer))
                array[index] = pointer.value
        return array

    def kinds(self, call: Call) -> list[int]:
        """Return the types of the descriptors that the call can fill."""
        attribute = int(call.values["attributeName"])
        if attribute in ATTRIBUTES_OF_SEVERAL_TYPES and isinstance(call.values["descriptor"], Opaque):
            return [e.kind for e in call.values["descriptor"].elements.get(attribute, ())]
        kind = ATTRIBUTE_DESCRIPTORS.get(attribute)
        return [] if kind is None else [int(kind)] * max(0, int(call.values["requestedElementCount"]))

    def count(self, call: Call) -> int:
        """Return how many elements were written."""
        written: int = call.storage["elementCount"].value
        return max(0, min(int(call.values["requestedElementCount"]), written))

    def decode(self, call: Call) -> Any:
        base = ATTRIBUTE_ELEMENTS.get(int(call.values["attributeType"]), "int64_t")
        values = call.storage[self.name][: self.count(call)]
        if base == "void *":
            return tuple(call.library.memory_at(value) for value in values)
        if base in ("cudnnHandle_t", BACKEND_DESCRIPTOR):
            objects = tuple(call.library.adopt(base, value) for value in values)
            for made, kind in zip(objects, self.kinds(call), strict=False):
                if made is not None:
                    made.kind = kind
            return objects
        return tuple(value if base == "bool" else python_value(base, value) for value in values)

    def finish(self, call: Call) -> None:
        base = ATTRIBUTE_ELEMENTS.get(int(call.values["attributeType"]), "int64_t")
        if base == BACKEND_DESCRIPTOR:
            used = self.count(call) if call.succeeded else 0
            for address in call.storage[self.name][used:]:
                if address:
                    call.library.symbol("cudnnBackendDestroyDescriptor")(ctypes.c_void_p(address))


def const_param_type(label: Any) -> str:
    """Return the C type of a label of a constant parameter pack."""
    name = getattr(named(cudnnFusedOpsConstParamLabel_t, int(label)), "name", "")
    if name.endswith("DESC"):
        return CONST_PARAM_DESCRIPTORS.get(name, "cudnnTensorDescriptor_t")
    return "cudnnBatchNormMode_t" if name.endswith("MODE") else "cudnnFusedOpsPointerPlaceHolder_t"


PARAM_ENUMERATIONS: dict[str, Any] = {
    "cudnnBatchNormMode_t": cudnnBatchNormMode_t,
    "cudnnFusedOpsPointerPlaceHolder_t": cudnnFusedOpsPointerPlaceHolder_t,
}


class ConstParamIn(Slot):
    """Convert a descriptor, or a pointer to an enumerator, as the label requires."""

    def encode(self, call: Call) -> Any:
        value, base = call.values[self.name], const_param_type(call.values["paramLabel"])
        if value is None:
            return ctypes.c_void_p(None)
        if base not in PARAM_ENUMERATIONS:
            return ctypes.c_void_p(call.library.opaque_address(value, base, call.function, self.name))
        return call.place(self.name, ctypes.c_int * 1, scalar(ctypes.c_int, value, call.where(self.name)).value)


class ConstParamOut(Slot):
    """Return a copy of the descriptor, or the enumerator; None if the pack holds NULL."""

    passed, returned = False, True

    def encode(self, call: Call) -> Any:
        base = const_param_type(call.values["paramLabel"])
        if base in PARAM_ENUMERATIONS:
            return call.place(self.name, ctypes.c_int * 1)
        call.storage[self.name] = pointer = ctypes.c_void_p()
        create(call, base.replace("cudnn", "cudnnCreate").removesuffix("_t"), ctypes.byref(pointer))
        return pointer

    def decode(self, call: Call) -> Any:
        base, storage = const_param_type(call.values["paramLabel"]), call.storage[self.name]
        if base in PARAM_ENUMERATIONS:
            return named(PARAM_ENUMERATIONS[base], storage[0])
        return None if call.storage["isNULL"].value else call.library.adopt(base, storage.value)

    def finish(self, call: Call) -> None:
        base = const_param_type(call.values["paramLabel"])
        unused = not call.succeeded or call.storage["isNULL"].value
        if base not in PARAM_ENUMERATIONS and unused:
            destroy = call.library.symbol(base.replace("cudnn", "cudnnDestroy").removesuffix("_t"))
            destroy(call.storage[self.name])


def variant_param_scalar(label: Any) -> Any:
    """Return the ctypes type of a scalar label of a variant parameter pack; None for device pointers."""
    name = getattr(named(cudnnFusedOpsVariantParamLabel_t, int(label)), "name", "")
    return SCALARS.get(VARIANT_PARAM_SCALARS.get(name, ""))


class VariantParamIn(Slot):
    """Convert a device pointer, or a pointer to a host scalar, as the label requires."""

    def encode(self, call: Call) -> Any:
        value, kind = call.values[self.name], variant_param_scalar(call.values["paramLabel"])
        if value is None:
            return ctypes.c_void_p(None)
        if kind is None:
            return ctypes.c_void_p(call.library.device_address(value, call.function, self.name))
        return call.place(self.name, kind * 1, scalar(kind, value, call.where(self.name)).value)


class VariantParamOut(Slot):
    """Return the buffer at the device pointer, or the scalar."""

    passed, returned = False, True

    def encode(self, call: Call) -> Any:
        kind = variant_param_scalar(call.values["paramLabel"]) or ctypes.c_void_p
        return ctypes.byref(call.place(self.name, kind))

    def decode(self, call: Call) -> Any:
        value = call.storage[self.name].value
        is_scalar = variant_param_scalar(call.values["paramLabel"]) is not None
        return value if is_scalar else call.library.memory_at(value)


SPECIAL_SLOTS: dict[tuple[str, str], Callable[[Parameter], Slot]] = {
    ("cudnnSetCallback", "udata"): UserDataIn,
    ("cudnnSetCallback", "fptr"): CallbackIn,
    ("cudnnGetCallback", "udata"): UserDataOut,
    ("cudnnGetCallback", "fptr"): CallbackOut,
    ("cudnnCreateAlgorithmPerformance", "algoPerf"): PerformancesOut,
    ("cudnnDestroyAlgorithmPerformance", "algoPerf"): PerformancesDestroyed,
    **{
        (f"cudnnFindRNN{which}AlgorithmEx", "perfResults"): SearchResults
        for which in ("ForwardInference", "ForwardTraining", "BackwardData", "BackwardWeights")
    },
    ("cudnnBackendCreateDescriptor", "descriptor"): BackendDescriptorOut,
    ("cudnnBackendSetAttribute", "arrayOfElements"): ElementsIn,
    ("cudnnBackendGetAttribute", "arrayOfElements"): ElementsOut,
    ("cudnnSetFusedOpsConstParamPackAttribute", "param"): ConstParamIn,
    ("cudnnGetFusedOpsConstParamPackAttribute", "param"): ConstParamOut,
    ("cudnnSetFusedOpsVariantParamPackAttribute", "ptr"): VariantParamIn,
    ("cudnnGetFusedOpsVariantParamPackAttribute", "ptr"): VariantParamOut,
}
