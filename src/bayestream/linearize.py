"""An observation, seen through the network linearised at the mean."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from bayestream.rows import Rows
from bayestream.types import Array, Likelihood, Model


class Observation(NamedTuple):
    """N observations as M = N·K unit-noise Gaussian ones: all that conditioning needs."""

    rows: Rows  # Gᵀ (M, P): the paper's A H, here Bᵀ ∂η/∂θ
    residual: Array  # v (M,): the paper's A (y − ŷ)
    outputs: Array  # η (N, C)
    observed: Array  # (N,): false where a label is missing or an input is not finite


def observe(model: Model, likelihood: Likelihood, mean: Array, xs: Array, ys: Array) -> Observation:
    """Linearise at `mean`. What is not observed has zero rows, and so changes nothing."""

    def one(x: Array, y: Array) -> Observation:
        observed = (
            jnp.all(jnp.isfinite(x)) & ~likelihood.missing(y) & likelihood.support(y, model.outputs)
        )
        x = jnp.where(observed, x, jnp.zeros_like(x))
        y = jnp.where(observed, y, jnp.zeros_like(y))
        eta, activations, pull_back = model.linearize(mean, x)
        B = jnp.where(observed, likelihood.fisher_factor(eta), 0.0)
        v = jnp.where(observed, likelihood.residual(eta, y), 0.0)
        deltas = jax.vmap(pull_back)(B.T)
        return Observation(Rows(activations, deltas), v, eta, observed)

    each = jax.vmap(one)(xs, ys)
    return each._replace(residual=each.residual.reshape(-1))


def jacobian(model: Model, params: Array, x: Array) -> tuple[Array, Array]:
    """η (C,) and ∂η/∂θ (C, P) at one input, in one vectorised backward pass."""
    eta, pull_back = jax.vjp(lambda p: model.apply(p, x), params)
    (rows,) = jax.vmap(pull_back)(jnp.eye(model.outputs, dtype=eta.dtype))
    return eta, rows
