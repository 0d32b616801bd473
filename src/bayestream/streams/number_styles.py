"""How numbers are written in a file, told from its first cells."""

from __future__ import annotations

import re
from collections.abc import Sequence

from bayestream.streams.values import MONEY, NumberStyle, fields_of, grouped, moment_of, number_of

_BEFORE, _AFTER = rf"[-+(\u2212{MONEY} ]*", rf"[%){MONEY} ]*"
_COMMA = re.compile(rf"{_BEFORE}\d+,\d+{_AFTER}")
_GROUPS = {
    mark: re.compile(rf"{_BEFORE}{grouped(mark)}(?P<rest>[.,]\d+)?{_AFTER}") for mark in ",."
}


def style_of(
    cells: Sequence[str], separator: str, decimal: str | None, thousands: str | None
) -> tuple[NumberStyle, str]:
    """The decimal sign and what stands between thousands, and what makes them doubtful."""
    if decimal is not None:
        other = {".": ",", ",": "."}.get(decimal, "")
        grouped = other and separator != other and any(_GROUPS[other].fullmatch(c) for c in cells)
        thousands = thousands if thousands is not None else (other if grouped else "")
        return NumberStyle(decimal, thousands), ""
    commas = [c for c in cells if _COMMA.fullmatch(c)]
    decimal_commas = [c for c in commas if not _GROUPS[","].fullmatch(c)]
    points = [c for c in cells if "." in c and _is_plain(c) and not _GROUPS["."].fullmatch(c)]
    by_comma = [c for c in cells if _grouped(c, ",")]
    by_point = [c for c in cells if _grouped(c, ".")]
    sure_commas = len(decimal_commas) + sum("," in c for c in by_point)
    sure_points = len(points) + sum("." in c for c in by_comma)
    doubt = ""
    if sure_commas > sure_points:
        by_point = by_point or (not points and any(_GROUPS["."].fullmatch(c) for c in cells))
        style = NumberStyle(",", "." if by_point else "")
    elif sure_points or not commas:
        grouped = any("." in c or c.count(",") > 1 for c in by_comma) or commas
        style = NumberStyle(".", "," if grouped else "")
    else:  # 1,234 and nothing else to tell by
        european = separator == ";" and not any(c.count(",") > 1 for c in by_comma)
        style = NumberStyle(",", "") if european else NumberStyle(".", ",")
        if not any(c.count(",") > 1 for c in by_comma):
            meant = commas[0].replace(",", "." if european else "")
            other = "." if european else ","
            doubt = f"{commas[0]!r} is guessed to be {meant}: --decimal {other} if not"
    if thousands is not None:
        style = style._replace(thousands=thousands)
    return style, doubt


def _grouped(cell: str, mark: str) -> bool:
    """Whether it is certainly written with thousands: 1.234.567, or 1.234,5."""
    found = _GROUPS[mark].fullmatch(cell)
    if not found:
        return False
    return bool(found["rest"] and found["rest"][0] != mark) or cell.count(mark) > 1


def _is_plain(cell: str) -> bool:
    try:
        return number_of(cell) is not None
    except ValueError:
        return False


def is_number(cell: str) -> bool:
    """In any style."""
    return _is_plain(cell) or bool(
        _COMMA.fullmatch(cell) or any(groups.fullmatch(cell) for groups in _GROUPS.values())
    )


def is_date(cell: str) -> bool:
    """Written in any order."""
    if _is_plain(cell) or not any(letter.isdecimal() for letter in cell):
        return False
    if fields_of(cell):
        return True
    try:
        return moment_of(cell) is not None
    except ValueError:
        return False
