"""Fashion-MNIST at rest with a LeNet: methods, ranks, and kinds of inflation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from bayestream.evaluation import Results, drawing
from bayestream.experiments import image_report, image_trials, lines, paper, pictures
from bayestream.experiments.image_lines import PAPER, RIVALS, SMOKE, captions
from bayestream.experiments.nouns import Experiment, Rows, Scale, Series
from bayestream.experiments.verdicts import (
    AIM,
    Claim,
    Judgement,
    alike,
    best,
    leads,
    losses,
    number,
    share,
    standard_error,
)

WORLD = "stationary cnn"
RANKS = (1, 2, 5, 10, 20, 50)
TABLE_RANKS = (1, 5, 10, 20, 50)
COVARIANCES = {"diagonal": "lofi", "spherical": "lofi_spherical"}
INFLATIONS = ("none", "bayesian", "hybrid", "simple")
ERRORS = "misclassification"


def _tuned() -> dict[str, Any]:
    return lines.read("fashion")["stationary"]


def _methods(scale: Scale) -> list[Series]:
    shown = SMOKE if scale == "smoke" else (*PAPER, "laplace-10", "lofi-ls-10")
    chosen = {line: _tuned()[line] for line in shown}
    size = {"steps": 2_000, "every": 200, "trials": 100}
    return image_trials.series("fmnist-cnn", WORLD, chosen, scale, **size)


def _options(method: str, rank: int, inflation: str) -> dict[str, Any]:
    """LO-FI-10's settings, with another rank, family or kind of inflation of the same size."""
    options: dict[str, Any] = {**_tuned()["lofi-10"], "method": method, "rank": rank}
    [alpha] = options.pop("inflation").values()
    return options if inflation == "none" else {**options, "inflation": {inflation: alpha}}


def _ranks(scale: Scale) -> list[Series]:
    chosen = {
        f"{name}-{rank}": _options(method, rank, "hybrid")
        for name, method in (("lofi", "lofi"), ("lofi-sph", "lofi_spherical"))
        for rank in (RANKS[:1] if scale == "smoke" else RANKS)
    }
    size = {"steps": 500, "every": 100, "trials": 10}
    return image_trials.series("fmnist-cnn-rank", WORLD, chosen, scale, **size)


def _inflations(scale: Scale) -> list[Series]:
    chosen = {
        f"{covariance}-{inflation}-{rank}": _options(method, rank, inflation)
        for rank in (TABLE_RANKS[:1] if scale == "smoke" else TABLE_RANKS)
        for covariance, method in COVARIANCES.items()
        for inflation in (INFLATIONS[:2] if scale == "smoke" else INFLATIONS)
    }
    size = {"steps": 500, "every": 500, "trials": 10}
    if scale == "smoke":
        size["every"] = 50
    return image_trials.series("fmnist-inflation", WORLD, chosen, scale, **size)


def _cell(results: Results, row: Mapping[str, str]) -> Judgement | None:
    """Misclassification after 500 examples, in per cent, beside the paper's."""
    line = f"{row['covariance']}-{row['inflation']}-{row['rank']}"
    values = 100 * np.array([*losses(results, WORLD, line, ERRORS).values()])
    if len(values) < 2:
        return None
    ours, error = float(np.mean(values)), standard_error(values)
    return number(ours, error, float(row["percent"]), float(row["stderr"]))


def _table(results: Results) -> Mapping[str, Rows]:
    rows = [
        {name: row[name] for name in ("rank", "covariance", "inflation")}
        | {"paper, %": found.paper, "ours, %": found.ours}
        | {"difference": found.difference, "verdict": found.verdict}
        for row in paper.table("fmnist_cnn_inflation_misclassification")
        if (found := _cell(results, row)) is not None
    ]
    return {"misclassification": rows}


def _draw_inflations(results: Results, folder: Path) -> list[Path]:
    """Errors after 500 examples against the rank, one panel a covariance."""
    figure = drawing.figure(figsize=(9, 3.4))
    axes = figure.subplots(1, len(COVARIANCES), sharey=True)
    for ax, covariance in zip(axes, COVARIANCES, strict=True):
        for place, inflation in enumerate(INFLATIONS):
            points: list[tuple[int, float, float]] = []
            for rank in TABLE_RANKS:
                line = f"{covariance}-{inflation}-{rank}"
                values = np.array([*losses(results, WORLD, line, ERRORS).values()])
                if len(values) > 1:
                    points.append((rank, float(np.mean(values)), standard_error(values)))
            if points:
                x, y, error = zip(*points, strict=True)
                look = drawing.look(place)
                ax.errorbar(x, y, error, marker="o", ms=3, capsize=2, label=inflation, **look)
        ax.set(xscale="log", xlabel="rank", title=covariance)
    axes[0].set(ylabel="misclassification")
    axes[0].legend(frameon=False, fontsize=8)
    return [pictures.save(figure, folder / "inflation.png")]


def _in_cells(results: Results) -> Judgement | None:
    """How many cells of the table are no worse than the paper's."""
    found = [_cell(results, row) for row in paper.table("fmnist_cnn_inflation_misclassification")]
    judged = [cell for cell in found if cell is not None]
    if len(judged) < len(found):
        return None
    return share([cell.verdict != "fails" for cell in judged], 0.95, "the cells")


def _counted(pairs: Sequence[tuple[str, str]]) -> Callable[[Results], Judgement | None]:
    """Of how many pairs the first errs less after 500 images, in the mean; 19 in 20 must."""

    def judge(results: Results) -> Judgement | None:
        found = {line: [*losses(results, WORLD, line, ERRORS).values()] for line in sum(pairs, ())}
        if any(len(values) < 2 for values in found.values()):
            return None
        met = [bool(np.mean(found[one]) < np.mean(found[two])) for one, two in pairs]
        return share(met, 0.95, "the pairs")

    return judge


def _negligible(covariance: str) -> Callable[[Results], Judgement | None]:
    names = [f"{covariance}-{inflation}-10" for inflation in INFLATIONS]
    return alike(WORLD, ERRORS, names, margin=0.02)


BORROWED = (
    "A LeNet of 421,642 weights. The settings are those found for the multi-layer perceptron, not "
    "tuned for this network."
)
METHODS = Experiment(
    "fmnist-cnn",
    "Fashion-MNIST at rest, with a LeNet",
    f"2,000 images one after another, tested every 200 on all 10,000 test images. {BORROWED}",
    _methods,
    image_trials.trial,
    image_report.draw(WORLD, {"methods": PAPER, "ours": ("lofi-10", "sgd-rb-10", "lofi-ls-10")}),
    image_report.tables,
    [
        Claim(
            f"LO-FI of rank 10 has the least {metric} of the paper's methods, over the stream.",
            "Figure “fmnist-st-cnn”",
            best(WORLD, metric, "lofi-10", RIVALS, step=-1),
        )
        for metric in (ERRORS, "nll")
    ]
    + [
        Claim(
            "As for the multi-layer perceptron, then comes replay SGD, then replay Adam.",
            "Figure “fmnist-st-cnn”",
            best(WORLD, ERRORS, "sgd-rb-10", ["adam-rb-10"], step=-1),
        ),
        Claim(
            "The diagonal EKFs and online gradient descent are the least sample efficient: replay "
            "Adam is ahead of them.",
            "Figure “fmnist-st-cnn”",
            best(WORLD, ERRORS, "adam-rb-10", ["fdekf", "vdekf", "sgd-rb-1"], step=-1),
        ),
        Claim(
            "With a line search, LO-FI of rank 10 errs less than all the paper's methods.",
            AIM,
            leads(WORLD, ERRORS, "lofi-ls-10", PAPER),
        ),
    ],
    captions("figure “fmnist-st-cnn”"),
)
RANKED = Experiment(
    "fmnist-cnn-rank",
    "A LeNet: how much rank",
    f"500 images, LO-FI of ranks 1 to 50, with diagonal and spherical precision. {BORROWED}",
    _ranks,
    image_trials.trial,
    image_report.draw(
        WORLD,
        {name: [f"{name}-{rank}" for rank in RANKS] for name in ("lofi", "lofi-sph")},
    ),
    image_report.tables,
    [
        *(
            Claim(
                f"More rank is better, by {metric}: rank 10 beats ranks 1, 2 and 5.",
                "Figure “fmnist-st-cnn-vs-rank”",
                best(WORLD, metric, "lofi-10", ["lofi-1", "lofi-2", "lofi-5"], step=-1),
            )
            for metric in (ERRORS, "nll")
        ),
        Claim(
            "Gains plateau at rank 10: ranks 10, 20 and 50 err alike, within 0.02.",
            "Figure “fmnist-st-cnn-vs-rank”",
            alike(WORLD, ERRORS, ["lofi-10", "lofi-20", "lofi-50"], margin=0.02),
        ),
        *(
            Claim(
                f"A spherical precision is worse than a diagonal one, at rank {rank}.",
                "Figure “fmnist-st-cnn-vs-rank”",
                best(WORLD, ERRORS, f"lofi-{rank}", [f"lofi-sph-{rank}"], step=-1),
            )
            for rank in (1, 10)
        ),
    ],
    {
        "lofi": "By rank, diagonal precision, as in the paper's figure “fmnist-st-cnn-vs-rank”.",
        "lofi-sph": "The same with spherical precision.",
    },
)
INFLATED = Experiment(
    "fmnist-inflation",
    "A LeNet: kinds of inflation",
    "Misclassification after 500 images, by rank, covariance and kind of inflation, all with the "
    f"same α = 0.001. {BORROWED}",
    _inflations,
    image_trials.trial,
    _draw_inflations,
    _table,
    [
        Claim(
            "Our errors are no worse than the paper's, in 95% of the cells.",
            "Table “inflation-ablation”",
            _in_cells,
        ),
        Claim(
            "Higher rank improves the results: of neighbouring ranks, the higher has less error.",
            "Table “inflation-ablation”",
            _counted(
                [
                    (f"{covariance}-{inflation}-{high}", f"{covariance}-{inflation}-{low}")
                    for covariance in COVARIANCES
                    for inflation in INFLATIONS
                    for low, high in pairwise(TABLE_RANKS)
                ]
            ),
        ),
        Claim(
            "So does a diagonal covariance, beside a spherical one.",
            "Table “inflation-ablation”",
            _counted(
                [
                    (f"diagonal-{inflation}-{rank}", f"spherical-{inflation}-{rank}")
                    for inflation in INFLATIONS
                    for rank in TABLE_RANKS
                ]
            ),
        ),
        *(
            Claim(
                f"Inflation has a negligible effect: within 0.02 at rank 10, {covariance}.",
                "Table “inflation-ablation”",
                _negligible(covariance),
            )
            for covariance in COVARIANCES
        ),
    ],
    {"inflation": "After 500 images, as in the paper's table “inflation-ablation”."},
)

EXPERIMENTS = (METHODS, RANKED, INFLATED)
