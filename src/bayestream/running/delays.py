"""Labels that come later than what they are labels of: each is learnt in the step it arrives."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from bayestream.running.chunks import Chunk, Skipped, stack
from bayestream.types import Example

_Waiting = tuple[int, int, Example]  # the step of arrival, the position, the example
_MULTIPLE = 64  # blocks come in few sizes, each of which is compiled once


class Block(NamedTuple):
    """Stacked ticks: a step is one tick, or several when several labels arrive in it."""

    asked: Example  # what a forecast is made for, if the step is new
    learnt: Example  # whose label arrives; NaN where none does
    positions: Any  # of what is learnt, in the stream
    new: np.ndarray | None  # does this tick begin a step? None where every one does
    bad: list[Skipped]


def delivered(chunks: Iterable[Chunk]) -> Iterator[Block]:
    """Each label in the step it arrives; those that would after the last step never do."""
    waiting: list[_Waiting] = []  # a heap
    now = 0
    for good, positions, bad in chunks:
        if not len(positions) or (not waiting and not np.any(good.delay)):
            now += len(positions)
            yield Block(good, good, positions, None, bad)
            continue
        ticks: list[tuple[Example, Example, int, bool]] = []
        for row, position in enumerate(positions):
            asked = Example(*(field[row] for field in good))
            heapq.heappush(waiting, (now + int(asked.delay), int(position), asked))
            none = asked._replace(y=np.full(np.shape(asked.y), np.nan))
            first, *others = list(_due(waiting, now)) or [(now, int(position), none)]
            ticks.append((asked, first[2], first[1], True))
            ticks += [(asked, label, where, False) for _, where, label in others]
            now += 1
        yield _block(ticks, bad)


def _due(waiting: list[_Waiting], now: int) -> Iterator[_Waiting]:
    while waiting and waiting[0][0] <= now:
        yield heapq.heappop(waiting)


def _block(ticks: list[tuple[Example, Example, int, bool]], bad: list[Skipped]) -> Block:
    if not all(new for *_, new in ticks):
        asked, learnt, position, _ = ticks[-1]
        idle = learnt._replace(y=np.full(np.shape(learnt.y), np.nan))
        ticks += [(asked, idle, position, False)] * (-len(ticks) % _MULTIPLE)
    asked, learnt, positions, new = zip(*ticks, strict=True)
    return Block(stack(asked), stack(learnt), np.array(positions, int), np.array(new), bad)
