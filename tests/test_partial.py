"""Targets of which a part is seen: as if the other outputs had never been asked for."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import bayestream as bs
from bayestream.evaluation import summaries
from bayestream.forecasts import CategoricalForecast, GaussianForecast, StudentTForecast
from bayestream.gaussians import dense, lazy_dlr, spherical

NAN = jnp.nan


def seldom(value):
    return pytest.param(value, marks=pytest.mark.slow)


RNG = np.random.default_rng(0)
ROOT = RNG.normal(size=(3, 3))
FULL = ROOT @ ROOT.T + 0.1 * np.eye(3)
LIKELIHOODS = {
    "gaussian": bs.likelihoods.gaussian(0.3),
    "gaussian-vector": bs.likelihoods.gaussian([0.3, 0.1, 2.0]),
    "gaussian-full": bs.likelihoods.gaussian(FULL),
    "student_t": bs.likelihoods.student_t(0.4, dof=5.0),
    "bernoulli": bs.likelihoods.bernoulli(),
    "poisson": bs.likelihoods.poisson(),
}
# The same of the first and the last output alone.
OF_TWO = LIKELIHOODS | {
    "gaussian-vector": bs.likelihoods.gaussian([0.3, 2.0]),
    "gaussian-full": bs.likelihoods.gaussian(FULL[np.ix_([0, 2], [0, 2])]),
}
Y, PART, TWO = jnp.array([1.0, 0.0, 1.0]), jnp.array([1.0, NAN, 1.0]), jnp.array([1.0, 1.0])
ETA = jnp.array([0.3, -0.8, 0.5])


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_what_is_not_seen_has_no_part_in_anything(name):
    whole, two, eta = LIKELIHOODS[name], OF_TWO[name], ETA[jnp.array([0, 2])]
    np.testing.assert_allclose(whole.log_density(ETA, PART), two.log_density(eta, TWO), rtol=1e-12)
    np.testing.assert_allclose(whole.score(ETA, PART)[1], 0)
    np.testing.assert_allclose(whole.score(ETA, PART)[::2], two.score(eta, TWO), rtol=1e-11)
    for of in ("seen", "secant"):
        B, v = getattr(whole, of)(ETA, PART)
        B_two, v_two = getattr(two, of)(eta, TWO)
        np.testing.assert_allclose(B[1], 0)
        np.testing.assert_allclose((B @ B.T)[::2, ::2], B_two @ B_two.T, rtol=1e-11)
        np.testing.assert_allclose((B @ v)[::2], B_two @ v_two, rtol=1e-11)


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_a_part_is_possible_and_none_is_missing(name):
    likelihood = LIKELIHOODS[name]
    assert not likelihood.missing(PART)
    assert likelihood.missing(jnp.full(3, NAN))
    assert likelihood.support(PART, 3)
    assert not likelihood.support(jnp.array([jnp.inf, NAN, 1.0]), 3)


MODEL = bs.models.mlp([2, 3])
XS = RNG.normal(size=(12, 2))
YS = np.where(RNG.random((12, 3)) < 0.4, np.nan, RNG.normal(size=(12, 3)))
YS[4] = np.nan


def closed_form(xs, ys, prior):
    """The posterior over a linear layer from the rows that were seen, one example after another."""
    mean, precision = np.array(prior), np.eye(prior.size)
    for x, y in zip(xs, ys, strict=True):
        H = np.kron(np.append(x, 1.0), np.eye(3))
        known = np.flatnonzero(~np.isnan(y))
        inverse = np.linalg.inv(FULL[np.ix_(known, known)])
        more = H[known].T @ inverse @ H[known]
        error = y[known] - H[known] @ mean
        precision = precision + more
        mean = mean + np.linalg.solve(precision, H[known].T @ inverse @ error)
    return mean, np.linalg.inv(precision)


@pytest.mark.parametrize("kernels", ["native", pytest.param("jax", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("method", "family"), [("fcekf", dense), ("lofi", lazy_dlr), ("lofi_spherical", spherical)]
)
def test_a_linear_model_learns_from_the_rows_that_were_seen(method, family, kernels, monkeypatch):
    if kernels == "native" and not bs.kernels.built():
        pytest.skip("the native kernels were not built")
    monkeypatch.setenv("BAYESTREAM_KERNELS", kernels)
    options = {} if method == "fcekf" else {"rank": MODEL.size}
    learner = bs.make(
        method,
        MODEL,
        bs.likelihoods.gaussian(FULL),
        prior_precision=1.0,
        line_search=None,
        **options,
    )
    start = learner.init(jax.random.key(0))
    mean, covariance = closed_form(XS, YS, np.asarray(learner.mean(start)))
    state, records = bs.run(learner, start, (XS, YS))
    np.testing.assert_allclose(learner.mean(state), mean, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(
        family.to_dense(state.belief).covariance, covariance, rtol=1e-6, atol=1e-9
    )
    assert records.updates == 11
    assert np.isnan(records["log_density"]).tolist() == np.isnan(YS).all(axis=1).tolist()
    batch = learner.update_batch(start, XS, YS)
    np.testing.assert_allclose(learner.mean(batch), mean, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("method", ["fdekf", "vdekf", "laplace", "replay_sgd"])
def test_an_output_that_is_never_seen_is_never_learnt(method):
    learner = bs.make(method, MODEL, bs.likelihoods.gaussian([0.1, 0.1, 0.1]))
    start = learner.init(jax.random.key(0))
    ys = np.column_stack([XS[:, 0], np.full(12, np.nan), XS[:, 1]])
    state, _ = bs.run(learner, start, (XS, ys))
    before, after = (np.asarray(learner.mean(s)).reshape(3, 3) for s in (start, state))
    np.testing.assert_array_equal(before[:, 1], after[:, 1])
    assert np.all(before[:, ::2] != after[:, ::2])


@pytest.mark.slow
def test_forecasts_and_scores_are_of_what_was_seen():
    covariance = np.stack([FULL, 2 * FULL])
    mean = RNG.normal(size=(2, 3))
    forecast = GaussianForecast(jnp.asarray(mean), jnp.asarray(covariance))
    y = np.array([[0.5, np.nan, 1.0], [np.nan, 0.2, np.nan]])
    known = [0, 2]
    expected = [
        stats.multivariate_normal(mean[0, known], FULL[np.ix_(known, known)]).logpdf(y[0, known]),
        stats.norm(mean[1, 1], np.sqrt(2 * FULL[1, 1])).logpdf(y[1, 1]),
    ]
    np.testing.assert_allclose(forecast.log_density(y), expected, rtol=1e-10)
    seen = ~np.isnan(y)
    errors = (mean - y)[seen]
    np.testing.assert_allclose(bs.scores.rmse(forecast, y), np.sqrt(np.mean(errors**2)))
    low, high = forecast.interval(0.5)
    inside = ((low <= y) & (y <= high))[seen]
    np.testing.assert_allclose(bs.scores.coverage(forecast, y, level=0.5), inside.mean())
    alone = [
        bs.scores.crps(
            GaussianForecast(forecast.mean[i, j][None], covariance[i, j, j][None, None]),
            y[i, j][None],
        )
        for i, j in zip(*np.nonzero(seen), strict=True)
    ]
    np.testing.assert_allclose(bs.scores.crps(forecast, y), np.mean(alone), rtol=1e-10)
    heavy = StudentTForecast(jnp.asarray(mean), jnp.full((2, 3), 0.7), jnp.array(5.0))
    each = stats.t(5.0, mean, 0.7).logpdf(np.where(seen, y, 0.0))
    np.testing.assert_allclose(heavy.log_density(y), np.sum(each, axis=1, where=seen), rtol=1e-10)


def test_noise_is_learnt_from_what_was_seen():
    """In a stationary stream with two fifths of all numbers missing, R is found all the same."""
    rng = np.random.default_rng(1)
    errors = rng.multivariate_normal(np.zeros(3), FULL, 40_000)
    ys = jnp.asarray(np.where(rng.random(errors.shape) < 0.4, np.nan, errors))
    trust = jnp.asarray(~np.isnan(ys).all(axis=1), float)
    for likelihood, read, exact in (
        (bs.likelihoods.adaptive_gaussian(minimum_rate=0.0), lambda c: c.noise, np.trace(FULL) / 3),
        (bs.likelihoods.adaptive_gaussian(minimum_rate=0.0, full=True), lambda c: c.noise, FULL),
    ):

        def step(carry, example, likelihood=likelihood):
            y, w = example
            return likelihood.adapt(carry, jnp.zeros((1, 3)), y[None], w[None]), None

        carry, _ = jax.lax.scan(step, likelihood.init(3, jnp.float64), (ys, trust))
        np.testing.assert_allclose(read(carry), exact, atol=0.06 * np.max(exact))
    heavy = bs.likelihoods.adaptive_student_t(minimum_rate=0.0)
    alone, part = jnp.array([[2.0]]), jnp.array([[2.0, NAN, NAN]])
    one = heavy.adapt(heavy.init(1, jnp.float64), jnp.zeros((1, 1)), alone, jnp.ones(1))
    of_three = heavy.adapt(heavy.init(3, jnp.float64), jnp.zeros((1, 3)), part, jnp.ones(1))
    np.testing.assert_allclose(one.square, of_three.square, rtol=1e-12)


@pytest.mark.slow
def test_in_evaluation_a_part_counts_and_nothing_does_not():
    learner = bs.fcekf(MODEL, bs.likelihoods.gaussian(FULL), line_search=None)
    results = bs.evaluate.prequential(
        {"fcekf": learner},
        bs.Stream(bs.Example(XS, YS)),
        metrics=["rmse"],
        summaries=[summaries.cumulative],
    )
    state = learner.init(jax.random.key(0))
    squares = []
    for x, y in zip(XS, YS, strict=True):
        seen = ~np.isnan(y)
        error = MODEL.apply(learner.mean(state), x) - y
        if seen.any():
            squares.append(np.mean(np.asarray(error)[seen] ** 2))
        state = learner.update(state, x, y)
    np.testing.assert_allclose(results["value"][-1], np.sqrt(np.mean(squares)), rtol=1e-6)


def outcomes_of(asked):
    """Every answer that may come of asking about these of three classes, as targets."""
    for label in range(3):
        y = np.full(3, np.nan)
        y[list(asked)] = [float(label == c) for c in asked]
        yield label, y


@pytest.mark.parametrize("asked", [(0,), (2,), (0, 1), (0, 1, 2)])
def test_a_class_that_was_asked_about_in_part_is_one_outcome_with_the_rest(asked):
    """Fisher information and score by hand, from the probabilities of the possible answers."""
    likelihood, eta = bs.likelihoods.categorical(), jnp.array([0.3, -1.2, 0.8])
    p = np.asarray(jax.nn.softmax(eta))
    answers: dict[bytes, tuple[np.ndarray, float]] = {}
    for label, y in outcomes_of(asked):
        _, before = answers.get(y.tobytes(), (y, 0.0))
        answers[y.tobytes()] = (y, before + p[label])
    fisher = np.zeros((3, 3))
    for y, probability in answers.values():
        log_p = lambda e, y=y: jnp.log(  # noqa: E731
            sum(
                jax.nn.softmax(e)[c]
                for c, own in outcomes_of(asked)
                if own.tobytes() == y.tobytes()
            )
        )
        gradient = np.asarray(jax.grad(log_p)(eta))
        fisher += probability * np.outer(gradient, gradient)
        np.testing.assert_allclose(likelihood.log_density(eta, y), np.log(probability))
        np.testing.assert_allclose(likelihood.score(eta, y), gradient, atol=1e-12)
        for form in (likelihood.seen, likelihood.secant):
            B, v = form(eta, jnp.asarray(y))
            np.testing.assert_allclose(B @ v, gradient, atol=1e-12)
        assert likelihood.support(jnp.asarray(y), 3)
        forecast = CategoricalForecast(eta)
        np.testing.assert_allclose(forecast.log_density(y), np.log(probability))
    y = next(iter(answers.values()))[0]
    B, _ = likelihood.seen(eta, jnp.asarray(y))
    np.testing.assert_allclose(B @ B.T, fisher, atol=1e-12)


def test_answers_that_cannot_be_are_refused():
    support = bs.likelihoods.categorical().support
    for y in ([1.0, 1.0, np.nan], [-1.0, np.nan, np.nan], [0.2, 0.2, 0.2]):
        assert not support(jnp.array(y), 3)
    assert np.isnan(
        bs.scores.misclassification(
            CategoricalForecast(jnp.zeros((1, 3))), np.array([[0.0, np.nan, np.nan]])
        )
    )


ONE = {
    "gaussian-full": (bs.likelihoods.gaussian(FULL), -0.7),
    "student_t": (bs.likelihoods.student_t(0.4, dof=5.0), 3.0),
    "bernoulli": (bs.likelihoods.bernoulli(), 1.0),
    "categorical": (bs.likelihoods.categorical(), 0.0),
    "adaptive": (bs.likelihoods.adaptive_gaussian(full=True), 1.5),
}


@pytest.mark.parametrize("name", [*map(seldom, [*ONE][:-1]), [*ONE][-1]])
def test_one_row_for_the_one_number_seen_gives_the_same_belief(name):
    likelihood, value = ONE[name]
    y = jnp.array([NAN, value, NAN])
    after = []
    for kind in (likelihood, bs.likelihoods.one_seen(likelihood)):
        learner = bs.fcekf(bs.models.mlp([2, 4, 3]), kind, prior_precision=2.0)
        state = learner.init(jax.random.key(0))
        state = jax.jit(learner.update)(state, jnp.array([0.4, -1.0]), y)
        after.append(state)
    for one, other in zip(*map(jax.tree.leaves, after), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-11)


def test_more_than_one_number_is_refused_where_one_was_promised():
    support = bs.likelihoods.one_seen(bs.likelihoods.gaussian(0.1)).support
    assert support(jnp.array([NAN, 1.0, NAN]), 3)
    assert not support(jnp.array([0.0, 1.0, NAN]), 3)
