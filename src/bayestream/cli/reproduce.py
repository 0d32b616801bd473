"""`bayestream reproduce`: the paper's figures and tables, beside its claims."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Annotated, cast

import typer
from rich.table import Table

from bayestream.checks import check_choice
from bayestream.cli.cache import keep_programs
from bayestream.cli.interrupts import INTERRUPTS
from bayestream.cli.outputs import Screen
from bayestream.cli.sources import Ray
from bayestream.experiments import report, store, work
from bayestream.experiments.nouns import SCALES, Experiment, Scale
from bayestream.experiments.registry import EXPERIMENTS
from bayestream.progress import Progress


def reproduce(
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ID …|all]", help=f"Of {', '.join(EXPERIMENTS)}; or all."),
    ] = None,
    scale: Annotated[
        str, typer.Option(help="smoke (minutes), quick (an hour) or full (the paper's trials).")
    ] = "quick",
    out: Annotated[
        Path, typer.Option(help="Folder for trials, pictures, tables and the report.")
    ] = Path("out/reproduction"),
    jobs: Annotated[int, typer.Option(min=1, help="Processes; each trial runs in one.")] = 1,
    match: Annotated[
        list[str] | None,
        typer.Option(
            help="Run only series whose name has this in it: x1/ or lofi-10. May be repeated; what "
            "is named first runs first."
        ),
    ] = None,
    trials: Annotated[
        int | None, typer.Option(min=1, help="Run no more trials of a series than this.")
    ] = None,
    ray: Ray = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what is left to do, and how long it takes.")
    ] = False,
) -> None:
    """Run the paper's experiments, draw its figures, and judge its claims.

    Every finished trial is kept in OUT/trials: a run that was interrupted goes on where it was, and
    a larger scale begins with what a smaller one has done. Without IDs, all of them.

    **Examples:**

    `bayestream reproduce uci --scale quick --jobs 2`

    `bayestream reproduce all --scale full --out docs/reproduction --dry-run`

    `bayestream reproduce uci --scale full --match naval-x1/ --match x10/lofi --trials 5`

    `bayestream reproduce all --scale full --ray 10.0.0.1:6379`
    """
    if ray is not None and jobs > 1:
        raise ValueError("--jobs must be left out with --ray, which has a process for each CPU.")
    console = Screen()
    chosen = _experiments(ids or ["all"])
    size = cast(Scale, check_choice("--scale", scale, {name: name for name in SCALES}))
    todo = [
        job
        for job in work.matching(work.jobs(chosen, size, out), match or [""])
        if trials is None or job.trial < trials
    ]
    console.print(_plan(chosen, size, todo, jobs))
    if dry_run:
        return
    begin = time.monotonic()
    # What is expected to take twice as long counts twice towards the time left.
    shares = [round(1000 * job.series.seconds) for job in todo]
    with Progress("reproducing", total=sum(shares), show=True) as bar:

        def stop() -> bool:
            bar.advance(0)  # a trial can take minutes
            return INTERRUPTS.requested

        for job, found in work.results(todo, jobs, keep_programs, ray=ray, stop=stop):
            store.add(out, job.series, job.trial, found)
            bar.label = f"{job.series.world}, {job.series.line}: ms of work"
            bar.advance(round(1000 * job.series.seconds))
            if INTERRUPTS.requested:
                break
    console.print(f"{_hours(time.monotonic() - begin)} of work; writing the report")
    # Of all that the folder holds, whatever was asked for this time.
    console.print(f"wrote {report.write([*EXPERIMENTS.values()], size, out)}")


def _experiments(ids: list[str]) -> list[Experiment]:
    if ids == ["all"]:
        return [*EXPERIMENTS.values()]
    return [check_choice("ID", name, EXPERIMENTS) for name in dict.fromkeys(ids)]


def _plan(chosen: list[Experiment], scale: Scale, todo: list[work.Job], jobs: int) -> Table:
    left = Counter(job.series.experiment for job in todo)
    shown = Table(title=f"{scale}: trials")
    for column in ("id", "all", "left", "time left, roughly"):
        shown.add_column(column, justify="left" if column == "id" else "right")
    total = 0.0
    for experiment in chosen:
        seconds = sum(j.series.seconds for j in todo if j.series.experiment == experiment.id)
        total += seconds
        count = sum(series.trials for series in experiment.series(scale))
        shown.add_row(experiment.id, f"{count:,}", f"{left[experiment.id]:,}", _hours(seconds))
    if len(chosen) > 1:
        shown.add_section()
        shown.add_row("all", "", f"{len(todo):,}", _hours(total))
    if jobs > 1:
        shown.caption = f"in {jobs} processes: {_hours(total / jobs)}"
    return shown


def _hours(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
