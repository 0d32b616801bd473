"""Scores, and the quantiles and draws of forecasts, by hand and by numerical integration."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayestream as bs
from bayestream.forecasts import GaussianForecast, MixtureForecast

NOISE = np.array([[0.3, 0.1], [0.1, 0.2]])
normal_cdf = np.vectorize(lambda t: 0.5 * math.erfc(-t / math.sqrt(2.0)))


def classes(probabilities):
    """The forecast of these probabilities; a logit of −800 is a probability of exactly 0."""
    p = np.asarray(probabilities, np.float64)
    logits = np.where(p > 0, np.log(np.where(p > 0, p, 1.0)), -800.0)
    return MixtureForecast(jnp.asarray(logits[..., None, :]), bs.likelihoods.categorical())


def gaussian(means, noise):
    draws = jnp.asarray(np.asarray(means, np.float64)[..., None, :])
    return MixtureForecast(draws, bs.likelihoods.gaussian(noise))


def spread(means, noise):
    """Gaussian forecasts of different variances, and those variances: (‖x‖² + 1)/4 + noise."""
    variance = (np.sum(means**2, axis=-1, keepdims=True) + 1) / 4 + np.diag(noise)
    correlated = variance[..., None] * np.eye(2) + noise * (1 - np.eye(2))
    return GaussianForecast(jnp.asarray(means), jnp.asarray(correlated)), variance


def mixture(means, shifts, noise):
    """Equal mixtures of Gaussians about mean + shift, with shifts (S, C)."""
    draws = jnp.asarray(means[:, None] + shifts)
    return MixtureForecast(draws, bs.likelihoods.gaussian(noise))


def compiled(name, actual, y, **options):
    """A score, compiled as one program."""
    score, fields = getattr(bs.scores, name), actual._asdict()
    given = {field: value for field, value in fields.items() if isinstance(value, jax.Array)}
    return jax.jit(lambda given, y: score(actual._replace(**given), y, **options))(given, y)


def spread_case():
    """Gaussian forecasts; their means, covariances and distribution functions."""
    means = np.random.default_rng(4).normal(size=(3, 2))
    actual, variance = spread(means, NOISE)
    covariance = variance[..., None] * np.eye(2) + NOISE * (1 - np.eye(2))
    return actual, means, covariance, lambda y: normal_cdf((y - means) / np.sqrt(variance))


def mixture_case():
    """The same of mixtures, wide enough to have several humps."""
    rng, deviation = np.random.default_rng(5), np.sqrt(np.diag(NOISE))
    means, shifts = rng.normal(size=(3, 2)), 2.0 * rng.normal(size=(4, 2))
    centres = means + shifts[:, None]
    covariance = np.broadcast_to(NOISE + np.cov(shifts.T, bias=True), (3, 2, 2))
    forecast, mean = mixture(means, shifts, NOISE), centres.mean(axis=0)
    return forecast, mean, covariance, lambda y: normal_cdf((y - centres) / deviation).mean(axis=0)


each_kind = pytest.mark.parametrize("case", [spread_case, mixture_case])


@pytest.mark.slow
@each_kind
def test_quantiles_invert_the_distribution_function_and_bound_the_central_interval(case):
    actual, _, _, cdf = case()
    for q in (0.001, 0.05, 0.5, 0.9, 0.999):
        np.testing.assert_allclose(cdf(np.asarray(actual.quantile(q))), q, atol=1e-9)
    low, high = actual.interval(0.8)
    np.testing.assert_allclose(cdf(np.asarray(low)), 0.1, atol=1e-9)
    np.testing.assert_allclose(cdf(np.asarray(high)), 0.9, atol=1e-9)


@pytest.mark.slow
@each_kind
def test_draws_have_the_mean_the_covariance_and_the_coverage_of_the_forecast(case):
    (actual, mean, covariance, _), count = case(), 20_000
    draws = np.asarray(actual.sample(jax.random.key(4), count))
    assert draws.shape == (count, 3, 2)
    low, high = (np.asarray(end) for end in actual.interval(0.9))
    products = (draws - mean)[..., :, None] * (draws - mean)[..., None, :]
    inside = (draws >= low) & (draws <= high)
    for terms, expected in ((draws, mean), (products, covariance), (inside, 0.9)):
        error = terms.std(axis=0) / math.sqrt(count)
        assert np.all(np.abs(terms.mean(axis=0) - expected) < 5 * error)


def test_nll_of_gaussians_is_the_mean_of_their_dense_log_densities():
    actual = gaussian([[0.0], [1.0]], 4.0)
    expected = 0.5 * math.log(2 * math.pi * 4.0) + (1 / 8 + 9 / 8) / 2
    np.testing.assert_allclose(compiled("nll", actual, np.array([[1.0], [-2.0]])), expected)
    means, ys = np.zeros((1, 2)), np.array([[0.1, 0.2]])
    # det R = 0.05 and R⁻¹ = [[4, −2], [−2, 6]], so yᵀR⁻¹y = 0.04 − 0.08 + 0.24.
    expected = math.log(2 * math.pi) + 0.5 * math.log(0.05) + 0.5 * 0.2
    np.testing.assert_allclose(compiled("nll", gaussian(means, NOISE), ys), expected)


def test_nll_of_classes_is_minus_the_mean_log_probability_of_the_labels():
    actual = classes([[0.5, 0.25, 0.25], [0.5, 0.25, 0.25]])
    np.testing.assert_allclose(compiled("nll", actual, np.array([0, 2])), 1.5 * math.log(2))


def test_nll_of_a_mixture_averages_densities_and_not_their_logarithms():
    actual = mixture(np.zeros((1, 1)), np.array([[-1.0], [3.0]]), 1.0)
    densities = np.exp([-0.5, -4.5]) / math.sqrt(2 * math.pi)
    expected = -math.log(densities.mean())
    np.testing.assert_allclose(compiled("nll", actual, np.zeros((1, 1))), expected)


def test_nlpd_is_another_name_for_nll():
    assert bs.scores.nlpd is bs.scores.nll


def test_rmse_is_the_root_of_the_mean_squared_error_of_the_mean():
    ys = np.array([[3.0], [1.0], [-4.0]])
    actual = compiled("rmse", gaussian([[0.0], [1.0], [0.0]], 2.0), ys)
    np.testing.assert_allclose(actual, math.sqrt(25 / 3))
    shifted = mixture(np.zeros((3, 1)), np.array([[-1.0], [2.0]]), 2.0)
    expected = math.sqrt((2.5**2 + 0.5**2 + 4.5**2) / 3)
    np.testing.assert_allclose(compiled("rmse", shifted, ys), expected)


def test_misclassification_is_the_share_of_labels_that_are_not_the_likeliest():
    actual = classes([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7], [0.3, 0.4, 0.3], [0.6, 0.2, 0.2]])
    assert float(compiled("misclassification", actual, np.array([0, 1, 1, 2]))) == 0.5


def test_brier_sums_over_classes_and_averages_over_examples():
    actual = classes([[0.5, 0.25, 0.25], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    expected = ((0.25 + 2 * 0.0625) + 0.0 + 2.0) / 3
    np.testing.assert_allclose(compiled("brier", actual, np.array([0, 1, 2])), expected)


def binary(tops):
    tops = np.asarray(tops)
    return classes(np.stack([tops, 1 - tops], axis=1))


def test_perfect_forecasts_have_no_calibration_error_and_confident_mistakes_have_all():
    actual = classes(np.eye(3))
    score = partial(compiled, "expected_calibration_error")
    assert float(score(actual, np.array([0, 1, 2]))) == 0.0
    assert float(score(actual, np.array([1, 2, 0]))) == 1.0


def test_calibrated_forecasts_have_no_calibration_error():
    actual = binary([0.75] * 4 + [0.6] * 5)
    labels = np.array([0, 0, 0, 1, 0, 0, 0, 1, 1])
    error = compiled("expected_calibration_error", actual, labels)
    np.testing.assert_allclose(error, 0.0, atol=1e-12)


def test_calibration_error_weights_each_bins_gap_by_its_share():
    actual, labels = binary([0.83] * 4 + [0.62] * 4), np.array([0, 0, 0, 0, 0, 0, 1, 1])
    score = partial(compiled, "expected_calibration_error")
    np.testing.assert_allclose(score(actual, labels), (0.17 + 0.12) / 2)
    # In a bin of both, overconfidence and underconfidence cancel.
    np.testing.assert_allclose(score(actual, labels, bins=2), 0.75 - 0.725)
    np.testing.assert_allclose(score(actual, labels, bins=1), 0.75 - 0.725)


@pytest.mark.parametrize("bins", [5, 15])
def test_calibration_error_of_random_forecasts_is_the_loop_over_bins(bins):
    rng = np.random.default_rng(0)
    p, labels = rng.dirichlet(np.ones(4), size=300), rng.integers(4, size=300)
    top, right = p.max(axis=1), p.argmax(axis=1) == labels
    expected = 0.0
    for low in np.arange(bins) / bins:
        inside = (top > low) & (top <= low + 1 / bins)
        if inside.any():
            expected += inside.mean() * abs(right[inside].mean() - top[inside].mean())
    actual = compiled("expected_calibration_error", classes(p), labels, bins=bins)
    np.testing.assert_allclose(actual, expected, rtol=1e-9)


def test_coverage_is_the_share_of_targets_inside_the_central_interval():
    actual = gaussian(np.zeros((5, 1)), 1.0)
    ys = np.array([[1.6], [-1.6], [1.7], [-1.7], [0.0]])
    np.testing.assert_allclose(compiled("coverage", actual, ys), 3 / 5)
    np.testing.assert_allclose(compiled("coverage", actual, ys, level=0.5), 1 / 5)
    np.testing.assert_allclose(compiled("coverage", actual, ys, level=0.95), 1.0)


def test_coverage_takes_each_output_by_its_own_variance():
    actual = gaussian(np.zeros((2, 2)), np.array([[4.0, 0.9], [0.9, 0.25]]))
    ys = np.array([[3.2, 0.9], [-3.2, 0.8]])  # 1.645 deviations are 3.29 and 0.82
    np.testing.assert_allclose(compiled("coverage", actual, ys), 3 / 4)


@pytest.mark.slow
def test_coverage_of_a_mixture_is_that_of_its_own_draws():
    rng, count = np.random.default_rng(1), 20_000
    shifts = np.array([[-3.0], [0.0], [4.0]])
    ys = shifts[rng.integers(3, size=count)] + rng.normal(size=(count, 1))
    for level in (0.5, 0.9):
        actual = compiled("coverage", mixture(np.zeros((count, 1)), shifts, 1.0), ys, level=level)
        assert abs(float(actual) - level) < 5 * math.sqrt(level * (1 - level) / count)


def integrated_crps(cdf, y: float, width: float) -> float:
    """∫ (F(t) − 1{t ≥ y})² dt, by Gauss's rule on each side of the jump."""
    nodes, weights = np.polynomial.legendre.leggauss(200)
    half = width / 2
    below, above = cdf(y - half + half * nodes), cdf(y + half + half * nodes)
    return half * float(weights @ below**2 + weights @ (1 - above) ** 2)


def test_crps_of_a_standard_normal_at_its_mean_is_known():
    actual = compiled("crps", gaussian([[0.0]], 1.0), np.array([[0.0]]))
    np.testing.assert_allclose(actual, (math.sqrt(2) - 1) / math.sqrt(math.pi))


def test_crps_of_gaussians_is_the_integral():
    rng = np.random.default_rng(2)
    means, ys = rng.normal(size=(3, 2)), rng.normal(size=(3, 2))
    actual, variance = spread(means, NOISE)
    deviation = np.sqrt(variance)
    expected = [
        integrated_crps(lambda t, i=i: normal_cdf((t - means[i]) / deviation[i]), ys[i], 30.0)
        for i in np.ndindex(3, 2)
    ]
    np.testing.assert_allclose(compiled("crps", actual, ys), np.mean(expected), rtol=1e-9)


def test_crps_of_mixtures_is_the_integral():
    rng = np.random.default_rng(3)
    means, ys, shifts = rng.normal(size=(3, 2)), rng.normal(size=(3, 2)), rng.normal(size=(5, 2))
    deviation = np.sqrt(np.diag(NOISE))

    def cdf(t, i):
        centres = means[i] + shifts[:, i[1], None]
        return normal_cdf((t - centres) / deviation[i[1]]).mean(axis=0)

    expected = [integrated_crps(lambda t, i=i: cdf(t, i), ys[i], 20.0) for i in np.ndindex(3, 2)]
    actual = compiled("crps", mixture(means, shifts, NOISE), ys)
    np.testing.assert_allclose(actual, np.mean(expected), rtol=1e-9)


@pytest.mark.slow
def test_crps_of_a_mixture_of_one_kind_is_that_of_the_gaussian():
    means, ys = np.array([[0.3], [-1.0]]), np.array([[1.0], [2.0]])
    one = compiled("crps", gaussian(means + 0.5, 0.7), ys)
    many = compiled("crps", mixture(means, np.full((4, 1), 0.5), 0.7), ys)
    np.testing.assert_allclose(many, one, rtol=1e-12)


def test_crps_of_a_sharp_forecast_is_its_absolute_error_less_its_own_spread():
    deviation, ys = 1e-6, np.array([[1.0], [-3.0]])
    actual = compiled("crps", gaussian(np.zeros((2, 1)), deviation**2), ys)
    np.testing.assert_allclose(actual, 2.0 - deviation / math.sqrt(math.pi), rtol=1e-13)


REGRESSION = {"nll", "nlpd", "rmse", "coverage", "crps"}
CLASSES = {"nll", "nlpd", "misclassification", "brier", "expected_calibration_error"}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(REGRESSION))
def test_numbers_are_targets_of_a_single_output_and_never_spread_over_the_batch(name):
    actual, ys = gaussian([[0.0], [1.0], [5.0]], 2.0), np.array([3.0, 1.2, -4.0])
    score = getattr(bs.scores, name)
    np.testing.assert_allclose(score(actual, ys), score(actual, ys[:, None]), rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(REGRESSION))
def test_the_score_of_one_forecast_is_that_of_a_batch_of_one(name):
    score, y = getattr(bs.scores, name), np.array([1.0, 0.2])
    alone, batch = gaussian([0.3, 0.4], NOISE), gaussian([[0.3, 0.4]], NOISE)
    assert score(alone, y).shape == ()
    np.testing.assert_allclose(score(alone, y), score(batch, y[None]), rtol=1e-12)


def assert_refused(score, actual, y):
    # Traced, not computed; JAX adds a note to the error, not to its message.
    with pytest.raises(ValueError, match=r"\.") as caught:
        jax.eval_shape(lambda y: score(actual, y), y)
    message = str(caught.value)
    assert "\n" not in message
    assert message.endswith(".")
    assert ". " not in message, "one sentence is enough"


@pytest.mark.parametrize("name", sorted(REGRESSION))
def test_targets_of_the_wrong_shape_are_refused(name):
    actual = gaussian(np.ones((3, 2)), NOISE)
    for shape in [(), (2,), (4, 2), (3, 1), (2, 3)]:
        assert_refused(getattr(bs.scores, name), actual, np.ones(shape))


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_labels_of_the_wrong_shape_are_refused(name):
    actual = classes(np.full((2, 3), 1 / 3))
    for shape in [(), (1,), (3,), (2, 1)]:
        assert_refused(getattr(bs.scores, name), actual, np.zeros(shape, int))


@pytest.mark.parametrize("name", sorted((REGRESSION ^ CLASSES) - {"rmse"}))
def test_a_score_of_another_kind_of_forecast_is_refused(name):
    if name in CLASSES:
        assert_refused(getattr(bs.scores, name), gaussian(np.ones((2, 3)), 1.0), np.zeros(2, int))
    else:
        assert_refused(getattr(bs.scores, name), classes(np.full((2, 3), 1 / 3)), np.zeros(2, int))
