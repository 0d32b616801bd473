"""How a file is written, told from its first bytes and from the tables that were read before."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from bayestream.streams.dialects import Dialect, Format, sniff
from bayestream.streams.encodings import encoding_of, ordered

_LONGEST = 200  # letters of a column's name


class Like(NamedTuple):
    """Tables that were read before, which a new one is expected to be like."""

    dialects: Sequence[Dialect]
    columns: Collection[str]  # that it must have
    target: str  # which it may be without

    def sniff(self, text: str, known: Format, *, native: str) -> Dialect:
        """How this text is written: as one of those, if it has the columns when it is read so.

        A few rows tell less than the many there were before: 1.234 may be read in two ways.
        """
        fresh = sniff(text, known, native=native)
        for before in self.dialects:
            if before.header or not fresh.header:  # names prove a header, c1 and c2 do not
                found = sniff(text, _otherwise(known, before), native=native)
                rest = tuple(name for name in before.names if name != self.target)
                if not found.header and len(found.names) == len(rest):
                    found = found._replace(names=rest)
                if set(self.columns) <= set(found.names):
                    return found
        return fresh


def _otherwise(known: Format, dialect: Dialect) -> Format:
    """What is known, and where nothing is, what holds for the dialect."""
    return Format(
        known.separator or dialect.separator,
        known.quote or dialect.quote,
        known.decimal or dialect.numbers.decimal,
        dialect.numbers.thousands
        if known.thousands is None and known.decimal in (None, dialect.numbers.decimal)
        else known.thousands,
        dialect.header if known.header is None else known.header,
        known.encoding,
    )


def detect(
    head: bytes,
    name: str,
    known: Format,
    like: Like | None = None,
    *,
    complete: bool = True,
    native: str = ",",
) -> Dialect:
    r"""How a file of that name is written that begins so; a header that cannot be is a ValueError.

    >>> detect(b"a;b\n1,5;caf\xe9\n", "t.csv", Format()).said()
    'LATIN-1, separator semicolon, decimal comma, header'
    """
    encoding = ordered(known.encoding or encoding_of(head, name), head)
    sample = head.decode(encoding, "replace")
    if not complete:  # the last line may be cut
        sample = sample[: max(sample.rfind("\n"), sample.rfind("\r")) + 1] or sample
    tell = sniff if like is None else like.sniff
    dialect = tell(sample, known, native=native)
    names = dialect.names
    twice = [each for each in dict.fromkeys(names) if names.count(each) > 1]
    if twice:
        raise ValueError(
            f"{name} must name each column once in its header, got {twice[0][:50]!r} twice."
        )
    long = [each for each in names if len(each) > _LONGEST]
    if long:
        raise ValueError(
            f"{name} must have names of at most {_LONGEST} letters in its header, got one of "
            f"{len(long[0]):,}, which begins with {long[0][:20]!r}."
        )
    return dialect._replace(encoding=encoding)
