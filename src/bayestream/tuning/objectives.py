"""What tuning makes small: how badly learners forecast a stream, or data held out of it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from bayestream.evaluation.evaluate import (
    METRICS,
    Forecaster,
    Metric,
    labelled,
    room_for,
    score_each,
)
from bayestream.forecasts import predictive
from bayestream.running.chunks import chunked
from bayestream.running.refusals import RefusedError, is_most, labels
from bayestream.running.run import Record, key_of, one_step, refuse, run
from bayestream.types import Array, Estimator, Example, Key, State, Stream

Make = Callable[[Mapping[str, Any]], Estimator]  # from numbers to a learner
Numbers = Mapping[str, Array]  # of several learners, each (B,)
Ask = Callable[[], None]  # whether to go on; raises if not
_NLPD = (("nlpd", METRICS["nlpd"]),)


class Values(NamedTuple):
    """Of several learners."""

    losses: NDArray[Any]  # (B,); not finite where there is none
    refused: NDArray[Any]  # (B,): were most of its updates refused?


class Objective(NamedTuple):
    """What is to be small, and in a few words what it is about: a resumed search must agree."""

    values: Callable[[Make, Numbers, int, Ask], Values]  # (make, numbers, B, ask)
    about: str

    def value(self, learner: Estimator) -> float:
        """Of one learner.

        >>> import bayestream as bs
        >>> stream = bs.streams.drifting_linear_regression(0, steps=20, inputs=2)
        >>> learner = bs.vdekf(bs.models.mlp([2, 1]), bs.likelihoods.gaussian(1.0))
        >>> bs.tune.prequential(stream).value(learner) > 0
        True
        """
        return float(self.values(lambda numbers: learner, {}, 1, lambda: None).losses[0])


def prequential(
    stream: Stream, *, forecast: Forecaster = predictive.default, seed: int = 0
) -> Objective:
    """The mean negative log predictive density of each example before it is learnt from.

    >>> import bayestream as bs
    >>> stream = bs.streams.drifting_linear_regression(0, steps=20, inputs=2)
    >>> bs.tune.prequential(stream).about[:28]
    'prequential, seed 0, (20, 2)'
    """
    record = score_each(forecast, _NLPD)

    def values(make: Make, numbers: Numbers, count: int, ask: Ask) -> Values:
        parts: list[Values] = []
        for lanes, size in _lanes(make, numbers, count):
            state, losses = _learnt(make, record, lanes, size, stream, seed, ask)
            found = np.nanmean(losses["nlpd"], axis=1)
            parts.append(Values(found, _refused(make, lanes, size, state, stream)))
        return joined(parts)

    labelled(stream.examples)
    return Objective(values, f"prequential, seed {seed}, {_fingerprint(stream)}")


def validation(
    train: Stream,
    held_out: Stream,
    *,
    forecast: Forecaster = predictive.default,
    metric: Metric = METRICS["nlpd"],
    seed: int = 0,
) -> Objective:
    """The negative log predictive density of held-out data after training; for data at rest.

    What is held out must be part of the training data: the test set has no place in tuning. Where
    another number is reported in the end, `metric` is that: `bs.evaluate.METRICS["rmse"]`.

    >>> import bayestream as bs
    >>> stream = bs.streams.drifting_linear_regression(0, steps=20, inputs=2)
    >>> bs.tune.validation(stream.take(15), stream.select(range(15, 20))).about[:27]
    'validation, seed 0, (15, 2)'
    """
    x, y = labelled(held_out.examples)

    def values(make: Make, numbers: Numbers, count: int, ask: Ask) -> Values:
        parts: list[Values] = []
        for lanes, size in _lanes(make, numbers, count):
            state, _ = _learnt(make, None, lanes, size, train, seed, ask)
            losses = _examined(make, forecast, metric, lanes, size, state, x, y)
            found = np.asarray(losses, np.float64)
            parts.append(Values(found, _refused(make, lanes, size, state, train)))
        return joined(parts)

    about = f"{_fingerprint(train)}, {_fingerprint(held_out)}"
    return Objective(values, f"validation, seed {seed}, {about}")


def _lanes(make: Make, numbers: Numbers, count: int) -> Iterator[tuple[Numbers, int]]:
    """As many learners at a time as their states leave room for."""
    first = {name: values[0] for name, values in numbers.items()}
    room = room_for(lambda key: make(first).init(key))
    for start in range(0, count, room):
        own = {name: values[start : start + room] for name, values in numbers.items()}
        yield own, min(room, count - start)


def _learnt(
    make: Make,
    record: Record | None,
    numbers: Numbers,
    size: int,
    stream: Stream,
    seed: int,
    ask: Ask,
) -> tuple[State, Any]:
    """Every learner's state after the stream, stacked, and what was recorded: (B, rows)."""
    key = jax.random.key(seed)
    if np.any(stream.examples.delay):
        return _one_by_one(make, record, numbers, size, stream, key, ask)
    states = _begin(make, numbers, size, key)
    learner = make({name: values[0] for name, values in numbers.items()})
    own = jax.tree.map(lambda leaf: leaf[0], states)
    dtype = learner.mean(own).dtype
    chunks, _ = chunked(stream, learner.model, learner.likelihood(own), dtype)
    kept: list[Any] = []
    for chunk in chunks:
        ask()
        refuse(chunk.bad)
        states, values = _advance(
            make, record, numbers, size, states, chunk.good, chunk.positions, key
        )
        jax.block_until_ready(states)  # or all would be asked at once, and then nothing for long
        kept.append(jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), values))
    return states, jax.tree.map(lambda *parts: np.concatenate(parts, axis=1), *kept)


def _one_by_one(
    make: Make,
    record: Record | None,
    numbers: Numbers,
    size: int,
    stream: Stream,
    key: Key,
    ask: Ask,
) -> tuple[State, Any]:
    """The same where labels come late, for which `run` has the order of things."""
    found: list[Any] = []
    for lane in range(size):
        ask()
        learner = make({name: values[lane] for name, values in numbers.items()})
        start = learner.init(key)
        try:
            state, records = run(learner, start, stream, record=record, key=key, progress=False)
        except RefusedError:
            lost = {"nlpd": np.full(len(stream), np.inf)}
            state, values = start._replace(refused=jnp.full((), len(stream))), lost
        else:
            values = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), records.values)
        found.append((state, values))
    states, kept = zip(*found, strict=True)
    return (
        jax.tree.map(lambda *leaves: jnp.stack(leaves), *states),
        jax.tree.map(lambda *leaves: np.stack(leaves), *kept),
    )


@partial(jax.jit, static_argnums=(0, 2))
def _begin(make: Make, numbers: Numbers, size: int, key: Key) -> State:
    return jax.vmap(lambda own: make(own).init(key), axis_size=size)(numbers)


@partial(jax.jit, static_argnums=(0, 1, 3), donate_argnums=4)
def _advance(
    make: Make,
    record: Record | None,
    numbers: Numbers,
    size: int,
    states: State,
    examples: Example,
    positions: Array,
    key: Key,
) -> tuple[State, Any]:
    def one(own: Numbers, state: State) -> tuple[State, Any]:
        learner = make(own)

        def body(state: State, item: tuple[Example, Array]) -> tuple[State, Any]:
            example, position = item
            state, (kept, _) = one_step(learner, record, state, example, key_of(key, position))
            return state, kept

        return jax.lax.scan(body, state, (examples, positions))

    return jax.vmap(one, axis_size=size)(numbers, states)


@partial(jax.jit, static_argnums=(0, 1, 2, 4))
def _examined(
    make: Make,
    forecast: Forecaster,
    metric: Metric,
    numbers: Numbers,
    size: int,
    states: State,
    x: Array,
    y: Array,
) -> Array:
    def one(own: Numbers, state: State) -> Array:
        return metric.score(forecast(make(own), state, x), y)

    return jax.vmap(one, axis_size=size)(numbers, states)


def _refused(
    make: Make, numbers: Numbers, size: int, states: State, stream: Stream
) -> NDArray[Any]:
    counts = jax.vmap(lambda own, state: make(own).refused(state), axis_size=size)(numbers, states)
    updates = labels(stream.examples.y)
    return np.array([is_most(int(count), updates) for count in counts])


def joined(parts: list[Values]) -> Values:
    """Of all the learners that these are of."""
    return Values(*(np.concatenate(field) for field in zip(*parts, strict=True)))


def _fingerprint(stream: Stream) -> str:
    labels = np.ascontiguousarray(stream.examples.y, np.float64)
    digest = hashlib.blake2b(labels.tobytes(), digest_size=8).hexdigest()
    return f"{stream.examples.x.shape} {digest}"
