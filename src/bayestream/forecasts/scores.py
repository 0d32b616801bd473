"""How good a forecast was: numbers of (forecast, y), averaged over the examples.

Of several outputs, those whose y is NaN do not count.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.scipy.special import ndtr

from bayestream.checks import check_fraction, check_whole
from bayestream.forecasts import t_distribution
from bayestream.forecasts.averages import AveragedForecast, Forecast
from bayestream.forecasts.distributions import (
    GaussianForecast,
    MixtureForecast,
    StudentTForecast,
)
from bayestream.types import Array

OfNumbers = GaussianForecast | StudentTForecast | MixtureForecast | AveragedForecast


def nlpd(forecast: Forecast, y: Any) -> Array:
    """The negative log predictive density; of a plugin forecast, the negative log-likelihood.

    >>> from bayestream.forecasts import GaussianForecast
    >>> forecast = GaussianForecast(jnp.zeros((2, 1)), jnp.ones((2, 1, 1)))
    >>> round(float(nlpd(forecast, jnp.zeros((2, 1)))), 4)
    0.9189
    """
    return -jnp.mean(forecast.log_density(y))


nll = nlpd


def rmse(forecast: Forecast, y: Any) -> Array:
    """The root of the mean squared error of the forecast's mean, over examples and outputs.

    >>> from bayestream.forecasts import GaussianForecast
    >>> float(rmse(GaussianForecast(jnp.zeros((2, 1)), jnp.ones((2, 1, 1))), jnp.full((2, 1), 3.0)))
    3.0
    """
    return jnp.sqrt(_mean_over_seen((forecast.mean - forecast.targets(y)) ** 2, forecast, y))


def misclassification(forecast: Forecast, y: Any) -> Array:
    """The fraction of examples whose most probable class is another.

    >>> from bayestream.forecasts import CategoricalForecast
    >>> float(misclassification(CategoricalForecast(jnp.array([[1.0, 0.0]])), jnp.array([1])))
    1.0
    """
    return 1 - jnp.mean(_is_right(forecast, y))


def brier(forecast: Forecast, y: Any) -> Array:
    """The squared distance of the probabilities from the indicator of the class, summed over both.

    >>> from bayestream.forecasts import CategoricalForecast
    >>> float(brier(CategoricalForecast(jnp.zeros((1, 2))), jnp.array([1])))
    0.5
    """
    return jnp.mean(jnp.sum((_probabilities(forecast) - forecast.targets(y)) ** 2, axis=-1))


class Reliability(NamedTuple):
    """How often forecasts of each confidence were right."""

    confidence: Array  # (bins,): the mean top probability of a bin; zero where it is empty
    accuracy: Array  # (bins,)
    share: Array  # (bins,): the fraction of examples in it


def reliability(forecast: Forecast, y: Any, *, bins: int = 15) -> Reliability:
    """Examples in bins of equal width by the probability of the most probable class.

    >>> from bayestream.forecasts import CategoricalForecast
    >>> found = reliability(CategoricalForecast(jnp.zeros((4, 2))), jnp.array([0, 0, 0, 1]), bins=4)
    >>> found.accuracy.tolist()
    [0.0, 0.75, 0.0, 0.0]
    """
    check_whole("bins", bins, 1)
    top = jnp.max(_probabilities(forecast), axis=-1).reshape(-1)
    right = _is_right(forecast, y).reshape(-1).astype(top.dtype)
    # A bin holds its upper edge: (0, 1/bins], …, so that certainty falls into the last.
    place = jnp.clip(jnp.ceil(top * bins).astype(int) - 1, 0, bins - 1)
    members = (place[:, None] == jnp.arange(bins)).astype(top.dtype)
    sizes = jnp.sum(members, axis=0)
    safe = jnp.maximum(sizes, 1)
    return Reliability(top @ members / safe, right @ members / safe, sizes / len(top))


def expected_calibration_error(forecast: Forecast, y: Any, *, bins: int = 15) -> Array:
    """The mean distance between confidence and accuracy over the bins of `reliability`.

    >>> from bayestream.forecasts import CategoricalForecast
    >>> half = CategoricalForecast(jnp.zeros((4, 2)))
    >>> float(expected_calibration_error(half, jnp.array([0, 0, 0, 1])))
    0.25
    """
    found = reliability(forecast, y, bins=bins)
    return jnp.sum(found.share * jnp.abs(found.confidence - found.accuracy))


def coverage(forecast: OfNumbers, y: Any, *, level: float = 0.9) -> Array:
    """The fraction of outputs inside their central interval of that level.

    >>> from bayestream.forecasts import GaussianForecast
    >>> forecast = GaussianForecast(jnp.zeros((2, 1)), jnp.ones((2, 1, 1)))
    >>> float(coverage(forecast, jnp.array([[0.0], [9.0]])))
    0.5
    """
    check_fraction("level", level)
    low, high = forecast.interval(level)
    y = forecast.targets(y)
    return _mean_over_seen(((low <= y) & (y <= high)).astype(y.dtype), forecast, y)


def crps(forecast: OfNumbers, y: Any) -> Array:
    """The continuous ranked probability score of each output, in closed form.

    ∫ (F(t) − 1{y ≤ t})² dt = E|Y − y| − ½ E|Y − Y'|; in the units of y, and for a point forecast
    the absolute error. For Gaussians, their mixtures, and t distributions with ν > 1; of an average
    over settings by Gauss's rule over 32 quantiles, which is good to about 1%.

    >>> from bayestream.forecasts import GaussianForecast
    >>> forecast = GaussianForecast(jnp.zeros((1, 1)), jnp.ones((1, 1, 1)))
    >>> round(float(crps(forecast, jnp.zeros((1, 1)))), 4)
    0.2337
    """
    if isinstance(forecast, MixtureForecast):
        forecast = forecast.alone()
    if isinstance(forecast, StudentTForecast):
        return _crps_of_t(forecast, y)
    if isinstance(forecast, AveragedForecast):
        return _crps_of_levels(forecast, y)
    if isinstance(forecast, GaussianForecast):
        means, deviations = forecast.mean[..., None, :], forecast.deviation[..., None, :]
    else:
        means, deviations = forecast.components()
    target = forecast.targets(y)[..., None, :]
    error = jnp.mean(_mean_distance(means - target, deviations), axis=-2)
    apart = means[..., :, None, :] - means[..., None, :, :]
    spread = jnp.hypot(deviations[..., :, None, :], deviations[..., None, :, :])
    each = error - 0.5 * jnp.mean(_mean_distance(apart, spread), axis=(-3, -2))
    return _mean_over_seen(each, forecast, y)


def _crps_of_t(forecast: StudentTForecast, y: Any) -> Array:
    dof = jnp.asarray(forecast.dof, forecast.mean.dtype)[..., None]
    if not isinstance(dof, Tracer) and jnp.any(dof <= 1):
        raise ValueError(f"dof must be above 1 for this score, got {forecast.dof}.")
    z = (forecast.targets(y) - forecast.mean) / forecast.scale
    return _mean_over_seen(forecast.scale * t_distribution.crps(z, dof), forecast, y)


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(32)


def _crps_of_levels(forecast: AveragedForecast, y: Any) -> Array:
    """2 ∫ (1{y < q_τ} − τ)(q_τ − y) dτ over levels τ."""
    y = forecast.targets(y)

    def at(level: Array) -> Array:
        above = forecast.quantile(level) - y
        return 2 * ((above > 0) - level) * above

    losses = jax.lax.map(at, jnp.asarray((_NODES + 1) / 2, y.dtype))
    each = jnp.tensordot(jnp.asarray(_WEIGHTS / 2, y.dtype), losses, 1)
    return _mean_over_seen(each, forecast, y)


def _mean_distance(mean: Array, deviation: Array) -> Array:
    """E|Z| for Z ~ N(mean, deviation²)."""
    z = mean / deviation
    density = jnp.exp(-0.5 * z**2) / jnp.sqrt(2 * jnp.pi)
    return mean * (2 * ndtr(z) - 1) + 2 * deviation * density


def _mean_over_seen(each: Array, forecast: Forecast, y: Any) -> Array:
    """The mean over examples and those of their outputs whose y is not NaN."""
    return jnp.mean(each, where=~jnp.isnan(forecast.targets(y)))


def _probabilities(forecast: Forecast) -> Array:
    number = isinstance(forecast, GaussianForecast | StudentTForecast | AveragedForecast)
    kind = forecast.likelihood.name if isinstance(forecast, MixtureForecast) else "categorical"
    if number or kind != "categorical":
        raise ValueError("forecast must be of classes for this score, got one of numbers.")
    return forecast.mean


def _is_right(forecast: Forecast, y: Any) -> Array:
    p = _probabilities(forecast)
    named = jnp.all(jnp.isfinite(p), axis=-1)  # what is not a number names no class
    targets = forecast.targets(y)
    right = named & (jnp.argmax(p, axis=-1) == jnp.argmax(targets, axis=-1))
    # Of a label that is known in part it cannot be said.
    return jnp.where(jnp.any(jnp.isnan(targets), axis=-1), jnp.nan, right)
