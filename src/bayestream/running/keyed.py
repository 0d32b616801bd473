"""The rows of a stream and whose they are, in chunks that have been looked at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bayestream.estimators.guard import check_state
from bayestream.running.chunks import Chunk, Skipped, chunked, nothing
from bayestream.running.fleet_state import Name, name_of
from bayestream.types import Estimator, Example, State

_ROWS = 4096  # learnt at once, of all keys


def with_keys(
    learner: Estimator, start: State, keys: Sequence[Any], stream: Any
) -> Iterator[tuple[Chunk, list[Name]]]:
    """Chunks of rows that have a key, and their keys; of no rows, one that is empty."""
    likelihood, dtype = check_state(learner, start)
    chunks, total = chunked(stream, learner.model, likelihood, dtype, size=_ROWS)
    if total is None:
        raise TypeError("stream must be a bs.Stream or a pair of arrays (x, y), got neither.")
    if len(keys) != total:
        raise ValueError(f"keys must be one a row, got {len(keys)} of them and {total} rows.")
    none = Chunk(nothing(learner.model, likelihood), np.zeros(0, int), [])
    for chunk in chunks if total else (none,):
        yield _sifted(chunk, keys)


def _sifted(chunk: Chunk, keys: Sequence[Any]) -> tuple[Chunk, list[Name]]:
    """The chunk's rows that have a key, and their keys."""
    good, positions, bad = chunk
    names = [name_of(keys[position]) for position in positions.tolist()]
    prompt = np.asarray(good.delay) == 0
    keep = prompt & np.array([name is not None for name in names], bool)
    bad = bad + [
        Skipped(int(positions[row]), f"delay must be 0 in a fleet, got {good.delay[row]}.")
        if not prompt[row]
        else Skipped(
            int(positions[row]),
            f"its key must be a string or a whole number, got {keys[positions[row]]!r}.",
        )
        for row in np.flatnonzero(~keep)
    ]
    rows = Chunk(Example(*(field[keep] for field in good)), positions[keep], bad)
    return rows, [name for name, kept in zip(names, keep, strict=True) if kept and name is not None]
