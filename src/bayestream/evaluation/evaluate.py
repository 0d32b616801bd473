"""How well learners do along a stream: test-then-train, or on held-out data of the moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bayestream.checks import check_whole
from bayestream.evaluation.results import Results
from bayestream.evaluation.summaries import Summary, cumulative, window
from bayestream.forecasts import Forecast, predictive, scores
from bayestream.progress import Progress
from bayestream.running.run import Record, run_together
from bayestream.types import Array, Estimator, Example, Key, State, Stream

Forecaster = Callable[[Estimator, State, Any], Forecast]  # as those of `predictive`
Streams = Stream | Callable[[int], Stream]  # one for all trials, or each trial's own
Tests = Callable[[int], Example]  # after so many steps, what to be tested on


class Metric(NamedTuple):
    """A number of (forecast, y), and the power in which it is averaged over steps."""

    score: Callable[[Any, Any], Array]
    power: float = 1.0  # 2 for a root mean square


METRICS: dict[str, Metric] = {
    "brier": Metric(scores.brier),
    "crps": Metric(scores.crps),
    "misclassification": Metric(scores.misclassification),
    "nlpd": Metric(scores.nlpd),
    "rmse": Metric(scores.rmse, power=2.0),
}
REGRESSION = ("rmse", "nlpd")
CLASSIFICATION = ("misclassification", "nlpd")


def prequential(
    learners: Mapping[str, Estimator],
    streams: Streams,
    *,
    metrics: Sequence[str] | Mapping[str, Metric] | None = None,
    forecast: Forecaster = predictive.default,
    summaries: Sequence[Summary] = (cumulative, window(200)),
    trials: int = 1,
    seed: int = 0,
    progress: bool | None = None,
) -> Results:
    """Test, then train: each example is forecast before it is learnt from.

    Args:
        learners: a name and an estimator each.
        streams: one stream, or a function of the trial (0, 1, …) that gives one. Labels that are
            missing are not scored; labels with a delay are scored where they were asked for.
        metrics: names of `METRICS`, or values of your own; by default RMSE and NLPD, or for
            classes misclassification and NLPD.
        forecast: from belief to forecast, such as `bs.predictive.plugin`.
        summaries: of the scores along the stream: `bs.summaries.each`, `cumulative`, `window(200)`,
            `fading(0.99)`.
        trials: how many, each with its own initial weights (and stream). They run together under
            vmap if their states fit into memory, else one after another; the numbers are the same.
        seed: of the first trial's weights; the next have the next seeds.
        progress: as in `run`.

    >>> import bayestream as bs
    >>> learner = bs.lofi(bs.models.mlp([1, 1]), bs.likelihoods.gaussian(0.01), rank=2)
    >>> stream = bs.streams.piecewise_regression(0, tasks=2, length=20)
    >>> results = bs.evaluate.prequential({"lofi": learner}, stream, trials=2)
    >>> results.unique("metric"), results.unique("summary"), len(results)
    (['rmse', 'nlpd'], ['cumulative', 'window 200'], 320)
    """
    chosen = _chosen(streams, trials)
    parts: list[Results] = []
    with _progress(chosen, learners, progress) as bar:
        for method, learner, group, states, keys in _work(learners, chosen, seed):
            scored = metrics_for(metrics, learner)
            record = score_each(forecast, tuple(scored.items()))
            part = [chosen[trial] for trial in group]
            _, records = run_together(learner, states, part, record=record, keys=keys)
            for trial, kept in zip(group, records, strict=True):
                task = np.asarray(chosen[trial].examples.task)
                parts += _summarised(method, trial, scored, summaries, kept.values, task)
            bar.advance(sum(map(len, part)))
    return Results.joined(parts)


def held_out(
    learners: Mapping[str, Estimator],
    streams: Streams,
    tests: Callable[[int], Tests],
    *,
    every: int,
    metrics: Sequence[str] | Mapping[str, Metric] | None = None,
    forecast: Forecaster = predictive.default,
    trials: int = 1,
    seed: int = 0,
    progress: bool | None = None,
) -> Results:
    """Train, and every so many steps test on held-out examples of the current distribution.

    Args:
        learners: as in `prequential`; so are the arguments not named here.
        streams: as in `prequential`.
        tests: tests(trial)(steps) gives the examples to be tested on after so many steps. See
            `around`, `of_task` and `always`.
        every: how many steps between two tests; the last is at the end of the stream.
        metrics: as in `prequential`; here also scores of many examples at once, such as
            `Metric(bs.scores.expected_calibration_error)`.
        forecast: as in `prequential`.
        trials: as in `prequential`.
        seed: as in `prequential`.
        progress: as in `run`.

    >>> import bayestream as bs
    >>> learner = bs.lofi(bs.models.mlp([1, 1]), bs.likelihoods.gaussian(0.01), rank=2)
    >>> train, test = (bs.streams.drifting_linear_regression(s, steps=90, inputs=1) for s in (0, 1))
    >>> results = bs.evaluate.held_out(
    ...     {"lofi": learner}, train, lambda trial: bs.evaluate.around(test, 20), every=30)
    >>> results.where(metric="rmse")["step"].tolist()
    [30, 60, 90]
    """
    check_whole("every", every, 1)
    chosen = _chosen(streams, trials)
    if any(np.any(stream.examples.delay) for stream in chosen):
        raise ValueError("streams must have no delayed labels here; prequential takes them.")
    examined = [tests(trial) for trial in range(trials)]
    parts: list[Results] = []
    with _progress(chosen, learners, progress) as bar:
        for method, learner, group, states, keys in _work(learners, chosen, seed):
            scored = metrics_for(metrics, learner)
            examine = score_many(learner, forecast, tuple(scored.items()))
            for start in range(0, len(chosen[group[0]]), every):
                part = [_cut(chosen[trial], start, start + every) for trial in group]
                now = [jax.random.fold_in(key, start) for key in keys]
                states, _ = run_together(learner, states, part, record=None, keys=now)
                step = start + len(part[0])
                for trial, state in zip(group, states, strict=True):
                    found = examine(state, *labelled(examined[trial](step)))
                    task = np.asarray(chosen[trial].examples.task)[step - 1]
                    parts += [
                        _rows(method, metric, "held out", trial, step, task, float(value))
                        for metric, value in found.items()
                    ]
                bar.advance(sum(map(len, part)))
    return Results.joined(parts)


def around(stream: Stream, size: int = 200) -> Tests:
    """The `size` examples of a stream nearest to the current step: it drifts as training does.

    >>> stream = Stream(Example(np.zeros((9, 1)), np.arange(9.0)))
    >>> around(stream, 4)(5).y.tolist()
    [3.0, 4.0, 5.0, 6.0]
    """
    check_whole("size", size, 1)

    def tests(step: int) -> Example:
        first = min(max(step - size // 2, 0), max(len(stream) - size, 0))
        return _cut(stream, first, first + size).examples

    return tests


def of_task(stream: Stream, training: Stream, size: int = 500) -> Tests:
    """The first `size` examples of the task that training is in.

    >>> stream = Stream(Example(np.zeros((4, 1)), np.arange(4.0), np.array([0, 0, 1, 1])))
    >>> of_task(stream, stream)(3).y.tolist()
    [2.0, 3.0]
    """
    check_whole("size", size, 1)
    task = np.asarray(stream.examples.task)
    current = np.asarray(training.examples.task)

    def tests(step: int) -> Example:
        return stream.select(np.flatnonzero(task == current[step - 1])[:size]).examples

    return tests


def always(stream: Stream) -> Tests:
    """The whole of a stream, whenever: for training that does not drift.

    >>> len(always(Stream(Example(np.zeros((4, 1)), np.arange(4.0))))(1).x)
    4
    """
    return lambda step: stream.examples


def _chosen(streams: Streams, trials: int) -> list[Stream]:
    """Each trial's stream."""
    check_whole("trials", trials, 1)
    return [streams if isinstance(streams, Stream) else streams(trial) for trial in range(trials)]


def _progress(
    chosen: Sequence[Stream], learners: Mapping[str, Estimator], show: bool | None
) -> Progress:
    return Progress("evaluating", total=sum(map(len, chosen)) * len(learners), show=show)


def _work(
    learners: Mapping[str, Estimator], chosen: Sequence[Stream], seed: int
) -> Iterator[tuple[str, Estimator, list[int], list[State], list[Key]]]:
    """Method, learner, trials to run together, their first states and their keys for updates."""
    for method, learner in learners.items():
        for group in _groups(learner, chosen):
            weights = [jax.random.key(seed + trial) for trial in group]
            states = [learner.init(key) for key in weights]
            yield method, learner, group, states, [jax.random.fold_in(key, 1) for key in weights]


def _cut(stream: Stream, first: int, last: int) -> Stream:
    return Stream(Example(*(field[first:last] for field in stream.examples)))


# States of this many bytes in all run together; larger ones gain nothing from company.
_TOGETHER = 2**28


def room_for(init: Callable[[Key], State]) -> int:
    """How many states such as `init` makes may run together."""
    shapes = jax.tree.leaves(jax.eval_shape(init, jax.random.key(0)))
    size = sum(leaf.size * leaf.dtype.itemsize for leaf in shapes)
    return max(1, _TOGETHER // size)


def _groups(learner: Estimator, streams: Sequence[Stream]) -> Iterator[list[int]]:
    alike = len({len(stream) for stream in streams}) == 1
    count = room_for(learner.init) if alike else 1
    trials = list(range(len(streams)))
    return (trials[first : first + count] for first in range(0, len(trials), count))


def metrics_for(
    metrics: Sequence[str] | Mapping[str, Metric] | None, learner: Estimator
) -> dict[str, Metric]:
    """The metrics asked for; unless any are, those that fit the learner's targets."""
    if isinstance(metrics, Mapping):
        return dict(metrics)
    if metrics is None:
        kind = learner.likelihood(learner.init(jax.random.key(0))).name
        metrics = CLASSIFICATION if kind == "categorical" else REGRESSION
    for name in metrics:
        if name not in METRICS:
            raise ValueError(f"metrics must be among {', '.join(METRICS)}, got {name!r}.")
    return {name: METRICS[name] for name in metrics}


# Kept, so that the same question asked of another trial is not compiled again.
@lru_cache(maxsize=64)
def score_each(forecast: Forecaster, metrics: tuple[tuple[str, Metric], ...]) -> Record:
    """A record for `run`: the score of each example's forecast, NaN where its label is missing."""

    def record(estimator: Estimator, state: State, example: Example) -> dict[str, Array]:
        y = jnp.asarray(example.y).astype(estimator.mean(state).dtype)
        missing = estimator.likelihood(state).missing(y)
        found = forecast(estimator, state, example.x)
        known = jnp.where(missing, jnp.zeros_like(y), y)
        # NaN is a label that is missing; a forecast that is not a number has an infinite loss.
        losses = {name: metric.score(found, known) for name, metric in metrics}
        losses = {name: jnp.where(jnp.isnan(v), jnp.inf, v) for name, v in losses.items()}
        return {name: jnp.where(missing, jnp.nan, v) for name, v in losses.items()}

    return record


@lru_cache(maxsize=8)
def score_many(
    learner: Estimator, forecast: Forecaster, metrics: tuple[tuple[str, Metric], ...]
) -> Callable[[State, Array, Array], dict[str, Array]]:
    """The scores of a belief on many examples, compiled."""

    def examine(state: State, x: Array, y: Array) -> dict[str, Array]:
        found = forecast(learner, state, x)
        return {name: metric.score(found, y) for name, metric in metrics}

    return jax.jit(examine)


def labelled(examples: Example) -> tuple[Array, Array]:
    """X and Y of the examples that have a label, to be tested on; at least one must."""
    y = np.asarray(examples.y, np.float64)
    known = np.flatnonzero(~np.isnan(y).all(axis=tuple(range(1, y.ndim))))
    if not len(known):
        raise ValueError("tests must hold at least one example with a label, got none.")
    x = np.asarray(examples.x[known])  # which may be made only now
    return jnp.asarray(x), jnp.asarray(np.asarray(examples.y)[known])


def _summarised(
    method: str,
    trial: int,
    metrics: Mapping[str, Metric],
    summaries: Sequence[Summary],
    values: Mapping[str, Array],
    task: np.ndarray,
) -> Iterator[Results]:
    steps = np.arange(1, len(task) + 1)
    for name, metric in metrics.items():
        losses = np.asarray(values[name], np.float64) ** metric.power
        for summary in summaries:
            found = summary.of(losses) ** (1 / metric.power)
            yield _rows(method, name, summary.name, trial, steps, task, found)


def _rows(
    method: str, metric: str, summary: str, trial: int, step: Any, task: Any, value: Any
) -> Results:
    return Results.of(
        method=method,
        metric=metric,
        summary=summary,
        trial=trial,
        step=np.atleast_1d(step),
        task=np.atleast_1d(task),
        value=np.atleast_1d(value),
    )
