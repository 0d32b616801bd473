"""How soon a sudden change is noticed, and how often one that never was.

`python benchmarks/changes.py` runs the untouched default over the streams of benchmarks/streams.py
and prints the alarms of `bs.evaluation.changes.Watch`, beside those of river's ADWIN and
Page–Hinkley on the errors of the same forecasts. About 5 minutes.
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import jax
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table
from river import drift
from streams import CASES, forecasts

import bayestream as bs
from bayestream.cli.mixtures import distribution
from bayestream.evaluation.changes import Watch, surprise_of_classes, surprise_of_numbers


def told(name: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The surprise and the error of every row's forecast."""
    values, y, *_ = forecasts(bs.self_tuning, name, seed)
    if CASES[name].task == "classification":
        p = values["probabilities"]
        return surprise_of_classes(p, y), (p.argmax(axis=1) != y).astype(float)
    surprise = surprise_of_numbers(distribution(y, values["parts"]))
    return surprise, np.nan_to_num(np.abs(values["mean"] - y))


def alarms(surprise: np.ndarray, errors: np.ndarray) -> dict[str, list[int]]:
    """The rows at which each detector cries."""
    watch = Watch()
    found = {"surprise": [change.row for change in map(watch.add, surprise) if change]}
    others: dict[str, Any] = {"ADWIN": drift.ADWIN(), "Page–Hinkley": drift.PageHinkley()}
    for name, detector in others.items():
        found[name] = []
        for row, error in enumerate(errors):
            detector.update(float(error))
            if detector.drift_detected:
                found[name].append(row)
    return found


def said(rows: list[int], change: int | None) -> str:
    """The delay after a change, and the alarms that are not of it."""
    if change is None:
        return f"{len(rows)} alarms" if len(rows) != 1 else "1 alarm"
    after = [row - change for row in rows if row >= change]
    early = sum(row < change for row in rows)
    return (f"after {after[0]}" if after else "not seen") + (f", {early} before" if early else "")


def main() -> None:
    """Run all, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    seed = parser.parse_args().seed
    warnings.simplefilter("ignore")
    console = Console(width=110)
    shown = Table(title="Rows between a sudden change and its alarm; alarms without one")
    for column in ("stream", "rows", "changes at", "surprise", "ADWIN", "Page–Hinkley"):
        shown.add_column(column)
    for name, case in track(list(CASES.items()), "learning", console=console):
        surprise, errors = told(name, seed)
        found = alarms(surprise, errors)
        cells = [said(rows, case.change) for rows in found.values()]
        shown.add_row(name, f"{len(errors):,}", str(case.change or "–"), *cells)
        jax.clear_caches()
    console.print(shown)


if __name__ == "__main__":
    main()
