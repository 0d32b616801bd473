"""One of several classes."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from bayestream.likelihoods.parts import LOWEST_LOG, any_nan, lacking_curvature
from bayestream.types import Array, Likelihood


def categorical() -> Likelihood:
    """One of C classes with logits η; y is a class number (−1: missing) or C probabilities.

    B = diag(√p) − p √pᵀ gives B Bᵀ = diag(p) − p pᵀ exactly, and B v = y − p for v = y/√p − √p.
    As B √p = 0 and v is orthogonal to √p, B + a (y − p) √pᵀ is a factor of the Fisher information
    plus a² (y − p)(y − p)ᵀ, and has the same v.

    >>> categorical().score(jnp.zeros(2), jnp.array(1)).tolist()
    [-0.5, 0.5]
    """

    def roots(eta: Array) -> Array:
        return jnp.exp(0.5 * jnp.maximum(jax.nn.log_softmax(eta), LOWEST_LOG))

    def target(y: Array, eta: Array) -> Array:
        y = jnp.asarray(y)
        one_hot = y if y.ndim else jax.nn.one_hot(y.astype(int), eta.shape[-1])
        return one_hot.astype(eta.dtype)

    def fisher_factor(eta: Array) -> Array:
        return jnp.diag(roots(eta)) - jnp.outer(jax.nn.softmax(eta), roots(eta))

    def residual(eta: Array, y: Array) -> Array:
        return target(y, eta) / roots(eta) - roots(eta)

    def secant(eta: Array, y: Array) -> tuple[Array, Array]:
        p, t = jax.nn.softmax(eta), target(y, eta)
        s, loss = t - p, -jnp.sum(t * jax.nn.log_softmax(eta))
        along = p @ s**2 - (p @ s) ** 2  # sᵀ (diag(p) − p pᵀ) s
        lacking = lacking_curvature(s @ s, loss, along)
        factor = fisher_factor(eta) + jnp.sqrt(lacking) * jnp.outer(s, roots(eta))
        return factor, residual(eta, y)

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
        fisher_factor=fisher_factor,
        residual=residual,
        seen=lambda eta, y: (fisher_factor(eta), residual(eta, y)),
        secant=secant,
        mean=jax.nn.softmax,
        covariance=covariance,
        sample=lambda key, eta: jax.random.categorical(key, eta),
        missing=lambda y: any_nan(y) if jnp.ndim(y) else jnp.isnan(y) | (y == -1),
        support=support,
        target_shapes=lambda outputs: ((), (outputs,)),
        expects="a class number from 0 to C−1 (−1 or NaN: missing) or C probabilities",
        name="categorical",
    )
