"""A likelihood that learns of itself at a pace of its own."""

from __future__ import annotations

from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from bayestream.checks import check_fraction
from bayestream.types import Array, EvolvingLikelihood, Likelihood

Kind = TypeVar("Kind", Likelihood, EvolvingLikelihood)


def slowed(likelihood: Kind, pace: Any) -> Kind:
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
    if not isinstance(likelihood, EvolvingLikelihood):
        return likelihood
    evolving = likelihood

    def adapt(carry: Any, *observed: Any, **options: Any) -> Any:
        return jax.tree.map(partly, carry, evolving.adapt(carry, *observed, **options))

    def partly(old: Array, new: Array) -> Array:
        if not jnp.issubdtype(jnp.result_type(old), jnp.floating):
            return new
        return old + jnp.asarray(pace, new.dtype) * (new - old)

    return evolving._replace(adapt=adapt)
