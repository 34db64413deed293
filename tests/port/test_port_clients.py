"""Test that ported C clients print the same numbers as before, and that wrong ports do not."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("cffi", reason="the strict library needs cffi: pip install 'dualdnn[strict]'")
pytest.importorskip("tree_sitter", reason="the porting tool needs tree-sitter: pip install 'dualdnn[port]'")
from dualdnn.api.document import functions
from dualdnn.conformance import command_line
from dualdnn.conformance.port.forms import table
from dualdnn.conformance.port.headers import write_headers
from dualdnn.conformance.port.strict import build

pytestmark = pytest.mark.skipif(sys.platform != "linux" or not shutil.which("g++"), reason="needs Linux and g++")
CLIENTS = Path(__file__).parents[1] / "port_clients"
SEVERAL_FILES = {"two_files": ("layers.c",)}
NAMES = sorted(path.stem for path in CLIENTS.iterdir() if path.suffix in (".c", ".cpp") and path.stem != "layers")
HOST_MEMORY = [
    "-include",
    "stdlib.h",
    "-DDUALDNN_PORT_ALLOCATE(p,n)=((*(p)=malloc(n))!=NULL)",
    "-DDUALDNN_PORT_FREE(p)=free(p)",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Build the headers, both libraries and the ported clients, and return their folder."""
    made = tmp_path_factory.mktemp("port")
    write_headers(made)
    for document in ("cudnn", "miopen"):
        build(document, made)
    assert command_line.main(["port", str(CLIENTS), "--out", str(made / "ported"), "--jobs", "1"]) == 0
    return made


def source(folder: Path, name: str) -> Path:
    return next(path for path in (folder / f"{name}.c", folder / f"{name}.cpp") if path.exists())


def compiled(
    folder: Path, files: list[Path], library: str, target: Path, *flags: str
) -> subprocess.CompletedProcess[str]:
    compiler = ["g++", "-std=c++17"] if any(file.suffix == ".cpp" for file in files) else ["gcc", "-std=c11"]
    linked = [f"-L{folder}", f"-l{library}_strict", "-lm", f"-Wl,-rpath,{folder}", "-o", str(target)]
    return subprocess.run([*compiler, *flags, f"-I{folder}", *map(str, files), *linked], capture_output=True, text=True)


def run(program: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "DUALDNN_BACKEND": "reference", "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.run([str(program)], capture_output=True, text=True, env=environment, timeout=120)


def before(folder: Path, name: str) -> str:
    files = [source(CLIENTS, name), *(CLIENTS / other for other in SEVERAL_FILES.get(name, ()))]
    program = folder / f"{name}-before"
    if not program.exists():
        built = compiled(folder, files, "cudnn", program, "-w")
        assert built.returncode == 0, built.stderr
    done = run(program)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def after(folder: Path, name: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run the ported client, or a changed version of it."""
    files = [source(folder / "ported", name), *(folder / "ported" / other for other in SEVERAL_FILES.get(name, ()))]
    if text is not None:
        changed = folder / "ported" / f"wrong_{name}{files[0].suffix}"
        changed.write_text(text)
        files[0] = changed
    program = folder / f"{name}-{'wrong' if text else 'after'}"
    built = compiled(folder, files, "miopen", program, "-Wall", "-Wextra", "-Werror", *HOST_MEMORY)
    assert built.returncode == 0, built.stderr
    return run(program)


def numbers(output: str) -> dict[str, list[float]]:
    lines = [re.match(r"(.*?) ?((?: ?[-\w.+]*\d[-\w.+]*| ?-?nan)+)$", line) for line in output.splitlines()]
    return {f"{i} {m[1]}": [float(v) for v in m[2].split()] for i, m in enumerate(lines) if m}


def equal(first: str, second: str) -> bool:
    """Tell whether the lines are equal, up to the extra rounding of a sum that is blended through a temporary."""
    ours, theirs = numbers(first), numbers(second)
    return bool(ours) and list(ours) == list(theirs) and all(
        len(a) == len(b) and np.allclose(a, b, rtol=2e-5, atol=2e-5) for a, b in zip(ours.values(), theirs.values(), strict=True)
    )  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_a_ported_client_says_the_same(folder, name):
    done = after(folder, name)
    assert done.returncode == 0, done.stdout + done.stderr
    assert equal(before(folder, name), done.stdout), f"before:\n{before(folder, name)}\nafter:\n{done.stdout}"


def test_there_are_enough_clients():
    """The clients call every function of the guide that 8.0.3 has, except cudnnGetStream."""
    text = "".join(path.read_text() for path in CLIENTS.iterdir())
    called = set(re.findall(r"\bcudnn[A-Z]\w*", text))
    wanted = {name for name, many in table().forms.items() if many[0].row and name in functions()}
    assert len(NAMES) >= 12 and wanted - called == {"cudnnGetStream"}


FIND_ON_DATA = """{ miopenConvAlgoPerf_t live_; int n_; size_t s_; miopenConvolutionForwardGetWorkSpaceSize(handle, f, x, conv, y, &s_);
    CHECK(miopenFindConvolutionForwardAlgorithm(handle, x, X, f, W, conv, y, Y, 1, &n_, &live_, workspace, size, false)); }
    CHECK(dualdnnPortConvolutionForward(handle, &two"""
DIRECT = r"miopenConvolutionForward(handle, \1, x, X, f, W, conv, perf[0].algo, \2, y, Y, workspace, size)"
CONVOLUTION = (
    r"dualdnnPortConvolutionForward\(handle, (&\w+), x, X, f, W, conv, perf\[0\]\.algo, workspace, size, (&\w+), y, Y\)"
)
# mistake -> (client, pattern in the ported text, replacement)
WRONG = {
    "x and w swapped in GetWorkSpaceSize": ("convolution_forward", r"GetWorkSpaceSize\(handle, f, x,", "GetWorkSpaceSize(handle, x, f,"),
    "alpha and beta passed on": ("convolution_forward", CONVOLUTION, DIRECT),
    "Find left out": (
        "convolution_forward",
        r"(?s)CHECK\(dualdnnPortGetConvolutionForwardAlgorithm_v7.*?&two.*?show",
        "(void)count, (void)perf; perf[0].algo = miopenConvolutionFwdAlgoGEMM; void *workspace = NULL; (void)two;\n"
        "CHECK(miopenConvolutionForward(handle, &one, x, X, f, W, conv, perf[0].algo, &zero, y, Y, workspace, size));\n show",
    ),
    "Find on live data": ("convolution_forward", r"CHECK\(dualdnnPortConvolutionForward\(handle, &two", FIND_ON_DATA),
    "AddTensor with its operands in cuDNN's order": (
        "tensors",
        r"dualdnnPortAddTensor\(handle, &minus, a, A, &half, y, Y\)",
        "miopenOpTensor(handle, miopenTensorOpAdd, &minus, a, A, &half, y, Y, &zero, y, Y)",
    ),
    "AddTensor that reads C where beta is 0": (
        "tensors",
        r"dualdnnPortAddTensor\(handle, &one, a, A, &zero, y, Y\)",
        "miopenOpTensor(handle, miopenTensorOpAdd, &zero, y, Y, &one, a, A, &zero, y, Y)",
    ),
    "a data type by its number in cuDNN": ("tensors", r"CHECK\(dualdnnPortSetTensor4dDescriptor\(b, format, miopenFloat,",
                                           "(void)format; CHECK(miopenSet4dTensorDescriptor(b, (miopenDataType_t)0,"),
    "TANH with the attributes of the others": (
        "head",
        r"dualdnnPortSetActivationDescriptor\(tanh_, miopenActivationTANH, DUALDNN_PORT_NOT_PROPAGATE_NAN, 0.0\)",
        "miopenSetActivationDescriptor(tanh_, miopenActivationTANH, 0.0, 0.0, 0.0)",
    ),
    "pooling backward without a workspace": (
        "head",
        r"dualdnnPortPoolingBackward\((.*?), DT\)",
        r"miopenPoolingBackward(\1, DT, NULL)",
    ),
    "a workspace that another forward call filled": (
        "head",
        r"dualdnnPortPoolingBackward\((.*?), DT\)",
        r"miopenPoolingForward(handle, pooling, &one, x, DX, &zero, y, P, true, memory, 108)); CHECK(miopenPoolingBackward(\1, DT, memory)",
    ),
    "operands swapped in the activation's gradient": (
        "activation", r"x, Y, x, DY, x, X, &one, x, DX", "x, Y, x, X, x, DY, &one, x, DX",
    ),
    "softmax without its mode": (
        "softmax",
        r"dualdnnPortSoftmaxForward\(handle, DUALDNN_PORT_SOFTMAX_FAST, modes\[i\], (.*?)\)\)",
        r"miopenSoftmaxForward(handle, \1))",
    ),
    "averages by their numbers in cuDNN": ("pooling", r"miopenPoolingAverageInclusive,\s*miopenPoolingAverage,",
                                           "(miopenPoolingMode_t)1, (miopenPoolingMode_t)2,"),
    "pooling with alpha and beta passed on": (
        "pooling", r"dualdnnPortPoolingForward\((handle, pooling, &minus.*?), Y\)", r"miopenPoolingForward(\1, Y, false, NULL, 0)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", sorted(WRONG))
def test_a_wrong_port_is_noticed(folder, mistake):
    name, pattern, replacement = WRONG[mistake]
    text = source(folder / "ported", name).read_text()
    wrong, count = re.subn(pattern, replacement, text)
    assert count, f"{pattern} is not in the ported client"
    if "memory" in replacement:
        wrong = wrong.replace("float one = 1", "static char memory[4096];\n    float one = 1", 1)
    done = after(folder, name, wrong)
    assert done.returncode != 0 or not equal(before(folder, name), done.stdout), (
        f"{mistake} went unnoticed:\n{done.stdout}"
    )
