"""A file that only grows, and can be cut back to what a checkpoint knows of it."""

from __future__ import annotations

import csv
import io
import os
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple


class Mark(NamedTuple):
    """How far a file had been written, and a checksum of it."""

    size: int
    checksum: int


class Appended:
    """A file to which lines are added; however the process ends, there is no half line.

    With a mark, it goes on there: what was written since is cut off, since it will come again. Ask
    `content_until` first whether the rest is still what it was.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "a.csv"
    >>> file = Appended(path)
    >>> file.write_rows([("x", "y"), (1, 2)])
    >>> mark = file.mark()
    >>> file.write_rows([(3, 4)])
    >>> file.close()
    >>> Appended(path, mark).close()
    >>> path.read_text().splitlines()
    ['x,y', '1,2']
    """

    def __init__(self, path: Path, mark: Mark | None = None) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._size, self._checksum = Mark(0, 0) if mark is None else mark
        self._file = path.open("wb" if mark is None else "r+b", buffering=0)
        self._file.truncate(self._size)
        self._file.seek(self._size)

    def write_rows(self, rows: Iterable[Iterable[Any]]) -> None:
        """Rows of CSV."""
        for row in rows:
            line = io.StringIO()
            csv.writer(line).writerow(row)
            self.write(line.getvalue().encode())

    def write(self, content: bytes) -> None:
        """Bytes, in one piece."""
        self._file.write(content)
        self._size += len(content)
        self._checksum = zlib.crc32(content, self._checksum)

    def mark(self) -> Mark:
        """Where it is now, once the disk has everything until there."""
        os.fsync(self._file.fileno())
        return Mark(self._size, self._checksum)

    def close(self) -> None:
        """Nothing more will be written."""
        self._file.close()


def content_until(path: Path, mark: Mark) -> bytes:
    """What was written until then; an error if it is not there any more."""
    content = path.read_bytes()[: mark.size] if path.exists() else b""
    if (len(content), zlib.crc32(content)) != mark:
        raise ValueError(
            f"{path} must be as the run that is to be continued has left it, and is not; "
            "to begin anew, name another --checkpoint folder."
        )
    return content
