"""What an average believes of parameters: a mixture over settings, of one network or of several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bayestream.averaging.groups import Group, shares
from bayestream.networks import models, rows
from bayestream.networks.rows import Rows
from bayestream.types import Array, Estimator, Key, Model


class Committee(NamedTuple):
    """A network, and the belief over its parameters; functions of a state as in `Estimator`."""

    model: Model
    mean: Callable[[Any], Array]
    covariance_between: Callable[[Any, Array], Array]
    sample: Callable[[Any, Key, int], Array]


def committee(groups: Sequence[Group], *, one_network: bool) -> Committee:
    """Of the groups' settings; its functions take a state with their members and weights."""
    return _mixture(groups) if one_network else _ensemble(groups)


def _mixture(groups: Sequence[Group]) -> Committee:
    """Of one network: Σ w_i N(μ_i, Σ_i) over all settings."""

    def mean(state: Any) -> Array:
        means = jnp.concatenate(_each(groups, _mean, state))
        return jnp.concatenate(shares(groups, state.weights)) @ means

    def covariance_between(state: Any, J: Array) -> Array:
        middle = mean(state)

        def about_the_mean(learner: Estimator, own: Any) -> Array:
            apart = J @ (learner.mean(own) - middle)
            return _posterior(learner.covariance_between)(own, J) + apart[:, None] * apart

        parts = jnp.concatenate(_each(groups, about_the_mean, state))
        return jnp.tensordot(jnp.concatenate(shares(groups, state.weights)), parts, 1)

    def one(state: Any, key: Key) -> Array:
        """A setting at random, then parameters from its belief."""
        key_which, key_draw = jax.random.split(key)
        weights = jnp.concatenate(shares(groups, state.weights))
        which = jax.random.categorical(key_which, jnp.log(weights))
        sizes = [len(group.places) for group in groups]
        draw = jnp.zeros(())
        for group, members, first in zip(
            groups, state.members, accumulate([0, *sizes]), strict=False
        ):
            learner, own = group.one(jnp.clip(which - first, 0, len(group.places) - 1), members)
            mine = _posterior(learner.sample)(own, key_draw, 1)[0]
            draw = jnp.where(which >= first, mine, draw)
        return draw

    def sample(state: Any, key: Key, count: int) -> Array:
        return jax.vmap(lambda k: one(state, k))(jax.random.split(key, count))

    return Committee(groups[0].model, mean, covariance_between, sample)


def _ensemble(groups: Sequence[Group]) -> Committee:
    """Of several networks: Σ w_i f_i(x); its parameters are all of theirs, then the weights."""

    def unravel(params: Array) -> tuple[list[Array], Array]:
        """The parameters of each group's networks, one a row, and the weights."""
        ends = accumulate(len(group.places) * group.model.size for group in groups)
        *own, weights = jnp.split(params, list(ends))
        pairs = zip(groups, own, strict=True)
        return [part.reshape(len(group.places), -1) for group, part in pairs], weights

    def apply(params: Array, x: Array) -> Array:
        own, weights = unravel(params)
        outputs = [
            group.each(lambda learner, p: learner.model.apply(p, x), stacked)
            for group, stacked in zip(groups, own, strict=True)
        ]
        return weights @ jnp.concatenate(outputs)

    def start(key: Key) -> Array:
        own = [group.each(lambda learner: learner.model.init(key)).reshape(-1) for group in groups]
        count = sum(len(group.places) for group in groups)
        return jnp.concatenate([*own, jnp.full(count, 1 / count)])

    def mean(state: Any) -> Array:
        means = [part.reshape(-1) for part in _each(groups, _mean, state)]
        return jnp.concatenate([*means, *shares(groups, state.weights)])

    def covariance_between(state: Any, J: Array) -> Array:
        total, offset = jnp.zeros(()), 0
        for group, members in zip(groups, state.members, strict=True):
            count, size = len(group.places), group.model.size
            own = jnp.moveaxis(
                J[:, offset : offset + count * size].reshape(len(J), count, size), 1, 0
            )
            total += jnp.sum(group.each(_covariance_between, members, own), axis=0)
            offset += count * size
        return total

    def one(state: Any, key: Key) -> Array:
        keys = jax.random.split(key, sum(len(group.places) for group in groups))
        draws: list[Array] = []
        first = 0
        for group, members in zip(groups, state.members, strict=True):
            mine = keys[first : first + len(group.places)]
            draws.append(group.each(_draw, members, mine).reshape(-1))
            first += len(group.places)
        return jnp.concatenate([*draws, *shares(groups, state.weights)])

    def sample(state: Any, key: Key, count: int) -> Array:
        return jax.vmap(lambda k: one(state, k))(jax.random.split(key, count))

    # One vector, and not a tree of arrays: `wrap` might order those otherwise than `mean` does.
    model = models.wrap(apply, start, inputs=groups[0].model.inputs)
    return Committee(model._replace(unravel=unravel), mean, covariance_between, sample)


def covariance_of(between: Callable[[Any, Array], Array]) -> Callable[[Any, Rows], Array]:
    """Each example's own G Σ Gᵀ (N, K, K), from rows written out."""

    def of(state: Any, G: Rows) -> Array:
        examples, columns, _ = G.deltas[0].shape
        written = rows.to_dense(G).reshape(examples, columns, -1)
        return jax.vmap(lambda J: between(state, J))(written)

    return of


def _each(groups: Sequence[Group], function: Callable[..., Array], state: Any) -> list[Array]:
    pairs = zip(groups, state.members, strict=True)
    return [group.each(function, members) for group, members in pairs]


def _mean(learner: Estimator, own: Any) -> Array:
    return learner.mean(own)


def _covariance_between(learner: Estimator, own: Any, J: Array) -> Array:
    return _posterior(learner.covariance_between)(own, J)


def _draw(learner: Estimator, own: Any, key: Key) -> Array:
    return _posterior(learner.sample)(own, key, 1)[0]


def _posterior(function: Callable[..., Array] | None) -> Callable[..., Array]:
    if function is None:
        raise ValueError("settings must all keep a posterior for this, got a point estimate.")
    return function
