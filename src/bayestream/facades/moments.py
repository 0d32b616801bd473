"""Running mean and deviation of many columns at once, of rows that have weights."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayestream.streams.statistics import LIMIT


class Moments:
    """Of all rows so far; a batch is merged with what was there (Chan, Golub & LeVeque 1979).

    >>> moments = Moments()
    >>> moments.add(np.array([[1.0], [3.0]]), np.array([1.0, 1.0]))
    >>> moments.add(np.array([[5.0]]), np.array([2.0]))
    >>> moments.mean.tolist(), moments.standardised(np.array([[3.5]])).tolist()
    ([3.5], [[0.0]])
    """

    def __init__(self) -> None:
        self.weight = 0.0
        self.mean: NDArray[Any] = np.zeros(0)
        self._squares: NDArray[Any] = np.zeros(0)  # Σ w (x − mean)²

    def add(self, rows: NDArray[Any], weights: NDArray[Any]) -> None:
        """Rows (N, columns), each as often as its weight says."""
        total = float(weights.sum())
        if total == 0:
            return
        mean = weights @ rows / total
        squares = weights @ (rows - mean) ** 2
        if self.weight == 0:
            self.mean, self._squares, self.weight = mean, squares, total
            return
        apart, both = mean - self.mean, self.weight + total
        self._squares = self._squares + squares + apart**2 * self.weight * total / both
        self.mean, self.weight = self.mean + apart * total / both, both

    @property
    def deviation(self) -> NDArray[Any]:
        """The standard deviation of each column; 1 where nothing varies."""
        variance = self._squares / max(self.weight, 1e-300)
        # What rounding makes of a constant is no variance.
        varies = variance > (1e-10 * np.abs(self.mean)) ** 2
        return np.sqrt(np.where(varies, variance, 1.0))

    def standardised(self, rows: NDArray[Any]) -> NDArray[np.float32]:
        """In deviations from the mean, cut off at LIMIT of them."""
        scaled = (rows - self.mean) / self.deviation
        return np.clip(scaled, -LIMIT, LIMIT).astype(np.float32)
