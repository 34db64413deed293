"""Turn batch-normalisation statistics into a scale and a bias (docs/errata.md, D258)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from dualdnn.api.operations import BnFinalizeStatisticsInference, BnFinalizeStatisticsTraining

from ..engine import Exact, implements, in_compute_type
from ..precision import PRECISION
from ..view import Array

MEAN_ROUNDINGS = 2  # the count, a division
VARIANCE_ROUNDINGS = (
    2 * MEAN_ROUNDINGS + 2
)  # roundings of both terms of the difference: twice the mean's, a product, the difference
# the sum with epsilon, epsilon itself, root and reciprocal of up to 2 ulp (4 roundings) each at half weight
INVERSE_ROUNDINGS = 8
STABLE = 0.25  # share of the argument: an error up to this changes the inverse root by less than the same share


def inverse_root(value: Array, error: Array) -> tuple[Array, Array]:
    """Return value^-1/2 and its roundings, given an error of the value in units of the compute type.

    ``determined`` excludes values for which the error is too large a share for this bound.
    """
    return 1 / np.sqrt(value), np.where(error > 0, error / np.abs(value), 0) + INVERSE_ROUNDINGS


def equivalent(
    scale: Array | None, bias: Array | None, mean: Array | None, inverse: Array, roundings: Array
) -> dict[str, Exact]:
    """Return eqScale and eqBias for the operands that are present. The roundings of the inverse enter both."""
    found = {}
    if scale is not None:
        eq_scale = scale * inverse
        found["eqScale"] = Exact(eq_scale, np.abs(eq_scale), roundings + 1)
        if bias is not None and mean is not None:
            shift = mean * eq_scale
            found["eqBias"] = Exact(bias - shift, np.abs(bias) + np.abs(shift), roundings + MEAN_ROUNDINGS + 3)
    return found


def determined(exact: Exact, share: Array | float) -> Exact:
    """Return the result, undetermined where the error of the variance is too large a share of it."""
    return replace(exact, magnitude=np.where(share > STABLE, np.inf, np.asarray(exact.magnitude)))


@implements(BnFinalizeStatisticsTraining)
def finalize_training(
    operation: BnFinalizeStatisticsTraining, y_sum: Array, y_sq_sum: Array, scale: Array | None, bias: Array | None,
    running_mean: Array | None, running_var: Array | None,
) -> dict[str, Exact]:  # fmt: skip
    """Compute what the operation's docstring says, for the operands that the call has."""
    count, factor = operation.count, in_compute_type(operation, operation.factor)
    epsilon = in_compute_type(operation, operation.epsilon)
    mean, square = y_sum / count, y_sq_sum / count
    variance = np.maximum(square - mean**2, 0)
    variance_terms = np.abs(square) + mean**2
    error = VARIANCE_ROUNDINGS * variance_terms
    inverse, roundings = inverse_root(variance + epsilon, error)
    found = {
        "savedMean": Exact(mean, np.abs(mean), MEAN_ROUNDINGS),
        "savedInvStd": Exact(inverse, np.abs(inverse), roundings),
        **equivalent(scale, bias, mean, inverse, roundings),
    }
    share = PRECISION[operation.compute_type][0] * error / (variance + epsilon)
    for name in ("savedInvStd", "eqScale", "eqBias"):
        if name in found:
            found[name] = determined(found[name], share)
    if running_mean is not None:
        old, new = (1 - factor) * running_mean, factor * mean
        found["runningMean"] = Exact(old + new, np.abs(old) + np.abs(new), MEAN_ROUNDINGS + 3)
    if running_var is not None:
        unbiased = count / (count - 1) if count > 1 else np.nan
        old, new = (1 - factor) * running_var, factor * unbiased * variance
        terms = np.abs(old) + np.abs(factor * unbiased) * variance_terms
        found["runningVar"] = Exact(old + new, terms, VARIANCE_ROUNDINGS + 6)
    return {name: exact for name, exact in found.items() if operation.has(name)}


@implements(BnFinalizeStatisticsInference)
def finalize_inference(
    operation: BnFinalizeStatisticsInference, scale: Array, bias: Array | None, mean: Array | None, variance: Array
) -> dict[str, Exact]:
    """Compute eqScale and eqBias from the running statistics."""
    epsilon = in_compute_type(operation, operation.epsilon)
    error = np.where(
        variance < 0, np.abs(variance) + epsilon, 0
    )  # The difference of a negative variance and epsilon may cancel: a running variance may hold any value.
    inverse, roundings = inverse_root(variance + epsilon, error)
    share = PRECISION[operation.compute_type][0] * error / np.abs(variance + epsilon)
    found = equivalent(scale, bias, mean, inverse, roundings)
    return {name: determined(exact, share) for name, exact in found.items() if operation.has(name)}
