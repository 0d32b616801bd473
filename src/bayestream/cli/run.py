"""`bayestream run`: learn from a stream of rows, forecasting each before it is learnt from."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import jax
import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from bayestream.cli import learners, sources
from bayestream.cli.interrupts import INTERRUPTS
from bayestream.cli.journal import Journal, journal_for
from bayestream.cli.outputs import Screen, whole
from bayestream.cli.reading import AS_IT_IS, Reading, reads_tables
from bayestream.cli.resume import Resumable, call_of
from bayestream.cli.sidecar import checked_level, describe
from bayestream.cli.writers import record
from bayestream.evaluation import plots
from bayestream.running import Fleet, fleet
from bayestream.running.refusals import check_most
from bayestream.running.run import learn
from bayestream.streams.encoder import Encoded
from bayestream.streams.tables import Unreadable, stacked
from bayestream.types import Estimator, State

_LINES = 20  # of rolling scores, about, on the screen


@reads_tables
def run(
    context: typer.Context,
    data: sources.Data,
    target: sources.Target = "",
    key: sources.Key = "",
    pooled: Annotated[
        bool, typer.Option(help="New keys begin where a learner of all rows is by then.")
    ] = False,
    task: sources.TaskName = "",
    method: learners.Method = None,
    rank: learners.Rank = None,
    hidden: learners.Hidden = "50",
    noise: Annotated[
        float | None, typer.Option(help="Variance of the standardised target; learnt if not given.")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="A TOML file from `bayestream tune`.")] = None,
    given: Annotated[
        list[str] | None, typer.Option("--set", help="An option of the method: drift=1e-5.")
    ] = None,
    on_bad: Annotated[str, typer.Option(help="Rows that cannot be read: skip or raise.")] = "skip",
    window: Annotated[int, typer.Option(min=1, help="Rows that rolling scores look back.")] = 200,
    block: Annotated[
        int, typer.Option(min=1, help="Rows learnt between two writes; 1 for a live source.")
    ] = 100,
    limit: sources.Limit = None,
    level: Annotated[float, typer.Option(help="Share of targets between low and high.")] = 0.9,
    seed: Annotated[int, typer.Option(help="Of the initial weights.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for forecasts and picture.")] = Path("out/run"),
    checkpoint: Annotated[
        Path | None, typer.Option(help="Folder to save the run in, and to go on from.")
    ] = None,
    every: Annotated[int, typer.Option(min=1, help="Rows from one checkpoint to the next.")] = 1000,
    reading: Reading = AS_IT_IS,
) -> None:
    """Learn from rows one by one, each forecast before it is learnt from.

    Separator, decimal sign, header and encoding are told from the first lines of a file, and what
    its columns hold from the first 300 rows; what was decided, and why, is printed first, and
    options say otherwise. Values are standardised, and categories numbered, with the rows so far
    alone. Words such as NA, null, ? and - are missing values everywhere.

    Prints rolling scores, how fast the world moves, and where it changed at once; writes a forecast
    with its uncertainty for every row (forecasts.csv), what its columns mean (forecasts.json), the
    rows that were skipped and why (skipped.csv), and a picture of the scores (scores.png). Unless a
    method or an option of one is given, it learns with several settings at once, and believes those
    that forecast best.

    **Examples:**

    `bayestream run --data my.csv --target price`

    `bayestream run --data my.csv --target price --categorical zip --date sold=dmy --ignore id`

    `bayestream run --data export.csv --target kind --task classification --classes 12`

    `bayestream run --data odd.txt --target c4 --separator tab --decimal , --no-header`

    `bayestream run --data my.csv --target price --method lofi --set drift=1e-5`

    `bayestream run --data river/Phishing --hidden 20`

    With a key, every sensor, user or machine has a learner of its own, which learns from its own
    rows alone; what columns hold, and how they are standardised, is the same for all.

    `bayestream run --data sensors.csv --target load --key sensor`

    With a checkpoint folder, a run that was ended in whatever way (kill -9, a power cut) goes on at
    its last checkpoint when the same command is given again, and ends as if nothing had happened;
    rows that were added to the data meanwhile are learnt too. Standard input must be what it was,
    from its beginning; the rows that have been learnt from are skipped.

    `bayestream run --data my.csv --target price --checkpoint saved --every 5000`

    Ctrl-C, or SIGTERM, ends the run with its summary and exit code 130; a second one ends it at
    once. So a live source is learnt from until then:

    `tail -f log.jsonl | bayestream run --data - --target kind --head 20 --block 1`
    """
    if on_bad not in ("skip", "raise"):
        raise ValueError(f"--on-bad must be skip or raise, got {on_bad!r}.")
    if pooled and not key:
        raise ValueError("--pooled must come with --key, which names the column of keys.")
    checked_level(level)
    saved = Resumable(checkpoint, every, call_of(context))
    source = sources.opened(
        data, target=target, task=task, reading=reading, limit=limit, plan=saved.plan, key=key
    )
    chosen = learners.settings(
        method,
        rank=rank,
        noise=noise,
        given=given or (),
        config=config,
        otherwise=learners.SELF_TUNING,
    )
    sizes = learners.layers(source, hidden)
    learner = learners.learner(source, sizes, chosen)
    console = Screen()
    console.lines(source.said())
    console.print(
        f"{chosen.method}, {learner.model.size:,} weights, {source.inputs} inputs, {source.task} "
        f"of {source.outputs} output{'s' if source.outputs > 1 else ''}"
    )
    journal = journal_for(
        source, window, out, learners.drifts(chosen), level=level, kept=checkpoint
    )
    about = {"learner": chosen._asdict(), "sizes": sizes}
    state = saved.begin(learner, about, learner.init(jax.random.key(seed)), journal)
    if key:
        state = fleet(learner, state, pooled=pooled)
    if saved.start:
        console.print(saved, soft_wrap=True, markup=False, highlight=False)
    rows = saved.rows(source)
    with journal:
        describe(out, source, journal.header, level)
        _learn_all(
            learner,
            state,
            source._replace(rows=rows),
            journal,
            saved,
            console,
            seed=seed,
            block=block,
            on_bad=on_bad,
        )
    if INTERRUPTS.requested:
        console.print(f"interrupted after {journal.count:,} rows")
    if journal.count:
        console.print(journal.unscored() or journal.table(chosen.method))
    if journal.by_key:
        console.lines(journal.by_key.lines())
        console.print(journal.by_key.table() or "")
    for line in filter(None, [*journal.changes(), journal.moves(), *journal.skips()]):
        console.print(line, markup=False)
    console.lines(source.notes())
    describe(out, source, journal.header, level)  # classes that came late have their names now
    written = [*journal.files(), "forecasts.json", *_picture(journal, chosen.method, out)]
    console.print("wrote", *(str(out / name) for name in written))
    check_most(journal.refused, journal.updates)


def _learn_all(
    learner: Estimator,
    state: State,
    source: sources.Source,
    journal: Journal,
    saved: Resumable,
    console: Screen,
    *,
    seed: int,
    block: int,
    on_bad: str,
) -> None:
    threading.Thread(target=plots.prepare, daemon=True).start()  # while XLA is at work
    cut_short = False
    every = max(block, (source.total or 1000 * _LINES) // _LINES // block * block)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console) as bar:
        line = bar.add_task("learning", total=source.total, completed=saved.start)
        for rows, bad in _blocks(source.rows, block):
            cut_short = INTERRUPTS.requested
            if cut_short:  # the encoder may be in the midst of a row: save what was before
                saved.save(state, journal)
            if bad and on_bad == "raise":
                raise ValueError(f"{bad[0].place}: {bad[0].reason}.")
            journal.skip(bad)
            if rows:
                stream = stacked(rows, source.task, source.inputs)
                drawn = jax.random.key(seed)
                if isinstance(state, Fleet):
                    keys = [row.key for row in rows]
                    records = state.learn(keys, stream, record=record, key=drawn, size=block)
                else:
                    state, records = learn(
                        learner,
                        state,
                        stream,
                        record=record,
                        key=drawn,
                        progress=False,
                        size=block,
                        first=journal.count,
                    )
                journal.write(rows, records)
            if not cut_short:
                saved.reached(state, journal, source)
            bar.update(line, advance=len(rows) + len(bad), description=journal.line())
            if len(rows) == block and journal.count % every == 0:
                bar.console.print(f"{journal.count:>9,} rows  {journal.line()}")
    if not cut_short:
        saved.save(state, journal)


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
    if rows or bad:
        yield rows, bad


def _picture(journal: Journal, method: str, out: Path) -> list[str]:
    """The name of the file, if there is anything to draw."""
    if not journal.count or journal.unscored():
        return []
    try:
        with whole(out / "scores.png") as path:
            figure = plots.curves(journal.results(method), shares=journal.speeds())
            figure.savefig(path, dpi=130)
        return ["scores.png"]
    except ImportError as error:
        typer.echo(f"no picture: {error}", err=True)
        return []
