"""Describe the origin of a report: what was run, from which sources, on what machine, and whether it is complete."""

from __future__ import annotations

import ctypes
import os
import platform
import subprocess
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from dualdnn.accelerated.runtime.information import compilers

from .subjects.probe import DescribedSubject

COMPLETE = "complete"
PARTIAL = "partial"
INTERRUPTED = "interrupted"


def environment(subjects: Sequence[DescribedSubject], started: float, run: dict[str, Any]) -> dict[str, Any]:
    """Return facts about where and how a report was made. ``run``: state, command and selection."""
    return {
        **run,
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(started)),
        "seconds": round(time.time() - started, 1),
        "commit": commit(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpu": cpu(),
        "driver": driver(),
        # A published report names no folder of the machine.
        **{f"compiler ({name})": text.partition(" in /")[0] for name, text in compilers().items()},
        "seed": f"inputs follow from each case's text; order of threads {os.environ.get('DUALDNN_EMULATION_SEED', '0')}",
        "python": platform.python_version(),
        "packages": {name: version(name) for name in ("dualdnn", "numpy", "scipy", "ml_dtypes", "pytest")},
        **{subject.name: subject.environment() for subject in subjects},
    }


def commit() -> str:
    """Return the commit of the sources, marked if they were changed, or the version if they are not a checkout."""
    sources = Path(__file__).resolve().parents[1]
    if (sources / ".git").exists():
        told = [
            _said(["git", "-C", str(sources), *arguments]) for arguments in (["rev-parse", "HEAD"], ["status", "-s"])
        ]
        if told[0]:
            return told[0] + (", with changes" if told[1] else "")
    return f"version {version('dualdnn')}"


def _said(command: list[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def cpu() -> str:
    """Return the model and number of the processors."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    model = next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine()
    )
    return f"{model}, {len(os.sched_getaffinity(0))} of {os.cpu_count()} processors"


def driver() -> str:
    """Return the CUDA version that NVIDIA's driver supports."""
    number = ctypes.c_int()
    try:
        ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(number))
    except (OSError, AttributeError):
        return "no NVIDIA driver"
    return f"NVIDIA, CUDA {number.value // 1000}.{number.value % 1000 // 10}"
