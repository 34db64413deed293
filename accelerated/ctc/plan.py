"""Serve every CTC loss with one solver, on labels of the host and of the device."""

from __future__ import annotations

from dualdnn.api.operations import CTCLoss, CTCLoss_v8

from ..solver import serve
from .loss import CTCProblem, LossSolver

serve(CTCProblem, (LossSolver(),), CTCLoss, CTCLoss_v8)
