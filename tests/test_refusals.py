"""What could not be learnt from is counted, said, and in the end judged."""

import csv
import warnings
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

import bayestream as bs
from bayestream.cli import mixtures, writers
from bayestream.cli.main import application
from bayestream.forecasts import CategoricalForecast

RNG = np.random.default_rng(0)
XS = RNG.normal(size=(40, 2))
YS = XS.sum(axis=1, keepdims=True)
LEARNER = bs.vdekf(bs.models.mlp([2, 1]), bs.likelihoods.gaussian(0.1))
START = LEARNER.init(jax.random.key(0))
ABSURD = 1e250  # a float64, but not its square


def with_absurd(*places: int) -> np.ndarray:
    xs = XS.copy()
    xs[list(places), 0] = ABSURD
    return xs


def without(*places: int) -> tuple[np.ndarray, np.ndarray]:
    return np.delete(XS, places, axis=0), np.delete(YS, places, axis=0)


def test_run_reports_where_updates_were_refused_and_learns_the_rest():
    with pytest.warns(RuntimeWarning, match=r"^2 of 40 updates .* refused, the first at 3, 17 of"):
        state, records = bs.run(LEARNER, START, (with_absurd(3, 17), YS))
    assert [each.position for each in records.refused] == [3, 17]
    assert "would not have been finite" in records.refused[0].reason
    assert (int(LEARNER.refused(state)), records.updates) == (2, 40)
    clean, records = bs.run(LEARNER, START, without(3, 17))
    np.testing.assert_array_equal(LEARNER.mean(state), LEARNER.mean(clean))
    assert records.refused == ()


def test_refusals_are_counted_by_their_place_whatever_the_delay():
    stream = bs.streams.delayed_labels(bs.Stream(bs.Example(with_absurd(5), YS)), 4)
    with pytest.warns(RuntimeWarning, match="the first at 5 of the stream"):
        bs.run(LEARNER, START, stream)


def test_a_later_run_does_not_report_the_refusals_of_an_earlier_one():
    with pytest.warns(RuntimeWarning):
        state, _ = bs.run(LEARNER, START, (with_absurd(3), YS))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, records = bs.run(LEARNER, state, (XS, YS))
    assert records.refused == ()


def test_a_learner_most_of_whose_updates_are_refused_is_an_error():
    most = with_absurd(*range(21))
    with pytest.raises(bs.RefusedError, match=r"^21 of 40 updates would not have been finite"):
        bs.run(LEARNER, START, (most, YS))
    with pytest.warns(RuntimeWarning, match=r"^20 of 40"):
        bs.run(LEARNER, START, (with_absurd(*range(20)), YS))


def test_trials_together_say_which_of_them_was_refused():
    streams = [bs.Stream(bs.Example(xs, YS)) for xs in (XS, with_absurd(7))]
    keys = list(jax.random.split(jax.random.key(0), 2))
    with pytest.warns(RuntimeWarning, match=r"^trial 1: 1 of 40 updates"):
        _, records = bs.run_together(LEARNER, [START, START], streams, keys=keys)
    assert [len(each.refused) for each in records] == [0, 1]
    with pytest.warns(RuntimeWarning, match=r"^trial 0: 1 of 40"):
        bs.evaluate.prequential({"vdekf": LEARNER}, streams[1], trials=2)


@pytest.mark.parametrize(
    "method",
    [bs.lofi, bs.lrvga, partial(bs.lofi, diagonal_update=bs.estimators.reverse_kl(sweeps=2))],
    ids=["lofi", "lrvga", "lofi with another diagonal"],
)
def test_what_is_refused_leaves_the_belief_as_it_was_to_the_bit(method):
    """Also where the update goes on after conditioning, to fit a diagonal."""
    learner = method(bs.models.mlp([2, 8, 1]), bs.likelihoods.gaussian(0.1), rank=3, drift=1e-5)
    update = jax.jit(learner.update)
    x, y = np.array([0.3, -0.4]), np.array([0.5])
    state = update(learner.init(jax.random.key(0)), x, y)
    after = update(state, ABSURD * x, y)
    assert int(after.refused) == 1
    for before, now in zip(
        jax.tree.leaves(state.belief), jax.tree.leaves(after.belief), strict=True
    ):
        np.testing.assert_array_equal(now, before)


def test_numbers_that_the_belief_cannot_hold_are_refused_by_name():
    single = jax.tree.map(
        lambda leaf: leaf.astype(jnp.float32) if leaf.dtype == jnp.float64 else leaf, START
    )
    with pytest.raises(ValueError, match=r"^example 3 .* x must hold numbers that float32 can"):
        bs.run(LEARNER, single, (with_absurd(3), YS))
    with pytest.raises(ValueError, match=r"^y must be a number that float32 can hold, got 1e\+300"):
        bs.step(LEARNER, single, XS[0], np.array(1e300))


def test_a_forecast_that_is_not_finite_is_no_right_class():
    nowhere = CategoricalForecast(jnp.array([[jnp.nan, jnp.nan], [2.0, 0.0]]))
    assert float(bs.scores.misclassification(nowhere, jnp.array([0, 0]))) == 0.5


class Source:
    """As much of a source as a journal asks for."""

    outputs, names = 2, ["yes", "no"]
    labels = names
    more_classes = False


def test_a_forecast_that_is_not_finite_is_never_printed_as_a_class():
    row = bs.streams.Encoded("row 1", np.zeros(1), 0.0, "yes", 0.0, 1.0, 2)
    values = {"probabilities": np.array([[np.nan, np.nan], [0.9, 0.1]])}
    lines, losses, _ = writers.Labels(Source()).write([row, row], values)
    assert [line[2] for line in lines] == ["not finite", "yes"]
    assert losses[:, 0].tolist() == [1.0, 0.0]


def test_a_number_that_is_not_finite_is_said_to_be_so():
    row = bs.streams.Encoded("row 1", np.zeros(1), 0.0, 3.0, 1.0, 2.0)
    means = np.array([np.inf, 1.0])
    parts = np.array([[[1.0, mean, 1.0, np.inf]] for mean in means])
    lines, losses, _ = writers.Numbers().write(
        [row, row], {"mean": means, "deviation": np.ones(2), "parts": parts}
    )
    assert set(lines[0][2:]) == {"not finite"}
    assert lines[1][2] == "3"  # 1 + 2 · 1
    assert np.isinf(losses[0, 0])
    assert losses[1, 0] == 0


def test_densities_distributions_and_quantiles_in_the_journal_are_the_forecasts_own():
    y = np.array([0.3, -2.0, 40.0])
    normal = bs.forecasts.GaussianForecast(jnp.ones((1, 3, 1)), jnp.full((1, 3, 1, 1), 4.0))
    heavy = bs.forecasts.StudentTForecast(
        jnp.zeros((2, 3, 1)), jnp.ones((2, 3, 1)), jnp.array([3.0, 8.0])
    )
    forecast = bs.forecasts.AveragedForecast(jnp.array([0.5, 0.2, 0.3]), (normal, heavy))
    parts = np.array([[0.5, 1.0, 2.0, np.inf], [0.2, 0.0, 1.0, 3.0], [0.3, 0.0, 1.0, 8.0]])
    parts = np.repeat(parts[None], 3, axis=0)
    expected = forecast.log_density(jnp.asarray(y)[:, None])
    np.testing.assert_allclose(mixtures.log_density(y, parts), expected, rtol=1e-12)
    expected = forecast.cdf(jnp.asarray(y)[:, None])[:, 0]
    np.testing.assert_allclose(mixtures.distribution(y, parts), expected, rtol=1e-9)
    for level, expected in zip((0.05, 0.95), forecast.interval(0.9), strict=True):
        np.testing.assert_allclose(mixtures.quantile(level, parts), expected[:, 0], rtol=1e-6)


@pytest.mark.parametrize(("options", "code"), [([], 0), (["--set", "drift=1e260"], 1)])
def test_the_exit_code_says_whether_most_of_a_run_was_refused(tmp_path, options, code):
    path = tmp_path / "rows.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["a", "y"], *zip(XS[:, 0], YS[:, 0], strict=True)])
    command = ["run", "--data", str(path), "--target", "y", "--hidden", "2", "--method", "vdekf"]
    done = CliRunner().invoke(application(), [*command, *options, "--out", str(tmp_path / "out")])
    assert done.exit_code == code, done.output
    if code:
        assert "updates would not have been finite" in done.output
        assert "rows.csv line 3: its update would not have been finite" in done.output
