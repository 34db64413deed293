"""Test what a user installs: type stubs, the version, the command and the wheel."""

from __future__ import annotations

import importlib.metadata
import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import dualdnn
import pytest
from dualdnn import accelerated, api, reference
from dualdnn.conformance.pages import stubs

ROOT = Path(__file__).resolve().parents[2]

CLIENT = """
import numpy as np
from dualdnn.api import cudnn

with cudnn.cudnnCreate(backend="reference") as handle:
    tensor = cudnn.cudnnCreateTensorDescriptor()
    cudnn.cudnnSetTensor4dDescriptor(tensor, cudnn.CUDNN_TENSOR_NCHW, cudnn.CUDNN_DATA_FLOAT, 1, 1, 2, 3)
    pooling = cudnn.cudnnCreatePoolingDescriptor()
    with handle.to_device(np.ones(6, np.float32)) as x:
        cudnn.cudnnScaleTensor(handle, tensor, x, 2.0)
        total: int = cudnn.cudnnGetTensorSizeInBytes(tensor)
        n: int = cudnn.cudnnGetTensor4dDescriptor(tensor).nStride
        kind: cudnn.cudnnDataType_t = cudnn.cudnnGetTensor4dDescriptor(tensor).dataType
        {line}
"""
MISTAKES = {
    "cudnn.cudnnScaleTensr(handle, tensor, x, 2.0)": "attr-defined",
    "cudnn.cudnnScaleTensor(handle, tensor, x)": "call-arg",
    "cudnn.cudnnScaleTensor(handle, pooling, x, 2.0)": "arg-type",
    "cudnn.cudnnScaleTensor(handle, tensor, x, 'two')": "arg-type",
    "cudnn.cudnnSetTensor4dDescriptor(tensor, cudnn.CUDNN_DATA_FLOAT, cudnn.CUDNN_TENSOR_NCHW, 1, 1, 2, 3)": "arg-type",
    "cudnn.cudnnGetTensor4dDescriptor(tensor).strides": "attr-defined",
    "cudnn.CUDNN_DATA_FLAOT": "attr-defined",
}


@pytest.mark.parametrize("library", stubs.STUBS)
def test_stubs_are_up_to_date(library):
    """The committed stubs are what ``make stubs`` writes."""
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(stubs.STUBS[library]), "-"]
    done = subprocess.run(command, input=stubs.stub_text(library), capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        pytest.skip("ruff formats the stubs, and is not here")
    assert done.stdout == stubs.STUBS[library].read_text(encoding="utf-8"), "the stubs are out of date: make stubs"


def test_a_type_checker_finds_mistakes_and_nothing_else(tmp_path):
    pytest.importorskip("mypy")
    types = tmp_path / "types" / "dualdnn"
    types.mkdir(parents=True)
    (types / "__init__.py").symlink_to(ROOT / "package" / "__init__.py")
    for layer in ("api", "reference", "accelerated"):
        (types / layer).symlink_to(ROOT / layer)
    client = tmp_path / "client.py"
    lines = list(MISTAKES)
    client.write_text(CLIENT.format(line="\n        ".join(lines)))
    first = CLIENT.split("{line}")[0].count("\n") + 1
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--follow-imports=silent",
        "--cache-dir",
        str(tmp_path),
        str(client),
    ]
    environment = {"MYPYPATH": str(types.parent), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
    found = re.findall(r"client\.py:(\d+): error: .*\[([a-z-]+)\]", done.stdout)
    expected = {str(first + index): code for index, code in enumerate(MISTAKES.values())}
    assert {line: code for line, code in found} == expected, done.stdout + done.stderr


def test_one_version_everywhere():
    versions = {dualdnn.__version__, api.__version__, reference.__version__, accelerated.__version__}
    assert versions == {importlib.metadata.version("dualdnn")}
    for command in ([sys.executable, "-m", "dualdnn"], [str(Path(sys.executable).parent / "dualdnn")]):
        done = subprocess.run([*command, "--version"], capture_output=True, text=True)
        assert done.returncode == 0 and f"dualdnn {dualdnn.__version__}" in done.stdout


def test_a_wheel_holds_the_sources_and_nothing_else(tmp_path):
    """A wheel holds the modules, their data, the type stubs and the pages that docstrings cite."""
    pytest.importorskip("setuptools", minversion="77")
    stale = tmp_path / "lib" / "dualdnn" / "api" / "gone_long_ago.py"
    stale.parent.mkdir(parents=True)
    stale.touch()
    tree = tmp_path / "tree"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("this is not a checkout")
    files = [name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]
    for name in files:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, tree / name)
    command = [
        sys.executable,
        "setup.py",
        "-q",
        "build",
        "--build-base",
        str(tmp_path / "b"),
        "--build-lib",
        str(tmp_path / "lib"),
    ]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    built = {path.relative_to(tmp_path / "lib" / "dualdnn") for path in (tmp_path / "lib").rglob("*") if path.is_file()}
    layers = ("api", "reference", "accelerated", "conformance", "docs")
    sources = {Path(name) for name in files if name.startswith(layers)}
    sources |= {Path(name).relative_to("package") for name in files if name.startswith("package/")}
    counted = Path("conformance/pages/counted.json")  # Only a run counts these cases.
    assert built - sources == {counted}
    cases = json.loads((tmp_path / "lib/dualdnn" / counted).read_text())
    assert "every_call/test_kernels_that_fail" in cases["cudnnPoolingForward/c19"]
    assert {
        path for path in sources - built if path.suffix in (".py", ".pyi", ".md", ".json", ".cu", ".cuh", ".css", ".js")
    } == set()


def test_every_package_of_the_tree_is_installed():
    """A package that pyproject.toml does not list works in a checkout but is missing from a wheel."""
    listed = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    layers = ("api", "reference", "accelerated", "conformance")
    found = {path.parent.relative_to(ROOT) for layer in layers for path in (ROOT / layer).rglob("*.py")}
    assert not {".".join(("dualdnn", *folder.parts)) for folder in found if "__pycache__" not in folder.parts} - listed
