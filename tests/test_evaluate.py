"""Evaluation along a stream: nothing leaks, trials agree, summaries are what they say."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bayestream as bs
from bayestream.evaluation import summaries
from bayestream.evaluation.evaluate import Metric

close = np.testing.assert_allclose
MODEL = bs.models.mlp([1, 6, 1])
LEARNER = bs.lofi(MODEL, bs.likelihoods.gaussian(0.05), rank=3, drift=1e-4)
SGD = bs.ogd(MODEL, bs.likelihoods.gaussian(0.05))
KEEP = Metric(lambda forecast, y: forecast.mean[0])


def stream_of(trial: int) -> bs.Stream:
    return bs.streams.piecewise_regression(trial, tasks=2, length=60)


def predictions(stream, **options):
    found = bs.evaluate.prequential(
        {"lofi": LEARNER}, stream, metrics={"mean": KEEP}, summaries=[summaries.each], **options
    )
    return found["value"]


@pytest.mark.parametrize("delay", [0, 7])
def test_no_label_is_used_before_it_is_known(delay):
    """Permuting the labels from a step on changes no forecast made before they arrive."""
    stream = bs.streams.delayed_labels(stream_of(0), delay)
    before = predictions(stream)
    for cut in (0, 31, 119):
        y = stream.examples.y.copy()
        y[cut:] = y[cut:][::-1] + 1.0
        after = predictions(bs.Stream(stream.examples._replace(y=y)))
        first = cut + delay + 1  # the step after the first changed label has been learnt
        np.testing.assert_array_equal(before[:first], after[:first])
        if first < len(y):
            assert before[first] != after[first]


def test_prequential_scores_are_those_of_a_plain_loop():
    stream = stream_of(3)

    @jax.jit
    def step(state, x, y):
        state = LEARNER.predict(state)
        forecast = bs.predictive.linearized(LEARNER, state, x)
        scores = (forecast.mean[0] - y[0]) ** 2, -forecast.log_density(y)
        return LEARNER.update(state, x, y), scores

    state, scores = LEARNER.init(jax.random.key(0)), []
    for x, y, *_ in stream:
        state, found = step(state, x, y)
        scores.append(found)
    errors, densities = np.array(scores).T
    counts = np.arange(1, len(stream) + 1)
    found = bs.evaluate.prequential({"lofi": LEARNER}, stream, summaries=[summaries.cumulative])
    close(found.where(metric="rmse")["value"], np.sqrt(np.cumsum(errors) / counts), rtol=1e-7)
    close(found.where(metric="nlpd")["value"], np.cumsum(densities) / counts, rtol=1e-7)
    assert found.where(metric="rmse")["task"].tolist() == [0] * 60 + [1] * 60


def test_trials_together_are_trials_one_by_one():
    together = bs.evaluate.prequential({"lofi": LEARNER, "ogd": SGD}, stream_of, trials=3)
    for trial in range(3):
        alone = bs.evaluate.prequential({"lofi": LEARNER, "ogd": SGD}, stream_of(trial), seed=trial)
        close(together.where(trial=trial)["value"], alone["value"], rtol=1e-6, atol=1e-9)


def test_the_same_seed_gives_the_same_results_and_another_seed_others():
    first, again, other = (
        bs.evaluate.prequential({"lofi": LEARNER}, stream_of, trials=2, seed=seed)["value"]
        for seed in (5, 5, 6)
    )
    np.testing.assert_array_equal(first, again)
    assert np.any(first != other)


def test_updates_that_draw_random_numbers_get_their_keys():
    expectation = bs.expectations.monte_carlo(samples=2)
    learner = bs.bong(MODEL, bs.likelihoods.gaussian(0.05), rank=2, expectation=expectation)
    first, again = (
        bs.evaluate.prequential({"bong": learner}, stream_of(0).take(10), trials=2)["value"]
        for _ in range(2)
    )
    np.testing.assert_array_equal(first, again)
    assert np.isfinite(first).all()


def test_missing_labels_are_not_scored():
    labels = np.random.default_rng(0).integers(0, 3, 40).astype(float)
    labels[::2] = np.nan
    x = np.random.default_rng(1).normal(size=(40, 2))
    learner = bs.vdekf(bs.models.mlp([2, 3]), bs.likelihoods.categorical())
    found = bs.evaluate.prequential(
        {"vdekf": learner}, bs.Stream(bs.Example(x, labels)), summaries=[summaries.each]
    )
    assert found.unique("metric") == ["misclassification", "nlpd"]
    unknown = np.isnan(found.where(metric="nlpd")["value"])
    np.testing.assert_array_equal(unknown, np.isnan(labels))


def test_held_out_tests_follow_the_training_stream():
    train, test = stream_of(0), stream_of(10)
    found = bs.evaluate.held_out(
        {"lofi": LEARNER},
        train,
        lambda trial: bs.evaluate.around(test, 20),
        every=50,
        metrics=["rmse"],
    )
    assert found["step"].tolist() == [50, 100, 120]
    assert found["task"].tolist() == [0, 1, 1]
    for step, window, value in zip(
        found["step"], (slice(40, 60), slice(90, 110), slice(100, 120)), found["value"], strict=True
    ):
        state, _ = bs.run(LEARNER, LEARNER.init(jax.random.key(0)), train.take(int(step)))
        forecast = bs.predictive.linearized(LEARNER, state, test.examples.x[window])
        close(value, bs.scores.rmse(forecast, test.examples.y[window]), rtol=1e-6)


def test_held_out_trials_together_are_trials_one_by_one():
    options = {"every": 40, "metrics": ["nlpd"]}

    def tests(trial):
        return bs.evaluate.of_task(stream_of(trial + 10), stream_of(trial), 30)

    together = bs.evaluate.held_out({"lofi": LEARNER}, stream_of, tests, trials=2, **options)
    alone = bs.evaluate.held_out(
        {"lofi": LEARNER}, stream_of(1), lambda trial: tests(1), seed=1, **options
    )
    close(together.where(trial=1)["value"], alone["value"], rtol=1e-6)


def test_held_out_trials_may_be_of_different_lengths_and_draw_random_numbers():
    expectation = bs.expectations.monte_carlo(samples=2)
    learner = bs.bong(MODEL, bs.likelihoods.gaussian(0.05), rank=2, expectation=expectation)

    def stream(trial):
        return stream_of(trial).take(20 + 10 * trial)

    def run(streams, trials, seed):
        always = bs.evaluate.always(stream_of(9))
        return bs.evaluate.held_out(
            {"bong": learner}, streams, lambda trial: always, every=10, trials=trials, seed=seed
        ).where(metric="rmse")

    both = run(stream, 2, 0)
    assert both.where(trial=1)["step"].tolist() == [10, 20, 30]
    np.testing.assert_array_equal(both.where(trial=1)["value"], run(stream(1), 1, 1)["value"])
    # The second stretch draws other numbers than the first.
    key = jax.random.fold_in(jax.random.key(0), 1)
    state = learner.init(jax.random.key(0))
    for start in (0, 10):
        part = stream(0).select(range(start, start + 10))
        state, _ = bs.run(learner, state, part, key=jax.random.fold_in(key, start))
    forecast = bs.predictive.linearized(learner, state, stream_of(9).examples.x)
    expected = bs.scores.rmse(forecast, stream_of(9).examples.y)
    close(both.where(trial=0)["value"][-1], expected, rtol=1e-6)


def test_examples_without_a_label_are_not_tested_on():
    test = stream_of(10).take(30)
    y = test.examples.y.copy()
    y[::3] = np.nan
    gaps = bs.Stream(test.examples._replace(y=y))
    full = test.select(np.flatnonzero(~np.isnan(y[:, 0])))
    values = [
        bs.evaluate.held_out(
            {"lofi": LEARNER}, stream_of(0), lambda trial, t=t: bs.evaluate.always(t), every=60
        )["value"]
        for t in (gaps, full)
    ]
    np.testing.assert_array_equal(*values)
    with pytest.raises(ValueError, match="at least one example with a label"):
        bs.evaluate.held_out(
            {"lofi": LEARNER},
            stream_of(0),
            lambda trial: bs.evaluate.of_task(test, stream_of(0)),
            every=120,
        )


def test_an_empty_stream_has_empty_results():
    for trials in (1, 2):
        found = bs.evaluate.prequential({"lofi": LEARNER}, stream_of(0).take(0), trials=trials)
        assert len(found) == 0


def test_held_out_refuses_to_cut_delayed_labels():
    delayed = bs.streams.delayed_labels(stream_of(0), 3)
    with pytest.raises(ValueError, match="no delayed labels here"):
        bs.evaluate.held_out(
            {"lofi": LEARNER}, delayed, lambda trial: bs.evaluate.always(delayed), every=10
        )


def test_tests_of_a_task_are_that_tasks_own():
    tests = bs.evaluate.of_task(stream_of(10), stream_of(0), 30)
    assert set(tests(60).task) == {0}
    assert set(tests(61).task) == {1}
    assert len(tests(61).x) == 30


NUMBERS = st.one_of(st.floats(-100, 100), st.just(np.nan), st.just(1e20))
LOSSES = st.lists(NUMBERS, min_size=1, max_size=40)


def plain_mean(values, weights):
    known = ~np.isnan(values)
    total = np.sum(weights[known])
    return np.sum((weights * values)[known]) / total if total > 0 else np.nan


@settings(deadline=None, max_examples=60)
@given(LOSSES, st.integers(1, 50), st.floats(0.5, 1.0))
def test_summaries_are_weighted_means_of_the_known_losses(losses, size, factor):
    values = np.array(losses)
    ages = np.arange(len(values))[:, None] - np.arange(len(values))
    weights = {
        summaries.cumulative: (ages >= 0).astype(float),
        summaries.window(size): ((ages >= 0) & (ages < size)).astype(float),
        summaries.fading(factor): np.where(ages >= 0, factor ** np.maximum(ages, 0.0), 0.0),
    }
    for summary, rows in weights.items():
        expected = [plain_mean(values, row) for row in rows]
        close(summary.of(values), expected, rtol=1e-7, atol=1e-9)


def test_a_large_loss_leaves_the_window_without_a_trace():
    losses = np.array([1.0] * 10 + [1e20] + [1.0] * 20)
    assert summaries.window(10).of(losses)[-1] == 1.0
    assert summaries.window(5).of(np.array([1.0, -np.inf]))[-1] == -np.inf


def test_an_infinite_loss_leaves_the_window_with_its_step():
    losses = np.array([1.0, np.inf, 3.0, 5.0])
    assert summaries.window(2).of(losses).tolist() == [1.0, np.inf, np.inf, 4.0]


def test_results_average_over_trials_with_their_standard_error():
    values = np.random.default_rng(0).normal(size=(4, 3))  # trials × steps
    results = bs.Results.joined(
        [
            bs.Results.of(
                method="m", metric="rmse", summary="each", trial=t, step=[1, 2, 3], task=0, value=v
            )
            for t, v in enumerate(values)
        ]
    )
    averaged = results.averaged()
    close(averaged["mean"], values.mean(axis=0))
    close(averaged["error"], values.std(axis=0, ddof=1) / 2)
    assert np.isnan(results.where(trial=0).averaged()["error"]).all()
    gaps = dict(results.columns)
    gaps["value"] = np.where((gaps["trial"] == 3) & (gaps["step"] == 2), np.nan, gaps["value"])
    gaps["task"] = np.where(gaps["step"] > gaps["trial"], 1, 0)  # trials change at other times
    averaged = bs.Results(gaps).averaged()
    assert averaged["trials"].tolist() == [4, 3, 4]
    close(averaged["mean"][1], values[:3, 1].mean())


def test_curves_show_means_bands_and_change_points():
    pytest.importorskip("matplotlib")
    results = bs.evaluate.prequential({"lofi": LEARNER, "ogd": SGD}, stream_of, trials=2)
    figure = bs.plots.curves(results, summary="cumulative")
    above, below = figure.axes
    assert (above.get_ylabel(), below.get_ylabel()) == ("rmse", "nlpd")
    drawn = {line.get_label(): line for line in above.lines}
    shown = results.where(summary="cumulative", metric="rmse")
    expected = shown.where(method="lofi").averaged()["mean"]
    np.testing.assert_array_equal(drawn["lofi"].get_ydata(), expected)
    changes = [line.get_xdata()[0] for line in above.lines if len(set(line.get_xdata())) == 1]
    assert changes == [61]
    assert len(above.collections) == 2  # a band each
    with pytest.raises(ValueError, match="summary must be one of cumulative, window 200"):
        bs.plots.curves(results, summary="fading")


def test_results_survive_parquet(tmp_path):
    pytest.importorskip("pyarrow")
    results = bs.evaluate.prequential({"lofi": LEARNER}, stream_of, trials=2)
    loaded = bs.Results.load(results.save(tmp_path / "deep" / "results.parquet"))
    assert list(loaded.columns) == list(results.columns)
    for name in results.columns:
        np.testing.assert_array_equal(loaded[name], results[name])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trials": 0}, "trials must be a whole number, 1 or above"),
        ({"metrics": ["accuracy"]}, "metrics must be among brier, crps"),
    ],
)
def test_what_cannot_be_evaluated_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        bs.evaluate.prequential({"lofi": LEARNER}, stream_of(0), **options)
