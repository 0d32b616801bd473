"""How the numbers of one column are written: a unit after each, a number that stands for none."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from bayestream.streams.values import MONEY, NumberStyle, finite, text_of

_SHARE = 0.9  # of a column's cells that must end in the unit
# After a space it may be any short word; without one, only what is written so.
_UNIT = re.compile(
    rf"[-+(\u2212{MONEY} ]*\d(?:[\d.,\u2019' ]*\d)?"
    r"(?P<unit>\s[^\W\d_]{1,5}(?:/[^\W\d_]{1,5})?|\s?°[CF]?"
    r"|[kcm]?m|k?g|mg|lbs?|oz|mi|ft|m?l|[mk]?s|min|h|[kM]?Wh?|m?[VA]|[kMG]?Hz|[kMGT]B)\)?"
)
_NOTHING = re.compile(r"-9{3,}(?:\.[09])?")


class Habits(NamedTuple):
    """What is taken off each number of a column, and what is read as missing."""

    unit: str = ""
    nothing: str = ""

    def of(self, style: NumberStyle) -> NumberStyle:
        """How a file's numbers are written in this column."""
        return style._replace(unit=self.unit, nothing=self.nothing)

    def said(self) -> str:
        """In words; nothing where there is nothing to say."""
        parts = [f"in {self.unit}"] if self.unit else []
        return ", ".join([*parts, *([f"{self.nothing} is missing"] if self.nothing else [])])


NO_HABITS = Habits()


def habits_of(cells: Sequence[tuple[Any, NumberStyle]]) -> Habits:
    """Of a column's cells that are not missing, with how the file writes numbers.

    Nearly all share one unit, or none is taken off: 512 MB and 2 GB are not 512 and 2; a number
    without it is then none. A number such as -999 stands for nothing if it comes more than once,
    and all others are between zero and 999.

    >>> plain = NumberStyle()
    >>> habits_of([(text, plain) for text in ("72 kg", "80.5 kg", "64 kg")])
    Habits(unit='kg', nothing='')
    >>> habits_of([(text, plain) for text in ("3.5", "-999", "0", "-999", "2")])
    Habits(unit='', nothing='-999')
    """
    texts = [text_of(value) or "" for value, _ in cells]
    units = Counter(found["unit"].strip() for text in texts if (found := _UNIT.fullmatch(text)))
    unit = next(iter(units)) if len(units) == 1 and units.total() >= _SHARE * len(cells) else ""
    odd = Counter(filter(_NOTHING.fullmatch, texts))
    if len(odd) != 1 or odd.total() < 2:
        return Habits(unit)
    (nothing,) = odd
    rest = [number for value, style in cells if (number := finite(value, style)) is not None]
    others = [number for number in rest if number >= 0]
    alone = len(others) + odd.total() == len(rest) and max(others, default=math.inf) < 999
    return Habits(unit, nothing if alone else "")
