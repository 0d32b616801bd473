"""What `bayestream run --key` says of each key: its forecasts, its scores, its alarms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from bayestream.cli.writers import Writer, Written
from bayestream.evaluation.changes import Change, Watch
from bayestream.streams.encoder import Encoded

_SHOWN = 5  # keys in the table, and alarms


class _Known(NamedTuple):
    """Of one key."""

    rows: int
    scored: int
    sums: NDArray[Any]  # of its losses, in their powers
    watch: Watch


class ByKey:
    """A writer that also tells keys apart: a column more, and scores and alarms of each."""

    def __init__(self, writer: Writer, key: str) -> None:
        self._writer, self._key = writer, key
        place, *rest = writer.header
        self.header: Sequence[str] = (place, "key", *rest)
        self.losses = writer.losses
        self._known: dict[str, _Known] = {}
        self._alarms: list[tuple[str, Change]] = []

    def to_json(self) -> Any:
        """All of it, and what the writer remembers."""
        known = {
            key: [one.rows, one.scored, one.sums.tolist(), one.watch.to_json()]
            for key, one in self._known.items()
        }
        return {"writer": self._writer.to_json(), "known": known, "alarms": self._alarms}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Be the one that said so."""
        self._writer.restore(saved["writer"])
        self._known = {
            key: _Known(rows, scored, np.array(sums), Watch.from_json(watch))
            for key, (rows, scored, sums, watch) in saved["known"].items()
        }
        self._alarms = [(key, Change(*change)) for key, change in saved["alarms"]]

    def write(self, rows: Sequence[Encoded], values: Any) -> Written:
        """As the writer does; alarms are of each key, not of the rows as they are mixed."""
        lines, losses, surprise = self._writer.write(rows, values)
        powers = np.array([*self.losses.values()])
        for row, loss, shock in zip(rows, losses, surprise.tolist(), strict=True):
            key = str(row.key)
            if key not in self._known:
                self._known[key] = _Known(0, 0, np.zeros(len(powers)), Watch())
            count, scored, sums, watch = self._known[key]
            known = not np.isnan(loss).any()
            sums = sums + loss**powers if known else sums
            self._known[key] = _Known(count + 1, scored + known, sums, watch)
            change = watch.add(shock)
            if change is not None:
                self._alarms.append((key, change))
        keyed = [(line[0], row.key, *line[1:]) for row, line in zip(rows, lines, strict=True)]
        return Written(keyed, losses, np.full(len(rows), np.nan))

    def lines(self) -> list[str]:
        """How many keys, the best and the worst of them, and the first alarms."""
        scores = self._scores()
        said = [f"{len(self._known):,} keys ({self._key}), a learner each"]
        if scores:
            metric, best, worst = self._metric(), scores[-1], scores[0]
            said[0] += f"; best {best[0]}, {metric} {best[1][0]:.4g}"
            said[0] += f"; worst {worst[0]}, {worst[1][0]:.4g}"
        for key, (row, since, strength) in self._alarms[:_SHOWN]:
            said.append(
                f"{key}, its row {row + 1:,}: something changed at about its row {since + 1:,}; "
                f"{strength:.1f} deviations more than expected"
            )
        more = len(self._alarms) - _SHOWN
        return [*said, *([f"and {more} alarms more"] if more > 0 else [])]

    def table(self) -> Table | None:
        """The worst keys; none where nothing was scored."""
        scores = self._scores()[:_SHOWN]
        if not scores:
            return None
        table = Table(title=f"Worst by {self._metric()}")
        table.add_column(self._key)
        table.add_column("rows", justify="right")
        for method, metric in self.losses:
            table.add_column(f"{metric}, {method}" if method else metric, justify="right")
        for key, means in scores:
            rows = f"{self._known[key].rows:,}"
            table.add_row(key, rows, *(f"{value:.4g}" for value in means))
        return table

    def _metric(self) -> str:
        return next(metric for _, metric in self.losses)

    def _scores(self) -> list[tuple[str, NDArray[Any]]]:
        """Of each key that has any, its mean losses; the worst first, by the first of them."""
        powers = 1 / np.array([*self.losses.values()])
        found = [
            (key, (one.sums / one.scored) ** powers)
            for key, one in self._known.items()
            if one.scored
        ]
        return sorted(found, key=lambda each: -each[1][0])
