"""Where NVIDIA's library and the document disagree in the backend API, each decided in docs/errata.md under its id."""

from __future__ import annotations

from .table import Difference, declare

declare(
    [
        Difference(
            "V-graph-count",
            "cudnnBackendGetAttribute",
            ("cudnnBackendGetAttribute/c02", "cudnnBackendGetAttribute/c03"),
            "elementCount is the number of elements that the attribute has, whatever was requested.",
            "8.9.7 answers with the smaller of both, and BAD_PARAM where one element is not requested as one.",
            "As the document says: a count is asked for with no memory.",
            cases=(
                "graph_descriptors/test_as_many_elements*",
                "graph_descriptors/test_one_element*",
                "graph_nodes/test_variant_packs_need*",
            ),
        ),
        Difference(
            "V-graph-read",
            "cudnnBackendGetAttribute",
            ("cudnnBackendGetAttribute/c01", "cudnnBackendGetAttribute/c07"),
            "Every attribute of a finalised descriptor can be read.",
            "8.9.7 answers INTERNAL_ERROR to reading pointwise descriptors, NOT_SUPPORTED to those of statistics, virtual and"
            " vectorised tensors; it reads float attributes as doubles, and descriptors without what was set in them.",
            "They are read as they were set (D447).",
            cases=(
                "graph_descriptors/test_every_attribute*",
                "graph_descriptors/test_defaults_of_a_pointwise*",
                "graph_descriptors/test_a_whole_outlives*",
                "graph_descriptors/test_attributes_of_other*",
                "graph_descriptors/test_wrong_types*",
                "graph_descriptors/test_wrong_counts*",
                "graph_nodes/test_factors*",
                "graph_nodes/test_vectors_count*",
            ),
        ),
        Difference(
            "V-graph-required",
            "cudnnBackendFinalize",
            ("usecase_9_descriptor_life_cycle/c02",),
            "Required attributes are set before a descriptor is finalised.",
            "8.9.7 takes zeros for most of those that are missing.",
            "BAD_PARAM (D442).",
            cases=("graph_descriptors/test_required_attributes*",),
        ),
        Difference(
            "V-graph-finalised",
            "cudnnBackendSetAttribute",
            ("cudnnBackendSetAttribute/c03", "cudnnBackendFinalize/c06"),
            "Setting an attribute of a finalised descriptor is NOT_INITIALIZED.",
            "8.9.7 answers INVALID_VALUE to that and to finalising twice.",
            "NOT_INITIALIZED and, for finalising twice, BAD_PARAM (D208).",
            cases=("graph_descriptors/test_finalised_*",),
        ),
        Difference(
            "V-graph-set",
            "cudnnBackendSetAttribute",
            ("cudnnBackendSetAttribute/c06", "cudnnBackendSetAttribute/c07"),
            "Unexpected counts and values that are invalid for the type are BAD_PARAM.",
            "8.9.7 accepts nine dimensions and numbers that are no enumerators.",
            "BAD_PARAM.",
            cases=(
                "graph_descriptors/test_too_many_dimensions*",
                "graph_descriptors/test_values_that_are_no_enumerators*",
            ),
        ),
        Difference(
            "V-graph-initialize",
            "cudnnBackendInitialize",
            ("cudnnBackendInitialize/c01", "cudnnBackendInitialize/c06"),
            "cudnnBackendInitialize takes the type and the size of the memory.",
            "8.9.7 has the descriptor as its only parameter, and keeps its type.",
            "The document's three parameters (D210).",
            cases=("graph_descriptors/test_initialised_*",),
        ),
        Difference(
            "V-graph-types",
            "cudnnBackendCreateDescriptor",
            ("cudnnBackendCreateDescriptor/c04", "cudnnBackendSetAttribute/c04"),
            "A type that cannot be created is NOT_SUPPORTED; a read-only attribute is BAD_PARAM.",
            "8.9.7 answers ALLOC_FAILED to unknown types and to intermediate infos, has types of later releases, and answers"
            " NOT_SUPPORTED to setting read-only attributes.",
            "NOT_SUPPORTED and BAD_PARAM (D443, D456).",
            cases=("graph_descriptors/test_unknown_types*", "graph_descriptors/test_descriptors_that_are_only_read*"),
        ),
        Difference(
            "V-graph-tensors",
            "cudnnBackendFinalize",
            (
                "CUDNN_BACKEND_TENSOR_DESCRIPTOR/c20",
                "CUDNN_BACKEND_TENSOR_DESCRIPTOR/c23",
                "CUDNN_BACKEND_TENSOR_DESCRIPTOR/c24",
            ),
            "Dimensions and strides are positive; the vectorized dimension is ignored where there are no vectors.",
            "8.9.7 accepts dimensions and strides of zero, any vector count of other types and vectors along no dimension, reads a"
            " vectorized dimension in any case, and refuses fewer than three dimensions.",
            "BAD_PARAM for what the document lists; one and two dimensions are tensors (D466).",
            cases=(
                "graph_nodes/test_tensors[[]*",
                "graph_nodes/test_tensors_that_are_well*",
                "graph_nodes/test_vectors_need*",
                "graph_descriptors/test_defaults_of_a_tensor*",
            ),
        ),
        Difference(
            "V-graph-nodes",
            "cudnnBackendFinalize",
            ("CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR/c17", "CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR/c17"),
            "Finalising cross-checks the attributes of an operation.",
            "8.9.7 leaves that to the operation graph: statistics of any dimensions, second inputs of operations with one, clips in"
            " the wrong order are accepted.",
            "BAD_PARAM when the operation is finalised (D463).",
            cases=(
                "graph_nodes/test_clips*",
                "graph_nodes/test_operands_of_every_mode*",
                "graph_nodes/test_dimensions_of_statistics*",
                "graph_nodes/test_statistics_of_a_line*",
                "graph_nodes/test_dimensions_of_pointwise*",
            ),
        ),
        Difference(
            "V-graph-pack",
            "cudnnBackendFinalize",
            ("CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR/c04", "cudnnBackendFinalize/c06"),
            "A variant pack has zero or more ids and pointers, which belong to each other.",
            "8.9.7 refuses to set none, and accepts ids that repeat.",
            "None may be set; BAD_PARAM for repeated ids (D468).",
            cases=("graph_nodes/test_ids_and_pointers*",),
        ),
    ]
)
