"""Bandits: arms are chosen as often as theory says, and only what was seen is learnt."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

import bayestream as bs

LINEAR = bs.models.mlp([2, 3])
X = jnp.array([0.7, -0.4])
KEY = jax.random.key(0)


def believing(likelihood=None, method="fcekf", **options):
    """A learner of three arms that has seen some of two of them, and its state."""
    likelihood = likelihood or bs.likelihoods.gaussian(0.2)
    learner = bs.make(method, LINEAR, likelihood, prior_precision=2.0, **options)
    state = learner.init(KEY)
    for x, y in ([[1.0, 0.2], [0.4, np.nan, np.nan]], [[0.3, -1.0], [np.nan, 0.1, np.nan]]):
        state = learner.update(state, jnp.array(x), jnp.array(y))
    return learner, state


def probabilities(means, deviations):
    """How likely each of some independent Gaussians is to be the largest, by integration."""

    def wins(arm):
        def density(t):
            others = [stats.norm.cdf(t, m, s) for m, s in zip(means, deviations, strict=True)]
            del others[arm]
            return stats.norm.pdf(t, means[arm], deviations[arm]) * np.prod(others)

        return integrate.quad(density, -20, 20, limit=200)[0]

    return [wins(arm) for arm in range(len(means))]


def chosen(policy, learner, state, count=20_000, step=0):
    keys = jax.random.split(KEY, count)
    wanted = jax.jit(jax.vmap(lambda k: policy(learner, state, X, k, jnp.array(step))))(keys)
    return np.bincount(np.argmax(wanted, axis=1), minlength=3) / count


@pytest.mark.parametrize("policy", [bs.policies.thompson(), bs.policies.thompson_of_outputs()])
@pytest.mark.parametrize(
    ("method", "options"),
    [("lofi", {"rank": 9}), pytest.param("fcekf", {}, marks=pytest.mark.slow)],
)
def test_thompson_pulls_an_arm_as_often_as_it_is_believed_to_be_best(policy, method, options):
    learner, state = believing(method=method, **options)
    # Of a linear layer the arms' outputs are independent here: each has weights of its own.
    forecast = bs.predictive.linearized(learner, state, X)
    means = np.asarray(forecast.mean)
    deviations = np.sqrt(np.diag(forecast.covariance) - 0.2)
    expected = probabilities(means, deviations)
    assert min(expected) > 0.05
    np.testing.assert_allclose(chosen(policy, learner, state), expected, atol=0.015)


def test_rewards_that_are_yes_or_no_are_drawn_through_their_link():
    learner, state = believing(bs.likelihoods.bernoulli())
    for policy in (bs.policies.thompson(), bs.policies.thompson_of_outputs()):
        found = chosen(policy, learner, state)
        assert found.min() > 0.02


def test_epsilon_greedy_explores_as_often_as_it_says():
    learner, state = believing()
    best = int(np.argmax(LINEAR.apply(learner.mean(state), X)))
    found = chosen(bs.policies.epsilon_greedy(0.3), learner, state)
    np.testing.assert_allclose(found[best], 0.7 + 0.1, atol=0.015)
    assert chosen(bs.policies.epsilon_greedy(0.0), learner, state)[best] == 1
    halved = bs.policies.epsilon_greedy(lambda step: 1 / (1 + step))
    np.testing.assert_allclose(
        chosen(halved, learner, state, step=4)[best], 0.8 + 0.2 / 3, atol=0.015
    )


def test_upper_confidence_prefers_what_it_knows_less():
    learner, state = believing()
    forecast = bs.predictive.linearized(learner, state, X)
    deviations = np.sqrt(np.diag(forecast.covariance) - 0.2)
    for width in (0.0, 1.0, 50.0):
        best = int(np.argmax(forecast.mean + width * deviations))
        assert chosen(bs.policies.upper_confidence(width), learner, state, 10)[best] == 1


def test_an_arm_that_was_not_pulled_teaches_nothing():
    learner = bs.lofi(LINEAR, bs.likelihoods.gaussian(0.1), rank=3)
    start = learner.init(KEY)
    bandit = bs.bandits.Bandit(np.ones((5, 2)), np.ones((5, 3)), np.ones((5, 3)))
    state, plays = bs.bandits.play(learner, start, bandit, policy=lambda *_: jnp.eye(3)[1], key=KEY)
    before, after = (np.asarray(learner.mean(s)).reshape(3, 3) for s in (start, state))
    assert plays.arms.tolist() == [1] * 5
    np.testing.assert_array_equal(before[:, ::2], after[:, ::2])
    assert np.all(before[:, 1] != after[:, 1])


@pytest.mark.parametrize("delay", [0, 3])
def test_rewards_are_learnt_in_turn_and_when_they_arrive(delay):
    learner = bs.fcekf(LINEAR, bs.likelihoods.gaussian(0.1), line_search=None)
    rng = np.random.default_rng(0)
    bandit = bs.bandits.Bandit(rng.normal(size=(8, 2)), rng.normal(size=(8, 3)), np.zeros((8, 3)))
    start = learner.init(KEY)
    state, plays = bs.bandits.play(
        learner, start, bandit, policy=bs.policies.thompson(), key=KEY, warm_up=6, delay=delay
    )
    assert plays.arms[:6].tolist() == [0, 1, 2, 0, 1, 2]
    told = np.where(np.arange(3) == np.asarray(plays.arms)[:, None], bandit.rewards, np.nan)
    count = 8 - delay
    expected, _ = bs.run(learner, start, (bandit.contexts[:count], told[:count]))
    np.testing.assert_allclose(learner.mean(state), learner.mean(expected), rtol=1e-9)


def test_a_reward_that_gets_lost_is_neither_paid_nor_learnt():
    learner = bs.lofi(LINEAR, bs.likelihoods.gaussian(0.1), rank=3)
    start = learner.init(KEY)
    lost = bs.bandits.Bandit(np.ones((4, 2)), np.full((4, 3), np.nan), np.ones((4, 3)))
    state, plays = bs.bandits.play(
        learner, start, lost, policy=bs.policies.epsilon_greedy(), key=KEY
    )
    assert plays.rewards.tolist() == [0.0] * 4
    np.testing.assert_array_equal(learner.mean(start), learner.mean(state))


def test_a_labelled_stream_pays_for_the_right_class():
    stream = bs.Stream(bs.Example(np.zeros((3, 2)), np.array([2, 0, 1])))
    assert bs.bandits.of_labels(stream, arms=3).rewards.argmax(axis=1).tolist() == [2, 0, 1]
    with pytest.raises(ValueError, match=r"^stream must have class numbers below 2"):
        bs.bandits.of_labels(stream, arms=2)


def exact_linear_thompson(bandit, noise, precision, seed):
    """Bayesian linear regression for each arm, written out; total regret."""
    rng = np.random.default_rng(seed)
    inputs = bandit.contexts.shape[1]
    arms = bandit.rewards.shape[1]
    A = np.stack([precision * np.eye(inputs + 1)] * arms)
    b = np.zeros((arms, inputs + 1))
    total = 0.0
    for x, rewards, expected in zip(*bandit, strict=True):
        z = np.append(x, 1.0)
        covariances = np.linalg.inv(A)
        draws = [
            rng.normal(z @ C @ each, np.sqrt(z @ C @ z))
            for C, each in zip(covariances, b, strict=True)
        ]
        arm = int(np.argmax(draws))
        A[arm] += np.outer(z, z) / noise
        b[arm] += z * rewards[arm] / noise
        total += expected.max() - expected[arm]
    return total


@pytest.mark.slow
def test_regret_on_the_linear_bandit_is_that_of_exact_thompson_sampling():
    bandits = [bs.bandits.linear(seed, steps=1000) for seed in range(10)]
    exact = [exact_linear_thompson(bandit, 0.1, 1.0, seed) for seed, bandit in enumerate(bandits)]
    stacked = bs.bandits.Bandit(*(np.stack(parts) for parts in zip(*bandits, strict=True)))
    learner = bs.lofi(
        bs.models.mlp([5, 4]), bs.likelihoods.gaussian(0.1), rank=24, prior_precision=1.0
    )
    for policy in (bs.policies.thompson(), bs.policies.thompson_of_outputs()):
        results = bs.bandits.trials(learner, stacked, policy=policy, key=KEY, method="lofi")
        last = results.where(metric="regret", step=1000)["value"]
        assert np.mean(last) < 1.1 * np.mean(exact)


@pytest.mark.parametrize(
    ("contexts", "rewards", "said"),
    [
        ((5, 4), (5, 3), "contexts must have shape"),
        ((4, 2), (5, 3), "rewards must have shape"),
        ((5, 2), (5,), "rewards must have shape"),
    ],
)
def test_a_game_of_other_shapes_is_refused_in_a_sentence(contexts, rewards, said):
    learner = bs.lofi(LINEAR, bs.likelihoods.gaussian(0.1), rank=3)
    bandit = bs.bandits.Bandit(np.ones(contexts), np.ones(rewards), np.ones(rewards))
    rule = bs.policies.epsilon_greedy()
    with pytest.raises(ValueError, match=f"^{said}"):
        bs.bandits.play(learner, learner.init(KEY), bandit, policy=rule, key=KEY)
    other = bs.fcekf(LINEAR, bs.likelihoods.gaussian(0.1)).init(KEY)
    with pytest.raises(ValueError, match=r"^state must come from this learner"):
        bs.bandits.play(learner, other, bandit, policy=rule, key=KEY)


def test_what_does_not_fit_is_refused_in_a_sentence():
    point = bs.ogd(LINEAR, bs.likelihoods.gaussian(0.1))
    with pytest.raises(ValueError, match="use epsilon_greedy"):
        bs.policies.thompson()(point, point.init(KEY), X, KEY, jnp.array(0))
    with pytest.raises(ValueError, match=r"^learner must have an output for each of 4 arms, got 3"):
        bs.bandits.play(
            point,
            point.init(KEY),
            bs.bandits.linear(0, inputs=2),
            policy=bs.policies.epsilon_greedy(),
            key=KEY,
        )


def test_a_network_with_the_arm_as_an_input_gives_every_arms_reward():
    single = bs.models.mlp([5, 4, 1])
    several = bs.models.of_each(single, count=3)
    game = bs.bandits.with_arms(bs.bandits.linear(0, steps=2, inputs=2, arms=3), np.eye(3))
    params = several.init(KEY)
    np.testing.assert_array_equal(params, single.init(KEY))
    context = bs.bandits.linear(0, steps=2, inputs=2, arms=3).contexts[1]
    rows = [np.concatenate([context, np.eye(3)[arm]]) for arm in range(3)]
    np.testing.assert_array_equal(game.contexts[1], rows)
    expected = [single.apply(params, jnp.asarray(row))[0] for row in rows]
    np.testing.assert_allclose(several.apply(params, jnp.asarray(rows)), expected, rtol=1e-12)
    with pytest.raises(ValueError, match=r"^model must have one output for each thing, got 2"):
        bs.models.of_each(bs.models.mlp([2, 2]), count=3)
