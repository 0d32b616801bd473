"""What `bayestream run` keeps of its forecasts: the files, the scores so far, and alarms."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from bayestream.cli.appended import Appended, Mark, content_until
from bayestream.cli.by_key import ByKey
from bayestream.cli.sources import Source
from bayestream.cli.writers import SHARES, Labels, Numbers, Writer
from bayestream.evaluation.changes import Change, Watch
from bayestream.evaluation.results import Results
from bayestream.evaluation.summaries import window
from bayestream.running.fleet import FleetRecords
from bayestream.running.run import Records
from bayestream.streams.encoder import WARM_UP, Encoded
from bayestream.streams.tables import Unreadable

_SHOWN = 5  # skipped rows on the screen
_SCORES = "scores.f64"  # each row's losses and weights of drifts, beside the checkpoints


class Journal:
    """Everything forecast, written down as it comes: forecasts.csv, and skipped.csv if need be."""

    def __init__(
        self,
        writer: Writer,
        size: int,
        out: Path,
        drifts: Sequence[str],
        kept: Path | None = None,
    ) -> None:
        self._writer, self._size, self._out = writer, size, out
        self._kept = kept  # the folder of checkpoints, if it is to be continued
        self._drifts = np.array(drifts)  # of an average's settings
        self._speeds = array("d")  # row after row, the weight of each drift
        self._watch = Watch()
        self._changes: list[Change] = []
        self._all = array("d")  # losses, row after row
        self._recent = np.zeros((0, len(writer.losses)))
        self._skipped: list[Unreadable] = []  # the first few
        self._skips = 0
        self._marks: dict[str, Mark] = {}  # where files are gone on with
        self._files: dict[str, Appended] = {}
        self.refused = self.updates = 0  # of the labels there were to learn from

    def __enter__(self) -> Journal:
        (self._out / "scores.png").unlink(missing_ok=True)  # an earlier run's
        if "skipped.csv" not in self._marks:
            (self._out / "skipped.csv").unlink(missing_ok=True)
        self._open("forecasts.csv", self._writer.header)
        if self._skips:
            self._open("skipped.csv")
        if self._kept is not None:
            self._open(_SCORES)
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            file.close()

    def to_json(self) -> dict[str, Any]:
        """What a checkpoint needs of it, in plain JSON, once the disk has the rest in files."""
        return {
            "files": {name: file.mark() for name, file in self._files.items()},
            "counts": self._writer.to_json(),
            "watch": self._watch.to_json(),
            "changes": self._changes,
            "skipped": self._skipped,
            "skips": self._skips,
            "refused": self.refused,
            "updates": self.updates,
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Be the journal that said so: its files are cut back to what they were then."""
        self._marks = {name: Mark(*mark) for name, mark in saved["files"].items()}
        content = {
            name: content_until(self._path(name), mark) for name, mark in self._marks.items()
        }
        self._writer.restore(saved["counts"])
        self._watch = Watch.from_json(saved["watch"])
        self._changes = [Change(*change) for change in saved["changes"]]
        self._skipped = [Unreadable(*row) for row in saved["skipped"]]
        self._skips = saved["skips"]
        self.refused, self.updates = saved["refused"], saved["updates"]
        losses = len(self._writer.losses)
        rows = np.frombuffer(content[_SCORES]).reshape(-1, losses + len(np.unique(self._drifts)))
        self._all = array("d", rows[:, :losses].ravel())
        self._speeds = array("d", rows[:, losses:].ravel())
        self._recent = rows[-self._size :, :losses]

    def write(self, rows: Sequence[Encoded], records: Records | FleetRecords) -> None:
        """Score forecasts, and write them down; say what could not be learnt from."""
        values = jax.tree.map(np.asarray, records.values)
        lines, losses, surprise = self._writer.write(rows, values)
        own = self._drifts[:, None] == np.unique(self._drifts)
        speeds = (
            np.asarray(values["weights"], float) @ own if own.size else np.zeros((len(rows), 0))
        )
        self._speeds.extend(speeds.ravel())
        self._changes += filter(None, map(self._watch.add, surprise.tolist()))
        self.refused += len(records.refused)
        self.updates += records.updates
        self.skip([Unreadable(rows[each.position].place, each.reason) for each in records.refused])
        self._all.extend(losses.ravel())
        self._recent = np.concatenate([self._recent, losses])[-self._size :]
        self._files["forecasts.csv"].write_rows(lines)
        if self._kept is not None:
            self._files[_SCORES].write(np.column_stack([losses, speeds]).astype(float).tobytes())

    def skip(self, bad: Sequence[Unreadable]) -> None:
        """Write down what could not be read, or learnt from."""
        if bad and not self._skips:
            self._open("skipped.csv", Unreadable._fields)
        if bad:
            self._files["skipped.csv"].write_rows(bad)
        self._skipped = (self._skipped + list(bad))[:_SHOWN]
        self._skips += len(bad)

    def _open(self, name: str, header: Sequence[str] = ()) -> None:
        mark = self._marks.get(name)
        self._files[name] = file = Appended(self._path(name), mark)
        if mark is None and header:
            file.write_rows([header])

    def _path(self, name: str) -> Path:
        return (self._kept if name == _SCORES and self._kept else self._out) / name

    def skips(self) -> list[str]:
        """What was skipped, in lines; none if nothing was."""
        if not self._skips:
            return []
        lines = [f"skipped {self._skips} row{'s' if self._skips > 1 else ''}:"]
        lines += [f"  {row.place}: {row.reason}" for row in self._skipped]
        more = self._skips - len(self._skipped)
        return [*lines, *([f"  and {more} more, in skipped.csv"] if more else [])]

    def files(self) -> list[str]:
        """The names of those that were written."""
        return ["forecasts.csv", *(["skipped.csv"] if self._skips else [])]

    def unscored(self) -> str:
        """Why there is no score at all; empty if there is one."""
        if self.scored:
            return ""
        if not self.updates:
            return f"no score: none of {self.count:,} rows had a label, so nothing was learnt"
        return (
            f"no score: {self.updates} of {self.count:,} rows had a label, and scores begin with "
            f"the {WARM_UP + 1}th, when the units of the target are known"
        )

    def summary(self, method: str) -> dict[str, Any]:
        """For machines: scores, and where the world changed at once."""
        return {
            "scores": self.scores(method),
            "recent": {"rows": self._size, "scores": self.scores(method, recent=True)},
            "changes": [
                {"row": row + 1, "since": since + 1, "deviations": strength}
                for row, since, strength in self._changes
            ],
        }

    def counts(self) -> dict[str, int]:
        """For machines: rows that were forecast, and those not read or not learnt from."""
        read = {"rows": self.count, "labels": self.updates}
        return {**read, "skipped": self._skips - self.refused, "refused": self.refused}

    @property
    def by_key(self) -> ByKey | None:
        """What it has of each key, in a fleet."""
        return self._writer if isinstance(self._writer, ByKey) else None

    @property
    def header(self) -> Sequence[str]:
        """The columns of forecasts.csv."""
        return self._writer.header

    @property
    def count(self) -> int:
        """How many rows have been scored."""
        return len(self._all) // len(self._writer.losses)

    @property
    def scored(self) -> bool:
        """Whether there was a target to score by."""
        return not bool(np.isnan(self._joined()).all())

    def speeds(self) -> dict[str, NDArray[Any]]:
        """How fast the world moves: of each drift, by name, its weight row after row."""
        drifts = np.unique(self._drifts)
        weights = np.array(self._speeds).reshape(-1, max(1, len(drifts)))
        return dict(zip(drifts.tolist(), weights.T, strict=False))

    def changes(self) -> list[str]:
        """Each sudden change in a line: when, how strong, and what it did to the error."""
        (name, power), *_ = ((metric, p) for (_, metric), p in self._writer.losses.items())
        errors = self._joined()[:, 0]
        lines: list[str] = []
        for row, since, strength in self._changes:
            before, after = (
                _mean(part, power)
                for part in (errors[max(0, since - self._size) : since], errors[since : row + 1])
            )
            lines.append(
                f"row {row + 1:,}: something changed at about row {since + 1:,}; {name} "
                f"{before:.4g} → {after:.4g}, {strength:.1f} deviations more than expected"
            )
        return lines

    def moves(self) -> str:
        """How fast the world has moved over the last rows; nothing where nothing is averaged."""
        shares = {name: share[-self._size :] for name, share in self.speeds().items()}
        said = [f"{share.mean():.0%} {name}" for name, share in shares.items() if len(share)]
        return f"how fast the world moves (last {self._size}): {', '.join(said)}" if said else ""

    def line(self) -> str:
        """The learner's rolling scores, in words."""
        parts = [
            f"{metric} {_mean(column, power):.4g}"
            for column, ((other, metric), power) in self._columns(self._recent)
            if not other and metric not in SHARES and not np.isnan(column).all()
        ]
        if not parts:
            return "no score yet"
        return f"{', '.join(parts)} (last {self._size})"

    def table(
        self, method: str, title: str = "Each row forecast before it was learnt from"
    ) -> Table:
        """Scores over all rows, and over the last ones."""
        table = Table(title=title)
        for column in ("", "score", "all rows", f"last {self._size}"):
            table.add_column(column, justify="left" if column in ("", "score") else "right")
        recent = self.scores(method, recent=True)
        for name, scores in self.scores(method).items():
            for metric, value in scores.items():
                last = recent[name][metric]
                table.add_row(name, metric.replace("_", " "), f"{value:.4g}", f"{last:.4g}")
        return table

    def scores(self, method: str, *, recent: bool = False) -> dict[str, dict[str, float]]:
        """Of the method and of what it is compared with, over all rows or over the last ones."""
        found: dict[str, dict[str, float]] = {}
        losses = self._recent if recent else self._joined()
        for column, ((other, metric), power) in self._columns(losses):
            own = found.setdefault(other or method, {})
            own[metric] = _mean(column, power)
            if metric == "rmse":  # which one absurd target can make say nothing of all others
                known = column[~np.isnan(column)]
                own["median_error"] = float(np.median(known)) if known.size else np.nan
        return found

    def results(self, method: str) -> Results:
        """Rolling scores as a tidy table."""
        rolling, losses = window(self._size), self._joined()
        changed = np.zeros(len(losses), int)
        changed[[change.since for change in self._changes]] = 1
        parts = [
            Results.of(
                method=other or method,
                metric=metric,
                summary=rolling.name,
                trial=0,
                step=np.arange(1, len(losses) + 1),
                task=np.cumsum(changed),  # a picture marks where it grows
                value=rolling.of(column**power) ** (1 / power),
            )
            for column, ((other, metric), power) in self._columns(losses)
            if metric not in SHARES
        ]
        return Results.joined(parts)

    def _joined(self) -> NDArray[Any]:
        return np.array(self._all).reshape(-1, len(self._writer.losses))

    def _columns(self, losses: NDArray[Any]) -> Iterator[tuple[NDArray[Any], Any]]:
        """Each loss of all rows, with its name and power."""
        return zip(losses.T, self._writer.losses.items(), strict=True)


def _mean(losses: NDArray[Any], power: float) -> float:
    """In that power, of the rows that have one."""
    known = losses[~np.isnan(losses)]
    return float(np.mean(known**power) ** (1 / power)) if known.size else np.nan


def journal_for(
    source: Source,
    size: int,
    out: Path,
    drifts: Sequence[str] = (),
    *,
    level: float = 0.9,
    kept: Path | None = None,
) -> Journal:
    """A journal for the source's kind of target; of an average, with its settings' drifts.

    With a folder of checkpoints, what it remembers of every row is kept there too.
    """
    writer = Labels(source) if source.task == "classification" else Numbers(level)
    if source.key:
        writer = ByKey(writer, source.key)
    return Journal(writer, size, out, drifts, kept)
