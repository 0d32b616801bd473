"""A state that is not finite is never kept."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from bayestream.gaussians.innovation import Innovation
from bayestream.likelihoods.evolving import Kind
from bayestream.networks.shards import everywhere
from bayestream.types import Array, Estimator, Likelihood

State = TypeVar("State")


def is_finite(tree: Any) -> Array:
    """Whether every number in a tree is finite."""
    each = [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree)]
    return jnp.all(jnp.array(each, bool))


def check_state(estimator: Estimator, state: Any) -> tuple[Likelihood, Any]:
    """Refuse a state that another learner made: of another family, size, rank or likelihood.

    Returns its likelihood, for what it says of targets alone, and the dtype to learn them in.
    What is traced is not checked: the numbers of the learner may be so too, and would be kept.
    """
    leaves, structure = jax.tree.flatten(state)
    if any(isinstance(leaf, Tracer) for leaf in leaves):
        return estimator.likelihood(state), estimator.mean(state).dtype
    kinds = tuple((np.shape(leaf), getattr(leaf, "dtype", type(leaf))) for leaf in leaves)
    return _checked(estimator, structure, kinds)


@lru_cache(maxsize=256)
def _checked(
    estimator: Estimator, structure: Any, kinds: tuple[tuple[Any, Any], ...]
) -> tuple[Likelihood, Any]:
    state = jax.tree.unflatten(structure, [jax.ShapeDtypeStruct(*kind) for kind in kinds])
    _check_layout(jax.eval_shape(estimator.init, jax.random.key(0)), state)
    found: list[Any] = []

    def look(state: Any) -> None:
        found.append((estimator.likelihood(state), estimator.mean(state).dtype))

    jax.eval_shape(look, state)
    return found[0]


def _check_layout(first: Any, state: Any) -> None:
    expected, found = _parts(first), _parts(state)
    for name in [*expected, *found]:
        if expected.get(name) != found.get(name):
            raise ValueError(
                f"state must come from this learner's init or a run of it: state{name} must be "
                f"{expected.get(name, 'absent')}, got {found.get(name, 'nothing there')}."
            )
    if jax.tree.structure(first) != jax.tree.structure(state):
        raise ValueError(
            "state must come from this learner's init or a run of it, got another kind."
        )


def _parts(state: Any) -> dict[str, str]:
    """What a state is made of, in words."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(
        state, is_leaf=lambda part: isinstance(part, Kind)
    )
    return {
        jax.tree_util.keystr(path): f"of a {leaf.name} likelihood"
        if isinstance(leaf, Kind)
        else f"an array of shape {jnp.shape(leaf)}"
        for path, leaf in leaves
    }


def checked(after: Any, before: Any, innovation: Innovation) -> tuple[Any, Innovation]:
    """A conditioned belief, or where nothing was learnt or it is not finite, the one before."""
    sound = everywhere(is_finite((after, innovation.weights)))
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
