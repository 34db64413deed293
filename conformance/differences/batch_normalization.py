"""Where NVIDIA's library and the document disagree in batch normalization and cudnnNormalization*, each decided in docs/errata.md."""

from __future__ import annotations

from .recorded_calls import of_type
from .table import Difference, Disagreement, declare

declare([
    Difference(
        "V-derive-rank", "cudnnDeriveBNTensorDescriptor", ("cudnnDeriveBNTensorDescriptor/c08", "cudnnDeriveNormTensorDescriptor/c09"),
        "Only 4-D and 5-D tensors are supported.", "3 and 6 dimensions are derived.", "BAD_PARAM (D041).",
        cases=("normalization_batch/test_derive_from_other_ranks*",),
        recorded=(
            Disagreement(
                ours="BAD_PARAM", theirs="SUCCESS",
                clauses=("cudnnDeriveBNTensorDescriptor/c08", "cudnnDeriveNormTensorDescriptor/c09"),
            ),
        ),
    ),
    Difference(
        "V-batch-bfloat16", "cudnnBatchNormalizationForwardInference",
        ("cudnnBatchNormalizationForwardInference/c21", "cudnnBatchNormalizationForwardTraining/c30", "cudnnBatchNormalizationBackward/c22"),
        "The tables name HALF, FLOAT, DOUBLE, and INT8 of inference.", "9.19 computes BFLOAT16.", "NOT_SUPPORTED: the tables (D035).",
        recorded=(
            Disagreement(
                ours="NOT_SUPPORTED", theirs="SUCCESS", clauses=("cudnnBatchNormalization*",), when=of_type("BFLOAT16"),
            ),
        ),
    ),
])  # fmt: skip
