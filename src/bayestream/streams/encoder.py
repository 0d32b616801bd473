"""One row of named columns as numbers, encoded with nothing but the rows so far."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayestream.streams.statistics import LIMIT, Statistics

Task = Literal["regression", "classification"]
# Labels before forecasts are scored: the units of the target are not known sooner.
WARM_UP = 10
_HUGE = 1e100  # the square of a number must be one
_LARGEST = 1e15  # standardised label: learners square it in float32
_UNREADABLE = (AttributeError, OverflowError, TypeError, ValueError)
_CYCLES = np.array([1.0, 7.0, 365.2425]) * 86_400  # day, week and year, in seconds
_MISSING = {"", "na", "n/a", "nan", "null", "none", "?"}


class Encoded(NamedTuple):
    """A row in numbers; forecasts of y are turned into units by centre + scale · y."""

    place: str
    x: NDArray[np.float64]  # each input at most LIMIT in size
    y: float  # standardised with the labels up to and with this one, or the class; NaN if missing
    target: Any  # as it was written, None if missing
    centre: float  # of the labels before this one
    scale: float  # their deviation; NaN while there are fewer than WARM_UP
    classes: int = 0  # how many classes had been seen before this row


class Columns(NamedTuple):
    """What each input column holds."""

    numeric: tuple[str, ...]
    categorical: tuple[str, ...]
    dates: tuple[str, ...] = ()


class Slots:
    """A number for each category in the order they appear; the last for all that come too late."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.names: dict[str, int] = {}

    def of(self, name: str) -> int:
        """The category's own number, or the last."""
        if name not in self.names and len(self.names) < self.size - 1:
            self.names[name] = len(self.names)
        return self.names.get(name, self.size - 1)


class Encoder:
    """Turns rows into numbers, one at a time, knowing only the rows before.

    Numbers are standardised with the mean and deviation of their column up to and with this row,
    without the absurd values (`Statistics`); a missing one, or an absurd one, becomes the mean. A
    date is its seconds, as a number, and where in the day, the week and the year it falls: sine and
    cosine of each, times √2, or zeros where it is missing. The target is standardised as numbers
    are, but an absurd label stays one: how much it teaches is for the learner to decide. A category
    takes the first free of `slots` inputs, and the last input stands for all that find none; a
    missing one is a category like any other.

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
        slots: int = 10,
        classes: int = 10,
    ) -> None:
        for role, value, lowest in (("slots", slots, 1), ("classes", classes, 2)):
            if value < lowest:
                raise ValueError(
                    f"{role} must be a whole number, {lowest} or above, got {value!r}."
                )
        self._options = {"slots": slots, "classes": classes, "ignore": [*ignore]}
        self.columns, self.target = columns, target
        self.task: Task = task
        self.outputs = classes if task == "classification" else 1
        self.classes: dict[str, int] = {}
        # Numbers first, then the seconds of dates; then what falls into cycles, then categories.
        self._numbers = {name: Statistics() for name in (*columns.numeric, *columns.dates)}
        self._categories = {name: Slots(slots) for name in columns.categorical}
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
            "categories": {name: [*slots.names] for name, slots in self._categories.items()},
            "labels": self._labels.to_json(),
            "classes": [*self.classes],
        }

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> Encoder:
        """The encoder that said so: it knows the same rows, and shares nothing with the other."""
        columns = Columns(**{name: tuple(names) for name, names in saved["columns"].items()})
        found = cls(columns, **saved["options"])
        found._numbers = {k: Statistics.from_json(each) for k, each in saved["numbers"].items()}
        for name, names in saved["categories"].items():
            found._categories[name].names = {each: slot for slot, each in enumerate(names)}
        found._labels = Statistics.from_json(saved["labels"])
        found.classes = {name: number for number, name in enumerate(saved["classes"])}
        return found

    @property
    def inputs(self) -> int:
        """The length of x."""
        cycles = 2 * len(_CYCLES) * len(self.columns.dates)
        slots = sum(slots.size for slots in self._categories.values())
        return len(self._numbers) + cycles + slots

    def encode(self, row: Mapping[str, Any], place: str = "") -> Encoded:
        """The row in numbers; a value that cannot be is a ValueError, and nothing is learnt."""
        for name in row:
            if name not in self._known:
                raise ValueError(f"column {name}: was not there in the first rows; ignore it?")
        numbers = {name: _number(name, row.get(name)) for name in self._numbers}
        before = len(self.classes)
        label = self._label(row.get(self.target))
        x = np.zeros(self.inputs)
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
        for name, slots in self._categories.items():
            x[first + slots.of(_name(row.get(name)))] = 1.0
            first += slots.size
        if self.task == "classification":
            return Encoded(place, x, label, _name(row.get(self.target)) or None, 0.0, 1.0, before)
        labels = self._labels
        centre = labels.mean
        scale = labels.deviation if labels.count >= WARM_UP else math.nan
        if math.isnan(label):
            return Encoded(place, x, label, None, centre, scale)
        labels.add(label)
        y = labels.standardise(label, at_most=_LARGEST)
        return Encoded(place, x, y, label, centre, scale)

    def _label(self, value: Any) -> float:
        if self.task == "regression":
            number = _number(self.target, value)
            return math.nan if number is None else number
        name = _name(value)
        if not name:
            return math.nan
        if name not in self.classes:
            if len(self.classes) == self.outputs:
                raise ValueError(
                    f"column {self.target}: {name!r} is one more class than {self.outputs}"
                )
            self.classes[name] = len(self.classes)
        return float(self.classes[name])


def written(value: Any) -> str | None:
    """A number as text, or None if it is missing, or one of the words for that.

    >>> written(" 3 "), written("n/a"), written(float("nan"))
    ('3', None, None)
    """
    if value is None or (isinstance(value, float | np.floating) and math.isnan(value)):
        return None
    text = str(value).strip()
    return None if text.lower() in _MISSING else text


def _name(value: Any) -> str:
    """A category's or a class's; empty if it is missing. "none" and "?" are names as any other."""
    missing = value is None or (isinstance(value, float | np.floating) and math.isnan(value))
    return "" if missing else str(value).strip()


def _in_cycles(seconds: float) -> NDArray[np.float64]:
    """Where in the day, the week and the year, as sines and cosines of variance one."""
    angles = 2 * np.pi * (seconds / _CYCLES)
    return math.sqrt(2) * np.concatenate([np.sin(angles), np.cos(angles)])


def is_date(value: Any) -> bool:
    """Whether it is a date, or text that is one and no number.

    >>> is_date("2024-05-01 12:00"), is_date("20240501"), is_date(3.0)
    (True, False, False)
    """
    try:
        float(value)
    except (TypeError, ValueError):
        return is_number(value)
    return False


def is_number(value: Any) -> bool:
    """Whether it can be read as one; a date can, in seconds."""
    try:
        _as_number(value)
    except _UNREADABLE:
        return False
    return True


def _number(column: str, value: Any) -> float | None:
    text = written(value)
    if text is None:
        return None
    try:
        number = _as_number(value)
    except _UNREADABLE:
        raise ValueError(f"column {column}: {text[:50]!r} is not a number") from None
    if not abs(number) < _HUGE:
        raise ValueError(f"column {column}: {text[:50]!r} is not finite, or nearly so")
    return number


def _as_number(value: Any) -> float:
    """A number as it is; a date, or text that is one, in seconds."""
    if isinstance(value, np.datetime64):
        return _as_number(value.astype("datetime64[us]").item())
    if isinstance(value, date):
        moment = value if isinstance(value, datetime) else datetime.combine(value, time())
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    try:
        return float(value)
    except (TypeError, ValueError):
        return _as_number(datetime.fromisoformat(value.strip()))
