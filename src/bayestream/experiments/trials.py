"""One trial: a learner tested along a stream; one that diverges has infinite losses."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from bayestream.evaluation import Results, evaluate
from bayestream.evaluation.evaluate import Forecaster, Metric, Tests
from bayestream.forecasts import predictive
from bayestream.running.refusals import RefusedError
from bayestream.types import Estimator, Stream


def losses_along(
    line: str,
    learner: Estimator,
    train: Stream,
    tests: Tests,
    *,
    every: int,
    metrics: Mapping[str, Metric],
    trial: int,
    forecast: Forecaster = predictive.default,
) -> Results:
    """`evaluate.held_out` of one trial, whose number is the seed of the first weights.

    >>> import bayestream as bs
    >>> learner = bs.vdekf(bs.models.mlp([1, 1]), bs.likelihoods.gaussian(0.1))
    >>> stream = bs.streams.drifting_linear_regression(0, steps=20, inputs=1)
    >>> found = losses_along("vdekf", learner, stream, evaluate.always(stream), every=10, trial=3,
    ...                      metrics={"rmse": evaluate.METRICS["rmse"]})
    >>> found["step"].tolist(), found["trial"].tolist()
    ([10, 20], [3, 3])
    """
    try:
        found = evaluate.held_out(
            {line: learner},
            train,
            lambda _: tests,
            every=every,
            metrics=metrics,
            forecast=forecast,
            seed=trial,
            progress=False,
        )
    except RefusedError:
        steps = [*range(every, len(train), every), len(train)]
        return Results.of(
            method=line,
            metric=np.repeat(list(metrics), len(steps)),
            summary="held out",
            trial=trial,
            step=np.tile(steps, len(metrics)),
            task=0,
            value=np.inf,
        )
    # What is not a number was not learnt.
    values = np.where(np.isnan(found["value"]), np.inf, found["value"])
    return Results.of(**{**found.columns, "trial": trial, "value": values})
