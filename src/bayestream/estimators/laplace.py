"""Online Laplace: the best fit to a few examples and the belief so far, and the curvature there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from bayestream.checks import check_made_by, check_positive, check_whole
from bayestream.estimators.buffer import Buffer, empty, insert, losses
from bayestream.estimators.descent import descend
from bayestream.estimators.description import described
from bayestream.estimators.filter import check_examples, one_by_one
from bayestream.estimators.guard import guarded
from bayestream.estimators.spaces import Range, Space
from bayestream.gaussians import diagonal, kronecker
from bayestream.gaussians.diagonal import DiagonalGaussian
from bayestream.likelihoods import evolving
from bayestream.networks import rows
from bayestream.networks.linearize import Observation, observe
from bayestream.networks.rows import Rows
from bayestream.types import Array, Estimator, EvolvingLikelihood, Key, Likelihood, Model


class Curvature(NamedTuple):
    """A form of precision matrix, and what Laplace does with it."""

    start: Callable[[Model, Array], Any]  # (model, η₀) → the prior's
    add: Callable[[Any, Observation], Any]  # the Fisher information of an observation joins it
    times: Callable[[Any, Array], Array]  # Λ v
    covariance_between: Callable[[Any, Array], Array]  # J Λ⁻¹ Jᵀ
    covariance_of: Callable[[Any, Rows], Array]  # each example's own G Λ⁻¹ Gᵀ
    sample: Callable[[Any, Array, Key], Array]  # (precision, mean, key) → one draw


diagonal_curvature = Curvature(
    start=lambda model, eta: jnp.full(model.size, eta),
    add=lambda diag, seen: diag + rows.squares(seen.rows),
    times=lambda diag, v: diag * v,
    covariance_between=lambda diag, J: (J / diag) @ J.T,
    covariance_of=lambda diag, G: rows.gram_of_each(G, 1 / diag),
    sample=lambda diag, mean, key: diagonal.sample(DiagonalGaussian(mean, diag), key),
)


def _kronecker_start(model: Model, eta: Array) -> kronecker.KroneckerPrecision:
    if sum(layer.rows * layer.outputs for layer in model.layers) != model.size:
        raise ValueError(
            "model must be made of dense layers, as bs.models.mlp makes it, for Kronecker "
            "curvature; use diagonal_curvature for others."
        )
    return kronecker.start(model.layers, eta)


kronecker_curvature = Curvature(
    start=_kronecker_start,
    add=lambda precision, seen: kronecker.add(precision, seen.rows, seen.observed),
    times=kronecker.times,
    covariance_between=kronecker.covariance_between,
    covariance_of=kronecker.covariance_of,
    sample=kronecker.sample,
)


class LaplaceState(NamedTuple):
    """All that online Laplace carries from one step to the next."""

    mean: Array  # θ (P,), the best fit so far
    precision: Any  # Λ, with the examples in the buffer
    anchor: Array  # m (P,), the mean before them
    anchor_precision: Any  # Λ_m, without them
    buffer: Buffer  # the task so far
    step: Array
    noise: Any  # what an evolving likelihood carries; the `Kind` of a fixed one
    refused: Array  # how many updates would have made it infinite, and were not made


LAPLACE_SPACE: Space = {
    "prior_precision": Range(1e-2, 1e3),
    "optimiser": Range(1e-5, 1e-1, make=optax.adam, code="optax.adam({})"),
}


@described
def laplace(
    model: Model,
    likelihood: Likelihood | EvolvingLikelihood,
    *,
    buffer: int = 10,
    optimiser: optax.GradientTransformation | None = None,
    inner_steps: int = 10,
    prior_precision: float = 10.0,
    curvature: Curvature = diagonal_curvature,
) -> Estimator:
    """Online Laplace approximation (Ritter, Botev & Barber 2018, arXiv:1805.07810).

    A task is B consecutive examples. While it lasts, with N(m, Λ_m⁻¹) the belief before it:
    θ ← argmax Σ log p(y | x, θ) − ½ (θ − m)ᵀ Λ_m (θ − m), by `inner_steps` of the optimiser, and
    Λ = Λ_m + the Fisher information of the task at θ. At its end (θ, Λ) is the next task's
    (m, Λ_m) and the buffer is emptied, so every example is counted once.

    Args:
        model: the network.
        likelihood: what its output means.
        buffer: B, the examples of a task.
        optimiser: any of optax, by default `optax.adam(0.01)`, started afresh at every update.
        inner_steps: gradient steps an update.
        prior_precision: η₀.
        curvature: `bs.estimators.diagonal_curvature`, or `kronecker_curvature`: one Kronecker
            product a dense layer.

    >>> import jax, bayestream as bs
    >>> learner = bs.laplace(bs.models.mlp([2, 8, 1]), bs.likelihoods.gaussian(0.1),
    ...                      curvature=bs.estimators.kronecker_curvature)
    >>> state = jax.jit(learner.update)(learner.init(jax.random.key(0)), jnp.ones(2), jnp.ones(1))
    >>> [A.shape for A in state.precision.inputs]
    [(3, 3), (9, 9)]
    """
    check_whole("buffer", buffer, 1)
    check_whole("inner_steps", inner_steps, 1)
    check_positive("prior_precision", prior_precision)
    check_made_by("curvature", curvature, Curvature, "bs.estimators (diagonal_curvature, …)")
    chosen = optax.adam(1e-2) if optimiser is None else optimiser
    check_made_by("optimiser", chosen, optax.GradientTransformation, "optax (sgd, adam, …)")
    observations = evolving(likelihood)
    curvature.start(model, jnp.ones(()))  # refuses a model it cannot serve

    def init(key: Key) -> LaplaceState:
        mean = model.init(key)
        noise = observations.init(model.outputs, mean.dtype)
        first = observations.at(noise, jnp.zeros((), jnp.int32))
        eta = jnp.asarray(prior_precision, mean.dtype)
        return LaplaceState(
            mean,
            curvature.start(model, eta),
            jnp.array(mean),
            curvature.start(model, eta),
            empty(model, first, buffer, mean.dtype),
            jnp.zeros((), jnp.int32),
            noise,
            jnp.zeros((), jnp.int32),
        )

    def likelihood_now(state: LaplaceState) -> Likelihood:
        return observations.at(state.noise, jnp.maximum(state.step - 1, 0))

    def one(state: LaplaceState, x: Array, y: Array) -> LaplaceState:
        current = likelihood_now(state)
        task, observed = insert(state.buffer, model, current, x[None], y[None])

        def gradient(params: Array) -> Array:
            of_task = jax.grad(lambda p: jnp.sum(losses(task, model, current, p)[0]))(params)
            return of_task + curvature.times(state.anchor_precision, params - state.anchor)

        mean, *_ = descend(chosen, gradient, state.mean, chosen.init(state.mean), inner_steps)
        seen = observe(model, current, mean, task.xs, task.ys)
        precision = curvature.add(state.anchor_precision, seen)
        during = state._replace(mean=mean, precision=precision, buffer=task)
        after = during._replace(
            anchor=mean,
            anchor_precision=precision,
            buffer=empty(model, current, buffer, mean.dtype),
        )
        ended = task.taken == buffer
        new = jax.tree.map(lambda a, b: jnp.where(ended, a, b), after, during)
        new = jax.tree.map(lambda a, b: jnp.where(observed[0], a, b), new, state)
        output = model.apply(state.mean, jnp.where(jnp.isfinite(x), x, 0.0))
        return new._replace(noise=observations.adapt(state.noise, output[None], y[None], observed))

    def update_batch(
        state: LaplaceState, xs: Array, ys: Array, key: Key | None = None
    ) -> LaplaceState:
        xs, ys = check_examples(model, likelihood_now(state), xs, ys, state.mean.dtype)
        return jax.lax.scan(lambda s, example: (one(s, *example), None), state, (xs, ys))[0]

    def sample(state: LaplaceState, key: Key, count: int) -> Array:
        keys = jax.random.split(key, count)
        return jax.vmap(lambda k: curvature.sample(state.precision, state.mean, k))(keys)

    guarded_update = guarded(update_batch, lambda state: state._replace(buffer=()))
    return Estimator(
        model=model,
        likelihood=likelihood_now,
        init=jax.jit(init),
        predict=lambda state: state._replace(step=state.step + 1),
        update=one_by_one(guarded_update),
        update_batch=guarded_update,
        mean=lambda state: state.mean,
        covariance_between=lambda state, J: curvature.covariance_between(state.precision, J),
        covariance_of=lambda state, G: curvature.covariance_of(state.precision, G),
        sample=sample,
        refused=lambda state: state.refused,
    )
