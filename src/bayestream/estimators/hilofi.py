"""HiLoFi: all is known about the last layer, and the main directions of the weights before it."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from bayestream.checks import check_non_negative, check_rank
from bayestream.estimators.description import described
from bayestream.estimators.filter import FILTER_SPACE, FilterState, gaussian_filter
from bayestream.estimators.line_search import DEFAULT, LineSearch
from bayestream.estimators.spaces import Range, Space
from bayestream.gaussians import last_layer
from bayestream.gaussians.innovation import Innovation
from bayestream.gaussians.last_layer import LastLayerGaussian
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

HILOFI_SPACE: Space = {**FILTER_SPACE, "hidden_drift": Range(1e-8, 1e-2)}


@described
def hilofi(
    model: Model,
    likelihood: Likelihood | EvolvingLikelihood,
    *,
    rank: int = 10,
    prior_precision: float = 10.0,
    decay: ScalarOrSchedule = 1.0,
    drift: ScalarOrSchedule | None = None,
    hidden_drift: float = 1e-4,
    line_search: LineSearch | None = DEFAULT,
    outlier_threshold: float | None = None,
) -> Estimator:
    """High-rank low-rank filter (Duran-Martin et al. 2025, arXiv:2506.11898).

    The last layer l and the hidden weights h are believed independent: Σ_l is kept in full,
    Σ_h = Cᵀ C with C of d rows, which begin as random directions of length 1/√η₀.

    Predict:  μ ← γ μ,  Σ_l ← γ² Σ_l + q I,  Σ_h ← γ² (Cᵀ C + q_h I) + q I.
    Update:   S = I + G_hᵀ Σ_h G_h + G_lᵀ Σ_l G_l,  K_• = Σ_• G_• S⁻¹,  μ_• ← μ_• + K_• v,
    Σ_l ← (I − K_l G_lᵀ) Σ_l (I − K_l G_lᵀ)ᵀ + K_l K_lᵀ,
    C ← the d largest singular directions of [C − C G_h K_hᵀ; K_hᵀ], s² enlarged by γ² q_h + q,
    where G = Hᵀ Aᵀ and v = A e whiten the noise. A step costs O(P d (d + C) + P_l² C). Decisions
    are drawn from the outputs: `bs.policies.thompson_of_outputs`.

    Args:
        model: a network with a hidden layer, whose layers are known (`bs.models`).
        likelihood: what its output means.
        rank: d, how many directions of the hidden weights are remembered.
        prior_precision: η₀, of the last layer, and of the hidden weights in those directions.
        decay: γ_t, as in `lofi`.
        drift: q_t, as in `lofi`.
        hidden_drift: q_h, what the hidden weights drift by beyond q: outside the d directions they
            learn by this alone.
        line_search: as in `lofi`.
        outlier_threshold: as in `lofi`.

    >>> import bayestream as bs
    >>> learner = bs.hilofi(bs.models.mlp([2, 8, 1]), bs.likelihoods.gaussian(0.1), rank=3)
    >>> belief = learner.init(jax.random.key(0)).belief
    >>> belief.factor.shape, belief.covariance.shape
    ((3, 24), (9, 9))
    """
    hidden = model.layers[-1].offset if model.layers else 0
    if hidden == 0:
        raise ValueError(
            "model must have known layers, and hidden ones, for hilofi; use fcekf or lofi."
        )
    check_rank(rank, model.size)
    check_non_negative("hidden_drift", hidden_drift)

    def start(mean: Array, eta: Array) -> LastLayerGaussian:
        return LastLayerGaussian(
            mean,
            jnp.zeros((rank, hidden), mean.dtype),
            jnp.asarray(hidden_drift, mean.dtype),
            jnp.eye(model.size - hidden, dtype=mean.dtype) / eta,
        )

    def update(
        belief: LastLayerGaussian,
        observation: Observation,
        threshold: float | None,
        key: Key | None,
    ) -> tuple[LastLayerGaussian, Innovation]:
        # The next step's q_h is added now; decay and q come with predict.
        G, residual = observation.rows, observation.residual
        return last_layer.condition(belief, G, residual, threshold, floor=hidden_drift)

    learner = gaussian_filter(
        model,
        likelihood,
        family=last_layer,
        start=start,
        condition=update,
        prior_precision=prior_precision,
        decay=decay,
        drift=drift,
        inflation=None,
        line_search=line_search,
        outlier_threshold=outlier_threshold,
    )

    def init(key: Key) -> FilterState:
        state = learner.init(key)
        # Long random rows are as good as orthogonal ones of that length.
        length = (prior_precision * hidden) ** -0.5
        drawn = jax.random.normal(jax.random.fold_in(key, 1), (rank, hidden))
        factor = (length * drawn).astype(state.belief.factor.dtype)
        return state._replace(belief=state.belief._replace(factor=factor))

    return learner._replace(init=jax.jit(init))
