"""The last few examples, for estimators that look at them again."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bayestream.checks import check_whole
from bayestream.networks.linearize import is_observed
from bayestream.types import Array, Likelihood, Model


class Buffer(NamedTuple):
    """A ring of B examples; a place not yet taken has a missing label."""

    xs: Array  # (B, …)
    ys: Array  # (B, …)
    taken: Array  # how many examples have come in


def empty(model: Model, likelihood: Likelihood, size: int, dtype: Any) -> Buffer:
    """A buffer of `size` free places."""
    check_whole("buffer", size, 1)
    target = likelihood.target_shapes(model.outputs)[0]
    return Buffer(
        jnp.zeros((size, *model.inputs), dtype),
        jnp.full((size, *target), jnp.nan, dtype),
        jnp.zeros((), jnp.int32),
    )


def insert(
    buffer: Buffer, model: Model, likelihood: Likelihood, xs: Array, ys: Array
) -> tuple[Buffer, Array]:
    """Put in what can be learnt from, over the oldest; and which of the examples that was."""
    if ys.size != len(xs) * buffer.ys[0].size:
        raise ValueError(
            f"y must have shape {buffer.ys[0].shape} where examples are kept, got {ys.shape[1:]}."
        )
    ys = ys.reshape(len(xs), *buffer.ys.shape[1:])

    def put(buffer: Buffer, example: tuple[Array, Array]) -> tuple[Buffer, Array]:
        x, y = example
        observed = is_observed(model, likelihood, x, y)
        place = buffer.taken % len(buffer.xs)
        xs = buffer.xs.at[place].set(jnp.where(observed, x, buffer.xs[place]))
        ys = buffer.ys.at[place].set(jnp.where(observed, y, buffer.ys[place]))
        return Buffer(xs, ys, buffer.taken + observed), observed

    return jax.lax.scan(put, buffer, (xs, ys))


def losses(
    buffer: Buffer, model: Model, likelihood: Likelihood, params: Array
) -> tuple[Array, Array]:
    """−log p of each example (B,), zero for free places; and which places are taken."""

    def one(x: Array, y: Array) -> tuple[Array, Array]:
        taken = ~likelihood.missing(y)
        density = likelihood.log_density(model.apply(params, x), jnp.where(taken, y, 0.0))
        return jnp.where(taken, -density, 0.0), taken

    return jax.vmap(one)(buffer.xs, buffer.ys)
