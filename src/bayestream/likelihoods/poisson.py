"""Independent counts."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln, xlogy

from bayestream.likelihoods.parts import LOWEST_LOG, independent
from bayestream.types import Array, Likelihood


def poisson() -> Likelihood:
    """C independent counts with log-rates η.

    >>> poisson().score(jnp.zeros(1), jnp.array([3.0])).tolist()
    [2.0]
    """

    def log_density(eta: Array, y: Array) -> Array:
        return y * eta - jnp.exp(eta) - gammaln(y + 1.0)

    def loss(eta: Array, y: Array) -> Array:
        return xlogy(y, y) - y - (y * eta - jnp.exp(eta))

    return independent(
        log_density=log_density,
        score=lambda eta, y: y - jnp.exp(eta),
        root=lambda eta: jnp.exp(0.5 * jnp.maximum(eta, LOWEST_LOG)),
        mean=jnp.exp,
        variance=jnp.exp,
        sample=lambda key, eta: jax.random.poisson(key, jnp.exp(eta)).astype(eta.dtype),
        support=lambda y: (y >= 0) & (y == jnp.round(y)) & jnp.isfinite(y),
        expects="whole numbers, zero or above",
        name="poisson",
        loss=loss,
    )
