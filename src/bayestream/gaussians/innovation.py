"""What a conditioning learns of its observation from small matrices alone: whom to trust."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from bayestream.gaussians.linalg import cholesky_of_identity_plus, half_solve
from bayestream.types import Array


class Innovation(NamedTuple):
    """The error of a forecast, over the forecast's own covariance S = I + Gᵀ Σ G."""

    weights: Array  # w = S⁻¹ v (M,): the mean moves by Σ G w. NaN where nothing was learnt
    trust: Array  # W (N,), from 0 to 1: what each example's rows and residual were multiplied by


def measured(
    spread: Array,
    residual: Array,
    examples: int,
    threshold: float | None,
    *others: Array,
) -> tuple[Array, Array]:
    """The trust W (N,) in each example, and whether anything can be learnt from them at all.

    `spread` is Gᵀ Σ G (M, M). With a threshold c, W² = 1/(1 + e²/(c² V)), where e is the example's
    error and V its forecast's variance, both whitened, and e²/V is averaged over its rows
    (Duran-Martin et al. 2024, with V in place of R, so that a young belief, whose errors are
    rightly large, is not slowed). Without one, W = 1. Where a sum, also of `others`, comes near to
    overflow, nothing can be learnt, and W = 0.
    """
    limit = largest(residual.dtype)
    sums = (spread, residual**2, *others)
    sound = jnp.all(jnp.array([jnp.all(jnp.abs(each) < limit) for each in sums]))
    if threshold is None:
        return jnp.where(sound, jnp.ones(examples, residual.dtype), 0.0), sound
    v = jnp.where(sound, residual, 0.0).reshape(examples, -1)
    columns = v.shape[1]
    blocks = jnp.where(sound, spread, 0.0).reshape(examples, columns, examples, columns)
    own = blocks[jnp.arange(examples), :, jnp.arange(examples), :]
    white = jax.vmap(lambda S, e: half_solve(cholesky_of_identity_plus(S), e))(own, v)
    ratio = jnp.sum(white**2, axis=1) / columns / threshold**2
    return jnp.where(sound, 1 / jnp.sqrt(1 + ratio), 0.0), sound


def kept(residual: Array, innovation: Innovation, examples: int) -> Array:
    """How much of its error each example keeps after the update (N,), from 0 to 1.

    After it, S⁻¹ v is left of v. Along v that is the share v · S⁻¹ v/|v|²: for one output 1/S
    itself, whatever the error. Of several draws of an example, the average.
    """
    v = scaled(jnp.repeat(innovation.trust, residual.size // innovation.trust.size), residual)
    v, w = (part.reshape(innovation.trust.size, -1) for part in (v, innovation.weights))
    squares = jnp.sum(v**2, axis=1)
    share = jnp.sum(v * w, axis=1) / jnp.where(squares > 0, squares, 1.0)
    share = jnp.where((squares > 0) & jnp.isfinite(share), jnp.clip(share, 0.0, 1.0), 1.0)
    return jnp.mean(share.reshape(-1, examples), axis=0)


def scaled(trust: Array, values: Array) -> Array:
    """Values times their trust; zero where there is none, whatever they were."""
    return jnp.where(trust != 0, trust * values, 0.0)


def largest(dtype: jnp.dtype) -> float:
    """Sums of squares beyond this are refused; what is made of smaller ones does not overflow."""
    return float(jnp.finfo(dtype).max) ** 0.8
