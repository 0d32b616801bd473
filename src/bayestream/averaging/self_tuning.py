"""For those who would rather not choose: an average over settings that were measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from bayestream.averaging.averaged import averaged
from bayestream.averaging.groups import Setting
from bayestream.estimators import fcekf, lofi
from bayestream.likelihoods.slowed import adapts, slowed
from bayestream.networks import models
from bayestream.types import Array, Estimator, EvolvingLikelihood, Likelihood

# What measured best of its size over fourteen streams; docs/decisions.md has the table.
_MEASURED: list[dict[str, Any]] = [
    {"activation": activation, "prior_precision": 0.1, "drift": drift}
    for activation, drifts in (
        (jax.nn.gelu, (0.0, 1e-3, 1e-1)),
        (jnp.tanh, (0.0, 1e-3)),
        (jax.nn.identity, (1e-4,)),
    )
    for drift in drifts
]
# For a world that stays as it is, and has hardly any noise.
_PATIENT: dict[str, Any] = {
    "activation": jnp.tanh, "prior_precision": 0.1, "drift": 0.0, "pace": 0.1
}  # fmt: skip


def measured(likelihood: Likelihood | EvolvingLikelihood) -> list[dict[str, Any]]:
    """The settings that `self_tuning` has by itself: six, and one more where noise is learnt."""
    return [*_MEASURED, _PATIENT] if adapts(likelihood) else _MEASURED


def self_tuning(
    sizes: Sequence[int],
    likelihood: Likelihood | EvolvingLikelihood,
    *,
    settings: Sequence[Setting] | None = None,
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
        settings: of the learners: each an activation, options of `bs.lofi` and, where noise is
            learnt, the `pace` at which it is (`bs.likelihoods.slowed`), 1 unless given. By
            default six that were measured and, where there is noise to learn, a patient seventh.
        rank: L of every learner; None is the full covariance of `bs.fcekf`, for networks of at most
            a thousand weights or so.
        forget: as in `bs.averaged`.
        switching: as in `bs.averaged`.
        fan_in: as in `bs.models.mlp`, of networks that have grown.

    >>> import bayestream as bs
    >>> learner = bs.self_tuning([2, 5, 1], bs.likelihoods.adaptive_student_t(), rank=2)
    >>> learner.init(jax.random.key(0)).weights.shape
    (7,)
    """
    if settings is None:
        settings = measured(likelihood)
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
