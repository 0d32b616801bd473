"""The fully decoupled extended Kalman filter."""

from __future__ import annotations

import jax.numpy as jnp

from bayestream.estimators.description import described
from bayestream.estimators.filter import gaussian_filter
from bayestream.estimators.inflation import Inflation
from bayestream.estimators.line_search import DEFAULT, LineSearch
from bayestream.gaussians import diagonal
from bayestream.gaussians.diagonal import DiagonalGaussian
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
def fdekf(
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
    """Fully decoupled EKF (Puskorius & Feldkamp 1991): the diagonal Gaussian nearest in forward KL.

    Predict:  μ ← γ μ,  Σ ← γ² Σ + q I, with Σ diagonal.
    Update:   S = I + Gᵀ Σ G,  μ ← μ + Σ G S⁻¹ v,  Σ ← diag(Σ − Σ G S⁻¹ Gᵀ Σ),
    where G = Hᵀ Aᵀ and v = A e whiten the noise. Arguments as in `lofi`.

    >>> import jax, bayestream as bs
    >>> learner = bs.fdekf(bs.models.mlp([2, 8, 1]), bs.likelihoods.gaussian(0.1))
    >>> learner.init(jax.random.key(0)).belief.diag.shape
    (33,)
    """

    def start(mean: Array, eta: Array) -> DiagonalGaussian:
        return DiagonalGaussian(mean, jnp.full_like(mean, eta))

    def update(
        belief: DiagonalGaussian, observation: Observation, threshold: float | None, key: Key | None
    ) -> tuple[DiagonalGaussian, Innovation]:
        return diagonal.condition_variance(
            belief, observation.rows, observation.residual, threshold
        )

    return gaussian_filter(
        model,
        likelihood,
        family=diagonal,
        start=start,
        condition=update,
        prior_precision=prior_precision,
        decay=decay,
        drift=drift,
        inflation=inflation,
        line_search=line_search,
        outlier_threshold=outlier_threshold,
    )
