"""Serve convolutions with a bias and without scales, in one launch of cudnnConvolutionBiasActivationForward's kernels.
y is not stored in between.
"""

from __future__ import annotations

from dataclasses import replace

from dualdnn.api.enumerations import cudnnActivationMode_t
from dualdnn.api.operations import ActivationSpec, ConvolutionBiasActivationForward, ConvScaleBiasAddActivation

from ..plans import Plan, plan, workspace_bytes
from ..reproducible import Order
from ..solver import Solver, summation_order
from .convolution import IGNORED, FusedConvolution
from .sequence import Part, SequencePlan, Workspace

IDENTITY = ActivationSpec(cudnnActivationMode_t.CUDNN_ACTIVATION_IDENTITY, IGNORED, 0.0)


class BiasActivation(Solver[FusedConvolution]):
    """Compute y = activation(conv(x, w) + z + bias), where z has the layout of y and the bias has its type."""

    name = "fused_ops.bias_activation"

    def serves(self, problem: FusedConvolution) -> bool:
        o = problem.operation
        if not isinstance(o, ConvScaleBiasAddActivation) or o.zEqBias is None:
            return False
        plain = o.eqScale is None and o.zEqScale is None and o.z in (None, o.y)
        ignores_nan = o.activation is None or o.activation.relu_nan == IGNORED
        return plain and ignores_nan and o.zEqBias.data_type == o.y.data_type and o.zEqBias.strides[1] == 1

    def _fused(self, problem: FusedConvolution) -> ConvolutionBiasActivationForward:
        """Return the operation that computes all steps."""
        o = problem.operation
        assert isinstance(o, ConvScaleBiasAddActivation) and o.zEqBias is not None
        found = ConvolutionBiasActivationForward(
            o.convolution,
            o.activation or IDENTITY,
            o.algo,
            0,
            1.0,
            float(o.z is not None),
            o.x,
            o.w,
            o.y,
            o.zEqBias,
            o.y,
        )
        return replace(found, workspace_bytes=workspace_bytes(found, problem.device))

    def summation_order(self, problem: FusedConvolution) -> Order:
        return Order(self.name, (summation_order(self._fused(problem), problem.device),))

    def workspace_bytes(self, problem: FusedConvolution) -> int:
        workspace = Workspace()
        workspace.take(self._fused(problem).workspace_bytes)
        return workspace.nbytes

    def plan(self, problem: FusedConvolution) -> Plan:
        o, found = problem.operation, self._fused(problem)
        where: dict[str, str | int] = {"bias": "zEqBias", "z": "z" if found.alpha2 else "y"}
        if found.workspace_bytes:
            where["workSpace"] = 0
        return SequencePlan(o, [Part(found, plan(found, problem.device), where)], self.name)
