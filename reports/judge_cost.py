"""What the judge's verdict on a convolution takes, beside another version of the project.

    python reports/judge_cost.py FOLDER    # that has the other version's package dualdnn

Milliseconds of processor time, one thread, the least of RUNS runs in turns. Inputs are seeded random numbers, for which all rules hold.
"""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from time import process_time
from typing import Any

RUNS = 14
# name -> x, w, padding, stride, groups, data type
SHAPES: dict[str, tuple[Any, ...]] = {
    "3x3, 64 channels": ((4, 64, 56, 56), (64, 64, 3, 3), 1, 1, 1, "FLOAT"),
    "3x3, 512 channels": ((4, 512, 7, 7), (512, 512, 3, 3), 1, 1, 1, "FLOAT"),
    "1x1, 256 channels": ((8, 256, 28, 28), (256, 256, 1, 1), 0, 1, 1, "FLOAT"),
    "7x7 stride 2, 3 channels": ((4, 3, 224, 224), (64, 3, 7, 7), 3, 2, 1, "FLOAT"),
    "3x3 stride 2, half": ((8, 128, 28, 28), (128, 128, 3, 3), 1, 2, 1, "HALF"),
    "3x3, 4 groups": ((8, 128, 28, 28), (128, 32, 3, 3), 1, 1, 4, "FLOAT"),
    "depthwise 3x3": ((8, 128, 56, 56), (128, 1, 3, 3), 1, 1, 128, "FLOAT"),
    "3-D 3x3x3": ((2, 16, 16, 28, 28), (32, 16, 3, 3, 3), 1, 1, 1, "FLOAT"),
    "3x3, double": ((1, 64, 28, 28), (64, 64, 3, 3), 1, 1, 1, "DOUBLE"),
    "one image of 16 x 8x8": ((1, 16, 8, 8), (32, 16, 3, 3), 1, 1, 1, "FLOAT"),
}


def serve() -> None:
    """Answer each name of a shape with the seconds of a verdict."""
    import numpy as np
    from dualdnn.api.enumerations import cudnnConvolutionFwdAlgo_t as Algo
    from dualdnn.api.enumerations import cudnnConvolutionMode_t as Mode
    from dualdnn.api.enumerations import cudnnDataType_t, cudnnMathType_t, cudnnReorderType_t
    from dualdnn.api.operations import ConvolutionForward, ConvolutionSpec, FilterSpec, TensorSpec
    from dualdnn.api.operations.specs import DOUBLE, FLOAT, NCHW
    from dualdnn.reference import judge, run
    from dualdnn.reference.view import NUMPY_TYPES

    options = {"random": True} if "random" in inspect.signature(judge).parameters else {}
    judged = ""
    for line in sys.stdin:
        if line != judged:
            judged = line
            x, w, padding, stride, groups, name = SHAPES[line.strip()]
            data_type, rank, random = cudnnDataType_t[f"CUDNN_DATA_{name}"], len(x) - 2, np.random.default_rng(0)
            spec = ConvolutionSpec(
                Mode.CUDNN_CROSS_CORRELATION, DOUBLE if data_type == DOUBLE else FLOAT, (padding,) * rank, (stride,) * rank, (1,) * rank,
                groups, cudnnMathType_t.CUDNN_DEFAULT_MATH, cudnnReorderType_t.CUDNN_DEFAULT_REORDER,
            )  # fmt: skip
            operation = ConvolutionForward(
                spec, Algo.CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, 0, 1.0, 0.0, TensorSpec.packed(data_type, x),
                FilterSpec(data_type, NCHW, w), TensorSpec.packed(data_type, spec.output_dims(x, w)),
            )  # fmt: skip
            dtype = NUMPY_TYPES[data_type]
            before = {"workSpace": np.zeros(0, np.uint8), "y": np.zeros(operation.nbytes("y"), np.uint8)}
            for operand, dims in (("x", x), ("w", w)):
                before[operand] = random.standard_normal(dims).astype(dtype).view(np.uint8).ravel()
            after = {operand: memory.copy() for operand, memory in before.items()}
            run(operation, after)
        start = process_time()
        verdict = judge(operation, before, after, **options)
        print(process_time() - start, flush=True)
        assert verdict.agrees


def main() -> None:
    """Print a table of both versions."""
    folders = {"other": sys.argv[1], "this": ""}
    runners = {
        name: subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONPATH": folder, "OPENBLAS_NUM_THREADS": "1", "JUDGE_COST_SERVES": "1"},
        )
        for name, folder in folders.items()
    }  # fmt: skip
    print("| shape | other ms | this ms | ratio |\n|---|---|---|---|")
    for shape in SHAPES:
        best = dict.fromkeys(runners, float("inf"))
        for _ in range(RUNS):
            for name, runner in runners.items():
                assert runner.stdin and runner.stdout
                print(shape, file=runner.stdin, flush=True)
                best[name] = min(best[name], 1000 * float(runner.stdout.readline()))
        print(
            f"| {shape} | {best['other']:.2f} | {best['this']:.2f} | {best['this'] / best['other']:.2f} |", flush=True
        )
    for runner in runners.values():
        runner.communicate()


if __name__ == "__main__":
    serve() if os.environ.get("JUDGE_COST_SERVES") else main()
