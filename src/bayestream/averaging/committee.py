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


class _Mixture(NamedTuple):
    """Σ w_i N(μ_i, Σ_i) over the settings of some groups, which have one network."""

    groups: Sequence[Group]
    members: Sequence[Any]
    weights: Sequence[Array]  # of each group's settings; in all, one

    def mean(self) -> Array:
        means = self._each(lambda learner, own: learner.mean(own))
        return jnp.concatenate(self.weights) @ means

    def covariance_between(self, J: Array) -> Array:
        mean = self.mean()

        def about_the_mean(learner: Estimator, own: Any) -> Array:
            apart = J @ (learner.mean(own) - mean)
            return _posterior(learner.covariance_between)(own, J) + apart[:, None] * apart

        return jnp.tensordot(jnp.concatenate(self.weights), self._each(about_the_mean), 1)

    def sample(self, key: Key) -> Array:
        """One draw: a setting at random, then parameters from its belief."""
        key_which, key_draw = jax.random.split(key)
        which = jax.random.categorical(key_which, jnp.log(jnp.concatenate(self.weights)))
        sizes = [len(group.places) for group in self.groups]
        draw = jnp.zeros(())
        for group, members, first in zip(
            self.groups, self.members, accumulate([0, *sizes]), strict=False
        ):
            learner, own = group.one(jnp.clip(which - first, 0, len(group.places) - 1), members)
            mine = _posterior(learner.sample)(own, key_draw, 1)[0]
            draw = jnp.where(which >= first, mine, draw)
        return draw

    def _each(self, function: Callable[[Estimator, Any], Array]) -> Array:
        pairs = zip(self.groups, self.members, strict=True)
        return jnp.concatenate([group.each(function, members) for group, members in pairs])


def committee(groups: Sequence[Group]) -> Committee:
    """Of the groups' settings; its functions take a state with their members and weights.

    Of one network, the mixture over all settings. Of several, the model is their weighted mean
    Σ s_g f_g(x), its parameters are all of theirs and then the shares s, and each network's belief
    is the mixture over its own settings.
    """
    if all(group.model is groups[0].model for group in groups):

        def everyone(state: Any) -> _Mixture:
            return _Mixture(groups, state.members, shares(groups, state.weights))

        return Committee(
            groups[0].model,
            lambda state: everyone(state).mean(),
            lambda state, J: everyone(state).covariance_between(J),
            lambda state, key, count: jax.vmap(everyone(state).sample)(
                jax.random.split(key, count)
            ),
        )

    cuts = list(accumulate(group.model.size for group in groups))

    def networks(state: Any) -> list[_Mixture]:
        parts = zip(groups, state.members, shares(groups, state.weights), strict=True)
        return [_Mixture([group], [own], [w / jnp.sum(w)]) for group, own, w in parts]

    def share(state: Any) -> Array:
        return jnp.stack([jnp.sum(w) for w in shares(groups, state.weights)])

    def apply(params: Any, x: Array) -> Array:
        own, share = params
        outputs = [group.model.apply(p, x) for group, p in zip(groups, own, strict=True)]
        return share @ jnp.stack(outputs)

    def start(key: Key) -> Any:
        sizes = jnp.array([len(group.places) for group in groups])
        return [group.model.init(key) for group in groups], sizes / jnp.sum(sizes)

    def mean(state: Any) -> Array:
        return jnp.concatenate([*(mixture.mean() for mixture in networks(state)), share(state)])

    def covariance_between(state: Any, J: Array) -> Array:
        parts = zip(networks(state), jnp.split(J, cuts, axis=-1), strict=False)
        return sum((m.covariance_between(part) for m, part in parts), jnp.zeros(()))

    def sample(state: Any, key: Key, count: int) -> Array:
        def one(key: Key) -> Array:
            keys = jax.random.split(key, len(groups))
            parts = zip(networks(state), keys, strict=True)
            return jnp.concatenate([*(m.sample(k) for m, k in parts), share(state)])

        return jax.vmap(one)(jax.random.split(key, count))

    model = models.wrap(apply, start, inputs=groups[0].model.inputs)
    return Committee(model, mean, covariance_between, sample)


def covariance_of(between: Callable[[Any, Array], Array]) -> Callable[[Any, Rows], Array]:
    """Each example's own G Σ Gᵀ (N, K, K), from rows written out."""

    def of(state: Any, G: Rows) -> Array:
        examples, columns, _ = G.deltas[0].shape
        written = rows.to_dense(G).reshape(examples, columns, -1)
        return jax.vmap(lambda J: between(state, J))(written)

    return of


def _posterior(function: Callable[..., Array] | None) -> Callable[..., Array]:
    if function is None:
        raise ValueError("settings must all keep a posterior for this, got a point estimate.")
    return function
