"""LO-FI: the extended Kalman filter with a diagonal plus low-rank precision."""

from __future__ import annotations

from bayestream.checks import check_rank
from bayestream.estimators.description import described
from bayestream.estimators.filter import gaussian_filter, is_stationary
from bayestream.estimators.guard import checked
from bayestream.estimators.inflation import Inflation
from bayestream.estimators.line_search import DEFAULT, LineSearch
from bayestream.gaussians import dlr, fits, lazy_dlr
from bayestream.gaussians.fits import DiagonalUpdate
from bayestream.gaussians.innovation import Innovation
from bayestream.gaussians.lazy_dlr import LazyDLR
from bayestream.networks import rows
from bayestream.networks.linearize import Observation
from bayestream.types import (
    Array,
    Estimator,
    EvolvingLikelihood,
    Key,
    Likelihood,
    Model,
    ScalarOrSchedule,
)


@described
def lofi(
    model: Model,
    likelihood: Likelihood | EvolvingLikelihood,
    *,
    rank: int = 10,
    prior_precision: float = 10.0,
    decay: ScalarOrSchedule = 1.0,
    drift: ScalarOrSchedule | None = None,
    inflation: Inflation | None = None,
    line_search: LineSearch | None = DEFAULT,
    outlier_threshold: float | None = None,
    diagonal_update: DiagonalUpdate | None = None,
) -> Estimator:
    """Low-rank extended Kalman filter (Chang et al. 2023, arXiv:2305.19535), Algorithms 1–3.

    The belief is N(μ, (Υ + W Wᵀ)⁻¹) with Υ diagonal and W of L columns.

    Predict:  μ ← γ μ,  Υ' = (γ² Υ⁻¹ + q I)⁻¹,  W ← γ Υ' Υ⁻¹ W chol((I + q Wᵀ Υ' Υ⁻¹ W)⁻¹).
    Update:   W̃ = [W, Hᵀ Aᵀ],  μ ← μ + (Υ + W̃ W̃ᵀ)⁻¹ Hᵀ R⁻¹ e,  W ← the L largest singular
    directions of W̃, and Υ takes the squares of the rest, so that diag(Σ⁻¹) is exact.

    Algorithm 2 is `gaussians.dlr.propagate`, Algorithm 3 is `gaussians.dlr.condition`, line by
    line; `gaussians.lazy_dlr` makes both in the same two passes over memory.

    Args:
        model: the network.
        likelihood: what its output means.
        rank: L, from 0 (the variational diagonal EKF) to P (the full EKF).
        prior_precision: η₀, the precision of every weight before the first observation.
        decay: γ_t, from 0 to 1; 1 is none.
        drift: q_t, variance added to every weight a step. Unless given it is 0; with decay, the
            belief then returns to the prior: θ ← μ₀ + γ (θ − μ₀) + N(0, (1 − γ²)/η₀). With a drift
            that is given, weights decay to zero, as in the paper.
        inflation: how old beliefs are discounted, from `bayestream.inflation`.
        line_search: how far along its step to go, from `bayestream.line_search`; None is the
            paper's full step.
        outlier_threshold: c, in standard deviations of the forecast: an observation weighs
            W² = 1/(1 + e²/(c² V)), with e its error and V = H Σ Hᵀ + R (after Duran-Martin et al.
            2024). None trusts every observation.
        diagonal_update: what Υ becomes when directions are dropped. None keeps diag(Σ⁻¹) exact, as
            the paper does; `bs.estimators.forward_kl()` and `bs.estimators.reverse_kl()` minimise
            a divergence to the belief before dropping, which the paper leaves to future work.

    >>> import jax, jax.numpy as jnp, bayestream as bs
    >>> learner = bs.lofi(bs.models.mlp([2, 8, 1]), bs.likelihoods.gaussian(0.1), rank=3)
    >>> state = learner.init(jax.random.key(0))
    >>> state = jax.jit(learner.update)(learner.predict(state), jnp.ones(2), jnp.ones(1))
    >>> learner.mean(state).shape
    (33,)
    """
    check_rank(rank, model.size)
    ever_moves = not is_stationary(decay, drift, inflation)

    def start(mean: Array, eta: Array) -> LazyDLR:
        return lazy_dlr.at_rest(dlr.start(mean, eta, rank), ever_moves=ever_moves)

    def update(
        belief: LazyDLR, observation: Observation, threshold: float | None, key: Key | None
    ) -> tuple[LazyDLR, Innovation]:
        # Alg. 3, lines 1–5, are in the observation: rows (Hᵀ Aᵀ)ᵀ and residual A e.
        G, residual = observation.rows, observation.residual
        if diagonal_update is None:
            return lazy_dlr.condition(belief, G, residual, threshold)
        before = lazy_dlr.settle(belief)
        after, innovation = dlr.condition(before, G, residual, threshold)
        goal = fits.target(before, rows.weighted(G, innovation.trust))
        after, innovation = checked(diagonal_update(after, goal), before, innovation)
        return lazy_dlr.at_rest(after, ever_moves=ever_moves), innovation

    return gaussian_filter(
        model,
        likelihood,
        family=lazy_dlr,
        start=start,
        condition=update,
        prior_precision=prior_precision,
        decay=decay,
        drift=drift,
        inflation=inflation,
        line_search=line_search,
        outlier_threshold=outlier_threshold,
    )
