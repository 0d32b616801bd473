"""Inputs for categories: some for each column at first, and more for all columns as they come."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Slots:
    """An input for each category, given out in the order in which categories appear.

    A column begins with `sizes` inputs of its own, the last of them for all that find no other.
    Where these are taken, and the column may have `most`, further ones come after all inputs there
    are, so that a belief over them can `grow`: their number, of all columns together, doubles
    whenever none is free.

    >>> slots = Slots({"city": 3}, {"city": 5}, first=1)
    >>> [slots.of("city", name) for name in ("Rome", "Oslo", "Bonn", "Rome", "Lima", "Kyiv")]
    [1, 2, 4, 1, 5, 3]
    >>> slots.inputs
    6
    """

    def __init__(self, sizes: Mapping[str, int], most: Mapping[str, int], *, first: int) -> None:
        """`first` is how many inputs there are before these."""
        self.names: dict[str, dict[str, int]] = {column: {} for column in sizes}
        self.inputs = first + sum(sizes.values())  # with those before
        self._sizes, self._first = dict(sizes), first
        self._most = {column: max(size, most.get(column, 0)) for column, size in sizes.items()}
        self._free = self.inputs  # the next that belongs to no column yet
        self._starts: dict[str, int] = {}
        for column, size in sizes.items():
            self._starts[column], first = first, first + size

    def of(self, column: str, category: str) -> int:
        """The category's own input, or the one for all others."""
        names, size = self.names[column], self._sizes[column]
        if category in names:
            return names[category]
        if len(names) < size - 1:
            names[category] = self._starts[column] + len(names)
        elif len(names) < self._most[column] - 1:
            names[category] = self._next()
        else:
            return self._starts[column] + size - 1
        return names[category]

    def to_json(self) -> dict[str, Any]:
        """What was given out, in plain JSON."""
        names = {column: dict(names) for column, names in self.names.items()}
        return {"names": names, "inputs": self.inputs, "free": self._free}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Be what said so."""
        self.names = {column: dict(saved["names"][column]) for column in self.names}
        self.inputs, self._free = saved["inputs"], saved["free"]

    def _next(self) -> int:
        if self._free == self.inputs:
            twice = 2 * self.inputs - self._first
            self.inputs = min(twice, self._first + sum(self._most.values()))
        self._free += 1
        return self._free - 1
