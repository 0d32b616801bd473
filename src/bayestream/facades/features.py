"""Named values of a row as numbers: names that come and go, numbers and text, without peeking."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayestream.streams.statistics import LIMIT, Statistics

_HUGE = 1e100  # the square of a number must be one


class _Text(NamedTuple):
    """The place of a text: an indicator of it."""

    name: Hashable
    text: str


class Features:
    """A place for each name that has a number, and for each text under a name.

    Numbers are standardised with the mean and deviation of those so far, as in `streams.Encoder`; a
    text is 1 in its place. What is missing, absurd or was never learnt is 0: no weight feels it.

    >>> features = Features(limit=100)
    >>> features.learn({"a": 1.0, "b": "u"}).tolist(), features.learn({"a": 3, "b": "v"}).tolist()
    ([0.0, 1.0], [1.0, 0.0, 1.0])
    >>> features.read({"a": 2.0, "b": "w", "c": 5.0}, size=4).tolist()
    [0.0, 0.0, 0.0, 0.0]
    """

    def __init__(self, *, limit: int) -> None:
        self.limit = limit  # places; those who come later find none
        self.places: dict[Hashable, int] = {}
        self._statistics: dict[int, Statistics] = {}
        # Of each place, as its statistics last said; 1/deviation is 0 where it is not a number's.
        self._means: list[float] = []
        self._scales: list[float] = []

    def learn(self, row: Mapping[Any, Any]) -> NDArray[np.float32]:
        """The row, standardised with the rows up to and with this one."""
        named = _named(row)
        # In the order of their names: it must not matter how a dict is ordered.
        for place in sorted((place for place in named if place not in self.places), key=repr):
            if len(self.places) < self.limit:
                self._add(place, isinstance(place, _Text))
        x = [0.0] * len(self.places)
        for name, value in named.items():
            place = self.places.get(name)
            if place is None:
                continue
            if isinstance(name, _Text):
                x[place] = 1.0
                continue
            statistics = self._statistics[place]
            counts = statistics.add(value)
            mean = self._means[place] = statistics.mean
            scale = self._scales[place] = 1 / statistics.deviation
            if counts:
                x[place] = min(max((value - mean) * scale, -LIMIT), LIMIT)
        return np.array(x, np.float32)

    def read(self, row: Mapping[Any, Any], *, size: int) -> NDArray[np.float32]:
        """The row, standardised with those that were learnt, in `size` numbers; nothing changes."""
        x = [0.0] * size
        for name, value in _named(row).items():
            place = self.places.get(name)
            if place is None:
                continue
            if isinstance(name, _Text):
                x[place] = 1.0
            else:
                z = (value - self._means[place]) * self._scales[place]
                # Farther off than LIMIT deviations, it says no more than a missing one.
                x[place] = z if -LIMIT < z < LIMIT else 0.0
        return np.array(x, np.float32)

    def _add(self, name: Hashable, text: bool) -> None:
        place = self.places[name] = len(self.places)
        self._means.append(0.0)
        self._scales.append(0.0)
        if not text:
            self._statistics[place] = Statistics()


def _named(row: Mapping[Any, Any]) -> dict[Any, Any]:
    """Numbers by their names, and 1 for each text; what is missing is left out."""
    named: dict[Any, Any] = {}
    for name, value in row.items():
        if isinstance(value, int | float):  # a boolean is a number too
            number = value
        elif value is None:
            continue
        elif isinstance(value, str):
            named[_Text(name, value)] = 1.0
            continue
        elif isinstance(value, Real | np.bool_ | np.number):
            number = float(value)
        else:
            raise ValueError(
                f"x[{name!r}] must be a number, a boolean or a string, got {value!r}; "
                "make numbers of it first."
            )
        if -_HUGE < number < _HUGE:  # not of NaN
            named[name] = number
    return named
