"""Sudden changes of the world: forecasts that are worse than they themselves expect to be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

# Chosen on the streams of benchmarks/streams.py; docs/decisions.md has delays and false alarms.
_ALLOWED = 0.25  # surprise a step that is nothing yet
_ALARM = 15.0  # of what is more, summed
_LARGEST = 3.0  # that one step can bring: an outlier is not a change
_RATE = 0.005  # of the running mean that surprise must exceed: a belief may be too sure of itself
_WARM_UP = 200  # steps before the first alarm
_QUIET = 200  # steps after one that belong to it


class Change(NamedTuple):
    """An alarm."""

    row: int  # when it was raised
    since: int  # where the surprise begins
    strength: float  # the mean surprise since then, in standard deviations


class Watch:
    """Page's test (CUSUM) on surprise: how much worse each forecast was than it expected to be.

    A calibrated forecast's surprise has mean 0 and variance 1 whatever is forecast, so one
    threshold serves every stream.

    >>> watch = Watch()
    >>> found = [watch.add(0.0 if row < 500 else 2.0) for row in range(600)]
    >>> next(change for change in found if change)
    Change(row=508, since=500, strength=2.0)
    """

    def __init__(self) -> None:
        self.rows = 0
        self._sum = self._mean = 0.0
        self._since, self._quiet_until = 0, _WARM_UP
        self._total = 0.0

    def to_json(self) -> dict[str, float]:
        """All it remembers, in plain numbers."""
        return dict(vars(self))

    @classmethod
    def from_json(cls, saved: Mapping[str, float]) -> Watch:
        """The watch that said so."""
        found = cls()
        for name in vars(found):
            setattr(found, name, saved[name])
        return found

    def add(self, surprise: float) -> Change | None:
        """The next row's; an alarm, where it is one. NaN, where nothing was forecast, is none."""
        row, self.rows = self.rows, self.rows + 1
        if np.isnan(surprise):
            return None
        felt = float(np.clip(surprise, -_LARGEST, _LARGEST))
        if self._sum == 0:
            self._since, self._total = row, 0.0
        self._total += felt
        self._sum = max(0.0, self._sum + felt - max(self._mean, 0.0) - _ALLOWED)
        self._mean += max(_RATE, 1 / (row + 2)) * (felt - self._mean)
        if row < self._quiet_until:
            self._sum = 0.0
        if self._sum <= _ALARM:
            return None
        found = Change(row, self._since, self._total / (row - self._since + 1))
        self._sum, self._quiet_until = 0.0, row + _QUIET
        return found


def surprise_of_numbers(cdf: NDArray[Any]) -> NDArray[Any]:
    """Of y where its forecast has this distribution function: −log P(further out) − 1.

    >>> surprise_of_numbers(np.array([0.5, 0.005])).round(2).tolist()
    [-1.0, 3.61]
    """
    further = 2 * np.minimum(cdf, 1 - cdf)
    return -np.log(np.maximum(further, 1e-300)) - 1


def surprise_of_classes(probabilities: NDArray[Any], label: NDArray[Any]) -> NDArray[Any]:
    """−log p(y), less its mean under the forecast, over its deviation there.

    >>> even = np.full((1, 2), 0.5)
    >>> surprise_of_classes(even, np.array([0])).tolist()
    [0.0]
    """
    p = np.clip(probabilities, 1e-12, 1.0)
    losses = -np.log(p)
    mean = np.sum(p * losses, axis=1)
    variance = np.sum(p * losses**2, axis=1) - mean**2
    # A forecast that is certain, and right, expects no spread at all.
    return (losses[np.arange(len(p)), label] - mean) / np.sqrt(variance + 0.01)
