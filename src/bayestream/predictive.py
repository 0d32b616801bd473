"""From a belief over weights to a forecast of y."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax.scipy.linalg import cho_solve

from bayestream.checks import check_array
from bayestream.linearize import jacobian
from bayestream.types import Array, Estimator, State


class GaussianForecast(NamedTuple):
    """y ~ N(mean, covariance)."""

    mean: Array  # ŷ (C,)
    covariance: Array  # V (C, C)

    def log_density(self, y: Array) -> Array:
        """Log N(y | mean, covariance)."""
        root = jnp.linalg.cholesky(self.covariance)
        error = jnp.reshape(y, self.mean.shape) - self.mean
        distance = error @ cho_solve((root, True), error)
        size = self.mean.size
        log_volume = 2 * jnp.sum(jnp.log(jnp.diagonal(root)))
        return -0.5 * (distance + log_volume + size * jnp.log(2 * jnp.pi))


def linearized(estimator: Estimator, state: State, x: Array) -> GaussianForecast:
    """The exact forecast of the linearised network: V = H Σ Hᵀ + R, for a Gaussian likelihood.

    R is the one the estimator believes in now, also when it is learnt from the stream.

    >>> import jax, bayestream as bs
    >>> learner = bs.lofi(bs.models.mlp([2, 8, 1]), bs.likelihoods.gaussian(0.1), rank=3)
    >>> forecast = bs.predictive.linearized(learner, learner.init(jax.random.key(0)), jnp.ones(2))
    >>> forecast.covariance.shape, bool(forecast.covariance[0, 0] > 0.1)
    ((1, 1), True)
    """
    check_array("x", x, [estimator.model.inputs])
    if estimator.covariance_between is None:
        raise ValueError(
            "estimator must keep a posterior covariance for a linearized forecast, "
            "got one that keeps a point estimate only."
        )
    params = estimator.mean(state)
    eta, H = jacobian(estimator.model, params, jnp.asarray(x, params.dtype))
    R = estimator.likelihood(state).covariance(eta)
    return GaussianForecast(eta, estimator.covariance_between(state, H) + R)
