"""Tuning: the same search whether or not it was interrupted, and better than where it began."""

import math
import tomllib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayestream as bs
from bayestream.estimators.spaces import Range
from bayestream.evaluation import evaluate
from bayestream.tuning.tune import NOISE, build

pytest.importorskip("optuna")
MODEL = bs.models.mlp([2, 1])
LIKELIHOOD = bs.likelihoods.gaussian(0.1)
STREAM = bs.streams.drifting_linear_regression(0, steps=60, inputs=2)


class InterruptedSearchError(Exception):
    """Somebody pressed a key."""


def searched(seen, value=lambda precision: math.log(precision / 3.0) ** 2, **options):
    """A search that costs nothing: `seen` is told each prior precision, `value` is its loss."""

    def values(make, numbers, count, ask):
        found = []
        for precision in np.asarray(numbers["prior_precision"]).tolist():
            ask()
            found.append(value(precision))
        tried = dict.fromkeys(np.asarray(numbers["prior_precision"]).tolist())  # without fillers
        seen.extend(tried)
        return bs.tune.Values(np.array(found), np.zeros(count, bool))

    space = {"prior_precision": Range(1e-2, 1e2)}
    settings = {"space": space, "trials": 12, "seed": 3, "fixed": {"rank": 1}, **options}
    return tuned_with(values, "lofi", **settings)


def tuned_with(values, method="orfit", likelihood=LIKELIHOOD, **options):
    options = {"fixed": {"rank": 1}, "trials": 3, **options}
    about = bs.tune.Objective(values, options.pop("about", "a test"))
    return bs.tune.tune(method, MODEL, likelihood, about, **options)


def ones(make, numbers, count, ask):
    return bs.tune.Values(np.ones(count), np.zeros(count, bool))


def test_a_resumed_search_equals_an_unbroken_one(tmp_path):
    unbroken, broken = [], []
    whole = searched(unbroken, trials=25)
    options = {"storage": tmp_path / "tune.db", "trials": 25}

    def until(count):
        asked = []

        def value(precision):
            asked.append(precision)
            if len(asked) > count:
                raise InterruptedSearchError
            return math.log(precision / 3.0) ** 2

        return value

    for stop in (4, 13):  # within the first round, and within the second
        with pytest.raises(InterruptedSearchError):
            searched(broken, until(stop), **options)
    resumed = searched(broken, **options)
    assert broken == unbroken
    assert (resumed.best, resumed.value) == (whole.best, whole.value)


def test_a_search_that_is_stopped_gives_its_best_and_can_be_resumed(tmp_path):
    unbroken, broken = [], []
    complete = searched(unbroken, trials=25)
    options = {"storage": tmp_path / "tune.db", "trials": 25}
    stopped = searched(broken, stop=lambda: len(broken) == 10, **options)
    assert stopped.trials == 10
    assert stopped.value == min(math.log(precision / 3.0) ** 2 for precision in broken)
    resumed = searched(broken, **options)
    assert broken == unbroken
    assert resumed.best == complete.best
    with pytest.raises(ValueError, match="stopped before a trial was complete"):
        searched([], stop=lambda: True)


def test_a_long_round_writes_a_line_now_and_then(capsys, monkeypatch):
    clock = iter(range(0, 1000, 4))
    monkeypatch.setattr("bayestream.progress.time.monotonic", lambda: next(clock))
    searched([], trials=5, progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == ["tuning lofi 0/5 · 12 s so far", "tuning lofi 0/5 · 24 s so far"]
    assert lines[-1].startswith("tuning lofi, best ")


def test_a_search_that_is_stopped_within_its_baseline_does_not_begin(tmp_path):
    options = {"storage": tmp_path / "tune.db"}
    searched([], **options)
    began = []

    def values(make, numbers, count, ask):
        began.append(count)
        ask()
        raise AssertionError("it was to be stopped")

    learner = bs.vdekf(MODEL, LIKELIHOOD)
    space = {"prior_precision": Range(1e-2, 1e2)}
    found = tuned_with(
        values, "lofi", space=space, seed=3, trials=20, baseline=learner,
        stop=lambda: bool(began), **options,
    )  # fmt: skip
    assert (began, found.baseline, found.trials) == ([1], None, 12)


def test_what_was_tried_is_what_is_written():
    seen = []
    found = searched(seen)
    read = tomllib.loads(found.toml())["options"]["prior_precision"]
    assert read == found.best["prior_precision"]
    assert read in seen


def test_the_search_depends_on_its_seed():
    first, again, other = [], [], []
    searched(first)
    searched(again)
    searched(other, seed=4)
    assert first == again
    assert first != other
    assert len(set(first)) == 12  # no trial repeats another's draw


def test_a_longer_search_goes_on_where_the_shorter_ended(tmp_path):
    at_once, in_two = [], []
    searched(at_once, trials=16)
    for trials in (6, 12, 16):
        searched(in_two, trials=trials, storage=tmp_path / "tune.db")
    assert in_two == at_once


def test_known_values_come_first():
    seen = []
    found = searched(seen, known=[{"prior_precision": 3.0}, {"prior_precision": 50.0}])
    assert seen[:2] == [3.0, 50.0]
    assert found.best == {"prior_precision": 3.0}


def test_a_file_with_another_search_of_that_name_is_refused(tmp_path):
    searched([], storage=tmp_path / "tune.db", trials=1)
    with pytest.raises(ValueError, match="holds a search named 'lofi' with other settings"):
        searched([], storage=tmp_path / "tune.db", seed=9)
    searched([], storage=tmp_path / "tune.db", seed=9, study="another", trials=1)


def test_a_search_for_other_data_is_refused(tmp_path):
    options = {"storage": tmp_path / "tune.db", "trials": 1}
    tuned_with(ones, **options)
    with pytest.raises(ValueError, match="with other settings or other data"):
        tuned_with(ones, about="something else", **options)
    abouts = {
        objective.about
        for stream in (STREAM, STREAM.take(50), STREAM.shuffle(1))
        for objective in (bs.tune.prequential(stream), bs.tune.validation(stream, stream))
    }
    assert len(abouts) == 6


def test_trials_that_diverge_are_never_the_best():
    found = searched([], lambda precision: math.nan if precision > 1 else precision)
    assert found.value == found.best["prior_precision"] <= 1
    with pytest.raises(ValueError, match="no trial of 12 gave a finite value"):
        searched([], lambda precision: math.inf)


def test_trials_most_of_whose_updates_are_refused_lose_and_are_counted():
    def values(make, numbers, count, ask):
        losses = np.asarray(numbers["prior_precision"], float)
        return bs.tune.Values(losses, losses < 1)

    space = {"prior_precision": Range(1e-2, 1e2)}
    found = tuned_with(values, "lofi", space=space, trials=10)
    assert found.value >= 1
    assert found.refused == 10 - len(found.history) > 0


def test_a_learner_that_diverges_is_not_scored_on_what_came_before():
    """Its forecasts turn to NaN on the way; they must not pass as missing labels."""
    wild = bs.lofi(MODEL, bs.likelihoods.gaussian(0.05), rank=1, decay=lambda step: 1.0)
    broken = wild._replace(
        mean=lambda state: wild.mean(state) + jax.numpy.where(state.step > 20, jax.numpy.nan, 0.0)
    )
    assert bs.tune.prequential(STREAM).value(broken) == math.inf


def test_labels_that_come_late_in_the_stream_are_enough():
    y = STREAM.examples.y.copy()
    y[:30] = np.nan
    late = bs.Stream(STREAM.examples._replace(y=y))
    learner = bs.vdekf(MODEL, bs.likelihoods.gaussian(0.05))
    assert math.isfinite(bs.tune.prequential(late).value(learner))
    with pytest.raises(ValueError, match="at least one example with a label"):
        bs.tune.prequential(bs.Stream(STREAM.examples._replace(y=y * np.nan)))


def test_what_is_declared_can_be_fixed_and_printed():
    inflation = bs.inflation.bayesian(0.01)
    found = tuned_with(ones, "lofi", fixed={"rank": 1, "inflation": inflation}, trials=1)
    assert "inflation=inflation" in found.python()
    assert tomllib.loads(found.toml())["options"]["rank"] == 1
    tuned_with(ones, "ogd", fixed={"optimiser": 0.01}, trials=1)
    with pytest.raises(ValueError, match="known must be of prior_precision, decay, drift"):
        tuned_with(ones, "lofi", known=[{"rank": 3}])


@pytest.mark.slow
def test_trials_together_have_the_values_they_have_alone(monkeypatch):
    """However many run at once; also where labels come late, and they run one by one."""
    numbers = {"prior_precision": jnp.array([0.5, 3.0, 20.0]), "noise": jnp.array([0.1, 0.2, 0.1])}

    def make(values):
        return build("lofi", MODEL, bs.likelihoods.gaussian, values, {}, {"rank": 1})

    late = bs.Stream(STREAM.examples._replace(delay=np.full(60, 3)))
    for stream in (STREAM, late):
        objective = bs.tune.prequential(stream)
        together = objective.values(make, numbers, 3, lambda: None)
        assert not together.refused.any()
        for lane in range(3):
            own = {name: float(values[lane]) for name, values in numbers.items()}
            np.testing.assert_allclose(together.losses[lane], objective.value(make(own)), rtol=1e-9)
    monkeypatch.setattr(evaluate, "_TOGETHER", 1)
    few = bs.tune.prequential(STREAM).values(make, numbers, 3, lambda: None)
    again = bs.tune.prequential(STREAM).values(make, numbers, 3, lambda: None)
    np.testing.assert_array_equal(few.losses, again.losses)
    validated = bs.tune.validation(STREAM.take(40), STREAM.select(np.arange(40, 60)))
    assert validated.values(make, numbers, 3, lambda: None).losses.shape == (3,)


@pytest.fixture(scope="module")
def tuned():
    baseline = bs.lofi(MODEL, bs.likelihoods.gaussian(1.0), rank=1)
    return bs.tune.tune(
        "lofi",
        MODEL,
        bs.likelihoods.gaussian,
        bs.tune.prequential(STREAM),
        fixed={"rank": 1},
        baseline=baseline,
        trials=4,
        known=[{"prior_precision": 1.0, "decay": 1.0, "drift": 1e-4, "noise": 0.01}],
    )


def test_tuning_on_a_stream_beats_the_baseline_it_measured(tuned):
    assert tuned.value < tuned.baseline
    learner = tuned.estimator(MODEL, bs.likelihoods.gaussian)
    again = bs.tune.prequential(STREAM).value(learner)
    np.testing.assert_allclose(again, tuned.value, rtol=1e-6)
    results = bs.evaluate.prequential({"lofi": learner}, STREAM, metrics=["nlpd"])
    last = results.where(summary="cumulative")["value"][-1]
    np.testing.assert_allclose(last, tuned.value, rtol=1e-6)


def test_the_best_values_can_be_pasted_and_read(tuned):
    space = {"bs": bs, "model": MODEL}
    exec(tuned.python(), space)
    assert space["learner"].model is MODEL
    read = tomllib.loads(tuned.toml())
    assert read["method"] == "lofi"
    assert read["options"]["rank"] == 1
    assert set(read["options"]) == {"rank", "prior_precision", "decay", "drift"}
    assert read["noise"] == tuned.best["noise"]


def test_validation_is_scored_after_training():
    train, held_out = STREAM.take(40), STREAM.select(np.arange(40, 60))
    learner = bs.vdekf(MODEL, bs.likelihoods.gaussian(0.05))
    value = bs.tune.validation(train, held_out).value(learner)
    state, _ = bs.run(learner, learner.init(jax.random.key(0)), train)
    forecast = bs.predictive.linearized(learner, state, held_out.examples.x)
    np.testing.assert_allclose(value, bs.scores.nlpd(forecast, held_out.examples.y), rtol=1e-6)


@pytest.mark.parametrize("method", sorted(bs.estimators.REGISTRY))
def test_every_estimator_is_made_at_both_ends_of_its_space(method):
    space = {**bs.estimators.SPACES[method], "noise": NOISE}
    for end in ("low", "high"):
        numbers = {name: place.value(getattr(place, end)) for name, place in space.items()}
        build(method, bs.models.mlp([2, 5, 1]), bs.likelihoods.gaussian, numbers, space, {})


def test_a_range_leads_to_a_value_and_back():
    place = Range(1e-4, 1e-1, complement=True)
    assert place.searched(place.value(0.01)) == pytest.approx(0.01)
    assert place.searched(1.0) == 1e-4  # into the range
