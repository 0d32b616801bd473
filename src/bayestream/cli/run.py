"""`bayestream run`: learn from a stream of rows, forecasting each before it is learnt from."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import jax
import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from bayestream.cli import learners, sources
from bayestream.cli.growing import Growing
from bayestream.cli.interrupts import INTERRUPTS
from bayestream.cli.journal import Journal, journal_for
from bayestream.cli.outputs import Json, Screen, written
from bayestream.cli.reading import AS_IT_IS, Reading, reads_tables
from bayestream.cli.resume import Resumable, call_of
from bayestream.cli.sidecar import checked_level, describe
from bayestream.cli.writers import record
from bayestream.evaluation import plots
from bayestream.running import Fleet, RayFleet, fleet, ray_fleet
from bayestream.running.fleet import FleetRecords
from bayestream.running.refusals import check_most
from bayestream.running.run import Records, learn
from bayestream.streams.encoder import Encoded, Growth
from bayestream.streams.tables import Unreadable, stacked

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
    ray: sources.Ray = None,
    task: sources.TaskName = "",
    method: learners.Method = None,
    rank: learners.Rank = None,
    hidden: learners.Hidden = "50",
    noise: learners.Noise = None,
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
    as_json: Json = False,
    reading: Reading = AS_IT_IS,
) -> None:
    """Learn from rows one by one, each forecast before it is learnt from.

    Separator, decimal sign, header and encoding are told from the first lines of a file, and what
    its columns hold from the first 300 rows; what was decided, and why, is printed first, and
    options say otherwise. Values are standardised, and categories numbered, with the rows so far
    alone. Words such as NA, null, ? and - are missing values everywhere. For categories and classes
    that come late the network grows, and says so.

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

    `bayestream run --data sensors.csv --target load --key sensor --ray auto --block 10000`

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
    if ray is not None and (pooled or not key):
        raise ValueError("--ray must come with --key, and without --pooled: keys are spread.")
    checked_level(level)
    chosen = learners.settings(
        method,
        rank=rank,
        noise=noise,
        given=given or (),
        config=config,
        otherwise=learners.SELF_TUNING,
    )
    grows = learners.grows(chosen.method) and not key
    saved = Resumable(checkpoint, every, call_of(context))
    source = sources.opened(
        data,
        target=target,
        task=task,
        reading=reading,
        limit=limit,
        plan=saved.plan,
        grow=grows,
        key=key,
    )
    sizes = learners.layers(source, hidden)
    began = sizes if source.grows else None
    make = partial(learners.learner, source, chosen=chosen, began=began)
    belief = Growing(make, saved.sizes or sizes, seed=seed)
    console = Screen(as_json)
    console.lines(source.said())
    console.lines([learners.sentence(source, chosen.method, belief.learner)])
    if not grows and source.plan is not None:
        console.print(
            f"a network of {'a fleet' if key else chosen.method} cannot grow: categories that find "
            "no room share an input, and rows of classes that find none are left out",
            soft_wrap=True,
        )
    journal = journal_for(
        source, window, out, learners.drifts(source, chosen), level=level, kept=checkpoint
    )
    saved.begin(belief, {"learner": chosen._asdict(), "began": began}, journal)
    opened = nullcontext()
    if ray is not None:
        belief.state = opened = ray_fleet(belief.learner, belief.state, address=ray)
    elif key:
        belief.state = fleet(belief.learner, belief.state, pooled=pooled)
    if saved.start:
        console.print(saved, soft_wrap=True, markup=False, highlight=False)
    rows = saved.rows(source)
    with opened, journal:
        describe(out, source, journal.header, level)
        source = source._replace(rows=rows)
        _learn_all(belief, source, journal, saved, console, block=block, on_bad=on_bad)
    if INTERRUPTS.requested:
        console.print(f"interrupted after {journal.count:,} rows")
    if journal.count:
        console.print(journal.unscored() or journal.table(chosen.method))
    if journal.by_key:
        console.lines(journal.by_key.lines())
        console.print(journal.by_key.table() or "")
    for line in filter(None, [*journal.changes(), journal.moves(), *journal.skips()]):
        console.print(line, markup=False)
    console.lines([*source.grown(), *source.notes()])
    describe(out, source, journal.header, level)  # classes that came late have their names now
    files = [out / name for name in (*journal.files(), "forecasts.json")]
    if journal.count and not journal.unscored():
        files += written(out / "scores.png", lambda path: _draw(journal, chosen.method, path))
    console.print("wrote", *map(str, files), markup=False)
    about = learners.summary(source, chosen.method, belief.learner)
    console.report({**about, **journal.summary(chosen.method)}, journal.counts(), files)
    check_most(journal.refused, journal.updates)


def _learn_all(
    belief: Growing,
    source: sources.Source,
    journal: Journal,
    saved: Resumable,
    console: Screen,
    *,
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
                saved.save(belief, journal)
            if bad and on_bad == "raise":
                raise ValueError(f"{bad[0].place}: {bad[0].reason}.")
            journal.skip(bad)
            for part in _of_one_size(rows):
                if part[0].growth is not None:
                    bar.console.print(_grown(belief, part[0].growth, journal.count + 1))
                journal.write(part, _learnt(belief, part, source, block, journal.count))
            if not cut_short:
                saved.reached(belief, journal, source)
            bar.update(line, advance=len(rows) + len(bad), description=journal.line())
            if len(rows) == block and journal.count % every == 0:
                bar.console.print(f"{journal.count:>9,} rows  {journal.line()}")
        if not cut_short:  # now it is known how many there are
            bar.update(line, total=bar.tasks[line].completed)
    if not cut_short:
        saved.save(belief, journal)


def _learnt(
    belief: Growing, rows: list[Encoded], source: sources.Source, block: int, first: int
) -> Records | FleetRecords:
    """Forecasts of the rows, each of which is learnt from before the next."""
    stream = stacked(rows, source.task, belief.sizes[0])
    options: Any = {"record": record, "key": jax.random.key(belief.seed), "size": block}
    if isinstance(belief.state, Fleet | RayFleet):
        return belief.state.learn([row.key for row in rows], stream, **options)
    belief.state, records = learn(
        belief.learner, belief.state, stream, progress=False, first=first, **options
    )
    return records


def _of_one_size(rows: list[Encoded]) -> list[list[Encoded]]:
    """The rows in parts, each of which begins with one that the network must grow for."""
    starts = [place for place, row in enumerate(rows) if place and row.growth is not None]
    return [rows[a:b] for a, b in pairwise([0, *starts, len(rows)]) if a < b]


def _grown(belief: Growing, growth: Growth, row: int) -> str:
    """Let it grow, and say so."""
    before = belief.sizes[0], belief.sizes[-1]
    belief.grow(inputs=growth.inputs, outputs=growth.outputs)
    now = (belief.sizes[0], "inputs"), (belief.sizes[-1], "outputs")
    sizes = [f"{size} {what}" for (size, what), old in zip(now, before, strict=True) if size > old]
    return f"row {row:,}: {growth.why}; the network grew to {' and '.join(sizes)}"


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


def _draw(journal: Journal, method: str, path: Path) -> None:
    figure = plots.curves(journal.results(method), shares=journal.speeds())
    figure.savefig(path, dpi=130)
