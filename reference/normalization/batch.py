"""Compute batch normalization and cudnnNormalization*. Formulas: docs/errata.md, D146, D157 and D158.

Errors are counted in roundoffs of the compute type and kept beside the values. ``Exact`` takes them as terms with one
rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np
from dualdnn.api.enumerations import cudnnNanPropagation_t
from dualdnn.api.operations import (
    BatchNormalizationBackward,
    BatchNormalizationBackwardEx,
    BatchNormalizationForwardInference,
    BatchNormalizationForwardTraining,
    BatchNormalizationForwardTrainingEx,
    NormalizationBackward,
    NormalizationForwardInference,
    NormalizationForwardTraining,
)
from dualdnn.api.operations.normalization.batch import (
    BatchStatistics,
    FusedTraining,
    NormalizationGradient,
    NormalizationInference,
    NormalizationTraining,
)

from ..engine import Exact, differs, implements, in_compute_type
from ..precision import PRECISION
from ..spread import Steps, few, walked
from ..view import Array

# x and mean have these roundings in y. This holds for scale * inverse * (x - mean) as well as (scale * inverse) * x -
# ... . They are the sum with epsilon, the square root and the division (3), and the products and sums (5).
AFFINE_ROUNDINGS = 8
STEEP = 0.5  # share of a variance: an error beyond it says little of the inverse root
BESIDE = 1.01  # factor of what rounding decides, to cover the rounding errors of the rest
UNCERTAIN = 2  # mark of an argument for which rounding decides whether the activation passes it


def _cancelled(variance: Array, epsilon: float) -> Array:
    """Return how much one rounding of variance + epsilon counts in the sum: more than once where they cancel."""
    return (np.abs(variance) + epsilon) / np.abs(variance + epsilon)


def inference(
    operation: NormalizationInference, x: Array, scale: Array, bias: Array, mean: Array, variance: Array
) -> Exact:
    """Compute y = scale * (x - mean) / sqrt(variance + epsilon) + bias."""
    epsilon = in_compute_type(operation, operation.epsilon)
    factor = scale / np.sqrt(variance + epsilon)
    value = factor * (x - mean) + bias

    def magnitude() -> Array:
        return np.abs(factor) * (np.abs(x) + np.abs(mean)) + np.abs(bias)

    return Exact(value, magnitude, lambda: AFFINE_ROUNDINGS + _cancelled(variance, epsilon))


implements(BatchNormalizationForwardInference)(inference)
implements(NormalizationForwardInference)(inference)


@dataclass
class Squares:
    """Hold the expected squared errors of a mean, a variance, and (relative) its inverse root."""

    mean: Array | float
    variance: Array | float
    inverse: Array | float


EXACT = Squares(0.0, 0.0, 0.0)


@dataclass
class Statistics:
    """Hold the mean and 1 / sqrt(variance + epsilon) of every statistic, with extent 1 in the reduced dimensions.

    mean_error is absolute, inverse_error relative, both in roundoffs. count is the number of elements of a statistic.
    squares returns the expected squared errors (spread.py).
    """

    count: int
    mean: Array
    inverse: Array
    mean_error: Array | float
    inverse_error: Array | float
    variance: Array | None = None
    variance_error: Array | float = 0.0
    squares: Callable[[], Squares] = lambda: EXACT


def statistics(operation: BatchStatistics, x: Array, epsilon: float) -> Statistics:
    """Compute the mean and the biased variance, with their errors.

    A sum of m terms has m roundings, and the division one more. An error d of the mean adds d^2 to the variance in any
    order. A running mean, or a mean of blocks, is rounded at every step, which adds its roundoff times the distances
    from it. Nothing is determined where sums of squares leave the range of the compute type. Squares that underflow may
    be zero.
    """
    axes, (unit, smallest, largest) = operation.reduced_dims, PRECISION[operation.compute_type]
    count = int(np.prod([x.shape[d] for d in axes]))
    mean = x.mean(axes, keepdims=True)
    size = np.abs(x).mean(axes, keepdims=True)
    distance = np.abs(x - mean)
    variance = (distance * distance).mean(axes, keepdims=True)
    mean_error = (count + 1) * size
    variance_error = (count + 6) * variance + unit * mean_error**2 + 4 * size * distance.mean(axes, keepdims=True)
    variance_error += smallest / unit
    squares = count * np.square(2 * np.abs(x).max(axes, keepdims=True))
    variance_error = np.where((squares >= largest) & np.isfinite(variance), np.inf, variance_error)
    share = unit * variance_error / (variance + epsilon)
    # The first factor is 1 / sqrt(1 - share) - 1; the sum, the square root and the division add 4.
    inverse_error = np.where(share < 1, (1 / np.sqrt(1 - np.minimum(share, 1)) - 1) / unit + 4, np.inf)

    @cache
    def expected() -> Squares:
        """Return the expected squared errors.

        Sums may be of distances from any element of the channel. Such an element is one standard deviation from the
        mean in the mean square, so a sum of squares has six times its square (docs/tolerance.md). Each step of a
        running mean changes the sum of squares by its distance. An error of the mean enters as its square.
        """
        norm = np.sqrt(np.square(x).sum(axes, keepdims=True)) / count
        fourth = np.sqrt((distance**4).sum(axes, keepdims=True)) / count
        of_mean = walked(count + 1, np.sqrt(np.square(mean) + variance), norm) + few(2) * np.square(mean)
        of_variance = walked(count, np.sqrt(6) * variance, fourth) + few(6) * np.square(variance)
        of_variance = of_variance + 16 * size**2 * variance / count
        of_variance = of_variance + np.square(9 * unit * of_mean) + np.square(smallest / unit)
        slope = np.where(share < STEEP, 0.5 / (1 - np.minimum(share, STEEP)) ** 1.5 / (variance + epsilon), np.inf)
        return Squares(of_mean, of_variance, slope**2 * of_variance + few(4))

    inverse = 1 / np.sqrt(variance + epsilon)
    return Statistics(count, mean, inverse, mean_error, inverse_error, variance, variance_error, expected)


def relu(operation: NormalizationTraining, value: Array) -> Array:
    """Apply the fused activation, a ReLU."""
    activation = operation.activation
    if activation is None:
        return value
    propagates = activation.relu_nan == cudnnNanPropagation_t.CUDNN_PROPAGATE_NAN
    return np.where(np.isnan(value) & propagates, value, np.where(value > 0, value, 0))


def affine_error(x: Array, s: Statistics, factor: Array, bias: Array) -> Array:
    """Return the error of factor * (x - mean) + bias in roundoffs, where factor = scale * inverse."""
    argument = np.abs(factor) * (s.mean_error + AFFINE_ROUNDINGS * (np.abs(x) + np.abs(s.mean)))
    product = np.abs(factor * (x - s.mean))
    of_bias = AFFINE_ROUNDINGS * np.where(np.isinf(bias), 0, np.abs(bias))  # An infinite bias alone decides the result.
    return argument + np.where(product == 0, 0, product * s.inverse_error) + of_bias


def affine_steps(x: Array, s: Statistics, factor: Array, bias: Array) -> Array:
    """Return the expected squares of that error."""
    found = s.squares()
    argument = np.square(factor) * (found.mean + few(AFFINE_ROUNDINGS) * (np.square(x) + np.square(s.mean)))
    product = np.square(factor * (x - s.mean))
    return argument + np.where(product == 0, 0, product * found.inverse) + few(AFFINE_ROUNDINGS) * np.square(bias)


def certainly_positive(operation: BatchStatistics, argument: Array, error: Array) -> Array:
    """Return 1 where the argument is above 0, 0 where it is not, and UNCERTAIN where its error (in roundoffs)
    decides.
    """
    unit, _, _ = PRECISION[operation.compute_type]
    return np.where((np.abs(argument) <= unit * error) & (error > 0), UNCERTAIN, argument > 0)


def kept_mask(operation: FusedTraining, argument: Array, error: Callable[[], Array]) -> Array:
    """Return the mask that the reserve space keeps in the order of y, NHWC.

    It has 1 where the activation passes its argument, 0 where it does not, and 2 where rounding decides.
    """
    if operation.z is None:
        return np.zeros(0, np.uint8)
    passes = certainly_positive(operation, argument, error()).astype(np.uint8)
    return np.moveaxis(np.broadcast_to(passes, operation.y.dims), 1, -1).ravel()


def training(
    operation: NormalizationTraining, x: Array, scale: Array, bias: Array, z: Array | None,
    running_mean: Array | None, running_variance: Array | None,
) -> dict[str, Exact]:  # fmt: skip
    """Compute y, the running statistics and the saved ones."""
    s = statistics(operation, x, in_compute_type(operation, operation.epsilon))
    factor = scale * s.inverse
    value = factor * (x - s.mean) + bias + (0 if z is None else z)

    def error() -> Array:
        return affine_error(x, s, factor, bias) + (0 if z is None else 2 * np.where(np.isinf(z), 0, np.abs(z)))

    def error_of_y() -> Array:
        """Return the error of y. An element that the activation certainly stops is exactly zero."""
        found, unit = error(), PRECISION[operation.compute_type][0]
        return found if operation.activation is None else np.where(value < -unit * found, 0, found)

    def steps() -> Steps:
        return Steps(affine_steps(x, s, factor, bias) + (0 if z is None else few(2) * np.square(z)))

    found = {"y": Exact(relu(operation, value), error_of_y, 1, spread=steps)}
    assert s.variance is not None
    if running_mean is not None and running_variance is not None:
        f, largest = (
            in_compute_type(operation, operation.exponentialAverageFactor),
            PRECISION[operation.compute_type][2],
        )
        unbiased = np.float64(s.count) / (s.count - 1) if s.count > 1 else np.nan

        def averaged(old: Array, new: Array, new_error: Array | float, squares: Callable[[], Array | float]) -> Exact:
            """Return a running average.

            Its roundings are 1 - f and the product with it, the product with f, and the sum.
            """
            return Exact(
                (1 - f) * old + f * new,
                lambda: np.where(
                    # Infinity times zero is covered too.
                    np.isfinite(new) & ((np.abs(new) >= largest) | np.isinf(new_error)),
                    np.inf,
                    4 * (1 + abs(f)) * np.abs(old) + abs(f) * (new_error + 4 * np.abs(new)),
                ),
                1,
                spread=lambda: Steps(
                    few(4 * (1 + abs(f))) * np.square(old) + f**2 * (squares() + few(4) * np.square(new))
                ),
            )

        found["runningMean"] = averaged(running_mean, s.mean, s.mean_error, lambda: s.squares().mean)
        found["runningVariance"] = averaged(
            running_variance,
            s.variance * unbiased,
            s.variance_error * unbiased,
            lambda: s.squares().variance * unbiased**2,
        )
    if isinstance(operation, FusedTraining):
        found["reserveSpace"] = Exact.kept(kept_mask(operation, value, error))
    if operation.saved is not None:
        found["savedMean"] = Exact(
            s.mean,
            lambda: s.mean_error + np.abs(s.mean),
            1,
            spread=lambda: Steps(s.squares().mean + few(1) * np.square(s.mean)),
        )
        found["savedInvVariance"] = Exact(
            s.inverse,
            lambda: np.abs(s.inverse) * s.inverse_error,
            1,
            spread=lambda: Steps(np.square(s.inverse) * s.squares().inverse),
        )
    return found


def passed(
    operation: NormalizationGradient, x: Array, s: Statistics, scale: Array, bias: Array | None, reserve: Array | None
) -> Array | None:
    """Return where the activation passed its argument, as ``kept_mask`` does; None where no activation is fused."""
    if operation.activation is None or bias is None:
        return None
    if operation.dz is not None:
        assert reserve is not None
        count, channels, *spatial = operation.x.dims
        return np.moveaxis(reserve[: x.size].reshape(count, *spatial, channels), -1, 1)
    factor = scale * s.inverse
    return certainly_positive(operation, factor * (x - s.mean) + bias, affine_error(x, s, factor, bias))


def leave_open(
    found: dict[str, Exact], largest: float, axes: tuple[int, ...], factor: Array, dy: Array, normalized: Array, passes: Array | None,
    lost: Array | bool, doubtful: Array | None = None,
) -> None:  # fmt: skip
    """Mark the elements of the gradients that the document leaves open (docs/errata.md, D146 and D155).

    It does not decide between infinity and NaN where a factor or a sum overflows. It also leaves open whether zeros
    from an activation count beside non-finite values.

    passes is 1 where the activation left dy unchanged. lost marks statistics with an unlimited error. doubtful marks
    where rounding decides whether a non-finite value counts.
    """

    def total(values: Array) -> Array:
        return values.sum(axes, keepdims=True)

    peak, scale_terms = np.fmax.reduce(np.abs(normalized), axes, keepdims=True), total(np.abs(dy * normalized))
    sums = np.fmax.reduce([peak, scale_terms, peak * scale_terms, np.broadcast_to(total(np.abs(dy)), peak.shape)])
    of_scale = (sums >= largest) | lost
    overflows = {"dScale": of_scale, "dx": of_scale | (np.abs(factor) >= largest)}
    left_out: dict[str, Array] = {}
    if passes is not None and not np.isfinite(normalized).all():
        left_out["dScale"] = total(np.where(passes == 1, dy * normalized, 0))
        left_out["dx"] = factor * (dy - (total(dy) + normalized * left_out["dScale"]) / (normalized.size // peak.size))
    in_doubt = np.asarray(False) if doubtful is None else doubtful.any(axes, keepdims=True)
    if in_doubt.any():
        overflows["dBias"] = in_doubt
    elif not left_out and not overflows["dx"].any():
        return
    for name in overflows.keys() & found.keys():
        open_ = np.asarray(differs(found[name].value, left_out[name]) if name in left_out else False) | in_doubt
        exceeds = np.asarray(overflows[name] & ~open_)
        found[name] = replace(
            found[name], undetermined=partial(np.asarray, open_), overflows=partial(np.asarray, exceeds)
        )


def gradient(
    operation: NormalizationGradient, x: Array, dy: Array, scale: Array, bias: Array | None, saved_mean: Array | None,
    saved_inverse: Array | None, _y: None = None, reserve: Array | None = None,
) -> dict[str, Exact]:  # fmt: skip
    """Compute dx, dScale and dBias; dz is dy where the activation passed its argument.

    Where rounding decides, dy may count or not.
    """
    axes, (unit, smallest, largest) = operation.reduced_dims, PRECISION[operation.compute_type]
    if saved_mean is None or saved_inverse is None:
        s = statistics(operation, x, in_compute_type(operation, operation.epsilon))
    else:
        count = int(np.prod([x.shape[d] for d in axes]))
        s = Statistics(count, saved_mean, saved_inverse, 0.0, 0.0)
    normalized = (x - s.mean) * s.inverse
    passes = passed(operation, x, s, scale, bias, reserve)
    open_ = np.zeros_like(dy) if passes is None else np.where(passes == UNCERTAIN, np.abs(dy), 0) / unit
    size = np.abs(dy if passes is None else np.where(passes == 0, 0, dy))  # size of the gradients that may count
    if passes is not None:
        dy = np.where(passes == 1, dy, 0)

    def total(values: Array) -> Array:
        return values.sum(axes, keepdims=True)

    bias_gradient, scale_gradient = total(dy), total(dy * normalized)
    factor = scale * s.inverse
    dx = factor * (dy - (bias_gradient + normalized * scale_gradient) / s.count)

    # The error of n has those of its mean, difference, product and inverse. A sum has as many roundings as terms.
    def normalized_error() -> Array:
        return np.abs(s.inverse) * s.mean_error + np.abs(normalized) * (s.inverse_error + 3)

    def scale_error() -> Array:
        sums = total(size * normalized_error()) + (s.count + 1) * total(size * np.abs(normalized))
        return sums + (total(open_ * np.abs(normalized)) if passes is not None else 0)

    def bias_error() -> Array:
        return s.count * total(size) + (total(open_) if passes is not None else 0)

    def error() -> Array:
        sums = bias_error() + np.abs(normalized) * scale_error() + normalized_error() * np.abs(scale_gradient)
        terms = size + (np.abs(bias_gradient) + np.abs(normalized * scale_gradient)) / s.count
        inner = sums / s.count + (s.inverse_error + 6) * terms + open_
        # The factor may underflow, and so may the factor of x - mean in the sum of products.
        return np.maximum(np.abs(factor), smallest / unit) * inner + smallest / unit * np.abs(x - s.mean)

    # These are the expected squares. Errors that all elements share do not average out.
    def normalized_squares(own: float) -> Array:
        found = s.squares()
        return np.square(s.inverse) * found.mean + np.square(normalized) * (found.inverse + own)

    # If rounding decides whether an element counts, its full size is allowed, in addition to the expected errors.
    def undecided(values: Array) -> Array:
        return np.asarray(few(BESIDE * values))

    @cache
    def scale_squares() -> Array:
        found, norm = s.squares(), np.sqrt(total(np.square(dy * normalized)))
        shared = np.square(s.inverse * bias_gradient) * found.mean + np.square(scale_gradient) * found.inverse
        return np.asarray(walked(s.count + 1, scale_gradient, norm) + shared + few(3) * norm**2)

    @cache
    def bias_squares() -> Array:
        return walked(s.count, bias_gradient, np.sqrt(total(np.square(dy))))

    def squares() -> Array:
        sums = bias_squares() + np.square(normalized) * scale_squares()
        sums = sums + normalized_squares(few(3)) * np.square(scale_gradient)
        terms = np.square(dy) + (np.square(bias_gradient) + np.square(normalized * scale_gradient)) / s.count**2
        shared = (total(open_) + np.abs(normalized) * total(open_ * np.abs(normalized))) / s.count
        inner = sums / s.count**2 + (s.squares().inverse + few(6)) * terms + undecided(open_ + shared)
        return np.asarray(np.square(factor) * inner + np.square(smallest / unit * (x - s.mean)))

    found = {
        "dx": Exact(dx, error, 1, spread=lambda: Steps(squares())),
        "dScale": Exact(
            scale_gradient,
            scale_error,
            1,
            spread=lambda: Steps(scale_squares() + undecided(total(open_ * np.abs(normalized)))),
        ),
        "dBias": Exact(bias_gradient, bias_error, 1, spread=lambda: Steps(bias_squares() + undecided(total(open_)))),
    }
    leave_open(found, largest, axes, factor, dy, normalized, passes, np.isinf(s.inverse_error), ~np.isfinite(open_))
    of_dz = Exact(dy, lambda: open_, 1, undetermined=lambda: ~np.isfinite(open_))
    return found if operation.dz is None else found | {"dz": of_dz}


for forward_kind in (
    BatchNormalizationForwardTraining,
    BatchNormalizationForwardTrainingEx,
    NormalizationForwardTraining,
):
    implements(forward_kind)(training)
for backward_kind in (BatchNormalizationBackward, BatchNormalizationBackwardEx, NormalizationBackward):
    implements(backward_kind, unread=lambda _: ("y",))(gradient)
