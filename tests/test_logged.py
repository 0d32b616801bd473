"""Replayed logs: what a policy would have earned is estimated without bias, learning or not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayestream as bs

COUNT, ARMS = 4000, 3
KEY = jax.random.key(0)
LEARNER = bs.vdekf(bs.models.mlp([2, ARMS]), bs.likelihoods.gaussian(0.1), line_search=None)
BANDIT = bs.bandits.linear(1, steps=COUNT, inputs=2, arms=ARMS)


def always(arm):
    return lambda *_: jnp.eye(ARMS)[arm]


def log_of(probabilities, seed=0):
    """A log whose maker pulls arms with these probabilities, whatever the context."""
    arms = np.random.default_rng(seed).choice(ARMS, COUNT, p=probabilities)
    rewards = BANDIT.rewards[np.arange(COUNT), arms]
    return bs.logged.Log(BANDIT.contexts, arms, rewards, np.asarray(probabilities)[arms])


@pytest.mark.parametrize("method", [bs.logged.rejection, bs.logged.importance])
def test_the_value_of_a_fixed_policy_is_what_it_would_have_earned(method):
    log = log_of([0.6, 0.3, 0.1])
    policy = always(1)
    _, replay = method(LEARNER, LEARNER.init(KEY), log, policy=policy, key=KEY)
    value, error = bs.logged.value(replay)
    assert abs(value - BANDIT.expected[:, 1].mean()) < 4 * error
    assert error < 0.1


def test_rejection_makes_an_uneven_log_even():
    """A policy that pulls at random accepts each arm equally often, whatever the log did."""
    log = log_of([0.6, 0.3, 0.1])
    policy = bs.policies.epsilon_greedy(1.0)
    _, replay = bs.logged.rejection(LEARNER, LEARNER.init(KEY), log, policy=policy, key=KEY)
    made = np.asarray(replay.weights) > 0
    share = np.bincount(np.asarray(replay.arms)[made], minlength=ARMS) / made.sum()
    np.testing.assert_allclose(share, 1 / 3, atol=5 * np.sqrt(2 / 9 / made.sum()))


def test_only_shared_decisions_are_learnt_from():
    log = log_of([0.6, 0.3, 0.1])
    policy = always(2)
    state, replay = bs.logged.importance(LEARNER, LEARNER.init(KEY), log, policy=policy, key=KEY)
    shared = log.arms == 2
    np.testing.assert_array_equal(np.asarray(replay.weights) > 0, shared)
    told = np.where(shared[:, None] & (np.arange(ARMS) == 2), log.rewards[:, None], np.nan)
    expected, _ = bs.run(LEARNER, LEARNER.init(KEY), (log.contexts, told))
    np.testing.assert_allclose(LEARNER.mean(state), LEARNER.mean(expected), rtol=1e-9)


def test_a_log_that_cannot_be_is_refused_in_a_sentence():
    log, state = log_of([0.6, 0.3, 0.1]), LEARNER.init(KEY)
    for wrong, said in (
        ({"propensities": np.zeros(COUNT)}, "propensities must be above 0"),
        ({"arms": log.arms + 1}, "arms must be whole numbers from 0 to 2"),
        ({"rewards": log.rewards[1:]}, "rewards must have shape"),
    ):
        with pytest.raises(ValueError, match=f"^{said}"):
            bs.logged.rejection(LEARNER, state, log._replace(**wrong), policy=always(0), key=KEY)
    nothing = bs.logged.Replay(np.zeros(2), np.zeros(2), np.zeros(2))
    with pytest.raises(ValueError, match=r"^replay must share a decision"):
        bs.logged.value(nothing)
