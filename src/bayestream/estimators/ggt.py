"""GGT: the gradients of the last few observations as a preconditioner."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from bayestream.checks import check_positive, check_rank
from bayestream.estimators import expectations
from bayestream.estimators.description import described
from bayestream.estimators.filter import gaussian_filter
from bayestream.estimators.guard import checked
from bayestream.estimators.spaces import Range, Space
from bayestream.gaussians import dlr
from bayestream.gaussians.dlr import DLRGaussian
from bayestream.gaussians.innovation import Innovation
from bayestream.networks import rows
from bayestream.networks.linearize import Observation
from bayestream.types import Array, Estimator, EvolvingLikelihood, Key, Likelihood, Model

GGT_SPACE: Space = {"prior_precision": Range(1e-2, 1e3), "learning_rate": Range(1e-2, 1.0)}


@described
def ggt(
    model: Model,
    likelihood: Likelihood | EvolvingLikelihood,
    *,
    rank: int = 10,
    prior_precision: float = 10.0,
    learning_rate: float = 1.0,
) -> Estimator:
    """Full-matrix preconditioning from a window of gradients (Agarwal et al. 2019).

    As the LO-FI paper sees it: Λ = η₀ I + Σ g gᵀ over the gradients g = ∇ log p of the last L
    observations, the precision of a belief whose rank is bounded by forgetting the oldest.

    Update:  g joins the window, the oldest leaves it;  μ ← μ + α Λ⁻¹ g.

    Args:
        model: the network.
        likelihood: what its output means.
        rank: L, how many gradients are kept.
        prior_precision: η₀.
        learning_rate: α.

    >>> import jax, bayestream as bs
    >>> learner = bs.ggt(bs.models.mlp([2, 8, 1]), bs.likelihoods.gaussian(0.1), rank=3)
    >>> state = jax.jit(learner.update)(learner.init(jax.random.key(0)), jnp.ones(2), jnp.ones(1))
    >>> state.belief.factor.shape
    (3, 33)
    """
    check_rank(rank, model.size)
    check_positive("learning_rate", learning_rate)

    def start(mean: Array, eta: Array) -> DLRGaussian:
        return dlr.start(mean, eta, rank)

    def update(
        belief: DLRGaussian, observation: Observation, threshold: float | None, key: Key | None
    ) -> tuple[DLRGaussian, Innovation]:
        gradients = rows.to_dense(observation.rows)

        def join(window: Array, new: tuple[Array, Array]) -> tuple[Array, None]:
            gradient, observed = new
            moved = jnp.concatenate([window, gradient[None]])[1:]
            return jnp.where(observed, moved, window), None

        window, _ = jax.lax.scan(join, belief.factor, (gradients, observation.observed))
        after = belief._replace(factor=window)
        step = dlr.covariance_times(after, jnp.sum(gradients, axis=0))
        after = after._replace(mean=belief.mean + learning_rate * step)
        ones = jnp.ones_like(observation.residual)
        return checked(after, belief, Innovation(ones, ones))

    return gaussian_filter(
        model,
        likelihood,
        family=dlr,
        start=start,
        condition=update,
        prior_precision=prior_precision,
        decay=1.0,
        drift=0.0,
        inflation=None,
        expectation=expectations.empirical_fisher(),
    )
