"""Numbers with Gaussian noise that is known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from numpy.typing import NDArray

from bayestream.checks import check_covariance
from bayestream.likelihoods.evolving import Kind
from bayestream.likelihoods.parts import all_nan, no_infinity, vector_shapes
from bayestream.types import Array, EvolvingLikelihood, Key, Likelihood, Schedule


@overload
def gaussian(noise: Schedule) -> EvolvingLikelihood: ...
@overload
def gaussian(noise: float | Sequence[Any] | Array | NDArray[Any]) -> Likelihood: ...
def gaussian(noise: Any) -> Likelihood | EvolvingLikelihood:
    """Y = η + N(0, R); `noise` is R: a variance, a vector of variances, a matrix, or a schedule.

    B = chol(R⁻¹), v = Bᵀ(y − η), score = R⁻¹(y − η).

    >>> likelihood = gaussian(0.25)
    >>> likelihood.score(jnp.array([1.0]), jnp.array([2.0])).tolist()
    [4.0]
    """
    if callable(noise):
        return EvolvingLikelihood(
            init=lambda outputs, dtype: Kind("gaussian"),
            at=lambda carry, step: gaussian_of(jnp.asarray(noise(step))),
            adapt=lambda carry, eta, y, trust, kept=1.0: carry,
        )
    return gaussian_of(check_covariance("noise", noise))


def gaussian_of(noise: Any) -> Likelihood:
    """Gaussian with R given as a scalar, vector or matrix, possibly traced."""
    matrix = jnp.ndim(noise) == 2

    def inverse_root(R: Array) -> Array:  # B, with B Bᵀ = R⁻¹
        if matrix:
            identity = jnp.eye(len(R), dtype=R.dtype)
            return solve_triangular(jnp.linalg.cholesky(R), identity, lower=True).T
        return jnp.diag(1 / jnp.sqrt(jnp.diag(R)))

    def covariance(eta: Array) -> Array:
        R = jnp.asarray(noise, eta.dtype)
        return R if matrix else jnp.diag(jnp.broadcast_to(R, eta.shape))

    def seen(eta: Array, y: Array) -> tuple[Array, Array]:
        known = ~jnp.isnan(y.reshape(eta.shape))
        B = jnp.where(known[:, None], inverse_root(of_known(covariance(eta), known)), 0.0)
        return B, jnp.where(known, y.reshape(eta.shape) - eta, 0.0) @ B

    def log_density(eta: Array, y: Array) -> Array:
        B, v = seen(eta, y)
        known = ~jnp.isnan(y.reshape(eta.shape))
        log_peaks = jnp.log(jnp.where(known, jnp.diag(B), 1.0)) - 0.5 * jnp.log(2 * jnp.pi)
        return jnp.sum(jnp.where(known, log_peaks, 0.0)) - 0.5 * jnp.sum(v**2)

    def score(eta: Array, y: Array) -> Array:
        B, v = seen(eta, y)
        return B @ v

    def sample(key: Key, eta: Array) -> Array:
        R_root = jnp.linalg.cholesky(covariance(eta))
        return eta + R_root @ jax.random.normal(key, eta.shape, eta.dtype)

    return Likelihood(
        log_density=log_density,
        score=score,
        seen=seen,
        secant=seen,
        mean=lambda eta: eta,
        covariance=covariance,
        sample=sample,
        missing=all_nan,
        support=no_infinity,
        target_shapes=vector_shapes,
        expects="finite numbers",
        name="gaussian",
    )


def of_known(covariance: Array, known: Array) -> Array:
    """A covariance (…, C, C) where what is not known is apart from the rest, with variance 1."""
    both = known[..., :, None] & known[..., None, :]
    return jnp.where(both, covariance, jnp.eye(known.shape[-1], dtype=covariance.dtype))
