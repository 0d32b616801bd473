"""LO-FI: the extended Kalman filter with a diagonal plus low-rank precision."""

from __future__ import annotations

import jax.numpy as jnp

from bayestream.checks import check_rank
from bayestream.estimators.filter import gaussian_filter
from bayestream.gaussians import dlr
from bayestream.gaussians.dlr import DLRGaussian
from bayestream.gaussians.linalg import solve_identity_plus
from bayestream.inflation import Inflation
from bayestream.linearize import Observation
from bayestream.types import (
    Array,
    Estimator,
    EvolvingLikelihood,
    Key,
    Likelihood,
    Model,
    ScalarOrSchedule,
)


def lofi(
    model: Model,
    likelihood: Likelihood | EvolvingLikelihood,
    *,
    rank: int = 10,
    prior_precision: float = 1.0,
    decay: ScalarOrSchedule = 1.0,
    drift: ScalarOrSchedule = 0.0,
    inflation: Inflation | None = None,
) -> Estimator:
    """Low-rank extended Kalman filter (Chang et al. 2023, arXiv:2305.19535), Algorithms 1–3.

    The belief is N(μ, (Υ + W Wᵀ)⁻¹) with Υ diagonal and W of L columns.

    Predict:  μ ← γ μ,  Υ' = (γ² Υ⁻¹ + q I)⁻¹,  W ← γ Υ' Υ⁻¹ W chol((I + q Wᵀ Υ' Υ⁻¹ W)⁻¹).
    Update:   W̃ = [W, Hᵀ Aᵀ],  μ ← μ + (Υ + W̃ W̃ᵀ)⁻¹ Hᵀ R⁻¹ e,  W ← the L largest singular
    directions of W̃, and Υ takes the squares of the rest, so that diag(Σ⁻¹) is exact.

    Args:
        model: the network.
        likelihood: what its output means.
        rank: L, from 0 (the variational diagonal EKF) to P (the full EKF).
        prior_precision: η₀, the precision of every weight before the first observation.
        decay: γ_t, from 0 to 1; 1 is none.
        drift: q_t, variance added to every weight a step.
        inflation: how old beliefs are discounted, from `bayestream.inflation`.

    >>> import jax, bayestream as bs
    >>> learner = bs.lofi(bs.models.mlp([2, 8, 1]), bs.likelihoods.gaussian(0.1), rank=3)
    >>> state = learner.init(jax.random.key(0))
    >>> state = learner.update(learner.predict(state), jnp.ones(2), jnp.ones(1))
    >>> learner.mean(state).shape
    (33,)
    """
    check_rank(rank, model.size)

    def start(mean: Array, eta: Array) -> DLRGaussian:
        diag = jnp.full_like(mean, eta)
        return DLRGaussian(mean, diag, jnp.zeros((rank, model.size), mean.dtype))

    def update(belief: DLRGaussian, observation: Observation, key: Key | None) -> DLRGaussian:
        exact = dlr.expand(belief, observation.rows)  # Alg. 3, lines 2–6: W̃ = [W, Hᵀ Aᵀ]
        mean = belief.mean + _gain_times_residual(exact, observation.residual)  # lines 7–10
        return dlr.truncate(exact._replace(mean=mean), rank)  # lines 11–16

    return gaussian_filter(
        model,
        likelihood,
        family=dlr,
        start=start,
        condition=update,
        prior_precision=prior_precision,
        decay=decay,
        drift=drift,
        inflation=inflation,
    )


def _gain_times_residual(exact: DLRGaussian, residual: Array) -> Array:
    """K e = (Υ + W̃ W̃ᵀ)⁻¹ G v, where G is the last columns of W̃ and v the whitened residual.

    Since (Υ + W̃ W̃ᵀ)⁻¹ W̃ = Υ⁻¹ W̃ (I + W̃ᵀ Υ⁻¹ W̃)⁻¹, this needs no difference of large numbers.
    """
    _, upsilon, W = exact
    scaled = W / upsilon
    v = jnp.zeros(W.shape[:1], W.dtype).at[W.shape[0] - residual.size :].set(residual)
    return solve_identity_plus(scaled @ W.T, v) @ scaled
