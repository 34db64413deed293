"""Lists where NVIDIA's library and the document disagree in descriptors of algorithms; docs/errata.md decides each
under its id."""

from __future__ import annotations

from .table import Difference, declare

declare(
    [
        Difference(
            "V-algorithm-values",
            "cudnnSetAlgorithmDescriptor",
            ("cudnnSetAlgorithmDescriptor/c03",),
            "The algorithm is a cudnnAlgorithm_t.",
            "8.9.7 keeps numbers that no enumeration of algorithms has.",
            "BAD_PARAM (D106).",
            cases=("algorithm_descriptors/test_no_algorithm*",),
            says=("succeeded, not BAD_PARAM by cudnnStatus_t/c05",),
        ),
    ]
)
