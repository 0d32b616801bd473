"""ORFit: fit each new point exactly, in a direction that the old ones do not feel."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from bayestream.checks import check_rank
from bayestream.estimators.description import described
from bayestream.estimators.filter import check_examples, one_by_one
from bayestream.estimators.guard import guarded
from bayestream.likelihoods import evolving
from bayestream.networks.linearize import is_observed, jacobian
from bayestream.types import Array, Estimator, EvolvingLikelihood, Key, Likelihood, Model


class OrfitState(NamedTuple):
    """All that ORFit carries from one step to the next."""

    mean: Array  # μ (P,)
    scales: Array  # λ (L,)
    basis: Array  # Uᵀ (L, P), orthonormal rows; zero where unused
    step: Array
    refused: Array  # how many updates would have made it infinite, and were not made


@described
def orfit(
    model: Model, likelihood: Likelihood | EvolvingLikelihood, *, rank: int = 10
) -> Estimator:
    """Orthogonal recursive fitting (Min, Ahn & Azizan 2022, arXiv:2207.13853).

    For one output observed without noise. Update, with g = ∂h/∂μ:
    v = (I − U Uᵀ) g,  μ ← μ + (y − h(x)) v/(gᵀv),  and v/|v| takes the place of the direction with
    the smallest λ, if |v| is larger. The noise of `likelihood`, a Gaussian, is for scores only.

    Args:
        model: the network, with one output.
        likelihood: `bs.likelihoods.gaussian`.
        rank: L, how many directions are protected.

    >>> import jax, bayestream as bs
    >>> learner = bs.orfit(bs.models.mlp([2, 8, 1]), bs.likelihoods.gaussian(0.1), rank=3)
    >>> state = jax.jit(learner.update)(learner.init(jax.random.key(0)), jnp.ones(2), jnp.ones(1))
    >>> state.scales.shape
    (3,)
    """
    check_rank(rank, model.size)
    if model.outputs != 1:
        raise ValueError(f"model must have one output for orfit, got {model.outputs}.")
    evolving(likelihood)
    if isinstance(likelihood, EvolvingLikelihood) or likelihood.name != "gaussian":
        kind = "one that evolves" if isinstance(likelihood, EvolvingLikelihood) else likelihood.name
        raise ValueError(f"likelihood must be a fixed gaussian for orfit, got {kind}.")
    fixed = likelihood

    def init(key: Key) -> OrfitState:
        mean = model.init(key)
        basis = jnp.zeros((rank, model.size), mean.dtype)
        step, refused = jnp.zeros((2,), jnp.int32)
        return OrfitState(mean, jnp.zeros(rank, mean.dtype), basis, step, refused)

    def one(state: OrfitState, example: tuple[Array, Array]) -> tuple[OrfitState, None]:
        x, y = example
        observed = is_observed(model, fixed, x, y)
        x = jnp.where(observed, x, jnp.zeros_like(x))
        (output,), (gradient,) = jacobian(model, state.mean, x)
        error = jnp.where(observed, y.reshape(()), output) - output
        v = gradient - (state.basis @ gradient) @ state.basis
        v -= (state.basis @ v) @ state.basis  # once more, for what rounding left
        square = v @ v
        # Below rounding, no direction is left that the points before would not feel.
        free = observed & (square > jnp.finfo(v.dtype).eps * (gradient @ gradient))
        mean = state.mean + jnp.where(free, error / jnp.where(free, square, 1.0), 0.0) * v
        if rank == 0:
            return state._replace(mean=mean), None
        length, k = jnp.sqrt(square), jnp.argmin(state.scales)
        replace = free & (length > state.scales[k])
        unit = v / jnp.where(free, length, 1.0)
        basis = state.basis.at[k].set(jnp.where(replace, unit, state.basis[k]))
        scales = state.scales.at[k].set(jnp.where(replace, length, state.scales[k]))
        return state._replace(mean=mean, scales=scales, basis=basis), None

    def update_batch(state: OrfitState, xs: Array, ys: Array, key: Key | None = None) -> OrfitState:
        xs, ys = check_examples(model, fixed, xs, ys, state.mean.dtype)
        return jax.lax.scan(one, state, (xs, ys))[0]

    guarded_update = guarded(update_batch, lambda state: state)
    return Estimator(
        model=model,
        likelihood=lambda state: fixed,
        init=jax.jit(init),
        predict=lambda state: state._replace(step=state.step + 1),
        update=one_by_one(guarded_update),
        update_batch=guarded_update,
        mean=lambda state: state.mean,
        covariance_between=None,
        covariance_of=None,
        sample=None,
        refused=lambda state: state.refused,
    )
