"""One of several classes."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from bayestream.checks import check_whole
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


def categorical(*, columns: int | None = None) -> Likelihood:
    """One of C classes with logits η; y is a class number (−1: missing) or C probabilities.

    Of C numbers some may be NaN: it was not asked whether y is one of those classes, as in a bandit
    that is told only whether its own answer was right.

    B = diag(√p) − p √pᵀ gives B Bᵀ = diag(p) − p pᵀ exactly, and B v = y − p for v = y/√p − √p.
    As B √p = 0 and v is orthogonal to √p, B + a (y − p) √pᵀ is a factor of the Fisher information
    plus a² (y − p)(y − p)ᵀ, and has the same v. Classes that were not asked about are one outcome:
    with π their probability and q = p/π among them, y − p becomes ρ q − p there, where ρ is 1 if y
    is one of them; their columns are √p_c (q − p), their v_c = √p_c (ρ/π − 1).

    With `columns` K the outcomes are y, the K − 2 most probable other classes, and all the rest as
    one: B has the columns √p_c (e_c − p) and √π (q − p), and everything above holds with √p the
    roots of their K probabilities. The score is exact; B Bᵀ is the Fisher information less that
    about the rest among themselves, and all of it if K ≥ C. A filter's step then costs
    P (L + K)², however many classes there are; y must be a class number.

    >>> categorical().score(jnp.zeros(2), jnp.array(1)).tolist()
    [-0.5, 0.5]
    >>> B, v = categorical(columns=3).seen(jnp.zeros(10_000), jnp.array(1))
    >>> B.shape, round(float(B[1] @ v), 4)
    ((10000, 3), 0.9999)
    """
    if columns is not None:
        check_whole("columns", columns, 2)

    def among(eta: Array, some: Array) -> Array:
        """q, the probabilities of some classes if y is one of them; zero if there are none."""
        none = ~jnp.any(some)
        return jnp.where(none, 0.0, jax.nn.softmax(jnp.where(some | none, eta, -jnp.inf)))

    def vector(eta: Array, y: Array) -> Array:
        y = jnp.asarray(y)
        return y if y.ndim else jax.nn.one_hot(y.astype(int), eta.shape[-1], dtype=eta.dtype)

    def target(eta: Array, y: Array) -> Array:
        """The one-hot y, as far as it is known: y itself, and ρ q."""
        if not jnp.ndim(y):
            return vector(eta, y)
        unseen = jnp.isnan(y)
        known = jnp.where(unseen, 0.0, y).astype(eta.dtype)
        return known + (1 - jnp.sum(known)) * among(eta, unseen)

    def every(eta: Array, y: Array) -> tuple[Array, Array, Array]:
        """The outcomes: log probabilities (K,), the classes in each (K, C), and which is y (K,)."""
        classes = jnp.eye(eta.size, dtype=eta.dtype)
        if jnp.ndim(y):
            unseen = jnp.isnan(y)
            classes = jnp.where(unseen[:, None], among(eta, unseen), classes)
        return jax.nn.log_softmax(eta), classes, target(eta, y)

    def few(eta: Array, y: Array) -> tuple[Array, Array, Array]:
        """The same of y, the most probable others, and the rest."""
        if jnp.ndim(y):
            raise ValueError(
                "y must be a class number for a likelihood with columns; leave them out."
            )
        log_p, y = jax.nn.log_softmax(eta), jnp.asarray(y).astype(int)
        others = max(min(columns or 0, eta.size) - 2, 0)
        probable = jax.lax.top_k(log_p.at[y].set(-jnp.inf), others)[1]
        named = jnp.concatenate([y[None], probable])
        rest = jnp.ones(eta.size, bool).at[named].set(False)
        log_rest = jax.nn.logsumexp(jnp.where(rest, log_p, -jnp.inf))
        classes = jax.nn.one_hot(named, eta.size, dtype=eta.dtype)
        return (
            jnp.append(log_p[named], log_rest),
            jnp.concatenate([classes, among(eta, rest)[None]]),
            jnp.zeros(others + 2, eta.dtype).at[0].set(1.0),
        )

    outcomes = every if columns is None else few

    def factored(eta: Array, y: Array) -> tuple[Array, Array, Array]:
        """B, v, and the roots of the outcomes' probabilities."""
        log_p, classes, which = outcomes(eta, y)
        roots = jnp.exp(0.5 * jnp.maximum(log_p, LOWEST_LOG))
        return (classes - jax.nn.softmax(eta)).T * roots, which / roots - roots, roots

    def secant(eta: Array, y: Array) -> tuple[Array, Array]:
        (B, v, roots), s = factored(eta, y), target(eta, y) - jax.nn.softmax(eta)
        loss = -log_probability(eta, vector(eta, y))
        lacking = lacking_curvature(s @ s, loss, jnp.sum((s @ B) ** 2))
        return B + jnp.sqrt(lacking) * jnp.outer(s, roots), v

    def covariance(eta: Array) -> Array:
        p = jax.nn.softmax(eta)
        return jnp.diag(p) - jnp.outer(p, p)

    def support(y: Array, outputs: int) -> Array:
        if jnp.ndim(y):
            known = jnp.where(jnp.isnan(y), 0.0, y)
            total, whole = jnp.sum(known), ~jnp.any(jnp.isnan(y))
            return jnp.all(known >= 0) & (total < 1 + 1e-3) & (~whole | (total > 1 - 1e-3))
        return (y >= 0) & (y < outputs) & (y == jnp.round(y))

    number = "a class number from 0 to C−1 (−1 or NaN: missing)"
    return Likelihood(
        log_density=lambda eta, y: log_probability(eta, vector(eta, y)),
        score=lambda eta, y: target(eta, y) - jax.nn.softmax(eta),
        seen=lambda eta, y: factored(eta, y)[:2],
        secant=secant,
        mean=jax.nn.softmax,
        covariance=covariance,
        sample=lambda key, eta: jax.random.categorical(key, eta),
        missing=lambda y: all_nan(y) if jnp.ndim(y) else jnp.isnan(y) | (y == -1),
        support=support,
        target_shapes=lambda outputs: ((),) if columns else ((), (outputs,)),
        expects=number if columns else f"{number} or C probabilities",
        name="categorical",
        columns=columns,
    )
