"""Lists where NVIDIA's library and the document disagree in the spatial transformer; docs/errata.md decides each."""

from __future__ import annotations

from .recorded_calls import of_type
from .table import Difference, Disagreement, declare

declare(
    [
        Difference(
            "V-sampler-shapes",
            "cudnnSpatialTfSamplerForward",
            ("cudnnSpatialTfSamplerForward/c01", "cudnnSetSpatialTransformerNdDescriptor/c04"),
            "dimA has the transformed tensor's size in every dimension.",
            "Other images, channels and sizes of x and y than those of stDesc are computed, beyond the end of a tensor.",
            "BAD_PARAM: memory safety (D136).",
            recorded=(
                Disagreement(
                    functions=("cudnnSpatialTfSamplerForward",),
                    ours="BAD_PARAM",
                    theirs="SUCCESS",
                    clauses=("cudnnStatus_t/c05",),
                ),
            ),
        ),
        Difference(
            "V-sampler-half",
            "cudnnSpatialTfSamplerBackward",
            ("cudnnSpatialTfSamplerBackward/c01", "cudnnSpatialTfSamplerBackward/c03"),
            "dx is the gradient of the sampling, blended.",
            "9.19 adds HALF gradients in HALF, with a rounding for each sample, in any order.",
            "Added in FLOAT, rounded once (D192).",
            cases=tuple(
                f"spatial_transformer/test_{name}*"
                for name in (
                    "at_and_beyond_the_borders*HALF",
                    "backward?*HALF",
                    "many_channels_side_by_side?2-*",
                    "from_theta_to_its_gradient*HALF",
                    "layouts",
                    "samples_behind_the_last_tile",
                    "the_largest_coordinates*HALF",
                )
            ),
            recorded=(Disagreement("outputs", ("cudnnSpatialTfSamplerBackward",), when=of_type("HALF")),),
            sometimes=(("spatial_transformer/test_many_samples[[]2-*", "wrong dx: *other numbers"),),
            says=("wrong dx: other numbers",),
        ),
        Difference(
            "V-transformer-types",
            "cudnnSetSpatialTransformerNdDescriptor",
            ("cudnnSetSpatialTransformerNdDescriptor/c08",),
            "A dataType that is not valid is BAD_PARAM.",
            "NOT_SUPPORTED for INT8, BAD_PARAM for the others that no call takes.",
            "BAD_PARAM, which alone is listed (D122).",
            cases=("spatial_transformer/test_types_of_the_setter*INT8*",),
            says=("cudnnSetSpatialTransformerNdDescriptor NOT_SUPPORTED, not BAD_PARAM",),
        ),
        Difference(
            "V-transformer-dimensions",
            "cudnnSetSpatialTransformerNdDescriptor",
            ("cudnnSetSpatialTransformerNdDescriptor/c04",),
            "dimA has nbDims sizes of a tensor.",
            "Any nbDims is accepted, and sizes below 1.",
            "BAD_PARAM (D122).",
            cases=("spatial_transformer/test_ranks_and_sizes_of_the_setter*",),
            says=("succeeded, not BAD_PARAM by cudnnStatus_t/c05",),
        ),
    ]
)
