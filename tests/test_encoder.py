"""The encoder's running mean and deviation, where values are absurd, or rare, or change."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bayestream as bs
from bayestream.streams.statistics import LIMIT, Statistics

ROWS = 3000


def column(kind, rows=ROWS):
    rng = np.random.default_rng(0)
    normal = rng.standard_normal(rows)
    rare = rng.random(rows) < 0.05
    return {
        "gaussian": lambda: 5 + 2 * normal,
        "log-normal": lambda: np.exp(normal),
        "student": lambda: rng.standard_t(3, rows),
        "sparse": lambda: 1.0 * rare,
        "counts": lambda: 1.0 * rng.poisson(0.1, rows),
        "sparse amounts": lambda: 1000 * rare * np.exp(normal),
        "constant": lambda: np.full(rows, 3.0),
        "seconds": lambda: 1.7e9 + 60.0 * np.arange(rows),
        "walk": lambda: np.cumsum(normal),
        "steps": lambda: np.repeat(normal[::150], 150) + 1e-4 * normal,
    }[kind]()


def statistics_of(values):
    statistics = Statistics()
    for value in values:
        statistics.add(float(value))
    return statistics


def assert_close(statistics, values, tolerance):
    deviation = values.std() or 1.0
    assert statistics.deviation == pytest.approx(deviation, rel=tolerance)
    assert statistics.mean == pytest.approx(values.mean(), rel=1e-9, abs=tolerance * deviation)


CONTINUOUS = ("gaussian", "log-normal", "student", "seconds", "walk")
RARE = ("sparse", "counts", "sparse amounts")


@pytest.mark.parametrize("kind", [*CONTINUOUS, *RARE, "constant"])
def test_statistics_of_clean_columns_are_the_plain_mean_and_deviation(kind):
    values = column(kind)
    for rows in (1, 2, 5, 9, 10, 11, 63, 64, 65, 200, ROWS):
        assert_close(statistics_of(values[:rows]), values[:rows], 1e-6)


PLACES = {
    "the first": lambda random: np.arange(ROWS) < 1,
    "the first three": lambda random: np.arange(ROWS) < 3,
    "one": lambda random: np.arange(ROWS) == 1000,
    "the last": lambda random: np.arange(ROWS) == ROWS - 1,
    "1%": lambda random: random < 0.01,
    "5%": lambda random: random < 0.05,
    "every twentieth": lambda random: np.arange(ROWS) % 20 == 0,
    "1% in a row": lambda random: np.arange(ROWS) // 30 == 50,
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", [*CONTINUOUS, "steps"])
def test_absurd_values_anywhere_leave_mean_and_deviation(kind, place):
    values = column(kind)
    rng = np.random.default_rng(1)
    absurd = PLACES[place](rng.random(ROWS))
    start = values.mean() + 1e3 * values.std()
    for sizes in (start, 1e30, -1e99, 10 ** rng.uniform(13, 99, ROWS) * rng.choice([-1, 1], ROWS)):
        assert_close(statistics_of(np.where(absurd, sizes, values)), values, 0.05)


@pytest.mark.parametrize(
    "place", [place for place in PLACES if place not in ("5%", "every twentieth")]
)
@pytest.mark.parametrize("kind", RARE)
def test_absurd_values_leave_a_column_whose_rare_values_outnumber_them(kind, place):
    values = column(kind)
    absurd = PLACES[place](np.random.default_rng(1).random(ROWS))
    for size in (1e9, 1e30, -1e99):
        assert_close(statistics_of(np.where(absurd, size, values)), values, 0.1)


@pytest.mark.parametrize("kind", ["gaussian", "log-normal", *RARE])
def test_a_column_that_begins_with_absurd_values_recovers(kind):
    values = column(kind)
    values[:60] = 1e30
    assert_close(statistics_of(values), values[60:], 0.06)


@pytest.mark.parametrize("shift", [0.0, 1e4])
@pytest.mark.parametrize("factor", [1e3, -1e6])
def test_a_change_for_good_is_followed_within_a_twentieth_of_the_rows(shift, factor):
    values = column("gaussian", 2 * ROWS)
    values[ROWS:] = shift + factor * values[ROWS:]
    for share, reached in ((0.05, 0.5), (0.1, 0.8), (1.0, 0.99)):
        seen = values[: round(ROWS * (1 + share))]
        assert reached < statistics_of(seen).deviation / seen.std() < 1.05


def test_a_change_of_unit_is_followed_in_a_sparse_column():
    values = column("sparse amounts", 2 * ROWS)
    values[ROWS:] *= 1e3
    assert_close(statistics_of(values), values, 0.15)


def encoded(values, labels=None):
    labels = np.arange(len(values)) if labels is None else labels
    rows = [{"x": float(x), "y": float(y)} for x, y in zip(values, labels, strict=True)]
    return bs.streams.table(rows, target="y", task="regression")


def test_an_absurd_input_is_shown_as_a_missing_one():
    values = column("gaussian", 200)
    values[[0, 100]] = 1e30
    x = encoded(values).stream.examples.x[:, 0]
    assert x[100] == 0
    # Forgotten by the tenth row, as if it had never been.
    np.testing.assert_allclose(x[10:100], encoded(values[1:100]).stream.examples.x[9:, 0])


def test_sparse_inputs_stay_apart_and_rare_ones_bounded():
    values = column("sparse")
    dirty = np.where(np.random.default_rng(1).random(ROWS) < 0.01, 1e30, values)
    x = encoded(dirty).stream.examples.x[-500:, 0]
    ones, zeros, absurd = (x[dirty[-500:] == value] for value in (1, 0, 1e30))
    np.testing.assert_allclose(ones, 1 / values.std(), rtol=0.1)
    np.testing.assert_allclose(zeros, -values.mean() / values.std(), rtol=0.1)
    assert (absurd == 0).all()
    assert encoded(np.arange(10_000) == 9_999).stream.examples.x[-1, 0] == LIMIT  # not 100


def test_absurd_labels_keep_their_size_and_leave_the_units():
    labels = 200 + 50 * np.random.default_rng(0).standard_normal(ROWS)
    dirty = labels.copy()
    dirty[100::500] *= 1000
    dirty[1234] = 1e99
    found = encoded(np.zeros(ROWS), dirty)
    before = labels[:-1]
    assert found.rows[-1].centre == pytest.approx(before.mean(), rel=0.01)
    assert found.rows[-1].scale == pytest.approx(before.std(), rel=0.01)
    y = found.stream.examples.y[:, 0]
    assert (y[100::500] > 1000).all()
    assert y[1234] == 1e15  # its square is finite in float32


NUMBERS = st.one_of(
    st.floats(-9e99, 9e99), st.floats(-10, 10), st.sampled_from([0.0, 1.0, 1e30, -5e-324])
)


@settings(deadline=None, max_examples=50)
@given(st.lists(NUMBERS, min_size=1, max_size=12), st.integers(1, 30), st.data())
def test_what_is_shown_is_finite_and_bounded_and_never_peeks(some, repeats, data):
    values = list(itertools.islice(itertools.cycle(some), len(some) * repeats))
    found = encoded(values, values)
    x, y = found.stream.examples.x[:, 0], found.stream.examples.y[:, 0]
    assert (np.abs(x) <= LIMIT).all()
    assert (np.abs(y) <= 1e15).all()
    assert np.isfinite([(row.centre, row.scale) for row in found.rows[10:]]).all()
    cut = data.draw(st.integers(1, len(values)))
    later = data.draw(st.lists(NUMBERS, max_size=5))
    again = encoded(values[:cut] + later, values[:cut] + later).stream.examples
    np.testing.assert_array_equal(again.x[:cut, 0], x[:cut])
    np.testing.assert_array_equal(again.y[:cut, 0], y[:cut])
