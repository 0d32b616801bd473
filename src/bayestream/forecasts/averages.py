"""The average of several forecasts of one thing, each with its weight."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp

from bayestream.forecasts.distributions import (
    CategoricalForecast,
    GaussianForecast,
    MixtureForecast,
    StudentTForecast,
)
from bayestream.types import Array, Key

_ROUNDS = 100  # of the search for a quantile; a dozen is usual


class AveragedForecast(NamedTuple):
    """A number from one of several forecasts, Gaussian or t: the i-th with probability w_i.

    >>> two = GaussianForecast(jnp.array([[-1.0], [1.0]]), jnp.ones((2, 1, 1)))
    >>> forecast = AveragedForecast(jnp.array([0.5, 0.5]), (two,))
    >>> float(forecast.covariance[0, 0]), round(float(forecast.quantile(0.5)[0]), 6)
    (2.0, 0.0)
    """

    weights: Array  # w (M,), in the order of the parts and of those in each
    parts: tuple[GaussianForecast | StudentTForecast, ...]  # each of several, on a leading axis

    @property
    def mean(self) -> Array:
        """Σ w_i ŷ_i (…, C)."""
        return self._average(self._each(lambda part: part.mean))

    @property
    def covariance(self) -> Array:
        """Cov[y] (…, C, C): the mean of the covariances and the covariance of the means."""
        centred = self._each(lambda part: part.mean) - self.mean
        between = centred[..., :, None] * centred[..., None, :]
        return self._average(self._each(lambda part: part.covariance) + between)

    @property
    def deviation(self) -> Array:
        """The standard deviation of each output (…, C)."""
        return jnp.sqrt(jnp.diagonal(self.covariance, axis1=-2, axis2=-1))

    def log_density(self, y: Any) -> Array:
        """Log Σ w_i p_i(y) (…)."""
        each = self._each(lambda part: part.log_density(y))
        weights = self.weights.reshape(-1, *(1,) * (each.ndim - 1))
        return logsumexp(each, b=weights, axis=0)

    def targets(self, y: Any) -> Array:
        """The target in the shape of the mean; for one output it may leave that axis out."""
        first = jax.tree.map(lambda leaf: leaf[0], self.parts[0])
        return first.targets(y)

    def sample(self, key: Key, count: int) -> Array:
        """Draws (count, …, C): a forecast at random, then y from it."""
        key_which, key_y = jax.random.split(key)
        draws = self._each(lambda part: part.sample(key_y, count))
        which = jax.random.choice(key_which, len(draws), draws.shape[1:-1], p=self.weights)
        return jnp.take_along_axis(draws, which[None, ..., None], axis=0)[0]

    def cdf(self, y: Any) -> Array:
        """P(Y ≤ y) of each output (…, C)."""
        return self._average(self._each(lambda part: part.cdf(y)))

    def quantile(self, level: Any) -> Array:
        """Each output's quantile at `level` (…, C): it lies among those of the parts."""
        # Upper quantiles are those of −y below, where probabilities keep their digits.
        level = level if isinstance(level, jax.Array) else np.asarray(level, np.float64)
        sign = jnp.where(level > 0.5, -1.0, 1.0).astype(self.weights.dtype)
        tail = jnp.asarray(jnp.minimum(level, 1 - level), self.weights.dtype)
        turned = tuple(part._replace(mean=sign * part.mean) for part in self.parts)
        mixture = self._replace(parts=turned)
        each = mixture._each(lambda part: part.quantile(tail))
        low, high = jnp.min(each, axis=0), jnp.max(each, axis=0)
        return sign * _root(lambda y: mixture.cdf(y) / tail - 1, low, high)

    def interval(self, level: float = 0.9) -> tuple[Array, Array]:
        """The central interval that holds each output with probability `level`."""
        return self.quantile((1 - level) / 2), self.quantile((1 + level) / 2)

    def _each(self, function: Callable[[Any], Array]) -> Array:
        return jnp.concatenate([jax.vmap(function)(part) for part in self.parts])

    def _average(self, each: Array) -> Array:
        return jnp.tensordot(self.weights, each, 1)


Forecast = (
    GaussianForecast | StudentTForecast | CategoricalForecast | MixtureForecast | AveragedForecast
)


def averaged_classes(weights: Array, logits: Array) -> CategoricalForecast:
    """The average of forecasts of classes, which is one itself; `logits` (M, …, C)."""
    weights = weights.reshape(-1, *(1,) * (logits.ndim - 1))
    return CategoricalForecast(logsumexp(jax.nn.log_softmax(logits), b=weights, axis=0))


def plain(forecast: Forecast) -> Any:
    """A forecast in numbers alone, which jit returns and vmap stacks; of classes it is exact."""
    if not isinstance(forecast, MixtureForecast):
        return forecast
    kind = forecast.likelihood.name
    if kind == "categorical":
        possible = jnp.finfo(forecast.draws.dtype).tiny  # 0 · log 0 would be no number
        return CategoricalForecast(jnp.log(jnp.maximum(forecast.probabilities, possible)))
    if kind == "gaussian":
        return GaussianForecast(forecast.mean, forecast.covariance)
    if isinstance(alone := forecast.alone(), StudentTForecast):
        return alone
    raise ValueError(f"likelihood must be gaussian, student_t or categorical, got {kind}.")


class _Search(NamedTuple):
    """Two ends with a root between them, and the point tried last."""

    low: Array
    high: Array
    below: Array  # the function at the low end, or half of that
    above: Array
    point: Array
    value: Array
    rounds: Array


def _root(function: Callable[[Array], Array], low: Array, high: Array) -> Array:
    """Where a growing function is zero to rounding, between two ends: false position.

    An end that stays while the other moves twice counts half (the Illinois variant), so that the
    next point falls on its side of the root.
    """
    eps = jnp.finfo(low.dtype).eps

    def unfinished(now: _Search) -> Array:
        apart = now.high - now.low > eps * jnp.maximum(jnp.abs(now.low), jnp.abs(now.high))
        return (now.rounds < _ROUNDS) & jnp.any(apart & (jnp.abs(now.value) > 8 * eps))

    def narrow(now: _Search) -> _Search:
        share = now.below / jnp.minimum(now.below - now.above, -jnp.finfo(low.dtype).tiny)
        point = now.low + jnp.clip(share, 0.0, 1.0) * (now.high - now.low)
        value = function(point)
        left, left_before = value < 0, now.value < 0
        again = jnp.where(left == left_before, 0.5, 1.0)
        return _Search(
            low=jnp.where(left, point, now.low),
            high=jnp.where(left, now.high, point),
            below=jnp.where(left, value, again * now.below),
            above=jnp.where(left, again * now.above, value),
            point=point,
            value=value,
            rounds=now.rounds + 1,
        )

    below, above = function(low), function(high)
    start = _Search(low, high, below, above, low, below, jnp.zeros((), jnp.int32))
    return jax.lax.while_loop(unfinished, narrow, start).point
