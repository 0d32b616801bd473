"""Bayesian optimisation: acquisitions against integrals, spaces there and back, ask and tell."""

import re
from functools import cache
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

import bayestream as bs
from bayestream.decisions import benchmark_functions as functions
from bayestream.decisions import spaces
from bayestream.decisions.acquisitions import log_improvement, moments
from bayestream.decisions.surrogates import random_waves

KEY = jax.random.key(0)


def linear(inputs):
    """A linear network from zero: quick to compile, and its posterior is exact."""
    model = bs.models.mlp([inputs, 1])._replace(init=lambda key: jnp.zeros(inputs + 1))
    likelihood = bs.likelihoods.gaussian(0.1)
    return bs.fcekf(model, likelihood, prior_precision=1.0, line_search=None)


def quick(space, **options):
    """An optimiser with the quickest of surrogates."""
    surrogate = bs.surrogates.online(linear(spaces.dimensions(space)))
    return bs.optimise.optimiser(space, surrogate=surrogate, first=2, **options)


@pytest.mark.parametrize(
    ("mean", "deviation", "lowest"), [(0.0, 1.0, 0.3), (2.0, 0.5, 0.1), (-1.0, 3.0, 2.0)]
)
def test_expected_improvement_is_the_integral(mean, deviation, lowest):
    density = stats.norm(mean, deviation).pdf
    low = min(mean, lowest) - 12 * deviation
    expected, _ = integrate.quad(
        lambda f: (lowest - f) * density(f), low, lowest, epsabs=0, epsrel=1e-12, limit=200
    )
    found = np.exp(jax.jit(log_improvement)(mean, deviation, lowest))
    assert found == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_its_logarithm_rises_and_is_finite_however_hopeless_the_point(dtype):
    z = np.concatenate([-np.logspace(6, -3, 400), np.linspace(0, 10, 50)]).astype(dtype)
    of = jax.value_and_grad(lambda z: log_improvement(-z, np.ones((), dtype), np.zeros((), dtype)))
    score, slope = jax.jit(jax.vmap(of))(z)
    assert score.dtype == dtype
    assert np.isfinite(score).all()
    assert (np.diff(score) > 0).all()
    assert np.isfinite(slope).all()
    assert (slope > 0).all()


def test_thompson_chooses_a_point_as_often_as_it_is_the_lowest():
    learner = linear(1)
    state = jax.jit(learner.update)(learner.init(KEY), np.array([0.5]), np.array([1.0]))
    ends = np.array([[-1.0], [1.0]])
    # f(−1) − f(1) = −2 θ₁, in the order (kernel, bias).
    slope, variance = learner.mean(state)[0], state.belief.covariance[0, 0]
    chance = stats.norm.cdf(slope / np.sqrt(variance))

    @jax.jit
    @jax.vmap
    def first_is_chosen(key):
        return jnp.argmax(bs.acquisitions.thompson()(learner, state, 0.0, key)(ends)) == 0

    count = 40_000
    chosen = np.mean(first_is_chosen(jax.random.split(KEY, count)))
    assert 0.1 < chance < 0.9
    assert chosen == pytest.approx(chance, abs=4 * np.sqrt(0.25 / count))


def test_confidence_bound_and_improvement_use_the_doubt_about_the_function_alone():
    learner = linear(2)
    state = learner.init(KEY)
    xs = np.array([[0.3, -0.2], [1.0, 1.0]])
    bound_of, improvement_of = (
        acquisition(learner, state, 0.5, KEY)
        for acquisition in (
            bs.acquisitions.lower_confidence(3.0),
            bs.acquisitions.expected_improvement(),
        )
    )
    (mean, deviation), bound, improvement, expected = jax.jit(
        lambda xs: (
            belief := moments(learner, state, xs),
            bound_of(xs),
            improvement_of(xs),
            log_improvement(*belief, 0.5),
        )
    )(xs)
    ones = np.concatenate([xs, np.ones((2, 1))], axis=1)
    np.testing.assert_allclose(deviation, np.sqrt(np.sum(ones**2, axis=1)), rtol=1e-10)
    np.testing.assert_allclose(bound, 3 * deviation - mean)
    np.testing.assert_allclose(improvement, expected)


def test_random_waves_are_a_gaussian_kernel():
    model = random_waves(2, features=20_000, pace=2.0)
    x, y, params = np.array([0.3, -0.5]), np.array([-0.1, 0.4]), np.zeros(model.size)
    gradient = jax.jit(jax.grad(lambda p, x: model.apply(p, x)[0]))
    a, b = gradient(params, x), gradient(params, y)
    expected = np.exp(-(2.0**2) * np.sum((x - y) ** 2) / (2 * 2))
    assert float(a[:-1] @ b[:-1]) == pytest.approx(expected, abs=0.03)
    _, (activations,), pull_back = model.linearize(params, jnp.asarray(x))
    np.testing.assert_allclose(activations * pull_back(jnp.ones(1))[0], a)


def test_the_most_probable_setting_is_that_of_the_highest_evidence():
    noises, xs = [0.01, 1.0, 4.0], np.linspace(-1, 1, 12)[:, None]
    ys = np.random.default_rng(0).normal(size=12)  # of variance 1 about 0
    model = bs.models.mlp([1, 1])._replace(init=lambda key: jnp.zeros(2))
    surrogate = bs.surrogates.most_probable(
        lambda noise: bs.fcekf(model, bs.likelihoods.gaussian(noise), prior_precision=1.0),
        bs.grid(noise=noises),
    )
    state = surrogate.learner.init(KEY)
    update = jax.jit(surrogate.learner.update)
    for x, y in zip(xs, ys, strict=True):
        state = update(state, x, y[None])
    features = np.hstack([xs, np.ones_like(xs)])
    evidence = [
        stats.multivariate_normal(cov=features @ features.T + noise * np.eye(12)).logpdf(ys)
        for noise in noises
    ]
    np.testing.assert_allclose(
        state.log_weights, evidence - np.logaddexp.reduce(evidence), atol=1e-8
    )
    learner, own = surrogate.believed(state)
    assert learner.likelihood(own).covariance(jnp.zeros(1))[0, 0] == noises[np.argmax(evidence)]


NUMBERS = st.floats(-1e6, 1e6).filter(lambda x: x == 0 or abs(x) > 1e-6)


@st.composite
def numbers(draw):
    """A range of numbers, and one of them."""
    log, is_whole = draw(st.booleans()), draw(st.booleans())
    bound = st.integers(-(10**6), 10**6) if is_whole else NUMBERS
    low, high = sorted(draw(st.tuples(bound, bound).filter(lambda both: both[0] != both[1])))
    if log:
        low, high = (
            (1, high - low + 1) if is_whole else (abs(low) + 1.0, abs(low) + 2.0 + high - low)
        )
    part = (bs.spaces.whole if is_whole else bs.spaces.real)(low, high, log=log)
    value = draw(st.integers(low, high) if is_whole else st.floats(low, high))
    return part, value


@given(numbers(), st.sampled_from(["a", None, 1, True]))
@settings(max_examples=50, deadline=None)
def test_points_come_back_from_the_cube_as_they_went(number, option):
    part, value = number
    space = {"number": part, "option": bs.spaces.choice("a", None, 1, True)}
    point = {"number": value, "option": option}
    coordinates = spaces.encode(space, point)
    assert (np.abs(coordinates) <= 1).all()
    back = spaces.decode(space, coordinates)
    assert back["option"] is option
    if part.is_whole:
        assert back["number"] == value
    else:
        assert back["number"] == pytest.approx(value, rel=1e-12, abs=1e-12 * (part.high - part.low))
    again = spaces.encode(space, back)
    np.testing.assert_allclose(again, coordinates, atol=1e-12)


def test_candidates_are_moved_to_where_points_are():
    space = {
        "rate": bs.spaces.real(0.0, 1.0),
        "units": bs.spaces.whole(1, 100, log=True),
        "kind": bs.spaces.choice("a", "b", "c"),
    }
    candidates = np.random.default_rng(0).uniform(-1, 1, (50, 5))
    moved = jax.jit(lambda xs: spaces.nearest(space, xs))(candidates)
    expected = [spaces.encode(space, spaces.decode(space, c)) for c in candidates]
    np.testing.assert_allclose(moved, expected, atol=1e-12)


@pytest.mark.parametrize(
    "problem", [functions.branin(), functions.hartmann6(), functions.ackley(10)]
)
def test_benchmark_functions_are_lowest_at_their_minimisers(problem):
    for minimiser in problem.minimisers:
        point = dict(zip(problem.space, minimiser, strict=True))
        assert problem.function(point) == pytest.approx(problem.minimum, abs=1e-6)
    rng = np.random.default_rng(0)
    for coordinates in rng.uniform(-1, 1, (500, len(problem.space))):
        assert problem.function(spaces.decode(problem.space, coordinates)) > problem.minimum


MIXED = {  # four coordinates
    "rate": bs.spaces.real(1e-4, 1e-1, log=True),
    "units": bs.spaces.whole(3, 9),
    "kind": bs.spaces.choice("a", "b"),
}
POINT = {"rate": 1e-3, "units": 4, "kind": "a"}


@cache
def mixed():
    """One optimiser for all tests of its space: it is compiled once."""
    return quick(MIXED)


def tell(value=0.0, **changes):
    """Tell the value of a point, some of which is changed."""
    return mixed().tell(mixed().init(KEY), {**POINT, **changes}, value)


def test_ask_never_leaves_the_box_and_tell_learns():
    optimiser = mixed()

    def value(point):
        assert 1e-4 <= point["rate"] <= 1e-1
        assert point["units"] in range(3, 10)
        assert point["kind"] in ("a", "b")
        return np.log(point["rate"]) + point["units"] - 5 * (point["kind"] == "b")

    state = bs.optimise.minimise(value, optimiser, evaluations=15, key=KEY)
    point, lowest = optimiser.best(state)
    assert lowest == state.values.min() == value(point)
    assert point == {"rate": pytest.approx(1e-4), "units": 3, "kind": "b"}
    again = bs.optimise.minimise(value, optimiser, evaluations=15, key=KEY)
    np.testing.assert_array_equal(again.points, state.points)


def test_what_failed_is_counted_and_kept_out_of_the_belief():
    optimiser = mixed()
    state = bs.optimise.minimise(lambda p: p["rate"], optimiser, evaluations=5, key=KEY)
    after = optimiser.tell(state, point := optimiser.ask(state, KEY), np.nan)
    assert (state.failed, after.failed, len(after.values)) == (0, 1, 6)
    assert after.belief is state.belief
    assert optimiser.best(after) == optimiser.best(state)
    assert optimiser.ask(after, KEY) != point


def test_where_everything_fails_it_goes_on_asking():
    optimiser = mixed()
    state = bs.optimise.minimise(lambda p: np.nan, optimiser, evaluations=6, key=KEY)
    assert state.failed == 6
    with pytest.raises(ValueError, match="at least one value"):
        optimiser.best(state)


def test_no_point_of_a_discrete_space_is_asked_for_twice_until_all_were():
    space = {"units": bs.spaces.whole(3, 6), "kind": bs.spaces.choice("a", "b")}
    optimiser = quick(space, acquisition=lambda *belief: lambda xs: xs[:, 0])  # always the same
    state = bs.optimise.minimise(lambda p: p["units"], optimiser, evaluations=8, key=KEY)
    assert len(np.unique(state.points, axis=0)) == 8
    assert optimiser.ask(state, KEY)["units"] in range(3, 7)


def test_values_that_are_all_the_same_are_no_trouble():
    state = bs.optimise.minimise(lambda p: 7.0, mixed(), evaluations=4, key=KEY)
    assert np.isfinite(state.units).all()


@pytest.mark.parametrize(
    ("refused", "sentence"),
    [
        (lambda: bs.spaces.real(1.0, 1.0), "low must be below high"),
        (lambda: bs.spaces.real(0.0, 1.0, log=True), "low must be positive on a logarithmic"),
        (lambda: bs.spaces.real("0", 1.0), "low and high must be numbers"),
        (lambda: bs.spaces.whole(0.5, 2), "low and high must be whole numbers"),
        (lambda: bs.spaces.choice("a"), "options must be two or more different"),
        (lambda: bs.spaces.box([0.0], [1.0, 2.0]), "as many"),
        (lambda: bs.optimise.optimiser({}), "space must map names to"),
        (lambda: bs.optimise.optimiser({"x": (0, 1)}), "x must be made by bayestream.spaces"),
        (lambda: tell(other=1), "point must have values for"),
        (lambda: tell(rate=1.0), "rate must be a number"),
        (lambda: tell(units=3.5), "units must be a whole"),
        (lambda: tell(kind="c"), "kind must be one of"),
        (lambda: tell(np.inf), "value must be a finite number"),
        (lambda: tell(None), "value must be a finite number"),
        (lambda: bs.optimise.optimiser(MIXED, surrogate=linear(4)), "surrogate must be made by"),
        (
            lambda: bs.optimise.optimiser(MIXED, surrogate=bs.surrogates.online(linear(3))),
            "surrogate must have 4 inputs",
        ),
        (
            lambda: bs.surrogates.online(
                bs.ogd(bs.models.mlp([2, 1]), bs.likelihoods.gaussian(0.1))
            ),
            "learner must keep a posterior",
        ),
        (
            lambda: bs.surrogates.most_probable(
                lambda rank: bs.lofi(
                    bs.models.mlp([2, 1]), bs.likelihoods.gaussian(0.1), rank=rank
                ),
                bs.grid(rank=[1, 2]),
            ),
            "settings must differ in floats alone",
        ),
    ],
)
def test_bad_values_are_refused_in_a_sentence(refused, sentence):
    with pytest.raises((TypeError, ValueError), match=sentence) as error:
        refused()
    assert str(error.value).endswith(".")


@pytest.mark.slow
def test_the_default_beats_random_search_on_a_function_it_was_not_chosen_on():
    def value(point):
        return sum((x - 0.3) ** 2 for x in point.values()) + np.sin(5 * point["x1"])

    space = bs.spaces.box([-2.0] * 3, [2.0] * 3)
    optimiser = bs.optimise.optimiser(space)
    keys = jax.random.split(KEY, 3)
    found = [
        bs.optimise.minimise(value, optimiser, evaluations=30, key=key).values.min() for key in keys
    ]
    rng = np.random.default_rng(0)
    at_random = [
        min(value(spaces.decode(space, u)) for u in rng.uniform(-1, 1, (30, 3))) for _ in keys
    ]
    assert np.median(found) < np.median(at_random)


@pytest.mark.slow
def test_the_page_about_optimisation_runs_as_it_is_written():
    page = (Path(__file__).parents[1] / "docs" / "optimise.md").read_text()
    names = {}
    for block in re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL):
        exec(block, names)
    assert names["value"] == np.nanmin(names["state"].values)
    assert names["value"] < np.nanmin(names["state"].values[:6])  # the points it began with
