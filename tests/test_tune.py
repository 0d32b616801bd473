"""Tuning: the same search whether or not it was interrupted, and better than where it began."""

import math
import tomllib

import jax
import numpy as np
import pytest

import bayestream as bs
from bayestream.estimators.spaces import Range
from bayestream.tuning.tune import NOISE, build

pytest.importorskip("optuna")
MODEL = bs.models.mlp([2, 1])
LIKELIHOOD = bs.likelihoods.gaussian(0.1)
STREAM = bs.streams.drifting_linear_regression(0, steps=60, inputs=2)


class InterruptedSearchError(Exception):
    """Somebody pressed a key."""


def searched(seen, value=lambda precision: math.log(precision / 3.0) ** 2, **options):
    """A search that costs nothing: `seen` is told each prior precision, the objective its value."""

    def objective(learner, report):
        found = value(seen[-1])
        report(2 * found)
        report(found)
        return found

    def note(precision):
        seen.append(precision)
        return precision

    space = {"prior_precision": Range(1e-2, 1e2, make=note)}
    settings = {"space": space, "trials": 12, "seed": 3, "fixed": {"rank": 1}, **options}
    return tuned_with(objective, "lofi", **settings)


def tuned_with(objective, method="orfit", likelihood=LIKELIHOOD, **options):
    options = {"fixed": {"rank": 1}, "trials": 3, **options}
    about = bs.tune.Objective(objective, options.pop("about", "a test"))
    return bs.tune.tune(method, MODEL, likelihood, about, **options)


def test_a_resumed_search_equals_an_unbroken_one(tmp_path):
    unbroken, broken = [], []
    whole = searched(unbroken)
    options = {"storage": tmp_path / "tune.db"}

    def until(count):
        def value(precision):
            if len(broken) > count:
                broken.pop()
                raise InterruptedSearchError
            return math.log(precision / 3.0) ** 2

        return value

    for stop in (4, 9):
        with pytest.raises(InterruptedSearchError):
            searched(broken, until(stop), **options)
    resumed = searched(broken, **options)
    assert broken == unbroken
    assert (resumed.best, resumed.value) == (whole.best, whole.value)


def test_a_search_that_is_stopped_gives_its_best_and_can_be_resumed(tmp_path):
    unbroken, broken = [], []
    complete = searched(unbroken)
    options = {"storage": tmp_path / "tune.db"}
    stopped = searched(broken, stop=lambda: len(broken) == 5, **options)
    assert stopped.trials == 4  # the fifth was cut off
    assert stopped.value == min(math.log(precision / 3.0) ** 2 for precision in broken[:4])
    broken.pop()
    resumed = searched(broken, **options)
    assert broken == unbroken
    assert resumed.best == complete.best
    with pytest.raises(ValueError, match="stopped before a trial was complete"):
        searched([], stop=lambda: True)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_search_that_is_stopped_within_its_baseline_does_not_begin(tmp_path, workers):
    options = {"storage": tmp_path / "tune.db", "workers": workers}
    searched([1.0], **options)
    began = []

    def value(precision):
        began.append(precision)
        return precision

    learner = bs.vdekf(MODEL, LIKELIHOOD)
    found = searched([1.0], value, trials=20, baseline=learner, stop=lambda: bool(began), **options)
    assert (began, found.baseline, found.trials) == ([1.0], None, 12)


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
    for trials in (6, 16):
        searched(in_two, trials=trials, storage=tmp_path / "tune.db")
    assert in_two == at_once


def test_known_values_come_first():
    seen = []
    found = searched(seen, known=[{"prior_precision": 3.0}, {"prior_precision": 50.0}])
    np.testing.assert_allclose(seen[:2], [3.0, 50.0], rtol=1e-12)
    assert found.best == {"prior_precision": 3.0}


def test_a_file_with_another_search_of_that_name_is_refused(tmp_path):
    searched([], storage=tmp_path / "tune.db", trials=1)
    with pytest.raises(ValueError, match="holds a search named 'lofi' with other settings"):
        searched([], storage=tmp_path / "tune.db", seed=9)
    searched([], storage=tmp_path / "tune.db", seed=9, study="another", trials=1)


def test_a_search_for_other_data_is_refused(tmp_path):
    options = {"storage": tmp_path / "tune.db", "trials": 1}
    tuned_with(lambda learner, report: 1.0, **options)
    with pytest.raises(ValueError, match="with other settings or other data"):
        tuned_with(lambda learner, report: 1.0, about="something else", **options)
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


@pytest.mark.parametrize("end", [math.nan, 9.0])
def test_a_trial_that_began_well_and_ended_badly_is_not_the_best(end):
    """Optuna keeps the last report of a trial that was given up as its value."""
    trials = iter([[1.0, 1.0]] * 6 + [[-5.0, end]] + [[2.0, 2.0]] * 3)

    def objective(learner, report):
        reports = next(trials)
        for value in reports:
            report(value)
        return reports[-1]

    assert tuned_with(objective, trials=10).value == 1.0


def test_an_error_in_one_worker_stops_all():
    done = []

    def objective(learner, report):
        done.append(1)
        if len(done) == 3:
            raise InterruptedSearchError
        return 1.0

    for workers in (1, 2):
        done.clear()
        with pytest.raises(InterruptedSearchError):
            tuned_with(objective, trials=200, workers=workers)
        assert len(done) < 20


def test_a_learner_that_diverges_is_not_scored_on_what_came_before():
    """Its forecasts turn to NaN on the way; they must not pass as missing labels."""
    wild = bs.lofi(MODEL, bs.likelihoods.gaussian(0.05), rank=1, decay=lambda step: 1.0)
    broken = wild._replace(
        mean=lambda state: wild.mean(state) + jax.numpy.where(state.step > 20, jax.numpy.nan, 0.0)
    )
    reports = []
    value = bs.tune.prequential(STREAM).value(broken, reports.append)
    assert value == math.inf
    assert math.isfinite(reports[0])
    assert reports[-1] == math.inf


def test_labels_that_come_late_in_the_stream_are_enough():
    y = STREAM.examples.y.copy()
    y[:30] = np.nan
    late = bs.Stream(STREAM.examples._replace(y=y))
    reports = []
    learner = bs.vdekf(MODEL, bs.likelihoods.gaussian(0.05))
    assert math.isfinite(bs.tune.prequential(late).value(learner, reports.append))
    assert len(reports) == 2
    with pytest.raises(ValueError, match="at least one example with a label"):
        bs.tune.prequential(bs.Stream(STREAM.examples._replace(y=y * np.nan)))


def test_what_is_declared_can_be_fixed_and_printed():
    inflation = bs.inflation.bayesian(0.01)
    found = tuned_with(
        lambda learner, report: 1.0, "lofi", fixed={"rank": 1, "inflation": inflation}, trials=1
    )
    assert "inflation=inflation" in found.python()
    assert tomllib.loads(found.toml())["options"]["rank"] == 1
    tuned_with(lambda learner, report: 1.0, "ogd", fixed={"optimiser": 0.01}, trials=1)
    with pytest.raises(ValueError, match="known must be of prior_precision, decay, drift"):
        tuned_with(lambda learner, report: 1.0, "lofi", known=[{"rank": 3}])


def test_hopeless_trials_are_given_up():
    """Only the first report of a trial that looks bad is asked for a second."""
    reports = []

    def objective(learner, report):
        number = len(reports)
        reports.append(0)
        for _ in range(4):
            report(float(number))  # each trial is worse than the one before
            reports[-1] += 1
        return float(number)

    tuned_with(objective, trials=10)
    assert reports[:5] == [4] * 5
    assert max(reports[5:]) < 4


def test_two_workers_do_as_many_trials_as_one():
    seen = []
    assert searched(seen, workers=2).trials == 12
    assert len(seen) == 12


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
    again = bs.tune.prequential(STREAM).value(learner, lambda value: None)
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
    np.testing.assert_allclose(read["noise"], tuned.best["noise"], rtol=1e-3)


def test_validation_is_scored_after_training():
    train, held_out = STREAM.take(40), STREAM.select(np.arange(40, 60))
    learner = bs.vdekf(MODEL, bs.likelihoods.gaussian(0.05))
    reports = []
    value = bs.tune.validation(train, held_out).value(learner, reports.append)
    state, _ = bs.run(learner, learner.init(jax.random.key(0)), train)
    forecast = bs.predictive.linearized(learner, state, held_out.examples.x)
    np.testing.assert_allclose(value, bs.scores.nlpd(forecast, held_out.examples.y), rtol=1e-6)
    assert len(reports) == 4
    assert reports[-1] == value


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
