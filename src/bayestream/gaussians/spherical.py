"""Spherical plus low-rank precision: N(μ, (η I + U Λ² Uᵀ)⁻¹) with orthonormal U."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from bayestream.gaussians import dense, dlr
from bayestream.gaussians.linalg import partway
from bayestream.networks import rows
from bayestream.networks.rows import Rows
from bayestream.networks.shards import total
from bayestream.types import Array, Key


class SphericalGaussian(NamedTuple):
    """N(mean, (η I + U Λ² Uᵀ)⁻¹); an unused direction has a zero scale and a zero row."""

    mean: Array  # μ (P,)
    precision: Array  # η ()
    scales: Array  # λ (L,)
    basis: Array  # Uᵀ (L, P), orthonormal rows


def mean(belief: SphericalGaussian) -> Array:
    """μ."""
    return belief.mean


def move(belief: SphericalGaussian, mean: Array) -> SphericalGaussian:
    """The same belief about another mean."""
    return belief._replace(mean=mean)


def retreat(belief: SphericalGaussian, origin: Array, fraction: Array) -> SphericalGaussian:
    """Of the way its mean has just come from `origin`, keep a fraction."""
    return belief._replace(mean=partway(origin, belief.mean, fraction))


def propagate(belief: SphericalGaussian, decay: Array, drift: Array) -> SphericalGaussian:
    """θ ← γ θ + N(0, q I) in O(P): only the mean and L + 1 numbers change."""
    mu, eta, scales, basis = belief
    spread = decay**2 + drift * eta
    squares = decay**2 * scales**2 / (spread * (spread + drift * scales**2))
    return SphericalGaussian(decay * mu, eta / spread, jnp.sqrt(squares), basis)


def temper(belief: SphericalGaussian, power: Array) -> SphericalGaussian:
    """Σ⁻¹ ← power · Σ⁻¹."""
    return belief._replace(
        precision=power * belief.precision, scales=jnp.sqrt(power) * belief.scales
    )


def add_precision(belief: SphericalGaussian, amount: Array) -> SphericalGaussian:
    """Σ⁻¹ ← Σ⁻¹ + amount · I."""
    return belief._replace(precision=belief.precision + amount)


def covariance_times(belief: SphericalGaussian, vectors: Array) -> Array:
    """Σ v for v (P,) or for each row of (n, P)."""
    return dlr.covariance_times(to_dlr(belief), vectors)


def covariance_between(belief: SphericalGaussian, J: Array) -> Array:
    """J Σ Jᵀ for rows J (n, P)."""
    return dlr.covariance_between(to_dlr(belief), J)


def covariance_of(belief: SphericalGaussian, G: Rows) -> Array:
    """Each example's own G Σ Gᵀ: (N, K, K)."""
    return total(rows.gram_of_each(G)) / belief.precision - dlr.narrowing_of(to_dlr(belief), G)


def variance(belief: SphericalGaussian) -> Array:
    """The diagonal of Σ."""
    return dlr.variance(to_dlr(belief))


def log_determinant(belief: SphericalGaussian) -> Array:
    """Log |Σ|."""
    return dlr.log_determinant(to_dlr(belief))


def log_density(belief: SphericalGaussian, params: Array) -> Array:
    """Log N(params | μ, Σ)."""
    return dlr.log_density(to_dlr(belief), params)


def kl(belief: SphericalGaussian, other: SphericalGaussian) -> Array:
    """KL(belief ‖ other)."""
    return dlr.kl(to_dlr(belief), to_dlr(other))


def sample(belief: SphericalGaussian, key: Key) -> Array:
    """One exact draw in O(P L)."""
    return dlr.sample(to_dlr(belief), key)


def to_dlr(belief: SphericalGaussian) -> dlr.DLRGaussian:
    """The same belief as diagonal plus low rank: Υ = η 1, W = U Λ."""
    diag = jnp.broadcast_to(belief.precision, belief.mean.shape)
    return dlr.DLRGaussian(belief.mean, diag, belief.scales[:, None] * belief.basis)


def to_dense(belief: SphericalGaussian) -> dense.DenseGaussian:
    """The same belief with its P×P covariance."""
    return dlr.to_dense(to_dlr(belief))
