"""Where NVIDIA's library and the document disagree in fused operations, each decided in docs/errata.md under its id."""

from __future__ import annotations

from .table import Difference, declare

_GET = "cudnnGetFusedOpsConstParamPackAttribute"
_SET = "cudnnSetFusedOpsConstParamPackAttribute"
_GET_VARIANT = "cudnnGetFusedOpsVariantParamPackAttribute"

declare(
    [
        Difference(
            "V-fused-reserved",
            "cudnnCreateFusedOpsConstParamPack",
            ("cudnnCreateFusedOpsConstParamPack/c05",),
            "NOT_SUPPORTED for an ops that is not supported or reserved for future use.",
            "8.9.7 answers BAD_PARAM.",
            "NOT_SUPPORTED: the status list (D284).",
            cases=("fused_ops_packs/test_no_sequence*",),
        ),
        Difference(
            "V-fused-convolution-packs",
            _GET,
            (f"{_GET}/c01",),
            "The attributes that were set are retrieved.",
            "8.9.7 answers BAD_PARAM to every query of a CUDNN_FUSED_CONV_SCALE_BIAS_ADD_ACTIVATION pack.",
            "Retrieved: the section makes no exception.",
            cases=("fused_ops_packs/*CONV_SCALE_BIAS_ADD_ACTIVATION*",),
        ),
        Difference(
            "V-fused-null",
            _SET,
            (f"{_SET}/c02", f"{_GET}/c03"),
            "A NULL param is recorded as NULL, and isNULL says so.",
            "8.9.7 records the preset of placeholders and of the mode, and isNULL is 0.",
            "NULL, which counts as the preset when a plan is made (D295).",
            cases=("fused_ops_packs/test_null_is_recorded_for_values*",),
        ),
        Difference(
            "V-fused-enumerators",
            _SET,
            ("cudnnStatus_t/c05",),
            "An incorrect value is BAD_PARAM.",
            "8.9.7 accepts modes and placeholders that are no enumerators.",
            "BAD_PARAM (D297).",
            cases=("fused_ops_packs/test_no_enumerators*",),
        ),
        Difference(
            "V-fused-fresh",
            _SET,
            ("cudnnStatus_t/c05",),
            "Descriptors are previously initialized.",
            "8.9.7 accepts a descriptor that no setter has touched.",
            "BAD_PARAM (D297).",
            cases=("fused_ops_packs/test_descriptors_that_were_not_set*",),
        ),
        Difference(
            "V-fused-inference-queries",
            _GET_VARIANT,
            (f"{_GET_VARIANT}/c01",),
            "The settings are retrieved.",
            "8.9.7 answers BAD_PARAM to every query of a CUDNN_FUSED_BN_FINALIZE_STATISTICS_INFERENCE pack.",
            "Retrieved: the section makes no exception.",
            cases=("fused_ops_packs/test*variant*FINALIZE_STATISTICS_INFERENCE*",),
        ),
    ]
)
