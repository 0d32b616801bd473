"""For those who would rather not choose: an average over settings that were measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from bayestream.averaging.averaged import averaged
from bayestream.averaging.groups import Setting
from bayestream.estimators import fcekf, lofi
from bayestream.likelihoods import slowed
from bayestream.networks import models
from bayestream.types import Array, Estimator, EvolvingLikelihood, Likelihood

# What measured best of its size over fourteen streams; docs/decisions.md has the table.
SETTINGS: list[dict[str, Any]] = [
    {"activation": activation, "prior_precision": 0.1, "drift": drift, "pace": pace}
    for activation, drift, pace in (
        (jax.nn.gelu, 0.0, 1.0),
        (jax.nn.gelu, 1e-3, 1.0),
        (jax.nn.gelu, 1e-1, 1.0),
        (jnp.tanh, 0.0, 0.1),
        (jnp.tanh, 1e-3, 1.0),
        (jax.nn.identity, 1e-4, 1.0),
    )
]


def self_tuning(
    sizes: Sequence[int],
    likelihood: Likelihood | EvolvingLikelihood,
    *,
    settings: Sequence[Setting] = SETTINGS,
    rank: int | None = 10,
    forget: float = 0.99,
    switching: float = 1e-3,
    fan_in: int | None = None,
) -> Estimator:
    """LO-FI with the settings that forecast best at the moment: `averaged` over a measured grid.

    Its networks are multi-layer perceptrons whose weights are scaled by their fan-in, so that one
    prior precision and one drift mean the same for every layer.

    Args:
        sizes: of the layers, from inputs to outputs, as in `bs.models.mlp`.
        likelihood: what the output means.
        settings: of the learners: each an activation, options of `bs.lofi` and, if noise is learnt,
            the `pace` at which it is, 1 if not given (`bs.likelihoods.slowed`).
        rank: L of every learner; None is the full covariance of `bs.fcekf`, for networks of at most
            a thousand weights or so.
        forget: as in `bs.averaged`.
        switching: as in `bs.averaged`.
        fan_in: as in `bs.models.mlp`, of networks that have grown.

    >>> import bayestream as bs
    >>> learner = bs.self_tuning([2, 5, 1], bs.likelihoods.adaptive_student_t(), rank=2)
    >>> learner.init(jax.random.key(0)).weights.shape
    (6,)
    """
    known = [*dict.fromkeys(setting["activation"] for setting in settings)]

    def factory(*, which: Any, pace: Any, **options: Any) -> Estimator:
        # Which activation it is, is a number like the rest: one program serves all settings.
        def activation(h: Array) -> Array:
            # One selection: of several, a compiler may not see that two forecasts are the same.
            chosen = jnp.full(h.shape, which, jnp.int32)
            return jax.lax.select_n(chosen, *(f(h) for f in known))

        model = models.mlp(sizes, activation=activation, fan_in_scaled=True, fan_in=fan_in)
        believed = slowed(likelihood, pace)
        if rank is None:
            return fcekf(model, believed, **options)
        return lofi(model, believed, rank=min(rank, model.size), **options)

    numbered = [
        {"pace": 1.0, **setting, "which": float(known.index(setting["activation"]))}
        for setting in settings
    ]
    for setting in numbered:
        del setting["activation"]
    return averaged(factory, numbered, forget=forget, switching=switching)
