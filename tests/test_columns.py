"""Classes by a few columns: y, the most probable others, and all the rest as one outcome."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_softmax, softmax

import bayestream as bs
import step_oracles
from bayestream.forecasts.outputs import linearized_outputs, linearized_variances
from bayestream.gaussians import kernels
from problems import mlp
from step_oracles import Halving, View

CLASSES = 6
RNG = np.random.default_rng(0)
ETAS = [
    RNG.normal(size=CLASSES),
    np.array([300.0, -300.0, 0.0, 200.0, -50.0, 299.0]),
    np.zeros(CLASSES),
]
XS, YS = RNG.normal(size=(20, 2)), RNG.integers(CLASSES, size=20)
COLUMNS = [2, 3, 5, 6, 7]


def outcomes(eta: np.ndarray, y: int, columns: int) -> list[list[int]]:
    """The classes in each outcome, written as a person would choose them."""
    others = [c for c in np.argsort(-eta, kind="stable") if c != y]
    named, rest = [[y]] + [[c] for c in others[: columns - 2]], others[columns - 2 :]
    return named + ([rest] if rest else [])


def information(eta: np.ndarray, y: int, columns: int) -> np.ndarray:
    """The covariance of the score of an outcome: E[(E[e_c | outcome] − p)(…)ᵀ]."""
    p, total = softmax(eta), np.zeros((eta.size, eta.size))
    for classes in outcomes(eta, y, columns):
        probability = p[classes].sum()
        if probability > 0:
            inside = np.zeros(eta.size)
            inside[classes] = p[classes] / probability
            total += probability * np.outer(inside - p, inside - p)
    return total


def secant_information(eta: np.ndarray, y: int, columns: int) -> np.ndarray:
    """With at least the curvature |s|²/(loss + 1) along the score s."""
    fisher, s = information(eta, y, columns), np.eye(eta.size)[y] - softmax(eta)
    lacking = 1 / (1 - log_softmax(eta)[y]) - s @ fisher @ s / max(s @ s, 1e-12) ** 2
    return fisher + max(lacking, 0.0) * np.outer(s, s)


INFORMATION = {"seen": information, "secant": secant_information}


@cache
def pair(columns: int, form: str):
    return jax.jit(getattr(bs.likelihoods.categorical(columns=columns), form))


@pytest.mark.parametrize("form", INFORMATION)
@pytest.mark.parametrize("columns", COLUMNS)
def test_a_few_columns_have_the_information_of_their_outcomes_and_the_whole_score(columns, form):
    for eta in ETAS:
        for y in range(CLASSES):
            B, v = map(np.asarray, pair(columns, form)(eta, float(y)))
            assert B.shape == (CLASSES, min(columns, CLASSES))
            expected = INFORMATION[form](eta, y, columns)
            np.testing.assert_allclose(B @ B.T, expected, rtol=1e-10, atol=1e-14)
            np.testing.assert_allclose(B @ v, np.eye(CLASSES)[y] - softmax(eta), atol=1e-12)


@pytest.mark.parametrize("columns", COLUMNS)
def test_a_few_columns_never_know_more_than_all_and_as_many_as_classes_know_all(columns):
    for eta in ETAS:
        for y in range(CLASSES):
            p, B = softmax(eta), np.asarray(pair(columns, "seen")(eta, float(y))[0])
            lost = np.diag(p) - np.outer(p, p) - B @ B.T
            assert np.linalg.eigvalsh(lost).min() > -1e-14
            if columns >= CLASSES:
                np.testing.assert_allclose(lost, 0, atol=1e-15)


def test_in_float32_a_class_thought_impossible_still_has_its_score():
    eta = jnp.asarray(ETAS[1], jnp.float32)
    for y in range(CLASSES):
        B, v = map(np.asarray, pair(3, "secant")(eta, jnp.asarray(y, jnp.float32)))
        assert B.dtype == v.dtype == np.float32
        np.testing.assert_allclose(B @ v, np.eye(CLASSES)[y] - softmax(ETAS[1]), atol=1e-5)


@cache
def network() -> bs.Model:
    return mlp([2, 3, CLASSES], activation=jnp.tanh)


def view(columns: int, search: Halving | None) -> View:
    """B from the eigenvectors of the dense information, v by least squares."""
    dense = INFORMATION["secant" if search and search.secant else "seen"]

    def pair(eta, y):
        values, vectors = np.linalg.eigh(dense(eta, int(y), columns))
        kept = values > 1e-14
        B = vectors[:, kept] * np.sqrt(values[kept])
        return B, np.linalg.lstsq(B, np.eye(CLASSES)[int(y)] - softmax(eta))[0]

    return View(pair, lambda eta, y: float(log_softmax(eta)[int(y)]))


@pytest.mark.parametrize(
    ("columns", "search", "batch"),
    [
        (6, Halving(), 1),
        (3, Halving(sufficient=0.6), 1),
        pytest.param(6, None, 1, marks=pytest.mark.slow),
        pytest.param(3, None, 1, marks=pytest.mark.slow),
        pytest.param(3, Halving(secant=False), 2, marks=pytest.mark.slow),
    ],
)
def test_twenty_examples_leave_the_belief_of_the_dense_filter(columns, search, batch):
    learner = bs.lofi(
        network(),
        bs.likelihoods.categorical(columns=columns),
        rank=2,
        prior_precision=0.5,
        line_search=search and bs.line_search.halving(**search._asdict()),
    )
    method, update = step_oracles.lofi(2), jax.jit(learner.update_batch)
    state = learner.init(jax.random.key(0))
    expected = method.start(np.asarray(learner.mean(state)), 0.5)
    for xs, ys in zip(XS.reshape(-1, batch, 2), YS.reshape(-1, batch), strict=True):
        state = update(state, xs, ys)
        expected = step_oracles.step(
            method, expected, network().apply, view(columns, search), xs, ys, search=search
        ).belief
        np.testing.assert_allclose(learner.mean(state), expected.mean, rtol=1e-10, atol=1e-10)
    covariance = learner.covariance_between(state, jnp.eye(network().size))
    np.testing.assert_allclose(covariance, method.dense(expected).covariance, atol=1e-10)


@pytest.mark.skipif(not kernels.built(), reason="the native kernels were not built")
def test_native_and_jax_kernels_learn_the_same_from_a_few_columns(monkeypatch):
    model, xs = mlp([3, 5, 100]), np.random.default_rng(1).normal(size=(4, 3))
    beliefs = []
    for which in ("native", "jax"):
        monkeypatch.setenv("BAYESTREAM_KERNELS", which)
        learner = bs.lofi(model, bs.likelihoods.categorical(columns=4), rank=3)
        update, state = jax.jit(learner.update), learner.init(jax.random.key(0))
        for x, y in zip(xs, (99, 0, 99, 50), strict=True):
            state = update(state, x, y)
        beliefs.append((learner.mean(state), state.belief.base.diag))
    np.testing.assert_allclose(*map(jnp.concatenate, beliefs), rtol=1e-9)


def learnt(learner: bs.Estimator, xs=XS, ys=YS):
    return bs.run(learner, learner.init(jax.random.key(0)), (xs, ys), progress=False)[0]


MANY, NARROW = 400, bs.models.mlp([2, 2, 400])


def largest(function, *args) -> int:
    """The most numbers of any array that a function makes on its way."""

    def sizes(jaxpr):
        for equation in jaxpr.eqns:
            yield from (np.prod(v.aval.shape) for v in equation.outvars if hasattr(v.aval, "shape"))
            for leaf in jax.tree.leaves(
                list(equation.params.values()), is_leaf=lambda p: hasattr(p, "eqns")
            ):
                inner = getattr(leaf, "jaxpr", leaf)
                if hasattr(inner, "eqns"):
                    yield from sizes(inner)

    return max(sizes(jax.make_jaxpr(function)(*args).jaxpr))


WORK = {
    "update": lambda learner, state: learner.update(state, XS[0], 3),
    "probit": lambda learner, state: bs.predictive.probit(learner, state, XS[0]).logits,
    "linearized_monte_carlo": lambda learner, state: (
        bs.predictive.linearized_monte_carlo(
            learner, state, XS[0], jax.random.key(1), samples=3
        ).draws
    ),
}


@pytest.mark.parametrize("work", WORK)
def test_nothing_grows_with_the_square_of_the_classes(work):
    def most(columns):
        learner = bs.lofi(NARROW, bs.likelihoods.categorical(columns=columns), rank=2)
        return largest(lambda s: WORK[work](learner, s), learner.init(jax.random.key(0)))

    assert most(4) < 30 * MANY
    assert most(None) >= MANY**2


def test_probit_looks_at_the_most_probable_and_is_near_to_looking_at_all():
    learner = bs.lofi(NARROW, bs.likelihoods.categorical(columns=8), rank=2)
    state = learnt(learner, ys=YS)
    outputs, covariance = linearized_outputs(learner, state, XS)
    expected = np.diagonal(covariance, axis1=1, axis2=2)
    found_outputs, found = linearized_variances(learner, state, XS)
    np.testing.assert_allclose(found_outputs, outputs, rtol=1e-12)
    order = np.argsort(-outputs, axis=1)[:, [*range(8), MANY - 1]]
    looked = [np.take_along_axis(np.asarray(of), order, axis=1) for of in (found, expected)]
    np.testing.assert_allclose(*looked, rtol=1e-10)
    exact = softmax(outputs / np.sqrt(1 + np.pi / 8 * expected), axis=1)
    probit, plugin = (
        np.abs(forecast(learner, state, XS).probabilities - exact).sum(axis=1).mean()
        for forecast in (bs.predictive.probit, bs.predictive.plugin)
    )
    assert probit < 0.2 * plugin


def test_as_many_columns_as_classes_forecast_like_all():
    learners = [
        bs.fcekf(network(), bs.likelihoods.categorical(columns=columns)) for columns in (6, None)
    ]
    few, every = (bs.predictive.probit(each, learnt(each), XS).logits for each in learners)
    np.testing.assert_allclose(few, every, rtol=1e-9)


def test_linearized_draws_of_weights_have_the_moments_of_the_linearized_network():
    learner = bs.fcekf(network(), bs.likelihoods.categorical(columns=3), prior_precision=4.0)
    state = learnt(learner)
    forecast = bs.predictive.linearized_monte_carlo(
        learner, state, XS[:2], jax.random.key(1), samples=4000, temperature=0.5
    )
    outputs, covariance = linearized_outputs(learner, state, XS[:2], 0.5)
    for draws, mean, expected in zip(forecast.draws, outputs, covariance, strict=True):
        gap = np.asarray(draws - mean)
        products = gap[:, :, None] * gap[:, None, :]
        for values, moment in ((gap, 0.0), (products, expected)):
            error = values.std(axis=0) / np.sqrt(len(draws))
            assert np.all(np.abs(values.mean(axis=0) - moment) < 5 * error)


def test_a_checkpoint_of_many_classes_is_about_as_large_as_its_belief(tmp_path):
    learner = bs.lofi(NARROW, bs.likelihoods.categorical(columns=4), rank=2)
    state = learner.init(jax.random.key(0))
    bs.checkpoint.save(tmp_path / "belief.safetensors", learner, state)
    assert (tmp_path / "belief.safetensors").stat().st_size < 100_000 < 8 * MANY**2
    loaded = bs.checkpoint.load(tmp_path / "belief.safetensors", learner).state
    np.testing.assert_array_equal(learner.mean(loaded), learner.mean(state))


@pytest.mark.slow
def test_classes_not_seen_yet_are_left_alone_with_a_few_columns():
    adaptive = bs.likelihoods.adaptive_categorical(columns=4)
    carry = adaptive.init(CLASSES, float)._replace(seen=jnp.arange(CLASSES) < 2)
    likelihood, eta = adaptive.at(carry, jnp.array(0)), jnp.asarray(ETAS[0])
    for form in ("seen", "secant"):
        B, v = getattr(likelihood, form)(eta, jnp.array(2))
        three, _ = getattr(bs.likelihoods.categorical(), form)(eta[:3], jnp.array(2))
        np.testing.assert_array_equal(B[3:], 0)
        np.testing.assert_allclose(B[:3] @ B[:3].T, three @ three.T, atol=1e-14)
        np.testing.assert_allclose(B @ v, likelihood.score(eta, jnp.array(2)), atol=1e-12)


def test_what_a_few_columns_cannot_learn_from_is_refused_in_a_sentence():
    likelihood = bs.likelihoods.categorical(columns=3)
    learner = bs.lofi(network(), likelihood, rank=2)
    state = learner.init(jax.random.key(0))
    with pytest.raises(ValueError, match="y must have shape"):
        learner.update(state, XS[0], np.full(CLASSES, 1 / CLASSES))
    one = bs.lofi(network(), bs.likelihoods.one_seen(likelihood), rank=2)
    with pytest.raises(ValueError, match="y must be a class number"):
        one.update(state, XS[0], np.array([1.0] + [np.nan] * 5))
    with pytest.raises(ValueError, match="no columns for a laplace_bridge"):
        bs.predictive.laplace_bridge(learner, state, XS)
    with pytest.raises(ValueError, match="columns must be a whole number, 2 or above"):
        bs.likelihoods.categorical(columns=1)
