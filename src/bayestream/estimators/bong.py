"""BONG: one natural-gradient step an observation, with a diagonal plus low-rank precision."""

from __future__ import annotations

from bayestream.checks import check_rank
from bayestream.estimators.description import described
from bayestream.estimators.expectations import Expectation
from bayestream.estimators.filter import gaussian_filter, is_stationary
from bayestream.estimators.inflation import Inflation
from bayestream.estimators.line_search import DEFAULT, LineSearch
from bayestream.gaussians import dlr, lazy_dlr
from bayestream.gaussians.innovation import Innovation
from bayestream.gaussians.lazy_dlr import LazyDLR
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
def bong(
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
    expectation: Expectation | None = None,
) -> Estimator:
    """Bayesian online natural gradient (Jones, Chang & Murphy 2024, arXiv:2405.19681).

    Predict:  as `lofi`.
    Update:   Σ⁻¹ ← Σ⁻¹ − E[∇² log p],  μ ← μ + Σ E[∇ log p], then down to rank L as `lofi` does.
    `expectation` says how the two are found. With `bs.expectations.linearized()` (the default) the
    update is LO-FI's; `bs.expectations.empirical_fisher()` needs one gradient a draw, so its cost
    does not grow with the number of outputs. Other arguments as in `lofi`.

    >>> import jax, jax.numpy as jnp, bayestream as bs
    >>> learner = bs.bong(bs.models.mlp([2, 8, 3]), bs.likelihoods.categorical(), rank=3,
    ...                   expectation=bs.expectations.empirical_fisher())
    >>> state = jax.jit(learner.update)(learner.init(jax.random.key(0)), jnp.ones(2), jnp.array(1))
    >>> learner.mean(state).shape
    (51,)
    """
    check_rank(rank, model.size)
    ever_moves = not is_stationary(decay, drift, inflation)

    def start(mean: Array, eta: Array) -> LazyDLR:
        return lazy_dlr.at_rest(dlr.start(mean, eta, rank), ever_moves=ever_moves)

    def update(
        belief: LazyDLR, observation: Observation, threshold: float | None, key: Key | None
    ) -> tuple[LazyDLR, Innovation]:
        return lazy_dlr.condition(belief, observation.rows, observation.residual, threshold)

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
        expectation=expectation,
    )
