"""Running mean and deviation of a column, which absurd values cannot ruin."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Mapping, Sequence
from statistics import median_low
from typing import Any

# A value farther off than so many typical distances is absurd; of a Gaussian, than 43 deviations.
LIMIT = 64.0
_FIRST = 10  # values before any can be called absurd
_SIZE = 63  # of the sample, which covers 1/_SPAN of the rows so far
_SPAN = 16
_BLIND = 1e-6  # values closer than this, in typical distances, are one and the same in float32
_GOLDEN = 0.6180339887498949


class Statistics:
    """Mean and deviation of the values so far without the absurd ones.

    Distances are measured from an origin, the median of the first ten values, and among the values
    that differ from it: in a column of rare counts these are the counts, and how far they are does
    not depend on how rare. A value counts if its distance is at most LIMIT times

    - the mean distance of all that counted before, or
    - the median distance of a sample of 63 values.

    The sample holds the first 63; until it is full, the moments are those of its members within
    LIMIT times its median, worked out anew each time, so that even an absurd first value is
    forgotten. Later it takes a value every n/1008 rows, and so covers the last sixteenth of the n
    rows so far: a change that lasts for n/32 rows moves its median, and counts from then on.

    >>> statistics = Statistics()
    >>> [value for value in (1e30, *range(20), 1e30) if not statistics.add(value)]
    [1e+30]
    >>> statistics.mean, round(statistics.deviation, 3)
    (9.5, 5.766)
    """

    def __init__(self) -> None:
        self.count = 0  # absurd values and all
        self._origin = 0.0
        self._sample: deque[float] = deque()  # none at the origin
        self._distances: list[float] = []  # the sample's, sorted
        self._due = 0.0  # the row from which the sample takes another value
        # Since the sample was last compared with the moments, after `_compared` rows:
        self._compared = self._taken = self._at_origin = 0
        # Moments about the origin of what counts. It counts itself: little is lost by cancellation.
        self._counted = self._off_origin = 0
        self._sum = self._sum_distances = self._squares = 0.0

    def to_json(self) -> dict[str, Any]:
        """All of it in plain numbers and lists."""
        return {**vars(self), "_sample": list(self._sample), "_distances": [*self._distances]}

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> Statistics:
        """What `to_json` has said."""
        found = cls()
        for name in vars(found):
            setattr(found, name, saved[name])
        found._sample, found._distances = deque(found._sample), [*found._distances]
        return found

    def add(self, value: float) -> bool:
        """One more value, below 1e100 so that squares are finite; whether it counts."""
        self.count += 1
        if self.count <= _FIRST:
            values = [*self._sample, *[self._origin] * self._at_origin, value]
            self._begin(values, median_low(values))
            return abs(value - self._origin) <= self._sample_limit()
        offset = value - self._origin
        distance = abs(offset)
        if distance == 0:
            self._at_origin += 1
            self._counted += 1
            return True
        if len(self._sample) < _SIZE:
            self._sample.append(value)
            insort(self._distances, distance)
            self._work_out()
            return distance <= self._sample_limit()
        counts = distance <= max(self._sample_limit(), LIMIT * self._mean_distance())
        if counts:
            self._counted += 1
            self._off_origin += 1
            self._sum += offset
            self._sum_distances += distance
            self._squares += offset * offset
        if self.count >= self._due:
            self._take(value)
        return counts

    @property
    def mean(self) -> float:
        """The mean so far; 0 before the first value."""
        return self._origin + self._sum / max(self._counted, 1)

    @property
    def deviation(self) -> float:
        """The standard deviation so far; 1 where nothing varies."""
        number = max(self._counted, 1)
        variance = self._squares / number - (self._sum / number) ** 2
        return math.sqrt(variance) if variance > 0 else 1.0

    def standardise(self, value: float, *, at_most: float) -> float:
        """The value in deviations from the mean, cut off at so many."""
        return min(max((value - self.mean) / self.deviation, -at_most), at_most)

    def _mean_distance(self) -> float:
        return self._sum_distances / max(self._off_origin, 1)

    def _sample_limit(self) -> float:
        return math.inf if self.count < _FIRST else LIMIT * _median(self._distances)

    def _begin(self, values: Sequence[float], origin: float) -> None:
        """From these values alone."""
        self._origin = origin
        self._sample = deque(value for value in values if value != origin)
        self._distances = sorted(abs(value - origin) for value in self._sample)
        self._taken, self._at_origin = 0, len(values) - len(self._sample)
        self._compared = self.count - len(values)
        self._work_out()

    def _work_out(self) -> None:
        """The moments, from the sample and the values at the origin."""
        limit = self._sample_limit()
        offsets = [value - self._origin for value in self._sample]
        offsets = [offset for offset in offsets if abs(offset) <= limit]
        self._off_origin = len(offsets)
        self._counted = self._at_origin + len(offsets)
        self._sum = sum(offsets)
        self._sum_distances = sum(map(abs, offsets))
        self._squares = sum(offset * offset for offset in offsets)

    def _take(self, value: float) -> None:
        """Into the sample, in place of the oldest."""
        oldest = abs(self._sample.popleft() - self._origin)
        del self._distances[bisect_left(self._distances, oldest)]
        self._sample.append(value)
        insort(self._distances, abs(value - self._origin))
        self._taken += 1
        # Uneven steps: even ones may meet nothing but the absurd values, if those are periodic.
        step = 0.5 + self._taken * _GOLDEN % 1.0
        self._due = self.count + step * self.count / (_SPAN * _SIZE)
        if self._taken == _SIZE:
            self._compare()

    def _compare(self) -> None:
        """Begin anew if the moments make one point of all values in the sample.

        So they do if what began the column, or stayed for long, was absurd after all.
        """
        share = self._at_origin / (self.count - self._compared)
        in_use = share > 0.1
        origin = self._origin if in_use else median_low(self._sample)
        distances = sorted(abs(value - origin) for value in self._sample if value != origin)
        if 0 < _median(distances) < _BLIND * self._mean_distance():
            at_origin = round(_SIZE * share / (1 - share)) if in_use else 0
            self._begin([*self._sample, *[origin] * at_origin], origin)
        else:
            self._taken = self._at_origin = 0
            self._compared = self.count


def _median(distances: Sequence[float]) -> float:
    """Of sorted ones; 0 if there are none."""
    return distances[(len(distances) - 1) // 2] if distances else 0.0
