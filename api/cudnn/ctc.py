"""Implement the CTC loss (8.2.3, 8.2.4) and its workspaces (8.2.12, 8.2.13)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..functions import computing, documented
from ..operations import CTCLoss, CTCLoss_v8, TensorSpec
from ..operations.ctc import BLANK, MAX_LABEL, MIN_WORKSPACE_BYTES
from ..operations.specs import FLOAT, INT32
from ..relations import data_type_among, same_dims, writable_layout
from ..status import BAD_PARAM, NOT_SUPPORTED, expect

if TYPE_CHECKING:
    from ..descriptors import CTCLossDescriptor, TensorDescriptor
    from ..enumerations import cudnnCTCLossAlgo_t
    from ..handle import Handle
    from ..operations.specs import CTCLossSpec

INCORRECT = "cudnnStatus_t/c05"


def _check_tensors(name: Any, probs: Any, gradients: Any, ctc_loss: Any, dims: Any, types: Any) -> None:
    """Raise an error unless probs and gradients have the same three dimensions.

    dims, types: the clauses for differing dimensions and unsupported types.
    """
    expect(probs.rank == 3, BAD_PARAM, INCORRECT,
           f"probsDesc has {probs.rank} dimensions {probs.dims}, time, sequence and class are needed")  # fmt: skip
    tensors = {"probsDesc": probs} if gradients is None else {"probsDesc": probs, "gradientsDesc": gradients}
    same_dims(f"{name}/{dims}", **tensors)
    data_type_among(f"{name}/{types}", (FLOAT,), **tensors)
    expect(ctc_loss.compute_type == FLOAT, NOT_SUPPORTED, f"{name}/{types}",
           f"ctcLossDesc has compute type {ctc_loss.compute_type.name}, only {FLOAT.name} is supported")  # fmt: skip
    if gradients is not None:
        writable_layout(gradientsDesc=gradients)


def _check_lengths(name: Any, probs: Any, labels: Any, label_lengths: Any, input_lengths: Any, clauses: Any) -> None:
    """Raise an error unless each sequence has an input and a label length in range, and all its labels are valid.

    clauses: the clauses of input lengths and of label lengths.
    """
    times, sequences, classes = probs.dims
    for what, lengths, clause in (
        ("label", label_lengths, INCORRECT),
        ("input", input_lengths, f"{name}/{clauses[0]}"),
    ):
        expect(len(lengths) == sequences, BAD_PARAM, clause,
               f"there are {len(lengths)} {what} lengths, probsDesc {probs.dims} has {sequences} sequences")  # fmt: skip
    for n, length in enumerate(input_lengths):
        expect(0 <= length <= times, BAD_PARAM, f"{name}/{clauses[0]}",
               f"the input length of sequence {n} is {length}, probsDesc {probs.dims} has {times} time steps")  # fmt: skip
    for n, length in enumerate(label_lengths):
        expect(length >= 0, BAD_PARAM, INCORRECT, f"the label length of sequence {n} is {length}")
        expect(length <= MAX_LABEL, BAD_PARAM, f"{name}/{clauses[1]}",
               f"the label length of sequence {n} is {length}, at most {MAX_LABEL} are possible")  # fmt: skip
    needed = sum(label_lengths)
    expect(len(labels) >= needed, BAD_PARAM, INCORRECT, f"there are {len(labels)} labels, their lengths need {needed}")
    for i, label in enumerate(labels[:needed]):
        expect(BLANK < label < classes, BAD_PARAM, INCORRECT,
               f"label {i} is {label}, probsDesc {probs.dims} has the labels 1 to {classes - 1} and the blank {BLANK}")  # fmt: skip


def _of_host(
    name: Any,
    clauses: Any,
    probs: Any,
    gradients: Any,
    labels: Any,
    label_lengths: Any,
    input_lengths: Any,
    algo: Any,
    ctc_loss: Any,
) -> CTCLoss:
    """Return the operation on labels in host memory, after checking all values.

    clauses: the clauses of dimensions, input lengths, label lengths and types.
    """
    dims, inputs, label, types = clauses
    _check_tensors(name, probs, gradients, ctc_loss, dims, types)
    _check_lengths(name, probs, labels, label_lengths, input_lengths, (inputs, label))
    labels = labels[: sum(label_lengths)]
    costs = TensorSpec(FLOAT, (probs.dims[1],), (1,))
    return CTCLoss(ctc_loss, algo, labels, label_lengths, input_lengths, 0, probs, costs, gradients)


def _of_device(name: Any, clauses: Any, probs: Any, gradients: Any, algo: Any, ctc_loss: Any) -> CTCLoss_v8:
    """Return the operation on labels in device memory, whose values are not checked.

    clauses: the clauses of dimensions, the descriptor's setter, label lengths and types.
    """
    dims, setter, label, types = clauses
    longest = ctc_loss.longest_label
    expect(longest is not None, BAD_PARAM, setter,
           "ctcLossDesc was set by another setter than cudnnSetCTCLossDescriptor_v8, and has no maxLabelLength")  # fmt: skip
    _check_tensors(name, probs, gradients, ctc_loss, dims, types)
    expect(longest <= MAX_LABEL, BAD_PARAM, label,
           f"ctcLossDesc has maxLabelLength {longest}, at most {MAX_LABEL} labels are possible")  # fmt: skip
    sequences = probs.dims[1]
    each = TensorSpec(FLOAT, (sequences,), (1,))
    lengths = TensorSpec(INT32, (sequences,), (1,))
    labels = TensorSpec(INT32, (max(1, sequences * longest),), (1,))
    return CTCLoss_v8(ctc_loss, algo, 0, probs, labels, lengths, lengths, each, gradients)


def _workspace_bytes(handle: Any, operation: Any) -> Any:
    """Return the bytes of workspace that the handle's backend needs, never 0."""
    return max(MIN_WORKSPACE_BYTES, handle.backend.workspace_bytes(operation))


def _with_workspace(handle: Any, operation: Any, given: Any, clause: Any) -> Any:
    needed = _workspace_bytes(handle, operation)
    expect(given >= needed, BAD_PARAM, clause, f"the workspace has {given} bytes, {needed} are needed")
    return replace(operation, workspace_bytes=needed)


def _gradients_spec(gradients: Any, description: Any, name: Any) -> Any:
    """Return the description of the gradients, or None if their memory is NULL."""
    expect(
        gradients is None or description is not None,
        BAD_PARAM,
        INCORRECT,
        f"{name}: gradientsDesc is NULL, gradients are not",
    )
    return None if gradients is None else description


@documented(invalid={"algo": ("c11", NOT_SUPPORTED)})
def cudnnGetCTCLossWorkspaceSize(
    handle: Handle,
    probsDesc: TensorDescriptor,
    gradientsDesc: TensorDescriptor | None,
    labels: Sequence[int],
    labelLengths: Sequence[int],
    inputLengths: Sequence[int],
    algo: cudnnCTCLossAlgo_t,
    ctcLossDesc: CTCLossDescriptor,
) -> int:
    """Return the bytes of workspace that cudnnCTCLoss needs for these lengths on the handle's device, never 0.

    probsDesc, gradientsDesc: FLOAT (time, sequence, class); gradientsDesc is NULL if only costs are wanted. labels,
    labelLengths, inputLengths: host arrays.
    Errors: BAD_PARAM for differing dimensions (c06), input lengths outside 0 to the time steps of probsDesc (c07),
    label lengths above 256 (c09), labels that are not classes; NOT_SUPPORTED for other types (c10), an unknown algo
    (c11).
    Source: 8.2.12.
    """
    operation = _of_host(
        "cudnnGetCTCLossWorkspaceSize", ("c06", "c07", "c09", "c10"), probsDesc.spec,
        None if gradientsDesc is None else gradientsDesc.spec, labels, labelLengths, inputLengths, algo, ctcLossDesc.spec,
    )  # fmt: skip
    return _workspace_bytes(handle, operation)


@documented(invalid={"algo": ("c07", NOT_SUPPORTED)})
def cudnnGetCTCLossWorkspaceSize_v8(
    handle: Handle,
    algo: cudnnCTCLossAlgo_t,
    ctcLossDesc: CTCLossDescriptor,
    probsDesc: TensorDescriptor,
    gradientsDesc: TensorDescriptor | None,
) -> int:
    """Return the bytes of workspace that cudnnCTCLoss_v8 needs for up to maxLabelLength labels per sequence on the
    handle's device, never 0.

    probsDesc, gradientsDesc: FLOAT (time, sequence, class); gradientsDesc is NULL if only costs are wanted.
    Errors: BAD_PARAM for differing dimensions (c05), a descriptor of another setter (cudnnCTCLoss_v8/c03), a
    maxLabelLength above 256 (cudnnCTCLoss_v8/c19); NOT_SUPPORTED for other types (c06), an unknown algo (c07).
    Source: 8.2.13.
    """
    operation = _of_device(
        "cudnnGetCTCLossWorkspaceSize_v8", ("c05", "cudnnCTCLoss_v8/c03", "cudnnCTCLoss_v8/c19", "c06"), probsDesc.spec,
        None if gradientsDesc is None else gradientsDesc.spec, algo, ctcLossDesc.spec,
    )  # fmt: skip
    return _workspace_bytes(handle, operation)


@computing(
    invalid={"algo": ("c19", NOT_SUPPORTED), "workspaceSizeInBytes": "c16"},
    failed="c20",
    small={"workspace": ("c16", BAD_PARAM)},
)
def cudnnCTCLoss(
    handle: Handle, probsDesc: TensorSpec, probs: Any, hostLabels: Sequence[int], hostLabelLengths: Sequence[int], hostInputLengths: Sequence[int], costs: Any, gradientsDesc: TensorSpec | None, gradients: Any, algo: cudnnCTCLossAlgo_t,
    ctcLossDesc: CTCLossSpec, workspace: Any, workspaceSizeInBytes: int,
) -> None:  # fmt: skip
    """Compute costs[n] = -ln p(labels of n | probs), and in gradients the gradients of the costs with respect to the
    activations.

    p is the sum, over all alignments, of the product of their probabilities; class 0 is the blank. The gradient is
    p(class) minus the share of alignments that have the class at that time step. It is zero from the input length on.
    A sequence without an alignment (labels and repetitions exceed the time steps) has cost 0. Its gradients are zero
    or, with PROPAGATE_NAN, unchanged.
    probs: probabilities, or activations with CUDNN_LOSS_NORMALIZATION_SOFTMAX. probs, gradients: FLOAT (time, sequence,
    class), any strides. costs: packed floats, one per sequence. gradients and gradientsDesc may be NULL.
    Lengths and labels are host arrays; labels holds one sequence after the other. Both algorithms are deterministic
    here.
    Errors: BAD_PARAM for differing dimensions (c14), input lengths outside 0 to the time steps of probsDesc (c15), a
    workspace that is too small (c16), label lengths above 256 (c17), labels that are not classes; NOT_SUPPORTED for
    other types (c18), an unknown algo (c19). Source: 8.2.3; formula: docs/errata.md, D387.
    """
    described = _gradients_spec(gradients, gradientsDesc, "cudnnCTCLoss")
    operation = _of_host(
        "cudnnCTCLoss", ("c14", "c15", "c17", "c18"), probsDesc, gradientsDesc, hostLabels, hostLabelLengths,
        hostInputLengths, algo, ctcLossDesc,
    )  # fmt: skip
    return _with_workspace(handle, replace(operation, gradients=described), workspaceSizeInBytes, "cudnnCTCLoss/c16")


@computing(
    invalid={"algo": ("c21", NOT_SUPPORTED), "workSpaceSizeInBytes": "c18"},
    failed="c22",
    small={"workspace": ("c18", BAD_PARAM)},
)
def cudnnCTCLoss_v8(
    handle: Handle, algo: cudnnCTCLossAlgo_t, ctcLossDesc: CTCLossSpec, probsDesc: TensorSpec, probs: Any, labels: Any, labelLengths: Any, inputLengths: Any, costs: Any, gradientsDesc: TensorSpec | None, gradients: Any,
    workSpaceSizeInBytes: int, workspace: Any,
) -> None:  # fmt: skip
    """Do the same as cudnnCTCLoss, with labels, labelLengths and inputLengths (int) in device memory, which the host
    does not read.

    A sequence has no alignment if it has more than maxLabelLength labels, or a label that is not a class. The same
    holds for an input length outside 0 to the time steps of probsDesc. labels: as many as labelLengths say. To find the next sequence's
    labels, each length is clamped to 0 to maxLabelLength.
    Errors: BAD_PARAM for differing dimensions (c16), a descriptor of another setter (c03), a workspace that is too
    small (c18), a maxLabelLength above 256 (c19); NOT_SUPPORTED for other types (c20), an unknown algo (c21).
    Source: 8.2.4.
    """
    described = _gradients_spec(gradients, gradientsDesc, "cudnnCTCLoss_v8")
    operation = _of_device(
        "cudnnCTCLoss_v8", ("c16", "cudnnCTCLoss_v8/c03", "cudnnCTCLoss_v8/c19", "c20"), probsDesc, gradientsDesc, algo, ctcLossDesc,
    )  # fmt: skip
    return _with_workspace(handle, replace(operation, gradients=described), workSpaceSizeInBytes, "cudnnCTCLoss_v8/c18")
