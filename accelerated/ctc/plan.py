"""The CTC loss: which solver serves it."""

from __future__ import annotations

from dualdnn.api.operations import CTCLoss, CTCLoss_v8

from ..solver import serve
from .loss import CTCProblem, LossSolver

serve(CTCProblem, (LossSolver(),), CTCLoss, CTCLoss_v8)
