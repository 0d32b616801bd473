"""Averages over settings: weights by hand, exact model averaging, and forecasts as mixtures."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import bayestream as bs
from bayestream.averaging import measured
from bayestream.forecasts import AveragedForecast, GaussianForecast, StudentTForecast, predictive

MODEL = bs.models.mlp([2, 3, 1], activation=jnp.tanh)
NOISE = bs.likelihoods.gaussian(0.1)
RNG = np.random.default_rng(0)
XS = RNG.normal(size=(25, 2))
YS = np.sin(XS[:, :1]) + 0.3 * RNG.normal(size=(25, 1))


def learner(forget=0.95, **values):
    settings = bs.grid(**(values or {"drift": [0.0, 1e-3], "prior_precision": [1.0, 30.0]}))
    make = lambda **setting: bs.lofi(MODEL, NOISE, rank=2, **setting)  # noqa: E731
    return settings, make, bs.averaged(make, settings, forget=forget)


def log_densities(estimator, state, example):
    return predictive.default(estimator, state, example.x).log_density(example.y)


def weights(estimator, state, example):
    return state.weights


@pytest.fixture(scope="module")
def followed():
    """An average, how its weights went, and what each of its settings said alone."""
    settings, make, average = learner()
    start = average.init(jax.random.key(0))
    state, records = bs.run(average, start, (XS, YS), record=weights)
    alone = [make(**setting) for setting in settings]
    said = [
        np.asarray(
            bs.run(each, each.init(jax.random.key(0)), (XS, YS), record=log_densities)[1].values
        )
        for each in alone
    ]
    return average, state, np.asarray(records.values), np.stack(said, axis=1)


def test_weights_are_the_hand_computed_ones(followed):
    _, state, found, said = followed
    by_hand = np.full(4, 0.25)
    for row, log_p in zip([*found[1:], state.weights], said, strict=True):
        by_hand = by_hand**0.95 * np.exp(log_p)
        by_hand /= by_hand.sum()
        np.testing.assert_allclose(row, by_hand, rtol=1e-10)
    assert by_hand.max() > 0.4


def test_the_forecast_is_the_mixture_of_the_settings_own(followed):
    average, _, found, said = followed
    _, records = bs.run(average, average.init(jax.random.key(0)), (XS, YS), record=log_densities)
    expected = np.log(np.sum(found * np.exp(said), axis=1))
    np.testing.assert_allclose(records.values, expected, rtol=1e-10)


def test_without_forgetting_it_is_exact_model_averaging_of_linear_regressions():
    model, noise, precisions = bs.models.mlp([2, 1]), 0.2, [0.5, 5.0, 50.0]
    average = bs.averaged(
        lambda **setting: bs.fcekf(model, bs.likelihoods.gaussian(noise), **setting),
        bs.grid(prior_precision=precisions),
        forget=1.0,
    )
    state, _ = bs.run(average, average.init(jax.random.key(3)), (XS, YS))
    prior = np.asarray(model.init(jax.random.key(3)))
    inputs = np.column_stack([XS, np.ones(len(XS))])
    new = np.array([0.3, -1.0, 1.0])
    evidence, means, variances = [], [], []
    for precision in precisions:
        spread = inputs @ inputs.T / precision + noise * np.eye(len(XS))
        evidence.append(stats.multivariate_normal.logpdf(YS[:, 0], inputs @ prior, spread))
        covariance = np.linalg.inv(precision * np.eye(3) + inputs.T @ inputs / noise)
        mean = covariance @ (precision * prior + inputs.T @ YS[:, 0] / noise)
        means.append(new @ mean)
        variances.append(new @ covariance @ new + noise)
    posterior = np.exp(evidence - np.max(evidence))
    posterior /= posterior.sum()
    np.testing.assert_allclose(state.weights, posterior, rtol=1e-10)
    forecast = bs.predictive.default(average, state, new[:2])
    mean = posterior @ means
    np.testing.assert_allclose(forecast.mean, [mean], rtol=1e-10)
    variance = posterior @ (np.array(variances) + (np.array(means) - mean) ** 2)
    np.testing.assert_allclose(forecast.covariance, [[variance]], rtol=1e-9)


@pytest.fixture
def mixture():
    """Two Gaussians and a t, of one output."""
    return AveragedForecast(
        jnp.array([0.5, 0.2, 0.3]),
        (
            GaussianForecast(jnp.array([[0.0], [3.0]]), jnp.array([[[1.0]], [[0.25]]])),
            StudentTForecast(jnp.array([[-2.0]]), jnp.array([[0.5]]), jnp.array([5.0])),
        ),
    )


PARTS = [(0.5, stats.norm(0, 1)), (0.2, stats.norm(3, 0.5)), (0.3, stats.t(5, -2, 0.5))]


@pytest.mark.parametrize("y", [-2.5, 0.1, 2.9, 40.0])
def test_mixtures_have_the_density_and_distribution_of_a_mixture(mixture, y):
    density = sum(w * part.pdf(y) for w, part in PARTS)
    np.testing.assert_allclose(mixture.log_density(jnp.array([y])), np.log(density), rtol=1e-10)
    cdf = sum(w * part.cdf(y) for w, part in PARTS)
    np.testing.assert_allclose(mixture.cdf(jnp.array([y])), [cdf], rtol=1e-10)


def test_mixtures_have_the_moments_of_a_mixture(mixture):
    mean = sum(w * part.mean() for w, part in PARTS)
    variance = sum(w * (part.var() + (part.mean() - mean) ** 2) for w, part in PARTS)
    np.testing.assert_allclose(mixture.mean, [mean], rtol=1e-10)
    np.testing.assert_allclose(mixture.covariance, [[variance]], rtol=1e-10)
    draws = mixture.sample(jax.random.key(0), 40_000)
    assert draws.shape == (40_000, 1)
    assert abs(draws.mean() - mean) < 4 * np.sqrt(variance / 40_000)
    for level in (0.1, 0.5, 0.9):
        below = np.mean(np.asarray(draws) < np.asarray(mixture.quantile(level)))
        assert abs(below - level) < 4 * np.sqrt(level * (1 - level) / 40_000)


@pytest.mark.parametrize("level", [1e-6, 0.05, 0.31, 0.5, 0.79, 0.95, 1 - 1e-6])
def test_quantiles_of_a_mixture_invert_its_distribution(mixture, level):
    found = mixture.quantile(level)
    np.testing.assert_allclose(mixture.cdf(found), [level], rtol=1e-9)
    single = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), mixture)
    np.testing.assert_allclose(single.quantile(level), found, rtol=1e-5, atol=1e-6)


def test_the_score_of_an_average_is_that_of_the_mixture():
    means, variances = jnp.array([[-1.0], [2.0]]), jnp.array([[[0.5]], [[1.0]]])
    average = AveragedForecast(jnp.array([0.5, 0.5]), (GaussianForecast(means, variances),))
    grid = np.linspace(-12, 12, 200_001)
    cdf = 0.5 * stats.norm(-1, np.sqrt(0.5)).cdf(grid) + 0.5 * stats.norm(2, 1).cdf(grid)
    for y in (-1.0, 0.5, 4.0):
        exact = np.trapezoid((cdf - (grid >= y)) ** 2, grid)
        found = bs.scores.crps(average, jnp.array([y]))
        np.testing.assert_allclose(found, exact, rtol=0.01)


@pytest.mark.slow
def test_many_inputs_are_forecast_as_one_by_one(followed):
    average, state, *_ = followed
    many = bs.predictive.default(average, state, XS[:3])
    for index in range(3):
        one = bs.predictive.default(average, state, XS[index])
        np.testing.assert_allclose(many.mean[index], one.mean, rtol=1e-10)
        np.testing.assert_allclose(many.quantile(0.9)[index], one.quantile(0.9), rtol=1e-8)
        alone = one.log_density(YS[index])
        np.testing.assert_allclose(many.log_density(YS[:3])[index], alone, rtol=1e-10)
    assert many.sample(jax.random.key(0), 5).shape == (5, 3, 1)


def test_classes_are_averaged_in_probability():
    model = bs.models.mlp([2, 3])
    settings = bs.grid(prior_precision=[0.1, 10.0])
    make = lambda **s: bs.lofi(model, bs.likelihoods.categorical(), rank=2, **s)  # noqa: E731
    average = bs.averaged(make, settings)
    labels = (XS[:, 0] > 0).astype(int) + (XS[:, 1] > 0)
    state, _ = bs.run(average, average.init(jax.random.key(0)), (XS, labels))
    each = []
    for setting in settings:
        alone = make(**setting)
        own, _ = bs.run(alone, alone.init(jax.random.key(0)), (XS, labels))
        each.append(bs.predictive.default(alone, own, XS[0]).probabilities)
    found = bs.predictive.default(average, state, XS[0])
    np.testing.assert_allclose(found.probabilities, state.weights @ jnp.stack(each), rtol=1e-9)


def test_a_missing_label_changes_no_weight_and_no_belief(followed):
    average, state, *_ = followed
    moved = average.predict(state)
    after = jax.jit(average.update)(moved, XS[0], jnp.full(1, jnp.nan))
    np.testing.assert_array_equal(after.weights, state.weights)
    np.testing.assert_allclose(average.mean(after), average.mean(moved), rtol=1e-12)
    assert int(average.refused(after)) == 0


def test_a_batch_counts_as_so_many_observations(followed):
    average, state, *_ = followed
    xs, ys = XS[:3], np.array([YS[0], [np.nan], YS[2]])
    batched = jax.jit(average.update_batch)(state, xs, ys)
    forecasts = [bs.predictive.default(average, state, XS[i]) for i in (0, 2)]
    each = [
        jax.vmap(lambda part: part.log_density(YS[i]))(f.parts[0])  # noqa: B023
        for f, i in zip(forecasts, (0, 2), strict=True)
    ]
    expected = state.weights ** (0.95**2) * np.exp(sum(each))
    np.testing.assert_allclose(batched.weights, expected / expected.sum(), rtol=1e-9)


def test_its_belief_over_one_network_is_the_mixture_over_settings(followed):
    average, state, *_ = followed
    draws = average.sample(state, jax.random.key(0), 20_000)
    mean, covariance = average.mean(state), average.covariance_between(state, np.eye(MODEL.size))
    deviations = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose((draws.mean(0) - mean) / deviations, 0, atol=4 / np.sqrt(20_000))
    found = np.cov(draws.T) / deviations / deviations[:, None]
    np.testing.assert_allclose(found, covariance / deviations / deviations[:, None], atol=0.06)


@pytest.mark.slow
def test_several_networks_are_one_whose_output_is_their_weighted_mean():
    def make(activation, **setting):
        model = bs.models.mlp([2, 3, 1], activation=activation)
        return bs.lofi(model, NOISE, rank=2, **setting)

    settings = bs.grid(activation=[jnp.tanh, jax.nn.gelu], drift=[0.0, 1e-3])
    average = bs.averaged(make, settings)
    key = jax.random.key(0)
    state, _ = bs.run(average, average.init(key), (XS, YS))
    assert average.mean(state).shape == (average.model.size,) == (4 * 13 + 4,)
    alone = [make(**setting) for setting in settings]
    states = [bs.run(each, each.init(key), (XS, YS))[0] for each in alone]
    weights = np.asarray(state.weights)
    for x in XS[:3]:
        said = [e.model.apply(e.mean(s), x) for e, s in zip(alone, states, strict=True)]
        found = average.model.apply(average.mean(state), x)
        np.testing.assert_allclose(found, weights @ np.stack(said), rtol=1e-10)
        spread = [
            bs.predictive.linearized(e, s, x[None]).covariance[0] - 0.1
            for e, s in zip(alone, states, strict=True)
        ]
        found = bs.predictive.linearized(average, state, x[None]).covariance[0] - 0.1
        np.testing.assert_allclose(found, np.tensordot(weights**2, spread, 1), rtol=1e-8)
    draws = average.sample(state, key, 4000)
    parts = [
        np.sqrt(np.diag(e.covariance_between(s, np.eye(13))))
        for e, s in zip(alone, states, strict=True)
    ]
    mean = np.asarray(average.mean(state))
    deviations = (draws - mean)[:, :52] / np.concatenate(parts)
    np.testing.assert_allclose(np.std(deviations, axis=0), 1, atol=0.06)
    np.testing.assert_allclose(draws[:, 52:], np.tile(weights, (4000, 1)), rtol=1e-12)


def test_parameters_of_several_networks_keep_their_order_whatever_layers_are_found():
    def make(features, **setting):
        model = bs.models.mlp([2, 1])._replace(
            init=lambda key: jnp.arange(3.0),
            apply=lambda w, x: (w @ features(jnp.append(x, 1.0)))[None],
        )
        return bs.vdekf(model, NOISE, **setting)

    average = bs.averaged(make, bs.grid(features=[jnp.tanh, jnp.sin], drift=[0.0, 1e-3]))
    found = average.model.apply(average.mean(average.init(jax.random.key(0))), XS[0])
    x = np.append(XS[0], 1.0)
    np.testing.assert_allclose(found, [np.arange(3) @ (np.tanh(x) + np.sin(x)) / 2], rtol=1e-12)


def test_switching_shares_weight_evenly(followed):
    settings, make, _ = learner()
    average = bs.averaged(make, settings, forget=0.95, switching=0.01)
    _, records = bs.run(average, average.init(jax.random.key(0)), (XS, YS), record=weights)
    by_hand = np.full(4, 0.25)
    for row, log_p in zip(records.values[1:], followed[-1], strict=False):
        by_hand = by_hand**0.95 * np.exp(log_p)
        by_hand = 0.99 * by_hand / by_hand.sum() + 0.01 / 4
        np.testing.assert_allclose(row, by_hand, rtol=1e-10)


def test_which_activation_is_data_like_the_rest():
    settings = [{"activation": f, "drift": 1e-3} for f in (jnp.tanh, jax.nn.gelu)]
    average = bs.self_tuning([2, 3, 1], NOISE, settings=settings, rank=2)
    start = average.init(jax.random.key(0))
    assert len(start.members) == 1
    state, _ = bs.run(average, start, (XS, YS))
    for i, setting in enumerate(settings):
        model = bs.models.mlp([2, 3, 1], activation=setting["activation"], fan_in_scaled=True)
        alone = bs.lofi(model, NOISE, rank=2, drift=1e-3)
        own, _ = bs.run(alone, alone.init(jax.random.key(0)), (XS, YS))
        mean = average.mean(state)[i * model.size : (i + 1) * model.size]
        np.testing.assert_allclose(mean, alone.mean(own), rtol=1e-9)


def test_only_where_noise_is_learnt_a_setting_learns_it_slowly():
    known = bs.likelihoods
    learnt = measured(known.adaptive_student_t())
    for without in (known.categorical(), known.adaptive_categorical(), known.gaussian(0.1)):
        assert measured(without) == [each for each in learnt if "pace" not in each]
    assert [each["pace"] for each in learnt if "pace" in each] == [0.1]


def test_without_a_rank_the_whole_covariance_is_kept():
    settings = [{"activation": jnp.tanh, "drift": drift} for drift in (0.0, 1e-3)]
    found = []
    for rank in (None, 13):  # of the 13 weights nothing is left out
        average = bs.self_tuning([2, 3, 1], NOISE, settings=settings, rank=rank)
        state, _ = bs.run(average, average.init(jax.random.key(0)), (XS, YS))
        forecast = bs.predictive.default(average, state, XS[:4])
        found.append([average.mean(state), state.weights, *forecast.interval(0.9)])
    for full, low in zip(*found, strict=True):
        np.testing.assert_allclose(full, low, rtol=1e-8)


@pytest.mark.slow
def test_settings_may_differ_in_method_and_likelihood():
    def make(method, likelihood, **setting):
        return bs.make(method, MODEL, likelihood, **setting)

    average = bs.averaged(
        make,
        [
            {"method": "lofi", "likelihood": NOISE, "rank": 2},
            {"method": "fcekf", "likelihood": bs.likelihoods.student_t(0.3)},
            {"method": "ogd", "likelihood": bs.likelihoods.adaptive_gaussian()},
        ],
    )
    state, records = bs.run(average, average.init(jax.random.key(0)), (XS, YS), record=weights)
    assert records.values.shape == (25, 3)
    np.testing.assert_allclose(state.weights.sum(), 1, rtol=1e-12)
    low, high = bs.predictive.default(average, state, XS[:4]).interval(0.9)
    assert bool((low < high).all())
    assert average.covariance_of is None


def test_late_labels_are_learnt_late():
    _, _, average = learner()
    late = bs.Example(XS, YS, delay=np.full(25, 2))
    state, records = bs.run(average, average.init(jax.random.key(0)), late, record=weights)
    np.testing.assert_array_equal(records.values[2], np.full(4, 0.25))
    assert not np.allclose(records.values[3], 0.25)
    assert bool(jnp.isfinite(state.log_weights).all())


def test_a_setting_that_forecasts_nonsense_is_not_believed_but_can_come_back():
    from bayestream.averaging.averaged import _weighed

    start = jnp.log(jnp.full(2, 0.5))
    found = _weighed(start, jnp.array([jnp.nan, -1.0]), jnp.array(0.99))
    assert float(found[1]) == 0.0
    assert float(found[0]) > -1.1e3
    nothing = _weighed(start, jnp.full(2, -jnp.inf), jnp.array(1.0))
    np.testing.assert_allclose(nothing, start)


def test_what_cannot_be_averaged_is_refused_in_a_sentence():
    make = lambda sizes: bs.lofi(bs.models.mlp(sizes), NOISE, rank=1)  # noqa: E731
    with pytest.raises(ValueError, match="same inputs and outputs"):
        bs.averaged(make, bs.grid(sizes=[(2, 1), (3, 1)]))
    with pytest.raises(TypeError, match=r"drift must be a list of values to combine, got 0\.1"):
        bs.grid(drift=0.1)
    with pytest.raises(ValueError, match="drift must be a number that is not negative"):
        learner(drift=[0.0, -1.0])
    with pytest.raises(ValueError, match="at least one"):
        bs.averaged(make, [])
    with pytest.raises(ValueError, match="forget must be a number from 0 to 1"):
        bs.averaged(make, bs.grid(sizes=[(2, 1)]), forget=2.0)
    _, _, average = learner()
    with pytest.raises(ValueError, match="state must come from this learner"):
        bs.run(average, learner(drift=[0.0])[2].init(jax.random.key(0)), (XS, YS))
