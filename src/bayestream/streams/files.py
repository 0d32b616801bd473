"""Rows from files: CSV, JSON lines, Parquet, a folder of these, or standard input."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from bayestream.streams.detection import Like, detect
from bayestream.streams.dialects import AUTOMATIC, Dialect, Format
from bayestream.streams.encodings import encoding_name, ordered
from bayestream.streams.values import PLAIN, NumberStyle

Values = Mapping[str, Any]
HEAD = 300  # rows that decide what the columns are
_BYTES = 1 << 18  # of a file's beginning, at most
_REPLACED = "\ufffd"  # what a decoder puts where bytes mean nothing
_TOTALS = ("total", "totals", "grand total", "sum", "gesamt", "summe", "totaux", "somme")
_CUT_OFF = (EOFError, gzip.BadGzipFile, zlib.error)


class Row(NamedTuple):
    """One row as it was written, or why it could not be read."""

    place: str  # the file and the line, for people
    values: Values | None
    problem: str = ""
    numbers: NumberStyle = PLAIN  # how its numbers are written
    header: bool = False  # is it of a table whose columns are the same in all rows?


class How(NamedTuple):
    """How files are read: what is known of all, how much is looked at first, what is known of each.

    What is told from a file's first lines goes into `dialects`; of one that is there already,
    nothing is told again.
    """

    known: Format
    head: int
    dialects: dict[str, Dialect]  # by the files' names
    like: Like | None = None  # tables that were read before


def read(source: str | Path, how: How | None = None) -> Iterator[Row]:
    r"""The rows of a file, of every file of a folder in the order of their names, or of "-".

    The kind is told from the name: .csv, .tsv, .data, .jsonl, .ndjson, each also with .gz, or
    .parquet; a file that is named itself may also end in .txt, .dat or .psv. Standard input holds
    JSON lines if it begins with a brace, else separated values, whose separator, quotes, numbers,
    header and encoding are told from the first lines of each file.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "two.csv"
    >>> _ = path.write_text("a;b\n1;2\n3\n")
    >>> [(row.values, row.problem) for row in read(path)]
    [({'a': '1', 'b': '2'}, ''), (None, 'has 1 field where the header has 2')]
    """
    how = how or How(AUTOMATIC, HEAD, {})
    if str(source) == "-":
        # Tests and notebooks put text where bytes should be.
        stream = getattr(sys.stdin, "buffer", None) or io.BytesIO(sys.stdin.read().encode())
        yield from _standard_input(stream, how)
        return
    path = Path(source)
    if not path.exists():
        raise FileNotFoundError(f"{path} must be a file or a folder, and does not exist.")
    if not path.is_dir():
        yield from _read_file(path, how)
        return
    files = sorted(file for file in path.iterdir() if _kind(file) in _IN_FOLDERS)
    if not files:
        raise FileNotFoundError(f"{path} must hold files of one of: {', '.join(_IN_FOLDERS)}.")
    for file in files:
        yield from _read_file(file, how)


def count(source: str | Path) -> int | None:
    """About how many rows there are, where that is quickly known."""
    path = Path(source)
    if not path.is_file() or path.suffix.lower() not in (".csv", ".tsv", ".jsonl", ".ndjson"):
        return None
    lines, end = 0, b"\n"
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            lines, end = lines + block.count(b"\n"), block[-1:]
    lines += end != b"\n"  # the last may not be ended
    return max(lines - (path.suffix.lower() in (".csv", ".tsv")), 0)


def _read_file(path: Path, how: How) -> Iterator[Row]:
    kind = _kind(path)
    if not kind:
        raise ValueError(f"{path} must end in one of {', '.join(_READERS)}, and does not.")
    return _READERS[kind](path, how)


def _kind(path: Path) -> str:
    name = path.name.lower().removesuffix(".gz")
    return next((kind for kind in _READERS if name.endswith(kind)), "")


def _open(path: Path) -> BinaryIO:
    if path.suffix.lower() == ".gz":
        return cast(BinaryIO, gzip.open(path, "rb"))
    return path.open("rb")


def _read_separated(path: Path, how: How) -> Iterator[Row]:
    native = "\t" if _kind(path) == ".tsv" else ","
    with _open(path) as stream:
        yield from _separated(stream, b"", path.name, how, native)


def _read_json_lines(path: Path, how: How) -> Iterator[Row]:
    with _open(path) as stream:
        yield from _json(stream, b"", path.name, how)


def _read_parquet(path: Path, how: How) -> Iterator[Row]:
    try:
        import pyarrow as arrow
        from pyarrow import parquet
    except ImportError:
        raise ImportError("Parquet files need pyarrow: pip install 'bayestream[data]'") from None
    number = 0
    try:
        for batch in parquet.ParquetFile(path).iter_batches():
            for values in batch.to_pylist():
                number += 1
                yield Row(f"{path.name} row {number}", values, header=True)
    except arrow.ArrowException as error:
        raise ValueError(f"{path} must be a whole Parquet file: {error}.") from None


_READERS: dict[str, Callable[[Path, How], Iterator[Row]]] = {
    ".csv": _read_separated,
    ".tsv": _read_separated,
    ".data": _read_separated,
    ".jsonl": _read_json_lines,
    ".ndjson": _read_json_lines,
    ".parquet": _read_parquet,
    ".txt": _read_separated,
    ".dat": _read_separated,
    ".psv": _read_separated,
}
_IN_FOLDERS = (".csv", ".tsv", ".data", ".jsonl", ".ndjson", ".parquet")  # .txt may be notes


def _standard_input(stream: BinaryIO, how: How) -> Iterator[Row]:
    first = stream.readline(_BYTES)
    if first.removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"{"):
        return _json(stream, first, "standard input", how)
    return _separated(stream, first, "standard input", how, ",")


def _separated(stream: BinaryIO, first: bytes, name: str, how: How, native: str) -> Iterator[Row]:
    """Rows of separated values, after the bytes that have been read of them."""
    head, complete = _beginning(stream, first, how.head)
    if name not in how.dialects:
        found = detect(head, name, how.known, how.like, complete=complete, native=native)
        if not found.names:
            return
        how.dialects[name] = found
    dialect = how.dialects[name]
    lines = islice(_text(stream, head, dialect.encoding), dialect.preamble, None)
    yield from _but_totals(_rows(dialect, lines, name))


def _beginning(stream: BinaryIO, first: bytes, rows: int) -> tuple[bytes, bool]:
    """Some lines more than so many rows, without waiting for others; whether that is all."""
    parts, size = [first], len(first)
    try:
        for _ in range(rows + 20 if stream.seekable() else rows):
            line = stream.readline(_BYTES)
            parts.append(line)
            size += len(line)
            if not line:
                return b"".join(parts), True
            if size >= _BYTES:
                break
    except _CUT_OFF:
        pass
    return b"".join(parts), False


class _Again(io.RawIOBase):
    """A stream, with what has been read of it put back."""

    def __init__(self, head: bytes, stream: BinaryIO) -> None:
        self._head, self._stream = memoryview(head), stream

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any) -> int:
        """What was put back, then what there is: a live source is not waited for."""
        size = len(buffer)
        if self._head:
            part, self._head = bytes(self._head[:size]), self._head[size:]
        else:
            part = cast(io.BufferedReader, self._stream).read1(size)
        buffer[: len(part)] = part
        return len(part)


def _text(stream: BinaryIO, head: bytes, encoding: str) -> Iterator[str]:
    """The lines, with their ends as they are: the csv module wants to see them."""
    buffered = io.BufferedReader(_Again(head, stream))
    yield from io.TextIOWrapper(buffered, encoding, errors="replace", newline="")


def _rows(dialect: Dialect, lines: Iterator[str], name: str) -> Iterator[Row]:
    reader = cast(Any, dialect.reader(lines))
    names, header = dialect.names, dialect.header
    while True:
        begin = dialect.preamble + reader.line_num + 1
        try:
            fields: list[str] = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            place = _place(name, begin, dialect.preamble + reader.line_num)
            yield Row(place, None, _mended(str(error)))
            continue
        except _CUT_OFF:
            yield Row(_place(name, begin, begin), None, "is cut off: the file is not whole")
            return
        if not any(map(str.strip, fields)):
            continue
        if header:
            header = False
            continue
        place = _place(name, begin, dialect.preamble + reader.line_num)
        if len(fields) == len(names) + 1 and not fields[-1].strip():
            del fields[-1]  # a separator at the end of the line
        if len(fields) != len(names):
            noun = "field" if len(fields) == 1 else "fields"
            whole = "header" if dialect.header else "first line"
            problem = f"has {len(fields)} {noun} where the {whole} has {len(names)}"
            yield Row(place, None, problem)
        elif dialect.header and fields[0].strip() == names[0] and _stripped(fields) == names:
            yield Row(place, None, "repeats the header")
        elif any(_REPLACED in field for field in fields):
            yield Row(place, None, f"is not {encoding_name(dialect.encoding)}")
        else:
            yield Row(place, dict(zip(names, fields, strict=True)), "", dialect.numbers, True)


def _but_totals(rows: Iterator[Row]) -> Iterator[Row]:
    """The rows without a line of totals below them: what may be one waits for another row."""
    held: Row | None = None
    for row in rows:
        if held is not None:
            yield held
        held = row if _may_be_totals(row) else None
        if held is None:
            yield row
    if held is not None:
        yield Row(held.place, None, "is a line of totals")


def _may_be_totals(row: Row) -> bool:
    """Whether it begins with such a word, and is not filled; a company may be called Total."""
    cells = list((row.values or {}).values())
    first = next(filter(None, map(str.strip, cells)), "")
    return first.rstrip(":").lower() in _TOTALS and "" in _stripped(cells)


def _stripped(cells: list[str]) -> tuple[str, ...]:
    return tuple(map(str.strip, cells))


def _mended(error: str) -> str:
    """The csv module's words, where ours say more."""
    if "unexpected end of data" in error or "field larger" in error:
        return "opens a quote that is never closed"
    return error


def _place(name: str, begin: int, end: int) -> str:
    return f"{name} line {begin}" if begin >= end else f"{name} lines {begin} to {end}"


def _json(stream: BinaryIO, first: bytes, name: str, how: How) -> Iterator[Row]:
    number = 0
    try:
        head = first or stream.readline(_BYTES)
        lines = _text(stream, head, ordered(how.known.encoding or "utf-8-sig", head))
        for number, line in enumerate(lines, start=1):
            if line.strip():
                yield _json_row(line, f"{name} line {number}")
    except _CUT_OFF:
        yield Row(f"{name} line {number + 1}", None, "is cut off: the file is not whole")


def _json_row(line: str, place: str) -> Row:
    if _REPLACED in line:
        return Row(place, None, "is not UTF-8")
    try:
        values = json.loads(line)
    except (ValueError, RecursionError) as error:
        return Row(place, None, f"is not JSON: {error}")
    if not isinstance(values, dict):
        return Row(place, None, "is not a JSON object")
    return Row(place, cast(Values, values))
