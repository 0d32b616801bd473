"""A file or any other source of rows, encoded row by row, or whole as a stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import numpy as np

from bayestream.streams.encoder import (
    Columns,
    Encoded,
    Encoder,
    Task,
    is_date,
    is_number,
    written,
)
from bayestream.streams.files import Row, Values, read
from bayestream.types import Example, Stream

Source = str | Path | Iterable[Any]
_PATIENCE = 100  # rows read ahead, at most


class Unreadable(NamedTuple):
    """A row that was left out, and why."""

    place: str
    reason: str


def encoded(
    source: Source,
    *,
    target: str | int,
    task: Task,
    categorical: Sequence[str] = (),
    ignore: Sequence[str] = (),
    slots: int = 10,
    classes: int = 10,
) -> tuple[Encoder, Iterator[Encoded | Unreadable]]:
    """An encoder for the source's columns, and its rows through it, as they are asked for.

    The source is a file, a folder, "-" or any iterable of rows: dicts, arrays, or pairs of one of
    these and a target. A column is numeric, or of dates, if the first value in it is a number or a
    date, unless it is named in `categorical`; of arrays, columns are named "0", "1", … and `target`
    may count from the end.
    Columns are those of the first 100 rows of a file; from other sources, which may be live, as few
    rows are read ahead as show a value of every column.
    """
    if task not in ("regression", "classification"):
        raise ValueError(f"task must be 'regression' or 'classification', got {task!r}.")
    from_file = isinstance(source, str | Path)
    rows = read(source) if from_file else _from_items(source, target)
    head, first = _read_ahead(rows, live=not from_file or str(source) == "-")
    name = _named(first, target, categorical)
    if task == "regression" and written(first[name]) and not is_number(first[name]):
        raise ValueError(
            f"target must hold numbers, got {first[name]!r} in {name}; is the task classification?"
        )
    inputs = [column for column in first if column not in (name, *ignore)]
    named = [c for c in inputs if c in categorical or not is_number(first[c])]
    dates = [c for c in inputs if c not in named and is_date(first[c])]
    numeric = [c for c in inputs if c not in (*named, *dates)]
    columns = Columns(tuple(numeric), tuple(named), tuple(dates))
    encoder = Encoder(columns, target=name, task=task, ignore=ignore, slots=slots, classes=classes)
    return encoder, _encode_all(encoder, chain(head, rows))


@dataclass(frozen=True)
class Table:
    """A whole source, encoded."""

    stream: Stream
    rows: tuple[Encoded, ...]  # one an example of the stream
    skipped: tuple[Unreadable, ...]
    columns: Columns
    classes: tuple[str, ...]  # in the order of their numbers


def table(source: Source, *, on_bad: Literal["raise", "skip"] = "raise", **options: Any) -> Table:
    """A source of rows as a stream in memory; the options are those of `encoded`.

    `on_bad` is "raise" to refuse a row that cannot be read, or "skip" to leave it out and report
    it in `skipped`.

    >>> rows = [{"size": 1.0, "colour": "red", "y": 2.0}, {"size": 2.0, "colour": "blue", "y": 4.0}]
    >>> found = table(rows, target="y", task="regression", slots=3)
    >>> found.columns, found.stream.examples.x.shape
    (Columns(numeric=('size',), categorical=('colour',), dates=()), (2, 4))
    """
    if on_bad not in ("raise", "skip"):
        raise ValueError(f"on_bad must be 'raise' or 'skip', got {on_bad!r}.")
    encoder, items = encoded(source, **options)
    rows: list[Encoded] = []
    skipped: list[Unreadable] = []
    for item in items:
        if isinstance(item, Encoded):
            rows.append(item)
        elif on_bad == "raise":
            raise ValueError(f"{item.place}: {item.reason}.")
        else:
            skipped.append(item)
    stream, classes = stacked(rows, encoder.task, encoder.inputs), tuple(encoder.classes)
    return Table(stream, tuple(rows), tuple(skipped), encoder.columns, classes)


def stacked(rows: Sequence[Encoded], task: Task, inputs: int) -> Stream:
    """Rows of so many inputs as a stream."""
    x = np.array([row.x for row in rows]).reshape(len(rows), inputs)
    y = np.array([row.y for row in rows], np.float64)
    return Stream(Example(x, y if task == "classification" else y[:, None]))


def _encode_all(encoder: Encoder, rows: Iterable[Row]) -> Iterator[Encoded | Unreadable]:
    for place, values, problem in rows:
        if values is None:
            yield Unreadable(place, problem)
            continue
        try:
            yield encoder.encode(values, place)
        except ValueError as error:
            yield Unreadable(place, str(error))


def _read_ahead(rows: Iterator[Row], *, live: bool) -> tuple[list[Row], dict[str, Any]]:
    """A few rows, and the first value of each column."""
    head: list[Row] = []
    first: dict[str, Any] = {}
    for row in rows:
        head.append(row)
        for name, value in (row.values or {}).items():
            if written(first.get(name)) is None:
                first[name] = value
        complete = first and all(written(value) is not None for value in first.values())
        if (live and complete) or len(head) == _PATIENCE:
            break
    if not first:
        raise ValueError("the source must have at least one row that can be read, and has none.")
    return head, first


def _named(first: dict[str, Any], target: str | int, categorical: Sequence[str]) -> str:
    if isinstance(target, int) and not -len(first) <= target < len(first):
        raise ValueError(f"target must be a column of {len(first)}, got {target!r}.")
    name = str(target % len(first)) if isinstance(target, int) else target
    for role, column in (("target", name), *(("categorical", c) for c in categorical)):
        if column not in first:
            raise ValueError(f"{role} must be one of {', '.join(first)}, got {column!r}.")
    return name


def _from_items(items: Iterable[Any], target: str | int) -> Iterator[Row]:
    for number, item in enumerate(items, start=1):
        place = f"row {number}"
        try:
            yield Row(place, _values(item, str(target)))
        except (TypeError, ValueError) as error:
            yield Row(place, None, str(error))


def _values(item: Any, target: str) -> Values:
    if isinstance(item, Mapping):
        return cast(Values, item)
    if isinstance(item, tuple) and len(cast(Any, item)) == 2 and np.ndim(cast(Any, item)[1]) == 0:
        x, y = cast(tuple[Any, Any], item)
        if isinstance(x, Mapping) or np.ndim(x) == 1:
            values = _values(x, target)
            if target in values:
                raise ValueError(f"has an input with the target's name, {target}")
            return {**values, target: y}
    if np.ndim(item) != 1:
        raise TypeError(f"must be a dict or a flat array, got {type(item).__name__}")
    return {str(index): value for index, value in enumerate(item)}
