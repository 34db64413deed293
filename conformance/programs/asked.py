"""Ask the observed library what its descriptors hold, where the calls that set them were not followed."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import addressof
from typing import Any

from dualdnn.api.abi.c_types import NATIVE, element
from dualdnn.api.abi.faces import Face
from dualdnn.api.document import Function, Parameter, functions
from dualdnn.api.enumerations import ENUMERATIONS
from dualdnn.api.status import CudnnError

# The calls of a descriptor type read its values from the library and set them here; their parameters have the same
# names.
ASKED = {
    "cudnnTensorDescriptor_t": ("TensorNdDescriptor",),
    "cudnnFilterDescriptor_t": ("FilterNdDescriptor",),
    "cudnnConvolutionDescriptor_t": (
        "ConvolutionNdDescriptor",
        "ConvolutionMathType",
        "ConvolutionGroupCount",
        "ConvolutionReorderType",
    ),
    "cudnnActivationDescriptor_t": ("ActivationDescriptor",),
    "cudnnPoolingDescriptor_t": ("PoolingNdDescriptor",),
    "cudnnOpTensorDescriptor_t": ("OpTensorDescriptor",),
    "cudnnReduceTensorDescriptor_t": ("ReduceTensorDescriptor",),
    "cudnnLRNDescriptor_t": ("LRNDescriptor",),
}
# A getter is asked for this many entries: CUDNN_DIM_MAX, and the ranks that its section allows.
REQUESTED = {"nbDimsRequested": 8, "arrayLengthRequested": 6}


class NotTold(Exception):
    """Say why the library's answer describes no descriptor of the document."""


class Asked:
    """Make our descriptors with the values that the library tells.

    foreign: function -> the library's own, or None.
    """

    def __init__(self, face: Face, foreign: Callable[[Function], Any]) -> None:
        self.face, self.foreign, self.getters = face, foreign, dict[str, Any]()

    def descriptor(self, pointer: int, base: str) -> Any:
        """Return a descriptor with the values of the library's descriptor at ``pointer``. Raises NotTold."""
        made = self.new(base)
        for part in ASKED[base]:
            values = self._values(functions()[f"cudnnGet{part}"], pointer)
            setter = functions()[f"cudnnSet{part}"]
            try:
                self._body(setter.name)(made, *(values[parameter.name] for parameter in setter.arguments[1:]))
            except CudnnError as refusal:
                raise NotTold(str(refusal)) from refusal
        return made

    def new(self, base: str) -> Any:
        """Return a descriptor that holds nothing."""
        return self._body(f"cudnnCreate{base.removeprefix('cudnn').removesuffix('_t')}")()

    def _body(self, name: str) -> Callable[..., Any]:
        found = self.face.body(name)
        assert found is not None, name
        return found

    def _values(self, getter: Function, pointer: int) -> dict[str, Any]:
        if getter.name not in self.getters:
            self.getters[getter.name] = self.foreign(getter)
        called = self.getters[getter.name]
        if called is None:
            raise NotTold(f"the library has no {getter.name}")
        places = {
            p.name: (NATIVE[element(p.base_type)] * max(REQUESTED.values()))()
            for p in getter.parameters
            if p.is_returned
        }
        given = REQUESTED | {name: addressof(place) for name, place in places.items()}
        if status := called(pointer, *(given[p.name] for p in getter.parameters[1:])):
            raise NotTold(f"{getter.name} returned {status}")
        counts = {p.name: places[p.name][0] for p in getter.parameters if p.is_returned}
        return {p.name: _value(p, places[p.name], counts) for p in getter.parameters if p.is_returned}


def _value(parameter: Parameter, place: Any, counts: dict[str, Any]) -> Any:
    """Return the value that a getter stored: a list for an array, a member for an enumerator."""
    if parameter.length is not None:
        return list(place[0 : counts[str(parameter.length.filled)]])
    found = place[0]
    if parameter.base_type in ENUMERATIONS:
        return next((member for member in ENUMERATIONS[parameter.base_type] if member.value == found), found)
    return found
