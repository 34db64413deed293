"""Writes the type stubs of the documented calls from the function table and the enumerations: ``make stubs``.

Editors complete from them and type checkers find a misspelt or misplaced argument. The calls themselves are made at run
time, so that no checker could read them.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable
from pathlib import Path

from . import SPECIFICATION, Function, Parameter, functions

STUB = Path(__file__).resolve().parents[1] / "cudnn" / "__init__.pyi"
WIDTH = 120
INTEGERS = ("int", "int32_t", "unsigned", "uint32_t", "int64_t", "size_t", "unsigned long long")

# Functions that return their value in C, too.
VALUES = {"cudnnGetVersion": "int", "cudnnGetCudartVersion": "int", "cudnnGetErrorString": "str"}

HEADING = f'''\
"""The documented calls of the {SPECIFICATION}, with all enumerators.

Made by ``make stubs`` from the function table and the enumerations; not to be edited.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, SupportsFloat, SupportsIndex, TypeAlias

from ..api_log import cudnnDebug_t
from ..descriptors import (
{{descriptors}})
from ..enumerations import (
{{enumerations}})
from ..handle import Handle
from ..status import CudnnError as CudnnError

# A buffer of the handle, an array, an object with __cuda_array_interface__ or DLPack, an address.
Memory: TypeAlias = object
Callback: TypeAlias = Callable[[cudnnSeverity_t, Any, cudnnDebug_t, str], None]
FUNCTIONS: dict[str, Callable[..., Any]]

def cudnnCreate(*, backend: str | None = None, device: str | None = None) -> Handle:
    {{create}}
'''


def stub_text() -> str:
    """The text of the stub file of the functions that exist."""
    from .. import cudnn, enumerations
    from ..descriptors import DESCRIPTORS
    from ..functions import FUNCTIONS

    limits = [name for name in vars(enumerations) if name.startswith("CUDNN_")]
    names = [name for name in functions() if name in FUNCTIONS and name != "cudnnCreate"]
    parts = [
        HEADING.format(
            descriptors=_exported(kind.__name__ for kind in DESCRIPTORS.values()),
            enumerations=_exported([*enumerations.ENUMERATIONS, *limits]),
            create=_docstring(inspect.getdoc(cudnn.cudnnCreate) or ""),
        )
    ]
    parts += _structures()
    parts += [_function(functions()[name], inspect.getdoc(FUNCTIONS[name]) or "") for name in names]
    members = [
        f"{member.name}: Final = {kind.__name__}.{member.name}\n"
        for kind in enumerations.ENUMERATIONS.values()
        for member in kind
    ]
    return "\n".join(parts) + "\n" + "".join(members)


def _exported(names: Iterable[str]) -> str:
    """Lines of an import statement whose names whoever reads the stub may use."""
    return "".join(f"    {name} as {name},\n" for name in sorted(names))


def _structures() -> list[str]:
    """Records of the document that calls return."""
    found = []
    for name, kind in sorted(_records().items()):
        fields = "".join(f"    {field}: {_annotation(text)}\n" for field, text in kind.__annotations__.items())
        found.append(f"class {name}(NamedTuple):\n    {_docstring(inspect.getdoc(kind) or name)}\n\n{fields}")
    return found


def _records() -> dict[str, type]:
    from ..cudnn import convolution_algorithms

    return {"cudnnConvolutionFwdAlgoPerf_t": convolution_algorithms.cudnnConvolutionFwdAlgoPerf_t}


def _annotation(text: object) -> str:
    return getattr(text, "__forward_arg__", None) or getattr(text, "__name__", None) or str(text)


def _function(function: Function, doc: str) -> str:
    arguments = [f"{p.name}: {_argument_type(p)}" for p in function.arguments]
    returned = [p for p in function.parameters if p.is_returned]
    record = ""
    if not returned:
        result = VALUES.get(function.name, "None")
    elif len(returned) == 1:
        result = _returned_type(returned[0])
    else:
        result = f"_{function.name}"
        fields = "".join(f"    {p.name}: {_returned_type(p)}\n" for p in returned)
        record = f"class {result}(NamedTuple):\n{fields}\n"
    line = f"def {function.name}({', '.join(arguments)}) -> {result}:"
    if len(line) > WIDTH:
        line = f"def {function.name}(\n" + "".join(f"    {argument},\n" for argument in arguments) + f") -> {result}:"
    return f"{record}{line}\n    {_docstring(doc)}\n"


def _docstring(text: str) -> str:
    body = text.replace("\\", "\\\\").replace('"""', "'''").rstrip()
    lines = body.splitlines()
    if len(lines) <= 1:
        return f'"""{body}"""'
    rest = "\n".join(f"    {line}" if line else "" for line in lines[1:])
    return f'"""{lines[0]}\n{rest}\n    """'


def _argument_type(parameter: Parameter) -> str:
    kind = _plain_type(parameter, given=True)
    return f"{kind} | None" if parameter.nullable and kind not in ("Memory", "Any") else kind


def _returned_type(parameter: Parameter) -> str:
    kind = _plain_type(parameter, given=False)
    is_list = "[]" in parameter.ctype or parameter.base_type.endswith("Perf_t")
    return f"tuple[{kind}, ...]" if is_list else kind


def _plain_type(parameter: Parameter, given: bool) -> str:
    """The type of one value: what is given may be wider than what comes back."""
    from ..descriptors import DESCRIPTORS
    from ..enumerations import ENUMERATIONS

    base = parameter.base_type
    if base == "cudnnHandle_t":
        return "Handle"
    if parameter.memory == "device":
        return "Memory"
    if parameter.name == "arrayOfElements":
        return "Sequence[Any]" if given else "tuple[Any, ...]"
    if base in DESCRIPTORS:
        name = DESCRIPTORS[base].__name__
        return f"Sequence[{name}]" if parameter.is_pointer and parameter.length and given else name
    if base in ENUMERATIONS or base in _records():
        return base
    if base in INTEGERS:
        if not given:
            return "int"
        return "Sequence[SupportsIndex]" if parameter.is_pointer else "SupportsIndex"
    if base in ("double", "float") or (base == "void" and parameter.typed_by is not None):
        return "SupportsFloat" if given else "float"
    return "Callback | None" if base == "cudnnCallback_t" else "Any"


if __name__ == "__main__":
    STUB.write_text(stub_text(), encoding="utf-8")
    sys.stdout.write(f"{STUB}\n")
