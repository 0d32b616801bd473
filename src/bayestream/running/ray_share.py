"""A share of a fleet: an actor on a Ray cluster, and what it takes to make it again if it dies."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import bayestream
from bayestream.networks.native import in_use
from bayestream.running.fleet import Fleet, FleetRecords
from bayestream.running.fleet_state import FleetState, Name
from bayestream.running.ray_cluster import library, options, reason
from bayestream.types import Estimator, Example, Key, State

_TRIES = 5  # deaths in a row, with nothing learnt between them


def share_of(key: Name, count: int) -> int:
    """Which of so many shares a key is in: the same in every process, whatever other keys come.

    >>> [share_of(key, 4) for key in ("a", "b", 3, "3")]
    [0, 2, 3, 0]
    """
    kind = "i" if isinstance(key, int) else "s"
    return zlib.crc32(f"{kind}{key}".encode("utf-8", "surrogatepass")) % count


class Batch(NamedTuple):
    """Rows for a share."""

    number: int  # how many came before it
    names: list[Name]
    rows: Example
    record: bytes  # pickled; the same function must be the same object, or it is compiled again
    key: Key | None
    size: int
    save: bool  # answer with a checkpoint as well


class Saved(NamedTuple):
    """A share as it is after so many batches."""

    batches: int
    state: FleetState


class Worker:
    """Inside an actor: the learners of a share, on one thread."""

    def __init__(self, learner: Estimator, saved: Saved) -> None:
        self._fleet = Fleet(learner, saved.state, threads=1)
        self._batches = saved.batches

    def about(self) -> dict[str, Any]:
        """What must be as it is in the caller's process, or numbers would differ."""
        return about()

    def learn(self, batch: Batch) -> tuple[FleetRecords, Saved | None]:
        """What was recorded, and a checkpoint if one is due; no batch is taken twice, or left out.

        After a batch that raised, no other is taken.
        """
        if batch.number != self._batches:
            raise RuntimeError(f"batch {self._batches} must come next, got {batch.number}.")
        records = self._fleet.learn(
            batch.names,
            tuple(batch.rows),
            record=_function(batch.record),
            key=batch.key,
            size=batch.size,
        )
        self._batches += 1
        return records, self.save() if batch.save else None

    def save(self) -> Saved:
        """A checkpoint."""
        return Saved(self._batches, self._fleet.state)

    def of(self, key: Name) -> State:
        """The state of one key's learner."""
        return jax.tree.map(np.asarray, self._fleet.of(key))

    def refused(self) -> dict[Name, int]:
        """As of a fleet."""
        return self._fleet.refused()


class Share:
    """An actor as its caller sees it: alive, or at once made again from what is kept here.

    Kept are the last checkpoint and the batches since, of which the first `_done` were answered.
    """

    def __init__(self, ray: Any, learner: Any, state: FleetState) -> None:
        """`learner` is in Ray's object store, once for all."""
        self._ray, self._learner = ray, learner
        self._saved = Saved(0, state)
        self._since: list[Batch] = []
        self._done = self._deaths = 0
        self._begin()

    def ask(self, method: str, *arguments: Any) -> Any:
        """What a method of the worker returns, after the batches that were sent before."""
        return self._answer(lambda: getattr(self._actor, method).remote(*arguments))

    def send(self, every: int, **batch: Any) -> None:
        """Let it learn from a batch; every so many rows it is to save itself."""
        rows = len(batch["names"])
        for sent in self._since:
            rows = len(batch["names"]) if sent.save else rows + len(sent.names)
        number = self._saved.batches + len(self._since)
        self._since.append(Batch(number=number, save=rows >= every, **batch))
        self._answers.append(self._actor.learn.remote(self._since[-1]))

    def receive(self) -> tuple[FleetRecords, Saved | None]:
        """The answer to the first batch that has not been settled."""
        return self._answer(lambda: self._answers[self._done])

    def settle(self, saved: Saved | None) -> None:
        """That answer has been taken: what came before its checkpoint need not be kept."""
        self._done += 1
        if saved is not None:
            self._saved = saved
            del self._since[: self._done], self._answers[: self._done]
            self._done = 0

    def rewind(self) -> None:
        """Be as after the last batch that was settled."""
        if len(self._since) > self._done:
            del self._since[self._done :]
            self.end()
            self._begin()

    def save(self) -> FleetState:
        """All that it knows, when all batches are settled: a checkpoint too."""
        if self._since:
            self._saved = self.ask("save")
            self._since, self._answers, self._done = [], [], 0
        return self._saved.state

    def end(self) -> None:
        """Let the actor go."""
        with suppress(self._ray.exceptions.RayError):  # of one that is dead already
            self._ray.kill(self._actor)

    def _begin(self) -> None:
        # No CPU is reserved: where machines were lost, an actor must find room on those left.
        actor = self._ray.remote(Worker).options(num_cpus=0, **options())
        self._actor = actor.remote(self._learner, self._saved)
        self._answers = [self._actor.learn.remote(batch) for batch in self._since]

    def _answer(self, call: Callable[[], Any]) -> Any:
        """What a call returns; `call` is made again when the actor has died."""
        while True:
            try:
                found = self._ray.get(call())
            except self._ray.exceptions.RayTaskError as error:
                raise error.cause from None
            except self._ray.exceptions.RayError as error:  # it died, or its answer was lost
                self._deaths += 1
                if self._deaths == _TRIES:
                    self._deaths = 0
                    raise ChildProcessError(
                        f"An actor of the fleet died {_TRIES} times in a row, the last time of "
                        f"this: {reason(error)}; if memory is short, use more machines, or actors "
                        "that save themselves more often."
                    ) from None
                self.end()
                self._begin()
            else:
                self._deaths = 0
                return found


def about() -> dict[str, Any]:
    """What numbers depend on beside the learner and its rows."""
    return {
        "bayestream": bayestream.__version__,
        "jax": jax.__version__,
        "kernels": in_use(),
        "precision": jnp.result_type(float).name,
    }


def check_alike(shares: Iterable[Share]) -> None:
    """Refuse actors that would come to other numbers than this process."""
    here = about()
    for share in shares:
        for name, value in share.ask("about").items():
            if value != here[name]:
                raise ValueError(
                    f"The cluster must compute as this process does: its {name} is {value}, "
                    f"here {here[name]}."
                )


@cache
def _function(pickled: bytes) -> Any:
    return library().cloudpickle.loads(pickled)
