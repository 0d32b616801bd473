"""For those who would rather not choose: an average over settings that were measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from bayestream.averaging.averaged import averaged, grid
from bayestream.averaging.groups import Setting
from bayestream.estimators import lofi
from bayestream.networks import models
from bayestream.types import Estimator, EvolvingLikelihood, Likelihood

# What measured best of its size over fourteen streams; docs/decisions.md has the table.
SETTINGS: list[dict[str, Any]] = grid(
    activation=[jax.nn.gelu, jnp.tanh],
    prior_precision=[0.1],
    drift=[0.0, 1e-4, 1e-3],
)


def self_tuning(
    sizes: Sequence[int],
    likelihood: Likelihood | EvolvingLikelihood,
    *,
    settings: Sequence[Setting] = SETTINGS,
    rank: int = 10,
    forget: float = 0.99,
) -> Estimator:
    """LO-FI with the settings that forecast best at the moment: `averaged` over a measured grid.

    Its networks are multi-layer perceptrons whose weights are scaled by their fan-in, so that one
    prior precision and one drift mean the same for every layer.

    Args:
        sizes: of the layers, from inputs to outputs, as in `bs.models.mlp`.
        likelihood: what the output means.
        settings: of the learners: each an activation and options of `bs.lofi`.
        rank: L of every learner.
        forget: as in `bs.averaged`.

    >>> import bayestream as bs
    >>> learner = bs.self_tuning([2, 5, 1], bs.likelihoods.adaptive_student_t(), rank=2)
    >>> learner.init(jax.random.key(0)).weights.shape
    (6,)
    """

    def factory(*, activation: Any, **options: Any) -> Estimator:
        model = models.mlp(sizes, activation=activation, fan_in_scaled=True)
        return lofi(model, likelihood, rank=min(rank, model.size), **options)

    return averaged(factory, settings, forget=forget)
