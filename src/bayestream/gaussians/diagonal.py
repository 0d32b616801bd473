"""Diagonal precision: N(μ, diag(Υ)⁻¹), in O(P)."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from bayestream.gaussians import dense, kernels
from bayestream.gaussians.innovation import Innovation, measured, scaled
from bayestream.gaussians.linalg import inverse_of_identity_plus, partway
from bayestream.networks import rows
from bayestream.networks.rows import Rows
from bayestream.networks.shards import own, total
from bayestream.types import Array, Key


class DiagonalGaussian(NamedTuple):
    """N(mean, diag(Υ)⁻¹)."""

    mean: Array  # μ (P,)
    diag: Array  # Υ (P,), positive


def mean(belief: DiagonalGaussian) -> Array:
    """μ."""
    return belief.mean


def move(belief: DiagonalGaussian, mean: Array) -> DiagonalGaussian:
    """The same belief about another mean."""
    return belief._replace(mean=mean)


def retreat(belief: DiagonalGaussian, origin: Array, fraction: Array) -> DiagonalGaussian:
    """Of the way its mean has just come from `origin`, keep a fraction."""
    return belief._replace(mean=partway(origin, belief.mean, fraction))


def propagate(belief: DiagonalGaussian, decay: Array, drift: Array) -> DiagonalGaussian:
    """θ ← γ θ + N(0, q I)."""
    diag = belief.diag / (decay**2 + drift * belief.diag)
    return DiagonalGaussian(decay * belief.mean, diag)


def temper(belief: DiagonalGaussian, power: Array) -> DiagonalGaussian:
    """Σ⁻¹ ← power · Σ⁻¹."""
    return belief._replace(diag=power * belief.diag)


def add_precision(belief: DiagonalGaussian, amount: Array) -> DiagonalGaussian:
    """Σ⁻¹ ← Σ⁻¹ + amount · I."""
    return belief._replace(diag=belief.diag + amount)


def condition_precision(
    belief: DiagonalGaussian, G: Rows, residual: Array, threshold: float | None = None
) -> tuple[DiagonalGaussian, Innovation]:
    """Condition on unit-noise observations, then keep the diagonal of Σ⁻¹.

    With a threshold, G and v are first weighed by `innovation.measured`; so below.
    """
    return kernels.chosen(_plain_precision, _native_precision)(belief, G, residual, threshold)


def condition_variance(
    belief: DiagonalGaussian, G: Rows, residual: Array, threshold: float | None = None
) -> tuple[DiagonalGaussian, Innovation]:
    """Condition on unit-noise observations, then keep the diagonal of Σ."""
    return kernels.chosen(_plain_variance, _native_variance)(belief, G, residual, threshold)


def covariance_times(belief: DiagonalGaussian, vectors: Array) -> Array:
    """Σ v for v (P,) or for each row of (n, P)."""
    return vectors / belief.diag


def covariance_between(belief: DiagonalGaussian, J: Array) -> Array:
    """J Σ Jᵀ for rows J (n, P)."""
    return total((J / belief.diag) @ J.T)


def covariance_of(belief: DiagonalGaussian, G: Rows) -> Array:
    """Each example's own G Σ Gᵀ: (N, K, K)."""
    return total(rows.gram_of_each(G, 1 / belief.diag))


def variance(belief: DiagonalGaussian) -> Array:
    """The diagonal of Σ."""
    return 1 / belief.diag


def log_determinant(belief: DiagonalGaussian) -> Array:
    """Log |Σ|."""
    return -jnp.sum(jnp.log(belief.diag))


def log_density(belief: DiagonalGaussian, params: Array) -> Array:
    """Log N(params | μ, Σ)."""
    distance = belief.diag @ (params - belief.mean) ** 2
    size = belief.mean.size
    return -0.5 * (distance + log_determinant(belief) + size * jnp.log(2 * jnp.pi))


def kl(belief: DiagonalGaussian, other: DiagonalGaussian) -> Array:
    """KL(belief ‖ other)."""
    ratio = other.diag / belief.diag
    shift = other.diag * (belief.mean - other.mean) ** 2
    return 0.5 * jnp.sum(ratio + shift - 1 - jnp.log(ratio))


def sample(belief: DiagonalGaussian, key: Key) -> Array:
    """One exact draw."""
    noise = jax.random.normal(own(key), belief.mean.shape, belief.mean.dtype)
    return belief.mean + noise / jnp.sqrt(belief.diag)


def to_dense(belief: DiagonalGaussian) -> dense.DenseGaussian:
    """The same belief with its P×P covariance."""
    return dense.DenseGaussian(belief.mean, jnp.diag(1 / belief.diag))


def _gain(
    belief: DiagonalGaussian, G: Rows, residual: Array, threshold: float | None
) -> tuple[Rows, Array, Innovation, Array]:
    """G as it is trusted, S⁻¹, and how far the mean moves."""
    squares = total(rows.gram_of_each(G))
    spread = total(rows.gram(G, 1 / belief.diag))
    trust, sound = measured(spread, residual, len(squares), threshold, squares)
    each = jnp.repeat(trust, residual.size // trust.size)
    inverse = inverse_of_identity_plus(scaled(each[:, None] * each, spread))
    trusted, weights = rows.weighted(G, trust), inverse @ scaled(each, residual)
    innovation = Innovation(jnp.where(sound, weights, jnp.nan), trust)
    return trusted, inverse, innovation, rows.combine(trusted, weights) / belief.diag


def _plain_precision(
    belief: DiagonalGaussian, G: Rows, residual: Array, threshold: float | None
) -> tuple[DiagonalGaussian, Innovation]:
    mu, upsilon = belief
    trusted, _, innovation, step = _gain(belief, G, residual, threshold)
    return DiagonalGaussian(mu + step, upsilon + rows.squares(trusted)), innovation


def _plain_variance(
    belief: DiagonalGaussian, G: Rows, residual: Array, threshold: float | None
) -> tuple[DiagonalGaussian, Innovation]:
    mu, upsilon = belief
    trusted, inverse, innovation, step = _gain(belief, G, residual, threshold)
    # The share of a weight's variance that is left lies in (0, 1]; rounding may say 0.
    left = 1 - rows.diagonal(trusted, inverse) / upsilon
    diag = upsilon / jnp.maximum(left, jnp.finfo(left.dtype).eps)
    return DiagonalGaussian(mu + step, diag), innovation


def _native(
    belief: DiagonalGaussian,
    G: Rows,
    residual: Array,
    threshold: float | None,
    *,
    keeps_variance: bool,
) -> tuple[DiagonalGaussian, Innovation]:
    mean, diag, *innovation = kernels.diagonal_condition(
        *belief, G, residual, threshold, keeps_variance=keeps_variance
    )
    return DiagonalGaussian(mean, diag), Innovation(*innovation)


_native_precision = partial(_native, keeps_variance=False)
_native_variance = partial(_native, keeps_variance=True)
