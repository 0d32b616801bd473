"""Gradient descent on the last few examples: the baseline without a belief."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from bayestream.checks import check_made_by, check_whole
from bayestream.estimators.buffer import Buffer, empty, insert, losses
from bayestream.estimators.descent import descend
from bayestream.estimators.description import described
from bayestream.estimators.filter import check_examples, one_by_one
from bayestream.estimators.guard import is_finite
from bayestream.estimators.spaces import Range, Space
from bayestream.likelihoods import evolving
from bayestream.types import Array, Estimator, EvolvingLikelihood, Key, Likelihood, Model

Reduction = Callable[[Array, Array], Array]  # (losses (B,), taken (B,)) → one number


def total(losses: Array, taken: Array) -> Array:
    """The sum over the buffer."""
    return jnp.sum(losses)


def average(losses: Array, taken: Array) -> Array:
    """The mean over the examples in the buffer."""
    return jnp.sum(losses) / jnp.maximum(jnp.sum(taken), 1)


class ReplayState(NamedTuple):
    """All that gradient descent carries from one step to the next."""

    params: Array  # (P,)
    optimiser: Any  # optax's own
    buffer: Buffer
    step: Array
    noise: Any  # what an evolving likelihood carries; the `Kind` of a fixed one
    refused: Array  # how many updates would have made it infinite, and were not made


DESCENT_SPACE: Space = {"optimiser": Range(1e-5, 1e-1, make=optax.adam, code="optax.adam({})")}


@described
def replay_sgd(
    model: Model,
    likelihood: Likelihood | EvolvingLikelihood,
    *,
    buffer: int = 10,
    optimiser: optax.GradientTransformation | None = None,
    inner_steps: int = 1,
    reduction: Reduction = total,
) -> Estimator:
    """Stochastic gradient descent with a first-in, first-out replay buffer.

    Update:  the example joins the buffer, then `inner_steps` times θ ← optimiser(θ, ∇ Σ −log p).

    Args:
        model: the network.
        likelihood: what its output means.
        buffer: B, how many of the last examples are kept; 1 is online gradient descent.
        optimiser: any of optax, by default `optax.sgd(0.01)`; its state lives on between updates.
        inner_steps: gradient steps an update.
        reduction: `bs.estimators.total` (the paper's) or `bs.estimators.average`.

    >>> import jax, bayestream as bs
    >>> learner = bs.replay_sgd(bs.models.mlp([2, 8, 1]), bs.likelihoods.gaussian(0.1),
    ...                         buffer=5, optimiser=optax.adam(1e-3))
    >>> state = jax.jit(learner.update)(learner.init(jax.random.key(0)), jnp.ones(2), jnp.ones(1))
    >>> learner.mean(state).shape
    (33,)
    """
    check_whole("buffer", buffer, 1)
    check_whole("inner_steps", inner_steps, 1)
    chosen = optax.sgd(1e-2) if optimiser is None else optimiser
    check_made_by("optimiser", chosen, optax.GradientTransformation, "optax (sgd, adam, …)")
    observations = evolving(likelihood)

    def init(key: Key) -> ReplayState:
        params = model.init(key)
        noise = observations.init(model.outputs, params.dtype)
        first = observations.at(noise, jnp.zeros((), jnp.int32))
        kept = empty(model, first, buffer, params.dtype)
        step, refused = jnp.zeros((2,), jnp.int32)
        return ReplayState(params, chosen.init(params), kept, step, noise, refused)

    def likelihood_now(state: ReplayState) -> Likelihood:
        return observations.at(state.noise, jnp.maximum(state.step - 1, 0))

    def update_batch(
        state: ReplayState, xs: Array, ys: Array, key: Key | None = None
    ) -> ReplayState:
        current = likelihood_now(state)
        xs, ys = check_examples(model, current, xs, ys, state.params.dtype)
        kept, observed = insert(state.buffer, model, current, xs, ys)
        gradient = jax.grad(lambda p: reduction(*losses(kept, model, current, p)))
        outputs = jax.vmap(lambda x: model.apply(state.params, x))(
            jnp.where(jnp.isfinite(xs), xs, 0.0)
        )
        noise = observations.adapt(state.noise, outputs, ys, observed)
        known = is_finite(noise)
        allowed = known & jnp.any(observed)
        params, optimised, sound = descend(
            chosen, gradient, state.params, state.optimiser, inner_steps, allowed
        )
        sound &= known
        kept, noise = jax.tree.map(
            lambda new, old: jnp.where(sound, new, old), (kept, noise), (state.buffer, state.noise)
        )
        refused = state.refused + ~sound
        return ReplayState(params, optimised, kept, state.step, noise, refused)

    return Estimator(
        model=model,
        likelihood=likelihood_now,
        init=jax.jit(init),
        predict=lambda state: state._replace(step=state.step + 1),
        update=one_by_one(update_batch),
        update_batch=update_batch,
        mean=lambda state: state.params,
        covariance_between=None,
        covariance_of=None,
        sample=None,
        refused=lambda state: state.refused,
    )


@described
def ogd(
    model: Model,
    likelihood: Likelihood | EvolvingLikelihood,
    *,
    optimiser: optax.GradientTransformation | None = None,
    inner_steps: int = 1,
) -> Estimator:
    """Online gradient descent: `replay_sgd` with a buffer of one.

    >>> import jax, bayestream as bs
    >>> learner = bs.ogd(bs.models.mlp([2, 8, 1]), bs.likelihoods.gaussian(0.1))
    >>> learner.init(jax.random.key(0)).buffer.xs.shape
    (1, 2)
    """
    return replay_sgd(model, likelihood, buffer=1, optimiser=optimiser, inner_steps=inner_steps)
