"""Single images through the eyes of a learner: an image of each task, and one of another world."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bayestream import likelihoods, streams
from bayestream.evaluation import Results, drawing
from bayestream.experiments import image_trials, images, lines, pictures
from bayestream.experiments.nouns import Scale, Series
from bayestream.experiments.verdicts import Claim, Judgement, below, nearest
from bayestream.forecasts import predictive
from bayestream.running.run import run
from bayestream.types import Array, State

WORLD, TASKS, EVERY = "probe", 5, 100
SHOWN = ("lofi-10", "sgd-rb-10")
_COLOURS = {"now": "#CDE8D5", "before": "#E4E4E4", "later": "#FBF3CF"}


def series(experiment: str, tuned: Mapping[str, Any], scale: Scale) -> list[Series]:
    """LO-FI and replay SGD; the first trial of each is drawn."""
    tasks, trials = 1 if scale == "smoke" else TASKS, 10 if scale == "full" else 1
    return [
        Series(
            experiment,
            WORLD,
            line,
            {"tasks": tasks, "line": dict(tuned[line])},
            trials,
            5.0 * tasks,
        )
        for line in SHOWN
    ]


def trial(series: Series, number: int) -> Results:
    """The probability of every class for every image, every so many steps."""
    steps = series.settings["tasks"] * images.TASK
    train, tests = images.permuted(number, steps)
    model = image_trials.network("permuted")
    learner = lines.learner(model, likelihoods.categorical(), series.settings["line"])
    first = [tests(task * images.TASK + 1) for task in range(series.settings["tasks"])]
    other = streams.mnist("test").examples
    x = jnp.asarray(np.stack([*(np.asarray(each.x[0]) for each in first), other.x[0]]))
    labels = np.array([*(int(each.y[0]) for each in first), int(other.y[0])])

    @jax.jit
    def probabilities(state: State) -> Array:
        return predictive.plugin(learner, state, x).probabilities

    state = learner.init(jax.random.key(number))
    parts: list[Results] = []
    for start in range(0, steps, EVERY):
        part = train.select(np.arange(start, start + EVERY))
        state, _ = run(learner, state, part, record=None, progress=False)
        found = np.asarray(probabilities(state), np.float64)
        image, kind = np.indices(found.shape).reshape(2, -1)
        parts.append(
            Results.of(
                method=series.line,
                metric=[f"class {k}" for k in kind],
                summary=[f"image {i}" for i in image],
                trial=number,
                step=start + EVERY,
                task=labels[image],
                value=found.reshape(-1),
            )
        )
    return Results.joined(parts)


def _sureness(results: Results, line: str, *, alien: bool) -> dict[int, float]:
    """1 − entropy/log 10, a trial each: 0 is even, 1 certain; of tasks to come, or of MNIST."""
    rows = results.where(world=WORLD, method=line)
    if not len(rows):
        return {}
    trials, steps = np.unique(rows["trial"]), np.unique(rows["step"])
    values = rows["value"][rows["metric"] != "wall seconds"].astype(float)
    chances = values.reshape(len(trials), len(steps), -1, 10)
    sure = 1 + np.sum(chances * np.log(np.maximum(chances, 1e-30)), axis=-1) / np.log(10)
    task = (steps - 1) // images.TASK
    later = np.arange(sure.shape[2] - 1) > task[:, None]  # (steps, tasks)
    found = sure[:, :, -1].mean(axis=1) if alien else sure[:, :, :-1][:, later].mean(axis=1)
    return dict(zip(trials.tolist(), found.tolist(), strict=True))


def _hardly_sure(limit: float, *, alien: bool) -> Callable[[Results], Judgement | None]:
    def judge(results: Results) -> Judgement | None:
        return below(limit, [*_sureness(results, "lofi-10", alien=alien).values()])

    return judge


def _less_sure(*, alien: bool) -> Callable[[Results], Judgement | None]:
    def judge(results: Results) -> Judgement | None:
        own, replay = (_sureness(results, line, alien=alien) for line in SHOWN)
        return nearest(SHOWN[0], own, {SHOWN[1]: replay})

    return judge


def drawn(
    others: Callable[[Results, Path], list[Path]],
) -> Callable[[Results, Path], list[Path]]:
    """The pictures of an experiment, and after them those of single images."""

    def draw(results: Results, folder: Path) -> list[Path]:
        probes = results.where(world=WORLD, summary="image 0").unique("method")
        own = [_draw(results, line, folder / f"probe-{line}.png") for line in probes]
        return others(results, folder) + own

    return draw


def _draw(results: Results, line: str, path: Path) -> Path:
    """Rows are images, columns snapshots; bars are classes, the red one the true label's NLL."""
    rows = results.where(world=WORLD, method=line, trial=0)
    names = [name for name in rows.unique("summary") if name.startswith("image")]
    steps = sorted(set(rows.where(summary=names[0])["step"].tolist()))
    figure = drawing.figure(figsize=(0.75 * len(steps) + 1, 0.8 * len(names) + 0.6))
    axes = figure.subplots(len(names), len(steps), squeeze=False)
    for row, name in enumerate(names):
        alien = row == len(names) - 1
        for column, step in enumerate(steps):
            ax = axes[row, column]
            own = rows.where(summary=name, step=step)
            label, chances = int(own["task"][0]), own["value"]
            task = (step - 1) // images.TASK
            when = "now" if row == task else "before" if row < task else "later"
            ax.set_facecolor("white" if alien else _COLOURS[when])
            ax.bar(range(10), chances, color="#0072B2", width=0.9)
            # On a scale where 1 is the surprise of one class in a hundred.
            surprise = -np.log(max(float(chances[label]), 1e-12)) / np.log(100)
            ax.bar([10.5], [0.0 if alien else min(surprise, 1.0)], color="#D55E00", width=0.9)
            ax.set(xlim=(-1, 11.5), ylim=(0, 1), xticks=[], yticks=[])
            if row == 0:
                ax.set_title(str(step), fontsize=7)
        title = "MNIST" if alien else f"task {row + 1}"
        axes[row, 0].set_ylabel(title, fontsize=7)
    figure.suptitle(
        f"{line}: probabilities of ten classes after so many steps; red, −log p of the label "
        "(full: a hundredth or less); green now, grey before, yellow yet to come",
        fontsize=8,
    )
    return pictures.save(figure, path)


_SURE = "(1 − entropy/log 10)"
CLAIMS = (
    Claim(
        f"LO-FI's forecasts for tasks yet to come are mostly uniform: sure by at most .5 {_SURE}.",
        "Figure “ns-pfmnist-probe”",
        _hardly_sure(0.5, alien=False),
    ),
    Claim(
        f"For an image of MNIST they stay close to uniform: sure by at most .2 {_SURE}.",
        "Figure “ns-pfmnist-probe”",
        _hardly_sure(0.2, alien=True),
    ),
    *(
        Claim(
            f"Replay SGD is surer {of}, where it should be uncertain {_SURE}.",
            "Figure “ns-pfmnist-rsgd-probe”",
            _less_sure(alien=alien),
        )
        for of, alien in (("of tasks yet to come", False), ("of an image of MNIST", True))
    ),
)
