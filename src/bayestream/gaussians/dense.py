"""Dense covariance: N(μ, Σ), in O(P²) memory."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve, solve_triangular

from bayestream.gaussians.innovation import Innovation, measured, scaled
from bayestream.gaussians.linalg import cholesky_of_identity_plus, half_solve, partway
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


def retreat(belief: DenseGaussian, origin: Array, fraction: Array) -> DenseGaussian:
    """Of the way its mean has just come from `origin`, keep a fraction."""
    return belief._replace(mean=partway(origin, belief.mean, fraction))


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


def condition(
    belief: DenseGaussian, G: Rows, residual: Array, threshold: float | None = None
) -> tuple[DenseGaussian, Innovation]:
    """Condition on unit-noise observations: μ ← μ + Σ G S⁻¹ v, Σ ← Σ − Σ G S⁻¹ Gᵀ Σ.

    S = I + Gᵀ Σ G. With a threshold, G and v are first weighed by `innovation.measured`. Variances
    are rounded up, in S and in Σ, where rounding would make Σ indefinite.
    """
    examples = len(G.deltas[0])
    J = rows.to_dense(G)  # Gᵀ (M, P), small beside the covariance
    cross = J @ belief.covariance  # Gᵀ Σ
    trust, sound = measured(cross @ J.T, residual, examples, threshold, J**2)
    each = jnp.repeat(trust, residual.size // examples)
    cross, weighed = (scaled(each[:, None], part) for part in (cross, J))
    spread = cross @ weighed.T
    need = rounding_need(belief.covariance, weighed, spread)
    root = cholesky_of_identity_plus(spread + need * jnp.diag(_rounding(spread)))
    half = half_solve(root, cross)
    white = half_solve(root, scaled(each, residual))
    weights = solve_triangular(root, white, lower=True, trans=1)
    covariance = less_outer_products(belief.covariance, half, need)
    belief = DenseGaussian(belief.mean + white @ half, covariance)
    return belief, Innovation(jnp.where(sound, weights, jnp.nan), trust)


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


def rounding_need(covariance: Array, J: Array, spread: Array) -> Array:
    """How far an update by rows J, with `spread` = J Σ Jᵀ, has to fear rounding: from 0 to 1.

    1 where a forecast keeps a variance that is not a hundred times what rounds off it: then Σ
    would become indefinite in the end, if variances were not rounded up.
    """
    seen = jnp.maximum(jnp.diagonal(spread), jnp.finfo(spread.dtype).tiny)
    rounding = jnp.finfo(spread.dtype).eps * (J**2 @ jnp.diagonal(covariance))
    share = rounding / (seen / (1 + seen))
    return jnp.minimum(100 * jnp.max(share, initial=0.0), 1.0)


def less_outer_products(covariance: Array, half: Array, need: Array) -> Array:
    """Σ − halfᵀ half, its variances rounded up as far as there is need: `rounding_need`.

    A few rows at a time fuse into one pass over Σ, without a P×P product.
    """
    # By as much as rounds off the covariances. None is raised above what it was.
    lift = jnp.minimum(need * len(half) * _rounding(covariance), jnp.sum(half**2, axis=0))
    if len(half) > _FUSED:
        covariance = covariance - half.T @ half
    else:
        for row in half:
            covariance = covariance - row[:, None] * row[None, :]
    return covariance + jnp.diag(lift)


def _rounding(matrix: Array) -> Array:
    return 8 * jnp.finfo(matrix.dtype).eps * jnp.diagonal(matrix)


_FUSED = 16
