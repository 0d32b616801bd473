"""Active learning from a stream: each input passes once, and its label is asked for or not."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bayestream.checks import check_array, check_whole
from bayestream.decisions.pools import check_budget, say_refused
from bayestream.decisions.queries import Query
from bayestream.estimators.guard import check_state
from bayestream.types import Array, Estimator, Key, State, Stream


class Asked(NamedTuple):
    """What became of each input of a stream."""

    asked: Array  # (T,): whether its label was asked for, and so learnt
    scores: Array  # (T,): how much it was wanted


def stream(
    learner: Estimator,
    state: State,
    stream: Stream,
    *,
    query: Query,
    budget: int,
    key: Key,
    window: int = 100,
) -> tuple[State, Asked]:
    """See each input once, and ask for its label or let it pass.

    A label is asked for if the input's score is among the highest of the last `window`: within a
    share that is the labels left of the budget over the inputs left of the stream. So the threshold
    follows the scores, on whatever scale they are, and the budget lasts to the end. A label that
    is not asked for is a missing one: `predict` runs, `update` learns nothing.

    Args:
        learner: any.
        state: from `learner.init`, or what it has learnt so far.
        stream: of which only those labels are looked at that are asked for.
        query: from `bs.queries`, such as `bs.queries.bald()`.
        budget: how many labels, at most.
        key: of all that is random.
        window: how many scores the next is compared with.

    >>> import bayestream as bs
    >>> learner = bs.lofi(bs.models.mlp([2, 8, 2]), bs.likelihoods.categorical(), rank=5)
    >>> _, found = bs.active.stream(
    ...     learner, learner.init(jax.random.key(0)), bs.streams.two_moons(0, size=200),
    ...     query=bs.queries.bald(), budget=20, key=jax.random.key(1))
    >>> int(found.asked.sum()) <= 20
    True
    """
    _, dtype = check_state(learner, state)
    x, y = (np.asarray(field) for field in stream.examples[:2])
    check_array("x", x, [(len(x), *learner.model.inputs)])
    check_budget(budget, len(x))
    check_whole("window", window, 1)
    after, found = _watch(learner, query, window)(
        state, jnp.asarray(x, dtype), jnp.asarray(y, dtype), budget, key
    )
    say_refused(learner.refused(after) - learner.refused(state), budget)
    return after, found


def is_wanted(recent: Array, score: Any, share: Any, key: Key) -> tuple[Array, Array]:
    """Whether a score is within the highest `share` of the recent ones and itself.

    Of exchangeable scores it is so with exactly that probability; ties are decided at random.

    Args:
        recent: the last scores (window,), NaN where there are fewer yet.
        score: of the input that arrives now.
        share: from 0 to 1.
        key: for ties.

    Returns:
        Whether, and the recent scores with this one among them.

    >>> recent = jnp.full(100, jnp.nan)  # no input has arrived yet
    >>> wanted, recent = is_wanted(recent, 0.7, 0.1, jax.random.key(0))
    >>> bool(wanted), int(jnp.isnan(recent).sum())
    (False, 99)
    """
    above, alike = jnp.sum(recent > score), 1 + jnp.sum(recent == score)
    known = 1 + jnp.sum(~jnp.isnan(recent))
    place = (above + alike * jax.random.uniform(key)) / known
    return place < share, jnp.append(recent[1:], jnp.asarray(score, recent.dtype))


@lru_cache(maxsize=32)
def _watch(learner: Estimator, query: Query, window: int) -> Any:
    def step(carry: Any, now: tuple[Array, Array, Array, Key]) -> tuple[Any, Asked]:
        state, recent, labels = carry
        x, y, inputs, key = now
        key_query, key_place, key_update = jax.random.split(key, 3)
        state = learner.predict(state)
        score = query(learner, state, x[None], key_query)[0]
        wanted, recent = is_wanted(recent, score, labels / inputs, key_place)
        wanted = wanted & (labels > 0)
        state = learner.update(state, x, jnp.where(wanted, y, jnp.nan), key_update)
        return (state, recent, labels - wanted), Asked(wanted, score)

    def watch(state: State, xs: Array, ys: Array, budget: Array, key: Key) -> tuple[State, Asked]:
        left = jnp.arange(len(xs), 0, -1)
        recent = jnp.full(window, jnp.nan, xs.dtype)
        each = (xs, ys, left, jax.random.split(key, len(xs)))
        (state, _, _), found = jax.lax.scan(step, (state, recent, jnp.asarray(budget)), each)
        return state, found

    return jax.jit(watch)
