"""The network's outputs under a belief, at one input or at many: drawn, or linearised."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from bayestream.checks import check_array, check_non_negative, check_whole
from bayestream.estimators.guard import check_state
from bayestream.networks.linearize import output_rows
from bayestream.types import Array, Estimator, Key, Likelihood, State

# Inputs looked at together: enough to keep the machine busy, few enough to fit beside the belief.
_TOGETHER = 256
_FEW = 32  # of a network that is not dense layers alone, whose rows are written out
_NUMBERS = 2**26  # in their rows, at most


def at_mean(estimator: Estimator, state: State, x: Any) -> Array:
    """η (…, C) at the mean weights."""
    return _each(_apply, estimator, _mean(estimator, state), x, rows=1)


def of_draws(
    estimator: Estimator, state: State, x: Any, key: Key, samples: int, temperature: float
) -> Array:
    """η (…, S, C) for draws of the weights."""
    mean, offsets = _draws(estimator, state, key, samples, temperature)
    return _each(_apply_draws, estimator, mean + offsets, x, rows=samples)


def of_linearized_draws(
    estimator: Estimator, state: State, x: Any, key: Key, samples: int, temperature: float
) -> Array:
    """η (…, S, C) of the network linearised at the mean, for draws of the weights."""
    belief = _draws(estimator, state, key, samples, temperature)
    return _each(_apply_offsets, estimator, belief, x, rows=samples)


def linearized_outputs(
    estimator: Estimator, state: State, x: Any, temperature: float = 1.0
) -> tuple[Array, Array]:
    """η (…, C) and its covariance T F Σ Fᵀ (…, C, C) under the linearised network."""
    return _linearized(_covariance, estimator, state, x, temperature, estimator.model.outputs)


def linearized_variances(
    estimator: Estimator, state: State, x: Any, temperature: float = 1.0
) -> tuple[Array, Array]:
    """η (…, C) and the variance of each output, the diagonal of T F Σ Fᵀ.

    Where the likelihood has `columns` K, it is found for the K largest outputs and for K more,
    further and further down; for those between them it is interpolated in their order.
    """
    columns = few(estimator, estimator.likelihood(state))
    if not columns:
        outputs, covariance = linearized_outputs(estimator, state, x, temperature)
        return outputs, jnp.diagonal(covariance, axis1=-2, axis2=-1)
    rows = len(_places(columns, estimator.model.outputs))
    return _linearized(_few_variances, estimator, state, x, temperature, rows)


def few(estimator: Estimator, likelihood: Likelihood) -> int:
    """The columns of the likelihood if they are fewer than the outputs, else 0."""
    columns = likelihood.columns or 0
    return columns if columns < estimator.model.outputs else 0


def _linearized(
    of: Callable[..., Any],
    estimator: Estimator,
    state: State,
    x: Any,
    temperature: float,
    rows: int,
) -> tuple[Array, Array]:
    """η, and what `of` says of F Σ Fᵀ, times the temperature."""
    check_non_negative("temperature", temperature)
    params = _mean(estimator, state)
    _posterior(estimator, estimator.covariance_of)
    outputs, doubt = _each(of, estimator, (params, state), x, rows=rows)
    return outputs, jnp.asarray(temperature, outputs.dtype) * doubt


def _draws(
    estimator: Estimator, state: State, key: Key, samples: int, temperature: float
) -> tuple[Array, Array]:
    """μ (P,), and θ − μ (S, P) for draws θ from the belief at that temperature."""
    check_whole("samples", samples, 1)
    check_non_negative("temperature", temperature)
    mean = _mean(estimator, state)
    draws = _posterior(estimator, estimator.sample)(state, key, samples)
    return mean, jnp.asarray(math.sqrt(temperature), mean.dtype) * (draws - mean)


def _apply(estimator: Estimator, params: Array, xs: Array) -> Array:
    return jax.vmap(estimator.model.apply, in_axes=(None, 0))(params, xs)


def _apply_draws(estimator: Estimator, draws: Array, xs: Array) -> Array:
    apply = jax.vmap(estimator.model.apply, in_axes=(0, None))
    return jax.vmap(apply, in_axes=(None, 0))(draws, xs)


def _apply_offsets(estimator: Estimator, belief: tuple[Array, Array], xs: Array) -> Array:
    """f(x, μ) + F (θ − μ) for each θ − μ, forwards: no row of F is made."""
    params, offsets = belief

    def one(x: Array) -> Array:
        eta, change = jax.linearize(lambda p: estimator.model.apply(p, x), params)
        return eta + jax.vmap(change)(offsets)

    return jax.vmap(one)(xs)


def _covariance(
    estimator: Estimator, belief: tuple[Array, State], xs: Array
) -> tuple[Array, Array]:
    params, state = belief
    eta, rows = output_rows(estimator.model, params, xs)
    return eta, _posterior(estimator, estimator.covariance_of)(state, rows)


def _few_variances(
    estimator: Estimator, belief: tuple[Array, State], xs: Array
) -> tuple[Array, Array]:
    params, state = belief
    likelihood, outputs = estimator.likelihood(state), estimator.model.outputs
    places = _places(few(estimator, likelihood), outputs)

    def order(eta: Array) -> Array:
        return jnp.argsort(eta if likelihood.logits is None else likelihood.logits(eta))[::-1]

    eta, rows = output_rows(estimator.model, params, xs, lambda eta: order(eta)[places])
    covariance = _posterior(estimator, estimator.covariance_of)(state, rows)

    def of_all(eta: Array, found: Array) -> Array:
        ordered = jnp.interp(jnp.arange(outputs), places, found).astype(eta.dtype)
        return jnp.zeros_like(eta).at[order(eta)].set(ordered)

    return eta, jax.vmap(of_all)(eta, jnp.diagonal(covariance, axis1=-2, axis2=-1))


def _places(columns: int, outputs: int) -> Any:
    """Which outputs are looked at, in the order of their size."""
    further = np.geomspace(columns, outputs - 1, columns).round().astype(int)
    return np.unique([*range(columns), *further])


def _each(of: Callable[..., Any], estimator: Estimator, belief: Any, x: Any, *, rows: int) -> Any:
    """What `of` makes of a belief and one input, or many, in blocks; of so many rows an input."""
    model = estimator.model
    many = (len(x), *model.inputs) if np.ndim(x) > len(model.inputs) else model.inputs
    check_array("x", x, [model.inputs, many])
    dtype = jax.tree.leaves(belief)[0].dtype
    traced = any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((belief, x)))
    x = jnp.asarray(x, dtype) if traced else np.asarray(x, dtype)
    if not isinstance(x, Tracer) and not np.isfinite(x).all():
        raise ValueError(f"x must hold finite numbers that {x.dtype} can, got NaN or infinity.")
    if x.ndim == len(model.inputs):
        return jax.tree.map(lambda found: found[0], _block(of, estimator, belief, x[None]))
    written = model.layers[0].offset if model.layers else model.size
    widths = sum(layer.outputs for layer in model.layers)
    numbers = min(rows, model.outputs) * written + rows * widths
    together = max(1, min(_FEW if written else _TOGETHER, _NUMBERS // numbers))
    if not len(x) or (traced and len(x) <= together):
        return _block(of, estimator, belief, x)
    if traced:
        blocks = -(-len(x) // together)
        padded = jnp.resize(x, (blocks, -(-len(x) // blocks), *model.inputs))
        found = jax.lax.map(lambda xs: of(estimator, belief, xs), padded)
        return jax.tree.map(lambda part: part.reshape(-1, *part.shape[2:])[: len(x)], found)
    # Filled up to a power of two: another number of inputs is seldom another program.
    parts = [x[first : first + together] for first in range(0, len(x), together)]
    filled = min(together, 1 << (len(parts[-1]) - 1).bit_length())
    parts[-1] = np.resize(parts[-1], (filled, *model.inputs))
    found = [_block(of, estimator, belief, part) for part in parts]
    return jax.tree.map(lambda *part: jnp.asarray(np.concatenate(part)[: len(x)]), *found)


@partial(jax.jit, static_argnums=(0, 1))
def _block(of: Callable[..., Any], estimator: Estimator, belief: Any, xs: Array) -> Any:
    return of(estimator, belief, xs)


def _mean(estimator: Estimator, state: State) -> Array:
    """The mean weights of a state that is this estimator's."""
    check_state(estimator, state)
    return estimator.mean(state)


def _posterior(estimator: Estimator, function: Callable[..., Array] | None) -> Callable[..., Array]:
    if function is None:
        raise ValueError(
            "estimator must keep a posterior for this forecast, got one that keeps a point "
            "estimate only; use plugin."
        )
    return function
