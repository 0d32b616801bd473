"""How `bayestream run` goes on after a kill: what it saves beside the belief, and what must agree.

The rows that had been read are read and encoded once more, which takes a fraction of the time of
learning, and their checksum must be that of the checkpoint: if the data or how they are read have
changed, that is found out before anything is written.
"""

from __future__ import annotations

import json
import warnings
import zlib
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import typer

from bayestream.cli.growing import Growing
from bayestream.cli.interrupts import INTERRUPTS
from bayestream.cli.journal import Journal
from bayestream.cli.sources import Source
from bayestream.running import Fleet, RayFleet, checkpoint
from bayestream.running.envelope import library
from bayestream.running.folder import File, files, read
from bayestream.streams.encoder import Encoded
from bayestream.streams.plans import Plan
from bayestream.streams.tables import Unreadable

# Options that may differ from one call to the next; what the data say is checked row by row.
_FREE = {"data", "out", "checkpoint", "every", "limit", "block", "config", "ray", "as_json"}


class Place(NamedTuple):
    """Where in the data a run is, between two blocks."""

    rows: int = 0  # read, good or bad
    checksum: int = 0  # of all of them
    plan: Any = None  # how the table is read; of a built-in stream, which is none, None
    encoder: Any = None  # what it knows by then


class Resumable:
    """The checkpoints of one run; without a folder it begins anew, and saves nothing."""

    def __init__(self, folder: Path | None, every: int, call: Mapping[str, Any]) -> None:
        """The newest checkpoint is read, and must be of a call with these options."""
        self._folder, self._every = folder, every
        if folder is not None:
            library()  # now, not after a thousand rows
        self._place = self._reading = Place()
        self._file = newest(folder) if folder is not None and files(folder) else None
        self._saved = self.start
        self._about: dict[str, Any] = {"call": call}
        if self._file is not None:
            _check_call(run_notes(self._file)["call"], call, self._file)

    @property
    def start(self) -> int:
        """How many rows an earlier call has learnt from."""
        return 0 if self._file is None else int(self._file.header["step"])

    @property
    def plan(self) -> Plan | None:
        """How an earlier call has read the table: its first rows are not asked again."""
        found = None if self._file is None else run_notes(self._file)["plan"]
        return None if found is None else Plan.from_json(found)

    @property
    def sizes(self) -> list[int] | None:
        """Of the network's layers by then: it may have grown."""
        return None if self._file is None else run_notes(self._file)["sizes"]

    def begin(self, belief: Growing, about: Mapping[str, Any], journal: Journal) -> None:
        """Belief and journal as they were then, or from the beginning.

        `about` is what `bayestream predict` makes the learner of, beside the sizes.
        """
        self._about.update(about)
        if self._file is None:
            belief.begin()
            return
        belief.state = checkpoint.filled(self._file, belief.learner).state
        journal.restore(run_notes(self._file)["journal"])

    def rows(self, source: Source) -> Iterator[Encoded | Unreadable]:
        """Those that have not been learnt from yet; those that have must be what they were."""
        rows = self._counted(INTERRUPTS.until(source.rows))
        for _ in islice(rows, self.start):
            pass
        file = None if INTERRUPTS.requested else self._file
        if file is not None and self._reading.checksum != run_notes(file)["checksum"]:
            raise ValueError(
                f"--data must begin with the {self.start:,} rows that {file.path} has learnt "
                "from, and does not; to begin anew, name another --checkpoint folder."
            )
        self._place = self._reading
        return rows

    def reached(self, belief: Growing, journal: Journal, source: Source) -> None:
        """All rows so far are learnt from; save them, if it is time."""
        if self._folder is None:
            return
        # Now, not when it is saved: an interrupt may come while the encoder reads a row.
        plan = None if source.plan is None else source.plan.to_json()
        encoder = None if source.encoder is None else source.encoder.to_json()
        self._place = self._reading._replace(plan=plan, encoder=encoder)
        if self._place.rows - self._saved >= self._every:
            self.save(belief, journal)

    def save(self, belief: Growing, journal: Journal) -> None:
        """Save what is new since the last time."""
        if self._folder is None or self._place.rows <= self._saved:
            return
        spread = isinstance(belief.state, Fleet | RayFleet)
        state = belief.state.state if spread else belief.state
        rows, *place = self._place
        notes = {
            **self._about,
            "sizes": belief.sizes,
            **dict(zip(Place._fields[1:], place, strict=True)),
            "journal": journal.to_json(),
        }
        checkpoint.save_step(self._folder, belief.learner, state, step=rows, notes=notes)
        self._saved = rows

    def __str__(self) -> str:
        if self._file is None:
            return ""
        return f"continues at row {self.start + 1:,}, from {self._file.path}"

    def _counted(self, items: Iterator[Encoded | Unreadable]) -> Iterator[Encoded | Unreadable]:
        for item in items:
            rows, checksum = self._reading.rows, self._reading.checksum
            self._reading = Place(rows + 1, zlib.crc32(_content(item), checksum))
            yield item


def newest(folder: Path) -> File:
    """The newest checkpoint of a folder; a damaged one that was skipped is said to be."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        file = read(folder)
    for each in said:
        typer.echo(f"warning: {each.message}", err=True)
    return file


def run_notes(file: File) -> Mapping[str, Any]:
    """What `bayestream run` has saved beside the belief."""
    notes = file.header.get("notes")
    if not isinstance(notes, dict) or not {"began", "journal", "plan"} <= notes.keys():
        raise ValueError(f"{file.path} must be a checkpoint of `bayestream run`, and is not.")
    return notes


def call_of(context: typer.Context) -> dict[str, Any]:
    """The options that a later call must share, as plain JSON."""
    named = {name: value for name, value in context.params.items() if name not in _FREE}
    return json.loads(json.dumps(named, default=str))


def _check_call(saved: Mapping[str, Any], here: Mapping[str, Any], file: File) -> None:
    for name in sorted(saved.keys() & here.keys()):
        if saved[name] != here[name]:
            option = "--set" if name == "given" else f"--{name.replace('_', '-')}"
            raise ValueError(
                f"{option} must be {_said(saved[name])}, as in {file.path}, "
                f"got {_said(here[name])}; to begin anew, name another --checkpoint folder."
            )


def _said(value: Any) -> str:
    """An option's value as it is typed."""
    if value in (None, "", []):
        return "left out"
    return " and ".join(map(str, value)) if isinstance(value, list) else str(value)


def _content(item: Encoded | Unreadable) -> bytes:
    if isinstance(item, Unreadable):
        return repr(tuple(item)).encode()
    whose = "" if item.key is None else f"{item.key}\n"
    return f"{item.place}\n{item.y!r}\n{item.target}\n{whose}".encode() + item.x.tobytes()
