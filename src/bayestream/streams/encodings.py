"""How the letters of a file are written, told from its first bytes."""

from __future__ import annotations

import codecs
import re

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
    b"\x89PNG": "a picture",
    b"\xff\xd8\xff": "a picture",
    b"GIF8": "a picture",
}
_NAMES = {"utf-8-sig": "UTF-8", "utf-8": "UTF-8", "cp1252": "Windows-1252"}


def encoding_name(encoding: str) -> str:
    """As people call it.

    >>> encoding_name("utf-8-sig"), encoding_name("latin-1")
    ('UTF-8', 'LATIN-1')
    """
    return _NAMES.get(encoding, encoding.upper())


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
    # The last letter may be cut, unless it is the end of a line.
    body = head if head.endswith(b"\n") else head[: max(len(head) - 3, 1)]
    try:
        body.decode("utf-8")
    except ValueError:
        return "cp1252" if re.search(rb"[\x80\x82-\x8c\x8e\x91-\x9c\x9e\x9f]", head) else "latin-1"
    return "utf-8"


def ordered(encoding: str, head: bytes) -> str:
    """With the order of bytes that Python asks for where no mark tells it."""
    name = codecs.lookup(encoding).name
    marked = head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE))
    return encoding if marked or name not in ("utf-16", "utf-32") else f"{name}-le"
