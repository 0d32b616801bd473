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
from bayestream.likelihoods.parts import all_finite, any_nan, vector_shapes
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

    def factor(eta: Array) -> Array:  # B, with B Bᵀ = R⁻¹
        R = jnp.asarray(noise, eta.dtype)
        if matrix:
            identity = jnp.eye(eta.shape[-1], dtype=eta.dtype)
            return solve_triangular(jnp.linalg.cholesky(R), identity, lower=True).T
        return jnp.diag(jnp.broadcast_to(1 / jnp.sqrt(R), eta.shape))

    def covariance(eta: Array) -> Array:
        R = jnp.asarray(noise, eta.dtype)
        return R if matrix else jnp.diag(jnp.broadcast_to(R, eta.shape))

    def residual(eta: Array, y: Array) -> Array:
        return (y.reshape(eta.shape) - eta) @ factor(eta)

    def log_density(eta: Array, y: Array) -> Array:
        B = factor(eta)
        log_normaliser = jnp.sum(jnp.log(jnp.diag(B))) - 0.5 * eta.size * jnp.log(2 * jnp.pi)
        return log_normaliser - 0.5 * jnp.sum(residual(eta, y) ** 2)

    def sample(key: Key, eta: Array) -> Array:
        R_root = jnp.linalg.cholesky(covariance(eta))
        return eta + R_root @ jax.random.normal(key, eta.shape, eta.dtype)

    return Likelihood(
        log_density=log_density,
        score=lambda eta, y: factor(eta) @ residual(eta, y),
        fisher_factor=factor,
        residual=residual,
        secant=lambda eta, y: (factor(eta), residual(eta, y)),
        mean=lambda eta: eta,
        covariance=covariance,
        sample=sample,
        missing=any_nan,
        support=all_finite,
        target_shapes=vector_shapes,
        expects="finite numbers",
        name="gaussian",
    )
