"""Stream + estimator → records: the only place that orders predict → score → update."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from bayestream.checks import check_choice, check_made_by, check_real
from bayestream.estimators.guard import check_state
from bayestream.progress import Progress
from bayestream.running.chunks import (
    CHUNK,
    Skipped,
    check_shapes,
    chunked,
    impossible,
    nothing,
    padded,
    stack,
)
from bayestream.running.delays import Block, delivered
from bayestream.running.refusals import check_refused, labels, refusals
from bayestream.running.resume import Checkpoints, Keeper
from bayestream.types import Array, Estimator, Example, Key, State, Stream

# What to keep of a step, from the state that has been predicted but not yet updated.
Record = Callable[[Estimator, State, Example], Any]
OnBad = Literal["raise", "skip"]


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


@dataclass(frozen=True)
class Records:
    """What `record` kept, one row a step that ran, and what was skipped or refused."""

    values: Any  # the record's pytree, with a leading axis
    skipped: tuple[Skipped, ...] = ()
    refused: tuple[Skipped, ...] = ()  # those that ran, but could not be learnt from
    updates: int = 0  # labels that there were to learn from
    start: int = 0  # where in the stream they begin: not at 0 where a checkpoint was gone on from

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
    checkpoints: Checkpoints | None = None,
) -> tuple[State, Records]:
    """Predict, record, update, for every example of a stream.

    Args:
        estimator: from a factory such as `bs.lofi`.
        state: from `estimator.init`, or from an earlier run; it is not changed.
        stream: a `Stream`, a pair of arrays (X, Y), or any iterable of (x, y) pairs. The numbers
            are the same whichever it is. An example with a `delay` is asked about in its step and
            learnt from that many steps later, if the stream lasts so long.
        record: record(estimator, state, example) → what to keep of a step; None keeps nothing.
        key: needed by estimators whose update draws random numbers.
        on_bad: "raise" refuses an example of the wrong shape or with values that cannot be (a NaN
            in x, a class that does not exist); "skip" leaves it out and reports it in
            `records.skipped`. A missing label (NaN) is not bad: time passes, nothing is learnt.
        progress: True, False, or None for a bar on a terminal when it takes more than a second.
        checkpoints: a `bs.Checkpoints` folder to save the run in, and to go on from if there is one
            of this run in it. Labels that wait to arrive are saved too; the records are those of
            the steps since, from `records.start` on.

    >>> import bayestream as bs
    >>> learner = bs.lofi(bs.models.mlp([1, 1]), bs.likelihoods.gaussian(0.1), rank=2)
    >>> x = np.linspace(-1, 1, 20)[:, None]
    >>> state, records = bs.run(learner, learner.init(jax.random.key(0)), (x, 2 * x))
    >>> records["prediction"].shape, int(state.step)
    ((20, 1), 20)
    """
    state, records = learn(
        estimator,
        state,
        stream,
        record=record,
        key=key,
        on_bad=on_bad,
        progress=progress,
        checkpoints=checkpoints,
    )
    check_refused(records.refused, records.updates)
    return state, records


def learn(
    estimator: Estimator,
    state: State,
    stream: Stream | tuple[Any, ...] | Iterable[Any],
    *,
    record: Record | None = plugin,
    key: Key | None = None,
    on_bad: OnBad = "raise",
    progress: bool | None = None,
    size: int = 1,
    first: int = 0,
    checkpoints: Checkpoints | None = None,
) -> tuple[State, Records]:
    """`run` for callers that judge the refused updates themselves.

    Chunks are padded to the largest before them, or to `size`: one program serves them all. Keys
    are made as if `first` examples had been before these.
    """
    check_choice("on_bad", on_bad, {"raise": None, "skip": None})
    likelihood, dtype = check_state(estimator, state)
    chunk = CHUNK
    if checkpoints is not None:
        check_made_by("checkpoints", checkpoints, Checkpoints, "bayestream.Checkpoints")
        chunk = size = checkpoints.chunk
    keeper = Keeper(checkpoints, estimator, state, key)
    start = keeper.position
    # Chunks are donated; the caller's state is not.
    state = jax.tree.map(_copied, keeper.state)
    chunks, total = chunked(stream, estimator.model, likelihood, dtype, start=start, size=chunk)
    kept: list[Any] = []
    skipped: list[Skipped] = []
    refused: list[Skipped] = []
    updates = 0
    with Progress("learning", total=total and total - start, show=progress) as bar:
        for block in delivered(chunks, keeper.waiting):
            if on_bad == "raise":
                refuse(block.bad)
            skipped += sorted(block.bad)
            size = max(size, len(block.positions) + len(block.bad))
            if len(block.positions):
                state, (values, lost) = _learn(estimator, record, state, block, key, size, first)
                kept.append(values)
                refused += refusals(lost, block.positions)
                updates += labels(block.learnt.y)
            steps = len(block.positions) if block.new is None else int(np.sum(block.new))
            keeper.advance(state, steps + len(block.bad))
            bar.advance(steps + len(block.bad))
    keeper.save(state)
    if not kept:
        none = nothing(estimator.model, likelihood)
        block = Block(none, none, np.zeros(0, int), None, [])
        state, (values, _) = _learn(estimator, record, state, block, key, size, first)
        kept.append(values)
    values = kept[0] if len(kept) == 1 else jax.tree.map(_joined, *kept)
    return state, Records(values, tuple(skipped), tuple(refused), updates, start)


def run_together(
    estimator: Estimator,
    states: Sequence[State],
    streams: Sequence[Stream],
    *,
    record: Record | None = plugin,
    keys: Sequence[Key],
) -> tuple[list[State], list[Records]]:
    """`run` for several trials of one estimator at once, under vmap; the same numbers.

    Streams that are not equally long, or whose labels are delayed, run one after another.

    >>> import bayestream as bs
    >>> learner = bs.lofi(bs.models.mlp([1, 1]), bs.likelihoods.gaussian(0.1), rank=2)
    >>> keys = list(jax.random.split(jax.random.key(0), 2))
    >>> streams = [bs.streams.piecewise_regression(seed, tasks=1) for seed in (0, 1)]
    >>> states, records = run_together(learner, list(map(learner.init, keys)), streams, keys=keys)
    >>> len(states), records[1]["prediction"].shape
    (2, (250, 1))
    """
    alike = len({len(stream) for stream in streams}) == 1
    empty = not len(streams[0])
    if len(states) == 1 or empty or not alike or any(np.any(s.examples.delay) for s in streams):
        one_by_one = [
            run(estimator, state, stream, record=record, key=key, progress=False)
            for state, stream, key in zip(states, streams, keys, strict=True)
        ]
        return [state for state, _ in one_by_one], [records for _, records in one_by_one]
    likelihood, dtype = check_state(estimator, states[0])
    for other in states[1:]:
        check_state(estimator, other)
    state, kept = _stack(states), []
    chunks = [chunked(stream, estimator.model, likelihood, dtype)[0] for stream in streams]
    for together in zip(*chunks, strict=True):
        for chunk in together:
            refuse(chunk.bad)
        examples = _stack([chunk.good for chunk in together])
        state, values = _scan_trials(
            estimator, record, state, examples, together[0].positions, _stack(keys)
        )
        kept.append(values)
    values, lost = jax.tree.map(lambda *parts: jnp.concatenate(parts, axis=1), *kept)
    records: list[Records] = []
    for trial, stream in enumerate(streams):
        refused = refusals(lost[trial], np.arange(len(stream)))
        updates = labels(stream.examples.y)
        check_refused(refused, updates, f"trial {trial}: ")
        records.append(Records(_of_trial(values, trial), (), tuple(refused), updates))
    return [_of_trial(state, trial) for trial in range(len(states))], records


def step(
    estimator: Estimator,
    state: State,
    x: Any,
    y: Any,
    *,
    record: Record | None = plugin,
    key: Key | None = None,
) -> tuple[State, Any]:
    """One observation at a time: predict, record, update; of bad input nothing comes but an error.

    >>> import bayestream as bs
    >>> learner = bs.lofi(bs.models.mlp([1, 1]), bs.likelihoods.gaussian(0.1), rank=2)
    >>> state, kept = bs.step(learner, learner.init(jax.random.key(0)), np.ones(1), np.ones(1))
    >>> kept["prediction"].shape
    (1,)
    """
    numbers = check_real("x", x), check_real("y", y)
    # A program of its own: the state need not be waited for. `bool` would take 30 µs more.
    if np.asarray(_fits(estimator, state, *numbers)):
        return _step(estimator, record, state, *numbers, key)
    likelihood, dtype = check_state(estimator, state)
    bad = stack([Example(np.asarray(x), np.asarray(y))])
    raise ValueError(*impossible(bad, estimator.model, likelihood, dtype))


def one_step(
    estimator: Estimator, record: Record | None, state: State, example: Example, key: Key | None
) -> tuple[State, Any]:
    """The state after it, what was recorded, and how many updates have been refused so far."""
    state = estimator.predict(state)
    kept = None if record is None else record(estimator, state, example)
    state = estimator.update(state, example.x, example.y, key)
    return state, (kept, estimator.refused(state))


@partial(jax.jit, static_argnums=(0, 1))
def _step(
    estimator: Estimator, record: Record | None, state: State, x: Array, y: Array, key: Key | None
) -> tuple[State, Any]:
    zero = jnp.zeros((), int)
    state, (kept, _) = one_step(estimator, record, state, Example(x, y, zero, zero), key)
    return state, kept


@partial(jax.jit, static_argnums=0)
def _fits(estimator: Estimator, state: State, x: Array, y: Array) -> Array:
    """Whether there can be such an example; of the state, its layout alone is looked at."""
    likelihood, dtype = check_state(estimator, jax.tree.map(jax.typeof, state))
    check_shapes(Example(x, y), estimator.model, likelihood)
    x, y = x.astype(dtype), y.astype(dtype)
    known = likelihood.missing(y) | likelihood.support(y, estimator.model.outputs)
    return known & jnp.all(jnp.isfinite(x))


def refuse(bad: Sequence[Skipped]) -> None:
    """An error that names the first of the examples that cannot be, if there are any."""
    if bad:
        position, reason = min(bad)
        raise ValueError(f"example {position} of the stream: {reason}")


def _stack(trees: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def _copied(leaf: Any) -> Array:
    """A copy, made without compiling anything; of what lies on several hosts, where it lies."""
    abroad = isinstance(leaf, Array) and not leaf.is_fully_addressable
    return jax.device_put(leaf, leaf.sharding if abroad else None, may_alias=False)


def _joined(*rows: Array) -> Array:
    return jnp.asarray(np.concatenate(rows))  # in NumPy, which compiles nothing


def _of_trial(tree: Any, trial: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[trial], tree)


def _learn(
    estimator: Estimator,
    record: Record | None,
    state: State,
    block: Block,
    key: Key | None,
    size: int,
    first: int,
) -> tuple[State, Any]:
    """The state after the block, what was recorded, and which updates were refused."""
    block = block._replace(positions=block.positions + first)
    if block.new is None:
        count = len(block.positions)
        rows = padded((block.asked, block.positions), size)
        state, values = _scan(estimator, record, state, *rows, count, key)
        if count == size:
            return state, values
        return state, jax.tree.map(lambda rows: jnp.asarray(np.asarray(rows)[:count]), values)
    state, (kept, lost) = _scan_delayed(estimator, record, state, block._replace(bad=[]), key)
    return state, (jax.tree.map(lambda rows: rows[block.new], kept), lost)


@partial(jax.jit, static_argnums=(0, 1), donate_argnums=2)
def _scan(
    estimator: Estimator,
    record: Record | None,
    state: State,
    examples: Example,
    positions: Array,
    count: int,
    key: Key | None,
) -> tuple[State, Any]:
    """Of the first `count` examples; the rest are there for the size alone."""
    before = estimator.refused(state)
    state, (kept, counts) = along(estimator, record, state, examples, positions, count, key)
    return state, (kept, _grown(counts, before))


def along(
    estimator: Estimator,
    record: Record | None,
    state: State,
    examples: Example,
    positions: Array,
    count: Any,
    key: Key | None,
    *,
    first: Any = 0,
    kept: Any = None,
) -> tuple[State, Any]:
    """The state after the examples from `first` to `count`, and what `one_step` says of each.

    What is not among them is zero, or as `kept` has it.
    """

    @jax.jit  # so that it is traced once
    def one(state: State, example: Example, position: Array, key: Key | None) -> tuple[State, Any]:
        return one_step(estimator, record, state, example, key_of(key, position))

    def item(index: Any) -> tuple[Example, Array]:
        return jax.tree.map(lambda rows: rows[index], (examples, positions))

    def body(index: Array, carry: tuple[State, Any]) -> tuple[State, Any]:
        state, kept = carry
        state, values = one(state, *item(index), key)
        return state, jax.tree.map(lambda rows, value: rows.at[index].set(value), kept, values)

    if kept is None:
        _, values = jax.eval_shape(one, state, *item(0), key)
        kept = jax.tree.map(
            lambda value: jnp.zeros((len(positions), *value.shape), value.dtype), values
        )
    return jax.lax.fori_loop(first, count, body, (state, kept))


def _grown(counts: Array, before: Array) -> Array:
    return jnp.diff(counts, prepend=before) > 0


@partial(jax.jit, static_argnums=(0, 1), donate_argnums=2)
def _scan_trials(
    estimator: Estimator,
    record: Record | None,
    states: State,
    examples: Example,
    positions: Array,
    keys: Key,
) -> tuple[State, Any]:
    one = partial(_scan, estimator, record)
    axes = (0, 0, None, None, 0)
    return jax.vmap(one, in_axes=axes)(states, examples, positions, len(positions), keys)


@partial(jax.jit, static_argnums=(0, 1), donate_argnums=2)
def _scan_delayed(
    estimator: Estimator, record: Record | None, state: State, block: Block, key: Key | None
) -> tuple[State, Any]:
    """As `_scan`, but what is learnt is not what was asked, and time passes in new steps alone."""

    def body(state: State, tick: Block) -> tuple[State, Any]:
        asked, learnt, position, new, _ = tick
        state = jax.lax.cond(new, estimator.predict, lambda state: state, state)
        kept = None if record is None else record(estimator, state, asked)
        state = estimator.update(state, learnt.x, learnt.y, key_of(key, position))
        return state, (kept, estimator.refused(state))

    before = estimator.refused(state)
    state, (kept, counts) = jax.lax.scan(body, state, block)
    return state, (kept, _grown(counts, before))


def key_of(key: Key | None, position: Array) -> Key | None:
    """The key of the example at that position of the stream."""
    return None if key is None else jax.random.fold_in(key, position)
