"""A run that can be ended at any moment and goes on where it was: its checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bayestream.checks import check_whole
from bayestream.running import checkpoint
from bayestream.running.chunks import CHUNK
from bayestream.running.delays import Waiting
from bayestream.running.envelope import CheckpointError, library
from bayestream.running.folder import files
from bayestream.types import Estimator, Key, State


@dataclass(frozen=True)
class Checkpoints:
    """A folder for a run's checkpoints: `bs.run(…, checkpoints=bs.Checkpoints("out/saved"))`.

    The run saves itself every so many steps (or at the end of the chunk of 500 in which they are
    over) and at its end. Called again with the same arguments, it goes on where the newest
    checkpoint was made: it skips as many examples of the stream, and ends with the very numbers of
    a run that was never broken off.
    """

    folder: str | Path
    every: int = 1000  # steps
    keep: int = 3  # checkpoints, the newest

    def __post_init__(self) -> None:
        check_whole("every", self.every, 1)
        check_whole("keep", self.keep, 1)
        library()  # now, not after a thousand steps

    @property
    def chunk(self) -> int:
        """How many examples the run takes at a time, so that it can be saved in time."""
        return min(self.every, CHUNK)


class Keeper:
    """Where a run is in its stream, and what is saved of that; without checkpoints, nothing is."""

    def __init__(
        self, to: Checkpoints | None, estimator: Estimator, state: State, key: Key | None
    ) -> None:
        self._to, self._estimator = to, estimator
        self._key = None if key is None else np.asarray(jax.random.key_data(key)).tolist()
        self.state, self.position, self.waiting = state, 0, Waiting()
        if to is not None and files(Path(to.folder)):
            self._resume(to)
        self._saved = self.position

    def advance(self, state: State, count: int) -> None:
        """So many examples more have been read; save, if it is time."""
        self.position += count
        if self._to is not None and self.position - self._saved >= self._to.every:
            self.save(state)

    def save(self, state: State) -> None:
        """Save what is new, if there is a folder for it."""
        if self._to is None or self.position == self._saved:
            return
        checkpoint.save_step(
            self._to.folder,
            self._estimator,
            state,
            step=self.position,
            keep=self._to.keep,
            notes={"steps": self.waiting.now, "key": self._key},
            arrays=self.waiting.arrays(),
        )
        self._saved = self.position

    def _resume(self, to: Checkpoints) -> None:
        found: Any = checkpoint.load(to.folder, self._estimator)
        if not isinstance(found.notes, dict) or "key" not in found.notes:
            raise CheckpointError(f"{to.folder} must hold checkpoints of a run, got others.")
        if found.notes["key"] != self._key:
            raise CheckpointError(f"key must be that of the run in {to.folder}, got another.")
        self.state, self.position = found.state, found.step
        self.waiting = Waiting.of(found.notes["steps"], found.arrays)
