"""Each likelihood against exact sums over its outcomes, and noise that adapts."""

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import oracles
from bayestream.likelihoods import (
    adaptive_categorical,
    adaptive_gaussian,
    adaptive_student_t,
    bernoulli,
    categorical,
    evolving,
    from_log_density,
    gaussian,
    poisson,
    slowed,
    tempered,
)
from bayestream.types import EvolvingLikelihood

MATRIX = np.array([[2.0, 0.3, -0.1], [0.3, 1.0, 0.2], [-0.1, 0.2, 0.5]])
NOISES = {
    "scalar": (0.3, 0.3 * np.eye(3)),
    "vector": (np.array([0.3, 1.0, 2.0]), np.diag([0.3, 1.0, 2.0])),
    "matrix": (MATRIX, MATRIX),
}
GAUSSIANS = {f"gaussian-{name}": gaussian(noise) for name, (noise, _) in NOISES.items()}
DISCRETE = {"categorical": categorical(), "bernoulli": bernoulli(), "poisson": poisson()}
AGAIN = {
    f"{name}-again": from_log_density(DISCRETE[name].log_density, mean=DISCRETE[name].mean)
    for name in ("bernoulli", "poisson")
}
ALL = GAUSSIANS | DISCRETE | AGAIN
ETAS = [np.array([0.4, -1.2, 0.9]), np.array([-2.0, 0.1, 1.5])]
SATURATED = [[60.0, -60.0, 0.0], [300.0, -300.0, 0.0], [300.0, -300.0, 200.0]]
# Every outcome for three outputs; the counts stop where their probability is below 1e-20.
OUTCOMES = {
    "categorical": np.arange(3),
    "bernoulli": np.array(list(product([0.0, 1.0], repeat=3))),
    "poisson": np.array(list(product(np.arange(40.0), repeat=3))),
}
each_eta = pytest.mark.parametrize("eta", ETAS, ids=str)
each_discrete = pytest.mark.parametrize("name", DISCRETE)
each_gaussian = pytest.mark.parametrize("name", NOISES)


def _labels(name):
    """Give a few labels that the likelihood allows."""
    if name == "categorical":
        return [*map(jnp.asarray, (0, 2, 1.0)), jnp.array([0.2, 0.5, 0.3]), jnp.eye(3)[1]]
    kind = name.split("-")[0]
    labels = {"bernoulli": [0.0, 1.0, 1.0], "poisson": [0.0, 3.0, 7.0]}
    return [jnp.array(labels.get(kind, [-1.3, 0.2, 4.0])), jnp.zeros(3)]


def _enumerate(name, eta):
    """All outcomes as vectors (n, C), their probabilities (n,) and scores (n, C)."""
    outcomes, likelihood = jnp.asarray(OUTCOMES[name]), DISCRETE[name]
    log_density = jax.vmap(likelihood.log_density, (None, 0))(eta, outcomes)
    scores = jax.vmap(likelihood.score, (None, 0))(eta, outcomes)
    vectors = np.eye(3) if name == "categorical" else outcomes
    return np.asarray(vectors), np.exp(log_density), np.asarray(scores)


def _second_moment(vectors, probabilities):
    return (vectors * probabilities[:, None]).T @ vectors


@each_eta
@pytest.mark.parametrize("name", GAUSSIANS | DISCRETE)
def test_score_is_the_gradient_of_the_log_density(name, eta):
    for y in _labels(name):
        expected = jax.grad(ALL[name].log_density)(jnp.asarray(eta), y)
        actual = ALL[name].score(jnp.asarray(eta), y)
        np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-14)


@each_eta
@each_discrete
def test_probabilities_sum_to_one_and_scores_average_to_zero(name, eta):
    _, probabilities, scores = _enumerate(name, jnp.asarray(eta))
    np.testing.assert_allclose(np.sum(probabilities), 1.0, rtol=1e-11)
    np.testing.assert_allclose(probabilities @ scores, 0.0, atol=1e-10)


@each_eta
@each_discrete
def test_fisher_factor_squares_to_the_covariance_of_the_score(name, eta):
    _, probabilities, scores = _enumerate(name, jnp.asarray(eta))
    factor = np.asarray(DISCRETE[name].seen(jnp.asarray(eta), _labels(name)[0])[0])
    np.testing.assert_allclose(factor @ factor.T, _second_moment(scores, probabilities), atol=1e-10)


@each_eta
@each_discrete
def test_mean_and_covariance_are_the_exact_moments(name, eta):
    vectors, probabilities, _ = _enumerate(name, jnp.asarray(eta))
    mean = probabilities @ vectors
    covariance = _second_moment(vectors - mean, probabilities)
    np.testing.assert_allclose(DISCRETE[name].mean(jnp.asarray(eta)), mean, rtol=1e-10)
    actual = DISCRETE[name].covariance(jnp.asarray(eta))
    np.testing.assert_allclose(actual, covariance, rtol=1e-9, atol=1e-10)


@each_eta
@each_gaussian
def test_gaussian_has_the_moments_density_and_information_of_its_noise(name, eta):
    likelihood, covariance = GAUSSIANS[f"gaussian-{name}"], NOISES[name][1]
    eta, y = jnp.asarray(eta), jnp.array([-1.3, 0.2, 4.0])
    factor = np.asarray(likelihood.seen(eta, y)[0])
    np.testing.assert_allclose(factor @ factor.T, np.linalg.inv(covariance), rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(likelihood.covariance(eta), covariance, rtol=1e-15)
    np.testing.assert_array_equal(likelihood.mean(eta), eta)
    expected = oracles.gaussian_log_density(
        oracles.Dense(np.asarray(eta), covariance), np.asarray(y)
    )
    np.testing.assert_allclose(likelihood.log_density(eta, y), expected, rtol=1e-12)
    score = np.linalg.solve(covariance, np.asarray(y) - np.asarray(eta))
    np.testing.assert_allclose(likelihood.score(eta, y), score, rtol=1e-12)


@each_eta
@pytest.mark.parametrize("name", ["bernoulli", "poisson"])
def test_from_log_density_recreates_a_likelihood_we_wrote_by_hand(name, eta):
    made, written, eta = AGAIN[f"{name}-again"], DISCRETE[name], jnp.asarray(eta)
    zero = jnp.zeros(3)
    factor, expected = (np.asarray(each.seen(eta, zero)[0]) for each in (made, written))
    np.testing.assert_allclose(factor @ factor.T, expected @ expected.T, rtol=1e-9, atol=1e-14)
    for y in _labels(name):
        np.testing.assert_allclose(made.score(eta, y), written.score(eta, y), rtol=1e-9)
    with pytest.raises(NotImplementedError, match="sample"):
        made.sample(jax.random.key(0), eta)


def test_from_log_density_takes_a_given_fisher_information():
    information = jnp.asarray(MATRIX)
    made = from_log_density(
        DISCRETE["poisson"].log_density, mean=jnp.exp, fisher=lambda _: information
    )
    factor = np.asarray(made.seen(jnp.zeros(3), jnp.zeros(3))[0])
    np.testing.assert_allclose(factor @ factor.T, MATRIX, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize(
    ("name", "eta", "dtype"),
    [
        (name, eta, dtype)
        for name in ["gaussian-vector", "gaussian-matrix", *DISCRETE, *AGAIN]
        for eta in [*ETAS, *SATURATED]
        for dtype in (jnp.float32, jnp.float64)
        # A rate of e⁸⁹ is beyond float32.
        if not (name.startswith("poisson") and max(eta) > 80 and dtype == jnp.float32)
    ],
)
def test_factor_times_residual_is_the_score_however_saturated(name, eta, dtype):
    likelihood, eta = ALL[name], jnp.asarray(eta, dtype)
    for label in _labels(name):
        y = label if jnp.ndim(label) == 0 else label.astype(dtype)
        factor, v = likelihood.seen(eta, y)
        score = likelihood.score(eta, y)
        assert factor.dtype == v.dtype == score.dtype == dtype
        for value in (factor, v, score, likelihood.log_density(eta, y), likelihood.mean(eta)):
            assert np.all(np.isfinite(value))
        tolerance = 1e-5 if dtype == jnp.float32 else 1e-12
        scale = np.max(np.abs(score), initial=1.0)
        np.testing.assert_allclose(factor @ v, score, rtol=tolerance, atol=tolerance * scale)


@pytest.mark.parametrize("name", ["gaussian-vector", "gaussian-matrix", *DISCRETE])
def test_twenty_thousand_samples_have_the_mean_and_covariance(name):
    likelihood, eta, count = ALL[name], jnp.asarray(ETAS[1]), 20_000
    keys = jax.random.split(jax.random.key(1), count)
    draws = jax.vmap(lambda key: likelihood.sample(key, eta))(keys)
    vectors = np.eye(3)[draws] if name == "categorical" else np.asarray(draws)
    gap = vectors - np.asarray(likelihood.mean(eta))
    products = gap[:, :, None] * gap[:, None, :]
    for values, expected in ((gap, 0.0), (products, np.asarray(likelihood.covariance(eta)))):
        standard_error = values.std(axis=0) / np.sqrt(count)
        assert np.all(np.abs(values.mean(axis=0) - expected) < 5 * standard_error)


@pytest.mark.parametrize("name", ALL)
def test_a_label_with_nan_is_missing_and_one_without_is_not(name):
    whole = name.endswith("-again")  # seen as a whole or not at all
    assert ALL[name].missing(jnp.array([0.0, jnp.nan, 1.0])) == whole
    assert ALL[name].missing(jnp.full(3, jnp.nan))
    for y in _labels(name):
        assert not ALL[name].missing(y)
        assert ALL[name].support(y, 3)


@pytest.mark.parametrize("label", [-1, -1.0, np.nan])
def test_a_class_number_of_minus_one_or_nan_is_missing(label):
    assert categorical().missing(jnp.asarray(label))


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("categorical", 3),
        ("categorical", 3.0),
        ("categorical", 1.5),
        ("categorical", -2),
        ("categorical", np.inf),
        ("categorical", [0.5, 0.2, 0.2]),
        ("categorical", [-0.5, 1.0, 0.5]),
        ("bernoulli", [0.0, 0.5, 1.0]),
        ("poisson", [0.0, -1.0, 2.0]),
        ("poisson", [0.0, 1.5, 2.0]),
        ("poisson", [0.0, np.inf, 2.0]),
        ("gaussian-scalar", [0.0, np.inf, 2.0]),
        ("gaussian-matrix", [0.0, -np.inf, 2.0]),
        ("poisson-again", [0.0, np.inf, 2.0]),
    ],
)
def test_support_refuses_what_the_likelihood_cannot_produce(name, label):
    assert not ALL[name].support(jnp.asarray(label), 3)


@pytest.mark.parametrize("minimum_rate", [0.0, 0.05, 1.0])
@pytest.mark.parametrize("full", [False, True])
def test_adaptive_noise_is_the_running_average_of_the_residuals(full, minimum_rate):
    rng = np.random.default_rng(0)
    etas, ys = rng.normal(size=(2, 60, 3))
    likelihood = adaptive_gaussian(noise=0.7, minimum_rate=minimum_rate, full=full, floor=0.0)
    carry = likelihood.init(3, jnp.float64)
    expected = 0.7 * np.eye(3) if full else 0.7
    average = oracles.running_noise if full else oracles.running_noise_scalar
    for t, (eta, y) in enumerate(zip(etas, ys, strict=True), start=1):
        now = likelihood.at(carry, jnp.asarray(t)).covariance(jnp.zeros(3))
        covariance = expected if full else expected * np.eye(3)
        np.testing.assert_allclose(now, covariance, rtol=1e-12, atol=1e-14)
        carry = likelihood.adapt(carry, eta[None], y[None], jnp.array([True]))
        expected = average(expected, y - eta, max(minimum_rate, 1 / (t + 1)))
    np.testing.assert_allclose(carry.noise, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("full", [False, True])
def test_adaptive_noise_averages_over_the_observed_examples_of_a_batch(full):
    etas, ys = np.random.default_rng(1).normal(size=(2, 8, 3))
    observed = np.array([True, False, True, True, False, True, True, True])
    errors = (ys - etas)[observed]
    ys[1], ys[4] = np.nan, np.inf
    likelihood = adaptive_gaussian(noise=2.0, minimum_rate=0.0, full=full, floor=0.0)
    carry = likelihood.init(3, jnp.float64)
    total = 2.0 * np.eye(3) + errors.T @ errors if full else 2.0 + np.sum(errors**2) / 3
    carry = likelihood.adapt(carry, jnp.asarray(etas), jnp.asarray(ys), jnp.asarray(observed))
    np.testing.assert_allclose(carry.noise, total / (1 + 6), rtol=1e-12)
    carry = likelihood.adapt(carry, jnp.ones((1, 3)), jnp.zeros((1, 3)), jnp.array([True]))
    np.testing.assert_allclose(carry.noise, (total + 1) / (1 + 6 + 1), rtol=1e-12)


@pytest.mark.parametrize("label", [1.0, np.nan])
def test_adaptive_noise_is_unchanged_by_a_batch_with_nothing_observed(label):
    likelihood = adaptive_gaussian(noise=2.0, minimum_rate=0.5)
    carry = likelihood.init(3, jnp.float64)
    nothing = (jnp.zeros((2, 3)), jnp.full((2, 3), label), jnp.array([False, False]))
    assert likelihood.adapt(carry, *nothing) == carry


@pytest.mark.parametrize("full", [False, True])
def test_the_floor_keeps_the_noise_positive_through_5000_zero_residuals(full):
    likelihood = adaptive_gaussian(minimum_rate=0.1, floor=1e-8, full=full)
    zero, seen = jnp.zeros((1, 3), jnp.float32), jnp.array([True])
    start = likelihood.init(3, jnp.float32)
    carry = jax.lax.fori_loop(0, 5000, lambda _, c: likelihood.adapt(c, zero, zero, seen), start)
    covariance = likelihood.at(carry, jnp.asarray(0)).covariance(zero[0])
    np.testing.assert_allclose(covariance, 1e-8 * np.eye(3), rtol=1e-3)
    assert carry.noise.dtype == jnp.float32


def test_a_noise_schedule_is_followed_step_by_step():
    likelihood = gaussian(lambda step: 1.0 / (step + 1.0))
    assert isinstance(likelihood, EvolvingLikelihood)
    carry = likelihood.init(2, jnp.float64)
    for step in range(4):
        covariance = likelihood.at(carry, jnp.asarray(step)).covariance(jnp.zeros(2))
        np.testing.assert_allclose(covariance, np.eye(2) / (step + 1), rtol=1e-15)
        carry = likelihood.adapt(carry, jnp.zeros((1, 2)), jnp.ones((1, 2)), jnp.array([True]))


def test_evolving_leaves_likelihoods_as_they_are_and_refuses_the_rest():
    fixed, changing = categorical(), adaptive_gaussian()
    assert evolving(fixed).at((), jnp.asarray(7)) is fixed
    assert evolving(changing) is changing
    with pytest.raises(TypeError, match="likelihood"):
        evolving("gaussian")


@pytest.mark.parametrize("make", [gaussian, lambda noise: adaptive_gaussian(noise=noise)])
@pytest.mark.parametrize(
    "noise",
    [-1.0, 0.0, np.nan, np.inf, [1.0, -1.0], [[1.0, 0.5], [0.2, 1.0]], [[1.0, 2.0], [2.0, 1.0]],
     np.ones((2, 3)), np.ones((2, 2, 2))],
    ids=str,
)  # fmt: skip
def test_noise_that_is_no_covariance_is_refused(make, noise):
    with pytest.raises(ValueError, match="noise"):
        make(noise)


@pytest.mark.parametrize(
    "bad", [{"minimum_rate": 2.0}, {"minimum_rate": -0.1}, {"floor": -1.0}, {"noise": [1.0, 2.0]}]
)
def test_adaptive_gaussian_names_the_argument_it_refuses(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        adaptive_gaussian(**bad)


@pytest.mark.parametrize("make", [adaptive_gaussian, adaptive_student_t])
def test_a_slowed_likelihood_goes_part_of_the_way(make):
    eta, y, trust = jnp.zeros((1, 2)), jnp.array([[3.0, -1.0]]), jnp.ones(1)
    whole, part, none = (slowed(make(), pace) for pace in (1.0, 0.25, 0.0))
    start = whole.init(2, jnp.float64)
    (old, new, found, same) = (
        jax.tree.leaves(carry)
        for carry in (start, *(each.adapt(start, eta, y, trust) for each in (whole, part, none)))
    )
    np.testing.assert_allclose(found, np.add(old, np.multiply(0.25, np.subtract(new, old))))
    np.testing.assert_array_equal(same, old)
    assert not np.allclose(new, old)


def test_what_is_not_learnt_by_halves_is_the_same_at_every_pace():
    fixed, classes = categorical(), slowed(adaptive_categorical(), 0.1)
    assert slowed(fixed, 0.1).at((), jnp.asarray(0)) is fixed
    start = classes.init(2, jnp.float64)
    found = classes.adapt(start, jnp.zeros((1, 2)), jnp.array([1]), jnp.ones(1))
    assert found.seen.tolist() == [False, True]
    with pytest.raises(ValueError, match="pace must be a number from 0 to 1"):
        slowed(fixed, 1.5)


def test_a_negative_power_is_refused_in_a_sentence():
    with pytest.raises(ValueError, match="power must be a number that is not negative"):
        tempered(bernoulli(), -1.0)
