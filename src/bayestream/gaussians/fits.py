"""Fitting a diagonal plus low-rank precision to one of higher rank, in O(P (L + M)²) a sweep.

The target is Σ*⁻¹ = Υ* + W Wᵀ + G Gᵀ: a belief of rank L with M new rows. With Σ the fit's
covariance, the reverse divergence is KL(N(μ, Σ) ‖ N(μ, Σ*)), the forward one its mirror image. No
sweep here ever raises the divergence it is for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from bayestream.checks import check_whole
from bayestream.gaussians import dlr, kernels
from bayestream.gaussians.dlr import DLRGaussian
from bayestream.gaussians.linalg import (
    cholesky_of_identity_plus,
    half_solve,
    inverse_of_identity_plus,
)
from bayestream.networks import rows
from bayestream.networks.rows import Rows
from bayestream.networks.shards import total
from bayestream.types import Array


class Target(NamedTuple):
    """The precision diag(Υ*) + W̃ W̃ᵀ."""

    diag: Array  # Υ* (P,)
    factor: Array  # W̃ᵀ (L + M, P)


_LEAST = 1e-3

# (the belief to mend, the target) → the belief with another diagonal
DiagonalUpdate = Callable[[DLRGaussian, Target], DLRGaussian]


def target(belief: DLRGaussian, G: Rows) -> Target:
    """What a belief becomes when it is conditioned on rows G and nothing is dropped."""
    return Target(belief.diag, jnp.concatenate([belief.factor, rows.to_dense(G)]))


def factor_analysis(fit: DLRGaussian, goal: Target, *, sweeps: int) -> DLRGaussian:
    """EM for factor analysis, with the target precision in the place of a sample covariance S.

    With M = I + Wᵀ Ψ⁻¹ W and β = M⁻¹ Wᵀ Ψ⁻¹:  W ← S βᵀ (M⁻¹ + β S βᵀ)⁻¹,  Ψ ← diag(S − W β S).
    It descends the reverse divergence over both W and Ψ. With M = R Rᵀ and B = R⁻¹ Wᵀ Ψ⁻¹ that is
    Wᵀ ← R V for V = (I + B S Bᵀ)⁻¹ B S, and the diagonal, (I − W β) S (I − W β)ᵀ + W M⁻¹ Wᵀ, a sum
    of squares: of the target's columns less what V explains of them, and of V.
    """
    sweep = kernels.chosen(_plain_sweep, _native_sweep)
    return jax.lax.fori_loop(0, sweeps, lambda _, fit: sweep(fit, goal), fit)


def forward_kl(*, sweeps: int = 10) -> DiagonalUpdate:
    """Υ that minimises KL(N(μ, Σ*) ‖ N(μ, Σ)): at the end diag(Σ) = diag(Σ*), if Υ > 0 can do it.

    Υ ← Υ · diag(Σ)/diag(Σ*). In log Υ the divergence is a sum of exponentials and a concave
    function; each sweep minimises it with the concave part replaced by its tangent.

    >>> import bayestream as bs
    >>> learner = bs.lofi(bs.models.mlp([2, 8, 1]), bs.likelihoods.gaussian(0.1), rank=3,
    ...                   diagonal_update=bs.estimators.forward_kl(sweeps=5))
    """
    check_whole("sweeps", sweeps, 0)

    def update(fit: DLRGaussian, goal: Target) -> DLRGaussian:
        wanted = dlr.variance(DLRGaussian(fit.mean, goal.diag, goal.factor))

        def sweep(_: int, fit: DLRGaussian) -> DLRGaussian:
            return _with_diag(fit, goal, fit.diag * dlr.variance(fit) / wanted)

        return jax.lax.fori_loop(0, sweeps, sweep, fit)

    return update


def reverse_kl(*, sweeps: int = 10) -> DiagonalUpdate:
    """Υ that minimises KL(N(μ, Σ) ‖ N(μ, Σ*)): at the end diag(Σ − Σ Σ*⁻¹ Σ) = 0.

    Υ ← Υ · √(diag(Σ Σ*⁻¹ Σ)/diag(Σ)): each sweep minimises a bound on the divergence, separable in
    Υ and tight where it stands.

    >>> import bayestream as bs
    >>> learner = bs.lofi(bs.models.mlp([2, 8, 1]), bs.likelihoods.gaussian(0.1), rank=3,
    ...                   diagonal_update=bs.estimators.reverse_kl(sweeps=5))
    """
    check_whole("sweeps", sweeps, 0)

    def update(fit: DLRGaussian, goal: Target) -> DLRGaussian:
        def sweep(_: int, fit: DLRGaussian) -> DLRGaussian:
            sandwich = _diagonal_of_sandwich(fit, goal)
            return _with_diag(fit, goal, fit.diag * jnp.sqrt(sandwich / dlr.variance(fit)))

        return jax.lax.fori_loop(0, sweeps, sweep, fit)

    return update


def _plain_sweep(fit: DLRGaussian, goal: Target) -> DLRGaussian:
    mu, psi, before = fit
    scaled = before / psi
    root = cholesky_of_identity_plus(scaled @ before.T)
    # R⁻¹ is made first: to solve with a right-hand side for each weight takes three times as long.
    B = half_solve(root, jnp.eye(len(root), dtype=root.dtype)) @ scaled
    shared = goal.factor @ B.T  # W̃ᵀ Bᵀ (L + M, L)
    from_diag = (B * goal.diag) @ B.T
    inverse = inverse_of_identity_plus(shared.T @ shared + from_diag)
    V = inverse @ (shared.T @ goal.factor + B * goal.diag)
    explained = jnp.sum(V * B, axis=0)  # diag(W β)
    diag = (1 - 2 * explained) * goal.diag + _quadratic(from_diag, V)
    diag = jnp.maximum(diag, (1 - explained) ** 2 * goal.diag)  # a term of its sum of squares
    diag += jnp.sum((goal.factor - shared @ V) ** 2, axis=0) + jnp.sum(V**2, axis=0)
    return DLRGaussian(mu, diag, root @ V)


def _native_sweep(fit: DLRGaussian, goal: Target) -> DLRGaussian:
    return DLRGaussian(fit.mean, *kernels.factor_analysis(fit.diag, fit.factor, *goal))


def _with_diag(fit: DLRGaussian, goal: Target, diag: Array) -> DLRGaussian:
    """The fit with that diagonal, held above a fraction of the target's.

    Under a weak prior the best Υ of a parameter may be zero or less, which is no belief. What a
    sweep minimises is convex in each Υ, so stopping at a bound still never raises the divergence.
    """
    return fit._replace(diag=jnp.maximum(diag, _LEAST * goal.diag))


def _diagonal_of_sandwich(fit: DLRGaussian, goal: Target) -> Array:
    """diag(Σ Σ*⁻¹ Σ), where Σ = Υ⁻¹ − B Bᵀ."""
    _, upsilon, W = fit
    scaled = W / upsilon
    B = half_solve(cholesky_of_identity_plus(total(scaled @ W.T)), scaled)
    of_factor = jnp.sum(dlr.covariance_times(fit, goal.factor) ** 2, axis=0)
    cross = jnp.sum(B**2, axis=0)
    of_diag = (1 / upsilon - 2 * cross) * goal.diag / upsilon
    of_diag += _quadratic(total((B * goal.diag) @ B.T), B)
    own = (1 / upsilon - cross) ** 2 * goal.diag  # one term of that sum of squares
    return jnp.maximum(of_diag, own) + of_factor


def _quadratic(matrix: Array, vectors: Array) -> Array:
    """v_pᵀ A v_p for each column of (L, P)."""
    return jnp.sum(vectors * (matrix @ vectors), axis=0)
