"""`bayestream demo`: four filters on a function that keeps changing."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import MofNCompleteColumn, Progress, TaskID, TimeRemainingColumn
from rich.table import Table

from bayestream.cli.interrupts import INTERRUPTS
from bayestream.cli.outputs import Screen, written
from bayestream.experiments import piecewise, piecewise_plots
from bayestream.experiments.piecewise import LENGTH, SETTINGS, TASKS, Outcome

_PICTURES = ("fits.png", "errors.png")


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the pictures.")] = Path("out"),
    seed: Annotated[int, typer.Option(help="Which stream, and which initial weights.")] = 0,
) -> None:
    """Learn the paper's piecewise-stationary 1-d regression with lofi, fcekf, fdekf and vdekf.

    A one-hidden-layer network of 151 weights sees 2,500 examples, one at a time; every 250 the
    function changes without notice. Prints the test error per task and draws two pictures;
    if interrupted, of the methods that are complete.

    **Example:** `bayestream demo --out out --seed 1`
    """
    console = Screen()
    for name in _PICTURES:
        (out / name).unlink(missing_ok=True)  # an earlier run's
    outcomes: dict[str, Outcome] = {}
    columns = (*Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeRemainingColumn())
    with suppress(KeyboardInterrupt), Progress(*columns, console=console) as progress:
        for method, settings in SETTINGS.items():
            INTERRUPTS.check()
            bar = progress.add_task(f"{method:<6}", total=TASKS * LENGTH)

            def advance(steps: int, bar: TaskID = bar) -> None:
                progress.advance(bar, steps)
                INTERRUPTS.check()

            outcomes[method] = piecewise.trial(settings, seed, advance)
    if INTERRUPTS.requested:
        console.print(f"interrupted; {len(outcomes)} of {len(SETTINGS)} methods are complete")
    if not outcomes:
        return
    console.print(_table(outcomes))
    for picture in _pictures(outcomes, seed, out):
        console.print(f"wrote {picture}")


def _table(outcomes: dict[str, Outcome]) -> Table:
    table = Table(title="RMSE on the current task's test grid, over its 250 steps")
    table.add_column("task")
    for method in outcomes:
        table.add_column(method, justify="right")
    rows = zip(*(outcome.by_task for outcome in outcomes.values()), strict=True)
    for task, row in enumerate(rows):
        table.add_row(str(task + 1), *(f"{value:.3f}" for value in row))
    table.add_section()
    table.add_row("all", *(f"{outcome.overall:.3f}" for outcome in outcomes.values()))
    table.add_row("µs a step", *(f"{o.microseconds:.0f}" for o in outcomes.values()))
    return table


def _pictures(outcomes: dict[str, Outcome], seed: int, out: Path) -> list[Path]:
    fits, errors = (out / name for name in _PICTURES)
    return [
        *written(fits, lambda path: piecewise_plots.fits(outcomes, seed, path)),
        *written(errors, lambda path: piecewise_plots.errors(outcomes, path)),
    ]
