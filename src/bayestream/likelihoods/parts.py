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
    support: Callable[[Array, int], Array],
    expects: str,
    name: str,
    loss: Callable[[Array, Array], Array] | None = None,
) -> Likelihood:
    """Outputs that are independent given η: B = diag(root).

    `loss` is each output's log p(y) at its best less log p(y | η); None where the Fisher
    information does not vanish.
    """

    def secant(eta: Array, y: Array) -> tuple[Array, Array]:
        y = y.reshape(eta.shape)
        s, roots = score(eta, y), root(eta)
        if loss is not None:
            lacking = lacking_curvature(s**2, loss(eta, y), (roots * s) ** 2)
            roots = jnp.sqrt(roots**2 + lacking * s**2)
        return jnp.diag(roots), s / roots

    return Likelihood(
        log_density=lambda eta, y: log_density(eta, y.reshape(eta.shape)),
        score=lambda eta, y: score(eta, y.reshape(eta.shape)),
        fisher_factor=lambda eta: jnp.diag(root(eta)),
        residual=lambda eta, y: score(eta, y.reshape(eta.shape)) / root(eta),
        secant=secant,
        mean=mean,
        covariance=lambda eta: jnp.diag(variance(eta)),
        sample=sample,
        missing=any_nan,
        support=support,
        target_shapes=vector_shapes,
        expects=expects,
        name=name,
    )


def any_nan(y: Array) -> Array:
    """A target is missing if any of its numbers is."""
    return jnp.any(jnp.isnan(y))


def all_finite(y: Array, outputs: int) -> Array:
    """Any finite numbers are possible values."""
    return jnp.all(jnp.isfinite(y))


def vector_shapes(outputs: int) -> tuple[tuple[int, ...], ...]:
    """One number an output; for one output, its axis may be left out."""
    return ((outputs,), ()) if outputs == 1 else ((outputs,),)
