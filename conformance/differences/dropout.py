"""Lists where NVIDIA's library and the document disagree in dropout; docs/errata.md decides each under its id."""

from __future__ import annotations

from .recorded_calls import of_type
from .table import Difference, Disagreement, declare

declare(
    [
        Difference(
            "V-dropout-int8",
            "cudnnDropoutGetReserveSpaceSize",
            ("cudnnDropoutGetReserveSpaceSize/c01",),
            "The size is that for an input with the dimensions of xDesc; no failure is listed.",
            "9.19 answers NOT_SUPPORTED for INT8, and returns the size for other types that cudnnDropoutForward refuses.",
            "The size is returned for every type (D062).",
            recorded=(
                Disagreement(
                    functions=("cudnnDropoutGetReserveSpaceSize",),
                    ours="SUCCESS",
                    theirs="NOT_SUPPORTED",
                    when=of_type("INT8"),
                ),
            ),
        ),
        Difference(
            "V-dropout-probability",
            "cudnnSetDropoutDescriptor",
            ("cudnnSetDropoutDescriptor/c06", "cudnnRestoreDropoutDescriptor/c02"),
            "dropout is a probability.",
            "Numbers outside of [0, 1] and NaN are accepted.",
            "BAD_PARAM (D110).",
            cases=("dropout/test_no_probability*",),
            says=("succeeded, not BAD_PARAM by cudnnStatus_t/c05",),
        ),
    ]
)
