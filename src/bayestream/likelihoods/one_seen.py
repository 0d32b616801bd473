"""Targets of which one number is seen, as a bandit's are: one row instead of one an output."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import jax.numpy as jnp

from bayestream.types import Array, EvolvingLikelihood, Likelihood

Kind = TypeVar("Kind", Likelihood, EvolvingLikelihood)


def one_seen(likelihood: Kind) -> Kind:
    """The same likelihood for targets of which all but one number are NaN.

    What one number says of the outputs has a Fisher information of rank one, B Bᵀ = u uᵀ, so a
    learner need look back through the network once, not once for each output: a filter of rank
    L then steps in O(P (L + 1)²) instead of O(P (L + C)²), to the same belief.

    >>> import bayestream as bs
    >>> likelihood = one_seen(bs.likelihoods.gaussian(0.25))
    >>> B, v = likelihood.seen(jnp.zeros(3), jnp.array([jnp.nan, 1.0, jnp.nan]))
    >>> B.tolist(), v.tolist()
    ([[0.0], [2.0], [0.0]], [2.0])
    """
    if isinstance(likelihood, EvolvingLikelihood):
        at = likelihood.at
        return likelihood._replace(at=lambda carry, step: one_seen(at(carry, step)))
    original = likelihood

    def support(y: Array, outputs: int) -> Array:
        return original.support(y, outputs) & (jnp.sum(~jnp.isnan(y)) <= 1)

    return original._replace(
        seen=_one_column(original.seen),
        secant=_one_column(original.secant),
        support=support,
        target_shapes=lambda outputs: ((outputs,),),
        expects=f"{original.expects}, all but one of them NaN",
    )


def _one_column(
    form: Callable[[Array, Array], tuple[Array, Array]],
) -> Callable[[Array, Array], tuple[Array, Array]]:
    def column(eta: Array, y: Array) -> tuple[Array, Array]:
        """With B = u wᵀ: u of |u|² = tr B Bᵀ along B's longest column, and v with u v = B v."""
        B, v = form(eta, y)
        squares = jnp.sum(B**2, axis=0)
        total, longest = jnp.sum(squares), jnp.max(squares)
        some = longest > 0
        u = B[:, jnp.argmax(squares)] * jnp.sqrt(total / jnp.where(some, longest, 1.0))
        return u[:, None], (u @ (B @ v) / jnp.where(some, total, 1.0))[None]

    return column
