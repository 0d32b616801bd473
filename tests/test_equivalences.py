"""Every estimator against an independent dense version of it, step by step, in float64."""

from functools import partial
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayestream as bs
import oracles
from bayestream.gaussians import dense, diagonal, lazy_dlr, spherical
from bayestream.gaussians.spherical import SphericalGaussian
from bayestream.networks import rows
from problems import FILTERS_LOFI_FIRST, NOISE, PROBLEMS, Problem, mlp

DYNAMICS = [(1.0, 0.0), (0.98, 0.01)]
PRECISION = 2.0
TIGHT = {"rtol": 1e-9, "atol": 1e-9}

close = np.testing.assert_allclose


@pytest.fixture(params=PROBLEMS, ids=list(PROBLEMS))
def problem(request: pytest.FixtureRequest) -> Problem:
    return PROBLEMS[request.param]()


@pytest.fixture(params=DYNAMICS, ids=["stationary", "drifting"])
def dynamics(request: pytest.FixtureRequest) -> tuple[float, float]:
    return request.param


def settings(dynamics: tuple[float, float]) -> dict[str, float | None]:
    """The paper's full step."""
    decay, drift = dynamics
    return {"prior_precision": PRECISION, "decay": decay, "drift": drift, "line_search": None}


def states(estimator: bs.Estimator, problem: Problem):
    """(predicted, updated) at each step, from plain calls of predict and update."""
    predict, update = jax.jit(estimator.predict), jax.jit(estimator.update)
    state = estimator.init(jax.random.key(0))
    for x, y in zip(problem.xs, problem.ys, strict=True):
        predicted = predict(state)
        state = update(predicted, x, y)
        yield predicted, state


def observations(problem: Problem):
    return zip(problem.xs, map(problem.target, problem.ys), strict=True)


def prior(problem: Problem) -> oracles.Dense:
    mean = np.asarray(problem.model.init(jax.random.key(0)))
    return oracles.Dense(mean, np.eye(mean.size) / PRECISION)


settle = jax.jit(lazy_dlr.settle)


@partial(jax.jit, static_argnums=0)
def to_dense(family, belief) -> dense.DenseGaussian:
    return family.to_dense(belief)


def assert_dense_close(actual: dense.DenseGaussian, expected: oracles.Dense, **tolerance) -> None:
    close(actual.mean, expected.mean, **(tolerance or TIGHT))
    close(actual.covariance, expected.covariance, **(tolerance or TIGHT))


def assert_follows_the_full_ekf(estimator, family, problem, dynamics) -> None:
    expected = prior(problem)
    for (predicted, updated), (x, y) in zip(
        states(estimator, problem), observations(problem), strict=True
    ):
        expected = oracles.dense_predict(expected, *dynamics)
        assert_dense_close(to_dense(family, predicted.belief), expected)
        expected = oracles.dense_ekf(expected, problem.moments(expected.mean, x), y)
        assert_dense_close(to_dense(family, updated.belief), expected)


def test_fcekf_is_the_dense_ekf(problem, dynamics):
    learner = bs.fcekf(problem.model, problem.likelihood, **settings(dynamics))
    assert_follows_the_full_ekf(learner, dense, problem, dynamics)


def test_lofi_of_full_rank_is_the_full_ekf(problem, dynamics):
    rank = problem.model.size
    learner = bs.lofi(problem.model, problem.likelihood, rank=rank, **settings(dynamics))
    assert_follows_the_full_ekf(learner, lazy_dlr, problem, dynamics)


def test_spherical_lofi_of_full_rank_is_the_full_ekf(problem, dynamics):
    rank = problem.model.size
    learner = bs.lofi_spherical(problem.model, problem.likelihood, rank=rank, **settings(dynamics))
    assert_follows_the_full_ekf(learner, spherical, problem, dynamics)


@pytest.mark.parametrize("rank", [1, 4])
def test_lofi_is_the_papers_algorithm_with_an_svd(problem, dynamics, rank):
    learner = bs.lofi(problem.model, problem.likelihood, rank=rank, **settings(dynamics))
    mean = prior(problem).mean
    expected = oracles.DLR(mean, np.full(mean.size, PRECISION), np.zeros((mean.size, rank)))
    for (predicted, updated), (x, y) in zip(
        states(learner, problem), observations(problem), strict=True
    ):
        expected = oracles.lofi_predict(expected, *dynamics)
        assert_dense_close(to_dense(lazy_dlr, predicted.belief), oracles.dlr_to_dense(expected))
        expected = oracles.lofi_update(expected, problem.moments(expected.mean, x), y, rank)
        assert_dense_close(to_dense(lazy_dlr, updated.belief), oracles.dlr_to_dense(expected))
        close(settle(updated.belief).diag, expected.diag, **TIGHT)


def test_lofi_of_rank_zero_is_the_variational_diagonal_ekf(problem, dynamics):
    lofi = bs.lofi(problem.model, problem.likelihood, rank=0, **settings(dynamics))
    vdekf = bs.vdekf(problem.model, problem.likelihood, **settings(dynamics))
    mean, variance = prior(problem).mean, np.full(problem.model.size, 1 / PRECISION)
    for (_, low_rank), (_, diag), (x, y) in zip(
        states(lofi, problem), states(vdekf, problem), observations(problem), strict=True
    ):
        mean, variance = oracles.diagonal_predict(mean, variance, *dynamics)
        mean, precision = oracles.vdekf_update(mean, 1 / variance, problem.moments(mean, x), y)
        variance = 1 / precision
        for belief in (settle(low_rank.belief), diag.belief):
            close(belief.mean, mean, **TIGHT)
            close(belief.diag, precision, **TIGHT)


def test_fdekf_keeps_the_diagonal_of_the_exact_covariance(problem, dynamics):
    learner = bs.fdekf(problem.model, problem.likelihood, **settings(dynamics))
    mean, variance = prior(problem).mean, np.full(problem.model.size, 1 / PRECISION)
    for (_, state), (x, y) in zip(states(learner, problem), observations(problem), strict=True):
        mean, variance = oracles.diagonal_predict(mean, variance, *dynamics)
        mean, variance = oracles.fdekf_update(mean, variance, problem.moments(mean, x), y)
        close(state.belief.mean, mean, **TIGHT)
        close(diagonal.variance(state.belief), variance, **TIGHT)


@pytest.mark.parametrize("rank", [0, 1, 4])
def test_the_diagonal_of_the_precision_is_exact_after_truncation(problem, dynamics, rank):
    learner = bs.lofi(problem.model, problem.likelihood, rank=rank, **settings(dynamics))
    for (before, after), x in zip(states(learner, problem), problem.xs, strict=True):
        prior, posterior = settle(before.belief), settle(after.belief)
        belief = oracles.DLR(*map(np.asarray, (prior.mean, prior.diag, prior.factor.T)))
        exact = oracles.lofi_exact_precision(belief, problem.moments(belief.mean, x))
        kept = posterior.diag + np.sum(np.asarray(posterior.factor) ** 2, axis=0)
        close(kept, np.diag(exact), rtol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1, 4])
def test_spherical_lofi_is_the_papers_algorithm_with_an_svd(problem, dynamics, rank):
    learner = bs.lofi_spherical(problem.model, problem.likelihood, rank=rank, **settings(dynamics))
    mean = prior(problem).mean
    expected = oracles.Spherical(mean, PRECISION, np.zeros(rank), np.zeros((mean.size, rank)))
    for (predicted, updated), (x, y) in zip(
        states(learner, problem), observations(problem), strict=True
    ):
        expected = oracles.spherical_predict(expected, *dynamics)
        assert_dense_close(
            to_dense(spherical, predicted.belief), oracles.spherical_to_dense(expected)
        )
        expected = oracles.spherical_update(expected, problem.moments(expected.mean, x), y, rank)
        assert_dense_close(
            to_dense(spherical, updated.belief), oracles.spherical_to_dense(expected)
        )


def test_spherical_predict_is_its_dense_form(problem):
    learner = bs.lofi_spherical(problem.model, problem.likelihood, rank=4, **settings((0.9, 0.05)))
    predict, steps = jax.jit(learner.predict), [after for _, after in states(learner, problem)]
    for state in steps:
        before = oracles.Dense(*map(np.asarray, to_dense(spherical, state.belief)))
        after = to_dense(spherical, predict(state).belief)
        assert_dense_close(after, oracles.dense_predict(before, 0.9, 0.05))


def test_orthogonal_projection_visits_columns_in_the_order_the_key_gives(problem):
    rng = np.random.default_rng(3)
    project = jax.jit(bs.estimators.orthogonal)
    size = problem.model.size
    belief = SphericalGaussian(jnp.zeros(size), jnp.ones(()), jnp.zeros(4), jnp.zeros((4, size)))
    expected = np.zeros(4), np.zeros((size, 4))
    for step in range(40):
        matrix, key = rng.normal(size=(3, size)), jax.random.key(step)
        order = np.asarray(jax.random.permutation(key, 3))
        expected = oracles.svd_orth(*expected, matrix.T, order)
        G = rows.from_dense(jnp.asarray(matrix))
        belief, _ = project(belief, G, jnp.zeros(3), None, key)
        close(belief.scales, expected[0], **TIGHT)
        close(belief.basis, expected[1].T, **TIGHT)


def test_linear_gaussian_regression_is_exact():
    """One linear layer with enough rank: the closed-form posterior over all data at once."""
    rng = np.random.default_rng(2)
    model = mlp([3, 2])
    xs, ys = rng.normal(size=(45, 3)), rng.normal(size=(45, 2))
    likelihood = bs.likelihoods.gaussian(NOISE)
    start = model.init(jax.random.key(0))
    # The network is x ↦ Wᵀx + b, with W row by row and b last.
    design = [np.kron(np.append(x, 1.0), np.eye(2)) for x in xs]
    expected = oracles.bayesian_linear_regression(
        np.asarray(start), np.eye(model.size) / PRECISION, design, list(ys), NOISE
    )
    options = {"prior_precision": PRECISION}
    for learner, family in [
        (bs.lofi(model, likelihood, rank=model.size, **options), lazy_dlr),
        (bs.lofi_spherical(model, likelihood, rank=model.size, **options), spherical),
        (bs.fcekf(model, likelihood, **options), dense),
    ]:
        state, _ = bs.run(learner, learner.init(jax.random.key(0)), (xs, ys))
        assert_dense_close(to_dense(family, state.belief), expected)


INFLATIONS = {
    "simple": (bs.inflation.simple(0.05), lambda b, eta, mean: oracles.inflate_simple(b, 0.05)),
    "hybrid": (
        bs.inflation.hybrid(0.05),
        lambda b, eta, mean: oracles.inflate_hybrid(b, 0.05, eta),
    ),
    "bayesian": (
        bs.inflation.bayesian(0.05),
        lambda b, eta, mean: oracles.inflate_bayesian(b, 0.05, eta, mean),
    ),
}
FAMILIES = {"lofi": lazy_dlr, "fcekf": dense, "fdekf": diagonal, "vdekf": diagonal}


@pytest.mark.parametrize("method", FILTERS_LOFI_FIRST)
@pytest.mark.parametrize(
    "kind", ["bayesian", *(pytest.param(k, marks=pytest.mark.slow) for k in ("simple", "hybrid"))]
)
def test_inflation_then_dynamics_is_its_dense_form(problem, dynamics, kind, method):
    inflation, inflate = INFLATIONS[kind]
    family = FAMILIES.get(method, spherical)
    rank = {"rank": 3} if "lofi" in method else {}
    learner = bs.make(
        method, problem.model, problem.likelihood, inflation=inflation, **rank, **settings(dynamics)
    )
    start = prior(problem).mean
    before = oracles.Dense(
        *map(np.asarray, to_dense(family, learner.init(jax.random.key(0)).belief))
    )
    for step, (predicted, updated) in enumerate(states(learner, problem)):
        mean, eta = oracles.latent_prior(
            start, PRECISION, [dynamics[0]] * step, [dynamics[1]] * step
        )
        expected = oracles.dense_predict(inflate(before, eta, mean), *dynamics)
        assert_dense_close(to_dense(family, predicted.belief), expected)
        before = oracles.Dense(*map(np.asarray, to_dense(family, updated.belief)))


@pytest.mark.parametrize("kind", [None, *INFLATIONS])
def test_steps_without_an_observation_compose_like_their_dense_forms(kind):
    """Nothing is applied to LO-FI's arrays until the next update; what waits must add up."""
    problem, decay, drift = PROBLEMS["regression"](), 0.9, 0.05
    inflation, inflate = INFLATIONS[kind] if kind else (None, lambda belief, eta, mean: belief)
    learner = bs.lofi(
        problem.model, problem.likelihood, rank=3, inflation=inflation, **settings((decay, drift))
    )
    *_, (_, state) = states(learner, problem)
    predict = jax.jit(learner.predict)
    expected = oracles.Dense(*map(np.asarray, to_dense(lazy_dlr, state.belief)))
    for step in range(len(problem.xs), len(problem.xs) + 4):
        mean, eta = oracles.latent_prior(
            prior(problem).mean, PRECISION, [decay] * step, [drift] * step
        )
        expected = oracles.dense_predict(inflate(expected, eta, mean), decay, drift)
        state = predict(state)
        assert_dense_close(to_dense(lazy_dlr, state.belief), expected)


@pytest.mark.parametrize("method", ["lofi", "fcekf", "lofi_spherical"])
def test_a_batch_is_one_dense_conditioning(problem, dynamics, method):
    size = problem.model.size
    rank = {"rank": size} if "lofi" in method else {}
    learner = bs.make(method, problem.model, problem.likelihood, **rank, **settings(dynamics))
    family = {"lofi": lazy_dlr, "fcekf": dense}.get(method, spherical)
    state, expected = learner.init(jax.random.key(0)), prior(problem)
    step = jax.jit(lambda state, xs, ys: learner.update_batch(learner.predict(state), xs, ys))
    for low, high in pairwise(range(0, 46, 5)):
        xs, ys = problem.xs[low:high], problem.ys[low:high]
        state = step(state, xs, ys)
        expected = oracles.dense_predict(expected, *dynamics)
        expected = oracles.dense_ekf_batch(
            expected,
            [problem.moments(expected.mean, x) for x in xs],
            [problem.target(y) for y in ys],
        )
        assert_dense_close(to_dense(family, state.belief), expected, rtol=1e-8, atol=1e-8)


def test_a_truncated_batch_is_the_papers_algorithm_on_stacked_observations(problem, dynamics):
    rank = 3
    learner = bs.lofi(problem.model, problem.likelihood, rank=rank, **settings(dynamics))
    state, mean = learner.init(jax.random.key(0)), prior(problem).mean
    expected = oracles.DLR(mean, np.full(mean.size, PRECISION), np.zeros((mean.size, rank)))
    step = jax.jit(lambda state, xs, ys: learner.update_batch(learner.predict(state), xs, ys))
    for low, high in pairwise(range(0, 46, 5)):
        xs, ys = problem.xs[low:high], problem.ys[low:high]
        state = step(state, xs, ys)
        expected = oracles.lofi_predict(expected, *dynamics)
        moments = [problem.moments(expected.mean, x) for x in xs]
        expected = oracles.lofi_update_batch(
            expected, moments, [problem.target(y) for y in ys], rank
        )
        close(learner.mean(state), expected.mean, **TIGHT)
        close(settle(state.belief).diag, expected.diag, **TIGHT)
