"""Alarms: soon after a change, and hardly ever without one."""

import numpy as np
import pytest
from scipy import stats

from bayestream.evaluation.changes import Watch, surprise_of_classes, surprise_of_numbers


def alarms(surprise):
    watch = Watch()
    return [change for change in map(watch.add, surprise) if change]


def test_surprise_of_a_calibrated_forecast_has_mean_zero_and_variance_one():
    rng = np.random.default_rng(0)
    numbers = surprise_of_numbers(rng.uniform(size=100_000))
    assert abs(numbers.mean()) < 0.02
    assert abs(numbers.var() - 1) < 0.05
    p = rng.dirichlet(np.ones(3), 100_000)
    label = (rng.uniform(size=(100_000, 1)) > p.cumsum(axis=1)).sum(axis=1)
    classes = surprise_of_classes(p, label)
    assert abs(classes.mean()) < 0.02
    assert 0.9 < classes.var() < 1  # a little less, for the sake of forecasts that are certain


@pytest.mark.parametrize("seed", range(3))
def test_false_alarms_are_rarer_than_one_in_ten_thousand(seed):
    surprise = surprise_of_numbers(np.random.default_rng(seed).uniform(size=200_000))
    assert len(alarms(surprise)) <= 20


def test_a_belief_that_is_somewhat_too_sure_raises_no_alarm_for_that():
    z = np.random.default_rng(0).normal(size=50_000)
    assert len(alarms(surprise_of_numbers(stats.norm.cdf(z, scale=0.85)))) <= 5


def test_outliers_are_no_change():
    rng = np.random.default_rng(0)
    surprise = surprise_of_numbers(rng.uniform(size=20_000))
    surprise[rng.random(20_000) < 0.01] = 500.0
    assert len(alarms(surprise)) <= 2


def test_a_change_is_found_soon_and_once():
    rng = np.random.default_rng(0)
    z = rng.normal(size=3000)
    z[2000:2150] *= 3
    (found,) = alarms(surprise_of_numbers(stats.norm.cdf(z)))
    assert 2000 < found.row < 2040
    assert abs(found.since - 2000) < 20
    assert found.strength > 0.5


def test_rows_without_a_label_say_nothing():
    watch = Watch()
    for _ in range(300):
        watch.add(0.0)
    assert all(watch.add(np.nan) is None for _ in range(1000))
    assert watch.rows == 1300
    found = [watch.add(3.0) for _ in range(10)]
    assert any(found)
