"""Test that without a GPU, programs that allocate with cudaMalloc compute with the C library."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest
from dualdnn.api.abi.build import build
from dualdnn.api.abi.cuda_runtime import DRIVER, RUNTIMES

pytest.importorskip("cffi")
if shutil.which("gcc") is None:
    pytest.skip("no C compiler", allow_module_level=True)

# These are the declarations of CUDA's own header.
RUNTIME = """
#include <stdio.h>
#include <stddef.h>
int cudaMalloc(void **, size_t), cudaFree(void *), cudaMemcpy(void *, const void *, size_t, int), cudaMemset(void *, int, size_t);
int cudaMemcpyAsync(void *, const void *, size_t, int, void *), cudaStreamCreate(void **), cudaStreamDestroy(void *);
int cudaStreamSynchronize(void *), cudaEventCreate(void **), cudaEventRecord(void *, void *), cudaEventSynchronize(void *);
int cudaEventElapsedTime(float *, void *, void *), cudaEventDestroy(void *), cudaGetDeviceCount(int *), cudaSetDevice(int);
int cudaGetLastError(void), cudaPeekAtLastError(void), cudaLaunchKernel(void), cudaMemGetInfo(size_t *, size_t *);
int cudaDeviceSynchronize(void), cudaRuntimeGetVersion(int *), cudaPointerGetAttributes(void *, const void *), cudaMallocHost(void **, size_t);
int cudaFreeHost(void *), cudaDeviceGetAttribute(int *, int, int), cudaGraphLaunch(void);
const char *cudaGetErrorName(int);
#define CHECK(call) do { int s = (call); if (s) { printf("%s: %d %s\\n", #call, s, cudaGetErrorName(s)); return 1; } } while (0)
#define EXPECT(status, call) do { int s = (call); if (s != (status)) { printf("%s is %d\\n", #call, s); return 1; } } while (0)
"""


@pytest.fixture(scope="module")
def libraries(built_library):
    return built_library(runtime=True).parent


def ran(libraries, folder, text, *linked):
    """Return what a program printed that links these libraries and has no path to them built in."""
    source, program = folder / "program.c", folder / "program"
    source.write_text(RUNTIME + text)
    command = [
        "gcc",
        "-Wall",
        "-Werror",
        f"-I{libraries / 'include'}",
        str(source),
        "-o",
        str(program),
        f"-L{libraries}",
    ]
    subprocess.run([*command, *(f"-l:{name}" for name in linked), "-lm"], check=True)
    environment = {"PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH": str(libraries)}
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.mark.parametrize("runtime, version", RUNTIMES.items())
def test_memory_streams_and_events(libraries, tmp_path, runtime, version):
    text = """
    int main(void) {
      char *a, *b, *pinned, host[64], back[64];
      void *stream, *first, *last;
      int count, version, value;
      float ms = -1;
      size_t unused, all, before;
      struct { int type, device; void *d, *h; long reserved[8]; } where;
      CHECK(cudaGetDeviceCount(&count)); CHECK(cudaSetDevice(0)); CHECK(cudaRuntimeGetVersion(&version));
      EXPECT(101, cudaSetDevice(1)); EXPECT(101, cudaPeekAtLastError()); EXPECT(101, cudaGetLastError()); EXPECT(0, cudaGetLastError());
      CHECK(cudaDeviceGetAttribute(&value, 75, 0));
      CHECK(cudaMemGetInfo(&before, &all));
      CHECK(cudaMalloc((void **)&a, 64)); CHECK(cudaMalloc((void **)&b, 64)); CHECK(cudaMallocHost((void **)&pinned, 8));
      CHECK(cudaMemGetInfo(&unused, &all));
      if (before - unused != 128) return 2;
      for (int i = 0; i < 64; i++) host[i] = (char)i;
      CHECK(cudaStreamCreate(&stream)); CHECK(cudaEventCreate(&first)); CHECK(cudaEventCreate(&last));
      EXPECT(400, cudaEventElapsedTime(&ms, first, last));
      CHECK(cudaEventRecord(first, stream));
      CHECK(cudaMemcpyAsync(a, host, 64, 1, stream)); CHECK(cudaMemcpyAsync(b, a, 64, 3, stream)); CHECK(cudaMemcpyAsync(back, b, 64, 4, stream));
      CHECK(cudaEventRecord(last, stream)); CHECK(cudaEventSynchronize(last)); CHECK(cudaEventElapsedTime(&ms, first, last));
      for (int i = 0; i < 64; i++) if (back[i] != i) return 3;
      if (ms < 0) return 4;
      CHECK(cudaMemset(b, 7, 64)); CHECK(cudaMemcpy(back, b, 64, 2));
      if (back[63] != 7) return 5;
      CHECK(cudaPointerGetAttributes(&where, a + 3));
      if (where.type != 2 || where.d != a + 3) return 6;
      CHECK(cudaPointerGetAttributes(&where, pinned)); if (where.type != 1) return 7;
      CHECK(cudaPointerGetAttributes(&where, host)); if (where.type != 0) return 8;
      EXPECT(1, cudaMemcpy(a, host, 65, 1)); EXPECT(1, cudaMemcpy(a + 1, host, 64, 1)); EXPECT(1, cudaMemset(host, 0, 1));
      EXPECT(21, cudaMemcpy(a, b, 1, 9)); EXPECT(1, cudaFree(host)); EXPECT(1, cudaFree(a + 1)); EXPECT(1, cudaFreeHost(a));
      CHECK(cudaStreamDestroy(stream)); EXPECT(400, cudaStreamSynchronize(stream)); EXPECT(400, cudaMemcpyAsync(a, host, 1, 1, stream));
      CHECK(cudaEventDestroy(first)); EXPECT(400, cudaEventRecord(first, 0));
      CHECK(cudaFree(a)); EXPECT(1, cudaFree(a)); CHECK(cudaFree(0)); EXPECT(1, cudaMemcpy(back, a, 1, 2));
      EXPECT(801, cudaLaunchKernel()); EXPECT(801, cudaLaunchKernel()); EXPECT(801, cudaGraphLaunch());
      CHECK(cudaFree(b)); CHECK(cudaFreeHost(pinned)); CHECK(cudaDeviceSynchronize());
      printf("%d", version);
      return 0;
    }
    """
    done = ran(libraries, tmp_path, text, runtime, DRIVER)
    assert int(done.stdout) == version
    assert done.stderr.count("cudaLaunchKernel:") == done.stderr.count("cudaGraphLaunch:") == 1


def test_a_program_computes(libraries, tmp_path):
    """The library knows the sizes of allocations, and refuses memory that is too small, freed or not the device's."""
    text = """
    #include <cudnn.h>
    int main(void) {
      cudnnHandle_t handle;
      cudnnTensorDescriptor_t desc;
      float x[4] = {0, 1, 2, 3}, y[4], one = 1, zero = 0, *dx, *dy, *little;
      void *stream;
      CHECK(cudaMalloc((void **)&dx, sizeof x)); CHECK(cudaMalloc((void **)&dy, sizeof y)); CHECK(cudaMalloc((void **)&little, 12));
      CHECK(cudaStreamCreate(&stream)); CHECK(cudaMemcpyAsync(dx, x, sizeof x, 1, stream));
      CHECK(cudnnCreate(&handle)); CHECK(cudnnSetStream(handle, stream)); CHECK(cudnnCreateTensorDescriptor(&desc));
      CHECK(cudnnSetTensor4dDescriptor(desc, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 1, 4, 1, 1));
    #define SOFTMAX(x, y) cudnnSoftmaxForward(handle, CUDNN_SOFTMAX_ACCURATE, CUDNN_SOFTMAX_MODE_INSTANCE, &one, desc, x, &zero, desc, y)
      CHECK(SOFTMAX(dx, dy)); CHECK(cudaMemcpyAsync(y, dy, sizeof y, 2, stream)); CHECK(cudaStreamSynchronize(stream));
      if (y[0] + y[1] + y[2] + y[3] < 0.999f || y[3] < 0.6f) return 2;
      EXPECT(CUDNN_STATUS_BAD_PARAM, SOFTMAX(dx, little)); EXPECT(CUDNN_STATUS_BAD_PARAM, SOFTMAX(x, dy));
      EXPECT(CUDNN_STATUS_BAD_PARAM, SOFTMAX(dx + 1, dy));
      CHECK(cudaFree(dy)); EXPECT(CUDNN_STATUS_BAD_PARAM, SOFTMAX(dx, dy));
      CHECK(cudnnDestroy(handle));
      return 0;
    }
    """
    ran(libraries, tmp_path, text, "libcudnn.so.8", "libcudart.so.12")


def test_weights_of_attention_on_the_host(libraries, tmp_path):
    """Parts of a host copy of the weights can be asked for, too (7.2.16). A dropout of 0 equals no dropout (D361)."""
    text = """
    #include <cudnn.h>
    #include <stdlib.h>
    int main(void) {
      cudnnHandle_t handle;
      cudnnAttnDescriptor_t attention;
      cudnnDropoutDescriptor_t dropout;
      cudnnTensorDescriptor_t weight;
      cudnnAttnQueryMap_t map = CUDNN_ATTN_QUERYMAP_ALL_TO_ONE;
      size_t size, states, work, reserve;
      void *memory, *copy, *device, *at[2] = {0, 0};
      CHECK(cudnnCreate(&handle)); CHECK(cudnnCreateAttnDescriptor(&attention)); CHECK(cudnnCreateDropoutDescriptor(&dropout));
      CHECK(cudnnCreateTensorDescriptor(&weight));
      CHECK(cudnnDropoutGetStatesSize(handle, &states)); CHECK(cudaMalloc(&memory, states));
      CHECK(cudnnSetDropoutDescriptor(dropout, handle, 0.0f, memory, states, 3));
      CHECK(cudnnSetAttnDescriptor(attention, map, 2, 0.5, CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT, CUDNN_DEFAULT_MATH, dropout, NULL,
                                   4, 4, 4, 2, 2, 2, 4, 3, 5, 1, 1));
      CHECK(cudnnGetMultiHeadAttnBuffers(handle, attention, &size, &work, &reserve));
      CHECK(cudaMalloc(&device, size)); copy = malloc(size);
      CHECK(cudnnGetMultiHeadAttnWeights(handle, attention, CUDNN_MH_ATTN_K_WEIGHTS, size, copy, weight, &at[0]));
      CHECK(cudnnGetMultiHeadAttnWeights(handle, attention, CUDNN_MH_ATTN_K_WEIGHTS, size, device, weight, &at[1]));
      if ((char *)at[0] - (char *)copy != 64 || (char *)at[1] - (char *)device != 64) return 2;
      CHECK(cudnnDestroyAttnDescriptor(attention)); CHECK(cudnnDestroy(handle));
      return 0;
    }
    """
    ran(libraries, tmp_path, text, "libcudnn.so.8", "libcudart.so.12")


@pytest.mark.long
def test_the_suite_on_this_driver(libraries, tmp_path):
    """The suite allocates through the driver, which tells the library the sizes."""
    command = [
        sys.executable,
        "-m",
        "dualdnn.conformance",
        "conformance",
        "--subject",
        f"library:{libraries / 'libcudnn.so.8'}",
    ]
    command += ["--every", "5", "--jobs", "1", "-k", "softmax or every_operation or buffers", "--out", str(tmp_path)]
    environment = {**os.environ, "LD_LIBRARY_PATH": str(libraries)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert "passed" in done.stdout


FIND_CUDNN = """
cmake_minimum_required(VERSION 3.10)
project(find C)
find_path(CUDNN_INCLUDE_DIR cudnn.h HINTS ${CUDNN_ROOT} PATH_SUFFIXES include NO_DEFAULT_PATH)
find_library(CUDNN_LIBRARY cudnn HINTS ${CUDNN_ROOT} PATH_SUFFIXES lib lib64 NO_DEFAULT_PATH)
find_library(CUDNN_ADV_TRAIN_LIBRARY NAMES cudnn_adv_train libcudnn_adv_train.so.8 HINTS ${CUDNN_ROOT} NO_DEFAULT_PATH)
foreach(header cudnn.h cudnn_version.h)
  file(READ ${CUDNN_INCLUDE_DIR}/${header} text)
  string(REGEX MATCH "define CUDNN_MAJOR[ \t]+([0-9]+)" matched "${text}")
  if(NOT CMAKE_MATCH_1 EQUAL 8)
    message(FATAL_ERROR "${header} has no version")
  endif()
endforeach()
add_executable(program program.c)
target_include_directories(program PRIVATE ${CUDNN_INCLUDE_DIR})
target_link_libraries(program ${CUDNN_LIBRARY} ${CUDNN_ADV_TRAIN_LIBRARY})
"""
VERSION_PROGRAM = "#include <cudnn.h>\nint main(void) { return cudnnGetVersion() != CUDNN_VERSION; }\n"


def flags_by_names(libraries, folder):
    """Return the flags that a Makefile uses."""
    return [f"-I{libraries / 'include'}", f"-L{libraries}", "-lcudnn", "-lcudart", "-lcuda", "-lcudnn_ops_infer"]


def flags_below_a_prefix(libraries, folder):
    """Return the flags for the prefix where the library was installed."""
    return [f"-I{libraries / 'include'}", f"-L{libraries / 'lib64'}", f"-L{libraries / 'lib'}", "-lcudnn", "-lcudart"]


def flags_by_pkg_config(libraries, folder):
    if shutil.which("pkg-config") is None:
        pytest.skip("no pkg-config")
    environment = {**os.environ, "PKG_CONFIG_PATH": str(libraries / "pkgconfig")}
    command = ["pkg-config", "--cflags", "--libs", "cudnn"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.parametrize("flags", [flags_by_names, flags_below_a_prefix, flags_by_pkg_config])
def test_link_names(libraries, tmp_path, flags):
    """A program links by the names that build tools use."""
    (tmp_path / "program.c").write_text(VERSION_PROGRAM)
    command = ["gcc", str(tmp_path / "program.c"), "-Wl,--no-as-needed", *flags(libraries, tmp_path)]
    subprocess.run([*command, "-o", str(tmp_path / "program")], check=True)
    subprocess.run([str(tmp_path / "program")], env={"LD_LIBRARY_PATH": str(libraries)}, check=True)


def test_cmake(libraries, tmp_path):
    """FindCUDNN modules find headers, versions and libraries with the folder as CUDNN_ROOT."""
    if shutil.which("cmake") is None or shutil.which("make") is None:
        pytest.skip("no cmake or make")
    (tmp_path / "program.c").write_text(VERSION_PROGRAM)
    (tmp_path / "CMakeLists.txt").write_text(FIND_CUDNN)
    subprocess.run(["cmake", "-S", tmp_path, "-B", tmp_path / "build", f"-DCUDNN_ROOT={libraries}"], check=True)
    subprocess.run(["cmake", "--build", tmp_path / "build"], check=True)
    subprocess.run([tmp_path / "build" / "program"], env={"LD_LIBRARY_PATH": str(libraries)}, check=True)


def test_build_again(libraries):
    """A second build compiles nothing, and leaves the names where they were."""
    before = (libraries / "libcudnn.so.8").stat().st_mtime_ns
    build(libraries)
    assert (libraries / "libcudnn.so.8").stat().st_mtime_ns == before
    assert os.readlink(libraries / "libcudnn.so") == "libcudnn.so.8"
    assert not list(libraries.glob(".libcudnn.so.*[!y]"))
