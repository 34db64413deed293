"""Test CUDA on machines without a GPU: every name of CUDA's headers links, and plain calls work on host memory."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

import pytest
from dualdnn.accelerated.runtime.emulated.toolchain import cuda_headers
from dualdnn.accelerated.runtime.errors import DeviceUnavailable
from dualdnn.api.abi.cuda_runtime import DRIVER, HEADER, RUNTIMES, build_runtime, release_of_headers
from dualdnn.conformance.command_line import main

if shutil.which("gcc") is None or shutil.which("nm") is None:
    pytest.skip("no C compiler", allow_module_level=True)

# The header of CUDA 11.8's runtime declares these names, and later headers lack them.
OLD = """
cudaBindSurfaceToArray cudaBindTexture cudaBindTexture2D cudaBindTextureToArray cudaBindTextureToMipmappedArray cudaUnbindTexture
cudaGetSurfaceReference cudaGetTextureReference cudaGetTextureAlignmentOffset cudaMemcpyArrayToArray cudaMemcpyFromArray
cudaMemcpyFromArrayAsync cudaMemcpyToArray cudaMemcpyToArrayAsync cudaSetDoubleForDevice cudaSetDoubleForHost
cudaLaunchCooperativeKernelMultiDevice cudaDeviceGetSharedMemConfig cudaDeviceSetSharedMemConfig cudaFuncSetSharedMemConfig
cudaThreadExit cudaThreadSynchronize cudaThreadGetLimit cudaThreadSetLimit cudaThreadGetCacheConfig cudaThreadSetCacheConfig
cudaStreamGetCaptureInfo_v2 cudaSignalExternalSemaphoresAsync_v2 cudaWaitExternalSemaphoresAsync_v2 cudaGetDeviceProperties_v2
cudaProfilerInitialize cudaCreateTextureObject_v2 cudaGetTextureObjectTextureDesc_v2
"""
CHECKS = """
#include <stdio.h>
#include <string.h>
#define CHECK(call) do { int s = (call); if (s) { printf("%d: %s: %d\\n", __LINE__, #call, s); return 1; } } while (0)
#define EXPECT(status, call) do { int s = (call); if (s != (status)) { printf("%d: %s is %d\\n", __LINE__, #call, s); return 1; } } while (0)
#define TRUE(condition) EXPECT(1, (condition) != 0)
"""


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    out = tmp_path_factory.mktemp("libraries")
    build_runtime(out)
    return out


@pytest.fixture(scope="module")
def includes():
    try:
        return [f"-I{path}" for path in cuda_headers()]
    except DeviceUnavailable as reason:
        pytest.skip(str(reason))


def exports(library):
    listed = subprocess.run(["nm", "-D", "--defined-only", str(library)], capture_output=True, text=True, check=True)
    return {line.split()[-1].split("@")[0] for line in listed.stdout.splitlines()}


def declared(header, includes, *options):
    command = ["gcc", "-E", "-x", "c", *options, *includes, "-"]
    read = subprocess.run(command, input=f"#include <{header}>\n", capture_output=True, text=True, check=True)
    found = set(re.findall(r"\b(cu[A-Z]\w*|cuda[A-Z]\w*)\s*\(", read.stdout))
    assert len(found) > 200
    return found


@pytest.mark.parametrize("options", [(), ("-DCUDA_API_PER_THREAD_DEFAULT_STREAM",)], ids=["", "per thread"])
@pytest.mark.parametrize("library, header", [*((name, "cuda_runtime_api.h") for name in RUNTIMES), (DRIVER, "cuda.h")])
def test_every_name_of_the_header_links(libraries, includes, library, header, options):
    assert declared(header, includes, *options) <= exports(libraries / library)


@pytest.mark.parametrize("library", RUNTIMES)
def test_old_names_link(libraries, library):
    assert set(OLD.split()) <= exports(libraries / library)


def runtime_of(includes):
    """Return the newest runtime whose major release is not newer than that of the headers."""
    command = ["gcc", "-E", "-dM", "-x", "c", *includes, "-"]
    read = subprocess.run(command, input="#include <cuda_runtime_api.h>\n", capture_output=True, text=True, check=True)
    release = int(re.search(r"CUDART_VERSION (\d+)", read.stdout)[1])
    return max((name for name in RUNTIMES if RUNTIMES[name] // 1000 <= release // 1000), key=RUNTIMES.get)


def ran(libraries, includes, folder, text):
    """Run a program that uses CUDA's headers and links the runtime of their release. Return the process."""
    source, program = folder / "program.c", folder / "program"
    source.write_text(CHECKS + text)
    runtime = f"-l:{runtime_of(includes)}" if includes else "-l:libcudart.so.12"
    command = ["gcc", "-Wall", *includes, str(source), f"-L{libraries}", runtime, "-lcuda", "-o", str(program)]
    subprocess.run(command, check=True)
    environment = {"LD_LIBRARY_PATH": str(libraries)}
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.mark.parametrize("version, release", [(11080, 11), (12090, 12), (13000, 13), (14010, 13), (10020, 11)])
def test_the_usual_link_name_is_the_runtime_of_the_headers(tmp_path, monkeypatch, version, release):
    """Structures and arguments differ by release, and a program includes the headers that the compiler finds first."""
    (tmp_path / "headers").mkdir()
    (tmp_path / "headers" / HEADER).write_text(f"#define CUDART_VERSION  {version}\n")
    monkeypatch.setenv("CPATH", f"{tmp_path / 'none'}:{tmp_path / 'headers'}")
    assert release_of_headers() == release


@pytest.mark.long  # builds the runtime of another release
def test_link_names_of_a_chosen_release(libraries, tmp_path):
    names = {RUNTIMES[name] // 1000: name for name in RUNTIMES}
    assert os.readlink(libraries / "libcudart.so") == names[release_of_headers()]
    assert main(["abi", "--runtime", "11", "--out", str(tmp_path)]) == 0
    assert os.readlink(tmp_path / "libcudart.so") == names[11] == os.readlink(tmp_path / "lib64" / "libcudart.so")[3:]


def test_fresh_memory_reads_as_zero(libraries, includes, tmp_path):
    """Memory that the process uses again reads as zero, for every kind of allocation, small and large."""
    text = """
    #include <cuda_runtime_api.h>
    #include <stdlib.h>
    int main(void) {
      static const size_t sizes[] = {1, 96, 1000, 4096, 100000, 1 << 20};
      for (int kind = 0; kind < 4; kind++)
        for (int i = 0; i < 6; i++) {
          size_t n = sizes[i];
          char *mine = malloc(n), *fresh = 0;
          memset(mine, 0x5a, n); free(mine);
          CHECK(kind == 0 ? cudaMalloc((void **)&fresh, n) : kind == 1 ? cudaMallocManaged((void **)&fresh, n, cudaMemAttachGlobal)
                : kind == 2 ? cudaMallocHost((void **)&fresh, n) : cudaMallocAsync((void **)&fresh, n, 0));
          TRUE((size_t)fresh % 256 == 0);
          for (size_t k = 0; k < n; k++) TRUE(fresh[k] == 0);
          memset(fresh, 0x5a, n);
          CHECK(kind == 2 ? cudaFreeHost(fresh) : cudaFree(fresh));
        }
      return 0;
    }
    """
    ran(libraries, includes, tmp_path, text)


def test_managed_and_registered_memory(libraries, includes, tmp_path):
    text = """
    #include <cuda_runtime_api.h>
    int main(void) {
      char *managed, *back, mine[64] = {3}, *device; unsigned flags; int can;
      struct cudaPointerAttributes where; struct cudaMemLocation place = {cudaMemLocationTypeDevice, 0};
      CHECK(cudaMallocManaged((void **)&managed, 64, cudaMemAttachGlobal));
      EXPECT(cudaErrorInvalidValue, cudaMallocManaged((void **)&back, 0, cudaMemAttachGlobal));
      EXPECT(cudaErrorInvalidValue, cudaMallocManaged((void **)&back, 64, 9));
      CHECK(cudaPointerGetAttributes(&where, managed + 5));
      TRUE(where.type == cudaMemoryTypeManaged && where.devicePointer == managed + 5 && where.hostPointer == managed + 5);
      CHECK(cudaDeviceGetAttribute(&can, cudaDevAttrManagedMemory, 0)); TRUE(can);
      managed[0] = 7;
      CHECK(cudaMemcpy(mine, managed, 64, cudaMemcpyDeviceToHost)); TRUE(mine[0] == 7);
      CHECK(cudaMemPrefetchAsync(managed, 64, place, 0, 0)); CHECK(cudaMemAdvise(managed, 64, cudaMemAdviseSetReadMostly, place));
      EXPECT(cudaErrorInvalidValue, cudaMemPrefetchAsync(mine, 64, place, 0, 0));
      CHECK(cudaStreamAttachMemAsync(0, managed, 0, cudaMemAttachSingle));
      EXPECT(cudaErrorInvalidValue, cudaHostGetDevicePointer((void **)&device, mine, 0));
      CHECK(cudaHostRegister(mine, 64, cudaHostRegisterMapped));
      EXPECT(cudaErrorHostMemoryAlreadyRegistered, cudaHostRegister(mine + 8, 8, 0)); EXPECT(cudaErrorInvalidValue, cudaHostRegister(&mine, (size_t)-1, 0));
      CHECK(cudaHostGetFlags(&flags, mine)); TRUE(flags == cudaHostRegisterMapped);
      CHECK(cudaHostGetDevicePointer((void **)&device, mine + 1, 0)); TRUE(device == mine + 1);
      CHECK(cudaMemcpy(device, managed, 8, cudaMemcpyDeviceToDevice)); TRUE(mine[1] == 7);
      CHECK(cudaHostUnregister(mine)); EXPECT(cudaErrorHostMemoryNotRegistered, cudaHostUnregister(mine));
      EXPECT(cudaErrorInvalidValue, cudaFree(mine)); CHECK(cudaFree(managed)); EXPECT(cudaErrorInvalidValue, cudaFree(managed));
      TRUE(!strcmp(cudaGetErrorName(cudaErrorHostMemoryNotRegistered), "cudaErrorHostMemoryNotRegistered"));
      return 0;
    }
    """
    ran(libraries, includes, tmp_path, text)


def test_rows_and_planes(libraries, includes, tmp_path):
    text = """
    #include <cuda_runtime_api.h>
    int main(void) {
      char host[2 * 3 * 5], back[2 * 3 * 5] = {0}, *rows; size_t pitch;
      struct cudaPitchedPtr box; struct cudaExtent extent = {5, 3, 2};
      for (int i = 0; i < 30; i++) host[i] = (char)(i + 1);
      CHECK(cudaMalloc3D(&box, extent)); TRUE(box.pitch >= 5 && box.xsize == 5 && box.ysize == 3);
      struct cudaMemcpy3DParms copy = {.srcPtr = {host, 5, 5, 3}, .dstPtr = box, .extent = extent, .kind = cudaMemcpyHostToDevice};
      CHECK(cudaMemcpy3D(&copy));
      TRUE(((char *)box.ptr)[(1 * 3 + 2) * box.pitch + 4] == 30);
      struct cudaMemcpy3DParms part = {.srcPtr = box, .srcPos = {1, 1, 1}, .dstPtr = {back, 5, 5, 3}, .extent = {4, 2, 1}, .kind = cudaMemcpyDeviceToHost};
      CHECK(cudaMemcpy3DAsync(&part, 0)); TRUE(back[0] == host[1 * 15 + 5 + 1] && back[5] == host[15 + 10 + 1] && back[4] == 0);
      CHECK(cudaMemset3D(box, 9, (struct cudaExtent){2, 2, 2}));
      TRUE(((char *)box.ptr)[3 * box.pitch + 1] == 9 && ((char *)box.ptr)[3 * box.pitch + 2] == 18);
      part.extent.width = 6; part.dstPtr.pitch = 6; part.extent.depth = 9;
      EXPECT(cudaErrorInvalidValue, cudaMemcpy3D(&part));
      copy.srcArray = (cudaArray_t)8; EXPECT(cudaErrorNotSupported, cudaMemcpy3D(&copy));
      CHECK(cudaMallocPitch((void **)&rows, &pitch, 5, 3)); TRUE(pitch % 256 == 0);
      CHECK(cudaMemset2D(rows, pitch, 4, 5, 3)); EXPECT(cudaErrorInvalidValue, cudaMemset2D(rows, pitch, 4, 5, 4));
      CHECK(cudaMemcpy2D(back, 5, rows, pitch, 5, 3, cudaMemcpyDefault)); TRUE(back[14] == 4);
      char *a, *b, large[1024]; CHECK(cudaMalloc((void **)&a, 64)); CHECK(cudaMalloc((void **)&b, 64)); struct cudaMemcpy3DParms far = {
        .srcPtr = {large, 8, 8, 9}, .dstPtr = {a, 8, 8, 9}, .extent = {8, 9, 1}, .kind = cudaMemcpyDefault};
      CHECK(cudaMemcpy2D(a, 8, b, 8, 8, 8, cudaMemcpyDefault)); EXPECT(cudaErrorInvalidValue, cudaMemcpy2D(a, 8, b, 8, 8, 9, cudaMemcpyDefault));
      EXPECT(cudaErrorInvalidValue, cudaMemcpy2D(large, 8, b, 8, 8, 9, cudaMemcpyDefault)); EXPECT(cudaErrorInvalidValue, cudaMemcpy3D(&far));
      EXPECT(cudaErrorInvalidValue, cudaMemcpy(large, a, 8, cudaMemcpyHostToHost)); CHECK(cudaMemcpy(large, host, 8, cudaMemcpyHostToHost));
      CHECK(cudaMemcpyPeer(rows, 0, box.ptr, 0, 2)); TRUE(rows[0] == 9); EXPECT(cudaErrorInvalidDevice, cudaMemcpyPeer(rows, 1, box.ptr, 0, 2));
      return 0;
    }
    """
    ran(libraries, includes, tmp_path, text)


def test_pools_streams_and_settings(libraries, includes, tmp_path):
    text = """
    #include <cuda_runtime_api.h>
    static void called(void *data) { ++*(int *)data; }
    static void CUDART_CB called_back(cudaStream_t stream, cudaError_t status, void *data) { *(int *)data += stream != 0 && status == 0; }
    int main(void) {
      cudaMemPool_t pool, own; cudaStream_t stream; cudaEvent_t first, last; enum cudaStreamCaptureStatus capturing;
      enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed; struct cudaMemPoolProps props = {cudaMemAllocationTypePinned, .location = {cudaMemLocationTypeDevice, 0}};
      unsigned long long used, threshold = 1 << 20, id; unsigned flags; int calls = 0, priority, device = 9; char *a, name[32]; size_t limit; float ms;
      CHECK(cudaDeviceGetDefaultMemPool(&pool, 0)); CHECK(cudaMemPoolCreate(&own, &props));
      CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
      threshold = 0; CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold)); TRUE(threshold == 1 << 20);
      CHECK(cudaMallocFromPoolAsync((void **)&a, 640, own, 0));
      CHECK(cudaMemPoolGetAttribute(own, cudaMemPoolAttrUsedMemCurrent, &used)); TRUE(used == 640);
      CHECK(cudaFreeAsync(a, 0)); CHECK(cudaMemPoolGetAttribute(own, cudaMemPoolAttrUsedMemCurrent, &used)); TRUE(used == 0);
      CHECK(cudaMemPoolGetAttribute(own, cudaMemPoolAttrUsedMemHigh, &used)); TRUE(used == 640);
      CHECK(cudaMemPoolTrimTo(own, 0)); CHECK(cudaMemPoolDestroy(own)); EXPECT(cudaErrorInvalidValue, cudaMemPoolDestroy(own));
      CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)); CHECK(cudaStreamGetFlags(stream, &flags)); TRUE(flags == cudaStreamNonBlocking);
      CHECK(cudaStreamGetPriority(stream, &priority)); TRUE(priority == 0); CHECK(cudaStreamGetId(stream, &id));
      CHECK(cudaStreamGetDevice(stream, &device)); TRUE(device == 0);
      CHECK(cudaStreamGetCaptureInfo(stream, &capturing, NULL, NULL, NULL, NULL, NULL)); TRUE(capturing == cudaStreamCaptureStatusNone);
      CHECK(cudaThreadExchangeStreamCaptureMode(&mode)); TRUE(mode == cudaStreamCaptureModeGlobal);
      CHECK(cudaLaunchHostFunc(stream, called, &calls)); CHECK(cudaStreamAddCallback(stream, called_back, &calls, 0)); TRUE(calls == 2);
      CHECK(cudaEventCreateWithFlags(&first, cudaEventDisableTiming)); CHECK(cudaEventCreate(&last));
      CHECK(cudaEventRecord(first, stream)); CHECK(cudaEventRecord(last, stream));
      EXPECT(cudaErrorInvalidResourceHandle, cudaEventElapsedTime(&ms, first, last));
      CHECK(cudaDeviceSetLimit(cudaLimitMallocHeapSize, 123)); CHECK(cudaDeviceGetLimit(&limit, cudaLimitMallocHeapSize)); TRUE(limit == 123);
      EXPECT(cudaErrorUnsupportedLimit, cudaDeviceGetLimit(&limit, 77));
      CHECK(cudaDeviceGetPCIBusId(name, sizeof name, 0)); device = 9; CHECK(cudaDeviceGetByPCIBusId(&device, name)); TRUE(device == 0);
      CHECK(cudaDeviceCanAccessPeer(&device, 0, 0)); TRUE(device == 0);
      struct cudaChannelFormatDesc channels = cudaCreateChannelDesc(8, 16, 0, 0, cudaChannelFormatKindSigned);
      TRUE(channels.x == 8 && channels.y == 16 && channels.z == 0 && channels.f == cudaChannelFormatKindSigned);
      EXPECT(cudaErrorNotSupported, cudaGraphCreate(0, 0)); EXPECT(cudaErrorNotSupported, cudaGraphCreate(0, 0));
      EXPECT(cudaErrorNotSupported, cudaGetLastError());
      return 0;
    }
    """
    done = ran(libraries, includes, tmp_path, text)
    assert done.stderr.count("cudaGraphCreate:") == 1


def test_programs_of_the_driver_api_run(libraries, includes, tmp_path):
    text = """
    #include <cuda.h>
    int main(void) {
      CUcontext made, now; CUdeviceptr a, base; CUdevice device; size_t size, pitch; unsigned words[6] = {0}; int major, minor, managed = 0;
      CUmemorytype type; void *results[] = {&type, &base}; CUpointer_attribute asked[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR};
      void *function; CUdriverProcAddressQueryResult found;
      CHECK(cuInit(0)); CHECK(cuDeviceGet(&device, 0)); CHECK(cuDeviceComputeCapability(&major, &minor, device)); TRUE(major == 8);
      CHECK(cuCtxCreate(&made, NULL, 0, device)); CHECK(cuCtxGetCurrent(&now)); TRUE(now == made);
      CHECK(cuCtxPopCurrent(&now)); TRUE(now == made); CHECK(cuCtxGetCurrent(&now)); TRUE(now != made);
      CHECK(cuCtxSetCurrent(made)); CHECK(cuCtxDestroy(made)); EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuCtxSetCurrent(made));
      CHECK(cuMemAllocPitch(&a, &pitch, 8, 3, 4)); CHECK(cuMemsetD2D32(a, pitch, 0x01020304, 2, 3)); CHECK(cuMemsetD16(a + pitch, 0x0506, 1));
      CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = a, .srcPitch = pitch, .dstMemoryType = CU_MEMORYTYPE_HOST,
                            .dstHost = words, .dstPitch = 8, .WidthInBytes = 8, .Height = 3};
      CHECK(cuMemcpy2D(&copy)); TRUE(words[0] == 0x01020304 && words[2] == 0x01020506 && words[5] == 0x01020304);
      copy.srcY = 1; EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D(&copy));
      CHECK(cuPointerGetAttributes(2, asked, results, a + 3)); TRUE(type == CU_MEMORYTYPE_DEVICE && base == a);
      CHECK(cuPointerGetAttributes(2, asked, results, (CUdeviceptr)words)); TRUE(type == 0);
      CHECK(cuMemAllocManaged(&base, 64, CU_MEM_ATTACH_GLOBAL));
      CHECK(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, base)); TRUE(managed == 1);
      CHECK(cuMemcpy(base, a, 8)); TRUE(*(unsigned *)base == 0x01020304); CHECK(cuMemGetAddressRange(&base, &size, base + 9)); TRUE(size == 64);
      CHECK(cuMemFree(base)); CHECK(cuMemFree(a));
      CHECK(cuGetProcAddress("cuMemAlloc", &function, 13000, 0, &found)); TRUE(function == (void *)cuMemAlloc && found == CU_GET_PROC_ADDRESS_SUCCESS);
      EXPECT(CUDA_ERROR_NOT_FOUND, cuGetProcAddress("cuNone", &function, 13000, 0, &found)); TRUE(found == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
      void *older, *newer;
      static const struct { const char *name; int before, since; } changed[] = {
        {"cuMemPrefetchAsync", 12010, 12020}, {"cuMemAdvise", 11080, 12020}, {"cuCtxCreate", 11030, 11040}, {"cuCtxCreate", 12040, 12050},
        {"cuStreamGetCtx", 12000, 12050}, {"cuGetProcAddress", 11080, 12000}};
      for (int i = 0; i < 6; i++) {
        CHECK(cuGetProcAddress(changed[i].name, &older, changed[i].before, 0, &found)); CHECK(cuGetProcAddress(changed[i].name, &newer, changed[i].since, 0, &found));
        TRUE(older != newer);
      }
      CHECK(cuGetProcAddress("cuMemPrefetchAsync", &function, 13000, 0, &found)); TRUE(function == (void *)cuMemPrefetchAsync);
      CHECK(cuGetProcAddress("cuCtxCreate", &function, 13000, 0, &found)); TRUE(function == (void *)cuCtxCreate);
      EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuModuleLoad(0, "none"));
      return 0;
    }
    """
    ran(libraries, includes, tmp_path, text)


def test_a_reset_and_the_end_of_a_context_free_what_they_own(libraries, includes, tmp_path):
    """cudaDeviceReset destroys what the primary context owns, restores settings and forgets the last error; a context that a program made stays.

    Another thread may still compute in the memory: its addresses stay, without their pages."""
    text = """
    #include <cuda.h>
    #include <cuda_runtime_api.h>
    int main(void) {
      char *kinds[4], mine[64]; void *more; cudaStream_t stream; cudaEvent_t event; cudaMemPool_t pool, now; CUcontext made; CUdeviceptr own; size_t before, all, left, usual, limit;
      struct cudaMemPoolProps props = {cudaMemAllocationTypePinned, .location = {cudaMemLocationTypeDevice, 0}}; unsigned flags;
      CHECK(cudaDeviceReset()); CHECK(cudaMemGetInfo(&before, &all)); CHECK(cudaDeviceGetLimit(&usual, cudaLimitStackSize));
      CHECK(cuCtxCreate(&made, NULL, 0, 0)); CHECK(cuMemAlloc(&own, 64)); CHECK(cuCtxSetCurrent(NULL));
      for (int round = 0; round < 2; round++) {
        CHECK(cudaMalloc((void **)&kinds[0], 1 << 20)); CHECK(cudaMallocManaged((void **)&kinds[1], 64, cudaMemAttachGlobal)); CHECK(cudaMallocHost((void **)&kinds[2], 64));
        CHECK(cudaMemPoolCreate(&pool, &props)); CHECK(cudaDeviceSetMemPool(0, pool)); CHECK(cudaMallocAsync((void **)&kinds[3], 64, 0));
        CHECK(cudaHostRegister(mine, 64, 0)); CHECK(cudaStreamCreate(&stream)); CHECK(cudaEventCreate(&event)); CHECK(cudaEventRecord(event, stream));
        CHECK(cudaDeviceSetLimit(cudaLimitStackSize, usual + 1)); CHECK(cudaSetDeviceFlags(cudaDeviceScheduleYield));
        EXPECT(cudaErrorInvalidValue, cudaMemset(mine - 1, 0, 64)); CHECK(cudaMemset(kinds[0], 7, 1 << 20)); EXPECT(cudaErrorInvalidValue, cudaMemset(kinds[0] + 8, 0, (size_t)-4));
        if (round) CHECK(cuDevicePrimaryCtxReset(0)); else CHECK(cudaDeviceReset());
        if (!round) CHECK(cudaGetLastError());
        cudaGetLastError(); for (int i = 0; i < 4; i++) kinds[i][0]++;
        TRUE(kinds[0][1 << 19] == 0);
        for (int i = 0; i < 4; i++) { EXPECT(cudaErrorInvalidValue, i == 2 ? cudaFreeHost(kinds[i]) : cudaFree(kinds[i])); EXPECT(cudaErrorInvalidValue, cudaMemset(kinds[i], 0, 64)); }
        EXPECT(cudaErrorInvalidValue, cudaMemcpy(mine, kinds[0], 64, cudaMemcpyDeviceToHost)); EXPECT(cudaErrorHostMemoryNotRegistered, cudaHostUnregister(mine));
        EXPECT(cudaErrorInvalidResourceHandle, cudaStreamSynchronize(stream)); EXPECT(cudaErrorInvalidResourceHandle, cudaEventDestroy(event));
        EXPECT(cudaErrorInvalidValue, cudaMemPoolDestroy(pool)); CHECK(cudaDeviceGetMemPool(&now, 0)); TRUE(now != pool);
        CHECK(cudaDeviceGetLimit(&limit, cudaLimitStackSize)); TRUE(limit == usual); CHECK(cudaGetDeviceFlags(&flags)); TRUE(flags == 0);
        CHECK(cudaMemGetInfo(&left, &all)); TRUE(left == before - 64); CHECK(cuMemcpyDtoH(mine, own, 64)); mine[0] = 7;
      }
      CHECK(cuCtxDestroy(made)); EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree(own)); CHECK(cudaMemGetInfo(&left, &all)); TRUE(left == before);
      CHECK(cudaMalloc(&more, 64)); CHECK(cudaFree(more)); EXPECT(CUDA_ERROR_INVALID_DEVICE, cuDevicePrimaryCtxReset(1));
      return 0;
    }
    """
    ran(libraries, includes, tmp_path, text)


def test_enumerators_that_no_header_has_are_refused(libraries, includes, tmp_path):
    """Calls that are right otherwise refuse attributes, kinds, flags, advices and places beyond their enumerations."""
    text = """
    #include <cuda.h>
    #include <cuda_runtime_api.h>
    int main(void) {
      int value; unsigned type; void *function, *place = &type; char *a, *b, *managed, host[64]; size_t bytes; cudaMemPool_t pool; cudaStream_t s; cudaEvent_t e; CUcontext made;
      struct cudaMemLocation device = {cudaMemLocationTypeDevice, 0}, second = {cudaMemLocationTypeDevice, 1}, none = {77, 0};
      struct cudaMemPoolProps props = {cudaMemAllocationTypePinned, .location = device};
      struct cudaMemAccessDesc access = {device, cudaMemAccessFlagsProtReadWrite}, wrong = {device, 2}, far = {second, cudaMemAccessFlagsProtRead};
      CHECK(cudaMalloc((void **)&a, 64)); CHECK(cudaMalloc((void **)&b, 64)); CHECK(cudaMallocManaged((void **)&managed, 64, cudaMemAttachGlobal));
      CHECK(cudaMemPoolCreate(&pool, &props)); CHECK(cudaStreamCreate(&s)); CHECK(cudaEventCreate(&e)); CHECK(cudaEventRecord(e, s));
      CHECK(cudaDeviceGetAttribute(&value, cudaDevAttrMax - 1, 0)); CHECK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MAX - 1, 0));
      const int others[] = {-1, 0, 9999, 0x7fffffff};
      for (int i = 0; i < 4; i++) {
        EXPECT(cudaErrorInvalidValue, cudaDeviceGetAttribute(&value, others[i], 0)); EXPECT(CUDA_ERROR_INVALID_VALUE, cuDeviceGetAttribute(&value, others[i], 0));
        EXPECT(cudaErrorInvalidValue, cudaDeviceGetP2PAttribute(&value, others[i], 0, 1)); EXPECT(cudaErrorInvalidValue, cudaMemPoolGetAttribute(pool, others[i], &bytes));
        EXPECT(cudaErrorInvalidValue, cudaMemAdvise(managed, 64, others[i], device)); EXPECT(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttribute(&type, others[i], (CUdeviceptr)a));
        EXPECT(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttributes(1, (CUpointer_attribute *)&others[i], &place, (CUdeviceptr)a));
        if (!others[i]) continue;
        EXPECT(cudaErrorInvalidMemcpyDirection, cudaMemcpy(a, b, 64, others[i])); EXPECT(cudaErrorInvalidMemcpyDirection, cudaMemcpy2D(a, 8, b, 8, 8, 0, others[i]));
        struct cudaMemcpy3DParms copy = {.srcPtr = {a, 8, 8, 1}, .dstPtr = {b, 8, 8, 1}, .kind = others[i]}; EXPECT(cudaErrorInvalidMemcpyDirection, cudaMemcpy3D(&copy));
        EXPECT(cudaErrorUnsupportedLimit, cudaDeviceGetLimit(&bytes, others[i])); EXPECT(cudaErrorInvalidValue, cudaDeviceSetCacheConfig(others[i]));
        EXPECT(cudaErrorInvalidValue, cudaSetDeviceFlags(others[i])); EXPECT(cudaErrorInvalidValue, cudaInitDevice(0, 0, others[i]));
        EXPECT(CUDA_ERROR_INVALID_VALUE, cuDevicePrimaryCtxSetFlags(0, others[i])); EXPECT(CUDA_ERROR_INVALID_VALUE, cuCtxCreate(&made, NULL, others[i], 0));
        EXPECT(cudaErrorInvalidValue, cudaStreamCreateWithFlags(&s, others[i])); EXPECT(cudaErrorInvalidValue, cudaStreamWaitEvent(s, e, others[i]));
        EXPECT(cudaErrorInvalidValue, cudaEventCreateWithFlags(&e, others[i])); EXPECT(cudaErrorInvalidValue, cudaEventRecordWithFlags(e, s, others[i]));
        EXPECT(cudaErrorInvalidValue, cudaHostAlloc((void **)&b, 64, others[i])); EXPECT(cudaErrorInvalidValue, cudaHostRegister(host, 64, others[i]));
        EXPECT(CUDA_ERROR_INVALID_VALUE, cuGetProcAddress("cuInit", &function, 13000, others[i], NULL)); EXPECT(cudaErrorInvalidValue, cudaMemPrefetchAsync(managed, 64, device, others[i], s));
        props.allocType = others[i]; EXPECT(cudaErrorInvalidValue, cudaMemPoolCreate(&pool, &props));
      }
      EXPECT(cudaErrorInvalidValue, cudaSetDeviceFlags(3)); EXPECT(cudaErrorInvalidValue, cudaEventCreateWithFlags(&e, cudaEventInterprocess));
      CHECK(cudaSetDeviceFlags(cudaDeviceScheduleYield | cudaDeviceMapHost)); CHECK(cudaMemAdvise(managed, 64, cudaMemAdviseUnsetAccessedBy, device));
      CHECK(cudaMemAdvise(managed, 64, cudaMemAdviseSetReadMostly, none)); EXPECT(cudaErrorInvalidValue, cudaMemAdvise(managed, 64, cudaMemAdviseSetAccessedBy, none));
      EXPECT(cudaErrorInvalidDevice, cudaMemPrefetchAsync(managed, 64, second, 0, s)); EXPECT(cudaErrorInvalidValue, cudaMemPrefetchAsync(managed, 64, none, 0, s));
      CHECK(cudaMemPoolSetAccess(pool, &access, 1)); EXPECT(cudaErrorInvalidValue, cudaMemPoolSetAccess(pool, &wrong, 1)); EXPECT(cudaErrorInvalidDevice, cudaMemPoolSetAccess(pool, &far, 1));
      enum cudaMemAccessFlags may; CHECK(cudaMemPoolGetAccess(&may, pool, &device)); EXPECT(cudaErrorInvalidValue, cudaMemPoolGetAccess(&may, pool, &none));
      props.allocType = cudaMemAllocationTypePinned; props.location = none; EXPECT(cudaErrorInvalidValue, cudaMemPoolCreate(&pool, &props));
      props.location = device; props.handleTypes = 64; EXPECT(cudaErrorInvalidValue, cudaMemPoolCreate(&pool, &props));
      props.handleTypes = cudaMemHandleTypePosixFileDescriptor; EXPECT(cudaErrorNotSupported, cudaMemPoolCreate(&pool, &props));
      return 0;
    }
    """
    ran(libraries, includes, tmp_path, text)


def test_release_13_has_its_own_structure_of_properties(libraries, includes, tmp_path):
    """The fields of CUDA's own header hold the attributes of the same names."""
    if runtime_of(includes) != "libcudart.so.13":
        pytest.skip("the headers are of an earlier release")
    text = """
    #include <cuda_runtime_api.h>
    #define SAME(field, attribute) do { int v; CHECK(cudaDeviceGetAttribute(&v, cudaDevAttr##attribute, 0)); TRUE(v && (size_t)v == (size_t)p.field); } while (0)
    int main(void) {
      int version, driver; unsigned char bytes[1100]; struct cudaDeviceProp p;
      memset(bytes, 0x5a, sizeof bytes); CHECK(cudaGetDeviceProperties((struct cudaDeviceProp *)bytes, 0)); memcpy(&p, bytes, sizeof p);
      for (size_t i = sizeof p; i < sizeof bytes; i++) TRUE(bytes[i] == 0x5a);
      SAME(major, ComputeCapabilityMajor); SAME(multiProcessorCount, MultiProcessorCount); SAME(integrated, Integrated); SAME(canMapHostMemory, CanMapHostMemory);
      SAME(concurrentKernels, ConcurrentKernels); SAME(unifiedAddressing, UnifiedAddressing); SAME(l2CacheSize, L2CacheSize); SAME(managedMemory, ManagedMemory);
      SAME(maxThreadsPerMultiProcessor, MaxThreadsPerMultiProcessor); SAME(regsPerMultiprocessor, MaxRegistersPerMultiprocessor);
      SAME(sharedMemPerBlockOptin, MaxSharedMemoryPerBlockOptin); SAME(maxBlocksPerMultiProcessor, MaxBlocksPerMultiprocessor);
      SAME(hostRegisterSupported, HostRegisterSupported); SAME(memoryPoolsSupported, MemoryPoolsSupported); SAME(concurrentManagedAccess, ConcurrentManagedAccess);
      CHECK(cudaRuntimeGetVersion(&version)); CHECK(cudaDriverGetVersion(&driver)); TRUE(version / 1000 == 13 && driver >= version);
      return 0;
    }
    """
    ran(libraries, includes, tmp_path, text)


def test_properties_of_the_device(libraries, tmp_path):
    """cudaDeviceProp of CUDA 11 and of 12 is filled to its last byte and no further. Fields have the offsets of both releases."""
    text = """
    int cudaGetDeviceProperties(void *, int), cudaGetDeviceProperties_v2(void *, int), cudaDeviceGetAttribute(int *, int, int);
    int main(void) {
      static const struct { int place, attribute; } fields[] = {
        {308, 10}, {320, 1}, {344, 7}, {360, 75}, {388, 16}, {604, 41}, {624, 39}, {652, 83}, {676, 89}, {712, 106}};
      for (int second = 0; second < 2; second++) {
        unsigned char p[1100], q[1100]; int size = second ? 1032 : 728;
        memset(p, 0x5a, sizeof p); memset(q, 0xa5, sizeof q);
        CHECK(second ? cudaGetDeviceProperties_v2(p, 0) : cudaGetDeviceProperties(p, 0));
        CHECK(second ? cudaGetDeviceProperties_v2(q, 0) : cudaGetDeviceProperties(q, 0));
        TRUE(!memcmp(p, q, size)); for (int i = size; i < 1100; i++) TRUE(p[i] == 0x5a);
        for (int i = 0; i < 10; i++) { int value; CHECK(cudaDeviceGetAttribute(&value, fields[i].attribute, 0)); TRUE(value == *(int *)(p + fields[i].place)); }
        TRUE(*(unsigned long long *)(p + 288) == 8ull << 30 && p[0] == 'm');
      }
      unsigned char other[1100]; EXPECT(1, cudaGetDeviceProperties(0, 0)); EXPECT(101, cudaGetDeviceProperties(other, 1));
      return 0;
    }
    """
    ran(libraries, [], tmp_path, text)
