"""Test that cudnn.h agrees with NVIDIA's public headers of release 8.9.7 in every prototype, value and layout."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from dualdnn.accelerated.runtime.emulated.toolchain import cuda_headers
from dualdnn.accelerated.runtime.errors import DeviceUnavailable
from dualdnn.api.abi import header
from dualdnn.api.document import functions
from dualdnn.conformance.subjects import find_vendor_library

if shutil.which("gcc") is None:
    pytest.skip("no C compiler", allow_module_level=True)

LATER = {"cudnnBackendInitialize"}  # The document has three parameters, later releases have one.
RAISED = {"CUDNN_RNN_ALGO_COUNT"}  # Later releases raised this count.
# structure -> members whose offsets and sizes are compared
LAYOUTS = {
    **dict.fromkeys(header.PERFORMANCES, "algo status time memory determinism mathType reserved"),
    "cudnnAlgorithm_t": "algo",
    "cudnnDebug_t": "cudnn_version cudnnStatus time_sec time_usec time_delta handle stream pid tid cudaDeviceId reserved",
}


@pytest.fixture(scope="module")
def includes():
    library = find_vendor_library()
    folder = Path(library).parent.parent / "include" if library else None
    if folder is None or not (folder / "cudnn_ops_infer.h").is_file():
        pytest.skip("the headers of release 8.9.7 are not installed")
    try:
        return [f"-I{path}" for path in (folder, *cuda_headers())]
    except DeviceUnavailable as reason:
        pytest.skip(str(reason))


def checked(source, *options):
    command = ["gcc", "-fsyntax-only", "-w", *options, str(source)]
    return subprocess.run(command, capture_output=True, text=True)


def test_prototypes(includes, tmp_path):
    """Every parameter has the public header's type, const included."""
    source = tmp_path / "prototypes.c"
    lines = "\n".join([*header._functions(), *header._later(header.DOCUMENT)])
    assert lines.count(";\n") + 1 > len(functions())
    source.write_text(f"#include <cudnn.h>\n{lines}\n")
    done = checked(source, *includes)
    errors = [line for line in done.stderr.splitlines() if " error: " in line]
    found = {match[1] for line in errors if (match := re.search(r"conflicting types for .(cudnn\w+)", line))}
    assert len(errors) == len(found) and found == LATER, done.stderr[:2000]


def test_every_function_of_the_public_headers_is_declared(includes):
    """Our headers declare every function of the public headers, and our library exports every function that they declare."""
    folder = Path(includes[0].removeprefix("-I"))
    public = set(re.findall(r"\b(cudnn[A-Z]\w*)\(", "".join(path.read_text() for path in folder.glob("cudnn*.h"))))
    face = header.DOCUMENT
    declared = set(re.findall(r"\b(cudnn[A-Z]\w*)\(", header.header()))
    assert public <= declared and declared == {*face.functions, *face.absent, *face.sizes}


def test_limits(includes, tmp_path):
    """Every macro has the public header's value; tests/api/test_enumerations.py compares the enumerators."""
    source = tmp_path / "limits.c"
    limits = [line.split()[1:] for line in header._limits()]
    asserted = (f'_Static_assert({name} == {value}, "{name}");' for name, value in limits if name not in RAISED)
    source.write_text("#include <cudnn.h>\n" + "\n".join(asserted))
    done = checked(source, *includes)
    assert limits and done.returncode == 0, done.stderr


def test_layouts(includes, tmp_path):
    """Structures have the members of the public headers' structures, at the same offsets."""
    (tmp_path / "ours").mkdir()
    for name, text in header.headers().items():
        (tmp_path / "ours" / name).write_text(text)
    source, program = tmp_path / "layouts.c", tmp_path / "layouts"
    places = "".join(
        f'printf("%zu %zu ", offsetof({kind}, {member}), sizeof((({kind} *)0)->{member}));\n'
        for kind, members in LAYOUTS.items()
        for member in members.split()
    )
    sizes = "".join(f'printf("%zu ", sizeof({kind}));\n' for kind in LAYOUTS)
    source.write_text(
        f"#include <stddef.h>\n#include <stdio.h>\n#include <cudnn.h>\nint main(void) {{ {places}{sizes} }}"
    )
    printed = []
    for options in ([f"-I{tmp_path / 'ours'}", *includes], includes):
        subprocess.run(["gcc", "-w", *options, str(source), "-o", str(program)], check=True)
        printed.append(subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout)
    assert (
        printed[0] == printed[1] and len(printed[0].split()) == 2 * sum(map(len, map(str.split, LAYOUTS.values()))) + 5
    )


@pytest.mark.parametrize("standard", ["c89", "c17", "c++98", "c++20"])
def test_headers_alone_twice_and_in_any_order(tmp_path, standard):
    """Every header of cuDNN 8 compiles alone, before and after all others, without warnings and without CUDA's headers."""
    language = "c++" if "++" in standard else "c"
    for file, text in header.headers().items():
        (tmp_path / file).write_text(text)
    names = list(header.headers())
    for number, given in enumerate([*([name, name] for name in names), names, names[::-1]]):
        uses = "int main(void) { return CUDNN_VERSION / 1000 - CUDNN_MAJOR; }"
        uses += "" if given[0] == given[-1] == "cudnn_version.h" else "\ncudnnHandle_t handle;"
        lines = "".join(f"#include <{name}>\n" for name in given)
        (tmp_path / f"{number}.{language}").write_text(f"{lines}{uses}\n")
    options = [f"-std={standard}", "-fsyntax-only", "-Wall", "-Wextra", "-pedantic", "-Werror", f"-I{tmp_path}"]
    subprocess.run(["gcc", *options, "-x", language, *map(str, tmp_path.glob(f"*.{language}"))], check=True)
