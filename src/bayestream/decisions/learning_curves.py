"""How much is learnt from how many labels, for several queries."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bayestream.checks import check_whole
from bayestream.decisions.pools import Rounds, rounds, say_refused
from bayestream.decisions.queries import Query
from bayestream.evaluation.evaluate import Forecaster, Metric, labelled, metrics_for, score_many
from bayestream.evaluation.results import Results
from bayestream.forecasts import predictive
from bayestream.progress import Progress
from bayestream.types import Estimator, Stream

Problem = Callable[[int], tuple[Stream, Stream]]  # trial → a pool, and what to be tested on


def learning_curves(
    learner: Estimator,
    problems: Problem,
    *,
    queries: Mapping[str, Query],
    budget: int,
    trials: int = 1,
    seed: int = 0,
    every: int = 1,
    together: int = 1,
    first: int = 0,
    candidates: int | None = None,
    metrics: Sequence[str] | Mapping[str, Metric] | None = None,
    forecast: Forecaster = predictive.default,
    progress: bool | None = None,
) -> Results:
    """Held-out scores against the number of labels, for several queries and trials.

    In a trial, all queries begin with the same weights and the same `first` labels.

    Args:
        learner: as in `pool`; so are the arguments not named here.
        problems: problems(trial) gives a pool with its labels, and examples to be tested on.
        queries: a name and a query each.
        budget: as in `pool`.
        trials: how many.
        seed: of the first trial; the next have the next seeds.
        every: how many labels between two tests, at least; there is one at the end.
        together: as in `pool`.
        first: as in `pool`.
        candidates: as in `pool`.
        metrics: as in `bs.evaluate.held_out`.
        forecast: as in `bs.evaluate.held_out`.
        progress: as in `run`.

    Returns:
        A row a test, with the number of labels as its step: `bs.plots.curves` draws them.

    >>> import bayestream as bs
    >>> learner = bs.lofi(bs.models.mlp([2, 8, 2]), bs.likelihoods.categorical(), rank=5)
    >>> results = learning_curves(
    ...     learner, lambda trial: (bs.streams.two_moons(trial), bs.streams.two_moons(99)),
    ...     queries={"random": bs.queries.random()}, budget=20, every=10, trials=2)
    >>> results.where(metric="misclassification", trial=0)["step"].tolist()
    [10, 20]
    """
    check_whole("trials", trials, 1)
    check_whole("every", every, 1)
    scored = metrics_for(metrics, learner)
    examine = score_many(learner, forecast, tuple(scored.items()))
    options = Rounds(budget, together, first, candidates)
    rows: list[dict[str, Any]] = []
    total = trials * len(queries) * budget
    with Progress("asking", total=total, show=progress) as bar:
        for trial in range(trials):
            key_init, key = jax.random.split(jax.random.key(seed + trial))
            (x, y, *_), tests = (part.examples for part in problems(trial))
            inputs, labels, test = jnp.asarray(x), np.asarray(y), labelled(tests)
            for name, query in queries.items():
                state, tested, known = learner.init(key_init), 0, 0
                told = rounds(learner, state, inputs, labels.__getitem__, query, key, options)
                for state, asked in told:
                    bar.advance(len(asked) - known)
                    known = len(asked)
                    if known < budget and known - tested < every:
                        continue
                    tested, found = known, examine(state, *test)
                    rows += [
                        {
                            "method": name,
                            "metric": metric,
                            "trial": trial,
                            "step": known,
                            "value": float(found[metric]),
                        }
                        for metric in scored
                    ]
                say_refused(learner.refused(state), budget)
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    return Results.of(summary="held out", task=np.zeros(len(rows), int), **columns)


def labels_needed(results: Results, *, metric: str, target: float) -> dict[str, int | None]:
    """How many labels it takes until a loss, its mean over trials, stays at `target` or below.

    None for a query that does not get there.

    >>> results = Results.of(method="bald", metric="rmse", summary="held out", trial=0, task=0,
    ...                      step=[1, 2, 3, 4], value=[5.0, 1.0, 2.0, 1.5])
    >>> labels_needed(results, metric="rmse", target=2.0)
    {'bald': 2}
    """
    needed: dict[str, int | None] = {}
    for method in results.unique("method"):
        curve = results.where(metric=metric, method=method).averaged()
        order = np.argsort(curve["step"])
        steps, reached = curve["step"][order], curve["mean"][order] <= target
        lasting = np.flatnonzero(~reached)[-1] + 1 if not reached.all() else 0
        needed[method] = int(steps[lasting]) if lasting < len(steps) else None
    return needed
