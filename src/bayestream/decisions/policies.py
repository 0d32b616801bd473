"""Which arm to pull: each policy a function of what is believed, made by a factory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from bayestream.checks import check_fraction, check_non_negative
from bayestream.estimators.guard import check_state
from bayestream.networks.linearize import output_rows
from bayestream.types import Array, Estimator, Key, ScalarOrSchedule, State, at

# (learner, its state, a context, key, step) → the number of an arm
Policy = Callable[[Estimator, State, Array, Key, Array], Array]


def thompson() -> Policy:
    """Thompson sampling: the best arm of a network whose weights are drawn from the belief.

    >>> import bayestream as bs
    >>> learner = bs.lofi(bs.models.mlp([2, 3]), bs.likelihoods.gaussian(0.1), rank=3)
    >>> state, key = learner.init(jax.random.key(0)), jax.random.key(1)
    >>> int(thompson()(learner, state, jnp.ones(2), key, jnp.array(0))) in (0, 1, 2)
    True
    """

    def choose(learner: Estimator, state: State, x: Array, key: Key, step: Array) -> Array:
        draw = _posterior(learner, learner.sample)(state, key, 1)[0]
        return jnp.argmax(_rewards(learner, state, learner.model.apply(draw, x)))

    return choose


def thompson_of_outputs() -> Policy:
    """Thompson sampling in function space: the arms' outputs are drawn, not the weights.

    From their joint distribution N(f(x, μ), F Σ Fᵀ) under the network linearised at its mean: a
    draw has as many numbers as there are arms.
    """

    def choose(learner: Estimator, state: State, x: Array, key: Key, step: Array) -> Array:
        outputs, covariance = _outputs(learner, state, x)
        values, vectors = jnp.linalg.eigh(covariance)
        noise = jax.random.normal(key, outputs.shape, outputs.dtype)
        draw = outputs + vectors @ (jnp.sqrt(jnp.maximum(values, 0.0)) * noise)
        return jnp.argmax(_rewards(learner, state, draw))

    return choose


def upper_confidence(width: ScalarOrSchedule = 2.0) -> Policy:
    """The arm whose output may be the best: its mean and `width` standard deviations above it.

    Args:
        width: a number, or a function of the step.
    """
    check_non_negative("width", width)

    def choose(learner: Estimator, state: State, x: Array, key: Key, step: Array) -> Array:
        outputs, covariance = _outputs(learner, state, x)
        deviations = jnp.sqrt(jnp.maximum(jnp.diag(covariance), 0.0))
        high = outputs + at(width, step, outputs.dtype) * deviations
        return jnp.argmax(_rewards(learner, state, high))

    return choose


def epsilon_greedy(epsilon: ScalarOrSchedule = 0.1) -> Policy:
    """The arm that is best at the mean weights; with probability `epsilon`, any.

    Args:
        epsilon: from 0 (greedy) to 1 (at random), or a function of the step.
    """
    check_fraction("epsilon", epsilon)

    def choose(learner: Estimator, state: State, x: Array, key: Key, step: Array) -> Array:
        key_whether, key_which = jax.random.split(key)
        params = learner.mean(state)
        best = jnp.argmax(_rewards(learner, state, learner.model.apply(params, x)))
        any_arm = jax.random.randint(key_which, (), 0, learner.model.outputs)
        explores = jax.random.bernoulli(key_whether, at(epsilon, step, params.dtype))
        return jnp.where(explores, any_arm, best)

    return choose


def _rewards(learner: Estimator, state: State, outputs: Array) -> Array:
    """The expected reward of each arm."""
    return learner.likelihood(state).mean(outputs)


def _outputs(learner: Estimator, state: State, x: Array) -> tuple[Array, Array]:
    """The arms' outputs at the mean weights, and what is not known of them: F Σ Fᵀ."""
    params = learner.mean(state)
    outputs, rows = output_rows(learner.model, params, jnp.asarray(x, params.dtype)[None])
    return outputs[0], _posterior(learner, learner.covariance_of)(state, rows)[0]


def _posterior(learner: Estimator, function: Callable[..., Any] | None) -> Callable[..., Array]:
    if function is None:
        raise ValueError(
            "learner must keep a posterior for this policy, got one that only has a mean; "
            "use epsilon_greedy."
        )

    def checked(state: State, *args: Any) -> Array:
        check_state(learner, state)
        return function(state, *args)

    return checked
