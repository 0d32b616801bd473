"""Scikit-learn's interface over our learners."""

import importlib
import os
import pickle
import subprocess
import sys

import jax
import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

import bayestream as bs
from bayestream.facades.sklearn import BayesNetClassifier, BayesNetRegressor

SMALL = {"hidden": 4, "method": "lofi", "rank": 3, "random_state": 0}
RNG = np.random.default_rng(0)
X = RNG.normal(size=(150, 2)) * [1.0, 50.0] + [0.0, 300.0]
Y = 1000 + 100 * X[:, 0] + 5 * RNG.normal(size=150)
LABELS = np.where(X[:, 0] > 0.5, "high", np.where(X[:, 1] > 300, "middle", "low"))


def regressor(**options):
    return BayesNetRegressor(**{**SMALL, "options": {"prior_precision": 1.0}, **options})


def classifier(**options):
    return BayesNetClassifier(**{**SMALL, "options": {"prior_precision": 1.0}, **options})


@pytest.fixture(scope="module")
def fitted():
    return regressor().fit(X, Y)


@pytest.mark.slow
def test_numbers_come_in_their_own_units_with_their_doubt(fitted):
    mean, deviation = fitted.predict(X, return_std=True)
    np.testing.assert_allclose(mean, fitted.predict(X), rtol=1e-6)
    assert fitted.score(X, Y) > 0.9
    interval = fitted.predict_interval(X, level=0.8)
    assert np.all((interval[:, 0] < mean) & (mean < interval[:, 1]))
    assert 0.6 < np.mean((interval[:, 0] < Y) & (interval[:, 1] > Y)) <= 1
    draws = fitted.sample_y(X[:5], n_samples=2000, random_state=1)
    np.testing.assert_allclose(draws.mean(axis=1), mean[:5], atol=5 * deviation[:5].max() / 40)
    np.testing.assert_allclose(draws.std(axis=1), deviation[:5], rtol=0.2)
    with pytest.raises(ValueError, match=r"^level must be a number from 0 to 1"):
        fitted.predict_interval(X, level=2)


def test_refused_updates_are_counted_and_warned_of_once():
    model = regressor(hidden=2, method="vdekf", noise=1e-310)  # its inverse is infinite
    with pytest.warns(RuntimeWarning, match=rf"^{len(X)} of {len(X)} updates would not") as said:
        model.fit(X, Y).partial_fit(X[:3], Y[:3])
    assert (model.refused, len(said)) == (len(X) + 3, 1)


@pytest.mark.slow
def test_without_a_rank_the_default_keeps_the_whole_covariance():
    full, low = (
        BayesNetRegressor(hidden=2, rank=rank, random_state=0).fit(X[:50], Y[:50]).predict(X)
        for rank in (None, 9)  # of the 9 weights nothing is left out
    )
    np.testing.assert_allclose(full, low, rtol=1e-3)


def test_a_method_that_has_a_rank_must_have_one():
    with pytest.raises(TypeError, match="rank must be a whole number, 0 or above, got None"):
        regressor(rank=None).fit(X, Y)


def test_a_weight_of_two_is_the_row_twice_wherever_it_stands():
    weights = RNG.integers(0, 4, size=len(X))
    weighted = classifier().fit(X, LABELS, sample_weight=weights).predict_proba(X)
    order = RNG.permutation(weights.sum())
    rows, labels = (np.repeat(part, weights, axis=0)[order] for part in (X, LABELS))
    np.testing.assert_array_equal(classifier().fit(rows, labels).predict_proba(X), weighted)
    assert np.abs(classifier().fit(X, LABELS).predict_proba(X) - weighted).max() > 1e-3


def test_partial_fit_goes_on_in_order_and_counts_weights_too():
    weights = RNG.integers(0, 3, size=40).astype(float)
    weighted, repeated = (classifier().partial_fit(X[:50], LABELS[:50]) for _ in range(2))
    weighted.partial_fit(X[50:90], LABELS[50:90], sample_weight=weights)
    twice = (np.repeat(part[50:90], weights.astype(int), axis=0) for part in (X, LABELS))
    repeated.partial_fit(*twice)
    np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=1e-6)


@pytest.mark.parametrize("bad", [np.ones(3), -np.ones(150), np.zeros(150), np.full(150, np.nan)])
def test_weights_that_cannot_be_are_refused(bad):
    with pytest.raises(ValueError, match=r"^sample_weight must "):
        classifier().fit(X, LABELS, sample_weight=bad)


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", [bs.likelihoods.gaussian(0.1), bs.likelihoods.categorical()])
def test_a_power_of_the_likelihood_is_a_joint_conditioning_on_copies(likelihood):
    model = bs.models.mlp([2, 3, 2])
    once, whole = (
        bs.lofi(model, bs.likelihoods.tempered(likelihood, power), rank=3) for power in (1.0, 3.0)
    )
    y = np.array([0.3, -0.2]) if likelihood.name == "gaussian" else np.array(1)
    x, state = np.array([0.5, -1.0]), once.init(jax.random.key(0))
    copies = jax.jit(once.update_batch)(state, np.stack([x] * 3), np.stack([y] * 3))
    power = jax.jit(whole.update)(state, x, y)
    np.testing.assert_allclose(once.mean(power), once.mean(copies), atol=1e-10)
    rows = np.eye(model.size)
    one, other = (once.covariance_between(each, rows) for each in (power, copies))
    np.testing.assert_allclose(one, other, atol=1e-10)


@pytest.mark.slow
def test_a_fraction_teaches_less_than_one():
    steps = []
    for weight in (0.0, 0.25, 0.5, 1.0):
        model = regressor().partial_fit(X[:100], Y[:100])
        before = model.predict(X)
        model.partial_fit(X[100:102], Y[100:102] + 300, sample_weight=[weight, 1e-9])
        steps.append(np.abs(model.predict(X) - before).mean())
    assert steps == sorted(steps)
    assert steps[0] < steps[1] < steps[3]


@pytest.mark.slow
def test_classes_grow_and_those_announced_have_a_probability_from_the_start():
    model = classifier().partial_fit(X[:50], np.array(["b", "d"] * 25), classes=["b", "c", "d"])
    assert np.all(model.predict_proba(X)[:, 1] > 0)
    assert model.classes_.tolist() == ["b", "c", "d"]
    before = model.predict_proba(X)
    model.partial_fit([[9.0, 900.0]] * 5, ["a"] * 5)
    assert model.classes_.tolist() == ["a", "b", "c", "d"]
    assert model.predict([[9.0, 900.0]]).tolist() == ["a"]
    assert model.predict_proba(X).shape == (150, 4)
    assert before.shape == (150, 3)


@pytest.mark.slow
@pytest.mark.parametrize("library", [pd, pl])
def test_frames_pipelines_and_searches_work(library):
    frame = library.DataFrame({"size": X[:, 0], "weight": X[:, 1]})
    chain = make_pipeline(StandardScaler().set_output(transform=library.__name__), classifier())
    chain.fit(frame, LABELS)
    assert chain.score(frame, LABELS) > 0.7
    assert chain[-1].feature_names_in_.tolist() == ["size", "weight"]
    search = GridSearchCV(regressor(), {"rank": [1, 3]}, cv=2, error_score="raise")
    assert search.fit(frame, Y).best_estimator_.n_features_in_ == 2


@pytest.mark.slow
def test_a_pickle_goes_on_as_the_model_does_and_a_clone_begins_anew(fitted):
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict(X), fitted.predict(X))
    assert not hasattr(clone(fitted), "_online")


@pytest.mark.parametrize(("library", "module"), [("sklearn", "sklearn.base"), ("river", "river")])
def test_a_library_that_is_not_installed_is_named_with_its_extra(library, module, monkeypatch):
    name = f"bayestream.facades.{library}"
    monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"^{name} needs .*: pip install 'bayestream\[{library}"):
        importlib.import_module(name)


def every_check():
    """As `parametrize_with_checks` makes them; one asks for a process of its own, below."""
    return [
        pytest.param(estimator, check, id=f"{type(estimator).__name__}-{named(check)}-{number}")
        for made in (BayesNetRegressor(hidden=5), BayesNetClassifier(hidden=5))
        for number, (estimator, check) in enumerate(estimator_checks_generator(made))
        if named(check) != "check_array_api_input"
    ]


def named(check):
    return getattr(check, "func", check).__name__


@pytest.mark.slow
@pytest.mark.parametrize(("estimator", "check"), every_check())
def test_scikit_learn_accepts_it(estimator, check):
    check(estimator)


ARRAY_API = """
from sklearn.utils.estimator_checks import estimator_checks_generator
from bayestream.facades.sklearn import BayesNetClassifier, BayesNetRegressor
for made in (BayesNetRegressor, BayesNetClassifier):
    for estimator, check in estimator_checks_generator(made(hidden=5, method="lofi")):
        if check.func.__name__ == "check_array_api_input":
            check(estimator)
            print("passed")
"""


@pytest.mark.slow
def test_scikit_learn_accepts_it_where_arrays_are_dispatched():
    """Scipy must be told before it is imported."""
    ran = subprocess.run(
        [sys.executable, "-c", ARRAY_API],
        env={**os.environ, "SCIPY_ARRAY_API": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.split() == ["passed"] * 2


QUICK = {"check_fit_score_takes_y", "check_estimators_pickle", "check_dict_unchanged"}


@pytest.mark.slow
@pytest.mark.parametrize("made", [regressor, classifier])
def test_a_handful_of_scikit_learns_checks_pass(made):
    done = set()
    for estimator, check in estimator_checks_generator(made()):
        if named(check) in QUICK:
            check(estimator)
            done.add(named(check))
    assert done == QUICK
