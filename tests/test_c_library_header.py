"""cudnn.h against NVIDIA's own of release 8.9.7: every prototype is declared again behind it."""

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

LATER = {"cudnnBackendInitialize"}  # three parameters in the document, one since
# The document has const where the header has none, or none where it has it, at one pointer each.
CONST = {
    *("cudnnBackendSetAttribute", "cudnnCTCLoss", "cudnnCTCLoss_v8", "cudnnFindRNNBackwardDataAlgorithmEx"),
    "cudnnRNNBackwardData",
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


@pytest.mark.parametrize("options, differ", [([], LATER | CONST), (["-Dconst="], LATER)], ids=["all", "without const"])
def test_prototypes(includes, tmp_path, options, differ):
    source = tmp_path / "prototypes.c"
    lines = "\n".join(header._functions())
    assert lines.count(";\n") + 1 == len(functions())
    source.write_text(f"#include <cudnn.h>\n{lines}\n")
    done = subprocess.run(
        ["gcc", "-fsyntax-only", "-w", *options, *includes, str(source)], capture_output=True, text=True
    )
    errors = [line for line in done.stderr.splitlines() if " error: " in line]
    found = {match[1] for line in errors if (match := re.search(r"conflicting types for .(cudnn\w+)", line))}
    assert len(errors) == len(found) and found == differ, done.stderr[:2000]
