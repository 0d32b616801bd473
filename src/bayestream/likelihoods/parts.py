"""What likelihoods of several kinds are made of."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp

from bayestream.types import Array, Key, Likelihood

# Square roots of probabilities are formed as exp(log p / 2) with log p held above this, so that
# 1/√p stays a normal float32; the Fisher information is off by at most e⁻¹⁰⁰.
LOWEST_LOG = -100.0


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
) -> Likelihood:
    """Outputs that are independent given η: B = diag(root)."""
    return Likelihood(
        log_density=lambda eta, y: log_density(eta, y.reshape(eta.shape)),
        score=lambda eta, y: score(eta, y.reshape(eta.shape)),
        fisher_factor=lambda eta: jnp.diag(root(eta)),
        residual=lambda eta, y: score(eta, y.reshape(eta.shape)) / root(eta),
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
