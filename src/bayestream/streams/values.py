"""What one cell says: nothing, a number, a moment or a name."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from typing import Any, Literal, NamedTuple, cast

import numpy as np

# Words for "not known", whatever the column: one list for numbers, dates, categories and targets.
_DASHES = ("-", "--", "\u2013", "\u2014", "\u2212")
_SPREADSHEETS = ("#n/a", "#null!", "#value!", "#div/0!", "#ref!", "#name?", "#num!")
_WORDS = ("na", "n/a", "n.a.", "<na>", "nan", "nat", "null", "(null)", "none", "nil", "\\n")
MISSING = frozenset(["", "?", ".", *_DASHES, *_SPREADSHEETS, *_WORDS])
HUGE = 1e100  # the square of a number must be one
MONEY = "$€£¥₹"
_AFFIXES = f"{MONEY}% \u00a0\u202f"  # money and percentages are numbers as well
_SPACES = re.compile(r"(?<=\d)[ \u00a0\u202f'\u2019](?=\d{3}(?!\d))")  # between thousands
_UNREADABLE = (AttributeError, OverflowError, TypeError, ValueError)

Order = Literal["ymd", "dmy", "mdy"]
ORDERS: dict[str, str] = {
    "ymd": "year, month, day",
    "dmy": "day, month, year",
    "mdy": "month, day, year",
}
_DATE = re.compile(
    r"(?P<a>\d{1,4})(?P<s>[./-])(?P<b>\d{1,2})(?P=s)(?P<c>\d{1,4})"
    r"(?:(?:[T,]\s*|\s+)(?P<time>\d.*))?"
)
_NAMED = re.compile(
    r"(?:(?P<d>\d{1,2})(?:st|nd|rd|th)?[ .-]+(?P<m>[a-z]{3,9})|"
    r"(?P<M>[a-z]{3,9})\.? +(?P<D>\d{1,2})(?:st|nd|rd|th)?)\.?[ ,.-]+(?P<y>\d{4}|\d{2})"
    r"(?:(?:,\s*|\s+)(?P<time>\d.*))?",
    re.IGNORECASE,
)
_TIME = re.compile(
    r"(\d{1,2}):(\d{2})(?::(\d{2})(?:[.,](\d{1,6})\d*)?)?\s*(?:([ap])\.?m\.?)?", re.IGNORECASE
)
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]


class NumberStyle(NamedTuple):
    """How numbers are written."""

    decimal: str = "."
    thousands: str = ""  # what stands between groups of three digits; spaces are always understood
    unit: str = ""  # what every number of a column ends in, such as kg
    nothing: str = ""  # a number that stands for a missing one, such as -999


PLAIN = NumberStyle()


def text_of(value: Any) -> str | None:
    """A cell as text, or None if it is missing, or one of the words for that.

    >>> text_of(" 3 "), text_of("n/a"), text_of(float("nan")), text_of("-")
    ('3', None, None, None)
    """
    if value is None or (isinstance(value, float | np.floating) and math.isnan(value)):
        return None
    text = str(value).strip()
    return None if text.lower() in MISSING else text


def name_of(value: Any) -> str | None:
    """A category's or a class's name; 1.0 and "1" are one, as a missing cell turns 1 into 1.0.

    >>> name_of(1.0), name_of("1"), name_of("None")
    ('1', '1', None)
    """
    if isinstance(value, float | np.floating) and value == np.floor(value):
        value = f"{value:.0f}"
    return text_of(value)


def number_of(value: Any, style: NumberStyle = PLAIN) -> float | None:
    """A cell as a number, None if it is missing; a ValueError if it is neither.

    >>> number_of("1.234,5", NumberStyle(",", ".")), number_of("$1,200", NumberStyle(".", ","))
    (1234.5, 1200.0)
    """
    text = text_of(value)
    if text is None or text == style.nothing:
        return None
    return _read(text, value, _number, style, "a number")


def finite(value: Any, style: NumberStyle) -> float | None:
    """A cell as a number, None if it is missing or none.

    >>> finite("1.5", PLAIN), finite("error", PLAIN)
    (1.5, None)
    """
    try:
        return number_of(value, style)
    except ValueError:
        return None


def _read(text: str, value: Any, reader: Callable[[Any, Any], float], how: Any, what: str) -> float:
    """What a reader makes of a cell, if that is a number of use; `text` is for people."""
    try:
        number = reader(value, how)
    except _UNREADABLE:
        raise ValueError(f"{text[:50]!r} is not {what}") from None
    if not abs(number) < HUGE:
        raise ValueError(f"{text[:50]!r} is not finite, or nearly so")
    return number


def _number(value: Any, style: NumberStyle) -> float:
    if not isinstance(value, str):
        return float(value)
    text = value.strip()
    if style == PLAIN and "_" not in text:
        try:
            return float(text)
        except ValueError:
            pass
    if "_" in text:
        raise ValueError
    owed = text.startswith("(") and text.endswith(")")  # as accountants write what is lost
    text = text[1:-1].strip() if owed else text
    if not text.endswith(style.unit):
        raise ValueError
    text = text.removesuffix(style.unit)
    sign = -1.0 if owed or text.startswith(("-", "\u2212")) else 1.0
    text = text.removeprefix("-").removeprefix("\u2212").strip(_AFFIXES)
    text = _SPACES.sub("", text).replace("\u2212", "-")
    decimal, thousands, *_ = style
    if thousands and re.fullmatch(rf"-?{grouped(thousands)}(?:{re.escape(decimal)}\d*)?", text):
        text = text.replace(thousands, "")
    if decimal != "." and text.count(decimal) == 1 and "." not in text:
        text = text.replace(decimal, ".")
    return sign * float(text)


def grouped(mark: str) -> str:
    """A pattern of whole numbers with a mark between thousands, or as in India: 12,34,567.

    >>> numbers = ("1,234", "12,34,567", "12,34", "0,123")
    >>> [bool(re.fullmatch(grouped(","), text)) for text in numbers]
    [True, True, False, False]
    """
    mark = re.escape(mark)
    return rf"[1-9]\d{{0,2}}(?:{mark}\d{{2,3}})*{mark}\d{{3}}"


def moment_of(value: Any, order: str = "ymd") -> float | None:
    """A cell's date in seconds since 1970, None if it is missing; a ValueError if it is neither.

    Dates with their month in letters, or their year first, are understood in any order; a plain
    number is seconds, or milliseconds if it is that large.

    >>> moment_of("1970-01-02"), moment_of("02/01/1970", "dmy"), moment_of("Jan 2, 1970 00:30")
    (86400.0, 86400.0, 88200.0)
    """
    text = text_of(value)
    return None if text is None else _read(text, value, _seconds, order, "a date")


def _seconds(value: Any, order: str) -> float:
    if isinstance(value, np.datetime64):
        return _seconds(value.astype("datetime64[us]").item(), order)
    if isinstance(value, date):
        moment = value if isinstance(value, datetime) else datetime.combine(value, time())
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    if isinstance(value, str):
        read = _written_date(value.strip(), order)
        if read is not None:
            return _seconds(read, order)
    number = float(value)
    return number / 1000 if abs(number) > 1e11 else number


def _written_date(text: str, order: str) -> datetime | None:
    """None if it is not written as a date at all; a ValueError if there is no such day."""
    if not text[:1].isdecimal() and not text[:1].isalpha():
        return None
    parts = fields_of(text)
    if parts is not None:
        order = "ymd" if len(parts.first) > 2 else order
        numbers = dict(zip(order, (parts.first, parts.second, parts.third), strict=True))
        return _at(numbers["y"], int(numbers["m"]), int(numbers["d"]), parts.time)
    named = _NAMED.fullmatch(text)
    if named:
        month = (named["m"] or named["M"]).lower()[:3]
        return _at(
            named["y"], _MONTHS.index(month) + 1, int(named["d"] or named["D"]), named["time"]
        )
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


class DateFields(NamedTuple):
    """A date of three numbers, in whatever order."""

    first: str
    separator: str
    second: str
    third: str
    time: str | None


def fields_of(text: str) -> DateFields | None:
    """The numbers of a date such as 3/4/2024 or 3.4.24 12:30; None if it is not written so.

    >>> fields_of("3/4/2024")
    DateFields(first='3', separator='/', second='4', third='2024', time=None)
    """
    found = _DATE.fullmatch(text.strip())
    if not found:
        return None
    lengths = (len(found["a"]), len(found["b"]), len(found["c"]))
    year_is_there = 4 in lengths and 3 not in lengths and lengths[0] + lengths[2] < 8
    # 1.2.3 is a version or a section, and 1/2/3 nothing that one could name.
    short = lengths == (2, 2, 2) or (lengths[2] == 2 and max(lengths) == 2 and found["s"] == "/")
    if not (year_is_there or short):
        return None
    if found["time"] and not _TIME.fullmatch(found["time"].strip()):
        return None  # with a zone, say: for fromisoformat
    return DateFields(found["a"], found["s"], found["b"], found["c"], found["time"])


def _at(year: str, month: int, day: int, clock: str | None) -> datetime:
    full = int(year)
    if len(year) <= 2:  # as POSIX has it: 69 to 99 are of the last century
        full += 1900 if full > 68 else 2000
    found = _TIME.fullmatch(clock.strip()) if clock else None
    if found is None:
        return datetime(full, month, day, tzinfo=UTC)
    hour, minute, second, fraction, half = cast(tuple[str | None, ...], found.groups())
    hours = int(hour or 0)
    if half:
        hours = hours % 12 + (12 if half.lower() == "p" else 0)
    micro = int((fraction or "0").ljust(6, "0"))
    return datetime(full, month, day, hours, int(minute or 0), int(second or 0), micro, UTC)
