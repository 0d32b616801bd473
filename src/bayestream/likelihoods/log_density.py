"""A likelihood of the user's own."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from bayestream.likelihoods.parts import LOWEST_LOG, any_nan, no_infinity, vector_shapes
from bayestream.types import Array, Likelihood


def from_log_density(
    log_density: Callable[[Array, Array], Array],
    *,
    mean: Callable[[Array], Array],
    fisher: Callable[[Array], Array] | None = None,
) -> Likelihood:
    """A likelihood from `log_density(η, y)` and `mean(η)` = E[y], both for one observation.

    Without `fisher`, the information is −∂²log p/∂η² at y = mean(η): exact for exponential
    families in their natural parameter. It must be positive definite; eigenvalues below 10⁻⁶ of
    the largest are raised to that, so that the score always lies in its range.

    >>> exponential = from_log_density(lambda eta, y: jnp.sum(eta - y * jnp.exp(eta)),
    ...                                mean=lambda eta: jnp.exp(-eta))
    >>> B, v = exponential.seen(jnp.zeros(1), jnp.zeros(1))
    >>> B.tolist(), v.tolist()
    ([[1.0]], [1.0])
    """
    hessian = jax.hessian(log_density)
    score = jax.grad(log_density)

    def roots(eta: Array) -> tuple[Array, Array]:
        """The square roots of the information's eigenvalues, and its eigenvectors."""
        information = fisher(eta) if fisher else -hessian(eta, mean(eta))
        values, vectors = jnp.linalg.eigh(information)
        lowest = jnp.maximum(1e-6 * values[-1], math.exp(LOWEST_LOG / 2))
        return jnp.sqrt(jnp.maximum(values, lowest)), vectors

    def seen(eta: Array, y: Array) -> tuple[Array, Array]:
        scales, vectors = roots(eta)
        return vectors * scales, (score(eta, y) @ vectors) / scales

    def refuse(*_: Any) -> Array:
        raise NotImplementedError(
            "a likelihood made by from_log_density knows its mean and density, "
            "not how to sample or its covariance; write a Likelihood if you need those."
        )

    return Likelihood(
        log_density=log_density,
        score=score,
        seen=seen,
        secant=seen,
        mean=mean,
        covariance=refuse,
        sample=refuse,
        missing=any_nan,
        support=no_infinity,
        target_shapes=vector_shapes,
        expects="finite numbers",
        name="from_log_density",
    )
