"""A fleet over the machines of a Ray cluster: what one machine would find, to the last bit."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from bayestream.checks import check_choice, check_whole
from bayestream.estimators.guard import check_state
from bayestream.progress import Progress
from bayestream.running.chunks import Chunk, Skipped
from bayestream.running.fleet import FleetRecords
from bayestream.running.fleet_state import FleetState, Name
from bayestream.running.keyed import with_keys
from bayestream.running.ray_cluster import connected
from bayestream.running.ray_share import Share, check_alike, share_of
from bayestream.running.refusals import check_refused
from bayestream.running.run import OnBad, Record, plugin, refuse
from bayestream.types import Estimator, Example, Key, State, Stream

_AHEAD = 2  # chunks that actors have when the answer to the first is awaited


class _Sent(NamedTuple):
    """A chunk that is being learnt."""

    names: list[Name]
    positions: NDArray[Any]  # of its rows in the stream
    rows: dict[int, NDArray[Any]]  # of each share, which of them are its own


class RayFleet:
    """Learners of one kind, one a key, on a cluster; made by `bs.ray_fleet`.

    As a context manager it lets its actors go in the end; else they end with the process.
    """

    def __init__(
        self,
        learner: Estimator,
        state: FleetState,
        *,
        actors: int | None,
        address: str | None,
        every: int,
    ) -> None:
        self.learner, self._start, self._every = learner, state.start, every
        self._open = ExitStack()
        self._shares: list[Share] = []
        try:
            self._ray = self._open.enter_context(connected(address))
            actors = actors or max(1, int(self._ray.cluster_resources().get("CPU", 1)))
            self._keys = {key: share_of(key, actors) for key in state.keys}
            # What jax.jit returns has no shape to be asked for any more once it was pickled.
            shipped = self._ray.put(learner._replace(init=inspect.unwrap(learner.init)))
            for number in range(actors):
                self._shares.append(Share(self._ray, shipped, _part(state, self._keys, number)))
            check_alike(self._shares)
        except BaseException:
            self.close()
            raise

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def __enter__(self) -> RayFleet:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let the actors go, and the cluster, unless this process was connected before."""
        for share in self._shares:
            share.end()
        self._shares = []
        self._open.close()

    def _check_open(self) -> None:
        if not self._shares:
            raise ValueError("This fleet is closed: its actors have been let go.")

    @property
    def keys(self) -> tuple[Name, ...]:
        """In the order in which they came."""
        return tuple(self._keys)

    @property
    def state(self) -> FleetState:
        """All that it knows: a copy, to be saved or to go on from, here or with `bs.fleet`."""
        self._check_open()
        parts = [share.save() for share in self._shares]
        places = {key: at for at, key in enumerate(key for part in parts for key in part.keys)}
        order = np.array([places[key] for key in self._keys], int)

        def joined(*leaves: Any) -> NDArray[Any]:
            return np.concatenate(leaves)[order]

        learners = jax.tree.map(joined, *(part.learners for part in parts))
        rows = joined(*(np.asarray(part.rows, int) for part in parts))
        return FleetState(self.keys, rows, learners, self._start)

    def of(self, key: Name) -> State:
        """The state of one key's learner; of a key that has not come yet, where it would begin."""
        self._check_open()
        if key not in self._keys:
            return self._start
        return jax.tree.map(jnp.asarray, self._shares[self._keys[key]].ask("of", key))

    def refused(self) -> dict[Name, int]:
        """How many updates of each key were not made, since they would not have been finite."""
        self._check_open()
        counts = {k: n for share in self._shares for k, n in share.ask("refused").items()}
        return {key: counts[key] for key in self._keys}

    def run(
        self,
        keys: Sequence[Any],
        stream: Stream | tuple[Any, ...],
        *,
        record: Record | None = plugin,
        key: Key | None = None,
        on_bad: OnBad = "raise",
        progress: bool | None = None,
    ) -> FleetRecords:
        """Forecast each row by the learner of its key, then let that learn from it.

        As `bs.Fleet.run`; `progress` is as in `bs.run`. What an actor raises is raised here, and
        the rows of that chunk, of at most 4096, are learnt by no share.
        """
        options: Any = {"record": record, "key": key, "on_bad": on_bad, "progress": progress}
        records = self.learn(keys, stream, **options)
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
        progress: bool | None = False,
    ) -> FleetRecords:
        """`run` for callers that judge the refused updates themselves, `size` rows at a time."""
        self._check_open()
        check_choice("on_bad", on_bad, {"raise": None, "skip": None})
        pickled = self._ray.cloudpickle.dumps(record)
        sent: deque[_Sent] = deque()
        parts: list[FleetRecords] = []
        skipped: list[Skipped] = []

        def receive(most: int) -> None:
            while len(sent) > most:
                parts.append(self._receive(sent.popleft()))
                bar.advance(len(parts[-1].keys))

        with Progress("learning", total=len(keys), show=progress) as bar:
            try:
                for chunk, names in with_keys(self.learner, self._start, keys, stream):
                    if on_bad == "raise" and chunk.bad:
                        receive(0)  # as on one machine, chunks before this one are learnt
                        refuse(chunk.bad)
                    skipped += sorted(chunk.bad)
                    sent.append(self._send(chunk, names, record=pickled, key=key, size=size))
                    receive(_AHEAD - 1)
                receive(0)
            except BaseException:
                for share in self._shares:
                    share.rewind()
                raise
        values = jax.tree.map(lambda *rows: np.concatenate(rows), *(part.values for part in parts))
        return FleetRecords(
            tuple(name for part in parts for name in part.keys),
            values,
            tuple(skipped),
            tuple(each for part in parts for each in part.refused),
            sum(part.updates for part in parts),
        )

    def _send(self, chunk: Chunk, names: list[Name], **how: Any) -> _Sent:
        numbers = np.array([share_of(name, len(self._shares)) for name in names], int)
        rows = {int(share): np.flatnonzero(numbers == share) for share in np.unique(numbers)}
        rows = rows or {0: np.zeros(0, int)}  # one says what is recorded, though it be of nothing
        for share, own in rows.items():
            part = Example(*(field[own] for field in chunk.good))
            self._shares[share].send(
                self._every, names=[names[row] for row in own], rows=part, **how
            )
        return _Sent(names, chunk.positions, rows)

    def _receive(self, sent: _Sent) -> FleetRecords:
        """A chunk's records; none of it is settled before all of it has been learnt."""
        answers = {share: self._shares[share].receive() for share in sent.rows}
        for share, (_, saved) in answers.items():
            self._shares[share].settle(saved)
        for name in sent.names:
            self._keys.setdefault(name, share_of(name, len(self._shares)))
        places = np.argsort(np.concatenate([*sent.rows.values()]))
        records = [records for records, _ in answers.values()]
        values = jax.tree.map(
            lambda *parts: np.concatenate(parts)[places], *(each.values for each in records)
        )
        refused = sorted(
            Skipped(int(sent.positions[own[each.position]]), each.reason)
            for own, (found, _) in zip(sent.rows.values(), answers.values(), strict=True)
            for each in found.refused
        )
        updates = sum(each.updates for each in records)
        return FleetRecords(tuple(sent.names), values, (), tuple(refused), updates)


def ray_fleet(
    learner: Estimator,
    state: State | FleetState,
    *,
    actors: int | None = None,
    address: str | None = None,
    every: int = 10_000,
) -> RayFleet:
    """`bs.fleet` over the machines of a Ray cluster, to be used like it; needs `bayestream[ray]`.

    Keys are hashed over actors, each of which has its share of the learners. An actor that dies, or
    whose machine does, is made again from its last checkpoint and fed what came since: the result
    is that of one machine, to the last bit, where all are of the same kind.

    Args:
        learner: the estimator that all are of.
        state: where each begins, or the state of a fleet, to go on from; that of a pooled fleet
            cannot be spread, since its pool learns from all rows in their order.
        actors: how many; unless given, one for each of the cluster's CPUs.
        address: of the cluster's head, HOST:PORT; "auto" for the one that this machine is part of;
            "local" to begin one here. Unless given, the one that this process is connected to, or
            else as "auto".
        every: rows that an actor learns from one of its checkpoints to the next. They are kept in
            the caller's memory, and so are the rows since.
    """
    if actors is not None:
        check_whole("actors", actors, 1)
    check_whole("every", every, 1)
    if not isinstance(state, FleetState):
        check_state(learner, state)
        none = jax.tree.map(lambda leaf: np.asarray(leaf)[None][:0], state)
        state = FleetState((), [], none, state)
    if state.pool is not None:
        raise ValueError(
            "state must be of a fleet that is not pooled: a pool learns from all rows in their "
            "order, which cannot be spread; use bs.fleet."
        )
    check_state(learner, state.start)
    return RayFleet(learner, state, actors=actors, address=address, every=every)


def _part(state: FleetState, shares: dict[Name, int], number: int) -> FleetState:
    """The learners of one share, in NumPy."""
    own = np.array([share == number for share in shares.values()], bool)
    return FleetState(
        tuple(key for key, share in shares.items() if share == number),
        np.asarray(state.rows, int)[own],
        jax.tree.map(lambda leaf: np.asarray(leaf)[own], state.learners),
        jax.tree.map(np.asarray, state.start),
    )
