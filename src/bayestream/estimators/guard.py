"""A state that is not finite is never kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from bayestream.gaussians.innovation import Innovation
from bayestream.types import Array

State = TypeVar("State")


def is_finite(tree: Any) -> Array:
    """Whether every number in a tree is finite."""
    each = [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree)]
    return jnp.all(jnp.array(each, bool))


def checked(after: Any, before: Any, innovation: Innovation) -> tuple[Any, Innovation]:
    """A conditioned belief, or where that is not finite the one before, and nothing learnt."""
    sound = is_finite(after)
    belief = jax.tree.map(lambda new, old: jnp.where(sound, new, old), after, before)
    return belief, innovation._replace(weights=jnp.where(sound, innovation.weights, jnp.nan))


def guarded(update: Callable[..., State], learnt: Callable[[State], Any]) -> Callable[..., State]:
    """An update that leaves the state as it was where `learnt(state)` would not be finite.

    For estimators that cannot tell from small matrices: it looks at all that was learnt. What is
    refused is counted in the state.
    """

    def guard(state: Any, *args: Any, **options: Any) -> Any:
        after: Any = update(state, *args, **options)
        sound = is_finite(learnt(after))
        kept = jax.tree.map(lambda new, old: jnp.where(sound, new, old), after, state)
        return kept._replace(refused=state.refused + ~sound)

    return guard
