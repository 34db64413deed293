"""Measure how much sums of tensor cores lose, which truncate and do not round (docs/tolerance.md).

It needs a GPU, PyCUDA and nvcc; with PyTorch it also measures cuBLAS.

    python reports/tensor_core_drift.py

A warp adds K products by mma.sync into one accumulator, as every kernel does; cuBLAS adds them by what it chooses. Factors are what
the type holds, so that products are exact. A row says, in units of u sqrt(r^2 + q^2) for each product (r the sum, q the 2-norm of its
products): the mean of the error away from zero, its root mean square, the largest error; and the root mean square of errors
in units of the deviation that reference/spread.py expects.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from dualdnn.reference.spread import CUT_OF_HALF, CUT_OF_TF32, VARIANCE

Array = np.ndarray[Any, Any]
TERMS = (64, 576, 2304, 4608)
ROWS = 512  # A row of the table has the errors of ROWS x COLUMNS sums.
COLUMNS = 512
UNIT = 2.0**-24
SOURCE = r"""
typedef unsigned u32;
// d (16 x 8 floats) += a (16 x k, rows) * b (k x 8, columns), k = 16 halves or 8 TF32 numbers: 32 bytes of each row and column.
#define SUMS(name, instruction)                                                                                          \
  extern "C" __global__ void name(const u32* a, const u32* b, float* d, int words, int columns) {                        \
    const int lane = threadIdx.x, group = lane / 4, part = lane % 4;                                                     \
    const u32 *top = a + (size_t)(blockIdx.y * 16 + group) * words, *low = top + (size_t)8 * words;                      \
    const u32* column = b + (size_t)(blockIdx.x * 8 + group) * words;                                                    \
    float s[4] = {0, 0, 0, 0};                                                                                           \
    for (int at = part; at < words; at += 8)                                                                             \
      asm volatile("mma.sync.aligned." instruction " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"              \
                   : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3])                                                      \
                   : "r"(top[at]), "r"(low[at]), "r"(top[at + 4]), "r"(low[at + 4]), "r"(column[at]),                    \
                     "r"(column[at + 4]));                                                                               \
    float* out = d + (size_t)(blockIdx.y * 16 + group) * columns + blockIdx.x * 8 + part * 2;                            \
    out[0] = s[0], out[1] = s[1], out[8 * columns] = s[2], out[8 * columns + 1] = s[3];                                  \
  }
SUMS(sums_half, "m16n8k16.row.col.f32.f16.f16.f32")
SUMS(sums_bfloat16, "m16n8k16.row.col.f32.bf16.bf16.f32")
SUMS(sums_tf32, "m16n8k8.row.col.f32.tf32.tf32.f32")
"""


def as_type(values: Array, name: str) -> tuple[Array, Array]:
    """Return values as the type holds them: (numbers, words of memory)."""
    if name == "half":
        held = values.astype(np.float16)
        return held.astype(np.float64), np.ascontiguousarray(held).view(np.uint32)
    drop = 16 if name == "bfloat16" else 13
    bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
    bits = ((bits + (1 << drop - 1)) >> drop << drop).astype(np.uint32)
    numbers = bits.view(np.float32).astype(np.float64)
    return numbers, np.ascontiguousarray((bits >> 16).astype(np.uint16)).view(np.uint32) if drop == 16 else bits


def by_mma(module: Any, name: str, a: Array, b: Array) -> Array:
    """Return the sums of one warp's mma.sync: rows of a times rows of b."""
    import pycuda.driver as cuda

    out = np.empty((ROWS, COLUMNS), np.float32)
    arguments = (cuda.In(a), cuda.In(b), cuda.Out(out), np.int32(a.shape[1]), np.int32(COLUMNS))
    module.get_function(f"sums_{name}")(*arguments, block=(32, 1, 1), grid=(COLUMNS // 8, ROWS // 16))
    return out


def by_cublas(name: str, a: Array, b: Array) -> Array | None:
    """Return the sums of cuBLAS through PyTorch; None where there is none, or none with sums in float."""
    try:
        import torch

        torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
        dtype = {"half": torch.float16, "bfloat16": torch.bfloat16, "tf32": torch.float32}[name]
        left, right = (torch.from_numpy(values).to("cuda", dtype) for values in (a, b))
        found = torch.mm(left, right.T) if name == "tf32" else torch.mm(left, right.T, out_dtype=torch.float32)
        return found.cpu().numpy()
    except (ImportError, RuntimeError, TypeError) as error:
        print(f"cuBLAS, {name}: {error}")
        return None


def row(name: str, found: Array, numbers: tuple[Array, Array], terms: int) -> str:
    """Return the cells of a row."""
    exact = numbers[0] @ numbers[1].T
    squares = (numbers[0] ** 2) @ (numbers[1] ** 2).T
    error = (found - exact) * np.sign(exact)
    lost = error / (UNIT * terms * np.sqrt(exact**2 + squares))
    sums = exact**2 / 3 + squares / 6
    cut = (CUT_OF_TF32 if name == "tf32" else CUT_OF_HALF)[1]
    z = error / np.sqrt(VARIANCE * UNIT**2 * terms * sums + (cut * UNIT * terms) ** 2 * sums)
    cells = (lost.mean(), math.sqrt((lost**2).mean()), np.abs(lost).max(), math.sqrt((z**2).mean()), z.mean())
    return " | ".join(f"{cell:.3g}" for cell in cells)


def main() -> None:
    """Print the table."""
    import pycuda.autoprimaryctx
    from pycuda.compiler import SourceModule

    print(pycuda.autoprimaryctx.device.name())
    module = SourceModule(SOURCE, no_extern_c=True, options=["-O3"])
    random = np.random.default_rng(0)
    print("| type | by | data | K | mean | RMS | largest | R | bias |\n|---|---|---|---|---|---|---|---|---|")
    for name in ("half", "bfloat16", "tf32"):
        for kind, drawn in (("normal", np.asarray), ("positive", np.abs)):
            for terms in TERMS:
                values = [as_type(drawn(random.standard_normal((n, terms))), name) for n in (ROWS, COLUMNS)]
                (a, a_words), (b, b_words) = values
                ways: list[tuple[str, Callable[[], Array | None]]] = [
                    ("mma.sync", lambda name=name, a=a_words, b=b_words: by_mma(module, name, a, b)),
                    ("cuBLAS", lambda name=name, a=a, b=b: by_cublas(name, a, b)),
                ]
                for way, sums in ways:
                    if (found := sums()) is not None:
                        print(f"| {name} | {way} | {kind} | {terms} | {row(name, found, (a, b), terms)} |", flush=True)


if __name__ == "__main__":
    main()
