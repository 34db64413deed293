"""Plans of fused operations (6.2.4, 6.2.7, 6.2.11, 6.2.17)."""

from __future__ import annotations

from ...descriptors import FusedOpsPlan
from ...functions import documented


@documented(invalid={"ops": "c03"})
def cudnnCreateFusedOpsPlan(ops):
    """A plan descriptor of a sequence, to be made a plan by cudnnMakeFusedOpsPlan.

    Errors: BAD_PARAM for what is no sequence (c03). Source: 6.2.4.
    """
    plan = FusedOpsPlan()
    plan.ops = ops
    return plan


@documented()
def cudnnDestroyFusedOpsPlan(plan):
    """Destroy the plan; None does nothing, using it afterwards is BAD_PARAM. Source: 6.2.7."""
    if plan is not None:
        plan.destroy()
