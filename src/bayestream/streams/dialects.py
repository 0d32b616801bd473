"""How a file of separated values is written, told from its first lines."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from bayestream.streams.encodings import encoding_name
from bayestream.streams.number_styles import is_date, is_number, style_of
from bayestream.streams.values import PLAIN, NumberStyle, text_of

SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar", " ": "space"}
_QUOTED = re.compile(r"(?:^|[,;\t|])\s*'[^'\n]*'\s*(?=[,;\t|]|$)", re.MULTILINE)
_ROWS = 100  # looked at, at most


class Format(NamedTuple):
    """What is known beforehand of how a file is written; None is told from its first lines."""

    separator: str | None = None
    quote: str | None = None
    decimal: str | None = None
    thousands: str | None = None
    header: bool | None = None
    encoding: str | None = None

    def checked(self) -> Format:
        """With names such as "tab" turned into signs; what cannot be is a ValueError."""
        names = {name: sign for sign, name in SEPARATORS.items()} | {"\\t": "\t"}
        separator = None if self.separator is None else names.get(self.separator, self.separator)
        for name, sign in (("separator", separator), ("quote", self.quote)):
            if sign is not None and (len(sign) != 1 or sign in "\r\n\0"):
                raise ValueError(f"{name} must be one sign, such as ; or tab, got {sign!r}.")
        if self.decimal not in (None, ".", ","):
            raise ValueError(f"decimal must be . or , got {self.decimal!r}.")
        if self.thousands is not None and (
            self.thousands not in ("", ",", ".") or self.thousands == (self.decimal or "")
        ):
            raise ValueError(
                f"thousands must be . or , or nothing, and not the decimal sign, "
                f"got {self.thousands!r}."
            )
        try:
            b"a".decode(self.encoding or "utf-8", "ignore")
        except (LookupError, ValueError):
            raise ValueError(
                f"encoding must be one that Python knows, such as latin-1, got {self.encoding!r}."
            ) from None
        if separator is not None and separator == (self.quote or '"'):
            raise ValueError(f"separator and quote must differ, got {separator!r} for both.")
        return self._replace(separator=separator)


AUTOMATIC = Format()


class Dialect(NamedTuple):
    """How a file of separated values is written."""

    separator: str
    quote: str
    escaped: bool  # is a quote within quotes written \\" rather than ""?
    numbers: NumberStyle
    preamble: int  # lines before the table
    names: tuple[str, ...]  # of the columns
    header: bool  # are they written in the file?
    doubt: str = ""  # what could be read in two ways
    encoding: str = "utf-8"

    @classmethod
    def from_json(cls, saved: Sequence[Any]) -> Dialect:
        """What was written as JSON, which has lists alone."""
        found = cls(*saved)
        return found._replace(numbers=NumberStyle(*found.numbers), names=tuple(found.names))

    def reader(self, lines: Iterator[str]) -> Iterator[list[str]]:
        """The csv module's reader for it."""
        return csv.reader(
            lines,
            delimiter=self.separator,
            quotechar=self.quote,
            escapechar="\\" if self.escaped else None,
            skipinitialspace=True,
            strict=True,
        )

    def said(self) -> str:
        """In a line."""
        mark = {",": "comma", ".": "point"}
        parts = [
            encoding_name(self.encoding),
            f"separator {SEPARATORS.get(self.separator, self.separator)}",
            *([f"quote {self.quote}"] if self.quote != '"' else []),
            f"decimal {mark.get(self.numbers.decimal, self.numbers.decimal)}",
            *([f"thousands' {mark.get(t, t)}"] if (t := self.numbers.thousands) else []),
            "header" if self.header else f"no header: columns are {_range(self.names)}",
            *([f"begins after line {self.preamble}"] if self.preamble else []),
            *([self.doubt] if self.doubt else []),
        ]
        return ", ".join(parts)


def sniff(text: str, known: Format = AUTOMATIC, *, native: str = ",") -> Dialect:
    r"""How this text, the beginning of a file in whole lines, is written.

    The separator is the one that cuts most lines into equally many sensible cells, and `native` if
    several do. Whether the first line names the columns is told from the lines below it.

    >>> found = sniff("a;b\n1,5;x\n2,25;y\n")
    >>> found.separator, found.numbers.decimal, found.names
    (';', ',', ('a', 'b'))
    """
    lines = text.splitlines(keepends=True)
    preamble = 0
    separator = known.separator
    excel = re.match(r"sep=(.)\s*$", lines[0]) if lines else None
    if excel:
        separator, preamble = separator or excel[1], 1
    quote = known.quote or _quote(text)
    escaped = f"\\{quote}" in text and quote * 2 not in text
    comments = _comments(lines[preamble:])
    preamble += comments
    if separator is None:
        separator = _separator(lines[preamble:], quote, escaped, native)
    draft = Dialect(separator, quote, escaped, PLAIN, preamble, (), True)
    preamble += _title(draft, lines[preamble:])
    rows = _parsed(draft, lines[preamble:])
    # numpy.savetxt and others write the header as a comment.
    if comments and lines[preamble - 1].startswith("#"):
        last = _parsed(draft, [lines[preamble - 1].lstrip("# ")])
        if rows and last and len(last[0]) == len(rows[0]) > 1 and known.header is not False:
            rows, preamble = [*last, *rows], preamble - 1
            known = known._replace(header=True)
    if not rows:
        return draft._replace(preamble=preamble)
    header, doubt = (known.header, "") if known.header is not None else _is_header(rows)
    cells = [cell for row in rows[bool(header) :] for cell in row]
    numbers, other = style_of(cells, separator, known.decimal, known.thousands)
    names = _names(rows, bool(header))
    doubts = "; ".join(filter(None, [doubt, other]))
    return Dialect(separator, quote, escaped, numbers, preamble, names, bool(header), doubts)


def _quote(text: str) -> str:
    if '"' in text:
        return '"'
    return "'" if len(_QUOTED.findall(text)) >= max(2, text.count("\n") // 4) else '"'


def _comments(lines: Sequence[str]) -> int:
    number = 0
    while number < len(lines) and (lines[number].startswith("#") or not lines[number].strip()):
        number += 1
    # A table's own header may begin so, as in "#id,size".
    first = lines[0].startswith("#") if lines else False
    return number if number < len(lines) and (first or number) else 0


def _separator(lines: Sequence[str], quote: str, escaped: bool, native: str) -> str:
    def score(separator: str) -> float:
        rows = _parsed(Dialect(separator, quote, escaped, PLAIN, 0, (), True), lines)
        counts = Counter(len(row) for row in rows if any(row))
        if not counts:
            return 0.0
        columns, often = counts.most_common(1)[0]
        if columns < 2:
            return 0.0
        own = [row for row in rows if len(row) == columns]
        cells = [cell for row in own for cell in row]
        sensible = sum(_is_sensible(cell) for cell in cells) / len(cells)
        headed = 1.0 if len(rows[0]) == columns else 0.8
        return often / counts.total() * sensible * headed

    scores = {each: score(each) for each in SEPARATORS if each != " "}
    best = max(scores.values())
    if best == 0:
        return " " if score(" ") > 0.9 else native
    return next(each for each in (native, *SEPARATORS) if scores.get(each, 0.0) >= best - 0.01)


def _is_sensible(cell: str) -> bool:
    prose = cell.replace(", ", " ")
    return not any(mark in prose for mark in ";\t|,") or is_number(cell) or is_date(cell)


def _parsed(dialect: Dialect, lines: Sequence[str]) -> list[list[str]]:
    """The first rows, as far as they can be read."""
    rows: list[list[str]] = []
    reader = dialect.reader(iter(lines))
    while len(rows) < _ROWS:
        try:
            row = [cell.strip() for cell in next(reader)]
        except StopIteration:
            break
        except csv.Error:
            continue
        if any(row):
            rows.append(row)
    return rows


def _title(dialect: Dialect, lines: Sequence[str]) -> int:
    """Lines before the first that is as wide as most, if they hold a cell each."""
    rows = _parsed(dialect, lines)
    width = Counter(map(len, rows)).most_common(1)[0][0] if rows else 1
    if width < 2 or len(rows) < 3:
        return 0
    for number in range(min(20, len(lines))):
        (row,) = _parsed(dialect, lines[number : number + 20])[:1] or [[]]
        filled = sum(map(bool, row))
        if filled > 1 or (filled and width == 2 and len(row) == 2):
            return number
    return 0


def _is_header(rows: Sequence[Sequence[str]]) -> tuple[bool, str]:
    """Whether the first row names the columns, and what makes that doubtful."""
    first, below = rows[0], rows[1:]
    if not below:
        return not any(is_number(cell) for cell in first), ""
    filled = [cell for cell in first if cell]
    numbers = [cell for cell in filled if is_number(cell)]
    if not numbers and not any(is_date(cell) for cell in filled):
        if any(text_of(cell) is None for cell in filled):
            return False, ""
        columns = [[row[i] for row in below if i < len(row)] for i in range(len(first))]
        typed = any(is_number(cell) or is_date(cell) for column in columns for cell in column)
        again = any(cell in column for cell, column in zip(first, columns, strict=True) if cell)
        if not typed and again:
            return False, "a header is guessed not to be there: --header if it is"
        return True, ""
    # 2019, 2020, 2021 above numbers, or 0, 1, 2 as pandas names its columns.
    if len(numbers) > 1 and all(cell.isdecimal() for cell in numbers):
        wholes = [int(cell) for cell in numbers]
        consecutive = wholes == list(range(wholes[0], wholes[0] + len(wholes)))
        if consecutive and (wholes[0] == 0 or 1800 < wholes[0] < 2200) and list(first) != below[0]:
            return True, "numbers are guessed to be the header: --no-header if they are not"
    # A word above numbers.
    widths = range(min(len(first), min(map(len, below))))
    worded = [
        i
        for i in widths
        if text_of(first[i]) is not None
        and not is_number(first[i])
        and not is_date(first[i])
        and sum(is_number(row[i]) for row in below) > 0.9 * len(below)
    ]
    if len(worded) > len(numbers):
        return True, "a header is guessed: --no-header if there is none"
    return False, ""


def _names(rows: Sequence[Sequence[str]], header: bool) -> tuple[str, ...]:
    width = Counter(map(len, rows[1:])).most_common(1)[0][0] if len(rows) > 1 else len(rows[0])
    if not header:
        return tuple(f"c{number + 1}" for number in range(width))
    names = list(rows[0])
    if len(names) + 1 == width and all(row[-1] for row in rows[1:] if len(row) == width):
        names = ["row", *names]  # as R writes the names of rows
    taken = set(names)
    for index, name in enumerate(names):
        if not name:
            number = index + 1
            while f"c{number}" in taken:
                number += len(names)
            names[index] = f"c{number}"
            taken.add(names[index])
    return tuple(names)


def _range(names: Sequence[str]) -> str:
    return f"{names[0]} … {names[-1]}" if len(names) > 2 else " and ".join(names)
