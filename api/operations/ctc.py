"""Operations of cudnnCTCLoss (8.2.3) and cudnnCTCLoss_v8 (8.2.4)."""

from __future__ import annotations

from abc import abstractmethod

from ..enumerations import cudnnCTCLossAlgo_t, cudnnLossNormalizationMode_t, cudnnNanPropagation_t
from .operation import Operation
from .records import record
from .specs import CTCLossSpec, TensorSpec

BLANK = 0  # the class that separates labels; it is none itself
LONGEST_LABEL = 256  # labels of a sequence
LEAST_WORKSPACE_BYTES = 16  # of every call, so that "not sufficient" means something for each


class _CTCLoss(Operation):
    """What both have: probs and gradients are (time, sequence, class), costs one number a sequence.

    gradients is an input, too: with PROPAGATE_NAN those of a sequence without an alignment stay as they are.
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
        """Return whether probs holds activations."""
        return self.ctc_loss.normalization == cudnnLossNormalizationMode_t.CUDNN_LOSS_NORMALIZATION_SOFTMAX

    @property
    def keeps(self) -> bool:
        """Return whether the gradients of a sequence without an alignment stay as they are; they are zero where not."""
        return self.ctc_loss.gradient_nan == cudnnNanPropagation_t.CUDNN_PROPAGATE_NAN

    @property
    def reads(self) -> tuple[str, ...]:
        return tuple(name for name in super().reads if name != "gradients" or self.keeps)

    @property
    @abstractmethod
    def most_labels(self) -> int:
        """Return the labels of a sequence at most."""


@record
class CTCLoss(_CTCLoss):
    """Compute costs[n] = -ln p(labels of n | probs), gradients = those of costs with respect to the activations; labels of the host."""

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
    def most_labels(self) -> int:
        return max(self.hostLabelLengths, default=0)


@record
class CTCLoss_v8(_CTCLoss):
    """As CTCLoss, with labels and lengths in device memory.

    labels: those of all sequences, one after the other; of its memory as much is read as the lengths say.
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
    def most_labels(self) -> int:
        return self.ctc_loss.longest_label or 0

    def least_bytes(self, operand: str) -> int:
        return 0 if operand == "labels" else super().least_bytes(operand)
