"""Active learning: scores are what theory says, and only labels that were asked for are seen."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

import bayestream as bs

KEY = jax.random.key(0)
MOONS = bs.streams.two_moons(0, size=60)
X = jnp.array([[0.7, -0.4], [2.0, 1.5], [0.1, 0.0]])


def believing(likelihood, outputs, target):
    """A linear learner that has seen two labels, and its state."""
    model = bs.models.mlp([2, outputs])
    learner = bs.fcekf(model, likelihood, prior_precision=0.5, line_search=None)

    @jax.jit
    def learnt(state):
        for x in ([1.0, 0.2], [0.3, -1.0]):
            state = learner.update(state, jnp.array(x), jnp.array(target))
        return state

    return learner, learnt(learner.init(KEY))


def scores(query, learner, state):
    return jax.jit(lambda state, key: query(learner, state, X, key))(state, KEY)


# With a drift, which `predict` adds also where a label is missing.
CLASSIFIER = bs.lofi(bs.models.mlp([2, 4, 2]), bs.likelihoods.categorical(), rank=4, drift=0.01)
QUERY = bs.queries.bald(samples=8)
FIRST = CLASSIFIER.init(KEY)


def labels_of(stream):
    return np.asarray(stream.examples.y).__getitem__


def outputs(learner, state):
    """Mean and covariance of the outputs at X, from the dense Jacobian."""
    model, params = learner.model, learner.mean(state)

    @jax.jit
    def found(state):
        mean = jax.vmap(model.apply, (None, 0))(params, X)
        rows = jax.vmap(jax.jacobian(model.apply), (None, 0))(params, X)
        return mean, jax.vmap(lambda J: learner.covariance_between(state, J))(rows)

    return jax.tree.map(np.asarray, found(state))


def test_bald_of_a_linear_gaussian_model_is_half_the_log_of_one_plus_doubt_over_noise():
    noise = np.array([[0.3, 0.1], [0.1, 0.2]])
    learner, state = believing(bs.likelihoods.gaussian(noise), 2, [0.1, 0.4])
    _, doubt = outputs(learner, state)
    expected = [0.5 * np.linalg.slogdet(np.eye(2) + np.linalg.solve(noise, S))[1] for S in doubt]
    np.testing.assert_allclose(scores(bs.queries.bald(), learner, state), expected, rtol=1e-9)
    expected = [np.trace(S) for S in doubt]
    np.testing.assert_allclose(scores(bs.queries.variance(), learner, state), expected, rtol=1e-9)
    expected = [stats.multivariate_normal(cov=S + noise).entropy() for S in doubt]
    np.testing.assert_allclose(scores(bs.queries.entropy(), learner, state), expected, rtol=1e-9)


def test_scores_of_two_classes_are_integrals_over_the_belief():
    learner, state = believing(bs.likelihoods.categorical(), 2, 1.0)
    mean, covariance = outputs(learner, state)
    difference = np.array([-1.0, 1.0])
    information, spread = [], []
    for m, S in zip(mean, covariance, strict=True):
        belief = stats.norm(difference @ m, np.sqrt(difference @ S @ difference))

        def average(of, belief=belief):
            return integrate.quad(
                lambda z: belief.pdf(z) * of(1 / (1 + np.exp(-z))), -60, 60, limit=500
            )[0]

        def entropy(p):
            return stats.bernoulli(p).entropy()

        p = average(lambda p: p)
        information.append(entropy(p) - average(entropy))
        spread.append(2 * (average(lambda p: p**2) - p**2))
    found = scores(bs.queries.bald(samples=40_000), learner, state)
    np.testing.assert_allclose(found, information, rtol=0.03)
    found = scores(bs.queries.variance(samples=40_000), learner, state)
    np.testing.assert_allclose(found, spread, rtol=0.03)
    assert max(information) > 2 * min(information)


def test_entropy_and_margin_are_those_of_the_forecast():
    model = bs.models.mlp([2, 3])
    learner = bs.ogd(model, bs.likelihoods.categorical())
    state = learner.init(KEY)
    logits = jax.vmap(model.apply, (None, 0))(learner.mean(state), X)
    p = np.sort(jax.nn.softmax(logits))
    found = scores(bs.queries.entropy(), learner, state)
    np.testing.assert_allclose(found, stats.entropy(p, axis=1), rtol=1e-9)
    found = scores(bs.queries.margin(), learner, state)
    np.testing.assert_allclose(found, p[:, 1] - p[:, 2], rtol=1e-9)


@pytest.mark.slow
def test_answers_yes_or_no_and_heavy_tails_have_scores_too():
    learner, state = believing(bs.likelihoods.bernoulli(), 1, [1.0])
    mean, doubt = (part.reshape(len(X)) for part in outputs(learner, state))
    p = 1 / (1 + np.exp(-mean / np.sqrt(1 + np.pi * doubt / 8)))  # MacKay's
    found = scores(bs.queries.entropy(), learner, state)
    np.testing.assert_allclose(found, stats.bernoulli(p).entropy(), rtol=1e-9)
    found = scores(bs.queries.margin(), learner, state)
    np.testing.assert_allclose(found, -np.abs(2 * p - 1), rtol=1e-9)
    assert scores(bs.queries.bald(), learner, state).min() > 0

    learner, state = believing(bs.likelihoods.student_t(0.3, dof=4.0), 1, [0.4])
    scale = np.asarray(bs.predictive.linearized(learner, state, X).scale[:, 0])
    found = scores(bs.queries.entropy(), learner, state)
    np.testing.assert_allclose(found, stats.t(4, scale=scale).entropy(), rtol=1e-6)
    gain = stats.t(4, scale=scale).entropy() - stats.t(4, scale=0.3).entropy()
    np.testing.assert_allclose(scores(bs.queries.bald(), learner, state), gain, rtol=1e-6)


@pytest.mark.slow
def test_a_cooled_bald_is_the_fisher_information_times_the_doubt():
    learner, state = believing(bs.likelihoods.categorical(), 2, 1.0)
    mean, covariance = outputs(learner, state)
    p = np.exp(mean) / np.exp(mean).sum(axis=1, keepdims=True)
    fisher = np.eye(2) * p[:, None] - p[:, None] * p[:, :, None]
    expected = 1e-3 * 0.5 * np.einsum("ncd,ndc->n", fisher, covariance)
    query = bs.queries.bald(samples=40_000, temperature=1e-3)
    np.testing.assert_allclose(scores(query, learner, state), expected, rtol=0.03)


def test_draws_are_in_proportion_to_the_scores():
    query = bs.queries.drawn(lambda *_: jnp.array([1.0, 2.0, 5.0]))
    keys = jax.random.split(KEY, 20_000)
    wanted = jax.jit(jax.vmap(lambda key: query(CLASSIFIER, FIRST, X, key)))(keys)
    found = np.bincount(np.argmax(wanted, axis=1), minlength=3) / len(keys)
    np.testing.assert_allclose(found, [1 / 8, 2 / 8, 5 / 8], atol=0.015)


@pytest.mark.parametrize(
    "options",
    [{"together": 3, "first": 4, "candidates": 10}, pytest.param({}, marks=pytest.mark.slow)],
)
def test_a_pool_is_asked_for_the_budget_each_label_once_and_in_the_same_order_again(options):
    queried = []

    def label(positions):
        queried.extend(positions.tolist())
        return labels_of(MOONS)(positions)

    def one(seed):
        return bs.active.pool(
            CLASSIFIER,
            FIRST,
            MOONS.examples.x,
            label,
            query=QUERY,
            budget=11,
            key=jax.random.key(seed),
            **options,
        )

    state, asked = one(1)
    assert queried == asked.tolist()
    assert len(set(queried)) == len(queried) == 11
    again, asked_again = one(1)
    np.testing.assert_array_equal(asked, asked_again)
    np.testing.assert_array_equal(CLASSIFIER.mean(state), CLASSIFIER.mean(again))


def test_the_whole_of_a_pool_may_be_asked_for():
    _, asked = bs.active.pool(
        CLASSIFIER,
        FIRST,
        MOONS.examples.x[:12],
        labels_of(MOONS),
        query=bs.queries.random(),
        budget=12,
        key=KEY,
        together=5,
        candidates=6,
    )
    assert sorted(asked.tolist()) == list(range(12))


def test_a_pool_learns_what_it_asked_for_one_label_after_another():
    state, asked = bs.active.pool(
        CLASSIFIER,
        FIRST,
        MOONS.examples.x,
        labels_of(MOONS),
        query=QUERY,
        budget=6,
        key=KEY,
        together=2,
    )
    expected, _ = bs.run(CLASSIFIER, FIRST, MOONS.select(asked), progress=False)
    np.testing.assert_allclose(CLASSIFIER.mean(state), CLASSIFIER.mean(expected), rtol=1e-9)


def test_a_stream_never_looks_at_a_label_it_did_not_ask_for():
    def one(stream):
        return bs.active.stream(CLASSIFIER, FIRST, stream, query=QUERY, budget=15, key=KEY)

    state, found = one(MOONS)
    asked = np.asarray(found.asked)
    assert 10 <= asked.sum() <= 15
    labels = np.asarray(MOONS.examples.y)
    for garbage in (np.nan, 1 - labels):
        y = np.where(asked, labels, garbage)
        other, again = one(bs.Stream(MOONS.examples._replace(y=y)))
        np.testing.assert_array_equal(again.asked, asked)
        np.testing.assert_array_equal(CLASSIFIER.mean(other), CLASSIFIER.mean(state))


def test_what_a_stream_did_not_ask_for_is_a_missing_label_and_predict_still_runs():
    state, found = bs.active.stream(CLASSIFIER, FIRST, MOONS, query=QUERY, budget=15, key=KEY)
    y = np.where(found.asked, MOONS.examples.y, np.nan)
    stream = bs.Stream(MOONS.examples._replace(y=y))
    expected, _ = bs.run(CLASSIFIER, FIRST, stream, progress=False)
    np.testing.assert_allclose(CLASSIFIER.mean(state), CLASSIFIER.mean(expected), rtol=1e-6)


@pytest.mark.parametrize("trend", [0.0, -1.0, 1.0], ids=["constant", "falling", "rising"])
def test_a_streams_threshold_follows_the_scores_so_that_the_budget_lasts(trend):
    count, budget = 2000, 200

    def query(learner, state, xs, key):
        # Scores that drift over many of their deviations; or are all the same.
        return jnp.sign(trend**2) * jax.random.normal(key, (1,)) + trend * xs[:, 0]

    x = np.linspace(0, 10, count)[:, None]
    learner = bs.vdekf(bs.models.mlp([1, 1]), bs.likelihoods.gaussian(1.0))
    stream = bs.Stream(bs.Example(x, x))
    _, found = bs.active.stream(
        learner, learner.init(KEY), stream, query=query, budget=budget, key=KEY
    )
    asked = np.asarray(found.asked)
    assert 0.95 * budget <= asked.sum() <= budget
    quarters = asked.reshape(4, -1).sum(axis=1)
    assert quarters.min() >= 20


def test_a_score_is_wanted_if_it_is_among_the_highest_share():
    recent = jnp.arange(9.0)
    wanted = [bool(bs.active.is_wanted(recent, s, 0.3, KEY)[0]) for s in (0.5, 5.5, 6.5, 20.0)]
    assert wanted == [False, False, True, True]


@pytest.mark.slow
def test_learning_curves_have_a_row_for_every_test_and_bald_learns_more_than_random():
    def waves(seed, count):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(count, 3)) * np.array([5.0, 1.0, 0.2])
        y = x @ np.ones(3) + 0.1 * rng.normal(size=count)
        return bs.Stream(bs.Example(x, y[:, None]))

    learner = bs.fcekf(bs.models.mlp([3, 1]), bs.likelihoods.gaussian(0.01))
    results = bs.active.learning_curves(
        learner,
        lambda trial: (waves(trial, 60), waves(99, 40)),
        budget=8,
        trials=4,
        every=4,
        queries={"bald": bs.queries.bald(), "random": bs.queries.random()},
        progress=False,
    )
    assert results.unique("metric") == ["rmse", "nlpd"]
    assert results.where(metric="rmse", method="bald", trial=3)["step"].tolist() == [4, 8]
    bald, random = (
        results.where(metric="rmse", method=method, step=8)["value"].mean()
        for method in ("bald", "random")
    )
    assert bald < random
    needed = bs.active.labels_needed(results, metric="rmse", target=random)
    assert needed["random"] == 8
    assert bs.active.labels_needed(results, metric="rmse", target=0.0)["bald"] is None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: pooled(budget=61), "budget must be at most 60, the number of inputs, got 61."),
        (lambda: pooled(together=0), "together must be a whole number, 1 or above, got 0."),
        (lambda: pooled(query=lambda *_: jnp.zeros(3)), "query must give a score for each of 60"),
        (lambda: pooled(label=lambda at: np.zeros(9)), r"label must have shape \(1,\)"),
        (
            lambda: pooled(inputs=np.full((60, 2), np.nan)),
            "inputs must be finite, got one .* at 0.",
        ),
        (lambda: pooled(candidates=1, together=2), "candidates must be a whole number, 2 or"),
        (
            lambda: bs.queries.bald()(*point(bs.likelihoods.categorical()), X, KEY),
            "learner must keep a posterior for bald",
        ),
        (
            lambda: bs.queries.margin()(*point(bs.likelihoods.gaussian(1.0)), X, KEY),
            "learner must have a categorical likelihood",
        ),
        (
            lambda: bs.queries.bald()(*believing(bs.likelihoods.poisson(), 1, [1.0]), X, KEY),
            "for bald, got poisson; use variance.",
        ),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def pooled(label=None, inputs=MOONS.examples.x, **options):
    options = {"query": bs.queries.random(), "budget": 5, "key": KEY, **options}
    return bs.active.pool(CLASSIFIER, FIRST, inputs, label or labels_of(MOONS), **options)


def point(likelihood):
    learner = bs.ogd(bs.models.mlp([2, 2]), likelihood)
    return learner, learner.init(KEY)


@pytest.mark.slow
def test_the_page_about_active_learning_runs_as_it_is_written():
    page = (Path(__file__).parents[1] / "docs" / "active.md").read_text()
    names = {}
    for block in re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL):
        exec(block, names)
    assert len(names["asked"]) == 30
