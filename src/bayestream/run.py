"""Stream + estimator → records: the only place that orders predict → score → update."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Literal, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np

from bayestream.checks import check_array, check_choice
from bayestream.progress import Progress
from bayestream.types import Array, Estimator, Example, Key, Likelihood, Model, State, Stream

# What to keep of a step, from the state that has been predicted but not yet updated.
Record = Callable[[Estimator, State, Example], Any]
OnBad = Literal["raise", "skip"]
_CHUNK = 500


def plugin(estimator: Estimator, state: State, example: Example) -> dict[str, Array]:
    """The default record: the forecast at the mean weights, and log p(y) under it."""
    likelihood = estimator.likelihood(state)
    params = estimator.mean(state)
    eta = estimator.model.apply(params, jnp.asarray(example.x, params.dtype))
    y = jnp.asarray(example.y).astype(eta.dtype)
    missing = likelihood.missing(y)
    density = likelihood.log_density(eta, jnp.where(missing, 0.0, y))
    return {
        "prediction": likelihood.mean(eta),
        "log_density": jnp.where(missing, jnp.nan, density),
    }


class Skipped(NamedTuple):
    """An example that was left out, and why."""

    position: int
    reason: str


@dataclass(frozen=True)
class Records:
    """What `record` kept, one row a step that ran, and the examples that were skipped."""

    values: Any  # the record's pytree, with a leading axis
    skipped: tuple[Skipped, ...] = ()

    def __getitem__(self, name: str) -> Array:
        return self.values[name]


def run(
    estimator: Estimator,
    state: State,
    stream: Stream | tuple[Any, ...] | Iterable[Any],
    *,
    record: Record | None = plugin,
    key: Key | None = None,
    on_bad: OnBad = "raise",
    progress: bool | None = None,
) -> tuple[State, Records]:
    """Predict, record, update, for every example of a stream.

    Args:
        estimator: from a factory such as `bs.lofi`.
        state: from `estimator.init`, or from an earlier run; it is not changed.
        stream: a `Stream`, a pair of arrays (X, Y), or any iterable of (x, y) pairs. The numbers
            are the same whichever it is.
        record: record(estimator, state, example) → what to keep of a step; None keeps nothing.
        key: needed by estimators whose update draws random numbers.
        on_bad: "raise" refuses an example of the wrong shape or with values that cannot be (a NaN
            in x, a class that does not exist); "skip" leaves it out and reports it in
            `records.skipped`. A missing label (NaN) is not bad: time passes, nothing is learnt.
        progress: True, False, or None for a bar on a terminal when it takes more than a second.

    >>> import bayestream as bs
    >>> learner = bs.lofi(bs.models.mlp([1, 8, 1]), bs.likelihoods.gaussian(0.1), rank=3)
    >>> x = np.linspace(-1, 1, 20)[:, None]
    >>> state, records = bs.run(learner, learner.init(jax.random.key(0)), (x, 2 * x))
    >>> records["prediction"].shape, int(state.step)
    ((20, 1), 20)
    """
    check_choice("on_bad", on_bad, {"raise": None, "skip": None})
    state = jax.tree.map(jnp.array, state)  # chunks are donated; the caller's state is not
    chunks, total = _chunks(stream, estimator.model, estimator.likelihood(state))
    kept: list[Any] = []
    skipped: list[Skipped] = []
    with Progress("learning", total=total, show=progress) as bar:
        for chunk in chunks:
            if chunk.bad and on_bad == "raise":
                position, reason = min(chunk.bad)
                raise ValueError(f"example {position} of the stream: {reason}")
            skipped += sorted(chunk.bad)
            if len(chunk.positions):
                state, values = _scan(estimator, record, state, chunk.good, chunk.positions, key)
                kept.append(values)
                jax.block_until_ready(state)
            bar.advance(len(chunk.positions) + len(chunk.bad))
    if not kept:
        none = _nothing(estimator.model, estimator.likelihood(state))
        state, values = _scan(estimator, record, state, none, np.zeros(0, int), key)
        kept.append(values)
    values = jax.tree.map(lambda *parts: jnp.concatenate(parts), *kept)
    return state, Records(values, tuple(skipped))


def step(
    estimator: Estimator,
    state: State,
    x: Any,
    y: Any,
    *,
    record: Record | None = plugin,
    key: Key | None = None,
) -> tuple[State, Any]:
    """One observation at a time: predict, record, update; bad input raises before anything runs.

    >>> import bayestream as bs
    >>> learner = bs.lofi(bs.models.mlp([1, 8, 1]), bs.likelihoods.gaussian(0.1), rank=3)
    >>> state, kept = bs.step(learner, learner.init(jax.random.key(0)), np.ones(1), np.ones(1))
    >>> kept["prediction"].shape
    (1,)
    """
    likelihood = estimator.likelihood(state)
    example = Example(np.asarray(x), np.asarray(y), np.asarray(0))
    _check_shapes(example, estimator.model, likelihood)
    (reason,) = _impossible(_stack([example]), estimator.model, likelihood)
    if reason:
        raise ValueError(reason)
    return _step(estimator, record, state, example, key)


def _one_step(
    estimator: Estimator, record: Record | None, state: State, example: Example, key: Key | None
) -> tuple[State, Any]:
    state = estimator.predict(state)
    kept = None if record is None else record(estimator, state, example)
    return estimator.update(state, example.x, example.y, key), kept


_step = jax.jit(_one_step, static_argnums=(0, 1))


@partial(jax.jit, static_argnums=(0, 1), donate_argnums=2)
def _scan(
    estimator: Estimator,
    record: Record | None,
    state: State,
    examples: Example,
    positions: Array,
    key: Key | None,
) -> tuple[State, Any]:
    def body(state: State, item: tuple[Example, Array]) -> tuple[State, Any]:
        example, position = item
        step_key = None if key is None else jax.random.fold_in(key, position)
        return _one_step(estimator, record, state, example, step_key)

    return jax.lax.scan(body, state, (examples, positions))


class _Chunk(NamedTuple):
    good: Example  # what can be learnt from, stacked
    positions: np.ndarray  # where in the stream they were
    bad: list[Skipped]


def _chunks(
    stream: Any, model: Model, likelihood: Likelihood
) -> tuple[Iterator[_Chunk], int | None]:
    """The stream in stacked, checked chunks, and its length where that is known."""
    arrays = _as_arrays(stream)
    if arrays is None:
        return _chunks_of_items(iter(stream), model, likelihood), None
    if len(arrays.x) != len(arrays.y):
        raise ValueError(
            f"x and y must be equally many, got {len(arrays.x)} of x and {len(arrays.y)} of y."
        )
    for example in islice(Stream(arrays), 1):  # all rows have one shape
        _check_shapes(example, model, likelihood)
    return _chunks_of_arrays(arrays, model, likelihood), len(arrays.x)


def _as_arrays(stream: Any) -> Example | None:
    if isinstance(stream, Stream):
        return stream.examples
    if isinstance(stream, tuple) and all(hasattr(field, "shape") for field in stream):
        x, y, *rest = cast(tuple[Any, ...], stream)
        return Example(x, y, rest[0] if rest else np.zeros(len(x), np.int32))
    return None


def _chunks_of_arrays(arrays: Example, model: Model, likelihood: Likelihood) -> Iterator[_Chunk]:
    for start in range(0, len(arrays.x), _CHUNK):
        chunk = Example(*(np.asarray(field[start : start + _CHUNK]) for field in arrays))
        yield _sift(chunk, np.arange(start, start + len(chunk.x)), [], model, likelihood)


def _chunks_of_items(
    items: Iterator[Any], model: Model, likelihood: Likelihood
) -> Iterator[_Chunk]:
    numbered = enumerate(items)
    while block := list(islice(numbered, _CHUNK)):
        examples: list[Example] = []
        positions: list[int] = []
        bad: list[Skipped] = []
        for position, item in block:
            try:
                example = Example(*map(np.asarray, Example(*item)))
                _check_shapes(example, model, likelihood)
            except (TypeError, ValueError) as error:
                bad.append(Skipped(position, str(error)))
            else:
                examples.append(example)
                positions.append(position)
        stacked = _stack(examples) if examples else _nothing(model, likelihood)
        yield _sift(stacked, np.asarray(positions, int), bad, model, likelihood)


def _sift(
    chunk: Example, positions: np.ndarray, bad: list[Skipped], model: Model, likelihood: Likelihood
) -> _Chunk:
    reasons = _impossible(chunk, model, likelihood)
    bad = bad + [Skipped(int(p), why) for p, why in zip(positions, reasons, strict=True) if why]
    keep = np.array([not why for why in reasons], bool)
    return _Chunk(Example(*(field[keep] for field in chunk)), positions[keep], bad)


def _stack(examples: list[Example]) -> Example:
    return Example(*(np.stack(field) for field in zip(*examples, strict=True)))


def _nothing(model: Model, likelihood: Likelihood) -> Example:
    """No examples, in arrays of the right shapes."""
    target = likelihood.target_shapes(model.outputs)[0]
    return Example(np.zeros((0, *model.inputs)), np.zeros((0, *target)), np.zeros(0, int))


def _check_shapes(example: Example, model: Model, likelihood: Likelihood) -> None:
    check_array("x", example.x, [model.inputs])
    check_array("y", example.y, likelihood.target_shapes(model.outputs))


def _impossible(chunk: Example, model: Model, likelihood: Likelihood) -> list[str]:
    """For each example, why its values cannot be, or an empty string."""
    finite = np.isfinite(chunk.x).reshape(len(chunk.x), -1).all(axis=1)
    labels = np.asarray(chunk.y, jnp.result_type(float))
    known = np.asarray(_possible(likelihood.missing, likelihood.support, model.outputs, labels))
    return [
        "x must hold finite numbers, got NaN or infinity."
        if not x_ok
        else ("" if y_ok else f"y must be {likelihood.expects}, got {y}.")
        for x_ok, y_ok, y in zip(finite, known, chunk.y, strict=True)
    ]


@partial(jax.jit, static_argnums=(0, 1, 2))
def _possible(
    missing: Callable[[Array], Array],
    support: Callable[[Array, int], Array],
    outputs: int,
    labels: Array,
) -> Array:
    return jax.vmap(lambda y: missing(y) | support(y, outputs))(labels)
