"""Dense covariance: N(μ, Σ), in O(P²) memory."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve

from bayestream.gaussians.linalg import half_solve
from bayestream.networks import rows
from bayestream.networks.rows import Rows
from bayestream.types import Array, Key


class DenseGaussian(NamedTuple):
    """N(mean, covariance)."""

    mean: Array  # μ (P,)
    covariance: Array  # Σ (P, P)


def mean(belief: DenseGaussian) -> Array:
    """μ."""
    return belief.mean


def move(belief: DenseGaussian, mean: Array) -> DenseGaussian:
    """The same belief about another mean."""
    return belief._replace(mean=mean)


def propagate(belief: DenseGaussian, decay: Array, drift: Array) -> DenseGaussian:
    """θ ← γ θ + N(0, q I)."""
    covariance = decay**2 * belief.covariance + drift * _identity(belief)
    return DenseGaussian(decay * belief.mean, covariance)


def temper(belief: DenseGaussian, power: Array) -> DenseGaussian:
    """Σ⁻¹ ← power · Σ⁻¹."""
    return belief._replace(covariance=belief.covariance / power)


def add_precision(belief: DenseGaussian, amount: Array) -> DenseGaussian:
    """Σ⁻¹ ← Σ⁻¹ + amount · I, as Σ − a Σ (I + a Σ)⁻¹ Σ: O(P³), the one cubic step here."""
    root = jnp.linalg.cholesky(_identity(belief) + amount * belief.covariance)
    half = jnp.sqrt(amount) * half_solve(root, belief.covariance)
    return belief._replace(covariance=belief.covariance - half.T @ half)


def covariance_times(belief: DenseGaussian, vectors: Array) -> Array:
    """Σ v for v (P,) or for each row of (n, P)."""
    return vectors @ belief.covariance


def covariance_between(belief: DenseGaussian, J: Array) -> Array:
    """J Σ Jᵀ for rows J (n, P)."""
    return J @ belief.covariance @ J.T


def covariance_of(belief: DenseGaussian, G: Rows) -> Array:
    """Each example's own G Σ Gᵀ: (N, K, K)."""
    J = rows.to_dense(G).reshape(*G.deltas[0].shape[:2], -1)
    return jnp.einsum("nkp,pq,njq->nkj", J, belief.covariance, J)


def variance(belief: DenseGaussian) -> Array:
    """The diagonal of Σ."""
    return jnp.diagonal(belief.covariance)


def log_determinant(belief: DenseGaussian) -> Array:
    """Log |Σ|."""
    return 2 * jnp.sum(jnp.log(jnp.diagonal(jnp.linalg.cholesky(belief.covariance))))


def log_density(belief: DenseGaussian, params: Array) -> Array:
    """Log N(params | μ, Σ)."""
    distance = _mahalanobis(belief, params - belief.mean)
    size = belief.mean.size
    return -0.5 * (distance + log_determinant(belief) + size * jnp.log(2 * jnp.pi))


def kl(belief: DenseGaussian, other: DenseGaussian) -> Array:
    """KL(belief ‖ other)."""
    root = jnp.linalg.cholesky(other.covariance)
    spread = jnp.trace(cho_solve((root, True), belief.covariance))
    shift = _mahalanobis(other, belief.mean - other.mean)
    volume = log_determinant(other) - log_determinant(belief)
    return 0.5 * (spread + shift + volume - belief.mean.size)


def sample(belief: DenseGaussian, key: Key) -> Array:
    """One exact draw."""
    noise = jax.random.normal(key, belief.mean.shape, belief.mean.dtype)
    return belief.mean + jnp.linalg.cholesky(belief.covariance) @ noise


def to_dense(belief: DenseGaussian) -> DenseGaussian:
    """Itself."""
    return belief


def _mahalanobis(belief: DenseGaussian, offset: Array) -> Array:
    return jnp.sum(half_solve(jnp.linalg.cholesky(belief.covariance), offset) ** 2)


def _identity(belief: DenseGaussian) -> Array:
    return jnp.eye(belief.mean.size, dtype=belief.covariance.dtype)
