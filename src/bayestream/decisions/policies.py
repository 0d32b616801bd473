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

# (learner, its state, a context, key, step) → how much each arm is wanted (A,): the most is pulled
Policy = Callable[[Estimator, State, Array, Key, Array], Array]


def thompson() -> Policy:
    """Thompson sampling: the best arm of a network whose weights are drawn from the belief.

    >>> import bayestream as bs
    >>> learner = bs.lofi(bs.models.mlp([2, 3]), bs.likelihoods.gaussian(0.1), rank=3)
    >>> state, key = learner.init(jax.random.key(0)), jax.random.key(1)
    >>> thompson()(learner, state, jnp.ones(2), key, jnp.array(0)).shape
    (3,)
    """

    def choose(learner: Estimator, state: State, x: Array, key: Key, step: Array) -> Array:
        draw = _posterior(learner, learner.sample)(state, key, 1)[0]
        return _rewards(learner, state, learner.model.apply(draw, x))

    return choose


def thompson_of_outputs() -> Policy:
    """Thompson sampling in function space: the arms' outputs are drawn, not the weights.

    From their joint distribution N(f(x, μ), F Σ Fᵀ) under the network linearised at its mean: a
    draw has as many numbers as there are arms.

    >>> import bayestream as bs
    >>> learner = bs.hilofi(bs.models.mlp([2, 8, 3]), bs.likelihoods.bernoulli())
    >>> bandit = bs.bandits.linear(0, inputs=2, arms=3, steps=20)
    >>> _, plays = bs.bandits.play(learner, learner.init(jax.random.key(0)), bandit,
    ...                            policy=thompson_of_outputs(), key=jax.random.key(1))
    >>> plays.arms.shape
    (20,)
    """

    def choose(learner: Estimator, state: State, x: Array, key: Key, step: Array) -> Array:
        outputs, covariance = _outputs(learner, state, x)
        values, vectors = jnp.linalg.eigh(covariance)
        noise = jax.random.normal(key, outputs.shape, outputs.dtype)
        draw = outputs + vectors @ (jnp.sqrt(jnp.maximum(values, 0.0)) * noise)
        return _rewards(learner, state, draw)

    return choose


def upper_confidence(width: ScalarOrSchedule = 2.0) -> Policy:
    """The arm whose output may be the best: its mean and `width` standard deviations above it.

    Args:
        width: a number, or a function of the step.

    >>> import bayestream as bs
    >>> learner = bs.lofi(bs.models.mlp([2, 3]), bs.likelihoods.gaussian(0.1), rank=3)
    >>> state, wider = learner.init(jax.random.key(0)), lambda step: jnp.sqrt(jnp.log(2.0 + step))
    >>> wanted = [upper_confidence(width)(learner, state, jnp.ones(2), jax.random.key(1), 9)
    ...           for width in (0.0, wider)]
    >>> bool((wanted[1] > wanted[0]).all())
    True
    """
    check_non_negative("width", width)

    def choose(learner: Estimator, state: State, x: Array, key: Key, step: Array) -> Array:
        outputs, covariance = _outputs(learner, state, x)
        deviations = jnp.sqrt(jnp.maximum(jnp.diag(covariance), 0.0))
        high = outputs + at(width, step, outputs.dtype) * deviations
        return _rewards(learner, state, high)

    return choose


def epsilon_greedy(epsilon: ScalarOrSchedule = 0.1) -> Policy:
    """The arm that is best at the mean weights; with probability `epsilon`, any.

    Args:
        epsilon: from 0 (greedy) to 1 (at random), or a function of the step.

    >>> import bayestream as bs
    >>> learner = bs.ogd(bs.models.mlp([2, 3]), bs.likelihoods.gaussian(0.1))
    >>> state, x = learner.init(jax.random.key(0)), jnp.ones(2)
    >>> wanted = epsilon_greedy(lambda step: 1 / (1 + step))(
    ...     learner, state, x, jax.random.key(1), 10**9)
    >>> bool((wanted == learner.model.apply(learner.mean(state), x)).all())
    True
    """
    check_fraction("epsilon", epsilon)

    def choose(learner: Estimator, state: State, x: Array, key: Key, step: Array) -> Array:
        key_whether, key_which = jax.random.split(key)
        params = learner.mean(state)
        best = _rewards(learner, state, learner.model.apply(params, x))
        explores = jax.random.bernoulli(key_whether, at(epsilon, step, params.dtype))
        return jnp.where(explores, jax.random.uniform(key_which, best.shape, best.dtype), best)

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
