"""Define the operations of cudnnCTCLoss (8.2.3) and cudnnCTCLoss_v8 (8.2.4)."""

from __future__ import annotations

from abc import abstractmethod

from ..enumerations import cudnnCTCLossAlgo_t, cudnnLossNormalizationMode_t, cudnnNanPropagation_t
from .operation import MemoryRequirement, Operation
from .records import record
from .specs import CTCLossSpec, TensorSpec

BLANK = 0  # This class separates labels and is not a label.
MAX_LABEL = 256  # labels per sequence, the maximum
MIN_WORKSPACE_BYTES = 16  # bytes, so that every call can be given too little


class _CTCLoss(Operation):
    """Define what both operations share: probs and gradients are (time, sequence, class), and costs has one number per
    sequence.

    gradients is also an input: with PROPAGATE_NAN, the gradients of a sequence without an alignment keep their values.
    """

    ctc_loss: CTCLossSpec
    probs: TensorSpec
    gradients: TensorSpec | None

    outputs = ("costs", "gradients")
    optional = ("gradients",)

    @property
    def times(self) -> int:
        return self.probs.dims[0]

    @property
    def sequences(self) -> int:
        return self.probs.dims[1]

    @property
    def classes(self) -> int:
        return self.probs.dims[2]

    @property
    def normalizes(self) -> bool:
        """Return whether probs holds activations, to which a softmax applies."""
        return self.ctc_loss.normalization == cudnnLossNormalizationMode_t.CUDNN_LOSS_NORMALIZATION_SOFTMAX

    @property
    def keeps(self) -> bool:
        """Return whether gradients of a sequence without an alignment keep their values; otherwise they become zero."""
        return self.ctc_loss.gradient_nan == cudnnNanPropagation_t.CUDNN_PROPAGATE_NAN

    @property
    def reads(self) -> tuple[str, ...]:
        return tuple(name for name in super().reads if name != "gradients" or self.keeps)

    @property
    @abstractmethod
    def max_labels(self) -> int:
        """Return the maximum number of labels of a sequence."""


@record
class CTCLoss(_CTCLoss):
    """Compute costs[n] = -ln p(labels of n | probs) and the gradients of costs with respect to the activations; labels
    are in host memory."""

    ctc_loss: CTCLossSpec
    algo: cudnnCTCLossAlgo_t
    hostLabels: tuple[int, ...]
    hostLabelLengths: tuple[int, ...]
    hostInputLengths: tuple[int, ...]
    workspace_bytes: int
    probs: TensorSpec
    costs: TensorSpec
    gradients: TensorSpec | None

    inputs = ("probs", "gradients")
    raw = {"workspace": "workspace_bytes"}  # noqa: RUF012 (a class constant)

    @property
    def max_labels(self) -> int:
        return max(self.hostLabelLengths, default=0)


@record
class CTCLoss_v8(_CTCLoss):
    """Compute the same as CTCLoss, with labels and lengths in device memory.

    labels: the labels of all sequences one after the other; the lengths say how many are read.
    """

    ctc_loss: CTCLossSpec
    algo: cudnnCTCLossAlgo_t
    workspace_bytes: int
    probs: TensorSpec
    labels: TensorSpec
    labelLengths: TensorSpec
    inputLengths: TensorSpec
    costs: TensorSpec
    gradients: TensorSpec | None

    inputs = ("probs", "labels", "labelLengths", "inputLengths", "gradients")
    raw = {"labels": "labels", "workspace": "workspace_bytes"}  # noqa: RUF012 (a class constant)
    public = ("labels",)

    @property
    def max_labels(self) -> int:
        return self.ctc_loss.longest_label or 0

    def memory_requirements(self) -> dict[str, MemoryRequirement]:
        required = super().memory_requirements()
        return {**required, "labels": required["labels"]._replace(nbytes=0)}
