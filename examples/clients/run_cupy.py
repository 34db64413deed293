"""Run CuPy 12.3.0's cuDNN module, unmodified and in an environment of its own, on the C library without a GPU.

    python examples/clients/run_cupy.py [--environment DIR]

It installs CuPy with NumPy 1.26 (from the registry, once), and builds libcudnn.so.8 and a CUDA runtime on host memory. Each other library
that CuPy links is an empty one. It runs cupy_calls.py there, and checks that every cuDNN function of the module was called. It compares
the results with PyTorch's (torch_answers.npz). Where CuPy cannot be installed, it says why and ends with status 0.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import venv
from collections import defaultdict
from pathlib import Path

import numpy as np
from dualdnn.api import cudnn
from dualdnn.api.abi.build import NAME, build
from dualdnn.api.abi.cuda_runtime import build_runtime

HERE = Path(__file__).parent
CUPY = "cupy-cuda12x==12.3.0"
NUMPY = "numpy==1.26.4"
NOT_LOGGED = {
    "cudnnGetVersion",
    "cudnnGetErrorString",
    "cudnnCreate",
}  # These return no status, or have no handle yet; the client uses their results.
# These results are in half precision, and their inputs are rounded too.
HALF = re.compile("normalization/fused")
# CuPy's array functions compute what the module computes.
SAME = {
    "arrays/softmax": "activation/softmax",
    "arrays/relu": "activation/relu",
    "arrays/y": "convolution/y",
    "arrays/pooled": "pooling/y",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environment", type=Path, default=Path("build/cupy"), help="where CuPy is installed (kept)")
    environment = parser.parse_args().environment.absolute()
    if reason := prepare(environment):
        print(f"skipped: {reason}")
        return 0
    modules = sorted(environment.glob("lib/python*/site-packages/cupy*/**/*.so"))
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        build(out)
        build_runtime(out)
        stub_libraries(modules, out)
        results, called = run(environment, out)
    linked = symbols(next(m for m in modules if m.match("cuda/libs/cudnn.*")), "--undefined-only")[NAME]
    if absent := {name for name in linked if not hasattr(cudnn, name)}:
        print(f"not implemented: {', '.join(sorted(absent))}")
        linked -= absent
    wrong = compared(results)
    print(f"{len(linked & (called | NOT_LOGGED))} of {len(linked)} functions of CuPy's module were called")
    print(f"{len(results)} results compared with PyTorch's, {len(wrong)} differ")
    for line in [*(f"never called: {name}" for name in sorted(linked - called - NOT_LOGGED)), *wrong]:
        print(line)
    return 1 if wrong or linked - called - NOT_LOGGED else 0


def prepare(environment: Path) -> str:
    """Install CuPy if necessary; return the reason if it cannot be installed."""
    python, ready = environment / "bin" / "python", environment / f".{CUPY}"
    if ready.is_file():
        return ""
    try:
        venv.create(environment, with_pip=True, clear=True)
        command = [str(python), "-m", "pip", "install", "--quiet", "--only-binary=:all:", CUPY, NUMPY]
        done = subprocess.run(command, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        return f"no environment for CuPy: {error}"
    if done.returncode:
        version = "{}.{}".format(*sys.version_info)
        return f"{CUPY} cannot be installed for Python {version}: {(done.stderr.strip().splitlines() or ['no reason given'])[-1]}"
    ready.touch()
    return ""


def symbols(library: Path, kind: str) -> dict[str, set[str]]:
    """Return the dynamic symbols of a library by their version node."""
    done = subprocess.run(["nm", "-D", kind, str(library)], capture_output=True, text=True, check=True)
    found: dict[str, set[str]] = defaultdict(set)
    for line in done.stdout.splitlines():
        name, _, node = line.split()[-1].partition("@")
        found[node.lstrip("@")].add(name)
    return found


def stub_libraries(modules: list[Path], out: Path) -> None:
    """Build a stub for each missing CUDA library that CuPy links; each of its functions returns an error."""
    needed, names = set(), defaultdict(set)
    for module in modules:
        read = subprocess.run(["readelf", "-d", str(module)], capture_output=True, text=True, check=True).stdout
        needed |= set(re.findall(r"\(NEEDED\).*\[(lib(?:cu|nv)[^\]]*)\]", read))
        for node, listed in symbols(module, "--undefined-only").items():
            names[node] |= listed
    for library in sorted(needed):
        if (out / library).exists():
            continue
        source, script = out / "empty.c", out / "empty.map"
        source.write_text("".join(f"int {name}(void) {{ return 999; }}\n" for name in sorted(names[library])))
        script.write_text(f"{library} {{ global: *; }};\n")
        command = ["gcc", "-w", "-shared", "-fPIC", str(source), "-o", str(out / library), f"-Wl,-soname,{library}"]
        subprocess.run([*command, f"-Wl,--version-script={script}"], check=True)


def run(environment: Path, out: Path) -> tuple[dict[str, np.ndarray], set[str]]:
    """Return what the client computed, and the functions that the library's log names."""
    log, results = out / "calls.log", out / "results.npz"
    logged = {"CUDNN_LOGINFO_DBG": "1", "CUDNN_LOGDEST_DBG": str(log), "DUALDNN_SHOW_ERRORS": "1"}
    variables = {**os.environ, **logged, "LD_LIBRARY_PATH": str(out), "CUPY_CACHE_DIR": str(out)}
    command = [str(environment / "bin" / "python"), str(HERE / "cupy_calls.py"), str(results)]
    command += [] if hasattr(cudnn, "cudnnCreatePersistentRNNPlan") else ["persistent"]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=600)
    if done.returncode:
        print(done.stdout + done.stderr[-4000:])
        raise SystemExit("the client failed")
    return dict(np.load(results)), set(re.findall(r"function (cudnn\w+)\(\) called", log.read_text()))


def compared(results: dict[str, np.ndarray]) -> list[str]:
    """Return a line for each result that differs from PyTorch's."""
    answers, wrong = dict(np.load(HERE / "torch_answers.npz")), []
    for name, value in results.items():
        answer = answers[SAME.get(name, name)].reshape(value.shape)
        tolerance = 4e-3 if HALF.match(name) else 2e-6
        error = np.abs(value - answer).max() / max(1.0, np.abs(answer).max())
        if not error <= tolerance:
            wrong.append(f"{name} differs by {error:.2e} of its largest element")
    return wrong


if __name__ == "__main__":
    sys.exit(main())
