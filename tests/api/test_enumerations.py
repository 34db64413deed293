"""Test that enumerations agree with the headers of NVIDIA's own package."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from dualdnn.api.enumerations import ENUMERATIONS, RESTORED
from dualdnn.conformance.subjects import find_vendor_library
from looped import for_each

# The headers of 8.9.7 spell these names differently, or lack them.
OTHER_NAMES = {
    "CUDNN_POINTWISE_IDENTITY_FWD": "CUDNN_POINTWISE_IDENTITY",
    "CUDNN_FUSED_SCALE_BIAS_ADD_ACTIVATION_GEN_BITMASK": "CUDNN_FUSED_SCALE_BIAS_ADD_ACTIVATION_GEN_BITMASK",
}
# These count the document's enumerators, and later releases have more.
COUNTS = ("CUDNN_KNOB_TYPE_COUNTS", "CUDNN_NUMERICAL_NOTE_TYPE_COUNT")
NOT_IN_HEADERS = {"libraryPropertyType"}  # CUDA declares it.


def header_values() -> dict[str, int]:
    library = find_vendor_library()
    if library is None:
        pytest.skip("the vendor's headers are not installed")
    text = "\n".join(path.read_text() for path in sorted(Path(library).parent.parent.glob("include/*.h")))
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.S)
    values: dict[str, int] = {}
    for body in re.findall(r"typedef enum\s*\w*\s*\{(.*?)\}", text, flags=re.S):
        previous = -1
        for entry in filter(None, (part.strip() for part in body.split(","))):
            name, _, written = (part.strip() for part in entry.partition("="))
            name = name.split()[0]
            previous = (
                values[written] if written in values else int(written.rstrip("U"), 0) if written else previous + 1
            )
            values[name] = previous
    for name, shift in re.findall(r"#define\s+(CUDNN_\w+)\s+\(1U << (\d+)\)", text):
        values[name] = 1 << int(shift)
    for name, number in re.findall(r"#define\s+(CUDNN_\w+)\s+(\d+)\b", text):
        values.setdefault(name, int(number))
    return values


def test_there_are_58_types():
    assert len(ENUMERATIONS) == 58
    assert set(RESTORED) <= {member.name for kind in ENUMERATIONS.values() for member in kind}


@for_each("name", sorted(set(ENUMERATIONS) - NOT_IN_HEADERS))
def test_values_are_the_header_s(name):
    values = header_values()
    wrong = {
        m.name: (m.value, values.get(OTHER_NAMES.get(m.name, m.name)))
        for m in ENUMERATIONS[name]
        if m.name not in COUNTS and values.get(OTHER_NAMES.get(m.name, m.name)) != m.value
    }
    assert not wrong
