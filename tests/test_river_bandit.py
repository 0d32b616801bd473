"""River's interface for bandits over our learners."""

import gymnasium
import jax
import numpy as np
import pytest
from river import bandit

import bayestream as bs
from bayestream.facades.river_bandit import BayesBandit, BayesContextualBandit


def linear(inputs, arms):
    model, noise = bs.models.mlp([inputs, arms]), bs.likelihoods.gaussian(0.1)
    return bs.fcekf(model, noise, prior_precision=1.0, line_search=None)


def test_it_pulls_and_learns_as_a_game_of_ours_does():
    """Greedily, so that nothing is random but the start."""
    game = bs.bandits.linear(0, steps=12, inputs=3, arms=2)
    greedy = bs.policies.epsilon_greedy(0.0)
    shell = BayesContextualBandit(linear, greedy)
    arms = []
    for x, rewards in zip(game.contexts, game.rewards, strict=True):
        context = dict(zip("abc", x, strict=True))
        arms.append(shell.pull([0, 1], context))
        shell.update(arms[-1], context, rewards[arms[-1]])
    learner = shell._learner
    _, key = jax.random.split(jax.random.key(0))
    _, plays = bs.bandits.play(learner, learner.init(key), game, policy=greedy, key=key)
    assert arms == plays.arms.tolist()


def test_only_arms_that_are_offered_are_pulled_and_burn_in_is_rivers():
    policy = BayesBandit(linear, burn_in=2)
    seen = []
    for _ in range(6):
        seen.append(policy.pull(["a", "b", "c"]))
        policy.update(seen[-1], 1.0)
    assert seen == ["a", "a", "b", "b", "c", "c"]
    assert {policy.pull(["b", "c"]) for _ in range(20)} <= {"b", "c"}
    assert policy.clone().burn_in == 2
    with pytest.raises(
        ValueError, match=r"^arm_ids must be among those of the first pull, got 'z'"
    ):
        policy.pull(["z"])
    with pytest.raises(ValueError, match=r"^pull must come before update"):
        BayesBandit(linear).update("a", 1.0)


def test_river_replays_its_logs_with_it():
    rng = np.random.default_rng(0)
    history = []
    for _ in range(300):
        context, arm = {"x": rng.normal()}, ["left", "right"][rng.integers(2)]
        good = (context["x"] > 0) == (arm == "right")
        history.append((["left", "right"], context, arm, float(good)))
    total, used = bandit.evaluate_offline(BayesContextualBandit(linear), history)
    assert total.get() / used > 0.8
    policy = BayesContextualBandit(linear)
    policy.pull([1, 2], {"x": 1.0})
    with pytest.raises(ValueError, match=r"^context must have the first one's features, got 'w'"):
        policy.pull([1, 2], {"w": 1.0})


@pytest.mark.slow
def test_it_is_better_than_chance_in_rivers_testbed():
    """River's own check of a policy: in 30 games, better than a random one in more than 80%."""
    env = gymnasium.make("river_bandits/KArmedTestbed-v0", max_episode_steps=300)
    policies = [BayesBandit(linear), bandit.RandomPolicy(seed=0)]
    totals = np.zeros((30, 2))
    for step in bandit.evaluate(policies, env, n_episodes=30, seed=0):
        totals[step["episode"], step["policy_idx"]] += step["reward"]
    assert np.mean(totals[:, 0] > totals[:, 1]) > 0.8
