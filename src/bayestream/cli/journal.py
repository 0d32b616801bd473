"""What `bayestream run` keeps of its forecasts: rows to write, and scores in the target's units."""

from __future__ import annotations

import csv
import math
from array import array
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol, TextIO

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from bayestream.cli.sources import Source
from bayestream.evaluation.results import Results
from bayestream.evaluation.summaries import window
from bayestream.forecasts import StudentTForecast, predictive
from bayestream.running.run import Records
from bayestream.streams.encoder import Encoded
from bayestream.streams.tables import Unreadable
from bayestream.types import Estimator, Example, State

_SHOWN = 5  # skipped rows on the screen
_NOT_FINITE = "not finite"  # where a forecast should stand


# A method (the learner's own, if empty) and a metric, and the power it is averaged in.
Losses = Mapping[tuple[str, str], float]


class Writer(Protocol):
    """How forecasts of one kind are written and scored."""

    header: Sequence[str]
    losses: Losses

    def write(self, rows: Sequence[Encoded], values: Any) -> tuple[list[Any], NDArray[Any]]:
        """Lines for the file, and each row's losses in the order of `losses`."""
        ...


class Numbers:
    """Forecasts of a number, with its deviation and its 90% interval."""

    def __init__(self) -> None:
        self.header: Sequence[str] = ("place", "target", "forecast", "deviation", "low", "high")
        self.losses: Losses = {("", "rmse"): 2, ("running mean", "rmse"): 2, ("", "nlpd"): 1}

    def write(self, rows: Sequence[Encoded], values: Any) -> tuple[list[Any], NDArray[Any]]:
        """In the units of the target; blank until those are known."""
        centre = np.array([row.centre for row in rows])
        scale = np.array([row.scale for row in rows])
        standard = np.stack([values[name] for name in ("mean", "low", "high")])
        mean, low, high = centre + scale * standard
        deviation = scale * values["deviation"]
        target = np.array([np.nan if row.target is None else row.target for row in rows], float)
        error = (target - mean) / (scale * values["scale"])
        nlpd = np.log(scale * values["scale"]) - log_density(error, values["dof"])
        numbers = np.stack([mean, deviation, low, high], axis=1)
        known = np.atleast_1d(np.isfinite(standard).all(axis=0))
        lines = [
            (
                row.place,
                "" if row.target is None else row.target,
                *(map(_short, line) if finite else [_NOT_FINITE] * len(line)),
            )
            for row, line, finite in zip(rows, numbers, known, strict=True)
        ]
        losses = np.stack([np.abs(target - mean), np.abs(target - centre), nlpd], axis=1)
        return lines, _scored(losses, ~np.isnan(target) & ~np.isnan(scale))


class Labels:
    """Forecasts of a class, with the probability of each."""

    def __init__(self, source: Source) -> None:
        wrong = "misclassification"
        self.losses: Losses = {("", wrong): 1, ("most frequent class", wrong): 1, ("", "nlpd"): 1}
        self._source = source
        self._counts = np.zeros(source.outputs)
        slots = [f"p{number}" for number in range(source.outputs)]
        self.header: Sequence[str] = ("place", "target", "forecast", "probability", *slots)

    def write(self, rows: Sequence[Encoded], values: Any) -> tuple[list[Any], NDArray[Any]]:
        """Classes by their names; p0, p1, … are in the order in which classes first appeared."""
        probabilities = values["probabilities"]
        finite = np.isfinite(probabilities).all(axis=1)
        names = [*self._source.names]  # a row may name those before it alone
        best = probabilities.argmax(axis=1)
        lines = [
            (
                row.place,
                "" if row.target is None else row.target,
                _class(names, top, row.classes) if known else _NOT_FINITE,
                *map(_short, (line[top], *line)),
            )
            for row, top, line, known in zip(rows, best, probabilities, finite, strict=True)
        ]
        y = np.array([row.y for row in rows])
        known = ~np.isnan(y)
        label = np.where(known, y, 0).astype(int)
        frequent = np.empty(len(rows), int)
        for index in range(len(rows)):
            frequent[index] = self._counts.argmax()
            self._counts[label[index]] += known[index]
        chance = probabilities[np.arange(len(rows)), label]
        chance = np.where(chance < 1e-38, 1e-38, chance)  # NaN stays
        wrong = (best != label) | ~finite
        losses = np.stack([wrong, frequent != label, -np.log(chance)], axis=1)
        return lines, _scored(losses, known)


def record(estimator: Estimator, state: State, example: Example) -> dict[str, Any]:
    """What a journal needs of a forecast: of classes the probabilities, of numbers the spread."""
    found = predictive.default(estimator, state, example.x)
    if estimator.likelihood(state).name == "categorical":
        return {"probabilities": found.mean}
    numbers: Any = found
    deviation = jnp.sqrt(numbers.covariance[0, 0])
    scale, dof = deviation, jnp.full_like(deviation, jnp.inf)
    likelihood = estimator.likelihood(state)
    if isinstance(found, StudentTForecast):
        scale, dof = found.scale[0], found.dof
    elif likelihood.scale_and_dof is not None:
        scales, dof = likelihood.scale_and_dof(found.mean)
        scale = scales[0]
    low, high = numbers.interval(0.9)
    return {
        "mean": found.mean[0],
        "deviation": deviation,
        "low": low[0],
        "high": high[0],
        "scale": scale,
        "dof": jnp.asarray(dof, scale.dtype),
    }


def log_density(error: NDArray[Any], dof: NDArray[Any]) -> NDArray[Any]:
    """Of a standard Student's t, or where that has no end of degrees of freedom a Gaussian."""
    nu = float(dof.flat[0]) if dof.size else np.inf
    if np.isinf(nu):
        return -0.5 * error**2 - 0.5 * np.log(2 * np.pi)
    peak = math.lgamma((nu + 1) / 2) - math.lgamma(nu / 2) - 0.5 * math.log(nu * math.pi)
    return peak - 0.5 * (nu + 1) * np.log1p(error**2 / nu)


def _class(names: Sequence[str], top: int, seen: int) -> str:
    return names[top] if top < seen else "a class not seen yet"


def _scored(losses: NDArray[Any], known: NDArray[Any]) -> NDArray[Any]:
    """NaN where nothing can be said yet; infinite where the forecast is not a number."""
    finite = np.where(np.isnan(losses), np.inf, losses)
    return np.where(known[:, None], finite, np.nan)


class Journal:
    """Everything forecast, written down as it comes: forecasts.csv, and skipped.csv if need be."""

    def __init__(self, writer: Writer, size: int, out: Path) -> None:
        self._writer, self._size, self._out = writer, size, out
        self._all = array("d")  # losses, row after row
        self._recent = np.zeros((0, len(writer.losses)))
        self._skipped: list[Unreadable] = []  # the first few
        self._skips = 0
        self._files = ExitStack()
        self.refused = self.updates = 0  # of the labels there were to learn from

    def __enter__(self) -> Journal:
        self._out.mkdir(parents=True, exist_ok=True)
        for name in ("skipped.csv", "scores.png"):
            (self._out / name).unlink(missing_ok=True)  # an earlier run's
        self._forecasts = self._open("forecasts.csv", self._writer.header)
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    def write(self, rows: Sequence[Encoded], records: Records) -> None:
        """Score forecasts, and write them down; say what could not be learnt from."""
        lines, losses = self._writer.write(rows, jax.tree.map(np.asarray, records.values))
        self.refused += len(records.refused)
        self.updates += records.updates
        self.skip([Unreadable(rows[each.position].place, each.reason) for each in records.refused])
        self._all.extend(losses.ravel())
        self._recent = np.concatenate([self._recent, losses])[-self._size :]
        csv.writer(self._forecasts).writerows(lines)

    def skip(self, bad: Sequence[Unreadable]) -> None:
        """Write down what could not be read, or learnt from."""
        if bad and not self._skips:
            self._refused = self._open("skipped.csv", Unreadable._fields)
        if bad:
            csv.writer(self._refused).writerows(bad)
        self._skipped = (self._skipped + list(bad))[:_SHOWN]
        self._skips += len(bad)

    def _open(self, name: str, header: Sequence[str]) -> TextIO:
        path = self._out / name
        # Line by line: however the process ends, there is no half line.
        file = self._files.enter_context(path.open("w", buffering=1, newline="", encoding="utf-8"))
        csv.writer(file).writerow(header)
        return file

    def skips(self) -> list[str]:
        """What was skipped, in lines; none if nothing was."""
        if not self._skips:
            return []
        lines = [f"skipped {self._skips} row{'s' if self._skips > 1 else ''}:"]
        lines += [f"  {row.place}: {row.reason}" for row in self._skipped]
        more = self._skips - len(self._skipped)
        return [*lines, *([f"  and {more} more, in skipped.csv"] if more else [])]

    @property
    def count(self) -> int:
        """How many rows have been scored."""
        return len(self._all) // len(self._writer.losses)

    def line(self) -> str:
        """The learner's rolling scores, in words."""
        found = self._means(self._recent)
        parts = [f"{metric} {v:.4g}" for (method, metric), v in found.items() if not method]
        return f"{', '.join(parts)} (last {self._size})"

    def table(self, method: str) -> Table:
        """Scores over all rows, and over the last ones."""
        table = Table(title="Each row forecast before it was learnt from")
        for column in ("", "score", "all rows", f"last {self._size}"):
            table.add_column(column, justify="left" if column in ("", "score") else "right")
        recent = self._means(self._recent)
        for (other, metric), value in self._means(self._joined()).items():
            last = recent[other, metric]
            table.add_row(other or method, metric, f"{value:.4g}", f"{last:.4g}")
        return table

    def results(self, method: str) -> Results:
        """Rolling scores as a tidy table."""
        rolling, losses = window(self._size), self._joined()
        parts = [
            Results.of(
                method=other or method,
                metric=metric,
                summary=rolling.name,
                trial=0,
                step=np.arange(1, len(losses) + 1),
                task=0,
                value=rolling.of(losses[:, index] ** power) ** (1 / power),
            )
            for index, ((other, metric), power) in enumerate(self._writer.losses.items())
        ]
        return Results.joined(parts)

    def _joined(self) -> NDArray[Any]:
        return np.array(self._all).reshape(-1, len(self._writer.losses))

    def _means(self, losses: NDArray[Any]) -> dict[tuple[str, str], float]:
        found: dict[tuple[str, str], float] = {}
        for column, (name, power) in zip(losses.T, self._writer.losses.items(), strict=True):
            known = column[~np.isnan(column)]
            found[name] = float(np.mean(known**power) ** (1 / power)) if known.size else np.nan
        return found


def journal_for(source: Source, size: int, out: Path) -> Journal:
    """A journal for the source's kind of target."""
    return Journal(Labels(source) if source.task == "classification" else Numbers(), size, out)


def _short(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.6g}"
