"""Makes C headers from the function tables: ``miopen/miopen.h`` at the guide's level or today's, and ``cudnn.h`` of
8.0.3.

They declare the names of the tables. Ported and original sources compile with them where neither library is installed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from pathlib import Path
from typing import Any

from dualdnn.api.document import functions as cudnn_functions
from dualdnn.api.enumerations import ENUMERATIONS as CUDNN_ENUMERATIONS
from dualdnn.api.miopen.document import functions as miopen_functions
from dualdnn.api.miopen.enumerations import ENUMERATIONS as MIOPEN_ENUMERATIONS

from .forms import today

_PLAIN = {
    "int",
    "unsigned",
    "size_t",
    "double",
    "float",
    "bool",
    "void",
    "char",
    "int64_t",
    "uint32_t",
    "unsigned long long",
}
_START = '#include <stdbool.h>\n#include <stddef.h>\n#include <stdint.h>\n#ifdef __cplusplus\nextern "C" {\n#endif\n'
_END = "#ifdef __cplusplus\n}\n#endif\n"
_STREAM = "typedef struct CUstream_st *cudaStream_t;\n"
_DIRECTIONS = ("Fwd", "BwdData", "BwdFilter")
_CUDNN_RESULTS = "".join(
    f"typedef struct {{ cudnnConvolution{name}Algo_t algo; cudnnStatus_t status; float time; size_t memory;"
    " cudnnDeterminism_t determinism; cudnnMathType_t mathType; int reserved[3]; }"
    f" cudnnConvolution{name}AlgoPerf_t;\n"
    for name in _DIRECTIONS
)
_MIOPEN_RESULTS = (
    "typedef struct { union { miopenConvFwdAlgorithm_t fwd_algo; miopenConvBwdWeightsAlgorithm_t bwd_weights_algo;"
    " miopenConvBwdDataAlgorithm_t bwd_data_algo; }; float time; size_t memory; } miopenConvAlgoPerf_t;\n"
)
_VERSION = "#define CUDNN_MAJOR 8\n#define CUDNN_MINOR 0\n#define CUDNN_PATCHLEVEL 3\n#define CUDNN_VERSION 8003\n#define CUDNN_DIM_MAX 8\n"


def write_headers(folder: Path, level: str = "guide") -> None:
    """Write both headers into the folder."""
    folder.joinpath("miopen").mkdir(parents=True, exist_ok=True)
    folder.joinpath("miopen", "miopen.h").write_text(miopen_header() + (_newer() if level == "today" else ""), "utf-8")
    folder.joinpath("cudnn.h").write_text(cudnn_header(), "utf-8")


def miopen_header() -> str:
    """Return the 53 functions of the guide with the types that they need."""
    return _header(miopen_functions(), MIOPEN_ENUMERATIONS, "miopenStatus_t", _STREAM + "typedef cudaStream_t miopenAcceleratorQueue_t;\n",
                   _MIOPEN_RESULTS, {"miopenConvAlgoPerf_t", "miopenAcceleratorQueue_t"})  # fmt: skip


def _newer() -> str:
    """Return the functions that MIOpen has got since the guide, with the types that they need."""
    added = today()
    functions = {entry["miopen"]: entry["signature"] for entry in added["functions"].values()}
    kinds = "".join(_enumeration(name, members) for name, members in added["enumerations"].items())
    opaque = {name for name in added["types"].values() if name.endswith("Descriptor_t")}
    types = "".join(f"typedef struct {name[:-2]} *{name};\n" for name in sorted(opaque))
    prototypes = "".join(
        f"{_result(name, 'miopenStatus_t')}{name}({signature});\n"
        for name, signature in functions.items()
        if name not in miopen_functions()
    )
    return '#ifdef __cplusplus\nextern "C" {\n#endif\n' + kinds + types + prototypes + _END


def cudnn_header() -> str:
    """Return the functions of the document whose types are handles, descriptors, enumerations, numbers and results
    of Find."""
    results = {f"cudnnConvolution{name}AlgoPerf_t" for name in _DIRECTIONS}
    return _VERSION + _header(
        cudnn_functions(), CUDNN_ENUMERATIONS, "cudnnStatus_t", _STREAM, _CUDNN_RESULTS, results | {"cudaStream_t"}
    )


def _header(
    functions: Mapping[str, Any],
    enumerations: Mapping[str, type[IntEnum]],
    status: str,
    start: str,
    results: str,
    known: set[str],
) -> str:
    known = known | _PLAIN | set(enumerations)
    opaque: dict[str, None] = {}
    prototypes = []
    for name, function in functions.items():
        bases = [p.base_type for p in function.parameters]
        handles = [b for b in bases if b.endswith(("Handle_t", "Descriptor_t"))]
        if all(b in known or b in handles for b in bases):
            opaque |= dict.fromkeys(handles)
            prototypes.append(
                f"{_result(name, status)}{name}({', '.join(_declarations(function.parameters)) or 'void'});\n"
            )
    types = "".join(f"typedef struct {name[:-2]} *{name};\n" for name in opaque)
    return (
        "#pragma once\n"
        + _START
        + start
        + "".join(_enumeration(name, {m.name: m.value for m in kind}) for name, kind in enumerations.items())
        + types
        + results
        + "".join(prototypes)
        + _END
    )


def _result(name: str, status: str) -> str:
    return {
        "cudnnGetErrorString": "const char *",
        "miopenGetErrorString": "const char *",
        "cudnnGetVersion": "size_t ",
        "cudnnGetCudartVersion": "size_t ",
    }.get(name, status + " ")


def _declarations(parameters: Iterable[Any]) -> Iterator[str]:
    for parameter in parameters:
        array = "[]" if parameter.ctype.endswith("[]") else ""
        yield f"{parameter.ctype.removesuffix('[]').strip()} {parameter.name}{array}"


def _enumeration(name: str, members: Mapping[str, int]) -> str:
    return f"typedef enum {{ {', '.join(f'{member} = {value}' for member, value in members.items())} }} {name};\n"
