"""An observation, seen through the network linearised at given parameters."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bayestream.networks.rows import Rows, weighted
from bayestream.types import Array, Likelihood, Model


class Observation(NamedTuple):
    """N observations as M = N·K unit-noise Gaussian ones: all that conditioning needs."""

    rows: Rows  # Gᵀ (M, P): the paper's A H, here Bᵀ ∂η/∂θ
    residual: Array  # v (M,): the paper's A (y − ŷ)
    outputs: Array  # η (N, C)
    observed: Array  # (N,): false where a label is missing or an input is not finite


def observe(
    model: Model, likelihood: Likelihood, params: Array, xs: Array, ys: Array
) -> Observation:
    """Linearise at `params`, one row for each column of B: G Gᵀ is the Fisher information."""

    def seen(eta: Array, y: Array) -> tuple[Array, Array]:
        factor, residual = likelihood.seen(eta, y)
        return factor.T, residual

    return _observe(model, likelihood, params, xs, ys, seen)


def observe_secant(
    model: Model, likelihood: Likelihood, params: Array, xs: Array, ys: Array
) -> Observation:
    """As `observe`, with at least the curvature that each error implies (`Likelihood.secant`)."""

    def seen(eta: Array, y: Array) -> tuple[Array, Array]:
        factor, residual = likelihood.secant(eta, y)
        return factor.T, residual

    return _observe(model, likelihood, params, xs, ys, seen)


def observe_gradients(
    model: Model, likelihood: Likelihood, params: Array, xs: Array, ys: Array
) -> Observation:
    """One row an example, g = ∇ log p(y | x, θ): G Gᵀ is the empirical Fisher information."""

    def seen(eta: Array, y: Array) -> tuple[Array, Array]:
        return likelihood.score(eta, y)[None], jnp.ones(1, eta.dtype)

    return _observe(model, likelihood, params, xs, ys, seen)


def only(observation: Observation, sound: Array) -> Observation:
    """The observation, or where it is not sound one that changes nothing."""
    each = jnp.full(len(observation.rows.activations[0]), sound, observation.residual.dtype)
    return observation._replace(
        rows=weighted(observation.rows, each),
        residual=jnp.where(sound, observation.residual, 0.0),
        observed=observation.observed & sound,
    )


def is_observed(model: Model, likelihood: Likelihood, x: Array, y: Array) -> Array:
    """Whether there is something to learn from an example; what is not never touches a belief."""
    possible = ~likelihood.missing(y) & likelihood.support(y, model.outputs)
    return jnp.all(jnp.isfinite(x)) & possible


def output_rows(
    model: Model,
    params: Array,
    xs: Array,
    chosen: Callable[[Array], Array] | None = None,  # η → which outputs; None: all
) -> tuple[Array, Rows]:
    """η (N, C) and the rows ∂η/∂θ of each of N inputs, in one vectorised backward pass."""

    def one(x: Array) -> tuple[Array, Rows]:
        eta, activations, pull_back = model.linearize(params, x)
        if chosen is None:
            return eta, Rows(activations, jax.vmap(pull_back)(_basis(eta.size, eta.dtype)))
        vectors = jax.nn.one_hot(chosen(eta), eta.size, dtype=eta.dtype)
        return eta, Rows(activations, jax.vmap(pull_back)(vectors))

    return jax.vmap(one)(xs)


@lru_cache(maxsize=64)
def _basis(size: int, dtype: Any) -> Any:
    """The unit vectors; always the same array, so that a compiler sees two uses of it as one."""
    return np.eye(size, dtype=dtype)


def jacobian(model: Model, params: Array, x: Array) -> tuple[Array, Array]:
    """η (C,) and ∂η/∂θ (C, P) at one input, in one vectorised backward pass."""
    eta, pull_back = jax.vjp(lambda p: model.apply(p, x), params)
    (rows,) = jax.vmap(pull_back)(jnp.eye(model.outputs, dtype=eta.dtype))
    return eta, rows


def _observe(
    model: Model,
    likelihood: Likelihood,
    params: Array,
    xs: Array,
    ys: Array,
    seen: Callable[[Array, Array], tuple[Array, Array]],  # (η, y) → ∂/∂η of each row, and v
) -> Observation:
    """What is not observed has zero rows, and so changes nothing."""

    def one(x: Array, y: Array) -> Observation:
        observed = is_observed(model, likelihood, x, y)
        x = jnp.where(observed, x, jnp.zeros_like(x))
        y = jnp.where(observed, y, jnp.zeros_like(y))
        eta, activations, pull_back = model.linearize(params, x)
        cotangents, v = seen(eta, y)
        deltas = jax.vmap(pull_back)(jnp.where(observed, cotangents, 0.0))
        return Observation(Rows(activations, deltas), jnp.where(observed, v, 0.0), eta, observed)

    each = jax.vmap(one)(xs, ys)
    return each._replace(residual=each.residual.reshape(-1))
