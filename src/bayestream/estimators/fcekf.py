"""The extended Kalman filter with a full covariance."""

from __future__ import annotations

import jax.numpy as jnp

from bayestream.estimators.description import described
from bayestream.estimators.filter import gaussian_filter
from bayestream.estimators.inflation import Inflation
from bayestream.estimators.line_search import DEFAULT, LineSearch
from bayestream.gaussians import dense
from bayestream.gaussians.dense import DenseGaussian
from bayestream.gaussians.innovation import Innovation
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
def fcekf(
    model: Model,
    likelihood: Likelihood | EvolvingLikelihood,
    *,
    prior_precision: float = 10.0,
    decay: ScalarOrSchedule = 1.0,
    drift: ScalarOrSchedule | None = None,
    inflation: Inflation | None = None,
    line_search: LineSearch | None = DEFAULT,
    outlier_threshold: float | None = None,
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

    def update(
        belief: DenseGaussian, observation: Observation, threshold: float | None, key: Key | None
    ) -> tuple[DenseGaussian, Innovation]:
        return dense.condition(belief, observation.rows, observation.residual, threshold)

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
        line_search=line_search,
        outlier_threshold=outlier_threshold,
    )
