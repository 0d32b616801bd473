"""Rows from files: CSV, JSON lines, Parquet, a folder of these, or standard input."""

from __future__ import annotations

import csv
import gzip
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TextIO, cast

Values = Mapping[str, Any]
_REPLACED = "\ufffd"  # what a decoder puts where bytes mean nothing


class Row(NamedTuple):
    """One row as it was written, or why it could not be read."""

    place: str  # the file and the line, for people
    values: Values | None
    problem: str = ""


def read(source: str | Path) -> Iterator[Row]:
    r"""The rows of a file, of every file of a folder in the order of their names, or of "-".

    The kind is told from the name: .csv, .tsv, .jsonl, .ndjson, each also with .gz, or .parquet.
    Standard input holds JSON lines if it begins with a brace, else CSV.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "two.csv"
    >>> _ = path.write_text("a,b\n1,2\n3\n")
    >>> [(row.values, row.problem) for row in read(path)]
    [({'a': '1', 'b': '2'}, ''), (None, 'has 1 field where the header has 2')]
    """
    if str(source) == "-":
        yield from _standard_input(sys.stdin)
        return
    path = Path(source)
    if not path.exists():
        raise FileNotFoundError(f"{path} must be a file or a folder, and does not exist.")
    if path.is_file():
        yield from _read_file(path)
        return
    files = sorted(file for file in path.iterdir() if _kind(file))
    if not files:
        raise FileNotFoundError(f"{path} must hold files of one of: {', '.join(_READERS)}.")
    for file in files:
        yield from _read_file(file)


def count(source: str | Path) -> int | None:
    """About how many rows there are, where that is quickly known."""
    path = Path(source)
    if not path.is_file() or path.suffix.lower() not in (".csv", ".tsv", ".jsonl", ".ndjson"):
        return None
    with path.open("rb") as file:
        lines = sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
    return max(lines - (path.suffix.lower() in (".csv", ".tsv")), 0)


def _read_file(path: Path) -> Iterator[Row]:
    kind = _kind(path)
    if not kind:
        raise ValueError(f"{path} must end in one of {', '.join(_READERS)}, and does not.")
    return _READERS[kind](path)


def _kind(path: Path) -> str:
    name = path.name.lower().removesuffix(".gz")
    return next((kind for kind in _READERS if name.endswith(kind)), "")


def _open(path: Path) -> TextIO:
    # utf-8-sig drops the mark that spreadsheets put first; newlines are left to csv.
    how: dict[str, Any] = {"encoding": "utf-8-sig", "errors": "replace", "newline": ""}
    if path.suffix.lower() == ".gz":
        return cast(TextIO, gzip.open(path, "rt", **how))
    return path.open(**how)


def _read_csv(path: Path) -> Iterator[Row]:
    with _open(path) as lines:
        yield from _csv(lines, path.name, ",")


def _read_tsv(path: Path) -> Iterator[Row]:
    with _open(path) as lines:
        yield from _csv(lines, path.name, "\t")


def _read_json_lines(path: Path) -> Iterator[Row]:
    with _open(path) as lines:
        yield from _json(lines, path.name)


def _read_parquet(path: Path) -> Iterator[Row]:
    try:
        from pyarrow import parquet
    except ImportError:
        raise ImportError("Parquet files need pyarrow: pip install 'bayestream[data]'") from None
    number = 0
    for batch in parquet.ParquetFile(path).iter_batches():
        for values in batch.to_pylist():
            number += 1
            yield Row(f"{path.name} row {number}", values)


_READERS = {
    ".csv": _read_csv,
    ".tsv": _read_tsv,
    ".jsonl": _read_json_lines,
    ".ndjson": _read_json_lines,
    ".parquet": _read_parquet,
}


def _standard_input(stream: TextIO) -> Iterator[Row]:
    first = stream.readline().removeprefix("\ufeff")
    lines = chain([first], stream)
    if first.lstrip().startswith("{"):
        return _json(lines, "standard input")
    return _csv(lines, "standard input", ",")


def _csv(lines: Iterable[str], name: str, delimiter: str) -> Iterator[Row]:
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    header: list[str] = []
    while True:
        begin = reader.line_num + 1
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield Row(_place(name, begin, reader.line_num), None, str(error))
            continue
        except EOFError:
            yield Row(_place(name, begin, begin), None, "is cut off: the file is not whole")
            return
        if not fields:
            continue
        if not header:
            header = [field.strip() for field in fields]
            if len(set(header)) < len(header):
                raise ValueError(f"{name} must name each column once in its first line.")
            continue
        place = _place(name, begin, reader.line_num)
        if len(fields) != len(header):
            noun = "field" if len(fields) == 1 else "fields"
            yield Row(place, None, f"has {len(fields)} {noun} where the header has {len(header)}")
        elif any(_REPLACED in field for field in fields):
            yield Row(place, None, "is not UTF-8")
        else:
            yield Row(place, dict(zip(header, fields, strict=True)))


def _place(name: str, begin: int, end: int) -> str:
    return f"{name} line {begin}" if begin >= end else f"{name} lines {begin} to {end}"


def _json(lines: Iterable[str], name: str) -> Iterator[Row]:
    number = 0
    try:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                yield _json_row(line, f"{name} line {number}")
    except EOFError:
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
