"""Student's t against SciPy and numerical integration: likelihood, learnt scale, forecasts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, special, stats

import bayestream as bs
from bayestream.checks import check_scale
from bayestream.forecasts import MixtureForecast, StudentTForecast, t_distribution
from bayestream.likelihoods import adaptive_gaussian, adaptive_student_t, student_t
from bayestream.likelihoods.student_t import student_t_of

ETA = jnp.array([0.4, -1.2, 0.9])
Y = jnp.array([-1.3, -1.1, 40.0])
SCALE = np.array([0.3, 1.0, 2.0])
DOFS = [1.0, 1.7, 4.0, 30.0, 1000.0]
LEVELS = np.array([0.0005, 0.01, 0.1, 0.3, 0.499, 0.5, 0.6, 0.95, 0.9995])
cdf, quantile, crps = t_distribution.cdf, t_distribution.quantile, t_distribution.crps
each_dof = pytest.mark.parametrize("dof", DOFS)


@jax.jit
def observed(dof, scale, eta, y):
    """What conditioning asks of the likelihood, and the gradient of its log density."""
    likelihood = student_t_of(scale, dof)
    gradient = jax.grad(likelihood.log_density)(eta, y)
    B, v = likelihood.seen(eta, y)
    return gradient, B, likelihood.log_density(eta, y), likelihood.score(eta, y), v


@each_dof
def test_log_density_is_that_of_scipy_and_score_its_gradient(dof):
    gradient, factor, log_density, score, v = observed(dof, SCALE, ETA, Y)
    # SciPy's own normaliser is exact to 1e-12 only where ν is large.
    expected = stats.t.logpdf(Y, dof, ETA, SCALE).sum()
    np.testing.assert_allclose(log_density, expected, rtol=1e-11)
    np.testing.assert_allclose(score, gradient, rtol=1e-12)
    error = np.asarray(Y - ETA)
    np.testing.assert_allclose(score, (dof + 1) * error / (dof * SCALE**2 + error**2), rtol=1e-12)
    np.testing.assert_allclose(factor @ v, score, rtol=1e-13)


@each_dof
def test_fisher_information_is_the_mean_square_of_the_score(dof):
    # With the score of the test above; over quantiles the integral is of a bounded function.
    nodes, weights = np.polynomial.legendre.leggauss(400)
    error = SCALE * special.stdtrit(dof, 0.5 + 0.5 * nodes)[:, None]
    scores = (dof + 1) * error / (dof * SCALE**2 + error**2)
    factor = np.asarray(observed(dof, SCALE, ETA, Y)[1])
    expected = np.diag(0.5 * weights @ scores**2)
    np.testing.assert_allclose(factor @ factor.T, expected, rtol=1e-4)


def test_the_variance_is_infinite_up_to_two_degrees_of_freedom():
    @jax.jit
    def variances(scale, dof):
        forecast = StudentTForecast(jnp.zeros(2), scale * jnp.ones(2), dof)
        given = student_t_of(scale, dof).covariance(jnp.zeros(2))
        return given, forecast.covariance, jnp.diag(forecast.deviation**2)

    for dof, expected in ((1.0, np.inf), (2.0, np.inf), (3.0, 12.0)):
        for found in variances(2.0, dof):
            np.testing.assert_allclose(found, [[expected, 0], [0, expected]], rtol=1e-12)


@pytest.mark.slow
def test_draws_of_likelihood_and_forecast_follow_the_distribution_function():
    likelihood, count = student_t(SCALE, dof=2.5), 4_000
    forecast = StudentTForecast(ETA, jnp.asarray(SCALE), jnp.array(2.5))

    @jax.jit
    def draw(key):
        keys = jax.random.split(key, count)
        given = jax.vmap(lambda key: likelihood.sample(key, ETA))(keys)
        return given, forecast.sample(key, count)

    for draws in draw(jax.random.key(0)):
        assert draws.shape == (count, 3)
        for j in range(3):
            exact = stats.t(2.5, ETA[j], SCALE[j]).cdf
            assert stats.kstest(np.asarray(draws[:, j]), exact).pvalue > 1e-4


@pytest.mark.parametrize("dof", [0.5, 4.0])
def test_errors_beyond_all_reason_are_finite_in_float32(dof):
    y, eta, scale = np.float32([1e19, -1e29, 3.4e38]), np.zeros(3, np.float32), np.full(3, 0.1)
    _, _, log_density, score, v = observed(dof, scale, eta, y)
    assert log_density.dtype == score.dtype == v.dtype == jnp.float32
    np.testing.assert_allclose(score, 0.0, atol=1e-18)
    np.testing.assert_allclose(v, 0.0, atol=1e-18)
    # The last over its scale is beyond float32, and counts as the largest number there is.
    expected = stats.t.logpdf(np.float64(y), dof, scale=0.1).sum()
    np.testing.assert_allclose(log_density, expected, rtol=0.02)
    adaptive = adaptive_student_t(scale=0.1, dof=dof)
    start = adaptive.init(3, jnp.float32)
    carry = jax.jit(adaptive.adapt)(start, eta[None], y[None], np.ones(1, np.float32))
    np.testing.assert_allclose(carry.square, 0.01 * (1 + dof + 1) / 2, rtol=1e-5)
    assert carry.square.dtype == jnp.float32


def test_many_degrees_of_freedom_are_gaussian():
    error = np.array([0.5, -2.0, 3.0])
    _, _, log_density, score, v = observed(1e10, SCALE, ETA, ETA + error)
    expected = stats.norm.logpdf(error, scale=SCALE).sum()
    np.testing.assert_allclose(log_density, expected, rtol=1e-8)
    np.testing.assert_allclose(score, error / SCALE**2, rtol=1e-8)
    np.testing.assert_allclose(v, error / SCALE, rtol=1e-8)
    single = observed(1e10, SCALE, np.zeros(3, np.float32), np.float32(error))[2]
    np.testing.assert_allclose(single, expected, rtol=1e-6)
    np.testing.assert_allclose(cdf(LEVELS, jnp.array(1e10)), stats.norm.cdf(LEVELS), rtol=1e-8)
    found = quantile(LEVELS, jnp.array(1e10))
    np.testing.assert_allclose(found, stats.norm.ppf(LEVELS), rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize(("dtype", "tolerance"), [(jnp.float32, 2e-6), (jnp.float64, 1e-12)])
@each_dof
def test_quantiles_are_exact_far_into_the_tails(dof, dtype, tolerance):
    nu = jnp.asarray(dof, dtype)
    found = quantile(LEVELS, nu)  # as plain numbers, the levels are not rounded to float32
    assert found.dtype == dtype
    back = stats.t.cdf(np.asarray(found, np.float64), float(nu))
    slope = stats.t.pdf(np.asarray(found, np.float64), float(nu))
    error = (back - LEVELS) / slope  # to first order; SciPy's quantiles are no better than this
    assert np.all(np.abs(error) <= tolerance * np.abs(found) + 1e-13)
    np.testing.assert_allclose(cdf(found, nu), back, rtol=3 * tolerance)


def test_quantiles_of_impossible_levels_are_infinite_or_not_a_number():
    found = quantile(np.array([0.0, 1.0, -0.1, 1.1, *LEVELS[4:]]), jnp.array(3.0))
    np.testing.assert_array_equal(found[:4], [-np.inf, np.inf, np.nan, np.nan])


@pytest.mark.parametrize("dof", [1.1, 2.0, 4.0, 50.0])
def test_crps_is_the_integral(dof):
    zs = np.array([-3.0, 0.0, 0.4, 12.0])
    beyond = [integrate.quad(lambda t: special.stdtr(dof, -t) ** 2, z, np.inf)[0] for z in zs]
    before = [integrate.quad(lambda t: special.stdtr(dof, -t) ** 2, -z, np.inf)[0] for z in zs]
    expected, nu = np.add(before, beyond), jnp.array(dof)
    np.testing.assert_allclose(crps(zs, nu), expected, rtol=1e-6)
    single = nu.astype(jnp.float32)
    np.testing.assert_allclose(crps(np.float32(zs), single), expected, rtol=2e-5)
    far = np.full(4, 1e30, np.float32)  # where it is the distance
    np.testing.assert_allclose(crps(far, single), far, rtol=1e-5)


def test_crps_of_heavier_tails_than_it_has_a_formula_for_is_refused():
    forecast = StudentTForecast(jnp.zeros((2, 1)), jnp.ones((2, 1)), jnp.array(1.0))
    with pytest.raises(ValueError, match=r"^dof must be above 1"):
        bs.scores.crps(forecast, np.zeros(2))
    assert np.isnan(crps(np.zeros(4), jnp.array(1.0))).all()  # traced, it cannot be


def test_scores_are_those_of_scipy_for_the_forecast_and_for_the_plugin():
    likelihood, means = student_t(SCALE, dof=4.0), np.stack([ETA, ETA + 1, ETA - 2])
    ys = means + SCALE * np.array([[0.0, 2.1, -2.2], [2.2, 1.0, 2.0], [0, 0, 9]])

    standard = crps(jnp.asarray((ys - means) / SCALE), jnp.array(4.0))
    density = stats.t.logpdf(ys, 4.0, means, SCALE).sum(axis=1)
    ends = [stats.t.ppf(level, 4.0, means, SCALE) for level in (0.05, 0.95)]
    alone = StudentTForecast(jnp.asarray(means), jnp.asarray(np.tile(SCALE, (3, 1))), 4.0)
    plugin = MixtureForecast(alone.mean[:, None], likelihood)

    @jax.jit
    def scored(ys):
        scores = (bs.scores.nlpd, bs.scores.crps)
        return [([f(each, ys) for f in scores], each.covariance) for each in (alone, plugin)]

    for (nlpd, average), covariance in scored(ys):
        np.testing.assert_allclose(nlpd, -density.mean(), rtol=1e-12)
        np.testing.assert_allclose(average, np.mean(SCALE * standard), rtol=1e-12)
        np.testing.assert_allclose(covariance[1], 2 * np.diag(SCALE**2), rtol=1e-12)
    for each in (alone, plugin):
        np.testing.assert_allclose(each.interval(0.9), ends, rtol=1e-10)
        # 90% of t_4 lies within 2.13.
        np.testing.assert_allclose(bs.scores.coverage(each, ys), 6 / 9)


def test_a_forecast_of_numbers_has_no_score_of_classes():
    with pytest.raises(ValueError, match="of classes"):
        bs.scores.brier(StudentTForecast(ETA, ETA, jnp.array(4.0)), Y)


@pytest.mark.slow
def test_a_mixture_of_several_has_quantiles_but_no_crps():
    draws = jnp.array([[[-2.0], [0.0], [5.0]]])
    forecast = MixtureForecast(draws, student_t(0.5, dof=2.0))
    q = np.asarray(forecast.quantile(0.07))
    exact = stats.t.cdf(q, 2.0, np.array([-2.0, 0.0, 5.0]), 0.5).mean()
    np.testing.assert_allclose(exact, 0.07, rtol=1e-10)
    with pytest.raises(ValueError, match="CRPS need a gaussian"):
        bs.scores.crps(forecast, np.zeros((1, 1)))


def adapted(likelihood, errors, chunk=20):
    """What is carried after these errors (n, C), `chunk` at a time."""
    batches = jnp.asarray(errors).reshape(-1, chunk, errors.shape[-1])
    zero, trust = jnp.zeros(batches.shape[1:]), jnp.ones(chunk)
    step = lambda carry, e: (likelihood.adapt(carry, zero, e, trust), None)  # noqa: E731
    return jax.lax.scan(step, likelihood.init(errors.shape[-1], jnp.float64), batches)[0]


@pytest.mark.parametrize("start", [0.02, 30.0])
def test_the_learnt_scale_is_that_of_twenty_thousand_draws(start):
    errors = 0.4 * np.random.default_rng(0).standard_t(3.0, (20_000, 1))
    likelihood = adaptive_student_t(scale=start, dof=3.0, minimum_rate=0.001)
    carry = adapted(likelihood, errors)
    np.testing.assert_allclose(np.sqrt(carry.square), 0.4, rtol=0.05)
    assert float(carry.seen) == 20_000
    now = likelihood.at(carry, jnp.asarray(0)).scale_and_dof(jnp.zeros(2))
    np.testing.assert_allclose(now[0], np.sqrt(carry.square) * np.ones(2))
    assert float(now[1]) == 3.0


def test_one_error_in_a_hundred_a_thousand_times_too_large_does_not_ruin_the_scale():
    rng = np.random.default_rng(1)
    errors = 0.4 * rng.standard_t(4.0, (20_000, 1))
    errors[rng.random(20_000) < 0.01] *= 1000
    learnt = np.sqrt(adapted(adaptive_student_t(dof=4.0, minimum_rate=0.001), errors).square)
    # To first order in the fraction p of gross errors, s² is raised by p(ν+3) of itself.
    np.testing.assert_allclose(learnt, 0.4 * np.sqrt(1.07), rtol=0.05)


def test_doubt_about_the_weights_is_not_taken_for_noise():
    """Errors due to noise and to doubt, of which the share is known; of t noise, nearly so."""
    rng = np.random.default_rng(2)
    noise, doubt = 0.4 * rng.standard_t(8.0, 40_000), 0.6 * rng.normal(size=40_000)
    likelihood = adaptive_student_t(dof=8.0, minimum_rate=0.002)

    def step(carry, error):
        effective = carry.square * 11 / 9  # the variance that the filter's linear update assumes
        kept = effective / (0.6**2 + effective)
        return likelihood.adapt(
            carry, jnp.zeros((1, 1)), error[None, None], jnp.ones(1), kept[None]
        ), None

    start = likelihood.init(1, jnp.float64)
    carry, _ = jax.jit(lambda e: jax.lax.scan(step, start, e))(jnp.asarray(noise + doubt))
    np.testing.assert_allclose(np.sqrt(carry.square), 0.4, rtol=0.2)
    naive = adapted(likelihood, (noise + doubt)[:, None])
    assert float(np.sqrt(naive.square)) > 0.6


@pytest.mark.parametrize("size", [0.0, 1.0, 1e30])
def test_the_second_moment_after_the_update_is_what_is_averaged(size):
    likelihood = adaptive_student_t(scale=2.0, dof=3.0, minimum_rate=0.0, floor=0.0)
    carry = likelihood.init(1, jnp.float64)
    error, kept = jnp.full((1, 1), size), jnp.full(1, 0.25)
    found = likelihood.adapt(carry, jnp.zeros((1, 1)), error, jnp.ones(1), kept)
    moment = 0.25**2 * size**2 + 0.75 * 4
    np.testing.assert_allclose(found.square, (4 + 4 * moment / (3 + moment / 4)) / 2, rtol=1e-12)


def test_trust_weighs_errors_and_without_trust_nothing_is_learnt():
    likelihood = adaptive_student_t(scale=1.0, dof=3.0, minimum_rate=0.0, floor=0.0)
    carry = likelihood.init(2, jnp.float64)
    eta, y = jnp.zeros((3, 2)), jnp.array([[3.0, 1.0], [2.0, 6.0], [np.nan, np.inf]])
    adapt = jax.jit(likelihood.adapt)
    found = adapt(carry, eta, y, jnp.array([1.0, 0.5, 0.0]))
    weighted = sum(4 * e**2 / (3 + e**2) for e in (3.0, 1.0, 1.0, 3.0)) / 4
    np.testing.assert_allclose(found.square, (1 + 2 * weighted) / 3, rtol=1e-12)
    assert float(found.seen) == 2
    assert adapt(carry, eta, y, jnp.zeros(3)) == carry
    boolean = adapt(carry, eta, y, jnp.array([True, False, False]))
    np.testing.assert_allclose(boolean.square, (1 + (3 + 1) / 2) / 2, rtol=1e-12)


def test_linearized_is_within_the_stated_loss_of_the_exact_convolution():
    learner = bs.fcekf(bs.models.mlp([1, 1]), student_t(1.0, dof=4.0), prior_precision=4.0)
    state, hs = learner.init(jax.random.key(0)), np.array([0.5, 1.0, 5.0])
    xs = np.sqrt(4 * hs**2 - 1)[:, None]  # an output's variance is (x² + 1)/4
    forecast = bs.predictive.linearized(learner, state, xs)
    assert float(forecast.dof) == 4.0
    cold = bs.predictive.linearized(learner, state, xs, temperature=0.0)
    np.testing.assert_allclose(cold.scale, 1.0)
    # ∫ p log(p/q), p the sum of t noise and Gaussian doubt, on a grid that reaches far out.
    w, u = np.linspace(-8, 8, 801), np.linspace(-8, 8, 401)
    y, width = np.sinh(w), np.cosh(w) * (w[1] - w[0])
    normal = stats.norm.pdf(u) / stats.norm.pdf(u).sum()
    for h, scale, stated in zip(hs, forecast.scale[:, 0], (0.0011, 0.0065, 0.03), strict=True):
        p = stats.t.pdf(y[:, None] - h * u, 4.0) @ normal
        loss, of_same_variance = (
            np.sum(p * width * (np.log(p) - stats.t.logpdf(y, 4.0, scale=s)))
            for s in (float(scale), np.sqrt(1 + h**2 / 2))
        )
        assert loss < min(stated, of_same_variance)


@pytest.mark.slow
def test_outliers_spoil_a_regression_less_than_with_gaussian_noise():
    rng = np.random.default_rng(2)
    xs = rng.uniform(-2, 2, (600, 1))
    ys = np.sin(2 * xs) + 0.1 * rng.normal(size=xs.shape)
    gross = rng.random(600) < 0.05
    ys[gross] += 20 * rng.normal(size=(gross.sum(), 1))
    grid, model = jnp.linspace(-2, 2, 50)[:, None], bs.models.mlp([1, 12, 1])
    apply = jax.jit(jax.vmap(model.apply, (None, 0)))
    errors: list[float] = []
    for likelihood in (adaptive_student_t(), adaptive_gaussian()):
        learner = bs.lofi(model, likelihood, rank=8, prior_precision=1.0)
        state, _ = bs.run(learner, learner.init(jax.random.key(0)), (xs, ys))
        gap = np.asarray(apply(learner.mean(state), grid)) - np.sin(2 * grid)
        errors.append(np.sqrt(np.mean(gap**2)))
    assert errors[0] < 0.1 < 0.3 < errors[1]


def test_a_learner_that_adapts_its_scale_is_scored_as_it_learns():
    rng = np.random.default_rng(3)
    xs = rng.normal(size=(300, 1))
    stream = bs.Stream(bs.Example(xs, 2 * xs + 0.2 * rng.standard_t(4.0, xs.shape)))
    learner = bs.lofi(bs.models.mlp([1, 1]), adaptive_student_t(), rank=2)
    results = bs.evaluate.prequential({"lofi": learner}, stream, metrics=["nlpd", "crps"])
    last = results.where(summary="window 200", step=300)
    scores = dict(zip(last["metric"], last["value"], strict=True))
    # With everything known: an entropy of 0.15, and a CRPS of 0.2 × 0.7.
    assert scores["nlpd"] < 0.3
    assert scores["crps"] < 0.17


@pytest.mark.parametrize("make", [student_t, lambda s: adaptive_student_t(scale=s)])
@pytest.mark.parametrize("scale", [0.0, -1.0, np.nan, np.inf, [[1.0]]], ids=str)
def test_a_scale_that_is_not_positive_is_refused(make, scale):
    with pytest.raises(ValueError, match=r"^scale must be a positive number[^\n]*\.$"):
        make(scale)


def test_the_argument_that_is_refused_is_named():
    for bad in ({"dof": 0.0}, {"dof": [3.0]}, {"floor": -1.0}, {"minimum_rate": 2.0}):
        with pytest.raises(ValueError, match=f"^{next(iter(bad))} must be "):
            adaptive_student_t(**bad)
    with pytest.raises(TypeError, match=r"^dof must be a positive number, got"):
        student_t(1.0, dof=lambda step: 3.0)
    with pytest.raises(ValueError, match=r"^scale must be a positive number, got"):
        check_scale("scale", [1.0, 2.0], vector=False)
