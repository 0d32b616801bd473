"""Diagonal plus low-rank precision: N(μ, (diag Υ + W Wᵀ)⁻¹), in O(P L²)."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular

from bayestream.gaussians import dense
from bayestream.gaussians.innovation import Innovation, measured, scaled
from bayestream.gaussians.linalg import (
    cholesky_of_identity_plus,
    directions,
    half_solve,
    partway,
    solve_identity_plus,
)
from bayestream.networks import rows
from bayestream.networks.products import products
from bayestream.networks.rows import Rows
from bayestream.networks.shards import own, total
from bayestream.types import Array, Key


class DLRGaussian(NamedTuple):
    """N(mean, (diag(Υ) + W Wᵀ)⁻¹)."""

    mean: Array  # μ (P,)
    diag: Array  # Υ (P,), positive
    factor: Array  # Wᵀ (L, P): one row a direction, contiguous in P


def start(mean: Array, precision: Array, rank: int) -> DLRGaussian:
    """N(mean, I/precision), with room for `rank` directions."""
    factor = jnp.zeros((rank, mean.size), mean.dtype)
    return DLRGaussian(mean, jnp.full_like(mean, precision), factor)


def mean(belief: DLRGaussian) -> Array:
    """μ."""
    return belief.mean


def move(belief: DLRGaussian, mean: Array) -> DLRGaussian:
    """The same belief about another mean."""
    return belief._replace(mean=mean)


def retreat(belief: DLRGaussian, origin: Array, fraction: Array) -> DLRGaussian:
    """Of the way its mean has just come from `origin`, keep a fraction."""
    return belief._replace(mean=partway(origin, belief.mean, fraction))


def propagate(belief: DLRGaussian, decay: Array, drift: Array) -> DLRGaussian:
    """θ ← γ θ + N(0, q I), exactly: the precision stays diagonal plus rank L (Algorithm 2)."""
    mu, upsilon, W = belief
    diag = upsilon / (decay**2 + drift * upsilon)  # (γ² Υ⁻¹ + q I)⁻¹
    shrink = diag / upsilon
    # chol(C) for C = (I + q Wᵀ Υ_{t|t−1} Υ⁻¹ W)⁻¹: any root will do, so the inverse of a factor.
    factor = cholesky_of_identity_plus(drift * total((W * shrink) @ W.T))
    return DLRGaussian(decay * mu, diag, decay * half_solve(factor, W * shrink))


def temper(belief: DLRGaussian, power: Array) -> DLRGaussian:
    """Σ⁻¹ ← power · Σ⁻¹."""
    return belief._replace(diag=power * belief.diag, factor=jnp.sqrt(power) * belief.factor)


def add_precision(belief: DLRGaussian, amount: Array) -> DLRGaussian:
    """Σ⁻¹ ← Σ⁻¹ + amount · I."""
    return belief._replace(diag=belief.diag + amount)


def condition(
    belief: DLRGaussian, G: Rows, residual: Array, threshold: float | None = None
) -> tuple[DLRGaussian, Innovation]:
    """Condition on unit-noise observations with Jacobian Gᵀ and residual v, keeping the rank.

    Algorithm 3 of the paper. The precision gains G Gᵀ; W̃ = [W, G] is rotated by the eigenvectors
    of W̃ᵀW̃, largest first, the first L columns stay, and the diagonal takes the squares of the
    rest. Nothing is divided by a singular value, so however small they are, diag(Σ⁻¹) stays exact.
    With a threshold, G and v are first weighed by `innovation.measured`.
    """
    mu, upsilon, W = belief
    rank = len(W)
    # Lines 7–10.
    trusted, weights, innovation = gain(W, upsilon, G, residual, threshold)
    mu = mu + mix(W, trusted, weights) / upsilon
    # Lines 11–16.
    V = directions(joint_gram(W, trusted))

    def drop(direction: int, diag: Array) -> Array:  # one at a time: together they would be P × M
        return diag + mix(W, trusted, V[direction]) ** 2

    upsilon = jax.lax.fori_loop(rank, len(V), drop, upsilon)
    return DLRGaussian(mu, upsilon, mix(W, trusted, V[:rank])), innovation


def gain(
    factor: Array, diag: Array, G: Rows, residual: Array, threshold: float | None
) -> tuple[Rows, Array, Innovation]:
    """G as it is trusted, and u (L + M,) such that the mean moves by Υ⁻¹ W̃ u.

    Since (Υ + W̃W̃ᵀ)⁻¹ W̃ = Υ⁻¹ W̃ (I + W̃ᵀΥ⁻¹W̃)⁻¹, the gain times the error needs no difference of
    large numbers: G v is W̃ [0; v].
    """
    rank = len(factor)
    gram = joint_gram(factor, G, 1 / diag)
    half = half_solve(cholesky_of_identity_plus(gram[:rank, :rank]), gram[:rank, rank:])
    spread = gram[rank:, rank:] - half.T @ half  # Gᵀ Σ G
    squares = total(rows.gram_of_each(G))
    trust, sound = measured(spread, residual, len(squares), threshold, gram, squares)
    each = jnp.repeat(trust, residual.size // trust.size)
    scales = jnp.concatenate([jnp.ones_like(residual, shape=rank), each])
    v = jnp.concatenate([jnp.zeros_like(residual, shape=rank), scaled(each, residual)])
    weights = solve_identity_plus(scaled(scales[:, None] * scales, gram), v)
    innovation = Innovation(jnp.where(sound, weights[rank:], jnp.nan), trust)
    return rows.weighted(G, trust), weights, innovation


def joint_gram(factor: Array, G: Rows, weights: Array | None = None) -> Array:
    """W̃ᵀ diag(w) W̃ for W̃ = [W, G], without writing G out: (L + M, L + M)."""
    weighted = factor if weights is None else factor * weights
    cross = rows.times(G, weighted)
    return total(jnp.block([[weighted @ factor.T, cross], [cross.T, rows.gram(G, weights)]]))


def mix(factor: Array, G: Rows, weights: Array) -> Array:
    """W̃ u for W̃ = [W, G] and each of the weights u (…, L + M): (…, P)."""
    rank = len(factor)
    return weights[..., :rank] @ factor + rows.combine(G, weights[..., rank:])


def covariance_times(belief: DLRGaussian, vectors: Array) -> Array:
    """Σ v by the Woodbury identity, for v (P,) or each row of (n, P)."""
    return _spread(belief, vectors)[0]


def covariance_between(belief: DLRGaussian, J: Array) -> Array:
    """J Σ Jᵀ for rows J (n, P), as Σ = Σ Υ Σ + (Wᵀ Σ)ᵀ (Wᵀ Σ): positive, also where Σ J cancels."""
    spread, weights = _spread(belief, J)
    return total((spread * belief.diag) @ spread.T) + weights @ weights.T


def covariance_of(belief: DLRGaussian, G: Rows) -> Array:
    """Each example's own G Σ Gᵀ: (N, K, K)."""
    return total(rows.gram_of_each(G, 1 / belief.diag)) - narrowing_of(belief, G)


def narrowing_of(belief: DLRGaussian, G: Rows) -> Array:
    """What W takes off each example's own G Υ⁻¹ Gᵀ: (N, K, K), the squares of L⁻¹ Wᵀ Υ⁻¹ Gᵀ."""
    _, upsilon, W = belief
    gram, across = total(products(W, W, 1 / upsilon)), total(rows.times(G, W / upsilon))
    half = half_solve(cholesky_of_identity_plus(gram), across)
    half = half.reshape(len(W), *G.deltas[0].shape[:2])
    return jnp.einsum("lnk,lnj->nkj", half, half)


def variance(belief: DLRGaussian) -> Array:
    """The diagonal of Σ: 1/Υ less the squared rows of L⁻¹ Wᵀ Υ⁻¹.

    Where that cancels, Σ = Σ Υ Σ + (Wᵀ Σ)ᵀ (Wᵀ Σ) says it is at least the second term's.
    """
    _, upsilon, W = belief
    scaled = W / upsilon
    root = cholesky_of_identity_plus(total(scaled @ W.T))
    half = half_solve(root, scaled)
    weights = solve_triangular(root, half, lower=True, trans=1)
    return jnp.maximum(1 / upsilon - jnp.sum(half**2, axis=0), jnp.sum(weights**2, axis=0))


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
    """One exact draw: Σ (Υ^½ ε + W ξ) has covariance Σ Σ⁻¹ Σ = Σ.

    Written out, with S = Wᵀ Υ⁻¹ W, it is Υ^−½ ε + Υ⁻¹ W (I + S)⁻¹ (ξ − Wᵀ Υ^−½ ε).
    """
    mu, upsilon, W = belief
    key_diag, key_factor = jax.random.split(key)
    z = jnp.sqrt(upsilon) * jax.random.normal(own(key_diag), upsilon.shape, upsilon.dtype)
    xi = jax.random.normal(key_factor, W.shape[:1], W.dtype)
    gram = total(products(W, W, 1 / upsilon))
    across = total(products(W, z[None], 1 / upsilon))
    return mu + (z + solve_identity_plus(gram, xi - across[:, 0]) @ W) / upsilon


def to_dense(belief: DLRGaussian) -> dense.DenseGaussian:
    """The same belief with its P×P covariance."""
    precision = jnp.diag(belief.diag) + belief.factor.T @ belief.factor
    return dense.DenseGaussian(belief.mean, jnp.linalg.inv(precision))


def _spread(belief: DLRGaussian, vectors: Array) -> tuple[Array, Array]:
    """Σ v and Wᵀ Σ v = (I + Wᵀ Υ⁻¹ W)⁻¹ Wᵀ Υ⁻¹ v, for v (P,) or each row of (n, P)."""
    _, upsilon, W = belief
    across = total(products(W, jnp.atleast_2d(vectors), 1 / upsilon))
    weights = solve_identity_plus(total(products(W, W, 1 / upsilon)), across).T
    weights = weights.reshape(*vectors.shape[:-1], len(W))
    return (vectors - weights @ W) / upsilon, weights


def _mahalanobis(belief: DLRGaussian, offset: Array) -> Array:
    return belief.diag @ offset**2 + jnp.sum((belief.factor @ offset) ** 2)
