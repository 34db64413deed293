"""Write the type stubs of the documented calls from the function table and the enumerations: ``make stubs``.

Editors use them for completion, and type checkers for finding misspelt or misplaced arguments. The calls are made at
run time, so type checkers cannot analyse them.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dualdnn.api
from dualdnn.api.document import SPECIFICATION, Parameter, functions

API = Path(dualdnn.api.__file__).resolve().parent
STUBS = {name: API / name / "__init__.pyi" for name in ("cudnn", "miopen")}
WIDTH = 120
INTEGERS = ("int", "int32_t", "unsigned", "uint32_t", "int64_t", "size_t", "unsigned long long")

# VALUES lists functions that return a value in C too.
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

def cudnnCreate(
    *, backend: str | None = None, device: str | None = None, as_release: str | None = None, reproducible: str | None = None
) -> Handle:
    {{create}}
'''

MIOPEN = "MIOpen Porting Guide"
MIOPEN_HEADING = f'''\
"""The calls of the {MIOPEN}, with its enumerators.

Made by ``make stubs`` from the function table and the enumerations; not to be edited.
"""

from enum import IntEnum
from typing import Any, Final, NamedTuple, SupportsFloat, SupportsIndex, TypeAlias

from .enumerations import (
{{enumerations}})
from .objects import (
{{descriptors}})
from .objects import MiopenHandle as MiopenHandle
from .status import MiopenError as MiopenError

# A buffer of the handle, an array, an object with __cuda_array_interface__ or DLPack, an address.
Memory: TypeAlias = object

def miopenCreate(*, backend: str | None = None, device: str | None = None) -> MiopenHandle:
    {{create}}
'''


@dataclass(frozen=True)
class Library:
    """Hold what the annotations of one document need.

    It holds the C name and class of the handle, descriptors by C name and enumerations. It also holds records that
    calls return, and types of values that functions return in C too.
    """

    handle: tuple[str, str]
    descriptors: Mapping[str, type]
    enumerations: Mapping[str, type]
    records: Mapping[str, type] = field(default_factory=dict)
    values: Mapping[str, str] = field(default_factory=dict)


def stub_text(name: str = "cudnn") -> str:
    """Return the text of the stub file for a library's existing functions."""
    return _miopen() if name == "miopen" else _cudnn()


def _members(enumerations: Mapping[str, Any]) -> str:
    lines = [
        f"{member.name}: Final = {kind.__name__}.{member.name}\n" for kind in enumerations.values() for member in kind
    ]
    return "".join(lines)


def _miopen() -> str:
    from dualdnn.api import miopen
    from dualdnn.api.miopen import convolution, document, enumerations, objects

    records = {"miopenConvAlgoPerf_t": convolution.miopenConvAlgoPerf_t}
    library = Library(("miopenHandle_t", "MiopenHandle"), objects.DESCRIPTORS, enumerations.ENUMERATIONS, records)
    table = document.functions()
    names = [name for name in table if hasattr(miopen, name) and name != "miopenCreate"]
    heading = MIOPEN_HEADING.format(
        descriptors=_exported(kind.__name__ for kind in objects.DESCRIPTORS.values()),
        enumerations=_exported(enumerations.ENUMERATIONS),
        create=_docstring(inspect.getdoc(miopen.miopenCreate) or ""),
    )
    calls = [_function(library, table[name], inspect.getdoc(getattr(miopen, name)) or "") for name in names]
    return "\n".join([heading, *_structures(records), *calls]) + "\n" + _members(enumerations.ENUMERATIONS)


def _cudnn() -> str:
    from dualdnn.api import cudnn, enumerations
    from dualdnn.api.cudnn import FUNCTIONS
    from dualdnn.api.descriptors import DESCRIPTORS

    library = Library(("cudnnHandle_t", "Handle"), DESCRIPTORS, enumerations.ENUMERATIONS, _records(), VALUES)
    limits = [name for name in vars(enumerations) if name.startswith("CUDNN_")]
    names = [name for name in functions() if name in FUNCTIONS and name != "cudnnCreate"]
    parts = [
        HEADING.format(
            descriptors=_exported(kind.__name__ for kind in DESCRIPTORS.values()),
            enumerations=_exported([*enumerations.ENUMERATIONS, *limits]),
            create=_docstring(inspect.getdoc(cudnn.cudnnCreate) or ""),
        )
    ]
    parts += _structures(_records())
    parts += [_function(library, functions()[name], inspect.getdoc(FUNCTIONS[name]) or "") for name in names]
    return "\n".join(parts) + "\n" + _members(enumerations.ENUMERATIONS)


def _exported(names: Iterable[str]) -> str:
    """Return the lines of an import statement whose names the stub re-exports."""
    return "".join(f"    {name} as {name},\n" for name in sorted(names))


def _structures(records: Mapping[str, type]) -> list[str]:
    """Return the lines of the document's records that calls return."""
    found = []
    for name, kind in sorted(records.items()):
        fields = "".join(f"    {field}: {_annotation(text)}\n" for field, text in kind.__annotations__.items())
        members = "".join(
            f"    @property\n    def {member}(self) -> {_annotation(value.fget.__annotations__['return'])}: ...\n"
            for member, value in vars(kind).items()
            if isinstance(value, property)
        )
        found.append(f"class {name}(NamedTuple):\n    {_docstring(inspect.getdoc(kind) or name)}\n\n{fields}{members}")
    return found


def _records() -> dict[str, type]:
    from dualdnn.api.cudnn.convolution import algorithms

    searches = (algorithms.SEARCH, algorithms.DATA_SEARCH, algorithms.FILTER_SEARCH)
    return {search.entry.__name__: search.entry for search in searches}


def _annotation(text: object) -> str:
    return getattr(text, "__forward_arg__", None) or getattr(text, "__name__", None) or str(text)


def _function(library: Library, function: Any, doc: str) -> str:
    arguments = [f"{p.name}: {_argument_type(library, p)}" for p in function.arguments]
    returned = [p for p in function.parameters if p.is_returned]
    record = ""
    if not returned:
        result = library.values.get(function.name, "None")
    elif len(returned) == 1:
        result = _returned_type(library, returned[0])
    else:
        result = f"_{function.name}"
        fields = "".join(f"    {p.name}: {_returned_type(library, p)}\n" for p in returned)
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


def _argument_type(library: Library, parameter: Parameter) -> str:
    kind = _plain_type(library, parameter, given=True)
    return f"{kind} | None" if parameter.nullable and kind not in ("Memory", "Any") else kind


def _returned_type(library: Library, parameter: Parameter) -> str:
    kind = _plain_type(library, parameter, given=False)
    is_list = "[]" in parameter.ctype or parameter.base_type.endswith("Perf_t")
    return f"tuple[{kind}, ...]" if is_list else kind


def _plain_type(library: Library, parameter: Parameter, given: bool) -> str:
    """Return the type of one value; an argument's type may be wider than a result's."""
    base = parameter.base_type
    if base == library.handle[0]:
        return library.handle[1]
    if parameter.memory == "device":
        return "Memory"
    if parameter.name == "arrayOfElements":
        return "Sequence[Any]" if given else "tuple[Any, ...]"
    if base in library.descriptors:
        name = library.descriptors[base].__name__
        return f"Sequence[{name}]" if parameter.is_pointer and parameter.length and given else name
    if base in library.enumerations or base in library.records:
        return base
    if base in INTEGERS:
        if not given:
            return "int"
        return "Sequence[SupportsIndex]" if parameter.is_pointer else "SupportsIndex"
    if base == "bool":
        return "bool"
    if base in ("double", "float") or (base == "void" and parameter.typed_by is not None):
        return "SupportsFloat" if given else "float"
    return "Callback | None" if base == "cudnnCallback_t" else "Any"


if __name__ == "__main__":
    for library_name, path in STUBS.items():
        path.write_text(stub_text(library_name), encoding="utf-8")
        sys.stdout.write(f"{path}\n")
