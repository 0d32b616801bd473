"""What tuning makes small: how badly a learner forecasts a stream, or data held out of it."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np

from bayestream.evaluation.evaluate import METRICS, Forecaster, labelled, score_each, score_many
from bayestream.forecasts import predictive
from bayestream.running.run import run
from bayestream.types import Estimator, Stream

# Told how good a trial is after each stretch of the stream; raises HopelessError to give it up.
Report = Callable[[float], None]
_PIECES = 4  # stretches of the stream between which a trial may be given up
_NLPD = (("nlpd", METRICS["nlpd"]),)


class HopelessError(Exception):
    """A trial that is not worth finishing."""


class Objective(NamedTuple):
    """What is to be small, and in a few words what it is about: a resumed search must agree."""

    value: Callable[[Estimator, Report], float]
    about: str


def prequential(
    stream: Stream, *, forecast: Forecaster = predictive.default, seed: int = 0
) -> Objective:
    """The mean negative log predictive density of each example before it is learnt from.

    >>> import bayestream as bs
    >>> stream = bs.streams.drifting_linear_regression(0, steps=20, inputs=2)
    >>> learner = bs.vdekf(bs.models.mlp([2, 1]), bs.likelihoods.gaussian(1.0))
    >>> bs.tune.prequential(stream).value(learner, lambda so_far: None) > 0
    True
    """
    record = score_each(forecast, _NLPD)

    def value(learner: Estimator, report: Report) -> float:
        state = learner.init(jax.random.key(seed))
        losses: list[float] = []
        for number, piece in enumerate(_pieces(stream)):
            key = jax.random.fold_in(jax.random.key(seed), number)
            state, kept = run(learner, state, piece, record=record, key=key, progress=False)
            losses += np.asarray(kept["nlpd"], np.float64).tolist()
            if not np.isnan(losses).all():
                report(float(np.nanmean(losses)))
        return float(np.nanmean(losses))

    labelled(stream.examples)
    return Objective(value, f"prequential, seed {seed}, {_fingerprint(stream)}")


def validation(
    train: Stream, held_out: Stream, *, forecast: Forecaster = predictive.default, seed: int = 0
) -> Objective:
    """The negative log predictive density of held-out data after training; for data at rest.

    What is held out must be part of the training data: the test set has no place in tuning.

    >>> import bayestream as bs
    >>> stream = bs.streams.drifting_linear_regression(0, steps=20, inputs=2)
    >>> bs.tune.validation(stream.take(15), stream.select(range(15, 20))).about[:27]
    'validation, seed 0, (15, 2)'
    """
    x, y = labelled(held_out.examples)

    def value(learner: Estimator, report: Report) -> float:
        examine = score_many(learner, forecast, _NLPD)
        state, found = learner.init(jax.random.key(seed)), math.nan
        for number, piece in enumerate(_pieces(train)):
            key = jax.random.fold_in(jax.random.key(seed), number)
            state, _ = run(learner, state, piece, record=None, key=key, progress=False)
            found = float(examine(state, x, y)["nlpd"])
            report(found)
        return found

    about = f"{_fingerprint(train)}, {_fingerprint(held_out)}"
    return Objective(value, f"validation, seed {seed}, {about}")


def _pieces(stream: Stream) -> list[Stream]:
    if np.any(stream.examples.delay):  # labels would get lost between the pieces
        return [stream]
    return [stream.select(part) for part in np.array_split(np.arange(len(stream)), _PIECES)]


def _fingerprint(stream: Stream) -> str:
    labels = np.ascontiguousarray(stream.examples.y, np.float64)
    return (
        f"{stream.examples.x.shape} {hashlib.blake2b(labels.tobytes(), digest_size=8).hexdigest()}"
    )
