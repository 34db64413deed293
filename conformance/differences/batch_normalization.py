"""Lists where NVIDIA's library and the document disagree in batch normalization; docs/errata.md decides each."""

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
        says=("succeeded, not BAD_PARAM by cudnnDeriveBNTensorDescriptor/c08",),
    ),
    Difference(
        "V-batch-bfloat16", "cudnnBatchNormalizationForwardInference",
        ("cudnnBatchNormalizationForwardInference/c21", "cudnnBatchNormalizationForwardTraining/c30", "cudnnBatchNormalizationBackward/c22",
         "cudnnBatchNormalizationForwardTrainingEx/c44", "cudnnBatchNormalizationBackwardEx/c43"),
        "The tables name HALF, FLOAT, DOUBLE, and INT8 of inference.", "9.19 computes BFLOAT16.", "NOT_SUPPORTED: the tables (D035).",
        recorded=(
            Disagreement(
                ours="NOT_SUPPORTED", theirs="SUCCESS", clauses=("cudnnBatchNormalization*", "cudnnGetBatchNormalization*"), when=of_type("BFLOAT16"),
            ),
        ),
    ),
    Difference(
        "V-batch-size-queries", "cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize",
        ("cudnnStatus_t/c05", "cudnnGetBatchNormalizationTrainingExReserveSpaceSize/c08", "cudnnGetNormalizationTrainingReserveSpaceSize/c11",
         "cudnnGetNormalizationTrainingReserveSpaceSize/c10"),
        "An argument that is not an enumerator, or has other than 4 or 5 dimensions, is BAD_PARAM, integer data NOT_SUPPORTED.",
        "9.19 answers SUCCESS.", "BAD_PARAM, NOT_SUPPORTED: the status lists.",
        recorded=(
            Disagreement(
                functions=("cudnnGet*Normalization*Size",), ours="BAD_PARAM", theirs="SUCCESS",
                clauses=("cudnnStatus_t/c05", "cudnnGet*TrainingExReserveSpaceSize/c08", "cudnnGet*TrainingReserveSpaceSize/c11"),
            ),
            Disagreement(
                functions=("cudnnGet*ReserveSpaceSize",), ours="NOT_SUPPORTED", theirs="SUCCESS",
                clauses=("cudnnGetNormalizationTrainingReserveSpaceSize/c10", "cudnnGetBatchNormalizationTrainingExReserveSpaceSize/c07"),
            ),
        ),
    ),
    Difference(
        "V-norm-mode", "cudnnGetNormalizationForwardTrainingWorkspaceSize", ("cudnnStatus_t/c05",),
        "An argument that is not an enumerator is BAD_PARAM.", "9.19 answers NOT_SUPPORTED for an unknown mode.",
        "BAD_PARAM, as in every call (D082).",
        recorded=(
            Disagreement(functions=("cudnn*Normalization*",), ours="BAD_PARAM", theirs="NOT_SUPPORTED", clauses=("cudnnStatus_t/c05",)),
        ),
    ),
    Difference(
        "V-batch-null-size", "cudnnGetBatchNormalizationBackwardExWorkspaceSize", ("cudnnGetBatchNormalizationBackwardExWorkspaceSize/c01",),
        "sizeInBytes receives the size.", "NULL is BAD_PARAM.", "The binding returns the size.",
        recorded=(
            Disagreement(functions=("cudnnGet*Normalization*Size",), ours="SUCCESS", theirs="BAD_PARAM", when=lambda record: "sizeInBytes NULL" in record.note),
        ),
    ),
])  # fmt: skip

_EX = "cudnnBatchNormalizationForwardTrainingEx"
_NORM = "cudnnNormalizationForwardTraining"
_FUSED = "normalization_batch_fused/test_"

declare([
    Difference(
        "V-batch-fused", _EX, (f"{_EX}/c14", f"{_EX}/c44", f"{_NORM}/c17"), "Conditions trigger a fast kernel; without them the call is served all the same.",
        "9.19 fuses an activation where they hold alone, and answers NOT_SUPPORTED else.", "Computed (D153).", subjects=("vendor-9*",),
        cases=(f"{_FUSED}fused_forward*", f"{_FUSED}statistics_may_be_missing*", f"{_FUSED}cumulative_average_of_fused_calls*",
               f"{_FUSED}running_statistics_of_fused_calls*", f"{_FUSED}one_of_two_statistics*",
               f"{_FUSED}fused_configurations_that_are_refused*", f"{_FUSED}fused_gradients_be*", "every_operation/test_infinite_operands?BatchNormalization*Ex?",
               "every_operation/test_infinite_operands?NormalizationForwardTraining?", "every_operation/test_infinite_operands?NormalizationBackward?", "every_operation/test_infinite_factors?*-BatchNormalizationForwardTrainingEx?",
               "every_operation/test_infinite_factors?*-NormalizationForwardTraining?"), says=("cudnn* NOT_SUPPORTED", "cudnn* NOT_SUPPORTED, not BAD_PARAM"),
    ),
    Difference(
        "V-batch-descriptors", _NORM, (f"{_NORM}/c22", f"{_NORM}/c25"), "normScaleBiasDesc and normMeanVarDesc are separate.", "9.19 answers BAD_PARAM where their strides differ.",
        "Computed (D081).", says=("cudnnNormalizationForwardTraining BAD_PARAM",), subjects=("vendor-9*",), cases=(f"{_FUSED}descriptors_of_their_own*",),
    ),
    Difference(
        "V-batch-fused-arguments", _EX, (f"{_EX}/c48", f"{_EX}/c51", f"{_NORM}/c41", f"{_NORM}/c44"), "Statistics of another shape and an epsilon that is not a number are BAD_PARAM.",
        "9.19 accepts them, the first in PER_ACTIVATION.", "BAD_PARAM: the status lists.", says=("succeeded, not BAD_PARAM by *",), subjects=("vendor-9*",),
        cases=(f"{_FUSED}fused_tensors_that_are_refused*", f"{_FUSED}fused_statistics_that_are_refused*PER_ACTIVATION?"),
    ),
])  # fmt: skip
