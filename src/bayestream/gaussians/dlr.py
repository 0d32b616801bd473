"""Diagonal plus low-rank precision: N(μ, (diag Υ + W Wᵀ)⁻¹), in O(P L²)."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from bayestream.gaussians import dense
from bayestream.gaussians.linalg import (
    cholesky_of_identity_plus,
    half_solve,
    solve_identity_plus,
)
from bayestream.types import Array, Key


class DLRGaussian(NamedTuple):
    """N(mean, (diag(Υ) + W Wᵀ)⁻¹)."""

    mean: Array  # μ (P,)
    diag: Array  # Υ (P,), positive
    factor: Array  # Wᵀ (L, P): one row a direction, contiguous in P


def mean(belief: DLRGaussian) -> Array:
    """μ."""
    return belief.mean


def move(belief: DLRGaussian, mean: Array) -> DLRGaussian:
    """The same belief about another mean."""
    return belief._replace(mean=mean)


def propagate(belief: DLRGaussian, decay: Array, drift: Array) -> DLRGaussian:
    """θ ← γ θ + N(0, q I), exactly: the precision stays diagonal plus rank L."""
    mu, upsilon, W = belief
    diag = upsilon / (decay**2 + drift * upsilon)  # (γ² Υ⁻¹ + q I)⁻¹
    shrink = diag / upsilon
    # chol(C) for C = (I + q Wᵀ Υ_{t|t−1} Υ⁻¹ W)⁻¹: any root will do, so the inverse of a factor.
    factor = cholesky_of_identity_plus(drift * (W * shrink) @ W.T)
    return DLRGaussian(decay * mu, diag, decay * half_solve(factor, W * shrink))


def temper(belief: DLRGaussian, power: Array) -> DLRGaussian:
    """Σ⁻¹ ← power · Σ⁻¹."""
    return belief._replace(diag=power * belief.diag, factor=jnp.sqrt(power) * belief.factor)


def add_precision(belief: DLRGaussian, amount: Array) -> DLRGaussian:
    """Σ⁻¹ ← Σ⁻¹ + amount · I."""
    return belief._replace(diag=belief.diag + amount)


def expand(belief: DLRGaussian, rows: Array) -> DLRGaussian:
    """Σ⁻¹ ← Σ⁻¹ + G Gᵀ, exactly, at the price of more rank."""
    return belief._replace(factor=jnp.concatenate([belief.factor, rows]))


def truncate(belief: DLRGaussian, rank: int) -> DLRGaussian:
    """Keep the `rank` largest directions of W; the diagonal takes the squares of the rest.

    W is rotated by the eigenvectors of WᵀW, largest first. Nothing is divided by a singular
    value, so however small they are, diag(Σ⁻¹) stays exact to rounding.
    """
    mu, upsilon, W = belief
    _, V = jnp.linalg.eigh(W @ W.T)
    rotated = V[:, ::-1].T @ W
    return DLRGaussian(mu, upsilon + jnp.sum(rotated[rank:] ** 2, axis=0), rotated[:rank])


def covariance_times(belief: DLRGaussian, vectors: Array) -> Array:
    """Σ v by the Woodbury identity, for v (P,) or each row of (n, P)."""
    _, upsilon, W = belief
    scaled = W / upsilon
    return vectors / upsilon - _weights(belief, vectors) @ scaled


def covariance_between(belief: DLRGaussian, rows: Array) -> Array:
    """J Σ Jᵀ for rows J (n, P)."""
    return rows @ covariance_times(belief, rows).T


def variance(belief: DLRGaussian) -> Array:
    """The diagonal of Σ: 1/Υ less the squared rows of L⁻¹ Wᵀ Υ⁻¹."""
    _, upsilon, W = belief
    scaled = W / upsilon
    half = half_solve(cholesky_of_identity_plus(scaled @ W.T), scaled)
    return 1 / upsilon - jnp.sum(half**2, axis=0)


def log_determinant(belief: DLRGaussian) -> Array:
    """Log |Σ| = −Σ log Υ − log |I + Wᵀ Υ⁻¹ W|."""
    _, upsilon, W = belief
    factor = cholesky_of_identity_plus((W / upsilon) @ W.T)
    return -jnp.sum(jnp.log(upsilon)) - 2 * jnp.sum(jnp.log(jnp.diagonal(factor)))


def log_density(belief: DLRGaussian, params: Array) -> Array:
    """Log N(params | μ, Σ)."""
    distance = _mahalanobis(belief, params - belief.mean)
    size = belief.mean.size
    return -0.5 * (distance + log_determinant(belief) + size * jnp.log(2 * jnp.pi))


def kl(belief: DLRGaussian, other: DLRGaussian) -> Array:
    """KL(belief ‖ other) in O(P L²)."""
    spread = other.diag @ variance(belief)
    spread += jnp.trace(covariance_between(belief, other.factor))
    shift = _mahalanobis(other, belief.mean - other.mean)
    volume = log_determinant(other) - log_determinant(belief)
    return 0.5 * (spread + shift + volume - belief.mean.size)


def sample(belief: DLRGaussian, key: Key) -> Array:
    """One exact draw in O(P L): Σ (Υ^½ ε + W ξ) has covariance Σ Σ⁻¹ Σ = Σ."""
    mu, upsilon, W = belief
    key_diag, key_factor = jax.random.split(key)
    z = jnp.sqrt(upsilon) * jax.random.normal(key_diag, upsilon.shape, upsilon.dtype)
    z += jax.random.normal(key_factor, W.shape[:1], W.dtype) @ W
    return mu + covariance_times(belief, z)


def to_dense(belief: DLRGaussian) -> dense.DenseGaussian:
    """The same belief with its P×P covariance."""
    precision = jnp.diag(belief.diag) + belief.factor.T @ belief.factor
    return dense.DenseGaussian(belief.mean, jnp.linalg.inv(precision))


def _weights(belief: DLRGaussian, vectors: Array) -> Array:
    """(I + Wᵀ Υ⁻¹ W)⁻¹ Wᵀ Υ⁻¹ v, for v (P,) or each row of (n, P)."""
    _, upsilon, W = belief
    scaled = W / upsilon
    return solve_identity_plus(scaled @ W.T, scaled @ vectors.T).T


def _mahalanobis(belief: DLRGaussian, offset: Array) -> Array:
    return belief.diag @ offset**2 + jnp.sum((belief.factor @ offset) ** 2)
