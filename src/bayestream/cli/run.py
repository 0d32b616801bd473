"""`bayestream run`: learn from a stream of rows, forecasting each before it is learnt from."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import jax
import numpy as np
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from bayestream import predictive
from bayestream.cli import learners, sources
from bayestream.cli.journal import Journal, journal_for
from bayestream.run import run as learn
from bayestream.streams.encoder import Encoded, Task
from bayestream.streams.tables import Unreadable
from bayestream.types import Estimator, Example, State

_LINES = 20  # of rolling scores, about, on the screen


def run(
    data: sources.Data,
    target: sources.Target = "",
    task: sources.TaskName = "regression",
    method: learners.Method = "lofi",
    rank: learners.Rank = None,
    hidden: learners.Hidden = "50",
    noise: Annotated[
        float | None, typer.Option(help="Variance of the standardised target; learnt if not given.")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="A TOML file from `bayestream tune`.")] = None,
    given: Annotated[
        list[str] | None, typer.Option("--set", help="An option of the method: drift=1e-5.")
    ] = None,
    categorical: sources.Categorical = None,
    ignore: sources.Ignore = None,
    slots: sources.Slots = 10,
    classes: sources.Classes = 10,
    on_bad: Annotated[str, typer.Option(help="Rows that cannot be read: skip or raise.")] = "skip",
    window: Annotated[int, typer.Option(help="Rows that rolling scores look back.")] = 200,
    block: Annotated[
        int, typer.Option(help="Rows learnt between two writes; 1 for a live source.")
    ] = 100,
    limit: Annotated[int | None, typer.Option(help="Stop after so many rows.")] = None,
    seed: Annotated[int, typer.Option(help="Of the initial weights.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for forecasts and picture.")] = Path("out/run"),
) -> None:
    """Learn from rows one by one, each forecast before it is learnt from.

    Prints rolling scores; writes a forecast with its uncertainty for every row (forecasts.csv), the
    rows that were skipped and why (skipped.csv), and a picture of the scores (scores.png). Columns
    are standardised, and categories encoded, with the rows so far alone.

    **Examples:**

    `bayestream run --data my.csv --target price --method lofi`

    `bayestream run --data river/Phishing --hidden 20`

    `tail -f log.jsonl | bayestream run --data - --target kind --task classification --block 1`
    """
    if on_bad not in ("skip", "raise"):
        raise ValueError(f"--on-bad must be skip or raise, got {on_bad!r}.")
    source = sources.opened(
        data,
        target=target,
        task=task,
        categorical=categorical or (),
        ignore=ignore or (),
        slots=slots,
        classes=classes,
    )
    source = sources.limited(source, limit)
    chosen = learners.settings(method, rank=rank, noise=noise, given=given or (), config=config)
    model = learners.network(source, hidden)
    learner = learners.learner(source, model, chosen)
    out.mkdir(parents=True, exist_ok=True)
    console = Console()
    console.print(
        f"{chosen.method}, {model.size:,} weights, {source.inputs} inputs, {source.task} "
        f"of {source.outputs} output{'s' if source.outputs > 1 else ''}"
    )
    journal = journal_for(source, window)
    with (out / "forecasts.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(journal.header)
        state = learner.init(jax.random.key(seed))
        every = max(block, (source.total or 1000 * _LINES) // _LINES // block * block)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        with Progress(*columns, TimeRemainingColumn(), console=console) as bar:
            line = bar.add_task("learning", total=source.total)
            done = 0
            for rows, bad in _blocks(source.rows, block):
                if bad and on_bad == "raise":
                    raise ValueError(f"{bad[0].place}: {bad[0].reason}.")
                journal.skipped += bad
                if rows:
                    state, values = _learn(learner, state, rows, source.task, (seed, done))
                    writer.writerows(journal.write(rows, values))
                    file.flush()
                done += len(rows) + len(bad)
                bar.update(line, completed=done, description=journal.line())
                if len(rows) == block and journal.count % every == 0:
                    bar.console.print(f"{journal.count:>9,} rows  {journal.line()}")
    console.print(journal.table(chosen.method))
    _report_skipped(journal.skipped, out, console)
    console.print(f"wrote {out / 'forecasts.csv'}")
    _picture(journal, chosen.method, out, console)


def _learn(
    learner: Estimator, state: State, rows: Sequence[Encoded], task: Task, place: tuple[int, int]
) -> tuple[State, Any]:
    key = jax.random.fold_in(jax.random.key(place[0]), place[1])
    stream = sources.stacked(rows, task)
    state, kept = learn(learner, state, stream, record=_forecast, key=key, progress=False)
    return state, jax.tree.map(np.asarray, kept.values)


def _forecast(estimator: Estimator, state: State, example: Example) -> tuple[Any, Any]:
    """Mean and covariance of y, before it is known."""
    found = predictive.default(estimator, state, example.x)
    return found.mean, found.covariance


def _blocks(
    items: Iterator[Encoded | Unreadable], size: int
) -> Iterator[tuple[list[Encoded], list[Unreadable]]]:
    """So many good rows at a time, whatever lies between them: one size is compiled once."""
    rows: list[Encoded] = []
    bad: list[Unreadable] = []
    for item in items:
        if isinstance(item, Encoded):
            rows.append(item)
        else:
            bad.append(item)
        if len(rows) == size:
            yield rows, bad
            rows, bad = [], []
    yield rows, bad


def _report_skipped(skipped: Sequence[Unreadable], out: Path, console: Console) -> None:
    if not skipped:
        return
    console.print(f"skipped {len(skipped)} row{'s' if len(skipped) > 1 else ''}:")
    for row in skipped[:5]:
        console.print(f"  {row.place}: {row.reason}", markup=False)
    if len(skipped) > 5:
        console.print(f"  and {len(skipped) - 5} more")
    with (out / "skipped.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("place", "reason"), *skipped])
    console.print(f"wrote {out / 'skipped.csv'}")


def _picture(journal: Journal, method: str, out: Path, console: Console) -> None:
    from bayestream import plots

    try:
        figure = plots.curves(journal.results(method))
    except ImportError as error:
        console.print(f"no picture: {error}", markup=False)
        return
    figure.savefig(out / "scores.png", dpi=130)
    console.print(f"wrote {out / 'scores.png'}")
