"""Active learning from a pool: of all inputs, which label to ask for next."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from bayestream.checks import check_array, check_whole
from bayestream.decisions.queries import Query, random
from bayestream.estimators.guard import check_state
from bayestream.running.refusals import check_most
from bayestream.types import Array, Estimator, Key, State

Positions = NDArray[np.int64]  # in the pool
Label = Callable[[Positions], Any]  # positions (k,) → their labels (k, …); NaN if there is none


def ask(
    learner: Estimator,
    state: State,
    inputs: Any,
    *,
    query: Query,
    key: Key,
    count: int = 1,
    asked: Sequence[int] | Positions = (),
    candidates: int | None = None,
) -> Positions:
    """The positions in a pool of the labels that are wanted most.

    Args:
        learner: that would be told.
        state: from `learner.init`, or what it has learnt so far.
        inputs: the pool (n, …).
        query: from `bs.queries`, such as `bs.queries.bald()`.
        key: of all that is random in it.
        count: how many labels.
        asked: positions that are not to be asked for again.
        candidates: look at so many inputs, drawn anew from the pool; at all of it, unless given.

    >>> import bayestream as bs
    >>> learner = bs.fcekf(bs.models.mlp([1, 1]), bs.likelihoods.gaussian(0.1))
    >>> state = learner.init(jax.random.key(0))
    >>> ask(learner, state, np.array([[1.0], [3.0], [2.0]]), query=bs.queries.bald(),
    ...     key=jax.random.key(1), count=2).tolist()
    [1, 2]
    """
    check_state(learner, state)
    inputs = jnp.asarray(inputs)
    check_array("inputs", inputs, [(len(inputs), *learner.model.inputs)])
    check_whole("count", count, 1)
    free = np.ones(len(inputs), bool)
    free[np.asarray(asked, int)] = False
    if count > free.sum():
        raise ValueError(
            f"count must be at most {free.sum()}, the inputs not asked for yet, got {count}."
        )
    key_query, key_among = jax.random.split(key)
    among = np.arange(len(inputs))
    if candidates is not None:
        check_whole("candidates", candidates, count)
        # Those not asked for come first; of any number of them, there is one compiled program.
        order = _generator(key_among).permutation(len(inputs))
        among = order[np.argsort(~free[order], kind="stable")][:candidates]
    scores = np.asarray(_scores(learner, query)(state, inputs, jnp.asarray(among), key_query))
    if scores.shape != among.shape:
        raise ValueError(
            f"query must give a score for each of {len(among)} inputs, got shape {scores.shape}."
        )
    wanted = np.lexsort((-scores, ~free[among]))
    return among[wanted[:count]]


def pool(
    learner: Estimator,
    state: State,
    inputs: Any,
    label: Label,
    *,
    query: Query,
    budget: int,
    key: Key,
    together: int = 1,
    first: int = 0,
    candidates: int | None = None,
) -> tuple[State, Positions]:
    """Ask for labels of a pool and learn each of them, until the budget is spent.

    Args:
        learner: any; `predict` and `update` run once a label.
        state: from `learner.init`, or what it has learnt so far.
        inputs: the pool (n, …).
        label: given positions in the pool (k,), their labels; asked for `budget` of them in all.
        query: from `bs.queries`, such as `bs.queries.bald()`.
        budget: how many labels.
        key: of all that is random.
        together: how many labels to ask for at a time. They may be alike: see `bs.queries.drawn`.
        first: how many labels to begin with that are drawn at random; part of the budget.
        candidates: look at so many inputs each time, drawn from the pool; at all, unless given.

    Returns:
        The state that has learnt, and the positions that were asked for, in that order.

    >>> import bayestream as bs
    >>> moons = bs.streams.two_moons(0, size=50).examples
    >>> learner = bs.lofi(bs.models.mlp([2, 8, 2]), bs.likelihoods.categorical(), rank=5)
    >>> state, asked = pool(learner, learner.init(jax.random.key(0)), moons.x,
    ...                     lambda positions: moons.y[positions], query=bs.queries.bald(),
    ...                     budget=5, key=jax.random.key(1))
    >>> len(set(asked.tolist()))
    5
    """
    options = Rounds(budget, together, first, candidates)
    *_, (after, asked) = rounds(learner, state, inputs, label, query, key, options)
    say_refused(learner.refused(after) - learner.refused(state), budget)
    return after, asked


class Rounds(NamedTuple):
    """How many labels, and how they are asked for."""

    budget: int
    together: int
    first: int
    candidates: int | None


def rounds(
    learner: Estimator,
    state: State,
    inputs: Any,
    label: Label,
    query: Query,
    key: Key,
    options: Rounds,
) -> Iterator[tuple[State, Positions]]:
    """The state and all positions asked for, after each round."""
    budget, together, first, candidates = options
    check_budget(budget, len(inputs))
    check_whole("together", together, 1)
    check_whole("first", first, 0)
    finite = np.isfinite(np.asarray(inputs)).reshape(len(inputs), -1).all(axis=1)
    if not finite.all():
        raise ValueError(f"inputs must be finite, got one that is not at {np.argmin(finite)}.")
    inputs = jnp.asarray(inputs)
    asked = np.zeros(0, int)
    begin = random()
    while len(asked) < budget:
        key, key_ask, key_update = jax.random.split(key, 3)
        start = len(asked) < first
        count = min(together, (first if start else budget) - len(asked), budget - len(asked))
        new = ask(
            learner,
            state,
            inputs,
            query=begin if start else query,
            key=key_ask,
            count=count,
            asked=asked,
            candidates=candidates,
        )
        y = jnp.asarray(label(new))
        check_array("label", y, [(count, *shape) for shape in _target_shapes(learner, state)])
        state = _learn(learner)(state, inputs[new], y, key_update)
        asked = np.append(asked, new)
        yield state, asked


def check_budget(budget: int, inputs: int) -> None:
    """A whole number of labels, no more than there are inputs."""
    check_whole("budget", budget, 1)
    if budget > inputs:
        raise ValueError(f"budget must be at most {inputs}, the number of inputs, got {budget}.")


def say_refused(refused: Array, updates: int) -> None:
    """Warn of updates that would not have been finite; if they were most, that is an error."""
    if count := int(refused):
        check_most(count, updates)
        said = f"{count} of {updates} updates would not have been finite and were refused."
        warnings.warn(said, RuntimeWarning, stacklevel=3)


def _target_shapes(learner: Estimator, state: State) -> tuple[tuple[int, ...], ...]:
    likelihood, _ = check_state(learner, state)
    return likelihood.target_shapes(learner.model.outputs)


@lru_cache(maxsize=32)
def _scores(learner: Estimator, query: Query) -> Any:
    def scores(state: State, inputs: Array, among: Array, key: Key) -> Array:
        return query(learner, state, inputs[among], key)

    return jax.jit(scores)


@lru_cache(maxsize=32)
def _learn(learner: Estimator) -> Any:
    def learn(state: State, xs: Array, ys: Array, key: Key) -> State:
        def one(state: State, now: tuple[Array, Array, Key]) -> tuple[State, None]:
            x, y, key = now
            return learner.update(learner.predict(state), x, y, key), None

        keys = jax.random.split(key, len(xs))
        return jax.lax.scan(one, state, (xs, ys, keys))[0]

    return jax.jit(learn)


def _generator(key: Key) -> np.random.Generator:
    return np.random.default_rng(np.asarray(jax.random.key_data(key)).tolist())
