"""One of several classes, of which new ones may come."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp

from bayestream.checks import check_whole
from bayestream.likelihoods.categorical import categorical
from bayestream.types import Array, EvolvingLikelihood, Likelihood

# The logit of a class that cannot be: finite, since 0 · (−∞) is no number.
_IMPOSSIBLE = -1e30


class _Classes(NamedTuple):
    seen: Array  # (C,), which have been observed


def adaptive_categorical(*, known: int = 0, columns: int | None = None) -> EvolvingLikelihood:
    """`categorical` over the classes seen so far; outputs without a class wait for one.

    A class that was never observed has no probability, its output teaches and learns nothing, and
    the belief about its weights stays the prior's. The first observation of it counts as one of a
    class that was known. So a network may have more outputs than there are classes yet; when they
    are all taken, `bs.grow` adds some. The first `known` classes count as seen from the start.
    `columns` are as in `categorical`.

    >>> likelihood = adaptive_categorical()
    >>> carry = likelihood.init(3, jnp.float32)
    >>> carry = likelihood.adapt(carry, jnp.zeros((2, 3)), jnp.array([0, 1]), jnp.ones(2))
    >>> likelihood.at(carry, jnp.array(0)).mean(jnp.zeros(3)).tolist()
    [0.5, 0.5, 0.0]
    """
    check_whole("known", known, 0)
    every = categorical(columns=columns)

    def init(outputs: int, dtype: Any) -> _Classes:
        return _Classes(jnp.arange(outputs) < known)

    def adapt(carry: _Classes, eta: Array, y: Array, trust: Array, kept: Any = 1.0) -> _Classes:
        here = (trust[:, None] > 0) & _shown(y, eta.shape)
        return _Classes(carry.seen | jnp.any(here, axis=0))

    return EvolvingLikelihood(init, lambda carry, step: _among(every, carry.seen), adapt)


def _among(every: Likelihood, seen: Array) -> Likelihood:
    """`categorical`, of the classes that were seen and the one that is."""

    def logits(eta: Array, possible: Array = seen) -> Array:
        return jnp.where(possible, eta, _IMPOSSIBLE)

    def possible(eta: Array, y: Array) -> Array:
        return seen | _shown(y, eta.shape)

    def score(eta: Array, y: Array) -> Array:
        here = possible(eta, y)
        return jnp.where(here, every.score(logits(eta, here), y), 0.0)

    def only(form: Any) -> Any:
        def of_possible(eta: Array, y: Array) -> tuple[Array, Array]:
            here = possible(eta, y)
            B, v = form(logits(eta, here), y)
            # Of a few columns y is one; else there is one a class, which may be impossible.
            column = here if every.columns is None else True
            return jnp.where(here[:, None] & column, B, 0.0), jnp.where(column, v, 0.0)

        return of_possible

    return every._replace(
        log_density=lambda eta, y: every.log_density(logits(eta, possible(eta, y)), y),
        score=score,
        seen=only(every.seen),
        secant=only(every.secant),
        mean=lambda eta: every.mean(logits(eta)),
        covariance=lambda eta: every.covariance(logits(eta)),
        sample=lambda key, eta: every.sample(key, logits(eta)),
        logits=logits,
    )


def _shown(y: Array, shape: tuple[int, ...]) -> Array:
    """The classes that y says there are, in the shape of the outputs (…, C)."""
    y = jnp.asarray(y)
    return y > 0 if y.shape == shape else y[..., None] == jnp.arange(shape[-1])
