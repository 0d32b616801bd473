"""A file or any other source of rows, encoded row by row, or whole as a stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from bayestream.streams.columns import Column, Head, Wishes, check_name, check_names, column
from bayestream.streams.dialects import AUTOMATIC, Format
from bayestream.streams.encoder import Columns, Encoded, Encoder
from bayestream.streams.files import HEAD, How, Row, read
from bayestream.streams.items import rows_of
from bayestream.streams.plans import Plan
from bayestream.streams.targets import Task, guessed_target, target_of
from bayestream.streams.values import name_of
from bayestream.types import Example, Stream

Source = str | Path | Iterable[Any]


class Unreadable(NamedTuple):
    """A row that was left out, and why."""

    place: str
    reason: str


class Prepared(NamedTuple):
    """A source whose columns are decided, none of its rows encoded yet."""

    encoder: Encoder
    items: Iterator[Encoded | Unreadable]
    plan: Plan


def prepared(
    source: Source,
    *,
    target: str | int | None = None,
    task: str | None = None,
    numeric: Sequence[str] = (),
    categorical: Sequence[str] = (),
    date: Sequence[str] = (),
    ignore: Sequence[str] = (),
    key: str | None = None,
    slots: int | None = None,
    classes: int | None = None,
    grow: bool = False,
    head: int = HEAD,
    format: Format = AUTOMATIC,
    plan: Plan | None = None,
) -> Prepared:
    """The source's columns decided from its first rows, with an encoder for them.

    The source is a file, a folder, "-", a frame of pandas, polars or Arrow, a dict of columns, or
    any iterable of rows: dicts, arrays, or pairs of one of these and a target. How a file is
    written is told from its first lines, unless `format` says so.

    The first `head` rows are held back, decide what the columns are and how many slots categories
    and classes need, and are then encoded in order like all others: nothing but kinds and slots is
    taken from them. A column is of numbers or of dates if nine in ten of its cells are, unless it
    is named in `numeric`, `categorical`, `date` (as a name, or as name=dmy, name=mdy or name=ymd)
    or `ignore`. Target and task are guessed where that is safe. Of arrays, columns are named "0",
    "1", … and `target` may count from the end.

    Categories beyond the slots of their column share one, and rows of further classes cannot be
    learnt from. With `grow`, and where neither `slots` nor `classes` says how many there are, both
    make room for themselves, up to 1,000 of a column: a row's x may then be longer than those
    before, with the new inputs at its end, and the first that needs more has a `growth`.

    A `key` names the column that says whose row it is, of a fleet; it is no input.

    With the plan of an earlier call nothing is decided again, and no row is held back: a file that
    has grown since is read as it was then.
    """
    if task not in (None, "regression", "classification"):
        raise ValueError(f"task must be 'regression' or 'classification', got {task!r}.")
    for role, value, lowest in (("slots", slots, 1), ("classes", classes, 2), ("head", head, 1)):
        if value is not None and value < lowest:
            raise ValueError(f"{role} must be a whole number, {lowest} or above, got {value!r}.")
    how = How(format.checked(), head, {} if plan is None else plan.dialects)
    rows = read(source, how) if isinstance(source, str | Path) else rows_of(source, target)
    if plan is None:
        held, first = _held_back(rows, head)
        wishes = Wishes(numeric, categorical, date, ignore, slots, classes, grow)
        plan = _planned(held, first, wishes, target, task, key, how)
        rows = chain(held, rows)
    encoder = plan.encoder()
    return Prepared(encoder, (encoded_row(encoder, row, key) for row in rows), plan)


def _planned(
    held: Sequence[Row],
    first: Head,
    wishes: Wishes,
    target: str | int | None,
    task: str | None,
    key: str | None,
    how: How,
) -> Plan:
    check_names(wishes, first)
    name = _target_name(first, target)
    if name in (*wishes.numeric, *wishes.categorical, *wishes.ignore):
        raise ValueError(f"target must not be among the inputs that are named, got {name!r}.")
    if key is not None:
        check_name("key", key, first.names)
    if key in (name, *wishes.numeric, *wishes.categorical, *wishes.date):
        raise ValueError(f"key must be neither the target nor an input that is named, got {key!r}.")
    wanted = target_of(name, task, first, wishes)
    day_first = any(row.numbers.decimal == "," for row in held)  # as where dates begin with the day
    columns = tuple(
        Column(each, "left out", "the key: a learner each")
        if each == key
        else Column(each, "left out", "as you say")
        if each in wishes.ignore
        else column(each, first, wishes, day_first=day_first)
        for each in first.names
        if each != name
    )
    return Plan(how.dialects, columns, wanted, first.said(), tuple(wishes.ignore))


def encoded(source: Source, **options: Any) -> tuple[Encoder, Iterator[Encoded | Unreadable]]:
    """An encoder for the source's columns, and its rows through it, as they are asked for.

    Options are those of `prepared`.
    """
    return prepared(source, **options)[:2]


@dataclass(frozen=True)
class Table:
    """A whole source, encoded."""

    stream: Stream
    rows: tuple[Encoded, ...]  # one an example of the stream
    skipped: tuple[Unreadable, ...]
    columns: Columns
    classes: tuple[str, ...]  # in the order of their numbers
    task: Task = "regression"
    said: tuple[str, ...] = ()  # how it was read and why so, and what was odd, a line each


def table(source: Source, *, on_bad: Literal["raise", "skip"] = "raise", **options: Any) -> Table:
    """A source of rows as a stream in memory; the options are those of `prepared`.

    `on_bad` is "raise" to refuse a row that cannot be read, or "skip" to leave it out and report
    it in `skipped`.

    >>> rows = [{"size": 1.0, "colour": "red", "y": 2.5}, {"size": 2.0, "colour": "blue", "y": 4.0}]
    >>> found = table(rows)
    >>> found.columns, found.task, found.stream.examples.x.shape
    (Columns(numeric=('size',), categorical=('colour',), dates=()), 'regression', (2, 4))
    """
    if on_bad not in ("raise", "skip"):
        raise ValueError(f"on_bad must be 'raise' or 'skip', got {on_bad!r}.")
    encoder, items, plan = prepared(source, **options)
    rows: list[Encoded] = []
    skipped: list[Unreadable] = []
    for item in items:
        if isinstance(item, Encoded):
            rows.append(item)
        elif on_bad == "raise":
            raise ValueError(f"{item.place}: {item.reason}.")
        else:
            skipped.append(item)
    return Table(
        stacked(rows, encoder.task, encoder.inputs),
        tuple(rows),
        tuple(skipped),
        encoder.columns,
        tuple(encoder.classes),
        encoder.task,
        (*plan.lines(), *encoder.notes()),
    )


def stacked(rows: Sequence[Encoded], task: Task, inputs: int) -> Stream:
    """Rows of so many inputs as a stream; the last are 0 in rows that came before they were."""
    x = np.zeros((len(rows), inputs))
    for index, row in enumerate(rows):
        x[index, : row.x.size] = row.x.reshape(-1)
    y = np.array([row.y for row in rows], np.float64)
    return Stream(Example(x, y if task == "classification" else y[:, None]))


def encoded_row(encoder: Encoder, row: Row, key: str | None) -> Encoded | Unreadable:
    """A row in numbers, with its key if a column has one; or why it cannot be read."""
    if row.values is None:
        return Unreadable(row.place, row.problem)
    try:
        whose = None if key is None else name_of(row.values.get(key))
        if key is not None and whose is None:
            raise ValueError(f"column {key}: the key is missing")
        return encoder.encode(row.values, row.place, row.numbers)._replace(key=whose)
    except ValueError as error:
        return Unreadable(row.place, str(error))


def _held_back(rows: Iterator[Row], number: int) -> tuple[list[Row], Head]:
    """So many rows that can be read, and those between them."""
    held: list[Row] = []
    good, complete = 0, True
    for row in rows:
        held.append(row)
        good += row.values is not None
        if good == number or len(held) == 10 * number:
            complete = False
            break
    if not good:
        why = f"; the first: {held[0].place}: {held[0].problem}" if held else ""
        raise ValueError(
            f"the source must have at least one row that can be read, and has none{why}."
        )
    return held, Head(held, complete=complete)


def _target_name(head: Head, target: str | int | None) -> str:
    names = head.names
    if isinstance(target, int):
        if not -len(names) <= target < len(names):
            raise ValueError(f"target must be a column of {len(names)}, got {target!r}.")
        return names[target]
    if target is None:
        guess = guessed_target(names)
        if guess is None:
            listed = ", ".join(names[:20]) + (" …" if len(names) > 20 else "")
            raise ValueError(f"target must name the column to be forecast, one of {listed}.")
        return guess
    check_name("target", target, names)
    return target
