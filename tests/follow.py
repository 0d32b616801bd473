"""Estimators and their dense versions side by side on the same short streams."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayestream as bs
import method_oracles as methods
import oracles
from problems import PROBLEMS, Problem, mlp

PRECISION = 2.0
STEPS = 14
MISSING_AT = 5
DRIFTING = {"decay": 0.98, "drift": 0.01}


def shortened(name: str) -> Problem:
    """One of the shared problems, cut to a few steps, with one label missing."""
    full = PROBLEMS[name]()
    ys = full.ys[:STEPS].copy()
    ys[MISSING_AT] = -1 if ys.ndim == 1 else np.nan
    return full._replace(xs=full.xs[:STEPS], ys=ys)


def on_problems(names: tuple[str, ...], *cases: tuple[Any, ...]) -> pytest.MarkDecorator:
    """Cases of a problem's name and further arguments; the test is given the problem itself."""
    given = [(shortened(name), *rest) for name, *rest in cases]
    labels = ["-".join(map(str, case)) for case in cases]
    return pytest.mark.parametrize(("problem", *names), given, ids=labels)


@cache
def scalar_problem(sizes: tuple[int, ...], count: int, noise: float, seed: int = 0) -> Problem:
    """One output; the inputs are correlated, so that the posterior's precision is not diagonal."""
    rng = np.random.default_rng(seed)
    model = mlp(sizes, activation=jnp.tanh)
    mix = rng.normal(size=(sizes[0], sizes[0])) / np.sqrt(sizes[0])
    xs = rng.normal(size=(count, sizes[0])) @ mix
    ys = np.sin(xs.sum(axis=1, keepdims=True)) + np.sqrt(noise) * rng.normal(size=(count, 1))
    moments = partial(oracles.gaussian_moments, model.apply, noise=noise)
    return Problem(model, bs.likelihoods.gaussian(noise), xs, ys, moments, lambda y: y)


def view(problem: Problem) -> methods.View:
    if problem.likelihood is PROBLEMS["classification"]().likelihood:
        return methods.categorical_view(problem.model.apply)
    noise = problem.moments(start(problem), problem.xs[0]).covariance
    return methods.gaussian_view(problem.model.apply, noise)


def start(problem: Problem) -> np.ndarray:
    return np.asarray(problem.model.init(jax.random.key(0)))


def stream(problem: Problem):
    for x, y in zip(problem.xs, problem.ys, strict=True):
        missing = bool(problem.likelihood.missing(jnp.asarray(y)))
        yield x, None if missing else problem.target(y)


def oracle(method: Callable[..., Any], problem: Problem, **options: Any) -> Any:
    """A dense method on the problem's stream, from the estimator's own starting point."""
    return method(view(problem), start(problem), stream(problem), **options)


def designs(problem: Problem) -> np.ndarray:
    """Rows (x, 1): the Jacobian of a linear model of one output."""
    return np.column_stack([problem.xs, np.ones(len(problem.xs))])


def initial(estimator: bs.Estimator):
    """The first state."""
    return estimator.init(jax.random.key(0))


def states(estimator: bs.Estimator, problem: Problem):
    """(predicted, updated) at each step, with a key of its own."""
    predict, update = jax.jit(estimator.predict), jax.jit(estimator.update)
    state = initial(estimator)
    for index, (x, y) in enumerate(zip(problem.xs, problem.ys, strict=True)):
        predicted = predict(state)
        state = update(predicted, x, y, jax.random.key(index))
        yield predicted, state


def to_dense(estimator: bs.Estimator, state) -> oracles.Dense:
    """Mean and covariance through the public interface."""
    covariance = estimator.covariance_between(state, jnp.eye(estimator.model.size))
    return oracles.Dense(np.asarray(estimator.mean(state)), np.asarray(covariance))


def beliefs(estimator: bs.Estimator, problem: Problem):
    return [to_dense(estimator, state) for _, state in states(estimator, problem)]


def last(estimator: bs.Estimator, problem: Problem):
    """The state after the whole stream."""
    *_, (_, state) = states(estimator, problem)
    return state


def near(actual, expected, rtol: float = 1e-8) -> None:
    """Relative to each entry, or to the largest for the entries close to zero."""
    scale = np.max(np.abs(expected))
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=rtol * scale)


def assert_same_beliefs(actual, expected, rtol: float = 1e-8) -> None:
    for one, other in zip(actual, expected, strict=True):
        near(one.mean, other.mean, rtol)
        near(one.covariance, other.covariance, rtol)


def assert_means_follow(estimator: bs.Estimator, problem: Problem, expected) -> None:
    for (_, state), mean in zip(states(estimator, problem), expected, strict=True):
        near(estimator.mean(state), mean)


def exact_posterior(problem: Problem, noise: float) -> oracles.Dense:
    """Closed-form Bayesian linear regression on the whole stream."""
    prior, rows = np.eye(problem.model.size) / PRECISION, designs(problem)[:, None, :]
    return oracles.bayesian_linear_regression(
        start(problem), prior, list(rows), list(problem.ys), np.atleast_2d(noise)
    )


def one_step_over_keys(learner: bs.Estimator, state, x, y, count: int) -> oracles.Dense:
    """Means and covariances, with a leading axis, of one update under `count` keys."""

    def step(key):
        after = learner.update(state, x, y, key)
        return learner.mean(after), learner.covariance_between(after, jnp.eye(learner.model.size))

    return oracles.Dense(
        *map(np.asarray, jax.jit(jax.vmap(step))(jax.random.split(jax.random.key(7), count)))
    )


def assert_mean_of_draws(draws: np.ndarray, expected: np.ndarray) -> None:
    """Within five standard errors; where nothing is random, to rounding."""
    error = draws.std(axis=0, ddof=1) / np.sqrt(len(draws))
    assert np.all(np.abs(draws.mean(axis=0) - expected) <= 5 * error + 1e-9 * np.abs(expected))


def diagonals_of_precision(beliefs: oracles.Dense) -> np.ndarray:
    return np.linalg.inv(beliefs.covariance).diagonal(axis1=1, axis2=2)
