"""Where NVIDIA's library and the document disagree in the CTC loss, each decided in docs/errata.md under its id."""

from __future__ import annotations

from .table import Difference, declare

declare(
    [
        Difference(
            "V-ctc-types",
            "cudnnSetCTCLossDescriptor",
            ("cudnnSetCTCLossDescriptor/c04", "cudnnSetCTCLossDescriptorEx/c07", "cudnnSetCTCLossDescriptor_v8/c08"),
            "An invalid argument is BAD_PARAM.",
            "8.9.7 answers NOT_SUPPORTED to a compType other than FLOAT and DOUBLE, no enumerator included.",
            "BAD_PARAM, which alone is listed (D402).",
            cases=("ctc_descriptors/test_compute_types*",),
        ),
        Difference(
            "V-ctc-modes",
            "cudnnSetCTCLossDescriptorEx",
            ("cudnnSetCTCLossDescriptorEx/c07", "cudnnSetCTCLossDescriptor_v8/c08"),
            "An invalid argument is BAD_PARAM.",
            "8.9.7 accepts modes that are no enumerators.",
            "BAD_PARAM (D402).",
            cases=("ctc_descriptors/test_unknown_modes*",),
        ),
        Difference(
            "V-ctc-longest",
            "cudnnSetCTCLossDescriptor_v8",
            ("cudnnSetCTCLossDescriptor_v8/c08",),
            "An invalid argument is BAD_PARAM.",
            "8.9.7 accepts a negative maxLabelLength.",
            "BAD_PARAM (D436).",
            cases=("ctc_descriptors/test_negative_lengths*",),
        ),
    ]
)
