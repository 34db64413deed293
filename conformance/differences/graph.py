"""Lists where NVIDIA's library and the document disagree in the backend API; docs/errata.md decides each under its
id."""

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
            says=("assertion *", "cudnnBackendGetAttribute BAD_PARAM", "cudnnBackendSetAttribute BAD_PARAM"),
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
                "graph_nodes/test_vectors_match*",
                "graph_execution/test_attributes_of_graphs*",
            ),
            says=(
                "assertion *",
                "cudnnBackendGetAttribute BAD_PARAM",
                "cudnnBackendGetAttribute BAD_PARAM, BAD_PARAM_ATTRIBUTE_TYPE",
                "cudnnBackendGetAttribute INTERNAL_ERROR",
                "cudnnBackendGetAttribute INTERNAL_ERROR, not BAD_PARAM",
                "cudnnBackendGetAttribute NOT_INITIALIZED, not BAD_PARAM",
                "cudnnBackendGetAttribute NOT_SUPPORTED",
                "cudnnBackendGetAttribute NOT_SUPPORTED, not BAD_PARAM",
                "cudnnBackendSetAttribute NOT_SUPPORTED, not BAD_PARAM",
                "succeeded, not BAD_PARAM by cudnnBackendGetAttribute/c07",
            ),
        ),
        Difference(
            "V-graph-required",
            "cudnnBackendFinalize",
            ("usecase_9_descriptor_life_cycle/c02",),
            "Required attributes are set before a descriptor is finalised.",
            "8.9.7 takes zeros for most of those that are missing.",
            "BAD_PARAM (D442).",
            cases=("graph_descriptors/test_required_attributes*", "graph_execution/test_graphs_need_a_handle*"),
            says=("succeeded, not BAD_PARAM by *",),
        ),
        Difference(
            "V-graph-finalised",
            "cudnnBackendSetAttribute",
            ("cudnnBackendSetAttribute/c03", "cudnnBackendFinalize/c06"),
            "Setting an attribute of a finalised descriptor is NOT_INITIALIZED.",
            "8.9.7 answers INVALID_VALUE to that and to finalising twice.",
            "NOT_INITIALIZED and, for finalising twice, BAD_PARAM (D208).",
            cases=("graph_descriptors/test_finalised_*",),
            says=(
                "cudnnBackendFinalize INVALID_VALUE, not BAD_PARAM",
                "cudnnBackendSetAttribute BAD_PARAM, not NOT_INITIALIZED",
                "cudnnBackendSetAttribute INVALID_VALUE, not NOT_INITIALIZED",
            ),
        ),
        Difference(
            "V-graph-set",
            "cudnnBackendSetAttribute",
            ("cudnnBackendSetAttribute/c06", "cudnnBackendSetAttribute/c07"),
            "Unexpected counts and values that are invalid for the type are BAD_PARAM.",
            "8.9.7 accepts nine dimensions and numbers that are not enumerators.",
            "BAD_PARAM.",
            cases=(
                "graph_descriptors/test_too_many_dimensions*",
                "graph_descriptors/test_values_that_are_no_enumerators*",
            ),
            says=("succeeded, not BAD_PARAM by cudnnBackendSetAttribute/*",),
        ),
        Difference(
            "V-graph-initialize",
            "cudnnBackendInitialize",
            ("cudnnBackendInitialize/c01", "cudnnBackendInitialize/c06"),
            "cudnnBackendInitialize takes the type and the size of the memory.",
            "8.9.7 has the descriptor as its only parameter, and keeps its type.",
            "The document's three parameters (D210).",
            cases=("graph_descriptors/test_initialised_*",),
            says=(
                "succeeded, not BAD_PARAM by cudnnBackendInitialize/c06",
                "succeeded, not BAD_PARAM by cudnnBackendSetAttribute/c04",
            ),
        ),
        Difference(
            "V-graph-types",
            "cudnnBackendCreateDescriptor",
            ("cudnnBackendCreateDescriptor/c04", "cudnnBackendSetAttribute/c04"),
            "A type that cannot be created is NOT_SUPPORTED; a read-only attribute is BAD_PARAM.",
            "8.9.7 answers ALLOC_FAILED to unknown types and to intermediate infos, has types of later releases, and answers"
            " NOT_SUPPORTED to setting read-only attributes.",
            "NOT_SUPPORTED and BAD_PARAM (D443, D456).",
            cases=(
                "graph_descriptors/test_unknown_types*",
                "graph_descriptors/test_descriptors_that_are_only_read*",
                "graph_execution/test_plans",
            ),
            says=(
                "cudnnBackendCreateDescriptor ALLOC_FAILED",
                "cudnnBackendCreateDescriptor ALLOC_FAILED, INTERNAL_ERROR_HOST_ALLOCATION_FAILED, SUCCESS",
                "cudnnBackendCreateDescriptor ALLOC_FAILED, INTERNAL_ERROR_HOST_ALLOCATION_FAILED, SUCCESS, not NOT_SUPPORTED",
                "cudnnBackendCreateDescriptor ALLOC_FAILED, not NOT_SUPPORTED",
                "cudnnBackendSetAttribute NOT_SUPPORTED, not BAD_PARAM",
                "succeeded, not NOT_SUPPORTED by cudnnBackendCreateDescriptor/c04",
            ),
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
            says=(
                "cudnnBackendFinalize BAD_PARAM",
                "succeeded, not BAD_PARAM by CUDNN_BACKEND_TENSOR_DESCRIPTOR/*",
                "succeeded, not BAD_PARAM by cudnnBackendFinalize/c06",
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
            says=(
                "cudnnBackendFinalize BAD_PARAM",
                "succeeded, not BAD_PARAM by CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR/*",
                "succeeded, not BAD_PARAM by CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR/*",
                "succeeded, not BAD_PARAM by cudnnBackendFinalize/c06",
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
            says=("cudnnBackendSetAttribute BAD_PARAM", "succeeded, not BAD_PARAM by cudnnBackendFinalize/c06"),
        ),
    ]
)

_GRAPH = "CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR"
_OF_GRAPH = "graph_execution/test_"
_FINALIZE = "cudnnBackendFinalize"
_EXECUTE = "cudnnBackendExecute"

declare([
    Difference(
        "V-graph-factors", _FINALIZE, ("CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR/c01", "CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR/c04"),
        "Pointwise operations have the factors alpha1 and alpha2.", "No engine of 9.19 executes a pointwise graph with an alpha1 other than 1.", "Computed.", says=("cudnnBackendFinalize NOT_SUPPORTED", "assertion *"), subjects=("vendor-9*",),
        cases=("graph/test_pointwise?scaled-*", "graph/test_chains*", "graph/test_large_chains?channels last?", f"{_OF_GRAPH}plans_that_several_threads_make*"),
    ),
    Difference(
        "V-graph-layouts", _FINALIZE, (f"{_GRAPH}/c01", "CUDNN_BACKEND_TENSOR_DESCRIPTOR/c03"), "Tensors have any strides.",
        "9.19 has engines for pointwise graphs of packed tensors with the channels first of all or last, and for fused convolutions with the channels last in rows of 16 bytes.",
        "Any strides.", says=("cudnnBackendFinalize NOT_SUPPORTED",), subjects=("vendor-9*",),
        cases=("graph/test_pointwise?plain-*", "graph/test_large_chains?channels first?", "graph/test_large_chains?one row?", "graph/test_convolution_bias_activation*",
               "graph/test_a_fused_convolution_inside_a_graph*", "graph/test_statistics_of_a_convolution*gaps?"),
    ),
    Difference(
        "V-graph-patterns", _FINALIZE, (f"{_GRAPH}/c01", f"{_GRAPH}/c15"), "An operation graph is any graph of the operations.",
        "No engine of 9.19 executes statistics without a convolution, two convolutions, or two results of one tensor in a graph.", "Node by node (D655).", says=("cudnnBackendFinalize NOT_SUPPORTED", "assertion *"), subjects=("vendor-9*",),
        cases=("graph/test_statistics?dims*", "graph/test_statistics_of_large_chains*", "graph/test_several_outputs*", "graph/test_gradients_of_a_layer*",
               f"{_OF_GRAPH}operations_in_any_order*", f"{_OF_GRAPH}heuristics*"),
    ),
    Difference(
        "V-graph-types-mixed", _FINALIZE, ("CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR/c18", "CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR/c26"),
        "The data types of the tensors of an operation are not related.", "No engine of 9.19 executes a convolution of two types, or a pointwise operation of integers and floats.",
        "Computed.", says=("cudnnBackendFinalize NOT_SUPPORTED",), subjects=("vendor-9*",), cases=("graph/test_mixed_types*", "graph/test_types_of_convolutions?*-HALF-HALF-FLOAT?", "graph/test_types_of_convolutions?*-HALF-FLOAT-HALF?"),
    ),
    Difference(
        "V-graph-groups", _EXECUTE, ("CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR/c20",), "Groups have a dimension of their own, with a stride of its own.",
        "9.19 computes as if the groups followed each other in memory.", "By the stride.", says=("*wrong *",), subjects=("vendor-9*",),
        cases=("graph/test_types_of_convolutions?*-BFLOAT16-BFLOAT16-BFLOAT16?", "graph/test_types_of_convolutions?*-DOUBLE-DOUBLE-DOUBLE?"),
    ),
    Difference(
        "V-graph-ranks", _FINALIZE, ("CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR/c02", f"{_FINALIZE}/c06"), "Convolutions have one to CUDNN_DIM_MAX - 2 spatial dimensions.",
        "9.19 answers NOT_INITIALIZED to four.", "Computed (D445).", says=("cudnnBackendFinalize NOT_INITIALIZED",), subjects=("vendor-9*",), cases=("graph/test_convolutions?*-four?",),
    ),
    Difference(
        "V-graph-values", _EXECUTE, ("CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR/c01", "cudnnPointwiseMode_t/c01"), "The operation, and its NaN propagation.",
        "9.19: the extrema of a NaN that propagates are the other operand, a ReLU passes NaN that does not propagate, the hyperbolic tangent is approximate by up to 17 units of FLOAT.",
        "The formulas.", says=("wrong *",), subjects=("vendor-9*",),
        cases=(*(f"graph/test_special_values?{name}-nan?" for name in ("MIN", "MAX", "TANH_FWD")), "graph/test_special_values?RELU_FWD-numbers?",
               "graph/test_special_values?TANH_FWD-numbers?"),
    ),
    Difference(
        "V-graph-unchecked", _FINALIZE, (f"{_GRAPH}/c13", f"{_GRAPH}/c14", f"{_GRAPH}/c15", f"{_GRAPH}/c16"),
        "Finalising a graph refuses operations that make none with BAD_PARAM, what no engine executes with NOT_SUPPORTED.",
        "9.19 finalises them: graphs in place, with virtual tensors that nobody writes or reads, of a handle that was destroyed, and what its engines refuse later.",
        "The status lists.", says=("succeeded, not *",), subjects=("vendor-9*",),
        cases=(*(f"{_OF_GRAPH}operations_that_make_no_graph?{name}?" for name in ("in place", "never written", "never read", "a virtual prior")),
               f"{_OF_GRAPH}graphs_of_a_destroyed_handle*", f"{_OF_GRAPH}what_no_engine_executes*"),
    ),
    Difference(
        "V-graph-set-early", "cudnnBackendSetAttribute", (f"{_GRAPH}/c12", "CUDNN_BACKEND_ENGINE_DESCRIPTOR/c17", f"{_FINALIZE}/c06"),
        "Descriptors in attributes must be finalised when the whole is: BAD_PARAM.", "9.19 answers BAD_PARAM as soon as they are set, and NOT_SUPPORTED to an engine without a number.",
        "BAD_PARAM when the whole is finalised.", subjects=("vendor-9*",), cases=(f"{_OF_GRAPH}operations_that_are_not_finalised*", f"{_OF_GRAPH}parts_that_are_missing*"),
        says=("cudnnBackendFinalize NOT_SUPPORTED, not BAD_PARAM",
              "cudnnBackendSetAttribute BAD_PARAM, BAD_PARAM_NOT_FINALIZED"),
    ),
    Difference(
        "V-graph-other-handle", _EXECUTE, (f"{_EXECUTE}/c07",), "A plan is executed with the handle that it was made for: BAD_PARAM with another.",
        "9.19 executes it with any handle of the device.", "BAD_PARAM: the status list.", says=("succeeded, not BAD_PARAM by cudnnBackendExecute/c07",),
        subjects=("vendor-9*",), cases=(f"{_OF_GRAPH}descriptors_that_cannot_be_executed*",),
    ),
    Difference(
        "V-graph-infos", "cudnnBackendGetAttribute", ("CUDNN_BACKEND_ENGINE_DESCRIPTOR/c09", "CUDNN_BACKEND_ENGINECFG_DESCRIPTOR/c08", "CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR/c04"),
        "Engines say their preferred layouts, configurations their intermediates; intermediates of plans are NOT_SUPPORTED.",
        "9.19 has no layouts, no descriptors of intermediates, and ignores the intermediates of plans.", "As it says (D452, D655).", subjects=("vendor-9*",),
        cases=(f"{_OF_GRAPH}what_engines_say*", f"{_OF_GRAPH}configurations*", f"{_OF_GRAPH}intermediates_of_plans*"),
        says=("", "assertion *", "succeeded, not NOT_SUPPORTED by cudnnBackendFinalize/c07"),
    ),
])  # fmt: skip
