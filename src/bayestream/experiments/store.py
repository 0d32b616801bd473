"""Finished trials, one small CSV file a series: a run that was killed goes on where it was."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np

from bayestream.evaluation import Results
from bayestream.experiments.nouns import Series

_COLUMNS = ("trial", "metric", "summary", "step", "task", "value")


def path(folder: Path, series: Series) -> Path:
    """Where the trials of a series are; its name depends on the settings."""
    return folder / "trials" / f"{series.name}.csv"


def load(folder: Path, series: Series) -> Results:
    """The trials that are finished, with the line as their method, and a column for the world."""
    file = path(folder, series)
    rows: list[list[str]] = []
    if file.exists():
        with file.open(encoding="utf-8", newline="") as lines:
            next(lines)  # the settings
            next(lines)  # the names of the columns
            rows = list(csv.reader(lines))
    kinds = (int, str, str, int, int, float)
    columns = {
        name: np.array([kind(row[place]) for row in rows], object if kind is str else kind)
        for place, (name, kind) in enumerate(zip(_COLUMNS, kinds, strict=True))
    }
    same = {"world": series.world, "method": series.line}
    return Results({**{k: np.full(len(rows), v, object) for k, v in same.items()}, **columns})


def finished(folder: Path, series: Series) -> set[int]:
    """The numbers of the trials that need not be run again."""
    return set(load(folder, series)["trial"].tolist())


def add(folder: Path, series: Series, trial: int, found: Results) -> None:
    """Keep one more trial; the file is the old one or the new one, whenever the power fails."""
    file = path(folder, series)
    file.parent.mkdir(parents=True, exist_ok=True)
    known = load(folder, series)
    names = ("metric", "summary", "step", "task", "value")
    rows = list(zip(*(known[name].tolist() for name in _COLUMNS), strict=True))
    rows = [row for row in rows if row[0] != trial]
    rows += [(trial, *row) for row in zip(*(found[name].tolist() for name in names), strict=True)]
    rows.sort(key=lambda row: row[0])
    partial = file.with_suffix(".partial")
    with partial.open("w", encoding="utf-8", newline="") as lines:
        lines.write(f"# {json.dumps(series.settings, sort_keys=True)}\n")
        write = csv.writer(lines, lineterminator="\n").writerow
        write(_COLUMNS)
        for *row, value in rows:
            write((*row, f"{value:.7g}"))
    partial.replace(file)
