"""Piecewise-stationary 1-d regression: how fast each method adapts when the function changes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from bayestream import likelihoods, streams
from bayestream.experiments import lines
from bayestream.forecasts import predictive
from bayestream.networks import models
from bayestream.running.run import run
from bayestream.types import Array, Estimator, Example, State, Stream

Floats = NDArray[np.float64]

TASKS, LENGTH, NOISE = 10, 250, 0.01
GRID: Floats = np.linspace(-2, 2, 101)
LEARNT = likelihoods.adaptive_student_t()  # nobody tells an untuned line how noisy the stream is

# The lines that the demo shows, of those in `piecewise.toml`.
SETTINGS: dict[str, dict[str, Any]] = {
    line: lines.read("piecewise")["piecewise"][line] for line in ("lofi", "fcekf", "fdekf", "vdekf")
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
    settings: Mapping[str, Any],
    seed: int,
    advance: Callable[[int], None] = lambda n: None,
) -> Outcome:
    """A line of `piecewise.toml` on the stream of a seed; `advance(steps)` is told of its progress.

    Its settings are plain data.
    """
    learner = _learner(json.dumps(settings))
    stream = streams.piecewise_regression(seed, tasks=TASKS, length=LENGTH, noise=NOISE)
    functions = jnp.asarray(truth(seed))
    grid = jnp.asarray(GRID)[:, None]

    def test_error(estimator: Estimator, state: State, example: Example) -> Array:
        fit = predictive.plugin(estimator, state, grid).mean[:, 0]
        return jnp.sqrt(jnp.mean((fit - functions[example.task]) ** 2))

    @jax.jit
    def forecast(state: State) -> tuple[Array, Array]:
        mean = predictive.plugin(learner, state, grid).mean[:, 0]
        if learner.covariance_of is None:
            return mean, jnp.full_like(mean, NOISE**0.5)
        doubting: Any = predictive.default(learner, state, grid)
        return mean, doubting.deviation[:, 0]

    state = learner.init(jax.random.key(seed))
    errors: list[Any] = []
    fits: list[Any] = []
    deviations: list[Any] = []
    for task in range(TASKS):
        chosen = stream.examples.task == task
        part = Stream(Example(*(field[chosen] for field in stream.examples)))
        state, records = run(learner, state, part, record=test_error, progress=False)
        errors.append(records.values)
        mean, deviation = forecast(state)
        fits.append(mean)
        deviations.append(deviation)
        advance(LENGTH)
    timed = _seconds_a_step(learner, stream)
    return Outcome(np.array(errors), np.array(fits), np.array(deviations), 1e6 * timed)


@lru_cache(maxsize=2)
def _learner(settings: str) -> Estimator:
    """Kept, so that the next stream's is not compiled again."""
    options = json.loads(settings)
    model = models.mlp([1, 50, 1], activation=jax.nn.relu)
    if options["method"] == "self_tuning":
        return lines.self_tuning(model, LEARNT, options)
    return lines.learner(model, likelihoods.gaussian(NOISE), options)


def _seconds_a_step(learner: Estimator, stream: Stream) -> float:
    """Learning alone, without records, and without compilation: the second of two runs."""
    state = learner.init(jax.random.key(0))
    run(learner, state, stream, record=None, progress=False)
    begin = time.perf_counter()
    jax.block_until_ready(run(learner, state, stream, record=None, progress=False))
    return (time.perf_counter() - begin) / len(stream)
