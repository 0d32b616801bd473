"""What likelihoods of several kinds are made of."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp

from bayestream.types import Array, Key, Likelihood

# Square roots of probabilities are formed as exp(log p / 2) with log p held above this, so that
# 1/√p stays a normal float32; the Fisher information is off by at most e⁻¹⁰⁰.
LOWEST_LOG = -100.0


def lacking_curvature(square: Array, loss: Array, along: Array) -> Array:
    """How much of s sᵀ the Fisher information lacks for a Newton step not to overshoot.

    For a score s, `square` is |s|², `along` sᵀ I s with I the Fisher information, and `loss` what
    there is to gain: log p at its best less log p now. Along s it is all gained after about
    loss/|s|; a Newton step is that short if the curvature there is |s|²/loss. One nat is added, so
    that small errors, for which the Fisher information is right, are left to it.
    """
    return jnp.maximum(1 / (loss + 1.0) - along / jnp.maximum(square, 1e-12) ** 2, 0.0)


def independent(
    *,
    log_density: Callable[[Array, Array], Array],
    score: Callable[[Array, Array], Array],
    root: Callable[[Array], Array],
    mean: Callable[[Array], Array],
    variance: Callable[[Array], Array],
    sample: Callable[[Key, Array], Array],
    support: Callable[[Array], Array],
    expects: str,
    name: str,
    loss: Callable[[Array, Array], Array] | None = None,
) -> Likelihood:
    """Outputs that are independent given η: B = diag(root).

    All functions are of each output by itself. `loss` is log p(y) at its best less log p(y | η);
    None where the Fisher information does not vanish.
    """

    def of_seen(function: Callable[[Array, Array], Array], eta: Array, y: Array) -> Array:
        """Its value where y is seen, else zero; 0 is a possible y of every kind."""
        y = y.reshape(eta.shape)
        unseen = jnp.isnan(y)
        return jnp.where(unseen, 0.0, function(eta, jnp.where(unseen, 0.0, y)))

    def seen_score(eta: Array, y: Array) -> Array:
        return of_seen(score, eta, y)

    def seen(eta: Array, y: Array) -> tuple[Array, Array]:
        roots = of_seen(lambda eta, _: root(eta), eta, y)
        return jnp.diag(roots), seen_score(eta, y) / root(eta)

    def secant(eta: Array, y: Array) -> tuple[Array, Array]:
        s, roots = seen_score(eta, y), root(eta)
        if loss is not None:
            lacking = lacking_curvature(s**2, of_seen(loss, eta, y), (roots * s) ** 2)
            roots = jnp.sqrt(roots**2 + lacking * s**2)
        return jnp.diag(of_seen(lambda *_: roots, eta, y)), s / roots

    return Likelihood(
        log_density=lambda eta, y: jnp.sum(of_seen(log_density, eta, y)),
        score=seen_score,
        seen=seen,
        secant=secant,
        mean=mean,
        covariance=lambda eta: jnp.diag(variance(eta)),
        sample=sample,
        missing=all_nan,
        support=lambda y, outputs: jnp.all(jnp.isnan(y) | support(y)),
        target_shapes=vector_shapes,
        expects=expects,
        name=name,
    )


def any_nan(y: Array) -> Array:
    """A target that is seen as a whole or not at all is missing if any of its numbers is."""
    return jnp.any(jnp.isnan(y))


def all_nan(y: Array) -> Array:
    """A target of which a part may be seen is missing if all of its numbers are."""
    return jnp.all(jnp.isnan(y))


def no_infinity(y: Array, outputs: int) -> Array:
    """Any finite numbers are possible values, and NaN is one not seen."""
    return ~jnp.any(jnp.isinf(y))


def vector_shapes(outputs: int) -> tuple[tuple[int, ...], ...]:
    """One number an output; for one output, its axis may be left out."""
    return ((outputs,), ()) if outputs == 1 else ((outputs,),)
