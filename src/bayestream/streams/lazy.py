"""Arrays of examples that are made when they are asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Make = Callable[[NDArray[np.int64]], NDArray[Any]]  # positions (n,) → rows (n, …)


@dataclass(frozen=True)
class Lazy:
    """Rows `make(positions)`: cutting and reordering stay lazy, `np.asarray` makes them.

    >>> squares = Lazy(lambda positions: positions**2, np.arange(1000), (), np.dtype(int))
    >>> len(squares), np.asarray(squares[2:5]).tolist()
    (1000, [4, 9, 16])
    """

    make: Make
    positions: NDArray[np.int64]
    row: tuple[int, ...]  # the shape of one
    dtype: np.dtype[Any]

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def shape(self) -> tuple[int, ...]:
        """As of the array it stands for."""
        return (len(self), *self.row)

    @property
    def ndim(self) -> int:
        """As of the array it stands for."""
        return 1 + len(self.row)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, int | np.integer):
            return np.asarray(self.make(self.positions[[int(index)]]))[0]
        return Lazy(self.make, self.positions[index], self.row, self.dtype)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self.make(self.positions), dtype or self.dtype)


def mapped(rows: Any, function: Callable[[NDArray[Any], NDArray[np.int64]], NDArray[Any]]) -> Lazy:
    """function(rows, their positions), row by row, when asked for; the shape must not change."""

    def make(positions: NDArray[np.int64]) -> NDArray[Any]:
        return function(np.asarray(rows[positions]), positions)

    return Lazy(make, np.arange(len(rows)), tuple(rows.shape[1:]), np.dtype(rows.dtype))
