"""A few steps of an optax optimiser."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from bayestream.gaussians.innovation import largest
from bayestream.types import Array


def descend(
    optimiser: optax.GradientTransformation,
    gradient: Callable[[Array], Array],
    params: Array,
    state: Any,
    steps: int,
    allowed: Array | bool = True,
) -> tuple[Array, Any, Array]:
    """The parameters and the optimiser's state after `steps` gradient steps, and if all went well.

    Otherwise, or if it is not allowed, both are as they were. To look at all that was made would
    take as long as making it; but from gradients whose squares do not overflow, an optimiser makes
    what is finite, as long as its own numbers are.
    """

    def step(carry: tuple[Array, Any, Array], _: None) -> tuple[tuple[Array, Any, Array], None]:
        params, state, sound = carry
        slope = gradient(params)
        sound &= slope @ slope < largest(slope.dtype)

        def descended(params: Array, state: Any, slope: Array) -> tuple[Array, Any]:
            updates, state = optimiser.update(slope, state, params)
            return jnp.asarray(optax.apply_updates(params, updates)), state

        # Unlike a choice between arrays, a branch changes them in place: a third of the time.
        params, state = jax.lax.cond(
            sound & allowed, descended, lambda params, state, _: (params, state), *carry[:2], slope
        )
        return (params, state, sound), None

    start = (params, state, jnp.ones((), bool))
    params, state, sound = jax.lax.scan(step, start, None, length=steps)[0]
    if steps > 1:
        params, state = jax.tree.map(
            lambda new, old: jnp.where(sound, new, old), (params, state), start[:2]
        )
    return params, state, sound
