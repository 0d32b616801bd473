"""Observations that count for more or less than one."""

from __future__ import annotations

from typing import Any, TypeVar

import jax.numpy as jnp

from bayestream.checks import check_non_negative
from bayestream.likelihoods.slowed import slowed
from bayestream.types import Array, EvolvingLikelihood, Likelihood

Kind = TypeVar("Kind", Likelihood, EvolvingLikelihood)


def tempered(likelihood: Kind, power: Any) -> Kind:
    """What is learnt from p(y | η)^power; forecasts stay those of p(y | η).

    With score and Fisher information times w, B and v are times √w: conditioning on it is the joint
    conditioning on w copies, for a whole w and any belief that linearises once. What a likelihood
    learns of itself goes that part of its way.

    >>> import bayestream as bs
    >>> half = tempered(bs.likelihoods.gaussian(1.0), 0.5)
    >>> half.score(jnp.zeros(1), jnp.ones(1)).tolist(), half.covariance(jnp.zeros(1)).tolist()
    ([0.5], [[1.0]])
    """
    check_non_negative("power", power)
    if isinstance(likelihood, EvolvingLikelihood):
        evolving = likelihood
        return slowed(evolving, jnp.minimum(power, 1.0))._replace(
            at=lambda carry, step: tempered(evolving.at(carry, step), power)
        )
    fixed = likelihood

    def root(like: Array) -> Array:
        return jnp.sqrt(jnp.asarray(power, like.dtype))

    def both(form: Any) -> Any:
        def of(eta: Array, y: Array) -> tuple[Array, Array]:
            B, v = form(eta, y)
            return root(B) * B, root(v) * v

        return of

    return fixed._replace(
        log_density=lambda eta, y: jnp.asarray(power, eta.dtype) * fixed.log_density(eta, y),
        score=lambda eta, y: jnp.asarray(power, eta.dtype) * fixed.score(eta, y),
        seen=both(fixed.seen),
        secant=both(fixed.secant),
    )
