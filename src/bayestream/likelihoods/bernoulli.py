"""Independent yes/no outputs."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from bayestream.likelihoods.parts import LOWEST_LOG, independent
from bayestream.types import Array, Likelihood


def bernoulli() -> Likelihood:
    """C independent yes/no outputs with logits η; y holds zeros and ones.

    >>> bernoulli().mean(jnp.zeros(2)).tolist()
    [0.5, 0.5]
    """

    def root(eta: Array) -> Array:
        log_variance = jax.nn.log_sigmoid(eta) + jax.nn.log_sigmoid(-eta)
        return jnp.exp(0.5 * jnp.maximum(log_variance, LOWEST_LOG))

    def loss(eta: Array, y: Array) -> Array:
        return -y * jax.nn.log_sigmoid(eta) - (1 - y) * jax.nn.log_sigmoid(-eta)

    return independent(
        log_density=lambda eta, y: -loss(eta, y),
        score=lambda eta, y: y - jax.nn.sigmoid(eta),
        root=root,
        mean=jax.nn.sigmoid,
        variance=lambda eta: jax.nn.sigmoid(eta) * jax.nn.sigmoid(-eta),
        sample=lambda key, eta: jax.random.bernoulli(key, jax.nn.sigmoid(eta)).astype(eta.dtype),
        support=lambda y: (y == 0) | (y == 1),
        expects="zeros and ones",
        name="bernoulli",
        loss=loss,
    )
