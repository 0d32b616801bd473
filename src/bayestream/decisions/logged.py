"""What a policy would have earned, from a log of what another one did."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from bayestream.checks import check_array
from bayestream.decisions.policies import Policy
from bayestream.estimators.guard import check_state
from bayestream.types import Array, Estimator, Key, State


class Log(NamedTuple):
    """T decisions of the past."""

    contexts: Any  # x (T, …)
    arms: Any  # (T,): which arm was pulled
    rewards: Any  # (T,): what it paid
    propensities: Any  # (T,): how likely it was pulled


class Replay(NamedTuple):
    """Which of the past decisions a policy agreed with."""

    arms: Array  # (T,): what it would have pulled
    rewards: Array  # (T,): those of the log
    weights: Array  # (T,): how much each counts; 0 where it pulls another arm


def rejection(
    learner: Estimator, state: State, log: Log, *, policy: Policy, key: Key
) -> tuple[State, Replay]:
    """Replay by rejection sampling: only decisions that the log happens to share are made.

    Such a decision is accepted with probability (the least propensity)/(its own), so that what is
    accepted is as if each arm had been logged equally often; of a log made at random, always
    (Li et al. 2011, arXiv:1003.5956). What is accepted is learnt from, and counts 1.

    Args:
        learner: with an output for each arm.
        state: from `learner.init`, or of an earlier game.
        log: what was done, and how likely it was.
        policy: from `bs.policies`.
        key: of all that is random.

    >>> import bayestream as bs
    >>> rng = np.random.default_rng(0)
    >>> bandit = bs.bandits.linear(0, steps=2000, inputs=2, arms=3)
    >>> arms = rng.integers(3, size=2000)
    >>> log = bs.logged.Log(bandit.contexts, arms, bandit.rewards[range(2000), arms],
    ...                     np.full(2000, 1 / 3))
    >>> learner = bs.lofi(bs.models.mlp([2, 3]), bs.likelihoods.gaussian(0.1), rank=3)
    >>> _, replay = bs.logged.rejection(learner, learner.init(jax.random.key(0)), log,
    ...                                 policy=bs.policies.thompson(), key=jax.random.key(1))
    >>> earned, error = bs.logged.value(replay)
    >>> bool(earned > log.rewards.mean() + 3 * error)
    True
    """
    propensities = _checked(learner, state, log)
    accepted = np.min(propensities) / propensities
    return _replay(learner, state, log, policy, key, accepted, np.ones_like(accepted))


def importance(
    learner: Estimator, state: State, log: Log, *, policy: Policy, key: Key
) -> tuple[State, Replay]:
    """Replay by importance weights: each shared decision is learnt from, and counts 1/propensity.

    Uses more of an uneven log than `rejection`, at the price of uneven weights. Arguments as there.
    """
    propensities = _checked(learner, state, log)
    return _replay(learner, state, log, policy, key, np.ones_like(propensities), 1 / propensities)


def value(replay: Replay) -> tuple[float, float]:
    """The mean reward of a replayed policy, Σ w r/Σ w, and its standard error.

    >>> value(Replay(np.zeros(3), np.array([1.0, 0.0, 5.0]), np.array([1.0, 1.0, 0.0])))[0]
    0.5
    """
    w, r = (np.asarray(part, np.float64) for part in (replay.weights, replay.rewards))
    w, r = w[w > 0], r[w > 0]
    if not len(w):
        raise ValueError("replay must share a decision with the log, got none.")
    mean = float(w @ r / w.sum())
    return mean, float(np.sqrt(np.sum(w**2 * (r - mean) ** 2)) / w.sum())


def _checked(learner: Estimator, state: State, log: Log) -> NDArray[Any]:
    """The propensities, of a log that fits the learner."""
    check_state(learner, state)
    count = np.shape(log.contexts)[:1]
    check_array("contexts", log.contexts, [(*count, *learner.model.inputs)])
    for name in ("arms", "rewards", "propensities"):
        check_array(name, getattr(log, name), [count])
    arms, propensities = np.asarray(log.arms), np.asarray(log.propensities, np.float64)
    if not np.all((arms >= 0) & (arms < learner.model.outputs) & (arms % 1 == 0)):
        raise ValueError(f"arms must be whole numbers from 0 to {learner.model.outputs - 1}.")
    if not np.all((propensities > 0) & (propensities <= 1)):
        raise ValueError("propensities must be above 0 and at most 1.")
    return propensities


def _replay(
    learner: Estimator,
    state: State,
    log: Log,
    policy: Policy,
    key: Key,
    accepted: NDArray[Any],  # (T,): with what probability a shared decision is made
    counts: NDArray[Any],  # (T,): and how much it counts then
) -> tuple[State, Replay]:
    parts = (log.contexts, log.arms, log.rewards, accepted, counts)
    return _program(learner, policy)(state, tuple(map(jnp.asarray, parts)), key)


@lru_cache(maxsize=32)
def _program(learner: Estimator, policy: Policy) -> Any:
    arms = jnp.arange(learner.model.outputs)

    def step(state: State, now: Any) -> tuple[State, Replay]:
        number, (x, pulled, reward, accepted, counts), key = now
        key_choice, key_accept, key_update = jax.random.split(key, 3)
        state = learner.predict(state)
        arm = jnp.argmax(policy(learner, state, x, key_choice, number))
        made = (arm == pulled) & jax.random.bernoulli(key_accept, accepted)
        y = jnp.where((arms == arm) & made, reward, jnp.nan)
        state = learner.update(state, x, y, key_update)
        return state, Replay(arm, reward, jnp.where(made, counts, 0.0))

    def replay(state: State, parts: tuple[Array, ...], key: Key) -> tuple[State, Replay]:
        count = len(parts[0])
        each = (jnp.arange(count), parts, jax.random.split(key, count))
        return jax.lax.scan(step, state, each)

    return jax.jit(replay)
