"""What each column of a table holds, decided from its first rows, and why."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from numbers import Real
from typing import Any, Literal, NamedTuple

import numpy as np

from bayestream.streams.files import Row
from bayestream.streams.habits import NO_HABITS, Habits, habits_of
from bayestream.streams.values import (
    ORDERS,
    NumberStyle,
    fields_of,
    finite,
    moment_of,
    name_of,
    number_of,
    text_of,
)

Kind = Literal["numeric", "categorical", "date", "left out"]
_FAULTY = 0.1  # of a column of numbers or dates, so many cells may be something else
MOST = 1000  # names of a column that a network grows for: each is a row of weights
_MOST_SLOTS = 100  # where it does not grow, unless more are asked for
KEYS = 20  # as many different names, nearly one a row, are keys
_CODES = re.compile(r"0\d+")
_KEY_NAMES = re.compile(r"(?i:(?:^|[^a-z])(?:id|key)$)|[a-z]I[dD]$")
_COUNT_NAMES = re.compile(r"(?i:(?:^|[^a-z])(?:no|nr|number|index|idx|row)\.?$)")
_CLOCK_NAMES = {"time", "date", "datetime", "timestamp", "epoch", "unix", "ts"}
_CLOCK = (946_684_800, 4_102_444_800)  # 2000 to 2100, in seconds since 1970


class Wishes(NamedTuple):
    """What the user says of the columns."""

    numeric: Sequence[str] = ()
    categorical: Sequence[str] = ()
    date: Sequence[str] = ()  # a name, or name=dmy, name=mdy, name=ymd
    ignore: Sequence[str] = ()
    slots: int | None = None  # of each column of categories
    classes: int | None = None
    grow: bool = False  # whether there may be more of either than there is room for at first


class Column(NamedTuple):
    """One column: what it holds, and why that was decided."""

    name: str
    kind: Kind
    why: str
    slots: int = 0  # of categories, the last of them for all that come too late
    order: str = ""  # of dates: "ymd", "dmy" or "mdy"
    most: int = 0  # slots that it may grow to
    habits: Habits = NO_HABITS  # of numbers


class Head:
    """The first rows of a table, column by column."""

    def __init__(self, rows: Sequence[Row], *, complete: bool) -> None:
        good = [row for row in rows if row.values is not None]
        self.complete = complete  # are they all there are?
        self.size = len(good)
        self.header = all(row.header for row in good)
        self.names: tuple[str, ...] = tuple(
            dict.fromkeys(name for row in good for name in row.values or ())
        )
        self._rows = good

    def cells(self, name: str) -> list[tuple[Any, NumberStyle]]:
        """What is not missing in a column, with how the file's numbers are written."""
        found = [((row.values or {}).get(name), row.numbers) for row in self._rows]
        return [(value, style) for value, style in found if text_of(value) is not None]

    def numbers(self, name: str, habits: Habits) -> list[tuple[Any, NumberStyle]]:
        """The same of a column of numbers that has these habits."""
        cells = self.cells(name)
        return [(v, habits.of(style)) for v, style in cells if text_of(v) != habits.nothing]

    def said(self) -> str:
        """How much was looked at."""
        if self.size == 1:
            return "one row"
        return f"all {self.size} rows" if self.complete else f"the first {self.size} rows"


def spare(number: int) -> int:
    """How much room to leave for categories or classes beyond those of the first rows."""
    return 2 + number // 4


def column(name: str, head: Head, wishes: Wishes, *, day_first: bool = False) -> Column:
    """What a column holds: as the user says, or as its first cells do."""
    cells = head.cells(name)
    wished_order = dict(_dates(wishes, head.names))
    if name in wishes.numeric:  # what is called a number stands for itself
        habits = habits_of(cells)._replace(nothing="")
        why = ", ".join(filter(None, ["as you say", habits.said()]))
        return Column(name, "numeric", why, habits=habits)
    if name in wishes.categorical:
        return _categories(name, cells, head, wishes)
    if name in wished_order:
        order, why = order_of([value for value, _ in cells], day_first)
        order, why = (wished_order[name], "") if wished_order[name] else (order or "ymd", why)
        return Column(name, "date", f"{ORDERS[order]}{why}, as you say", order=order)
    if not cells:
        hint = f"--numeric {name} or --categorical {name} to use it"
        return Column(name, "left out", f"empty in {head.said()}; {hint}")
    nested = sum(bool(np.ndim(value)) or isinstance(value, Mapping) for value, _ in cells)
    if 2 * nested > len(cells):
        return Column(name, "left out", "holds lists or objects")
    habits = habits_of(cells)
    numbers = head.numbers(name, habits)
    odd = [value for value, style in numbers if not is_number(value, style)]
    codes = _codes([value for value, _ in cells])
    if few(odd, numbers) and not codes:
        missing = head.size - len(numbers)
        if _is_key(name, numbers):
            why = f"{len(numbers)} numbers in as many rows, and named as keys are"
            return Column(name, "left out", f"{why}; --numeric {name} to use it")
        like = _like(numbers, odd)
        if _is_clock(name, cells):
            why = said_with(f"seconds since 1970, {like}", missing, odd, "no date")
            return Column(name, "date", why, order="ymd")
        why = ", ".join(filter(None, [like, habits.said()]))
        return Column(name, "numeric", said_with(why, missing, odd, "no number"), habits=habits)
    missing = head.size - len(cells)
    order, doubt = order_of([value for value, _ in cells], day_first)
    if order:
        odd = [value for value, _ in cells if not is_date(value, order)]
        if few(odd, cells):
            why = f"{ORDERS[order]}{doubt or f', {_like(cells, odd)}'}"
            return Column(name, "date", said_with(why, missing, odd, "no date"), order=order)
    names = {name_of(value) for value, _ in cells}
    if len(names) > max(KEYS, 0.9 * len(cells)):
        why = f"{len(names)} names in {len(cells)} rows, as keys have"
        return Column(name, "left out", f"{why}; --categorical {name} to use it")
    return _categories(name, cells, head, wishes, "begins with 0, as codes do" if codes else "")


def check_names(wishes: Wishes, head: Head) -> None:
    """Refuse a column that is not there, or that is wished to be two things."""
    wished = {
        "numeric": wishes.numeric,
        "categorical": wishes.categorical,
        "date": [name for name, _ in _dates(wishes, head.names)],
        # Rows without a header may have a column later that is to be ignored then.
        "ignore": wishes.ignore if head.header else (),
    }
    roles: dict[str, str] = {}
    for role, names in wished.items():
        for name in names:
            check_name(role, name, head.names)
            if roles.setdefault(name, role) != role:
                raise ValueError(f"{name} must be either {roles[name]} or {role}, and not both.")


def check_name(role: str, name: str, names: Collection[str]) -> None:
    """Refuse a name that is no column's, with those that are close, or all if they are few."""
    if name in names:
        return
    folded = {each.lower(): each for each in names}
    near = [folded[each] for each in difflib.get_close_matches(name.lower(), folded)]
    hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
    some = list(names)[:20]
    listed = ", ".join(some) + (f" and {len(names) - 20} more" if len(names) > 20 else "")
    raise ValueError(f"{role} must be one of {listed}, got {name!r}.{hint}")


def is_number(value: Any, style: NumberStyle) -> bool:
    """Whether a cell is one, be it too large to be of use."""
    try:
        number_of(value, style)
    except ValueError as error:
        return "finite" in str(error) or isinstance(value, Real)
    return True


def is_date(value: Any, order: str) -> bool:
    """Whether a cell can be read as a date, and not as a number."""
    if isinstance(value, str) and re.fullmatch(r"[\d.+-]*", value.strip()) and not fields_of(value):
        return False
    try:
        moment_of(value, order)
    except ValueError:
        return False
    return not isinstance(value, int | float)


def _dates(wishes: Wishes, names: Collection[str]) -> Iterable[tuple[str, str]]:
    for wish in wishes.date:
        name, _, order = wish.rpartition("=")
        if wish in names or order not in ORDERS:
            yield wish, ""
        else:
            yield name, order


def few(odd: Sequence[Any], cells: Sequence[Any]) -> bool:
    """Whether so many odd cells are mistakes among the others, rather than what a column holds."""
    return len(odd) <= max(1, _FAULTY * len(cells)) and 2 * len(odd) <= len(cells) - len(odd)


def _like(cells: Sequence[tuple[Any, Any]], odd: Sequence[Any]) -> str:
    """The first cell that is as it should be."""
    return next((f"like {str(value)[:12]}" for value, _ in cells if value not in odd), "")


def said_with(why: str, missing: int, odd: Sequence[Any], what: str) -> str:
    """A reason, what is missing, and what is taken for that."""
    parts = [why, *([f"{missing} missing"] if missing else [])]
    if odd:
        verb = "is" if len(odd) == 1 else "are"
        parts.append(f"{len(odd)} {verb} {what}, as {str(odd[0])[:20]!r}")
    return ", ".join(parts)


def _is_key(name: str, cells: Sequence[tuple[Any, NumberStyle]]) -> bool:
    """Whether these only tell rows apart: whole numbers, each but once, and the name says so."""
    numbers = [number for cell in cells if (number := finite(*cell)) is not None]
    if len(numbers) <= KEYS or not all(map(float.is_integer, numbers)):
        return False
    if _KEY_NAMES.search(name):
        return len({*numbers}) == len(numbers)
    rising = all(before < after for before, after in pairwise(numbers))
    return rising and bool(_COUNT_NAMES.search(name))


def _is_clock(name: str, cells: Sequence[tuple[Any, NumberStyle]]) -> bool:
    """Whether these are seconds or milliseconds of this century, and the name says so."""
    numbers = [number for cell in cells if (number := finite(*cell)) is not None]
    clock = all(_CLOCK[0] < (n / 1000 if n > 1e11 else n) < _CLOCK[1] for n in numbers)
    words = {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)}
    return clock and bool(words & _CLOCK_NAMES)


def _codes(values: Sequence[Any]) -> bool:
    """Whether these are codes such as 01234: as long as each other, and one begins with a zero."""
    texts = [value.strip() for value in values if isinstance(value, str)]
    if len(texts) < max(2, len(values)) or len({len(text) for text in texts}) > 1:
        return False
    return all(text.isdecimal() for text in texts) and any(map(_CODES.fullmatch, texts))


def order_of(values: Sequence[Any], day_first: bool) -> tuple[str, str]:
    """The order in which most dates are written, empty if there is none; and any doubt of it."""
    found = [fields for value in values if (fields := fields_of(str(value)))]
    written = [fields for fields in found if len(fields.first) <= 2]
    if not written:
        return "ymd", ""
    firsts, seconds = ([int(getattr(each, n)) for each in written] for n in ("first", "second"))
    late = (sum(value > 12 for value in firsts), sum(value > 12 for value in seconds))
    if late[0] != late[1]:
        return ("dmy" if late[0] > late[1] else "mdy"), ""
    first, separator, second, third, _ = written[0]
    example = separator.join((first, second, third))
    if separator == ".":  # nobody writes the month first so
        return "dmy", ""
    order = "dmy" if day_first else "mdy"
    other = "mdy" if day_first else "dmy"
    return order, f" is guessed, as in {example} (else --date NAME={other})"


def _categories(
    name: str, cells: Sequence[tuple[Any, Any]], head: Head, wishes: Wishes, why: str = ""
) -> Column:
    names = {name_of(value) for value, _ in cells}
    slots, most = wishes.slots, 0
    if slots is None:
        most = MOST + 1 if wishes.grow else 0
        room = len(names) + (0 if head.complete else spare(len(names)))
        slots = min(room, MOST if wishes.grow else _MOST_SLOTS) + 1
    more = slots - 1 - len(names)
    room = f"room for {more} more" if more > 0 else "no room for more" if more == 0 else ""
    short = f"{slots - 1} of them have inputs of their own, --slots {len(names) + 1} for all"
    given = "as you say" if name in wishes.categorical else why
    missing = head.size - len(cells)
    parts = [f"{len(names)} names", room or short, f"{missing} missing" if missing else "", given]
    return Column(name, "categorical", ", ".join(filter(None, parts)), slots, most=most)
