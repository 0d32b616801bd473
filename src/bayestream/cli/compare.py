"""`bayestream compare`: several methods on one table, each row forecast before it is learnt."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import jax
import numpy as np
import typer
from rich.table import Table

from bayestream import estimators
from bayestream.checks import check_choice
from bayestream.cli import learners, sources
from bayestream.cli.interrupts import INTERRUPTS
from bayestream.cli.journal import Journal, journal_for
from bayestream.cli.outputs import Json, Screen, written
from bayestream.cli.reading import AS_IT_IS, Reading, reads_tables
from bayestream.cli.sidecar import checked_level, describe
from bayestream.cli.writers import record
from bayestream.evaluation import Results, plots
from bayestream.progress import Progress
from bayestream.running.refusals import check_most, is_most
from bayestream.running.run import learn
from bayestream.streams.encoder import Encoded
from bayestream.streams.tables import stacked
from bayestream.types import Estimator

Scores = dict[str, dict[str, float]]  # of each method, and of the baseline
METHODS = {learners.SELF_TUNING: None, **estimators.REGISTRY}
_DEFAULT = (learners.SELF_TUNING, "lofi", "vdekf", "replay_sgd", "ogd")
_BLOCK = 200  # rows that one call of a program learns from


class Outcome(NamedTuple):
    """What came of one method."""

    journal: Journal
    microseconds: float  # a row, forecast and learnt, without compilation


@reads_tables
def compare(
    data: sources.Data,
    target: sources.Target = "",
    task: sources.TaskName = "",
    methods: Annotated[
        str, typer.Option(help=f"Some of {', '.join(METHODS)}, with commas between.")
    ] = ",".join(_DEFAULT),
    rank: learners.Rank = None,
    hidden: learners.Hidden = "50",
    noise: learners.Noise = None,
    window: Annotated[int, typer.Option(min=1, help="Rows that rolling losses look back.")] = 200,
    limit: sources.Limit = None,
    level: Annotated[float, typer.Option(help="Share of targets between low and high.")] = 0.9,
    seed: Annotated[int, typer.Option(help="Of the initial weights.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for forecasts and picture.")] = Path(
        "out/compare"
    ),
    as_json: Json = False,
    reading: Reading = AS_IT_IS,
) -> None:
    """Learn from the same rows with several methods, each row forecast before it is learnt.

    The table is read and encoded once, as `bayestream run` does it, and every method goes over it
    once, with its default settings. Prints error, negative log predictive density (nlpd, the best
    first), coverage and time, beside a forecast that knows the targets so far alone; draws the
    rolling losses (OUT/compare.png), and writes each method's forecasts (OUT/METHOD/forecasts.csv).

    Coverage is the share of targets inside their interval, which should be --level. Of classes it
    is the confidence, the mean probability of the most probable class, which should be 1 less the
    misclassification. Ctrl-C, or SIGTERM, leaves the methods that are complete, and exit code 130.

    **Examples:**

    `bayestream compare --data my.csv --target price`

    `bayestream compare --data my.csv --target price --methods lofi,vdekf,ogd --rank 20`

    `bayestream compare --data river/Phishing --limit 500 --json`
    """
    checked_level(level)
    names = _names(methods)
    source = sources.opened(data, target=target, task=task, reading=reading, limit=limit)
    console = Screen(as_json)
    rows, bad = source.read(console)
    sizes = learners.layers(source, hidden)
    chosen = {name: _learner(source, sizes, name, rank, noise) for name in names}
    console.lines([f"{len(rows):,} rows, {source.sentence()}"])
    (out / "compare.png").unlink(missing_ok=True)  # an earlier call's
    outcomes: dict[str, Outcome] = {}
    with Progress("comparing", total=len(chosen) * len(rows), show=True) as bar:
        for name, learner in chosen.items():
            if INTERRUPTS.requested:
                break
            bar.label = name
            journal = journal_for(source, window, out / name, level=level)
            spent = _learn_all(learner, source, rows, journal, bar, seed)
            if journal.count < len(rows):  # interrupted: half its forecasts are of no use
                for file in journal.files():
                    (out / name / file).unlink()
                break
            outcomes[name] = Outcome(journal, 1e6 * spent / len(rows))
    if INTERRUPTS.requested:
        console.print(f"interrupted; {len(outcomes)} of {len(chosen)} methods are complete")
    scores = _scores(outcomes)
    files = _shown(outcomes, scores, source, level, out, console)
    counts = {"rows": len(rows), "skipped": len(bad), "methods": len(outcomes)}
    console.report({**source.summary(), "level": level, "scores": scores}, counts, files)
    refused = [(each.journal.refused, each.journal.updates) for each in outcomes.values()]
    if refused and all(is_most(*each) for each in refused):
        check_most(*refused[0])


def _shown(
    outcomes: dict[str, Outcome],
    scores: Scores,
    source: sources.Source,
    level: float,
    out: Path,
    console: Screen,
) -> list[Path]:
    """The files that were written, with what they say on the screen."""
    if not outcomes:
        return []
    journals = {name: outcome.journal for name, outcome in outcomes.items()}
    first = next(iter(journals.values()))
    describe(out, source, first.header, level)
    files = [out / "forecasts.json"]
    if first.scored:
        console.print(_table(scores))
        files += written(out / "compare.png", lambda path: _draw(journals, path))
    else:
        console.print(first.unscored())
    console.print("wrote", *map(str, [*files, out / "METHOD" / "forecasts.csv"]), markup=False)
    for name, journal in journals.items():
        files += [out / name / file for file in journal.files()]
        if journal.refused:
            said = f"{journal.refused} of {journal.updates} updates would not have been finite and"
            console.print(f"{name}: {said} were refused, see {out / name / 'skipped.csv'}")
    return files


def _names(methods: str) -> list[str]:
    names = [name.strip() for name in methods.split(",") if name.strip()]
    for name in names:
        check_choice("--methods", name, METHODS)
    if not names:
        raise ValueError(f"--methods must be some of {', '.join(METHODS)}, got none.")
    return [*dict.fromkeys(names)]


def _learner(
    source: sources.Source, sizes: Sequence[int], name: str, rank: int | None, noise: float | None
) -> Estimator:
    takes_rank = name == learners.SELF_TUNING or estimators.takes(name, "rank")
    chosen = learners.settings(name, rank=rank if takes_rank else None, noise=noise)
    try:
        return learners.learner(source, sizes, chosen)
    except (TypeError, ValueError) as error:
        raise ValueError(f"--methods: {name}: {error}") from None


def _learn_all(
    learner: Estimator,
    source: sources.Source,
    rows: Sequence[Encoded],
    journal: Journal,
    bar: Progress,
    seed: int,
) -> float:
    """The seconds it took, without compilation and without writing down."""
    key = jax.random.key(seed)
    state = learner.init(key)
    blocks = [rows[first : first + _BLOCK] for first in range(0, len(rows), _BLOCK)]
    streams = [stacked([*block], source.task, source.inputs) for block in blocks]
    options: Any = {"record": record, "key": key, "progress": False, "size": _BLOCK}
    learn(learner, state, streams[0], **options)  # compiles
    spent = 0.0
    with journal:
        for block, stream in zip(blocks, streams, strict=True):
            if INTERRUPTS.requested:
                break
            begin = time.perf_counter()
            state, records = learn(learner, state, stream, first=journal.count, **options)
            spent += time.perf_counter() - begin
            journal.write(block, records)
            bar.advance(len(block))
    return spent


def _scores(outcomes: dict[str, Outcome]) -> Scores:
    """Of each method, the best density first, and of the baseline."""
    found: Scores = {}
    for name, (journal, microseconds) in outcomes.items():
        own, *others = journal.scores(name).items()
        found[name] = {**own[1], "microseconds": microseconds, "refused": journal.refused}
        found |= others
    return dict(sorted(found.items(), key=lambda item: item[1].get("nlpd", np.inf)))


def _table(scores: Scores) -> Table:
    table = Table(title="Each row forecast before it was learnt from")
    table.add_column("method")
    metrics = [name for name in next(iter(scores.values())) if name != "refused"]
    for metric in metrics:
        said = "µs a row" if metric == "microseconds" else metric.replace("_", " ")
        table.add_column(said, justify="right")
    for name, own in scores.items():
        table.add_row(name, *(f"{own[m]:.4g}" if m in own else "" for m in metrics))
    return table


def _draw(journals: dict[str, Journal], path: Path) -> None:
    """The rolling losses of all, and the baseline's once."""
    first, *others = ((name, journal.results(name)) for name, journal in journals.items())
    parts = [first[1], *(results.where(method=name) for name, results in others)]
    plots.curves(Results.joined(parts)).savefig(path, dpi=130)
