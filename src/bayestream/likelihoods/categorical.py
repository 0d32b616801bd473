"""One of several classes."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from bayestream.likelihoods.parts import LOWEST_LOG, all_nan, lacking_curvature
from bayestream.types import Array, Likelihood


def log_probability(eta: Array, y: Array) -> Array:
    """Log p(y | η) (…) for logits η and probabilities y (…, C), of which some may be NaN."""
    log_p, unseen = jax.nn.log_softmax(eta), jnp.isnan(y)
    some = jnp.any(unseen, axis=-1)
    known = jnp.where(unseen, 0.0, y).astype(log_p.dtype)
    # Where all were asked about there is no rest, and the sum over all, log 1, stands in for it.
    rest = jax.nn.logsumexp(jnp.where(unseen | ~some[..., None], log_p, -jnp.inf), axis=-1)
    return jnp.sum(known * log_p, axis=-1) + (1 - jnp.sum(known, axis=-1)) * rest


def categorical() -> Likelihood:
    """One of C classes with logits η; y is a class number (−1: missing) or C probabilities.

    Of C numbers some may be NaN: it was not asked whether y is one of those classes, as in a bandit
    that is told only whether its own answer was right.

    B = diag(√p) − p √pᵀ gives B Bᵀ = diag(p) − p pᵀ exactly, and B v = y − p for v = y/√p − √p.
    As B √p = 0 and v is orthogonal to √p, B + a (y − p) √pᵀ is a factor of the Fisher information
    plus a² (y − p)(y − p)ᵀ, and has the same v. Classes that were not asked about are one outcome:
    with π their probability and q = p/π among them, y − p becomes ρ q − p there, where ρ is 1 if y
    is one of them; their columns are √p_c (q − p), their v_c = √p_c (ρ/π − 1).

    >>> categorical().score(jnp.zeros(2), jnp.array(1)).tolist()
    [-0.5, 0.5]
    """

    def roots(eta: Array) -> Array:
        return jnp.exp(0.5 * jnp.maximum(jax.nn.log_softmax(eta), LOWEST_LOG))

    def is_unseen(y: Array) -> Array | None:
        """Which classes were not asked about; None where y is a number, and so known."""
        return jnp.isnan(y) if jnp.ndim(y) else None

    def among(eta: Array, unseen: Array) -> Array:
        """q, the probabilities of those classes if y is one of them."""
        some = jnp.any(unseen)
        return jnp.where(some, jax.nn.softmax(jnp.where(unseen | ~some, eta, -jnp.inf)), 0.0)

    def vector(eta: Array, y: Array) -> Array:
        y = jnp.asarray(y)
        return y if y.ndim else jax.nn.one_hot(y.astype(int), eta.shape[-1], dtype=eta.dtype)

    def target(eta: Array, y: Array) -> Array:
        """The one-hot y, as far as it is known: y itself, and ρ q."""
        unseen = is_unseen(y)
        if unseen is None:
            return vector(eta, y)
        known = jnp.where(unseen, 0.0, y).astype(eta.dtype)
        return known + (1 - jnp.sum(known)) * among(eta, unseen)

    def factor(eta: Array, unseen: Array | None = None) -> Array:
        scales = roots(eta)
        own = jnp.diag(scales)
        if unseen is not None:
            own = jnp.where(unseen, jnp.outer(among(eta, unseen), scales), own)
        return own - jnp.outer(jax.nn.softmax(eta), scales)

    def residual(eta: Array, y: Array) -> Array:
        return target(eta, y) / roots(eta) - roots(eta)

    def secant(eta: Array, y: Array) -> tuple[Array, Array]:
        s, B = target(eta, y) - jax.nn.softmax(eta), factor(eta, is_unseen(y))
        loss = -log_probability(eta, vector(eta, y))
        lacking = lacking_curvature(s @ s, loss, jnp.sum((s @ B) ** 2))
        return B + jnp.sqrt(lacking) * jnp.outer(s, roots(eta)), residual(eta, y)

    def covariance(eta: Array) -> Array:
        p = jax.nn.softmax(eta)
        return jnp.diag(p) - jnp.outer(p, p)

    def support(y: Array, outputs: int) -> Array:
        if jnp.ndim(y):
            known = jnp.where(jnp.isnan(y), 0.0, y)
            total, whole = jnp.sum(known), ~jnp.any(jnp.isnan(y))
            return jnp.all(known >= 0) & (total < 1 + 1e-3) & (~whole | (total > 1 - 1e-3))
        return (y >= 0) & (y < outputs) & (y == jnp.round(y))

    return Likelihood(
        log_density=lambda eta, y: log_probability(eta, vector(eta, y)),
        score=lambda eta, y: target(eta, y) - jax.nn.softmax(eta),
        fisher_factor=factor,
        residual=residual,
        seen=lambda eta, y: (factor(eta, is_unseen(y)), residual(eta, y)),
        secant=secant,
        mean=jax.nn.softmax,
        covariance=covariance,
        sample=lambda key, eta: jax.random.categorical(key, eta),
        missing=lambda y: all_nan(y) if jnp.ndim(y) else jnp.isnan(y) | (y == -1),
        support=support,
        target_shapes=lambda outputs: ((), (outputs,)),
        expects="a class number from 0 to C−1 (−1 or NaN: missing) or C probabilities",
        name="categorical",
    )
