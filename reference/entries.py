"""Cut an operation to some entries of its batch: a smaller operation of the same kind, which can be judged.

What a network computes for one sequence or image does not depend on the rest of the batch, except for weight gradients
and statistics. So a few entries of a large call are judged as a small call, and only their memory is read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from dualdnn.api.operations import Operation, TensorSpec
from dualdnn.api.operations.attention.operations import BATCH, BEAM
from dualdnn.api.operations.rnn import RNNDataSpec, reserve, workspace
from dualdnn.api.operations.rnn.data import PACKED
from dualdnn.api.operations.specs import SeqDataSpec, SpatialTransformerSpec, packed_strides

from .view import Array

_ATTENTION = {
    **dict.fromkeys(
        ("queries", "residuals", "keys", "values", "out", "dout", "dqueries", "dkeys", "dvalues"), int(BATCH)
    ),
    **dict.fromkeys(("devSeqLengthsQO", "devSeqLengthsKV", "devSeqLengthsDQDO", "devSeqLengthsDKDV"), 0),
}
_LOSS = {"probs": 1, "gradients": 1, "costs": 0, "labelLengths": 0, "inputLengths": 0}
# This table gives the batch axis of each operand for each kind of operation. Operands without an entry belong to the
# whole batch.
AXES: dict[str, dict[str, int]] = {
    **dict.fromkeys(("CTCLoss", "CTCLoss_v8"), _LOSS),
    **dict.fromkeys(
        ("RNNForward", "RNNBackwardData"),
        dict.fromkeys(("x", "y", "hx", "cx", "hy", "cy", "dx", "dy", "dhx", "dcx", "dhy", "dcy"), 1),
    ),
    **dict.fromkeys(("MultiHeadAttnForward", "MultiHeadAttnStep", "MultiHeadAttnBackwardData"), _ATTENTION),
    **dict.fromkeys(
        (
            "SoftmaxForward", "SoftmaxBackward", "LRNCrossChannelForward", "LRNCrossChannelBackward",
            "DivisiveNormalizationForward", "DivisiveNormalizationBackward", "SpatialTfGridGeneratorForward",
            "SpatialTfGridGeneratorBackward", "SpatialTfSamplerForward", "SpatialTfSamplerBackward", "ConvScaleBiasAddActivation",
        ),
        dict.fromkeys(("x", "y", "z", "dx", "dy", "means", "dMeans", "theta", "dtheta", "grid", "dgrid"), 0),
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Cut:
    """Hold a smaller operation.

    places maps an operand to the indices of its elements in the whole operand, in memory order. An operand that is not
    named is whole.
    """

    operation: Any
    places: dict[str, Array]


def batch_of(operation: Operation) -> int:
    """Return the number of entries of the batch, or 0 where the operation cannot be cut."""
    axes = AXES.get(type(operation).__name__, {})
    names = [name for name in axes if _is_there(operation, name)]
    if not names or any(operation.tensor(name).vector_length > 1 for name in names):
        return 0
    spec = getattr(operation, names[0])
    return int(spec.batch if isinstance(spec, RNNDataSpec) else spec.dims[axes[names[0]]])


def bytes_of_entries(operation: Operation) -> int:
    """Return the bytes of all operands with a batch axis."""
    return sum(operation.nbytes(name) for name in AXES[type(operation).__name__] if _is_there(operation, name))


def cut(operation: Operation, chosen: Sequence[int], numbers: Callable[[str], Array]) -> Cut:
    """Return the operation restricted to these entries, in rising order.

    ``numbers`` reads all elements of an operand; it is needed for labels in device memory.
    """
    axes = AXES[type(operation).__name__]
    names = [name for name in axes if _is_there(operation, name)]
    entries = {name: _entries(operation, name, chosen) for name in names}
    described = {field.name for field in fields(operation)}  # type: ignore[arg-type]  # every operation is a record
    changes = {name: _spec(getattr(operation, name), axes[name], entries[name]) for name in names if name in described}
    changes |= _others(operation, chosen)
    places: dict[str, Array] = {}
    if type(operation).__name__ == "CTCLoss_v8":
        places["labels"] = listed = _labels(operation, chosen, numbers("labelLengths"))
        changes["labels"] = _packed(operation.tensor("labels").data_type, (len(listed),))
    made = replace(operation, **changes)  # type: ignore[type-var]
    for name in names:
        spec = getattr(operation, name)
        if isinstance(spec, RNNDataSpec) and spec.layout == PACKED:
            places[name] = _packed_places(spec, entries[name])
        else:
            places[name] = _places(operation.tensor(name), made.tensor(name), axes[name], entries[name])
    return Cut(made, places)


def _is_there(operation: Any, name: str) -> bool:
    return name in operation.operands and operation.has(name)


def _entries(operation: Any, name: str, chosen: Sequence[int]) -> list[int]:
    """Return the entries of an operand. Lengths in device memory have an entry for each beam."""
    sequences = getattr(operation, "lengths_of", {}).get(name)
    beams = getattr(operation, sequences).dims[BEAM] if sequences else 1
    return [entry * beams + beam for entry in chosen for beam in range(beams)]


def _spec(spec: Any, axis: int, chosen: list[int]) -> Any:
    """Return the description of only the chosen entries, without gaps."""
    if isinstance(spec, RNNDataSpec):
        return replace(spec, batch=len(chosen), lengths=tuple(spec.lengths[entry] for entry in chosen))
    dims = (*spec.dims[:axis], len(chosen), *spec.dims[axis + 1 :])
    if isinstance(spec, SeqDataSpec):
        beams = spec.dims[BEAM]
        lengths = tuple(spec.lengths[entry * beams + beam] for entry in chosen for beam in range(beams))
        return replace(spec, dims=dims, lengths=lengths)
    return _packed(spec.data_type, dims)


def _packed(data_type: Any, dims: tuple[int, ...]) -> TensorSpec:
    return TensorSpec(data_type, dims, packed_strides(dims, tuple(range(len(dims)))))


def _places(whole: TensorSpec, part: TensorSpec, axis: int, chosen: list[int]) -> Array:
    """Return the element offsets in the whole tensor of the part's elements, in the part's memory order."""
    there, here = _offsets(whole), _offsets(part)
    found = np.empty(here.size, np.int64)
    found[here.ravel()] = np.take(there, chosen, axis).ravel()
    return found


def _packed_places(whole: RNNDataSpec, chosen: list[int]) -> Array:
    """Return these offsets for sequences that are packed without padding."""
    begins = np.cumsum([0, *whole.batches])
    rows = [begins[at] + entry for at in range(whole.max_length) for entry in chosen if whole.lengths[entry] > at]
    found: Array = (np.array(rows, np.int64)[:, np.newaxis] * whole.vector + np.arange(whole.vector)).ravel()
    return found


def _offsets(spec: TensorSpec) -> Array:
    """Return the element offset of each index."""
    steps = np.ix_(
        *(np.arange(extent, dtype=np.int64) * stride for extent, stride in zip(spec.dims, spec.strides, strict=True))
    )
    return np.asarray(sum(steps, np.zeros((1,) * spec.rank, np.int64)))


def _others(operation: Any, chosen: Sequence[int]) -> dict[str, Any]:
    """Return the changed fields that depend on the batch and describe no operand."""
    if hasattr(operation, "hostLabels"):
        begins = np.cumsum([0, *operation.hostLabelLengths])
        labels = [label for entry in chosen for label in operation.hostLabels[begins[entry] : begins[entry + 1]]]
        lengths = {
            name: tuple(getattr(operation, name)[entry] for entry in chosen)
            for name in ("hostLabelLengths", "hostInputLengths")
        }
        return {"hostLabels": tuple(labels), **lengths}
    if isinstance(getattr(operation, "transformer", None), SpatialTransformerSpec):
        spec = operation.transformer
        return {"transformer": replace(spec, dims=(len(chosen), *spec.dims[1:]))}
    if isinstance(getattr(operation, "y", None), RNNDataSpec):
        shape = operation.network, operation.y.max_length, len(chosen)
        return {"workspace": workspace(*shape), "reserve": reserve(*shape, getattr(operation, "training", True))}
    return {}


def _labels(operation: Any, chosen: Sequence[int], lengths: Array) -> Array:
    """Return the positions of these sequences' labels in the list of all labels."""
    counted = np.clip(lengths.astype(np.int64), 0, operation.max_labels)
    begins = np.concatenate([[0], np.cumsum(counted)])
    found = np.concatenate([np.arange(begins[entry], begins[entry + 1]) for entry in chosen])
    return found if found.size else np.zeros(1, np.int64)  # A call without labels gets memory too.
