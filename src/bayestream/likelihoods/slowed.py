"""A likelihood that learns of itself at a pace of its own."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from bayestream.checks import check_fraction
from bayestream.likelihoods.evolving import evolving
from bayestream.types import Array, EvolvingLikelihood, Likelihood


def slowed(likelihood: Likelihood | EvolvingLikelihood, pace: Any) -> EvolvingLikelihood:
    """What a likelihood learns of itself, its noise above all, goes `pace` of its way each time.

    From 0, where it stays what it was, to 1. A likelihood that learns nothing of itself is the
    same at every pace; whether a class has been seen is not learnt by halves.

    >>> import bayestream as bs
    >>> likelihood = slowed(bs.likelihoods.adaptive_gaussian(noise=1.0, floor=0.0), 0.5)
    >>> carry = likelihood.init(1, jnp.float32)
    >>> eta, y = jnp.zeros((1, 1)), jnp.full((1, 1), 3.0)
    >>> float(likelihood.adapt(carry, eta, y, jnp.ones(1)).noise)  # half the way from 1 to 5
    3.0
    """
    check_fraction("pace", pace)
    whole = evolving(likelihood)

    def adapt(carry: Any, *observed: Any, **options: Any) -> Any:
        return jax.tree.map(partly, carry, whole.adapt(carry, *observed, **options))

    def partly(old: Array, new: Array) -> Array:
        return old + jnp.asarray(pace, new.dtype) * (new - old) if _graded(old) else new

    return whole._replace(adapt=adapt)


def adapts(likelihood: Likelihood | EvolvingLikelihood) -> bool:
    """Whether it learns something of itself that can be learnt more slowly.

    >>> import bayestream as bs
    >>> adapts(bs.likelihoods.adaptive_gaussian()), adapts(bs.likelihoods.categorical())
    (True, False)
    """
    carry = evolving(likelihood).init(1, jnp.float32)
    return any(_graded(part) for part in jax.tree.leaves(carry))


def _graded(part: Array) -> bool:
    return jnp.issubdtype(jnp.result_type(part), jnp.floating)
