"""Write ``cudnn.h`` and its companion headers from the function table and the enumerations, at the level of the
document.

They compile as C and as C++.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from .. import enumerations
from ..document import SPECIFICATION, Function, Parameter, functions
from .c_types import NUMBERS, result_type
from .faces import Face, face

DOCUMENT = face(8)

OPENING = """/* %(title)s: types, enumerators and functions, from the function table of dualdnn. */
#ifndef CUDNN_H_
#define CUDNN_H_

#include <stddef.h>
#include <stdint.h>

%(version)s
#ifndef CUDNNWINAPI
#define CUDNNWINAPI
#endif
#ifndef CUDNN_DEPRECATED
#define CUDNN_DEPRECATED
#endif

/* Programs have the CUDA runtime's functions from here, as from NVIDIA's header; without a CUDA toolkit its types alone. */
#if defined(__has_include)
#if __has_include(<cuda_runtime.h>)
#include <cuda_runtime.h>
#endif
#endif
#if !defined(__DRIVER_TYPES_H__) && !defined(__CUDA_RUNTIME_API_H__)
typedef struct CUstream_st *cudaStream_t;
#endif
#ifndef __LIBRARY_TYPES_H__
typedef enum libraryPropertyType_t { MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL } libraryPropertyType;
#endif

#ifdef __GNUC__ /* Seeds are unsigned long long in C89 and C++98, too. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wlong-long"
#endif
#ifdef __cplusplus
extern "C" {
#endif
"""
CLOSING = """
#ifdef __cplusplus
}
#endif
#ifdef __GNUC__
#pragma GCC diagnostic pop
#endif
#endif /* CUDNN_H_ */
"""

# STRUCTURES lists the opaque types whose structure name is not the type name with Struct in place of _t.
STRUCTURES = {
    "cudnnHandle_t": "struct cudnnContext *",
    "cudnnDropoutDescriptor_t": "struct cudnnDropoutStruct *",
    "cudnnLRNDescriptor_t": "struct cudnnLRNStruct *",
    "cudnnRNNDescriptor_t": "struct cudnnRNNStruct *",
    "cudnnRNNDataDescriptor_t": "struct cudnnRNNDataStruct *",
    "cudnnActivationDescriptor_t": "struct cudnnActivationStruct *",
    "cudnnAttnDescriptor_t": "struct cudnnAttnStruct *",
    "cudnnSeqDataDescriptor_t": "struct cudnnSeqDataStruct *",
    "cudnnFilterDescriptor_t": "struct cudnnFilterStruct *",
    "cudnnTensorDescriptor_t": "struct cudnnTensorStruct *",
    "cudnnConvolutionDescriptor_t": "struct cudnnConvolutionStruct *",
    "cudnnPoolingDescriptor_t": "struct cudnnPoolingStruct *",
    "cudnnOpTensorDescriptor_t": "struct cudnnOpTensorStruct *",
    "cudnnReduceTensorDescriptor_t": "struct cudnnReduceTensorStruct *",
    "cudnnCTCLossDescriptor_t": "struct cudnnCTCLossStruct *",
    "cudnnTensorTransformDescriptor_t": "struct cudnnTensorTransformStruct *",
    "cudnnSpatialTransformerDescriptor_t": "struct cudnnSpatialTransformerStruct *",
    "cudnnAlgorithmDescriptor_t": "struct cudnnAlgorithmStruct *",
    "cudnnAlgorithmPerformance_t": "struct cudnnAlgorithmPerformanceStruct *",
    "cudnnPersistentRNNPlan_t": "struct cudnnPersistentRNNPlan *",
    "cudnnRuntimeTag_t": "struct cudnnRuntimeTag_t",
    "cudnnFusedOpsConstParamPack_t": "struct cudnnFusedOpsConstParamStruct *",
    "cudnnFusedOpsVariantParamPack_t": "struct cudnnFusedOpsVariantParamStruct *",
    "cudnnFusedOpsPlan_t": "struct cudnnFusedOpsPlanStruct *",
    "cudnnBackendDescriptor_t": "void *",
}
RECORDS = """
typedef struct cudnnDebugStruct {
  unsigned cudnn_version;
  cudnnStatus_t cudnnStatus;
  unsigned time_sec, time_usec, time_delta;
  cudnnHandle_t handle;
  cudaStream_t stream;
  unsigned long long pid, tid;
  int cudaDeviceId;
  int reserved[15];
} cudnnDebug_t;
typedef void (*cudnnCallback_t)(cudnnSeverity_t sev, void *udata, const cudnnDebug_t *dbg, const char *msg);
typedef struct cudnnAlgorithmUnionStruct {
  union Algorithm {
    cudnnConvolutionFwdAlgo_t convFwdAlgo;
    cudnnConvolutionBwdFilterAlgo_t convBwdFilterAlgo;
    cudnnConvolutionBwdDataAlgo_t convBwdDataAlgo;
    cudnnRNNAlgo_t RNNAlgo;
    cudnnCTCLossAlgo_t CTCLossAlgo;
  } algo;
} cudnnAlgorithm_t;
typedef unsigned cudnnAttnQueryMap_t; /* the type of attnMode in earlier releases, which programs still name */
"""
PERFORMANCES = {
    "cudnnConvolutionFwdAlgoPerf_t": "cudnnConvolutionFwdAlgo_t",
    "cudnnConvolutionBwdDataAlgoPerf_t": "cudnnConvolutionBwdDataAlgo_t",
    "cudnnConvolutionBwdFilterAlgoPerf_t": "cudnnConvolutionBwdFilterAlgo_t",
}
# The document lacks these, but NVIDIA's header defines them, and programs use them as array sizes.
COUNTS = {
    "CUDNN_CONVOLUTION_FWD_ALGO_COUNT": enumerations.cudnnConvolutionFwdAlgo_t,
    "CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT": enumerations.cudnnConvolutionBwdDataAlgo_t,
    "CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT": enumerations.cudnnConvolutionBwdFilterAlgo_t,
    "CUDNN_RNN_ALGO_COUNT": enumerations.cudnnRNNAlgo_t,
}
# NVIDIA's header and the document disagree on const for these parameters. They follow the header, because programs
# compile against it.
HEADER_TYPES = {
    "cudnnBackendSetAttribute": {"arrayOfElements": "const void *"},
    "cudnnCTCLoss": {"gradients": "void *", "ctcLossDesc": "cudnnCTCLossDescriptor_t"},
    "cudnnCTCLoss_v8": {"gradients": "void *", "ctcLossDesc": "cudnnCTCLossDescriptor_t"},
    "cudnnFindRNNBackwardDataAlgorithmEx": {"reserveSpace": "void *"},
    "cudnnRNNBackwardData": {"reserveSpace": "void *"},
}
NOT_DECLARED = ("void", "libraryPropertyType", "cudaStream_t", "cudnnAlgorithm_t", "cudnnCallback_t")


def headers(chosen: Face = DOCUMENT) -> dict[str, str]:
    """Return every header by its file name: ``cudnn.h``, the version, and one per library and for the backend, which
    include it."""
    made = {"cudnn.h": header(chosen), "cudnn_version.h": _guarded("CUDNN_VERSION_H_", version_lines(chosen))}
    made["cudnn_backend.h"] = _guarded("CUDNN_BACKEND_H_", '#include "cudnn.h"\n')
    # Release 9 has fewer parts, which old sources include by name.
    for part in dict.fromkeys((*chosen.parts, *DOCUMENT.parts)):
        name = f"CUDNN_{part.upper()}"
        levels = zip(("MAJOR", "MINOR", "PATCH"), chosen.version, strict=True)
        version = "".join(f"#define {name}_{level} {number}\n" for level, number in levels)
        made[f"cudnn_{part}.h"] = _guarded(f"{name}_H_", version + '#include "cudnn.h"\n')
    return made


def _guarded(name: str, text: str) -> str:
    return f"#ifndef {name}\n#define {name}\n\n{text}\n#endif /* {name} */\n"


def version_lines(chosen: Face) -> str:
    """Return the version in C. CMake modules read the first three lines by regular expressions, some of them in
    cudnn.h."""
    levels = zip(("MAJOR", "MINOR", "PATCHLEVEL"), chosen.version, strict=True)
    lines = [f"#define CUDNN_{level} {number}\n" for level, number in levels]
    return "".join([*lines, f"\n#define CUDNN_VERSION {chosen.formula}\n"])


def header(chosen: Face = DOCUMENT) -> str:
    """Return the text of cudnn.h."""
    title = (
        SPECIFICATION if chosen.release is None else f"{SPECIFICATION}, with the numbers of release {chosen.release}"
    )
    opening = OPENING % {"title": title, "version": version_lines(chosen)}
    parts = (_limits, _enumerations)
    named = [line for part in parts for line in part(chosen)]
    return "\n".join([opening, *named, *_opaque(), RECORDS, *_performances(), *_functions(), *_later(chosen), CLOSING])


def _limits(chosen: Face = DOCUMENT) -> Iterator[str]:
    for name, value in vars(enumerations).items():
        if name.startswith("CUDNN_") and isinstance(value, int | float):
            yield f"#define {name} {value!r}"
    for name, kind in COUNTS.items():
        yield f"#define {name} {max(chosen.values(kind.__name__).values()) + 1}"


def _enumerations(chosen: Face) -> Iterator[str]:
    for name in (
        *enumerations.ENUMERATIONS,
        *(kind for kind in chosen.enumerators if kind not in enumerations.ENUMERATIONS),
    ):
        if name == "libraryPropertyType":
            continue
        listed = ",\n".join(f"  {member} = {number}" for member, number in chosen.values(name).items())
        yield f"typedef enum {{\n{listed}\n}} {name};"


def _opaque() -> Iterator[str]:
    used = {parameter.base_type for function in functions().values() for parameter in function.parameters}
    told = {*NUMBERS, *NOT_DECLARED, *enumerations.ENUMERATIONS, *PERFORMANCES}
    for name in sorted(used - told):
        yield f"typedef {STRUCTURES[name]} {name};".replace("* ", "*")


def _performances() -> Iterator[str]:
    for name, algorithm in PERFORMANCES.items():
        yield f"""typedef struct {name.removesuffix("_t")}Struct {{
  {algorithm} algo;
  cudnnStatus_t status;
  float time;
  size_t memory;
  cudnnDeterminism_t determinism;
  cudnnMathType_t mathType;
  int reserved[3];
}} {name};"""


def _functions() -> Iterator[str]:
    for function in functions().values():
        types = HEADER_TYPES.get(function.name, {})
        declared = ", ".join(declaration(p, types.get(p.name, p.ctype)) for p in function.parameters)
        yield f"{_result(function)}CUDNNWINAPI {function.name}({declared or 'void'});"


def _later(chosen: Face) -> Iterator[str]:
    """Yield the calls of the release that the document lacks."""
    yield from chosen.messages
    for name, parameters in chosen.parameters.items():
        yield f"cudnnStatus_t CUDNNWINAPI {name}({parameters});"
    yield from (f"size_t CUDNNWINAPI {name}(void);" for name in chosen.sizes)


def _result(function: Function) -> str:
    found = result_type(function)
    return "cudnnStatus_t " if found == "int" else f"{found} ".replace("* ", "*")


def declaration(parameter: Parameter, ctype: str) -> str:
    """Return the declaration of a parameter in C."""
    arrays = ctype.count("[]")
    kind = re.sub(r"(?<=\w)\*", " *", ctype.replace("[]", "")).strip()
    return f"{kind} {parameter.name}{'[]' * arrays}".replace("* ", "*")
