"""What a call costs from C, and from Python: microseconds of the quickest of many rounds, on one processor.

python examples/clients/call_cost.py
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from dualdnn.api import cudnn
from dualdnn.api.abi.build import NAME, build

ROUNDS, CALLS = 200, 50
SOURCE = f"""
#include <cudnn.h>
#include <stdio.h>
#include <time.h>
static double now(void) {{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return 1e6 * t.tv_sec + t.tv_nsec / 1e3;
}}
#define COST(call) do {{ \\
    double best = 1e9; \\
    for (int round = 0; round < {ROUNDS}; round++) {{ \\
      double start = now(); \\
      for (int i = 0; i < {CALLS}; i++) {{ call; }} \\
      double each = (now() - start) / {CALLS}; \\
      if (each < best) best = each; \\
    }} \\
    printf("%.3f\\n", best); \\
  }} while (0)
int main(void) {{
  cudnnHandle_t handle;
  cudnnTensorDescriptor_t desc, made;
  cudnnActivationDescriptor_t relu;
  cudnnDataType_t type;
  int rank, dims[8], strides[8];
  float x[150] = {{0}}, y[150], one = 1, zero = 0;
  if (cudnnCreate(&handle) || cudnnCreateTensorDescriptor(&desc) || cudnnCreateActivationDescriptor(&relu)) return 1;
  if (cudnnSetTensor4dDescriptor(desc, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 1, 6, 5, 5)) return 2;
  if (cudnnSetActivationDescriptor(relu, CUDNN_ACTIVATION_RELU, CUDNN_PROPAGATE_NAN, 0)) return 3;
  COST(cudnnGetVersion());
  COST(cudnnSetTensor4dDescriptor(desc, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 1, 6, 5, 5));
  COST(cudnnGetTensorNdDescriptor(desc, 4, &type, &rank, dims, strides));
  COST(cudnnCreateTensorDescriptor(&made); cudnnDestroyTensorDescriptor(made));
  COST(cudnnSetTensor4dDescriptor(desc, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, -1, 6, 5, 5));
  COST(cudnnActivationForward(handle, relu, &one, desc, x, &zero, desc, y));
  return 0;
}}
"""
NAMES = ("cudnnGetVersion", "cudnnSetTensor4dDescriptor", "cudnnGetTensorNdDescriptor", "create and destroy a descriptor",
         "a refused call", "cudnnActivationForward, 150 floats")  # fmt: skip


def from_c() -> list[float]:
    with tempfile.TemporaryDirectory() as folder:
        library = build(Path(folder))
        source, program = Path(folder) / "cost.c", Path(folder) / "cost"
        source.write_text(SOURCE)
        command = [
            "gcc",
            "-O2",
            f"-I{library.parent / 'include'}",
            str(source),
            "-o",
            str(program),
            f"-L{library.parent}",
        ]
        subprocess.run([*command, f"-l:{NAME}", f"-Wl,-rpath,{library.parent}"], check=True)
        done = subprocess.run([str(program)], capture_output=True, text=True, check=True)
    return [float(line) for line in done.stdout.split()]


def cost(call: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        best = min(best, time.perf_counter() - start)
    return best / CALLS * 1e6


def from_python() -> list[float]:
    handle, desc, relu = (
        cudnn.cudnnCreate(backend="reference"), cudnn.cudnnCreateTensorDescriptor(), cudnn.cudnnCreateActivationDescriptor(),
    )  # fmt: skip
    shape = (desc, cudnn.CUDNN_TENSOR_NCHW, cudnn.CUDNN_DATA_FLOAT, 1, 6, 5, 5)
    cudnn.cudnnSetTensor4dDescriptor(*shape)
    cudnn.cudnnSetActivationDescriptor(relu, cudnn.CUDNN_ACTIVATION_RELU, cudnn.CUDNN_PROPAGATE_NAN, 0.0)
    x, y = handle.to_device(np.zeros(150, np.float32)), handle.to_device(np.zeros(150, np.float32))

    def refused() -> None:
        try:
            cudnn.cudnnSetTensor4dDescriptor(*shape[:3], -1, 6, 5, 5)
        except cudnn.CudnnError as error:
            str(error)

    return [
        cost(cudnn.cudnnGetVersion),
        cost(lambda: cudnn.cudnnSetTensor4dDescriptor(*shape)),
        cost(lambda: cudnn.cudnnGetTensorNdDescriptor(desc, 4)),
        cost(lambda: cudnn.cudnnDestroyTensorDescriptor(cudnn.cudnnCreateTensorDescriptor())),
        cost(refused),
        cost(lambda: cudnn.cudnnActivationForward(handle, relu, 1.0, desc, x, 0.0, desc, y)),
    ]


def main() -> int:
    c, python = from_c(), from_python()
    print(f"{'microseconds a call':38}{'C':>8}{'Python':>8}{'more':>8}")
    for name, one, other in zip(NAMES, c, python, strict=True):
        print(f"{name:38}{one:8.2f}{other:8.2f}{one - other:8.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
