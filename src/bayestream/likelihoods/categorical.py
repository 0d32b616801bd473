"""One of several classes."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from bayestream.likelihoods.parts import LOWEST_LOG, any_nan
from bayestream.types import Array, Likelihood


def categorical() -> Likelihood:
    """One of C classes with logits η; y is a class number (−1: missing) or C probabilities.

    B = diag(√p) − p √pᵀ gives B Bᵀ = diag(p) − p pᵀ exactly, and B (y/√p) = y − p.

    >>> categorical().score(jnp.zeros(2), jnp.array(1)).tolist()
    [-0.5, 0.5]
    """

    def roots(eta: Array) -> Array:
        return jnp.exp(0.5 * jnp.maximum(jax.nn.log_softmax(eta), LOWEST_LOG))

    def target(y: Array, eta: Array) -> Array:
        one_hot = y if jnp.ndim(y) else jax.nn.one_hot(y.astype(int), eta.shape[-1])
        return one_hot.astype(eta.dtype)

    def covariance(eta: Array) -> Array:
        p = jax.nn.softmax(eta)
        return jnp.diag(p) - jnp.outer(p, p)

    def support(y: Array, outputs: int) -> Array:
        if jnp.ndim(y):
            return jnp.all(y >= 0) & (jnp.abs(jnp.sum(y) - 1) < 1e-3)
        return (y >= 0) & (y < outputs) & (y == jnp.round(y))

    return Likelihood(
        log_density=lambda eta, y: jnp.sum(target(y, eta) * jax.nn.log_softmax(eta)),
        score=lambda eta, y: target(y, eta) - jax.nn.softmax(eta),
        fisher_factor=lambda eta: jnp.diag(roots(eta)) - jnp.outer(jax.nn.softmax(eta), roots(eta)),
        residual=lambda eta, y: target(y, eta) / roots(eta),
        mean=jax.nn.softmax,
        covariance=covariance,
        sample=lambda key, eta: jax.random.categorical(key, eta),
        missing=lambda y: any_nan(y) if jnp.ndim(y) else jnp.isnan(y) | (y == -1),
        support=support,
        target_shapes=lambda outputs: ((), (outputs,)),
        expects="a class number from 0 to C−1 (−1 or NaN: missing) or C probabilities",
        name="categorical",
    )
