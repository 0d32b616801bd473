"""Piecewise-stationary 1-d regression: how fast each method adapts when the function changes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from bayestream import estimators, likelihoods, streams
from bayestream.forecasts import predictive
from bayestream.networks import models
from bayestream.running.run import run
from bayestream.types import Array, Estimator, Example, State, Stream

Floats = NDArray[np.float64]

TASKS, LENGTH, NOISE = 10, 250, 0.01
GRID: Floats = np.linspace(-2, 2, 101)

# The best of a grid by the mean test error on the streams of seeds 100 to 104: prior precision 0.1
# to 10, drift 0 to 0.1, decay 0.99 to 1. The streams that are shown were not looked at.
SETTINGS: dict[str, dict[str, Any]] = {
    "lofi": {"rank": 10, "prior_precision": 1.0, "drift": 1e-5},
    "fcekf": {"prior_precision": 3.0, "drift": 1e-5},
    "fdekf": {"prior_precision": 10.0},
    "vdekf": {"prior_precision": 0.1},
}


class Outcome(NamedTuple):
    """What one method did on the stream."""

    error: Floats  # RMSE on the current task's grid, before each step (tasks, length)
    fit: Floats  # the forecast on the grid at the end of each task (tasks, grid)
    deviation: Floats  # its standard deviation (tasks, grid)
    microseconds: float  # a step of learning, compiled

    @property
    def by_task(self) -> Floats:
        """Root mean square of `error` over each task."""
        return np.sqrt(np.mean(self.error**2, axis=1))

    @property
    def overall(self) -> float:
        """Root mean square of `error` over the stream."""
        return float(np.sqrt(np.mean(self.error**2)))


def truth(seed: int) -> Floats:
    """Each task's function on the grid (tasks, grid)."""
    return streams.waves(seed, tasks=TASKS)(np.arange(TASKS)[:, None], GRID)


def trial(
    method: str,
    seed: int,
    settings: dict[str, Any],
    advance: Callable[[int], None] = lambda n: None,
) -> Outcome:
    """One method on the stream of one seed; `advance(steps)` is told of its progress."""
    model = models.mlp([1, 50, 1], activation=jax.nn.relu)
    noise = likelihoods.gaussian(NOISE)
    learner = estimators.make(method, model, noise, line_search=None, **settings)  # as the paper
    stream = streams.piecewise_regression(seed, tasks=TASKS, length=LENGTH, noise=NOISE)
    functions = jnp.asarray(truth(seed))
    grid = jnp.asarray(GRID)[:, None]

    def test_error(estimator: Estimator, state: State, example: Example) -> Array:
        params = estimator.mean(state)
        fit = jax.vmap(lambda x: model.apply(params, x)[0])(grid)
        return jnp.sqrt(jnp.mean((fit - functions[example.task]) ** 2))

    forecast = jax.jit(
        lambda state: jax.vmap(lambda x: predictive.linearized(learner, state, x))(grid)
    )
    state = learner.init(jax.random.key(seed))
    errors: list[Any] = []
    fits: list[Any] = []
    deviations: list[Any] = []
    for task in range(TASKS):
        chosen = stream.examples.task == task
        part = Stream(Example(*(field[chosen] for field in stream.examples)))
        state, records = run(learner, state, part, record=test_error, progress=False)
        errors.append(records.values)
        mean, covariance = forecast(state)
        fits.append(mean[:, 0])
        deviations.append(jnp.sqrt(covariance[:, 0, 0]))
        advance(LENGTH)
    timed = _seconds_a_step(learner, stream)
    return Outcome(np.array(errors), np.array(fits), np.array(deviations), 1e6 * timed)


def _seconds_a_step(learner: Estimator, stream: Stream) -> float:
    """Learning alone, without records, and without compilation: the second of two runs."""
    state = learner.init(jax.random.key(0))
    run(learner, state, stream, record=None, progress=False)
    begin = time.perf_counter()
    jax.block_until_ready(run(learner, state, stream, record=None, progress=False))
    return (time.perf_counter() - begin) / len(stream)
