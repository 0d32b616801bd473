"""Settings that differ in numbers alone: one learner, under vmap over them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bayestream.types import Array, Estimator, Model

Factory = Callable[..., Estimator]
Setting = Mapping[str, Any]


class Group(NamedTuple):
    """Learners that one compiled program serves."""

    factory: Factory
    same: dict[str, Any]  # what all have in common
    numbers: dict[str, Array]  # what they do not, (M,) each
    places: tuple[int, ...]  # of its settings among all
    model: Model

    def each(self, function: Callable[..., Any], *stacked: Any) -> Any:
        """function(learner, part) for each setting and its part of what is stacked."""

        def one(numbers: dict[str, Array], *parts: Any) -> Any:
            return function(self.factory(**self.same, **numbers), *parts)

        return jax.vmap(one, axis_size=len(self.places))(self.numbers, *stacked)

    def one(self, index: Array, stacked: Any) -> tuple[Estimator, Any]:
        """The learner of one setting of the group, and its part of what is stacked."""
        numbers = {name: values[index] for name, values in self.numbers.items()}
        return self.factory(**self.same, **numbers), jax.tree.map(lambda a: a[index], stacked)


def grouped(factory: Factory, settings: Sequence[Setting]) -> list[Group]:
    """The settings in groups: floats are data, and anything else is a program of its own."""
    places: dict[Hashable, list[int]] = {}
    for place, setting in enumerate(settings):
        kind = tuple((name, _kind(setting[name])) for name in sorted(setting))
        places.setdefault(kind, []).append(place)
    groups: list[Group] = []
    for chosen in places.values():
        first = settings[chosen[0]]
        values = {name: tuple(settings[place][name] for place in chosen) for name in first}
        varied = {n: v for n, v in values.items() if _is_data(v[0]) and len(set(v)) > 1}
        same = {name: value for name, value in first.items() if name not in varied}
        dtype = jnp.result_type(float)
        # The same arrays wherever they are used: a compiler then sees that they are.
        numbers = {name: jax.device_put(np.array(each, dtype)) for name, each in varied.items()}
        groups.append(Group(factory, same, numbers, tuple(chosen), factory(**first).model))
    return groups


def shares(groups: Sequence[Group], weights: Array) -> list[Array]:
    """Each group's part of the settings' weights."""
    return [weights[np.array(group.places)] for group in groups]


def _is_data(value: Any) -> bool:
    return isinstance(value, float | np.floating)


def _kind(value: Any) -> Hashable:
    """Equal for what one program serves."""
    if _is_data(value):
        return "a number"
    return type(value), value if isinstance(value, Hashable) else id(value)
