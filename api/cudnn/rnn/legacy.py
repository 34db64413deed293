"""Check what the calls before version 8 share: networks without a data type, sequences step by step, weights as
filters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...enumerations import cudnnRNNDataLayout_t
from ...operations import FilterSpec, TensorSpec
from ...operations.rnn import RNNDataSpec, RNNSpec
from ...operations.rnn.network import LSTM
from ...status import BAD_PARAM, NOT_SUPPORTED, CudnnError, expect
from .forward import check_sequences, check_space, check_state, state_of
from .steps import check_steps, completed

PACKED = cudnnRNNDataLayout_t.CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED


@dataclass(frozen=True)
class Section:
    """Hold the clauses of a call by topic.

    network, invalid: apply to rnnDesc and the other descriptors if they are invalid by themselves. shape: applies to
    mismatches. ragged, double: apply to what a persistent algorithm does not support. work, reserve: apply to spaces
    that are too small. failed: applies to device failures.
    """

    name: str
    network: str
    invalid: str
    shape: str
    ragged: str
    double: str
    work: str
    reserve: str
    failed: str

    def clause(self, kind: str) -> str:
        """Return the id of a clause; an id with a slash belongs to another section."""
        found = getattr(self, kind)
        return found if "/" in found else f"{self.name}/{found}"

    def refused_by(self, *parameters: str) -> dict[str, str]:
        """Return the clauses of parameters that are invalid by themselves."""
        return {"rnnDesc": self.network, **dict.fromkeys(parameters, self.invalid)}

    @property
    def small(self) -> dict[str, tuple[str, Any]]:
        """Return the clauses of buffers that are too small."""
        spaces = {"workSpace": self.work, "reserveSpace": self.reserve}
        return {name: (clause, BAD_PARAM) for name, clause in spaces.items() if clause}


def sequences(section: Section, name: str, length: int, steps: Sequence[TensorSpec]) -> RNNDataSpec:
    """Return the packed sequences that tensors {batch, vector, 1} describe step by step."""
    shape = section.clause("shape")
    check_steps(name, steps, length, shape, shape, shape, section.clause("ragged"))
    batches = [step.dims[0] for step in steps]
    lengths = tuple(sum(batch > sequence for batch in batches) for sequence in range(batches[0]))
    return RNNDataSpec(steps[0].data_type, PACKED, length, batches[0], steps[0].dims[1], lengths)


def network_of(section: Section, rnn: RNNSpec, x: RNNDataSpec, y: RNNDataSpec, w: FilterSpec) -> RNNSpec:
    """Return the network with input x, output y and weights of this description."""
    shape = section.clause("shape")
    expect(rnn.layers > 0, BAD_PARAM, section.clause("network"), "rnnDesc has not been initialised")
    spec = completed(rnn, x.vector, x.data_type, shape, shape)
    x_name = "dxDesc" if "BackwardData" in section.name else "xDesc"
    check_sequences(spec, x, y, shape, section.clause("ragged"), section.clause("double"), x_name)
    name = "dwDesc" if "BackwardWeights" in section.name else "wDesc"
    fits = w.data_type == spec.data_type and w.nbytes >= spec.weight_bytes
    expect(
        fits,
        BAD_PARAM,
        shape,
        f"{name} describes the weights as {w}, {spec.weight_bytes} bytes of {spec.data_type.name} are due",
    )
    return spec


def described(section: Section, spec: RNNSpec, batch: int, **descriptors: TensorSpec) -> dict[str, TensorSpec | None]:
    """Return the descriptors of states after checking that they fit the network; cell states count only for CUDNN_LSTM."""
    for name, state in descriptors.items():
        hidden = "h" in name[:2]
        if hidden or spec.cell == LSTM:
            check_state(
                spec, batch, f"{name}Desc", state, spec.projected if hidden else spec.hidden, section.clause("shape")
            )
    return {name: state_of(state) for name, state in descriptors.items()}


def spaces(section: Section, work: tuple[int, TensorSpec], reserve: tuple[int, TensorSpec] | None = None) -> None:
    """Raise an error unless the spaces are large enough; each is (given, needed)."""
    check_space("workSpaceSizeInBytes", work[0], work[1].nbytes, section.clause("work"))
    if reserve is not None:
        check_space("reserveSpaceSizeInBytes", reserve[0], reserve[1].nbytes, section.clause("reserve"))


def without_attention(section: Section, **reserved: Any) -> None:
    """Raise an error unless the reserved arguments are NULL."""
    for name, value in reserved.items():
        if value is not None:
            raise CudnnError(NOT_SUPPORTED, section.clause("invalid"), f"{name} is reserved, it must be NULL")
