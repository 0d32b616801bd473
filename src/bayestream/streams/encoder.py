"""One row of named columns as numbers, encoded with nothing but the rows so far."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayestream.streams.habits import Habits
from bayestream.streams.slots import Slots
from bayestream.streams.statistics import LIMIT, Statistics
from bayestream.streams.tally import Tally
from bayestream.streams.targets import Task
from bayestream.streams.values import PLAIN, NumberStyle, moment_of, name_of, number_of

# Labels before forecasts are scored: the units of the target are not known sooner.
WARM_UP = 10
_LARGEST = 1e15  # standardised label: learners square it in float32
_CYCLES = np.array([1.0, 7.0, 365.2425]) * 86_400  # day, week and year, in seconds


class Growth(NamedTuple):
    """What a network must have from a row on."""

    inputs: int
    outputs: int
    why: str  # in words


class Encoded(NamedTuple):
    """A row in numbers; forecasts of y are turned into units by centre + scale · y."""

    place: str
    x: NDArray[np.float64]  # each input at most LIMIT in size
    y: float  # standardised with the labels up to and with this one, or the class; NaN if missing
    target: Any  # as it was written, None if missing
    centre: float  # of the labels before this one
    scale: float  # their deviation; NaN while there are fewer than WARM_UP
    classes: int = 0  # how many classes had been seen before this row
    growth: Growth | None = None  # where it is the first that needs more inputs or outputs
    key: str | None = None  # whose learner's row it is, in a fleet


class Columns(NamedTuple):
    """What each input column holds."""

    numeric: tuple[str, ...]
    categorical: tuple[str, ...]
    dates: tuple[str, ...] = ()


class Encoder:
    """Turns rows into numbers, one at a time, knowing only the rows before.

    Numbers are standardised with the mean and deviation of their column up to and with this row,
    without the absurd values (`Statistics`); a missing one, or an absurd one, becomes the mean. A
    date is its seconds, as a number, and where in the day, the week and the year it falls: sine and
    cosine of each, times √2, or zeros where it is missing. The target is standardised as numbers
    are, but an absurd label stays one: how much it teaches is for the learner to decide. A category
    takes the first free of its column's `slots`, and the last stands for all that find none; a
    missing one is zeros. Where `most` allows it there are more slots, and outputs for classes, when
    all are taken: twice as many, after those there were, and the row says so (`growth`). Where a
    number or a date is expected, what is none counts as missing; `notes` says how much of that
    there was.

    >>> encoder = Encoder(Columns(("a",), ("b",)), target="y", task="regression", slots=3)
    >>> [encoder.encode({"a": a, "b": b, "y": 1}).x.tolist() for a, b in ((1, "u"), (3, "v"))]
    [[0.0, 1.0, 0.0, 0.0], [1.0, 0.0, 1.0, 0.0]]
    """

    def __init__(
        self,
        columns: Columns,
        *,
        target: str,
        task: Task,
        ignore: Sequence[str] = (),
        slots: int | Mapping[str, int] = 10,
        classes: int = 10,
        orders: Mapping[str, str] | None = None,
        most: Mapping[str, int] | None = None,
        habits: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """`slots` are of every column of categories or of each; `orders` are of columns of dates.

        An order is "ymd", "dmy" or "mdy", the first unless said. `most` has of a column how many
        slots it may grow to, and of the target how many classes; what is not in it does not grow.
        `habits` are of columns whose numbers are written in a way of their own.
        """
        sizes = {c: slots if isinstance(slots, int) else slots[c] for c in columns.categorical}
        lowest = (("classes", classes, 2), *(("slots", size, 1) for size in sizes.values()))
        for role, value, least in lowest:
            if value < least:
                raise ValueError(f"{role} must be a whole number, {least} or above, got {value!r}.")
        self.columns, self.target = columns, target
        self.task: Task = task
        self.outputs = classes if task == "classification" else 1
        self.classes: dict[str, int] = {}
        self._orders = {name: (orders or {}).get(name, "ymd") for name in columns.dates}
        growing = dict(most or {})
        self._options = {
            "ignore": [*ignore],
            "slots": sizes,
            "classes": classes,
            "orders": self._orders,
            "most": growing,
            "habits": {name: [*each] for name, each in (habits or {}).items()},
        }
        self._habits = {name: Habits(*each) for name, each in (habits or {}).items()}
        self._most_classes = max(classes, growing.get(target, 0))
        # Numbers first, then the seconds of dates; then what falls into cycles, then categories.
        self._numbers = {name: Statistics() for name in (*columns.numeric, *columns.dates)}
        first = len(self._numbers) + 2 * len(_CYCLES) * len(columns.dates)
        self._slots = Slots(sizes, growing, first=first)
        self.tally = Tally()  # what was odd about the rows so far
        self._labels = Statistics()
        self._known = {*self._numbers, *columns.categorical, target, *ignore}

    def to_json(self) -> dict[str, Any]:
        """All it has learnt from the rows so far, in plain JSON.

        >>> encoder = Encoder(Columns(("a",), ("b",)), target="y", task="regression", slots=3)
        >>> _ = encoder.encode({"a": 1, "b": "u", "y": 2})
        >>> copy = Encoder.from_json(encoder.to_json())
        >>> [each.encode({"a": 3, "b": "v", "y": 2}).x.tolist() for each in (copy, encoder)]
        [[1.0, 0.0, 1.0, 0.0], [1.0, 0.0, 1.0, 0.0]]
        """
        return {
            "columns": {name: [*columns] for name, columns in self.columns._asdict().items()},
            "options": {"target": self.target, "task": self.task, **self._options},
            "numbers": {name: each.to_json() for name, each in self._numbers.items()},
            "slots": self._slots.to_json(),
            "labels": self._labels.to_json(),
            "classes": [*self.classes],
            "outputs": self.outputs,
            "tally": self.tally.to_json(),
        }

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> Encoder:
        """The encoder that said so: it knows the same rows, and shares nothing with the other."""
        columns = Columns(**{name: tuple(names) for name, names in saved["columns"].items()})
        found = cls(columns, **saved["options"])
        found._numbers = {k: Statistics.from_json(saved["numbers"][k]) for k in found._numbers}
        found._slots.restore(saved["slots"])
        found._labels = Statistics.from_json(saved["labels"])
        found.classes = {name: number for number, name in enumerate(saved["classes"])}
        found.outputs = saved["outputs"]
        found.tally = Tally.from_json(saved["tally"])
        return found

    @property
    def inputs(self) -> int:
        """The length of x."""
        return self._slots.inputs

    def names(self, column: str) -> int:
        """How many categories of a column, or classes of the target, have a number of their own."""
        return len(self.classes if column == self.target else self._slots.names[column])

    def encode(
        self, row: Mapping[str, Any], place: str = "", style: NumberStyle = PLAIN
    ) -> Encoded:
        """The row in numbers; one that cannot be learnt from is a ValueError, and teaches nothing.

        That is one with a column that was not there before, or with a class too many.
        """
        for name in row:
            if name not in self._known:
                raise ValueError(
                    f"column {name}: was not there in the first rows (--head N looks at more, "
                    "--ignore leaves it out)"
                )
        before = len(self.classes)
        grew: list[str] = []
        label = self._label(row, place, style, grew)
        numbers = {name: self._cell(name, row, place, style) for name in self._numbers}
        categories = self._inputs_of_categories(row, grew)
        x = np.zeros(self.inputs)
        x[categories] = 1.0
        for index, (name, statistics) in enumerate(self._numbers.items()):
            value = numbers[name]
            # An absurd value says no more than a missing one does, and is shown in the same way.
            if value is not None and statistics.add(value):
                x[index] = statistics.standardise(value, at_most=LIMIT)
        first = len(numbers)
        for name in self.columns.dates:
            seconds = numbers[name]
            if seconds is not None:
                x[first : first + 2 * len(_CYCLES)] = _in_cycles(seconds)
            first += 2 * len(_CYCLES)
        growth = Growth(self.inputs, self.outputs, ", ".join(grew)) if grew else None
        if self.task == "classification":
            target = name_of(row.get(self.target))
            return Encoded(place, x, label, target, 0.0, 1.0, before, growth)
        labels = self._labels
        centre = labels.mean
        scale = labels.deviation if labels.count >= WARM_UP else math.nan
        if math.isnan(label):
            return Encoded(place, x, label, None, centre, scale, 0, growth)
        labels.add(label)
        y = labels.standardise(label, at_most=_LARGEST)
        return Encoded(place, x, y, label, centre, scale, 0, growth)

    def notes(self) -> list[str]:
        """What was not as the first rows had it: cells that count as missing, slots shared."""
        order = [*self._numbers, self.target]
        odd, late = self.tally.odd, self.tally.late
        lines = [f"column {name}: {odd[name]}" for name in order if name in odd]
        for name in self.columns.categorical:
            if name in late:
                needed = self.names(name) + len(late[name].names) + 1
                lines.append(
                    f"column {name}: {late[name].said('categories')}; they share one input "
                    f"(--slots {needed} for all)"
                )
        if self.target in late:
            classes = late[self.target]
            lines.append(
                f"column {self.target}: {classes.said('classes')}; these rows were left out "
                f"(--classes {self.outputs + len(classes.names)} for all)"
            )
        return lines

    def _cell(
        self, name: str, row: Mapping[str, Any], place: str, style: NumberStyle
    ) -> float | None:
        value = row.get(name)
        try:
            if name in self._orders:
                return moment_of(value, self._orders[name])
            habits = self._habits.get(name)  # few columns have any, and this is for every cell
            return number_of(value, habits.of(style) if habits else style)
        except ValueError as error:
            self.tally.odd[name].add(str(error), place)
            return None

    def _inputs_of_categories(self, row: Mapping[str, Any], grew: list[str]) -> list[int]:
        """Of this row's; `grew` is told of columns that there was no room for."""
        found: list[int] = []
        for name in self.columns.categorical:
            category = name_of(row.get(name))
            if category is None:
                continue
            before = self.inputs
            found.append(self._slots.of(name, category))
            if self.inputs > before:
                grew.append(f"{name} has {self.names(name)} names")
            if category not in self._slots.names[name]:
                self.tally.late[name].add(category)
        return found

    def _label(
        self, row: Mapping[str, Any], place: str, style: NumberStyle, grew: list[str]
    ) -> float:
        if self.task == "regression":
            number = self._cell(self.target, row, place, style)
            return math.nan if number is None else number
        name = name_of(row.get(self.target))
        if name is None:
            return math.nan
        if name not in self.classes:
            if len(self.classes) == self._most_classes:
                self.tally.late[self.target].add(name)
                raise ValueError(
                    f"column {self.target}: {name[:50]!r} is one more class than the "
                    f"{self.outputs} there is room for (--classes)"
                )
            self.classes[name] = len(self.classes)
            if len(self.classes) > self.outputs:
                self.outputs = min(2 * self.outputs, self._most_classes)
                grew.append(f"{self.target} has {len(self.classes)} classes")
        return float(self.classes[name])


def _in_cycles(seconds: float) -> NDArray[np.float64]:
    """Where in the day, the week and the year, as sines and cosines of variance one."""
    angles = 2 * np.pi * (seconds / _CYCLES)
    return math.sqrt(2) * np.concatenate([np.sin(angles), np.cos(angles)])
