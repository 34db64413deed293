"""The driver's numbers, against the header that defines them."""

from __future__ import annotations

import re

import pytest
from dualdnn.accelerated import driver
from dualdnn.accelerated.emulated.toolchain import cuda_headers


@pytest.mark.parametrize("name", ["MAX_DYNAMIC_SHARED_SIZE_BYTES", "NON_PORTABLE_CLUSTER_SIZE_ALLOWED"])
def test_function_attributes(name):
    header = next((folder / "cuda.h" for folder in cuda_headers() if (folder / "cuda.h").exists()), None)
    if header is None:
        pytest.skip("the packages for Python come without cuda.h")
    defined = re.search(rf"CU_FUNC_ATTRIBUTE_{name} = (\d+)", header.read_text())
    assert defined and int(defined[1]) == getattr(driver, name)
