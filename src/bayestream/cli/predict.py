"""`bayestream predict`: forecasts from a checkpoint of `bayestream run`, without learning."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
import typer

from bayestream.cli import learners, reading
from bayestream.cli.growing import Growing
from bayestream.cli.interrupts import INTERRUPTS
from bayestream.cli.journal import journal_for
from bayestream.cli.outputs import Json, Screen
from bayestream.cli.resume import newest, run_notes
from bayestream.cli.sidecar import checked_level, describe
from bayestream.cli.sources import Source, of_encoder
from bayestream.cli.writers import record
from bayestream.running import FleetState, Records, checkpoint
from bayestream.running.chunks import padded
from bayestream.streams import files
from bayestream.streams.detection import Like
from bayestream.streams.dialects import Dialect, Format
from bayestream.streams.encoder import Encoded, Encoder
from bayestream.streams.files import HEAD, How, Row
from bayestream.streams.plans import Plan
from bayestream.streams.tables import Unreadable, encoded_row, stacked
from bayestream.streams.tally import Tally
from bayestream.types import Array, Estimator, Example, State

_BLOCK = 100


def predict(
    folder: Annotated[
        Path, typer.Option("--checkpoint", help="Folder that `bayestream run` saved itself in.")
    ],
    data: Annotated[
        str, typer.Option(help="A file (.csv, .tsv, .jsonl, .parquet), a folder, or -.")
    ],
    level: Annotated[
        float | None, typer.Option(help="Share of targets between low and high; else the run's.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the forecasts.")] = Path("out/predict"),
    ignore: reading.Ignore = None,
    separator: reading.Separator = None,
    quote: reading.Quote = None,
    decimal: reading.Decimal = None,
    thousands: reading.Thousands = None,
    header: reading.Header = None,
    encoding: reading.Encoding = None,
    as_json: Json = False,
) -> None:
    """Forecast rows with what a run has learnt; nothing is learnt from them.

    Writes forecasts.csv and forecasts.json as `bayestream run` does, and skipped.csv. Each row is
    forecast as if it came next after the run: it is encoded with the columns' means, deviations and
    categories of the run's rows and its own. The target may be missing, or its column; where it is
    there, forecasts are scored. A file with the columns of the run's is read as those were written,
    any other as its first lines say; how that is, is printed, and options say otherwise.
    After a run with --key, each row is forecast by the learner of its key; of a key that has not
    come yet, by what its learner would begin with.

    **Examples:**

    `bayestream run --data my.csv --target price --checkpoint saved`

    `bayestream predict --checkpoint saved --data new.csv`

    `bayestream predict --checkpoint saved --data export.txt --separator tab --decimal ,`
    """
    file = newest(folder)
    notes = run_notes(file)
    if notes["plan"] is None:
        raise ValueError(f"--checkpoint must be of a run on a table, got {file.path}.")
    level = checked_level(notes["call"]["level"] if level is None else level)
    given = Format(separator, quote, decimal, thousands, header, encoding)
    source = _opened(notes, data, given, ignore or ())
    chosen = learners.Settings(**notes["learner"])
    make = partial(learners.learner, source, chosen=chosen, began=notes["began"])
    belief = Growing(make, notes["sizes"], seed=notes["call"]["seed"])
    belief.state = checkpoint.filled(file, belief.learner).state
    of_fleet = isinstance(belief.state, FleetState)
    forecasts = _OfFleet(belief.learner, belief.state) if of_fleet else _Forecasts(belief)
    console = Screen(as_json)
    console.lines(
        [*(source.plan.files if source.plan else ()), f"{chosen.method}, from {file.path}"]
    )
    journal = journal_for(source, _BLOCK, out, learners.drifts(source, chosen), level=level)
    with journal:
        describe(out, source, journal.header, level)
        rows = INTERRUPTS.until(source.rows)
        while items := list(islice(rows, _BLOCK)):
            journal.skip([item for item in items if isinstance(item, Unreadable)])
            good = [item for item in items if isinstance(item, Encoded)]
            if good:
                journal.write(good, forecasts.of(good, source))
    if journal.scored:
        console.print(journal.table(chosen.method, "Forecast, not learnt from"))
    for line in journal.skips():
        console.print(line, markup=False)
    console.lines(source.notes())
    console.print(f"wrote {journal.count:,} forecasts to {out / 'forecasts.csv'}")
    summary = {**learners.summary(source, chosen.method, belief.learner), "checkpoint": file.path}
    files = [out / name for name in (*journal.files(), "forecasts.json")]
    console.report({**summary, "scores": journal.scores(chosen.method)}, journal.counts(), files)


def _opened(notes: Mapping[str, Any], data: str, given: Format, ignore: Sequence[str]) -> Source:
    """New rows, read as the run has read its own unless they are written otherwise."""
    encoder = Encoder.from_json(notes["encoder"])
    encoder.tally = Tally()  # of these rows alone
    plan = Plan.from_json(notes["plan"])
    columns = [name for names in encoder.columns for name in names]
    like = Like([*plan.dialects.values()], columns, encoder.target)
    dialects: dict[str, Dialect] = {}
    with INTERRUPTS.waiting(), reading.named_as_options():
        rows = files.read(data, How(given.checked(), HEAD, dialects, like))
        first = [*islice(rows, 1)]  # by now it is known how they are written
    key = notes["call"].get("key") or ""
    needed = [*columns, *([key] if key else [])]
    known = {*columns, encoder.target, *notes["encoder"]["options"]["ignore"]}
    given_rows = _checked(chain(first, rows), needed, known, ignore)
    items = _encoded(notes["encoder"], encoder.tally, given_rows, key or None)
    named = plan.target._replace(classes=tuple(encoder.classes))
    plan = plan._replace(dialects=dialects, target=named)
    return of_encoder(items, encoder, plan)._replace(key=key)


def _checked(
    rows: Iterable[Row], needed: Sequence[str], known: Collection[str], ignore: Sequence[str]
) -> Iterator[Row]:
    """Rows without what is ignored; the first must have the columns that the run has had."""
    checked = False
    for row in rows:
        if row.values is None:
            yield row
            continue
        values = {name: value for name, value in row.values.items() if name not in ignore}
        if not checked:
            # A JSON object may be without what is missing.
            _check_columns(set(values), set(needed if row.header else ()), set(known))
            checked = True
        yield row._replace(values=values)


def _encoded(
    saved: Mapping[str, Any], tally: Tally, rows: Iterable[Row], key: str | None
) -> Iterator[Encoded | Unreadable]:
    """Each row as if it came next: by an encoder of its own, with one tally for all."""
    for row in rows:
        encoder = Encoder.from_json(saved)
        encoder.tally = tally
        yield encoded_row(encoder, row, key)


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


class _Forecasts:
    """The belief one step ahead, over a network as large as each row needs it."""

    def __init__(self, belief: Growing) -> None:
        self._belief = belief
        self._ahead = {belief.sizes[0]: self._one_step()}

    def of(self, rows: Sequence[Encoded], source: Source) -> Records:
        """Each row's forecast depends on no other row."""
        sizes = np.array([row.x.size for row in rows])
        parts = [
            self._of_one_size([row for row in rows if row.x.size == inputs], source)
            for inputs in np.unique(sizes)
        ]
        order = np.argsort(np.argsort(sizes, kind="stable"))
        return Records(jax.tree.map(lambda *each: np.concatenate(each)[order], *parts))

    def _of_one_size(self, rows: Sequence[Encoded], source: Source) -> Any:
        inputs = rows[0].x.size
        if inputs not in self._ahead:
            # A row can need twice the inputs for categories, and no more: it has few new ones.
            self._belief.grow(inputs=inputs, outputs=self._belief.sizes[-1])
            self._ahead[inputs] = self._one_step()
        xs = padded(stacked(rows, source.task, inputs).examples.x, _BLOCK)
        values = _of_each(*self._ahead[inputs], xs)
        return jax.tree.map(lambda each: np.asarray(each)[: len(rows)], values)

    def _one_step(self) -> tuple[Estimator, State]:
        learner = self._belief.learner
        return learner, jax.jit(learner.predict)(self._belief.state)


class _OfFleet:
    """The beliefs of a fleet, whose networks do not grow: each row is forecast by its own."""

    def __init__(self, learner: Estimator, state: FleetState) -> None:
        self._learner = learner
        self._numbers = {key: number for number, key in enumerate(state.keys)}
        begin = state.start if state.pool is None else state.pool
        # The last one is of all keys that have not come yet.
        self._beliefs = jax.tree.map(
            lambda each, one: jnp.concatenate([each, jnp.asarray(one)[None]]), state.learners, begin
        )

    def of(self, rows: Sequence[Encoded], source: Source) -> Records:
        """Each row's forecast depends on no other row."""
        numbers = [self._numbers.get(str(row.key), len(self._numbers)) for row in rows]
        xs = stacked(rows, source.task, source.inputs).examples.x
        values = _of_own(self._learner, self._beliefs, *padded((np.array(numbers), xs), _BLOCK))
        return Records(jax.tree.map(lambda each: np.asarray(each)[: len(rows)], values))


@partial(jax.jit, static_argnums=0)
def _of_own(learner: Estimator, beliefs: State, numbers: Array, xs: Array) -> Any:
    def one(given: tuple[Array, Array]) -> Any:
        number, x = given
        state = jax.tree.map(lambda each: each[number], beliefs)
        return record(learner, learner.predict(state), Example(x, 0.0))

    return jax.lax.map(one, (numbers, xs))


@partial(jax.jit, static_argnums=0)
def _of_each(learner: Estimator, state: State, xs: Array) -> Any:
    return jax.lax.map(lambda x: record(learner, state, Example(x, 0.0)), xs)
