"""Active learning: the learner chooses the labels it is told, from a pool or as inputs arrive."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from bayestream.checks import check_array, check_whole
from bayestream.decisions.queries import Query, random
from bayestream.estimators.guard import check_state
from bayestream.evaluation.evaluate import Forecaster, Metric, labelled, metrics_for, score_many
from bayestream.evaluation.results import Results
from bayestream.forecasts import predictive
from bayestream.progress import Progress
from bayestream.running.refusals import check_most
from bayestream.types import Array, Estimator, Key, State, Stream

Positions = NDArray[np.int64]  # in the pool
Label = Callable[[Positions], Any]  # positions (k,) → their labels (k, …); NaN if there is none
Problem = Callable[[int], tuple[Stream, Stream]]  # trial → a pool, and what to be tested on


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
    options = _Options(budget, together, first, candidates)
    asked = np.zeros(0, int)
    before = learner.refused(state)
    for after, asked in _rounds(learner, state, inputs, label, query, key, options):
        state = after
    _say_refused(learner.refused(state) - before, budget)
    return state, asked


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
    _check_budget(budget, len(x))
    check_whole("window", window, 1)
    after, found = _watch(learner, query, window)(
        state, jnp.asarray(x, dtype), jnp.asarray(y, dtype), budget, key
    )
    _say_refused(learner.refused(after) - learner.refused(state), budget)
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
    options = _Options(budget, together, first, candidates)
    rows: list[dict[str, Any]] = []
    total = trials * len(queries) * budget
    with Progress("asking", total=total, show=progress) as bar:
        for trial in range(trials):
            key_init, key = jax.random.split(jax.random.key(seed + trial))
            (x, y, *_), tests = (part.examples for part in problems(trial))
            inputs, labels, test = jnp.asarray(x), np.asarray(y), labelled(tests)
            for name, query in queries.items():
                state, tested, known = learner.init(key_init), 0, 0
                told = _rounds(learner, state, inputs, labels.__getitem__, query, key, options)
                for state, asked in told:
                    bar.advance(len(asked) - known)
                    known = len(asked)
                    if known < budget and known - tested < every:
                        continue
                    tested = known
                    rows += [
                        {"method": name, "metric": metric, "trial": trial, "step": known, "value": v}
                        for metric, v in examine(state, *test).items()
                    ]
                _say_refused(learner.refused(state), budget)
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    columns["value"] = np.asarray(columns["value"], np.float64)
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


class _Options(NamedTuple):
    budget: int
    together: int
    first: int
    candidates: int | None


def _rounds(
    learner: Estimator,
    state: State,
    inputs: Any,
    label: Label,
    query: Query,
    key: Key,
    options: _Options,
) -> Iterator[tuple[State, Positions]]:
    """The state and all positions asked for, after each round."""
    budget, together, first, candidates = options
    _check_budget(budget, len(inputs))
    check_whole("together", together, 1)
    check_whole("first", first, 0)
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


def _check_budget(budget: int, inputs: int) -> None:
    check_whole("budget", budget, 1)
    if budget > inputs:
        raise ValueError(f"budget must be at most {inputs}, the number of inputs, got {budget}.")


def _say_refused(refused: Array, updates: int) -> None:
    """Warn of updates that would not have been finite; if they were most, that is an error."""
    if count := int(refused):
        check_most(count, updates)
        said = f"{count} of {updates} updates would not have been finite and were refused."
        warnings.warn(said, RuntimeWarning, stacklevel=3)


def _generator(key: Key) -> np.random.Generator:
    return np.random.default_rng(np.asarray(jax.random.key_data(key)).tolist())
