"""Predictive distributions of y, for one input or, with a leading axis, for many."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import logsumexp, ndtr, ndtri

from bayestream.checks import check_array
from bayestream.forecasts import t_distribution
from bayestream.likelihoods.categorical import log_probability
from bayestream.likelihoods.gaussian import of_known
from bayestream.likelihoods.student_t import log_fall, log_peak, variance_of
from bayestream.types import Array, Key, Likelihood


class GaussianForecast(NamedTuple):
    """y ~ N(mean, covariance)."""

    mean: Array  # ŷ (…, C)
    covariance: Array  # V (…, C, C)

    @property
    def deviation(self) -> Array:
        """The standard deviation of each output (…, C)."""
        return jnp.sqrt(jnp.diagonal(self.covariance, axis1=-2, axis2=-1))

    def log_density(self, y: Any) -> Array:
        """Log N(y | mean, covariance) (…), of those outputs whose y is not NaN."""
        known = ~jnp.isnan(self.targets(y))
        root = jnp.linalg.cholesky(of_known(self.covariance, known))
        error = jnp.where(known, self.targets(y) - self.mean, 0.0)
        white = solve_triangular(root, error[..., None], lower=True)[..., 0]
        log_volume = 2 * jnp.sum(jnp.log(jnp.diagonal(root, axis1=-2, axis2=-1)), axis=-1)
        size = jnp.sum(known, axis=-1)
        return -0.5 * (jnp.sum(white**2, axis=-1) + log_volume + size * jnp.log(2 * jnp.pi))

    def targets(self, y: Any) -> Array:
        """The target in the shape of the mean; for one output it may leave that axis out."""
        check_array("y", y, _vectors(self.mean.shape))
        return jnp.asarray(y, self.mean.dtype).reshape(self.mean.shape)

    def sample(self, key: Key, count: int) -> Array:
        """Draws (count, …, C)."""
        root = jnp.linalg.cholesky(self.covariance)
        noise = jax.random.normal(key, (count, *self.mean.shape), self.mean.dtype)
        return self.mean + jnp.einsum("...ck,n...k->n...c", root, noise)

    def cdf(self, y: Any) -> Array:
        """P(Y ≤ y) of each output (…, C)."""
        return ndtr((self.targets(y) - self.mean) / self.deviation)

    def quantile(self, level: Any) -> Array:
        """Each output's quantile at `level` (…, C)."""
        return self.mean + self.deviation * ndtri(jnp.asarray(level, self.mean.dtype))

    def interval(self, level: float = 0.9) -> tuple[Array, Array]:
        """The central interval that holds each output with probability `level`."""
        return self.quantile((1 - level) / 2), self.quantile((1 + level) / 2)


class StudentTForecast(NamedTuple):
    """y = mean + scale · t, with as many degrees of freedom, independently for each output.

    >>> forecast = StudentTForecast(jnp.zeros(1), jnp.ones(1), jnp.array(4.0))
    >>> low, high = forecast.interval(0.9)
    >>> round(float(low[0]), 4), round(float(high[0]), 4)
    (-2.1318, 2.1318)
    """

    mean: Array  # ŷ (…, C): the median, where there is no mean (ν ≤ 1)
    scale: Array  # s (…, C)
    dof: Array  # ν ()

    @property
    def deviation(self) -> Array:
        """The standard deviation of each output (…, C); infinite for ν ≤ 2."""
        return jnp.sqrt(variance_of(self.scale, self._dof))

    @property
    def covariance(self) -> Array:
        """Cov[y] (…, C, C), diagonal; infinite for ν ≤ 2."""
        own = jnp.eye(self.mean.shape[-1], dtype=bool)
        return jnp.where(own, variance_of(self.scale, self._dof)[..., None], 0.0)

    @property
    def _dof(self) -> Array:
        return jnp.asarray(self.dof, self.mean.dtype)[..., None]

    def log_density(self, y: Any) -> Array:
        """Log p(y) (…): the sum over outputs whose y is not NaN."""
        known = ~jnp.isnan(self.targets(y))
        error = jnp.where(known, self.targets(y) - self.mean, 0.0)
        each = log_peak(self._dof) - jnp.log(self.scale) + log_fall(error, self.scale, self._dof)
        return jnp.sum(jnp.where(known, each, 0.0), axis=-1)

    def targets(self, y: Any) -> Array:
        """The target in the shape of the mean; for one output it may leave that axis out."""
        check_array("y", y, _vectors(self.mean.shape))
        return jnp.asarray(y, self.mean.dtype).reshape(self.mean.shape)

    def sample(self, key: Key, count: int) -> Array:
        """Draws (count, …, C)."""
        shape = (count, *self.mean.shape)
        return self.mean + self.scale * jax.random.t(key, self._dof, shape, self.mean.dtype)

    def cdf(self, y: Any) -> Array:
        """P(Y ≤ y) of each output (…, C)."""
        return t_distribution.cdf((self.targets(y) - self.mean) / self.scale, self._dof)

    def quantile(self, level: Any) -> Array:
        """Each output's quantile at `level` (…, C)."""
        return self.mean + self.scale * t_distribution.quantile(level, self._dof)

    def interval(self, level: float = 0.9) -> tuple[Array, Array]:
        """The central interval that holds each output with probability `level`."""
        reach = self.scale * t_distribution.quantile((1 - level) / 2, self._dof)
        return self.mean + reach, self.mean - reach


class CategoricalForecast(NamedTuple):
    """One of C classes, with probabilities softmax(logits)."""

    logits: Array  # (…, C)
    concentration: Array | None = None  # α of the Dirichlet behind it, where there is one

    @property
    def probabilities(self) -> Array:
        """(…, C)."""
        return jax.nn.softmax(self.logits)

    @property
    def mean(self) -> Array:
        """E[y] for one-hot y: the probabilities."""
        return self.probabilities

    @property
    def covariance(self) -> Array:
        """Cov[y] for one-hot y (…, C, C)."""
        return _one_hot_covariance(self.probabilities)

    def log_density(self, y: Any) -> Array:
        """Log p(y) (…), for class numbers or probability vectors; of what is not NaN of them."""
        return log_probability(self.logits, self.targets(y))

    def targets(self, y: Any) -> Array:
        """Class numbers (…) as indicators (…, C); probability vectors as they are."""
        return _indicators(y, self.logits.shape, self.logits.dtype)

    def sample(self, key: Key, count: int) -> Array:
        """Class numbers (count, …)."""
        return jax.random.categorical(key, self.logits, shape=(count, *self.logits.shape[:-1]))


class MixtureForecast(NamedTuple):
    """The average of p(y | η) over draws of η; of one, for a plugin forecast."""

    draws: Array  # η (…, S, C)
    likelihood: Likelihood

    @property
    def mean(self) -> Array:
        """E[y] (…, C)."""
        return jnp.mean(self._over_draws(self.likelihood.mean), axis=-2)

    @property
    def probabilities(self) -> Array:
        """Of each class, (…, C)."""
        if self.likelihood.name not in ("categorical", "bernoulli"):
            raise AttributeError(f"a {self.likelihood.name} forecast has no probabilities.")
        return self.mean

    @property
    def covariance(self) -> Array:
        """Cov[y] (…, C, C): the mean of the covariances and the covariance of the means."""
        means = self._over_draws(self.likelihood.mean)
        centred = means - jnp.mean(means, axis=-2, keepdims=True)
        between = jnp.einsum("...sc,...sd->...cd", centred, centred) / centred.shape[-2]
        return jnp.mean(self._over_draws(self.likelihood.covariance), axis=-3) + between

    def log_density(self, y: Any) -> Array:
        """Log of the average of p(y | η) (…)."""
        batch = self.draws.shape[:-2]
        shapes = self.likelihood.target_shapes(self.draws.shape[-1])
        check_array("y", y, [(*batch, *shape) for shape in shapes])
        y = jnp.asarray(y, self.draws.dtype)
        targets = y.reshape(-1, *y.shape[len(batch) :])
        flat = self.draws.reshape(-1, *self.draws.shape[-2:])
        each = jax.vmap(
            lambda draws, y: jax.vmap(lambda eta: self.likelihood.log_density(eta, y))(draws)
        )(flat, targets)
        density = logsumexp(each, axis=-1) - jnp.log(flat.shape[-2])
        return density.reshape(batch)

    def targets(self, y: Any) -> Array:
        """The target in the shape of the mean; class numbers become indicators."""
        shape = (*self.draws.shape[:-2], self.draws.shape[-1])
        if self.likelihood.name == "categorical":
            return _indicators(y, shape, self.draws.dtype)
        check_array("y", y, _vectors(shape))
        return jnp.asarray(y, self.draws.dtype).reshape(shape)

    def sample(self, key: Key, count: int) -> Array:
        """Draws of y (count, …): a component at random, then y given its η."""
        flat = self.draws.reshape(-1, *self.draws.shape[-2:])

        def one(key: Key, draws: Array) -> Array:
            key_component, key_y = jax.random.split(key)
            component = jax.random.randint(key_component, (), 0, len(draws))
            return self.likelihood.sample(key_y, draws[component])

        keys = jax.random.split(key, (count, len(flat)))
        found = jax.vmap(lambda row: jax.vmap(one)(row, flat))(keys)
        return found.reshape(count, *self.draws.shape[:-2], *found.shape[2:])

    def quantile(self, level: Any) -> Array:
        """Each output's quantile at `level` (…, C), by bisection; of Gaussian or t outputs."""
        if isinstance(alone := self.alone(), StudentTForecast):
            return alone.quantile(level)
        means, scales, dof = self._marginals()
        rank = jnp.asarray(level, means.dtype)
        standard = ndtri(rank) if dof is None else t_distribution.quantile(level, dof)
        reach = scales * (jnp.abs(standard) + 1)
        low, high = jnp.min(means - reach, axis=-2), jnp.max(means + reach, axis=-2)

        def cdf(y: Array) -> Array:
            z = (y[..., None, :] - means) / scales
            return jnp.mean(ndtr(z) if dof is None else t_distribution.cdf(z, dof), axis=-2)

        def halve(_: int, ends: tuple[Array, Array]) -> tuple[Array, Array]:
            low, high = ends
            middle = 0.5 * (low + high)
            below = cdf(middle) < rank
            return jnp.where(below, middle, low), jnp.where(below, high, middle)

        low, high = jax.lax.fori_loop(0, 60, halve, (low, high))
        return 0.5 * (low + high)

    def interval(self, level: float = 0.9) -> tuple[Array, Array]:
        """The central interval that holds each output with probability `level`."""
        return self.quantile((1 - level) / 2), self.quantile((1 + level) / 2)

    def alone(self) -> MixtureForecast | StudentTForecast:
        """A mixture of one t distribution as that t forecast; any other as it is."""
        if self.likelihood.name != "student_t" or self.draws.shape[-2] > 1:
            return self
        scale, dof = scale_and_dof(self.likelihood, self.draws)
        return StudentTForecast(self.draws[..., 0, :], scale[..., 0, :], dof)

    def components(self) -> tuple[Array, Array]:
        """Means and standard deviations (…, S, C) of a mixture of Gaussians."""
        if self.likelihood.name != "gaussian":
            raise ValueError(
                f"quantiles and CRPS need a gaussian likelihood, got {self.likelihood.name}; "
                "use sample."
            )
        covariances = self._over_draws(self.likelihood.covariance)
        return self.draws, jnp.sqrt(jnp.diagonal(covariances, axis1=-2, axis2=-1))

    def _marginals(self) -> tuple[Array, Array, Array | None]:
        """Means and scales (…, S, C) and, where the components are t, their ν."""
        if self.likelihood.name == "student_t":
            return self.draws, *scale_and_dof(self.likelihood, self.draws)
        return *self.components(), None

    def _over_draws(self, function: Any) -> Array:
        flat = jax.vmap(function)(self.draws.reshape(-1, self.draws.shape[-1]))
        return flat.reshape(*self.draws.shape[:-1], *flat.shape[1:])


def scale_and_dof(likelihood: Likelihood, eta: Array) -> tuple[Array, Array]:
    """s, for each of these network outputs (…, C), and ν of a student_t likelihood."""
    if likelihood.scale_and_dof is None:
        raise ValueError(f"likelihood must be student_t, got {likelihood.name}.")
    scale, dof = likelihood.scale_and_dof(jnp.zeros(eta.shape[-1], eta.dtype))
    return jnp.broadcast_to(scale, eta.shape), dof


def _indicators(y: Any, shape: tuple[int, ...], dtype: Any) -> Array:
    check_array("y", y, [shape[:-1], shape])
    y = jnp.asarray(y)
    if y.shape == shape:
        return y.astype(dtype)
    return jax.nn.one_hot(y.astype(int), shape[-1], dtype=dtype)


def _vectors(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    return [shape, shape[:-1]] if shape[-1] == 1 else [shape]


def _one_hot_covariance(p: Array) -> Array:
    return p[..., None] * jnp.eye(p.shape[-1], dtype=p.dtype) - p[..., None] * p[..., None, :]
