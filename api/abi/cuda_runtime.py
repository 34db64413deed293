"""Builds a CUDA runtime and driver for machines without a GPU, whose device memory is memory of the host: for programs that allocate
with cudaMalloc and compute with libcudnn.so.8 on the reference backend."""

from __future__ import annotations

import os
import shlex
import subprocess
import sysconfig
import tempfile
from pathlib import Path

from .build import BuildError
from .names import link

DRIVER = "libcuda.so.1"
RUNTIMES = {
    "libcudart.so.11.0": 11080,
    "libcudart.so.12": 12000,
}  # file, soname and version node -> what cudaRuntimeGetVersion says
SOURCES = Path(__file__).parent

# Functions that programs link and that answer "not supported"; a program that links any other one is told its name by the loader.
MISSING_OF_THE_DRIVER = (
    "cuModuleLoad", "cuModuleLoadData", "cuModuleLoadDataEx", "cuModuleLoadFatBinary", "cuModuleUnload", "cuModuleGetFunction",
    "cuModuleGetGlobal_v2", "cuLaunchKernel", "cuLaunchKernelEx", "cuLaunchCooperativeKernel", "cuFuncSetAttribute", "cuFuncGetAttribute",
    "cuLinkCreate_v2", "cuLinkAddData_v2", "cuLinkComplete", "cuLinkDestroy", "cuCtxCreate_v2", "cuCtxDestroy_v2", "cuMemAllocManaged",
    "cuMemAllocPitch_v2", "cuMemHostRegister_v2", "cuMemHostUnregister", "cuPointerGetAttribute", "cuStreamBeginCapture_v2",
    "cuStreamEndCapture", "cuGraphInstantiate", "cuGraphLaunch", "cuGraphExecDestroy", "cuGraphDestroy", "cuTensorMapEncodeTiled",
    "cuOccupancyMaxActiveBlocksPerMultiprocessor", "cuOccupancyMaxPotentialBlockSize", "cuLinkAddFile_v2", "cuStreamGetCtx", "cuMemcpy2D_v2", "cuMemcpy3D_v2", "cuLibraryLoadData", "cuLibraryGetKernel",
)  # fmt: skip
MISSING_OF_THE_RUNTIME = (
    "cudaLaunchKernel", "cudaLaunchKernelExC", "cudaLaunchCooperativeKernel", "cudaLaunchHostFunc", "cudaFuncGetAttributes",
    "cudaFuncSetAttribute", "cudaFuncSetCacheConfig", "cudaOccupancyMaxActiveBlocksPerMultiprocessor",
    "cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", "cudaMallocManaged", "cudaMallocPitch", "cudaMalloc3D", "cudaMalloc3DArray",
    "cudaMallocArray", "cudaFreeArray", "cudaMallocFromPoolAsync", "cudaMemcpy3D", "cudaMemcpy3DAsync", "cudaMemcpyPeer",
    "cudaMemcpyPeerAsync", "cudaMemcpyToSymbol", "cudaMemcpyFromSymbol", "cudaMemcpyToSymbolAsync", "cudaMemcpyFromSymbolAsync",
    "cudaMemcpy2DFromArray", "cudaMemcpy2DFromArrayAsync", "cudaMemcpy2DToArray", "cudaMemcpy2DToArrayAsync", "cudaMemset2D",
    "cudaMemset2DAsync", "cudaMemset3D", "cudaMemAdvise", "cudaMemPrefetchAsync", "cudaMemPoolCreate", "cudaMemPoolDestroy",
    "cudaMemPoolGetAttribute", "cudaMemPoolSetAttribute", "cudaMemPoolTrimTo", "cudaDeviceGetDefaultMemPool", "cudaDeviceGetMemPool",
    "cudaDeviceSetMemPool", "cudaDeviceCanAccessPeer", "cudaDeviceEnablePeerAccess", "cudaDeviceDisablePeerAccess", "cudaDeviceGetLimit",
    "cudaDeviceSetLimit", "cudaDeviceGetPCIBusId", "cudaDeviceGetByPCIBusId", "cudaDeviceSetCacheConfig", "cudaChooseDevice",
    "cudaHostRegister", "cudaHostUnregister", "cudaHostGetDevicePointer", "cudaIpcGetMemHandle", "cudaIpcOpenMemHandle",
    "cudaIpcCloseMemHandle", "cudaIpcGetEventHandle", "cudaIpcOpenEventHandle", "cudaStreamAddCallback", "cudaStreamBeginCapture",
    "cudaStreamEndCapture", "cudaStreamGetCaptureInfo", "cudaStreamGetPriority", "cudaStreamGetFlags", "cudaStreamAttachMemAsync",
    "cudaGraphCreate", "cudaGraphInstantiate", "cudaGraphInstantiateWithFlags", "cudaGraphLaunch", "cudaGraphUpload", "cudaGraphDestroy",
    "cudaGraphExecDestroy", "cudaGraphExecUpdate", "cudaGetSymbolAddress", "cudaGetSymbolSize", "cudaCreateTextureObject",
    "cudaDestroyTextureObject", "cudaGetTextureObjectResourceDesc", "cudaGetTextureObjectTextureDesc", "cudaCreateSurfaceObject",
    "cudaDestroySurfaceObject", "cudaCreateChannelDesc", "cudaGetChannelDesc", "cudaProfilerInitialize", "cudaProfilerStart",
    "cudaProfilerStop", "cudaGetDriverEntryPoint",
)  # fmt: skip


def build_runtime(out: Path) -> list[Path]:
    """Write the driver and both runtimes below ``out``; returns their paths. A program finds them by LD_LIBRARY_PATH."""
    out.mkdir(parents=True, exist_ok=True)
    made = [
        _compiled(
            out, DRIVER, "cuda_driver.c", MISSING_OF_THE_DRIVER, "return dualdnn_missing(__func__, &reported);", []
        )
    ]
    for name, version in RUNTIMES.items():
        options = [f"-DRUNTIME_VERSION={version}", f"-L{out}", f"-l:{DRIVER}", "-Wl,-rpath,$ORIGIN"]
        body = "return noted(dualdnn_missing(__func__, &reported));"
        made.append(_compiled(out, name, "cuda_runtime.c", MISSING_OF_THE_RUNTIME, body, options))
    for path in made:
        link(out, path.name)
    return made


def _compiled(out: Path, name: str, source: str, missing: tuple[str, ...], body: str, options: list[str]) -> Path:
    text = (SOURCES / source).read_text(encoding="utf-8")
    text += "".join(f"int {function}(void) {{ static int reported; {body} }}\n" for function in missing)
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "gcc")[0]
    with tempfile.TemporaryDirectory() as folder:
        file, script = Path(folder) / source, Path(folder) / "exports.map"
        file.write_text(text, encoding="utf-8")
        # The driver's names have no version.
        node = "" if name == DRIVER else f"{name} "
        script.write_text(f"{node}{{ global: cu*; __cuda*; dualdnn_*; local: *; }};\n")
        command = [
            compiler, "-O2", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-o", str(out / name), str(file), f"-Wl,-soname,{name}",
            f"-Wl,--version-script={script}", "-Wl,-z,defs", *options, "-lpthread", "-ldl",
        ]  # fmt: skip
        try:
            done = subprocess.run(command, capture_output=True, text=True)
        except OSError as error:
            raise BuildError(
                f"{name} could not be compiled: {error}; a C compiler is needed (Debian: apt install gcc)"
            ) from error
    if done.returncode:
        raise BuildError(f"{name} could not be compiled: {done.stderr}")
    return out / name
