"""What was not as the first rows of a table had it, counted: odd cells, and names without room."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

_REMEMBERED = 100  # names that found no room, to say how many there are


@dataclass
class Odd:
    """Cells of a column that could not be read, and count as missing."""

    count: int = 0
    first: str = ""  # and where that was

    def add(self, problem: str, place: str) -> None:
        """One more."""
        self.count += 1
        self.first = self.first or f"{problem}{f' ({place})' if place else ''}"

    def __str__(self) -> str:
        cells = "1 cell counts" if self.count == 1 else f"{self.count:,} cells count"
        return f"{cells} as missing; {'' if self.count == 1 else 'the first: '}{self.first}"


@dataclass
class Late:
    """Names of a column that found no room of their own."""

    rows: int = 0
    names: list[str] = field(default_factory=list[str])  # the first of them

    def add(self, name: str) -> None:
        """One more row of it."""
        self.rows += 1
        if len(self.names) < _REMEMBERED and name not in self.names:
            self.names.append(name)

    def said(self, noun: str) -> str:
        """How many, which was the first, and in how many rows."""
        some = "at least " if len(self.names) == _REMEMBERED else ""
        return (
            f"{some}{len(self.names)} more {noun} than there was room for, "
            f"{self.names[0][:50]!r} first, in {self.rows:,} rows"
        )


class Tally:
    """Both of each column, by its name.

    >>> tally = Tally()
    >>> tally.odd["size"].add("'big' is not a number", "line 3")
    >>> print(Tally.from_json(tally.to_json()).odd["size"])
    1 cell counts as missing; 'big' is not a number (line 3)
    """

    def __init__(self) -> None:
        self.odd: defaultdict[str, Odd] = defaultdict(Odd)
        self.late: defaultdict[str, Late] = defaultdict(Late)

    def to_json(self) -> dict[str, Any]:
        """All of it in plain JSON."""
        return {
            "odd": {name: asdict(each) for name, each in self.odd.items()},
            "late": {name: asdict(each) for name, each in self.late.items()},
        }

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> Tally:
        """What `to_json` has said."""
        found = cls()
        found.odd.update({name: Odd(**each) for name, each in saved["odd"].items()})
        for name, each in saved["late"].items():
            found.late[name] = Late(each["rows"], [*each["names"]])
        return found
