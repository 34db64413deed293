"""Lists where NVIDIA's library and the document disagree in fused operations; docs/errata.md decides each under its
id."""

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
            says=("cudnnCreateFusedOpsConstParamPack BAD_PARAM, not NOT_SUPPORTED",),
        ),
        Difference(
            "V-fused-convolution-packs",
            _GET,
            (f"{_GET}/c01",),
            "The attributes that were set are retrieved.",
            "8.9.7 answers BAD_PARAM to every query of a CUDNN_FUSED_CONV_SCALE_BIAS_ADD_ACTIVATION pack.",
            "Retrieved: the section makes no exception.",
            cases=("fused_ops_packs/*CONV_SCALE_BIAS_ADD_ACTIVATION*",),
            says=("cudnnGetFusedOpsConstParamPackAttribute BAD_PARAM",),
        ),
        Difference(
            "V-fused-null",
            _SET,
            (f"{_SET}/c02", f"{_GET}/c03"),
            "A NULL param is recorded as NULL, and isNULL says so.",
            "8.9.7 records the preset of placeholders and of the mode, and isNULL is 0.",
            "NULL, which counts as the preset when a plan is made (D295).",
            cases=("fused_ops_packs/test_null_is_recorded_for_values*",),
            says=("assertion *",),
        ),
        Difference(
            "V-fused-enumerators",
            _SET,
            ("cudnnStatus_t/c05",),
            "An incorrect value is BAD_PARAM.",
            "8.9.7 accepts modes and placeholders that are not enumerators.",
            "BAD_PARAM (D297).",
            cases=("fused_ops_packs/test_no_enumerators*",),
            says=("succeeded, not BAD_PARAM by cudnnStatus_t/c05",),
        ),
        Difference(
            "V-fused-fresh",
            _SET,
            ("cudnnStatus_t/c05",),
            "Descriptors are previously initialized.",
            "8.9.7 accepts a descriptor that no setter has touched.",
            "BAD_PARAM (D297).",
            cases=("fused_ops_packs/test_descriptors_that_were_not_set*",),
            says=("succeeded, not BAD_PARAM by cudnnStatus_t/c05",),
        ),
        Difference(
            "V-fused-inference-queries",
            _GET_VARIANT,
            (f"{_GET_VARIANT}/c01",),
            "The settings are retrieved.",
            "8.9.7 answers BAD_PARAM to every query of a CUDNN_FUSED_BN_FINALIZE_STATISTICS_INFERENCE pack.",
            "Retrieved: the section makes no exception.",
            cases=("fused_ops_packs/test*variant*FINALIZE_STATISTICS_INFERENCE*",),
            says=("cudnnGetFusedOpsVariantParamPackAttribute BAD_PARAM",),
        ),
    ]
)

_EXECUTE = "cudnnFusedOpsExecute"
_PLAN = "cudnnMakeFusedOpsPlan"
_UNSUPPORTED = "cudnnCreateFusedOpsPlan/c04"
_LABEL = "cudnnFusedOpsConstParamLabel_t"
_FINALIZE = "fused_ops_finalize/test_"
_CONVOLUTION = "fused_ops_convolution/test_"
_RESIDUAL = "fused_ops_residual/test_"

declare([
    Difference(
        "V-fused-finalize-double", _EXECUTE, (f"{_EXECUTE}/c01",), "The sequence is computed with the statistics that the pack describes.",
        "9.19 computes DOUBLE statistics in FLOAT.", "Computed in DOUBLE (D260).", says=("wrong *other numbers*",), subjects=("vendor-9*",),
        cases=(f"{_FINALIZE}training?*-DOUBLE-DOUBLE?", f"{_FINALIZE}inference?*-DOUBLE-DOUBLE?"),
    ),
    Difference(
        "V-fused-finalize-variance", _EXECUTE, (f"{_EXECUTE}/c01",), "The variance of rounded sums is not negative.",
        "9.19: sums whose squares are too small for their mean give NaN as standard deviation, and a running variance that is infinite or no number.",
        "At least 0 (D258).", says=("wrong *runningVar: *", "wrong eqBias: as before the call"), subjects=("vendor-9*",),
        cases=(f"{_FINALIZE}training?1-FLOAT-*", f"{_FINALIZE}training?2-FLOAT-*", f"{_FINALIZE}special_sums*", f"{_FINALIZE}a_variance_is_not_negative*", "every_operation/test_infinite_operands?BnFinalizeStatisticsTraining?"),
    ),
    Difference(
        "V-fused-finalize-types", _PLAN, (_UNSUPPORTED, f"{_PLAN}/c01"), "Statistics are FLOAT or DOUBLE, the equivalent scale and bias also HALF and BFLOAT16.",
        "9.19 answers NOT_SUPPORTED to BFLOAT16, and takes HALF statistics and mixtures with DOUBLE.", "As D260 says.", subjects=("vendor-9*",),
        cases=(f"{_FINALIZE}training?*-FLOAT-BFLOAT16?", f"{_FINALIZE}inference?*-FLOAT-BFLOAT16?",
               f"{_FINALIZE}types_that_are_not_supported*"),
        says=("cudnnMakeFusedOpsPlan NOT_SUPPORTED", "succeeded, not NOT_SUPPORTED by cudnnCreateFusedOpsPlan/c04"),
    ),
    Difference(
        "V-fused-finalize-shapes", _PLAN, (f"{_LABEL}/c111", f"{_LABEL}/c132", f"{_LABEL}/c156"), "Parameters are 1xCx1x1, of any rank that tensors have; another shape is refused.",
        "9.19 answers BAD_PARAM to three dimensions, and takes other shapes than 1xCx1x1.", "As it says.", subjects=("vendor-9*",),
        cases=(f"{_FINALIZE}shapes?*'rank': 3*", f"{_FINALIZE}wrong_shapes*"),
        says=("cudnnMakeFusedOpsPlan BAD_PARAM", "succeeded, not BAD_PARAM by cudnnFusedOpsConstParamLabel_t/*"),
    ),
    Difference(
        "V-fused-statuses", _EXECUTE, ("cudnnStatus_t/c05",), "Objects that do not belong to each other are BAD_PARAM.", "9.19 answers NOT_INITIALIZED.", "BAD_PARAM (D261).",
        says=("cudnnFusedOpsExecute NOT_INITIALIZED, not BAD_PARAM",), subjects=("vendor-9*",), cases=(f"{_FINALIZE}objects_that_do_not_fit*",),
    ),
    Difference(
        "V-fused-convolution", _PLAN, (_UNSUPPORTED, f"{_PLAN}/c01"), "CONV_BNSTATS and CONV_SCALE_BIAS_ADD_ACTIVATION are sequences.",
        "9.19 answers NOT_SUPPORTED on compute capability 9.0 to the first wherever a step is fused to the convolution, and to the second with other than integer data.",
        "Computed (D256).", says=("cudnnMakeFusedOpsPlan NOT_SUPPORTED*",), subjects=("vendor-9*",),
        cases=(*(f"{_CONVOLUTION}{name}" for name in (
            "sequences?*-statistics?", "sequences?*-added?", "nothing_is_scaled*", "steps_that_are_left_out?*-statistics-*", "steps_that_are_left_out?*-added-*",
            "descriptors_and_placeholders_that_are_null?statistics-*", "descriptors_and_placeholders_that_are_null?added-*", "scale_and_bias_have_gaps*", "identity_is_no_activation?statistics?",
            "identity_is_no_activation?added?", "special_values?*-statistics?", "special_values?*-added?", "support?statistics?", "wrong_shapes?statistics-*",
            "wrong_shapes?added-*", "attributes_that_do_not_fit?statistics?", "attributes_that_do_not_fit?added?", "workspaces?statistics?", "workspaces?added?", "scale_or_bias_alone_is_applied*", "support_of_a_scale_or_a_bias_alone?statistics-*",
            "support_of_a_scale_or_a_bias_alone?added-*")),
            "every_operation/test_infinite_operands?ConvScaleBiasAddActivation?",
            *(f"every_operation/test_infinite_factors?*-{name}?" for name in ("ScaleBiasActivationConvBnstats", "ConvScaleBiasAddActivation"))),
    ),
    Difference(
        "V-fused-filter-gradient", _PLAN, (f"{_PLAN}/c01", f"{_LABEL}/c066", "cudnnFusedOpsVariantParamLabel_t/c038"),
        "WGRAD takes what cudnnConvolutionBackwardFilter does; packs that do not fit and work spaces that are too small are BAD_PARAM, HALF scales of FLOAT data NOT_SUPPORTED.",
        "9.19 takes neither BFLOAT16 nor volumes, other shapes, missing tensors and less work space than it asked for, and rounds otherwise without a scale than with NULL for it.",
        "As it says (D256, D261).", subjects=("vendor-9*",),
        cases=tuple(_CONVOLUTION + name for name in (
            "sequences?bfloat16*-filter_gradient?", "sequences?volume-filter_gradient?", "attributes_that_do_not_fit?filter_gradient?", "workspaces?filter_gradient?",
            "wrong_shapes?filter_gradient-*", "support?filter_gradient?", "descriptors_and_placeholders_that_are_null?filter_gradient-*",
            "support_of_a_scale_or_a_bias_alone?filter_gradient-*")),
        says=("assertion *", "cudnnMakeFusedOpsPlan BAD_PARAM",
              "cudnnMakeFusedOpsPlan BAD_PARAM, not NOT_SUPPORTED", "cudnnMakeFusedOpsPlan NOT_SUPPORTED",
              "succeeded, not BAD_PARAM by cudnnFusedOpsConstParamLabel_t/c066",
              "succeeded, not BAD_PARAM by cudnnFusedOpsVariantParamLabel_t/c038",
              "succeeded, not BAD_PARAM by cudnnStatus_t/c05",
              "succeeded, not NOT_SUPPORTED by cudnnCreateFusedOpsPlan/c04"),
    ),
    Difference(
        "V-fused-scalars", _EXECUTE, ("cudnnFusedOpsVariantParamLabel_t/c063", "cudnnFusedOpsVariantParamLabel_t/c070"), "A count below 1 and a negative epsilon are BAD_PARAM.",
        "9.19 takes a count below 1.", "BAD_PARAM (D261).", says=("succeeded, not BAD_PARAM by *",), subjects=("vendor-9*",), cases=(f"{_FINALIZE}scalars_that_are_wrong*",),
    ),
    Difference(
        "V-fused-bit-mask", _PLAN, (f"{_PLAN}/c01", _UNSUPPORTED, "cudnnStatus_t/c05"), "GEN_BITMASK has no table; its bit mask is a tensor of INT32.",
        "9.19 takes x, z and y in NHWC alone, not BFLOAT16, scales and z in all of them, and bit masks of exactly 32 rows times whole numbers and 2 words for 64 channels, in an order of its own.",
        "As D562 says.", subjects=("vendor-9*",), says=("cudnnMakeFusedOpsPlan NOT_SUPPORTED*", "wrong bitMask: *", "succeeded, not NOT_SUPPORTED by cudnnSetTensor4dDescriptorEx/c04"),
        cases=("every_operation/test_infinite_operands?ScaleBiasAddActivationGenBitmask?", *(_RESIDUAL + name for name in (
            "sum_of_scaled_tensors*", "scales_in_float*", "scale_and_bias_have_gaps*", "tensors_of_one_layout*", "shapes_of_the_sum*", "steps_that_are_left_out*", "activations*", "gradient_of_the_sum*",
            "support?added?", "attributes_that_do_not_fit?added?", "outputs_that_store_elements_in_one_place*"))),
    ),
    Difference(
        "V-fused-residual-gradient", _EXECUTE, (f"{_EXECUTE}/c01", f"{_PLAN}/c01", _UNSUPPORTED, "cudnnStatus_t/c05"), "DACTIVATION_FORK_DBATCHNORM has no table; what is not wanted is left out.",
        "9.19 takes it in the conditions of its fast kernel alone, else it answers NOT_SUPPORTED when it is executed, BAD_PARAM where a gradient is left out, and leaves dz without an activation.",
        "As D563 says.", subjects=("vendor-9*",),
        says=("cudnnFusedOpsExecute *", "cudnnMakeFusedOpsPlan BAD_PARAM", "cudnnMakeFusedOpsPlan NOT_SUPPORTED", "succeeded, not BAD_PARAM by cudnnStatus_t/c05", "wrong dz: as before the call"),
        cases=("every_operation/test_infinite_operands?DactivationForkDbatchnorm?", *(_RESIDUAL + name for name in (
            "gradient?*", "gradient_without_an_activation*", "gradients_that_are_not_wanted*", "shapes_of_the_gradient*", "statistics_that_were_not_saved*", "support?gradient?",
            "attributes_that_do_not_fit?gradient?", "pixels_are_column_major", "statistics_of_unaligned_x"))),
    ),
])  # fmt: skip
