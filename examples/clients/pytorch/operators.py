"""Compute every sample forward and backward, and write its distance from float64 on the CPU: operators.py OUT DEVICE SECONDS."""

from __future__ import annotations

import json
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import torch
from samples import MODULES, Sample, samples
from torch.testing._internal.common_utils import dtype2prec_DONTUSE

TOLERANCES = {
    torch.float32: (1.3e-6, 1e-5),
    torch.float16: (1e-3, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-5),
}  # relative and absolute tolerance of torch.testing


def main(out: Path, device: str, seconds: float) -> None:
    began, rows, left = time.monotonic(), [], 0
    for sample in list(samples()):
        for dtype in sample.dtypes:
            for nhwc in sample.layouts:
                if time.monotonic() - began > seconds:
                    left += 1
                    continue
                rows.append(judged(sample, device, dtype, nhwc))
    out.write_text(json.dumps({"rows": rows, "left": left}))
    refused = [row for row in rows if "refused" in row]
    print(
        f"{len(rows)} samples in {time.monotonic() - began:.0f} s, {len(refused)} refused, {left} left for want of time",
        flush=True,
    )


def judged(sample: Sample, device: str, dtype: torch.dtype, nhwc: bool) -> dict[str, Any]:
    """Return one row: the largest error of each output and gradient in units of PyTorch's tolerance, or why it was refused."""
    row: dict[str, Any] = {
        "operation": sample.operation, "sample": sample.number, "text": sample.text, "dtype": str(dtype).removeprefix("torch."), "layout": "NHWC" if nhwc else "NCHW",
    }  # fmt: skip
    try:
        found = {name: value.detach().double().cpu() for name, value in sample.compute(device, dtype, nhwc).items()}
    except Exception as error:  # A refusal is a row too, because both libraries must refuse the same.
        return row | {"refused": f"{type(error).__name__}: {str(error)[:200]}", "trace": traceback.format_exc()[-600:]}
    expected = sample.compute("cpu", dtype, False)
    relative, absolute = TOLERANCES[dtype]
    errors = {}
    for name, value in found.items():
        right = expected[name].detach().double()
        if right.shape != value.shape:
            return row | {"refused": f"{name} has shape {tuple(value.shape)}, not {tuple(right.shape)}"}
        far = (value - right).abs() / (absolute + relative * right.abs())
        far = torch.where(value == right, torch.zeros_like(far), far)  # Equal infinities have no difference.
        errors[name] = float(far.nan_to_num(nan=float("inf")).max()) if far.numel() else 0.0
    worst = max(errors, key=lambda name: errors[name])
    if sample.operation in MODULES and dtype == torch.float16:
        # PyTorch's own tests of recurrent networks allow this absolute difference, because states are kept in half.
        far = max(float((value - expected[name].detach().double()).abs().max()) for name, value in found.items())
        row["of_modules_tolerance"] = far / dtype2prec_DONTUSE[dtype]
    return row | {"error": errors[worst], "where": worst, "errors": errors}


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]))
    if sys.argv[2] == "cuda":
        torch.cuda.synchronize()
