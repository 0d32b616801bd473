"""A few steps of an optax optimiser."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from bayestream.types import Array


def descend(
    optimiser: optax.GradientTransformation,
    gradient: Callable[[Array], Array],
    params: Array,
    state: Any,
    steps: int,
) -> tuple[Array, Any]:
    """The parameters, and the optimiser's own state, after `steps` gradient steps."""

    def step(carry: tuple[Array, Any], _: None) -> tuple[tuple[Array, Any], None]:
        params, state = carry
        updates, state = optimiser.update(gradient(params), state, params)
        return (jnp.asarray(optax.apply_updates(params, updates)), state), None

    return jax.lax.scan(step, (params, state), None, length=steps)[0]
