"""Two pictures of the piecewise-stationary regression: the fits, and the error over time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bayestream import streams
from bayestream.evaluation import drawing, summaries
from bayestream.experiments import pictures
from bayestream.experiments.piecewise import GRID, LENGTH, NOISE, TASKS, Floats, Outcome, truth

LINES = ("lofi", "fcekf", "fdekf", "vdekf")  # always in these colours


def fits(
    outcomes: dict[str, Outcome], seed: int, path: Path, shown: int = 5, grid: Floats = GRID
) -> Path:
    """What each method believes at the end of each task: mean, two deviations, and the truth.

    `grid` is where the outcomes' fits are.
    """
    figure = drawing.figure(figsize=(2.2 * shown, 1.7 * len(outcomes) + 0.6))
    axes = figure.subplots(len(outcomes), shown, sharex=True, sharey=True, squeeze=False)
    examples = streams.piecewise_regression(seed, tasks=TASKS, length=LENGTH, noise=NOISE).examples
    functions = truth(seed)
    for row, (method, outcome) in enumerate(outcomes.items()):
        color = _look(method)["color"]
        for task in range(shown):
            ax = axes[row, task]
            seen = examples.task == task
            ax.plot(examples.x[seen], examples.y[seen], ".", ms=2, color="0.75", label="data")
            ax.plot(GRID, functions[task], color="0.2", lw=1, label="truth")
            fit, spread = outcome.fit[task], 2 * outcome.deviation[task]
            ax.fill_between(grid, fit - spread, fit + spread, color=color, alpha=0.25, lw=0)
            ax.plot(grid, fit, color=color, lw=1.6, label="belief ± 2 sd")
            ax.set_title(f"task {task + 1}" if row == 0 else "", fontsize=9)
            ax.tick_params(labelsize=7)
        axes[row, 0].set(ylabel=method, ylim=(functions.min() - 0.7, functions.max() + 0.7))
        axes[row, -1].legend(fontsize=6, loc="lower right", frameon=False)
    figure.suptitle("Belief after the last example of each task", fontsize=10)
    return pictures.save(figure, path)


def errors(outcomes: dict[str, Outcome], path: Path, window: int = 20) -> Path:
    """Test RMSE against time, a rolling mean over `window` steps, change points marked."""
    figure = drawing.figure(figsize=(10, 3.6))
    ax = figure.subplots()
    for change in range(LENGTH, TASKS * LENGTH, LENGTH):
        ax.axvline(change, color="0.8", lw=0.8, zorder=0)
    rolling = {
        method: summaries.window(window).of(o.error.ravel()) for method, o in outcomes.items()
    }
    # The first steps, from random weights, would flatten all the rest.
    ceiling = 1.1 * max(error[LENGTH:].max() for error in rolling.values())
    for method, error in rolling.items():
        ax.plot(error, **_look(method), lw=1.4, label=method)
    ax.set(xlabel="examples seen", ylabel=f"test RMSE (mean of {window})", ylim=(0, ceiling))
    ax.set_title(
        "Error on the current function; it changes, unannounced, at each line", fontsize=10
    )
    ax.margins(x=0)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, ncols=len(outcomes))
    return pictures.save(figure, path)


def _look(method: str) -> dict[str, Any]:
    return drawing.look(LINES.index(method) if method in LINES else len(LINES))
