"""River's interface over our learners: they grow, and to predict changes nothing."""

import copy
import math
import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
from river import checks, datasets, evaluate, metrics

from bayestream.facades.features import Features
from bayestream.facades.river import BayesNetClassifier, BayesNetRegressor

RNG = np.random.default_rng(0)
SMALL = {"hidden": 3, "method": "lofi", "rank": 2}


def animals(count=60):
    for number in range(count):
        kind = ["mouse", "dog", "cow"][number % 3]
        yield {"size": {"mouse": 1, "dog": 20, "cow": 300}[kind] + RNG.normal()}, kind


def taught(**options):
    model = BayesNetClassifier(**{**SMALL, **options})
    for x, y in animals():
        model.learn_one(x, y)
    return model


def snapshot(model):
    return pickle.dumps(model)


def test_prediction_never_changes_the_state():
    model = taught()
    before = snapshot(model)
    model.predict_one({"size": 3.0, "new": "feature", "other": 1e9})
    model.predict_proba_one({})
    model.predict_many(pd.DataFrame([{"size": 3.0, "new": 1.0}]))
    assert snapshot(model) == before


def test_classes_and_features_that_come_later_are_learnt():
    model = taught()
    assert model.predict_one({"size": 310}) == "cow"
    before = model.predict_proba_one({"size": 20})
    for number in range(40):
        model.learn_one(
            {"size": 20.0, "horn": bool(number % 2)}, "unicorn" if number % 2 else "dog"
        )
    assert set(model.predict_proba_one({"size": 20})) == {*before, "unicorn"}
    assert model.predict_one({"size": 20, "horn": True}) == "unicorn"
    assert model.predict_one({"size": 20, "horn": False}) == "dog"
    assert model._online.size == (2, 4, 1)  # one input and two classes, doubled as they came


def test_probabilities_sum_to_one_and_name_the_classes():
    model = taught()
    found = model.predict_proba_one({"size": 5.0})
    assert set(found) == {"mouse", "dog", "cow"}
    assert math.isclose(sum(found.values()), 1.0)
    assert model.predict_one({"size": 5.0}) == max(found, key=found.get)


def test_a_copy_and_a_pickle_go_on_as_the_model_does():
    model = taught()
    others = [copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
    for each in (model, *others):
        each.learn_one({"size": 40.0, "tail": "long"}, "fox")
    expected = model.predict_proba_one({"size": 30.0, "tail": "long"})
    for other in others:
        assert other.predict_proba_one({"size": 30.0, "tail": "long"}) == expected


@pytest.fixture(scope="module")
def line():
    model = BayesNetRegressor(**SMALL)
    for value in RNG.normal(size=200):
        model.learn_one({"a": 50 + 7 * value}, 1000 + 100 * value + RNG.normal())
    return model


@pytest.mark.slow
def test_numbers_are_forecast_in_their_own_units_with_their_doubt(line):
    forecast = line.predict_one({"a": 57.0}, with_dist=True)
    assert math.isclose(forecast.mean, line.predict_one({"a": 57.0}), rel_tol=1e-6)
    assert abs(forecast.mu - 1100) < 30
    low, high = forecast.interval(0.8)
    assert low < forecast.mode < high
    assert math.isclose(forecast.cdf(high), 0.9, abs_tol=1e-3)
    assert math.isclose(forecast.quantile(0.1), low, rel_tol=1e-6)
    grid = np.linspace(forecast.mu - 9 * forecast.sigma, forecast.mu + 9 * forecast.sigma, 91)
    total = sum(forecast(value) for value in grid) * (grid[1] - grid[0])
    assert math.isclose(total, 1.0, abs_tol=0.01)
    draws = [forecast.sample() for _ in range(30)]
    assert abs(np.mean(draws) - forecast.mu) < 5 * forecast.sigma / math.sqrt(30)
    assert line.predict_one({"a": 1e9}, with_dist=True).sigma > 0
    with pytest.raises(NotImplementedError, match="does not learn"):
        forecast.update(1.0)


@pytest.mark.slow
def test_a_label_that_is_missing_teaches_nothing(line):
    model = copy.deepcopy(line)
    expected = model.predict_one({"a": 52.0})
    labels = model._labels.count
    model.learn_one({"a": 50.0}, None)
    model.learn_one({"a": 50.0}, math.nan)
    assert model._labels.count == labels
    assert math.isclose(model.predict_one({"a": 52.0}), expected, rel_tol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("library", [pd, pl])
def test_frames_go_in_and_series_come_out(line, library):
    frame = library.DataFrame({"a": [45.0, 52.0]})
    model = copy.deepcopy(line)
    found = model.predict_many(frame)
    assert isinstance(found, library.Series)
    np.testing.assert_allclose(found, [model.predict_one({"a": a}) for a in (45.0, 52.0)])
    one = copy.deepcopy(line)
    model.learn_many(frame, library.Series([950.0, 1030.0]))
    for a, y in ((45.0, 950.0), (52.0, 1030.0)):
        one.learn_one({"a": a}, y)
    assert math.isclose(model.predict_one({"a": 1.0}), one.predict_one({"a": 1.0}), rel_tol=1e-4)


def test_features_are_numbers_booleans_and_text_and_nothing_else():
    features = Features(limit=3)
    features.learn({"n": 1.0, "flag": True, "text": "u"})
    found = features.learn({"n": np.float32(3.0), "flag": np.bool_(False), "text": "too late"})
    assert found.tolist() == [-1.0, 1.0, 0.0]  # flag, n and text=u; the limit is three
    assert features.learn({"n": None, "flag": math.nan, "text": None}).tolist() == [0.0] * 3
    assert features.learn({"n": math.inf}).tolist() == [0.0] * 3
    with pytest.raises(ValueError, match=r"^x\['when'\] must be a number, a boolean or a string"):
        features.learn({"when": [1, 2]})


def taught_nothing(model, count, *, asked):
    for number in range(count):
        if asked:
            model.predict_one({"a": 1.0})
        model.learn_one({"a": number}, number)


def test_refused_updates_are_counted_and_warned_of_once():
    model = BayesNetRegressor(hidden=2, method="vdekf", noise=1e-310)  # its inverse is infinite
    with pytest.warns(RuntimeWarning, match=r"^1 of 1 updates would not have been") as said:
        taught_nothing(model, 4, asked=True)
    assert (model.refused, len(said)) == (4, 1)
    model = model.clone()
    with pytest.warns(RuntimeWarning, match=r"^64 of 64 updates"):
        taught_nothing(model, 65, asked=False)


def test_bad_settings_are_refused_in_a_sentence():
    with pytest.raises(ValueError, match=r"^method must be one of .*, got 'lofy'"):
        BayesNetRegressor(method="lofy")
    with pytest.raises(TypeError, match=r"^hidden must be a whole number"):
        BayesNetRegressor(hidden=2.5)
    with pytest.raises(ValueError, match=r"^max_inputs must be a whole number, 1 or above"):
        BayesNetClassifier(max_inputs=0)


@pytest.mark.slow
def test_it_runs_in_rivers_evaluation_with_late_labels():
    stream = datasets.TrumpApproval().take(120)
    model = BayesNetRegressor(**SMALL)
    late = evaluate.progressive_val_score(stream, model, metrics.MAE(), delay=5)
    assert late.get() < 5


def parametrised():
    found = []
    for model in (BayesNetRegressor(**SMALL), BayesNetClassifier(**SMALL)):
        for number, check in enumerate(checks.yield_checks(model)):
            assert check.__name__ not in model._unit_test_skips()
            name = f"{type(model).__name__}-{check.__name__}-{number}"
            found.append(pytest.param(model, check, id=name))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("model", "check"), parametrised())
def test_river_accepts_it(model, check):
    check(model.clone())


@pytest.mark.slow
@pytest.mark.parametrize("model", [BayesNetRegressor(hidden=3), BayesNetClassifier(hidden=3)])
def test_river_accepts_the_default_learner(model):
    checks.check_estimator(model)
