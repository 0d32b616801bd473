"""The extended Kalman filter with a full covariance."""

from __future__ import annotations

import jax.numpy as jnp

from bayestream.estimators.filter import gaussian_filter
from bayestream.estimators.inflation import Inflation
from bayestream.gaussians import dense
from bayestream.gaussians.dense import DenseGaussian
from bayestream.gaussians.linalg import cholesky_of_identity_plus, half_solve
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


def fcekf(
    model: Model,
    likelihood: Likelihood | EvolvingLikelihood,
    *,
    prior_precision: float = 10.0,
    decay: ScalarOrSchedule = 1.0,
    drift: ScalarOrSchedule = 0.0,
    inflation: Inflation | None = None,
) -> Estimator:
    """Full-covariance extended Kalman filter (Singhal & Wu 1988): O(P²) memory and time a step.

    Predict:  μ ← γ μ,  Σ ← γ² Σ + q I.
    Update:   S = I + Gᵀ Σ G,  μ ← μ + Σ G S⁻¹ v,  Σ ← Σ − Σ G S⁻¹ Gᵀ Σ,
    where G = Hᵀ Aᵀ and v = A e whiten the noise. Arguments as in `lofi`. Bayesian and hybrid
    inflation add to a precision that is not stored, which costs O(P³) a step.

    >>> import jax, bayestream as bs
    >>> learner = bs.fcekf(bs.models.mlp([2, 8, 1]), bs.likelihoods.gaussian(0.1))
    >>> learner.init(jax.random.key(0)).belief.covariance.shape
    (33, 33)
    """

    def start(mean: Array, eta: Array) -> DenseGaussian:
        return DenseGaussian(mean, jnp.eye(model.size, dtype=mean.dtype) / eta)

    def update(belief: DenseGaussian, observation: Observation, key: Key | None) -> DenseGaussian:
        G = rows.to_dense(observation.rows)  # M × P, small beside the covariance
        cross = G @ belief.covariance  # Gᵀ Σ
        root = cholesky_of_identity_plus(cross @ G.T)
        half = half_solve(root, cross)
        mean = belief.mean + half_solve(root, observation.residual) @ half
        return DenseGaussian(mean, _less_outer_products(belief.covariance, half))

    return gaussian_filter(
        model,
        likelihood,
        family=dense,
        start=start,
        condition=update,
        prior_precision=prior_precision,
        decay=decay,
        drift=drift,
        inflation=inflation,
    )


def _less_outer_products(covariance: Array, half: Array) -> Array:
    """Σ − halfᵀ half; a few rows at a time fuse into one pass over Σ, without a P×P product."""
    if len(half) > _FUSED:
        return covariance - half.T @ half
    for row in half:
        covariance = covariance - row[:, None] * row[None, :]
    return covariance


_FUSED = 16
