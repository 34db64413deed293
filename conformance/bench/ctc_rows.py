"""Lists the timed CTC losses: short sequences of letters, many classes, the longest labels."""

from __future__ import annotations

from collections.abc import Iterator

from dualdnn.api.enumerations import cudnnCTCLossAlgo_t, cudnnLossNormalizationMode_t, cudnnNanPropagation_t
from dualdnn.api.operations import CTCLoss_v8, CTCLossSpec, TensorSpec
from dualdnn.api.operations.specs import FLOAT, INT32

from .row import Row

# Each row has (time steps, sequences, classes) and the greatest number of labels in a sequence.
SHAPES = (((150, 128, 29), 40), ((20, 8, 29), 8), ((300, 32, 5000), 60), ((1000, 16, 80), 256))
DETERMINISTIC = cudnnCTCLossAlgo_t.CUDNN_CTC_LOSS_ALGO_DETERMINISTIC


def ctc_loss(dims: tuple[int, int, int], longest: int, mode: str, gradients: bool = True) -> CTCLoss_v8:
    """Return a CTC loss of labels in device memory, with gradients or with costs alone."""
    spec = CTCLossSpec(
        FLOAT, cudnnLossNormalizationMode_t[f"CUDNN_LOSS_NORMALIZATION_{mode}"],
        cudnnNanPropagation_t.CUDNN_NOT_PROPAGATE_NAN, longest,
    )  # fmt: skip
    probs = TensorSpec.packed(FLOAT, dims)
    costs, lengths = (TensorSpec(data_type, dims[1:2], (1,)) for data_type in (FLOAT, INT32))
    labels = TensorSpec(INT32, (dims[1] * longest,), (1,))
    return CTCLoss_v8(spec, DETERMINISTIC, 0, probs, labels, lengths, lengths, costs, probs if gradients else None)


def ctc_rows() -> Iterator[Row]:
    """Return every shape from activations, and the first also from probabilities and without gradients."""
    for dims, longest in SHAPES:
        shape = f"{'x'.join(map(str, dims))}, {longest} labels, float"
        yield Row(f"CTC loss softmax {shape}", "CTC loss", ctc_loss(dims, longest, "SOFTMAX"))
    dims, longest = SHAPES[0]
    shape = f"{'x'.join(map(str, dims))}, {longest} labels, float"
    yield Row(f"CTC loss probabilities {shape}", "CTC loss", ctc_loss(dims, longest, "NONE"))
    yield Row(f"CTC loss costs {shape}", "CTC loss", ctc_loss(dims, longest, "SOFTMAX", gradients=False))
