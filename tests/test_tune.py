"""Tuning: the same search whether or not it was interrupted, and better than where it began."""

import math
import tomllib

import jax
import numpy as np
import pytest

import bayestream as bs
from bayestream.spaces import Range
from bayestream.tune import NOISE, build

pytest.importorskip("optuna")
MODEL = bs.models.mlp([2, 1])
STREAM = bs.streams.drifting_linear_regression(0, steps=60, inputs=2)


class InterruptedSearchError(Exception):
    """Somebody pressed a key."""


def searched(objective, **options):
    space = {"prior_precision": Range(1e-2, 1e2)}
    settings = {"space": space, "trials": 12, "seed": 3, "fixed": {"rank": 1}, **options}
    return bs.tune.tune("lofi", MODEL, bs.likelihoods.gaussian(0.1), objective, **settings)


def recording(seen, *, stop_after=None):
    """−log density of the first label, whose only secret is the prior precision."""

    def objective(learner, report):
        if stop_after is not None and len(seen) == stop_after:
            raise InterruptedSearchError
        belief = learner.init(jax.random.key(0)).belief
        precision = float(belief.base.diag[0])
        seen.append(precision)
        value = math.log(precision / 3.0) ** 2
        report(2 * value)
        report(value)
        return value

    return objective


def test_a_resumed_search_equals_an_unbroken_one(tmp_path):
    unbroken, broken = [], []
    whole = searched(recording(unbroken))
    options = {"storage": tmp_path / "tune.db"}
    for stop in (4, 9):
        with pytest.raises(InterruptedSearchError):
            searched(recording(broken, stop_after=stop), **options)
    resumed = searched(recording(broken), **options)
    assert broken == unbroken
    assert (resumed.best, resumed.value) == (whole.best, whole.value)


def test_the_search_depends_on_its_seed():
    first, again, other = [], [], []
    searched(recording(first))
    searched(recording(again))
    searched(recording(other), seed=4)
    assert first == again
    assert first != other


def test_known_values_come_first():
    seen = []
    found = searched(recording(seen), known=[{"prior_precision": 3.0}, {"prior_precision": 50.0}])
    np.testing.assert_allclose(seen[:2], [3.0, 50.0], rtol=1e-6)
    np.testing.assert_allclose(found.best["prior_precision"], 3.0, rtol=0.2)


def test_a_file_with_another_search_of_that_name_is_refused(tmp_path):
    searched(recording([]), storage=tmp_path / "tune.db", trials=1)
    with pytest.raises(ValueError, match="holds a search named 'lofi' with other settings"):
        searched(recording([]), storage=tmp_path / "tune.db", seed=9)
    searched(recording([]), storage=tmp_path / "tune.db", seed=9, study="another", trials=1)


def test_trials_that_diverge_are_never_the_best():
    def objective(learner, report):
        precision = float(learner.init(jax.random.key(0)).belief.base.diag[0])
        value = math.nan if precision > 1 else 1.0
        report(value)
        return value

    found = searched(objective)
    assert found.value == 1.0
    with pytest.raises(ValueError, match="no trial of 12 gave a finite value"):
        searched(lambda learner, report: math.inf)


def test_two_workers_do_as_many_trials_as_one():
    seen = []
    assert searched(recording(seen), workers=2).trials == 12
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
    again = bs.tune.prequential(STREAM)(learner, lambda value: None)
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
    value = bs.tune.validation(train, held_out)(learner, reports.append)
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
