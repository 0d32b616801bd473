"""How a file of separated values is written, told from its first lines."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from bayestream.streams.values import PLAIN, NumberStyle, fields_of, moment_of, number_of, text_of

SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar", " ": "space"}
_QUOTED = re.compile(r"(?:^|[,;\t|])\s*'[^'\n]*'\s*(?=[,;\t|]|$)", re.MULTILINE)
_ROWS = 100  # looked at, at most
_MARKS = {
    b"\xef\xbb\xbf": "utf-8-sig",
    b"\xff\xfe\x00\x00": "utf-32",
    b"\x00\x00\xfe\xff": "utf-32",
    b"\xff\xfe": "utf-16",
    b"\xfe\xff": "utf-16",
}
_FOREIGN = {
    b"PK\x03\x04": "an Excel or zip file; save it as CSV",
    b"\xd0\xcf\x11\xe0": "an old Excel file; save it as CSV",
    b"\x1f\x8b": "compressed; let its name end in .gz",
    b"PAR1": "a Parquet file; let its name end in .parquet",
    b"%PDF": "a PDF file; save the table as CSV",
    b"SQLite": "a database; save the table as CSV",
}
_COMMA = re.compile(r"[-+\u2212$€£ ]*\d+,\d+[%€ ]*")
_GROUPS = {
    mark: re.compile(
        rf"[-+\u2212$€£ ]*\d{{1,3}}(?:{re.escape(mark)}\d{{3}})+(?P<rest>[.,]\d+)?[%€ ]*"
    )
    for mark in ",."
}


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

    def said(self, encoding: str) -> str:
        """In a line."""
        mark = {",": "comma", ".": "point"}
        parts = [
            f"{encoding.removesuffix('-sig')}",
            f"separator {SEPARATORS.get(self.separator, self.separator)}",
            *([f"quote {self.quote}"] if self.quote != '"' else []),
            f"decimal {mark.get(self.numbers.decimal, self.numbers.decimal)}",
            *([f"thousands' {mark.get(t, t)}"] if (t := self.numbers.thousands) else []),
            "header" if self.header else f"no header: columns are {_range(self.names)}",
            *([f"begins after line {self.preamble}"] if self.preamble else []),
            *([self.doubt] if self.doubt else []),
        ]
        return ", ".join(parts)


def encoding_of(head: bytes, name: str) -> str:
    r"""UTF-8 unless a mark or the bytes themselves say otherwise.

    >>> encoding_of(b"caf\xe9,1\n", "t.csv"), encoding_of("café,1\n".encode(), "t.csv")
    ('latin-1', 'utf-8')
    """
    for mark, encoding in _MARKS.items():
        if head.startswith(mark):
            return encoding
    for mark, kind in _FOREIGN.items():
        if head.startswith(mark):
            raise ValueError(f"{name} must be text, and is {kind}.")
    if head[:500].lstrip().lower().startswith((b"<!doctype", b"<html", b"<?xml")):
        raise ValueError(f"{name} must be a table, and is a web page or XML.")
    zeros = head[:1000].count(0)
    if zeros > len(head[:1000]) // 4:
        return "utf-16-le" if head[1:1000:2].count(0) > zeros // 2 else "utf-16-be"
    valid = head.decode("utf-8", "ignore")
    if any(ord(letter) > 127 for letter in valid) or head.isascii():
        return "utf-8"
    body = head[: max(len(head) - 3, 1)]  # the last letter may be cut
    try:
        body.decode("utf-8")
    except ValueError:
        return "cp1252" if re.search(rb"[\x80\x82-\x8c\x8e\x91-\x9c\x9e\x9f]", head) else "latin-1"
    return "utf-8"


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
    numbers, other = _numbers(cells, separator, known)
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
    return not any(mark in prose for mark in ";\t|,") or _is_number(cell) or _is_date(cell)


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
    for number, line in enumerate(lines[:20]):
        (row,) = _parsed(dialect, [line])[:1] or [[]]
        filled = sum(map(bool, row))
        if filled > 1 or (filled and width == 2 and len(row) == 2):
            return number
    return 0


def _is_header(rows: Sequence[Sequence[str]]) -> tuple[bool, str]:
    """Whether the first row names the columns, and what makes that doubtful."""
    first, below = rows[0], rows[1:]
    if not below:
        return not any(_is_number(cell) for cell in first), ""
    filled = [cell for cell in first if cell]
    numbers = [cell for cell in filled if _is_number(cell)]
    if not numbers and not any(_is_date(cell) for cell in filled):
        if any(text_of(cell) is None for cell in filled):
            return False, ""
        columns = [[row[i] for row in below if i < len(row)] for i in range(len(first))]
        typed = any(_is_number(cell) or _is_date(cell) for column in columns for cell in column)
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
        and not _is_number(first[i])
        and not _is_date(first[i])
        and sum(_is_number(row[i]) for row in below) > 0.9 * len(below)
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


def _numbers(cells: Sequence[str], separator: str, known: Format) -> tuple[NumberStyle, str]:
    """The decimal sign and what stands between thousands, and what makes them doubtful."""
    if known.decimal is not None:
        other = {".": ",", ",": "."}.get(known.decimal, "")
        grouped = other and separator != other and any(_GROUPS[other].fullmatch(c) for c in cells)
        thousands = known.thousands if known.thousands is not None else (other if grouped else "")
        return NumberStyle(known.decimal, thousands), ""
    commas = [c for c in cells if _COMMA.fullmatch(c)]
    decimal_commas = [c for c in commas if not _GROUPS[","].fullmatch(c)]
    points = [c for c in cells if "." in c and _is_plain(c) and not _GROUPS["."].fullmatch(c)]
    by_comma = [c for c in cells if _grouped(c, ",")]
    by_point = [c for c in cells if _grouped(c, ".")]
    sure_commas = len(decimal_commas) + sum("," in c for c in by_point)
    sure_points = len(points) + sum("." in c for c in by_comma)
    doubt = ""
    if sure_commas > sure_points:
        style = NumberStyle(",", "." if by_point else "")
    elif sure_points or not commas:
        grouped = any("." in c or c.count(",") > 1 for c in by_comma) or commas
        style = NumberStyle(".", "," if grouped else "")
    else:  # 1,234 and nothing else to tell by
        european = separator == ";" and not any(c.count(",") > 1 for c in by_comma)
        style = NumberStyle(",", "") if european else NumberStyle(".", ",")
        if not any(c.count(",") > 1 for c in by_comma):
            meaning = "decimal: --decimal ." if european else "thousands': --decimal ,"
            doubt = f"{commas[0]!r} is guessed to have a {meaning} if not"
    if known.thousands is not None:
        style = style._replace(thousands=known.thousands)
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


def _is_number(cell: str) -> bool:
    """In any style."""
    return _is_plain(cell) or bool(
        _COMMA.fullmatch(cell) or any(groups.fullmatch(cell) for groups in _GROUPS.values())
    )


def _is_date(cell: str) -> bool:
    if _is_plain(cell) or not any(letter.isdecimal() for letter in cell):
        return False
    if fields_of(cell):
        return True
    try:
        return moment_of(cell) is not None
    except ValueError:
        return False


def _range(names: Sequence[str]) -> str:
    return f"{names[0]} … {names[-1]}" if len(names) > 2 else " and ".join(names)
