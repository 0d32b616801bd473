"""`bayestream predict`: forecasts from a checkpoint of `bayestream run`, without learning."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import jax
import numpy as np
import typer

from bayestream.cli import learners
from bayestream.cli.interrupts import INTERRUPTS
from bayestream.cli.journal import journal_for, record
from bayestream.cli.outputs import Screen
from bayestream.cli.resume import newest, run_notes
from bayestream.cli.sources import Source
from bayestream.running import Records, checkpoint
from bayestream.running.chunks import padded
from bayestream.streams import files
from bayestream.streams.encoder import Encoded, Encoder
from bayestream.streams.files import Row
from bayestream.streams.tables import Unreadable, stacked
from bayestream.types import Array, Estimator, Example, State

_BLOCK = 100


def predict(
    folder: Annotated[
        Path, typer.Option("--checkpoint", help="Folder that `bayestream run` saved itself in.")
    ],
    data: Annotated[
        str, typer.Option(help="A file (.csv, .tsv, .jsonl, .parquet), a folder, or -.")
    ],
    ignore: Annotated[list[str] | None, typer.Option(help="A column to leave out.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for the forecasts.")] = Path("out/predict"),
) -> None:
    """Forecast rows with what a run has learnt; nothing is learnt from them.

    Writes forecasts.csv as `bayestream run` does, and skipped.csv. Each row is forecast as if it
    came next after the run: it is encoded with the columns' means, deviations and categories
    of the run's rows and its own. The target may be missing, or its column; where it is
    there, forecasts are scored.

    **Examples:**

    `bayestream run --data my.csv --target price --checkpoint saved`

    `bayestream predict --checkpoint saved --data new.csv`
    """
    file = newest(folder)
    notes = run_notes(file)
    if notes["encoder"] is None:
        raise ValueError(f"--checkpoint must be of a run on a table, got {file.path}.")
    encoder = Encoder.from_json(notes["encoder"])
    source = Source(
        _encoded(notes["encoder"], files.read(data), ignore or ()),
        encoder.inputs,
        encoder.outputs,
        encoder.task,
        None,
        encoder.classes,
        False,
    )
    chosen = learners.Settings(**notes["learner"])
    learner = learners.learner(source, notes["sizes"], chosen)
    state = checkpoint.filled(file, learner).state
    console = Screen()
    console.print(f"{chosen.method}, from {file.path}", markup=False, highlight=False)
    journal = journal_for(source, _BLOCK, out, learners.drifts(chosen))
    ahead = jax.jit(learner.predict)(state)
    with journal:
        rows = INTERRUPTS.until(source.rows)
        while items := list(islice(rows, _BLOCK)):
            journal.skip([item for item in items if isinstance(item, Unreadable)])
            good = [item for item in items if isinstance(item, Encoded)]
            if good:
                journal.write(good, _forecasts(learner, ahead, source, good))
    if journal.scored:
        console.print(journal.table(chosen.method, "Forecast, not learnt from"))
    for line in journal.skips():
        console.print(line, markup=False)
    console.print(f"wrote {journal.count:,} forecasts to {out / 'forecasts.csv'}")


def _encoded(
    encoder: Mapping[str, Any], rows: Iterable[Row], ignore: Iterable[str]
) -> Iterator[Encoded | Unreadable]:
    """Each row as if it came next: by an encoder of its own."""
    expected = {name for names in encoder["columns"].values() for name in names}
    known = {*expected, encoder["options"]["target"], *encoder["options"]["ignore"]}
    checked = False
    for place, values, problem in rows:
        if values is None:
            yield Unreadable(place, problem)
            continue
        values = {name: value for name, value in values.items() if name not in ignore}
        if not checked:
            _check_columns(set(values), expected, known)
            checked = True
        try:
            yield Encoder.from_json(encoder).encode(values, place)
        except ValueError as error:
            yield Unreadable(place, str(error))


def _check_columns(names: set[str], expected: set[str], known: set[str]) -> None:
    if expected - names:
        raise ValueError(
            f"--data must have the columns the run has learnt from; {min(expected - names)} is "
            "not there."
        )
    if names - known:
        raise ValueError(
            f"--data must have the columns the run has learnt from, and {min(names - known)} is "
            "not one of them; --ignore it?"
        )


def _forecasts(learner: Estimator, state: State, source: Source, rows: list[Encoded]) -> Records:
    xs = stacked(rows, source.task, source.inputs).examples.x
    values = _of_each(learner, state, padded(xs, _BLOCK))
    return Records(jax.tree.map(lambda each: np.asarray(each)[: len(rows)], values))


@partial(jax.jit, static_argnums=0)
def _of_each(learner: Estimator, state: State, xs: Array) -> Any:
    return jax.lax.map(lambda x: record(learner, state, Example(x, 0.0)), xs)
