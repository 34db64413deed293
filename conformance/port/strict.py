"""Builds a C library that exports the functions of the facade.

A ported program and its original run against it. ``build`` compiles the library with cffi's embedding mode;
``install`` runs inside it.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
import sysconfig
import traceback
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

_TABLES = {"miopen": "dualdnn.api.miopen.document", "cudnn": "dualdnn.api.document"}
_FAILED = {"miopen": 5, "cudnn": 4}  # INTERNAL_ERROR in each document
_MISSING = {"miopen": 6, "cudnn": 9}  # NOT_IMPLEMENTED, NOT_SUPPORTED
_RESULTS = {
    "miopenConvAlgoPerf_t": ("algorithm", "time", "memory"),
    "cudnnConvolutionFwdAlgoPerf_t": ("algo", "status", "time", "memory", "determinism", "mathType"),
    "cudnnConvolutionBwdDataAlgoPerf_t": ("algo", "status", "time", "memory", "determinism", "mathType"),
    "cudnnConvolutionBwdFilterAlgoPerf_t": ("algo", "status", "time", "memory", "determinism", "mathType"),
}
_STRUCTURES = """
typedef struct { int algorithm; float time; size_t memory; } miopenConvAlgoPerf_t;
typedef struct { int algo; int status; float time; size_t memory; int determinism; int mathType; int reserved[3]; } cudnnPerf_t;
"""
_NUMBERS = {"int", "unsigned", "size_t", "double", "float", "bool"}
_OTHER_RESULTS = {"cudnnGetErrorString", "cudnnGetVersion", "cudnnGetCudartVersion"}
REACH = 1 << 32  # bytes; bounds memory of unknown size
Function = Callable[..., int]


def build(document: str, folder: Path) -> Path:
    """Compile lib<document>_strict.so into the folder; document is "miopen" or "cudnn"."""
    try:
        import cffi
    except ImportError:
        raise ValueError("cffi is not installed: pip install 'dualdnn[abi]'") from None
    folder.mkdir(parents=True, exist_ok=True)
    ffi = cffi.FFI()
    ffi.embedding_api(
        _STRUCTURES + "".join(f"int {name}({_c_parameters(name, document)});\n" for name in exported(document))
    )
    ffi.set_source(f"_dualdnn_{document}", _STRUCTURES)
    paths = [str(Path(entry)) for entry in sys.path if entry.endswith("site-packages")]
    ffi.embedding_init_code(f"""
import site
for path in {paths!r}:
    site.addsitedir(path)
from _dualdnn_{document} import ffi
from dualdnn.conformance.port.strict import install
install(ffi, {document!r})
""")
    source = folder / f"{document}_strict.c"
    ffi.emit_c_code(str(source))
    library = folder / f"lib{document}_strict.so"
    home, version = sysconfig.get_config_var("LIBDIR"), sysconfig.get_config_var("LDVERSION")
    command = ["gcc", "-O1", "-w", "-shared", "-fPIC", str(source), "-o", str(library), f"-I{sysconfig.get_path('include')}",
               f"-L{home}", f"-Wl,-rpath,{home}", f"-lpython{version}"]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True)
    return library


def exported(document: str) -> list[str]:
    """Return the functions of the document that answer a status and whose types the library can pass."""
    table = import_module(_TABLES[document]).functions()
    return [name for name, f in table.items() if name not in _OTHER_RESULTS and all(map(_is_passable, f.parameters))]


def install(ffi: Any, document: str) -> None:
    """Define every exported function when the library is first used."""
    module = import_module(f"dualdnn.api.{document}")
    table = import_module(_TABLES[document]).functions()
    objects: dict[int, Any] = {}
    for name in exported(document):
        ffi.def_extern(name=name)(_function(ffi, document, module, table[name], objects))


def _function(ffi: Any, document: str, module: Any, described: Any, objects: dict[int, Any]) -> Function:
    def call(*given: Any) -> int:
        try:
            function = getattr(module, described.name)
        except AttributeError as error:
            print(error, file=sys.stderr)
            return _MISSING[document]
        try:
            passed = dict(zip((p.name for p in described.parameters), given, strict=True))
            arguments = [_argument(ffi, p, passed, objects) for p in described.parameters if not p.is_returned]
            result = function() if described.name.endswith("nCreate") else function(*arguments)
            places = [(p, passed[p.name]) for p in described.parameters if p.is_returned]
            for (parameter, place), value in zip(places, result if len(places) > 1 else [result], strict=False):
                _store(ffi, parameter, place, value, objects)
            if "Destroy" in described.name:
                objects.pop(_number(ffi, given[0]), None)
            return 0
        except Exception as error:  # No exception may cross the border to C.
            status = getattr(error, "status", None)
            print(error if status is not None else traceback.format_exc(), file=sys.stderr)
            return _FAILED[document] if status is None else int(status)

    return call


def _argument(ffi: Any, parameter: Any, passed: Mapping[str, Any], objects: dict[int, Any]) -> Any:
    value, base = passed[parameter.name], parameter.base_type
    if base.endswith(("Handle_t", "Descriptor_t")):
        return objects.get(_number(ffi, value))
    if parameter.memory == "device":
        return _memory(_number(ffi, value))
    if base.endswith("Stream_t") or base.endswith("Queue_t"):
        return None
    if base == "void":
        return None if value == ffi.NULL else ffi.cast("float *", value)[0]
    if parameter.is_pointer:
        count = passed.get("nbDims", passed.get("arrayLength"))
        return None if value == ffi.NULL else [value[i] for i in range(count)]
    return value


def _memory(address: int) -> Any:
    """Return host memory that belongs to the program; its size is not known."""
    return (ctypes.c_ubyte * REACH).from_address(address) if address else None


def _store(ffi: Any, parameter: Any, place: Any, value: Any, objects: dict[int, Any]) -> None:
    base = parameter.base_type
    if place == ffi.NULL:
        return
    if base.endswith(("Handle_t", "Descriptor_t")):
        key = 16 * (1 + max(objects, default=0) // 16)
        objects[key] = value
        place[0] = ffi.cast("void *", key)
    elif base in _RESULTS:
        for index, entry in enumerate(value):
            for field in _RESULTS[base]:
                setattr(place[index], field, getattr(entry, field))
    elif parameter.ctype.endswith("[]"):
        for index, entry in enumerate(value):
            place[index] = entry
    elif not base.endswith(("Stream_t", "Queue_t")):
        place[0] = value


def _number(ffi: Any, pointer: Any) -> int:
    return int(ffi.cast("uintptr_t", pointer))


def _is_passable(parameter: Any) -> bool:
    base = parameter.base_type
    if base in _NUMBERS or base in _RESULTS or base.endswith(("Handle_t", "Descriptor_t", "Stream_t", "Queue_t")):
        return True
    return base == "void" or _is_enumeration(base)


def _is_enumeration(base: str) -> bool:
    from dualdnn.api.enumerations import ENUMERATIONS as OF_CUDNN
    from dualdnn.api.miopen.enumerations import ENUMERATIONS as OF_MIOPEN

    return base in OF_CUDNN or base in OF_MIOPEN


def _c_parameters(name: str, document: str) -> str:
    function = import_module(_TABLES[document]).functions()[name]
    return ", ".join(f"{_c_type(p)} {p.name}" for p in function.parameters) or "void"


def _c_type(parameter: Any) -> str:
    base, pointer = parameter.base_type, "*" if parameter.is_pointer else ""
    if base in _RESULTS:
        return ("miopenConvAlgoPerf_t" if base.startswith("miopen") else "cudnnPerf_t") + " *"
    if base in _NUMBERS:
        return f"{'_Bool' if base == 'bool' else base} {pointer}"
    return f"{'int' if _is_enumeration(base) else 'void *' if base != 'void' else 'void '}{pointer}"
