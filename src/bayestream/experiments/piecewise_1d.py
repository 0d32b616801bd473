"""The 1-d regression that keeps changing, over many streams: who adapts fastest."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bayestream.evaluation import Results
from bayestream.experiments import image_report, lines, pictures, piecewise, piecewise_plots
from bayestream.experiments.nouns import Experiment, Rows, Scale, Series
from bayestream.experiments.piecewise import GRID, LENGTH, TASKS, Outcome
from bayestream.experiments.verdicts import AIM, Claim, best, leads, near_the_best

WORLD = "piecewise"
WINDOW = 25  # steps whose errors are kept as one
THIN = 5  # of the grid on which fits are kept, every fifth point
FITTED = 5  # tasks whose fits are kept
PAPER = ("lofi", "fcekf", "lrvga", "fdekf", "vdekf", "sgd-rb-10")
SECONDS = {"lrvga": 4.0, "self-tuning": 4.0}


def series(scale: Scale) -> list[Series]:
    """All methods; in `smoke` those that compile fast."""
    untuned = {"self-tuning": lines.untuned(piecewise.LEARNT)}
    chosen = {**lines.read("piecewise")[WORLD], **untuned}
    shown = ("lofi", "vdekf") if scale == "smoke" else (*PAPER, "lofi-ls", "self-tuning")
    trials = {"smoke": 2, "quick": 5, "full": 20}[scale]
    return [
        Series("piecewise-1d", WORLD, line, chosen[line], trials, SECONDS.get(line, 0.5))
        for line in shown
    ]


def trial(series: Series, number: int) -> Results:
    """The error on the current function, and of the first stream what is believed of it."""
    outcome = piecewise.trial(series.settings, number)
    squares = outcome.error.reshape(-1, WINDOW) ** 2
    step = WINDOW * np.arange(1, len(squares) + 1)
    same = {"method": series.line, "trial": number}
    parts = [
        Results.of(
            **same,
            metric="rmse",
            summary="held out",
            step=step,
            task=(step - 1) // LENGTH,
            value=np.sqrt(np.mean(squares, axis=1)),
        )
    ]
    if number == 0:
        task, place = np.indices(outcome.fit[:FITTED, ::THIN].shape).reshape(2, -1)
        for metric, values in (("fit", outcome.fit), ("deviation", outcome.deviation)):
            parts.append(
                Results.of(
                    **same,
                    metric=metric,
                    summary=[f"x {GRID[THIN * i]:.2f}" for i in place],
                    step=(task + 1) * LENGTH,
                    task=task,
                    value=values[:FITTED, ::THIN].reshape(-1),
                )
            )
    return Results.joined(parts)


def tables(results: Results) -> Mapping[str, Rows]:
    """The error of every line, over the stream."""
    return image_report.tables(_errors(results))


def draw(results: Results, folder: Path) -> list[Path]:
    """The error against time, and the fits at the end of the first tasks."""
    figure = pictures.curves(_errors(results), task=LENGTH)
    found = [pictures.save(figure, folder / "errors.png")]
    outcomes = {line: _outcome(results, line) for line in results.unique("method")}
    shown = {line: each for line, each in outcomes.items() if each is not None}
    if shown:
        path = folder / "fits.png"
        found.append(piecewise_plots.fits(shown, 0, path, grid=GRID[::THIN]))
    return found


def _errors(results: Results) -> Results:
    return results.where(metric="rmse")


def _outcome(results: Results, line: str) -> Outcome | None:
    rows: dict[str, Any] = {
        name: results.where(method=line, metric=name, trial=0)["value"]
        for name in ("fit", "deviation")
    }
    if not len(rows["fit"]):
        return None
    shaped = {name: values.astype(float).reshape(FITTED, -1) for name, values in rows.items()}
    return Outcome(np.zeros((TASKS, LENGTH)), shaped["fit"], shaped["deviation"], 0.0)


EXPERIMENT = Experiment(
    "piecewise-1d",
    "A function that keeps changing",
    "2,500 points of a 1-d function, one after another; every 250 steps it changes without notice. "
    "One hidden layer of 50 units; the RMSE is on the current function.",
    series,
    trial,
    draw,
    tables,
    [
        Claim(
            "The full-covariance EKF adapts fastest.",
            "Figure “regression-1d-error-vs-time”",
            best(WORLD, "rmse", "fcekf", [line for line in PAPER if line != "fcekf"], step=-1),
        ),
        Claim(
            "Then comes LO-FI, then L-RVGA.",
            "Figure “regression-1d-error-vs-time”",
            best(WORLD, "rmse", "lofi", ["lrvga"], step=-1),
        ),
        Claim(
            "Replay SGD and the diagonal filters need more examples than L-RVGA.",
            "Figure “regression-1d-error-vs-time”",
            best(WORLD, "rmse", "lrvga", ["fdekf", "vdekf", "sgd-rb-10"], step=-1),
        ),
        Claim(
            "With a line search, LO-FI is ahead of all the paper's methods.",
            AIM,
            leads(WORLD, "rmse", "lofi-ls", PAPER),
        ),
        Claim(
            "The untuned average is within 5% of the best tuned method, over the stream.",
            AIM,
            near_the_best(WORLD, "rmse", "self-tuning", PAPER),
        ),
    ],
    {
        "errors": "Error on the current function, as in its “regression-1d-error-vs-time”.",
        "fits": "Beliefs at the end of tasks, as in its “regression-1d-functions”.",
    },
)
