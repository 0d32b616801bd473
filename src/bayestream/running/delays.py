"""Labels that come later than what they are labels of: each is learnt in the step it arrives."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from bayestream.running.chunks import Chunk, Skipped, stack
from bayestream.types import Example, Stream

_Label = tuple[int, int, Example]  # the step of arrival, the position, the example
_MULTIPLE = 64  # blocks come in few sizes, each of which is compiled once


@dataclass
class Waiting:
    """The labels that are still to arrive, and which step it is."""

    now: int = 0
    heap: list[_Label] = field(default_factory=list[_Label])

    def arrays(self) -> dict[str, Any]:
        """As arrays, for a checkpoint; none where nothing waits."""
        if not self.heap:
            return {}
        arrivals, positions, examples = zip(*sorted(self.heap), strict=True)
        named = {"arrival": np.array(arrivals), "position": np.array(positions)}
        return named | stack(examples)._asdict()

    @classmethod
    def of(cls, now: int, arrays: Mapping[str, Any]) -> Waiting:
        """From such arrays; sorted, they are a heap."""
        if not arrays:
            return cls(now)
        examples = Stream(Example(*(arrays[name] for name in Example._fields)))
        places = zip(arrays["arrival"].tolist(), arrays["position"].tolist(), strict=True)
        return cls(now, [(*place, x) for place, x in zip(places, examples, strict=True)])


class Block(NamedTuple):
    """Stacked ticks: a step is one tick, or several when several labels arrive in it."""

    asked: Example  # what a forecast is made for, if the step is new
    learnt: Example  # whose label arrives; NaN where none does
    positions: Any  # of what is learnt, in the stream
    new: np.ndarray | None  # does this tick begin a step? None where every one does
    bad: list[Skipped]


def delivered(chunks: Iterable[Chunk], labels: Waiting) -> Iterator[Block]:
    """Each label in the step it arrives; those that would after the last step go on waiting."""
    waiting = labels.heap
    for good, positions, bad in chunks:
        if not len(positions) or (not waiting and not np.any(good.delay)):
            labels.now += len(positions)
            yield Block(good, good, positions, None, bad)
            continue
        ticks: list[tuple[Example, Example, int, bool]] = []
        for row, position in enumerate(positions):
            now = labels.now
            asked = Example(*(field[row] for field in good))
            heapq.heappush(waiting, (now + int(asked.delay), int(position), asked))
            none = asked._replace(y=np.full(np.shape(asked.y), np.nan))
            first, *others = list(_due(waiting, now)) or [(now, int(position), none)]
            ticks.append((asked, first[2], first[1], True))
            ticks += [(asked, label, where, False) for _, where, label in others]
            labels.now += 1
        yield _block(ticks, bad)


def _due(waiting: list[_Label], now: int) -> Iterator[_Label]:
    while waiting and waiting[0][0] <= now:
        yield heapq.heappop(waiting)


def _block(ticks: list[tuple[Example, Example, int, bool]], bad: list[Skipped]) -> Block:
    if not all(new for *_, new in ticks):
        asked, learnt, position, _ = ticks[-1]
        idle = learnt._replace(y=np.full(np.shape(learnt.y), np.nan))
        ticks += [(asked, idle, position, False)] * (-len(ticks) % _MULTIPLE)
    asked, learnt, positions, new = zip(*ticks, strict=True)
    return Block(stack(asked), stack(learnt), np.array(positions, int), np.array(new), bad)
