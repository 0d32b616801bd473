"""A fleet: one learner a key, each of which sees the rows of its own key alone."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from bayestream.checks import check_choice, check_whole
from bayestream.estimators.guard import check_state
from bayestream.running.chunks import Skipped
from bayestream.running.fleet_state import FleetState, Name
from bayestream.running.keyed import with_keys
from bayestream.running.refusals import check_refused, labels, refusals
from bayestream.running.run import OnBad, Record, plugin, refuse
from bayestream.running.stacks import Stacks
from bayestream.types import Array, Estimator, Example, Key, State, Stream


@dataclass(frozen=True)
class FleetRecords:
    """What `record` kept, one row a step that ran, in the order of the rows; and whose it was."""

    keys: tuple[Name, ...]
    values: Any  # the record's pytree, with a leading axis
    skipped: tuple[Skipped, ...] = ()
    refused: tuple[Skipped, ...] = ()  # those that ran, but could not be learnt from
    updates: int = 0  # labels that there were to learn from

    def __getitem__(self, name: str) -> Array:
        return self.values[name]

    def of(self, key: Name) -> Any:
        """What was recorded of one key's rows."""
        own = np.array([each == key for each in self.keys], bool)
        return jax.tree.map(lambda rows: rows[own], self.values)

    def means(self, name: str) -> dict[Name, float]:
        """Of each key, the mean of a number over its rows; NaN, of a missing label, is left out.

        >>> records = FleetRecords(("a", "b", "a"), {"loss": np.array([1.0, 5.0, 3.0])})
        >>> records.means("loss")
        {'a': 2.0, 'b': 5.0}
        """
        places: dict[Name, list[int]] = {}
        for row, key in enumerate(self.keys):
            places.setdefault(key, []).append(row)
        values = np.asarray(self.values[name], float)
        return {key: _mean(values[rows]) for key, rows in places.items()}


class Fleet:
    """Learners of one kind, one a key; made by `bs.fleet`."""

    def __init__(self, learner: Estimator, state: FleetState, *, threads: int) -> None:
        self.learner, self._start = learner, state.start
        self._numbers = {key: number for number, key in enumerate(state.keys)}
        self._rows = np.array(state.rows, int)  # of each, and of those there is room for
        self._stacks = Stacks(learner, state.learners, threads=threads)
        self._pool = None
        if state.pool is not None:
            self._pool = Stacks(learner, _alone(state.pool), threads=1)

    def __len__(self) -> int:
        return len(self._numbers)

    def __contains__(self, key: object) -> bool:
        return key in self._numbers

    @property
    def keys(self) -> tuple[Name, ...]:
        """In the order in which they came."""
        return tuple(self._numbers)

    @property
    def state(self) -> FleetState:
        """All that it knows: a copy, to be saved or to go on from."""
        pool = None if self._pool is None else self._pool.of(0)
        learners = self._stacks.first(len(self))
        return FleetState(self.keys, self._rows[: len(self)].copy(), learners, self._start, pool)

    def of(self, key: Name) -> State:
        """The state of one key's learner; of a key that has not come yet, where it would begin."""
        if key in self._numbers:
            return self._stacks.of(self._numbers[key])
        return self._start if self._pool is None else self._pool.of(0)

    def refused(self) -> dict[Name, int]:
        """How many updates of each key were not made, since they would not have been finite."""
        return dict(zip(self._numbers, self._stacks.refused(len(self)), strict=True))

    def run(
        self,
        keys: Sequence[Any],
        stream: Stream | tuple[Any, ...],
        *,
        record: Record | None = plugin,
        key: Key | None = None,
        on_bad: OnBad = "raise",
    ) -> FleetRecords:
        """Forecast each row by the learner of its key, then let that learn from it.

        Args:
            keys: of each row, a string or a whole number.
            stream: a `bs.Stream`, or a pair of arrays (x, y). Labels come with their rows: none
                may be delayed. What it holds is what is new; earlier calls have learnt the rest.
            record: what to keep of a step, as in `bs.run`.
            key: needed by estimators whose update draws random numbers.
            on_bad: "raise" or "skip", as in `bs.run`; a row without a key (None, NaN or "") is bad.
        """
        records = self.learn(keys, stream, record=record, key=key, on_bad=on_bad)
        check_refused(records.refused, records.updates)
        return records

    def learn(
        self,
        keys: Sequence[Any],
        stream: Stream | tuple[Any, ...],
        *,
        record: Record | None = plugin,
        key: Key | None = None,
        on_bad: OnBad = "raise",
        size: int = 1,
    ) -> FleetRecords:
        """`run` for callers that judge the refused updates themselves, `size` rows at a time."""
        check_choice("on_bad", on_bad, {"raise": None, "skip": None})
        ran: list[Name] = []
        kept: list[Any] = []
        skipped: list[Skipped] = []
        refused: list[Skipped] = []
        updates = 0
        for (good, positions, bad), names in with_keys(self.learner, self._start, keys, stream):
            if on_bad == "raise":
                refuse(bad)
            skipped += sorted(bad)
            values, lost = self._learn(names, good, record, key, size)
            ran += names
            kept.append(values)
            refused += refusals(lost, positions)
            updates += labels(good.y)
        values = jax.tree.map(lambda *rows: np.concatenate(rows), *kept)
        return FleetRecords(tuple(ran), values, tuple(skipped), tuple(refused), updates)

    def _learn(
        self,
        names: Sequence[Name],
        rows: Example,
        record: Record | None,
        key: Key | None,
        size: int,
    ) -> tuple[Any, Any]:
        before = len(self)
        known = self._numbers
        numbers = np.array([known.setdefault(name, len(known)) for name in names], int)
        self._stacks.room(len(self), self._start)
        self._rows = np.concatenate([self._rows, np.zeros(len(self) - len(self._rows), int)])
        if self._pool is not None:
            self._begin(self._pool, numbers, rows, before, key, size)
        positions = self._rows[numbers] + _ranks(numbers)
        np.add.at(self._rows, numbers, 1)
        return self._stacks.learn(numbers, rows, positions, record=record, key=key, size=size)

    def _begin(
        self,
        pool: Stacks,
        numbers: NDArray[Any],
        rows: Example,
        before: int,
        key: Key | None,
        size: int,
    ) -> None:
        """Each new learner where the pool is when its key comes; the pool learns from all rows."""
        new, firsts = np.unique(numbers, return_index=True)
        arrivals = dict(zip(firsts[new >= before], new[new >= before], strict=True))
        total = int(np.sum(self._rows))
        cuts = [0, *sorted(arrivals), len(numbers)]
        for first, last in pairwise(cuts):
            part = Example(*(field[first:last] for field in rows))
            where = total + np.arange(first, last)
            pool.learn(np.zeros_like(where), part, where, record=None, key=key, size=size)
            if last in arrivals:
                self._stacks.put(int(arrivals[last]), pool.of(0))


def fleet(
    learner: Estimator,
    state: State | FleetState,
    *,
    pooled: bool = False,
    threads: int | None = None,
) -> Fleet:
    """One learner a key: a sensor, a user, a machine.

    Rows come with their keys, of all learners mixed; a key that is new, whenever it comes, has a
    learner of its own from then on. Each sees the rows of its own key alone, and ends with the very
    numbers of a fleet that has it alone, to the last bit; they are those of `bs.run` from the same
    first state as well, whose program is another with the same loop in it. Keys that rest cost
    memory, and no time.

    Args:
        learner: the estimator that all are of.
        state: where each begins: of `learner.init`, or what another run has learnt. Or the state of
            a fleet, to go on from.
        pooled: let each begin where a learner of the rows so far, of all keys, is by then.
        threads: how many learn at once; unless given, one a core. The numbers are the same.

    >>> import bayestream as bs
    >>> learner = bs.lofi(bs.models.mlp([1, 1]), bs.likelihoods.gaussian(0.1), rank=2)
    >>> sensors = bs.fleet(learner, learner.init(jax.random.key(0)))
    >>> x = np.linspace(-1, 1, 6)[:, None]
    >>> records = sensors.run(["a", "b", "a", "b", "a", "c"], (x, 2 * x))
    >>> sensors.keys, records["prediction"].shape, int(sensors.of("a").step)
    (('a', 'b', 'c'), (6, 1), 3)
    """
    if threads is None:
        threads = (
            len(os.sched_getaffinity(0))
            if hasattr(os, "sched_getaffinity")
            else os.cpu_count() or 1
        )
    check_whole("threads", threads, 1)
    if isinstance(state, FleetState):
        if pooled and state.pool is None:
            raise ValueError("pooled must be as it was when the fleet began: False, got True.")
        check_state(learner, state.start)
        return Fleet(learner, state, threads=threads)
    check_state(learner, state)
    none = jax.tree.map(lambda leaf: np.asarray(leaf)[None][:0], state)
    return Fleet(
        learner, FleetState((), [], none, state, state if pooled else None), threads=threads
    )


def _alone(state: State) -> State:
    return jax.tree.map(lambda leaf: np.asarray(leaf)[None], state)


def _ranks(numbers: NDArray[Any]) -> NDArray[Any]:
    """Of each, how many equal ones come before it.

    >>> _ranks(np.array([5, 3, 5, 5])).tolist()
    [0, 0, 1, 2]
    """
    order = np.argsort(numbers, kind="stable")
    _, counts = np.unique(numbers, return_counts=True)
    found = np.empty_like(numbers)
    starts = np.cumsum(counts) - counts
    found[order] = np.arange(len(numbers)) - np.repeat(starts, counts)
    return found


def _mean(values: NDArray[Any]) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else float("nan")
