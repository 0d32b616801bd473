"""Which labels to ask for: queries against asking at random, on two moons and on MNIST.

`python benchmarks/active.py` learns from a pool with each query, seeds 0 to 9, prints the
misclassification after all labels and how many labels each query takes to get, for good, to what
random sampling ends with, and draws docs/figures/active.png. How the settings were chosen, on other
seeds, is in docs/decisions.md. "BALD, cooled" is BALD of a belief whose covariance is multiplied by
0.03, its labels drawn with probabilities that grow as the score's fourth power. What is done is
kept in OUT; 10 minutes on two cores with a load of 12.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from rich.console import Console
from rich.table import Table

import bayestream as bs

TRIALS = 10
QUERIES = {
    "BALD": bs.queries.bald(),
    "BALD, cooled": bs.queries.drawn(bs.queries.bald(temperature=0.03), power=4.0),
    "entropy": bs.queries.entropy(),
    "margin": bs.queries.margin(),
    "variance": bs.queries.variance(),
    "random": bs.queries.random(),
}
STYLES = {
    "BALD": ("#D55E00", "-"),
    "BALD, cooled": ("#E69F00", (0, (8, 2))),
    "entropy": ("#0072B2", "--"),
    "margin": ("#009E73", "-."),
    "variance": ("#CC79A7", (0, (5, 1, 1, 1, 1, 1))),
    "random": ("#000000", ":"),
}


class Task(NamedTuple):
    """A learner, what it learns from in each trial, and how many labels it may ask for."""

    learner: bs.Estimator
    problems: Callable[[int], tuple[bs.Stream, bs.Stream]]
    budget: int
    every: int
    together: int = 1
    candidates: int | None = None


def moons(trial: int) -> tuple[bs.Stream, bs.Stream]:
    """500 inputs to ask about, 1,000 to be tested on."""
    return bs.streams.two_moons(trial), bs.streams.two_moons(10_000 + trial, size=1000)


@lru_cache(maxsize=1)
def _mnist() -> tuple[bs.Stream, bs.Stream]:
    return bs.streams.mnist(), bs.streams.mnist("test")


def digits(trial: int) -> tuple[bs.Stream, bs.Stream]:
    """2,000 images to ask about, 1,000 to be tested on, by the pool's principal components."""
    train, test = (part.shuffle(trial) for part in _mnist())
    train, test = train.take(2000).examples, test.take(1000).examples
    mean = train.x.mean(axis=0)
    _, vectors = np.linalg.eigh(np.cov(train.x - mean, rowvar=False))
    components = vectors[:, -COMPONENTS:]
    scale = np.sqrt(((train.x - mean) @ components).var(axis=0).mean())
    first, second = (
        bs.Stream(part._replace(x=(part.x - mean) @ components / scale)) for part in (train, test)
    )
    return first, second


COMPONENTS = 30


def tasks() -> dict[str, Task]:
    """What is compared, with the settings of each."""
    classes = bs.likelihoods.categorical()
    waves = bs.models.mlp([2, 50, 2], activation=lambda a: jnp.sin(2 * a))
    network = bs.models.mlp([COMPONENTS, 50, 10], fan_in_scaled=True)
    return {
        "two moons": Task(
            bs.lofi(waves, classes, rank=20, prior_precision=1.0), moons, budget=50, every=1
        ),
        "MNIST": Task(
            bs.lofi(network, classes, rank=20, prior_precision=0.1),
            digits,
            budget=300,
            every=10,
            together=5,
            candidates=1000,
        ),
    }


def table(found: dict[str, bs.Results]) -> Table:
    """The error after all labels, and the labels it takes to get to random sampling's."""
    shown = Table(title=f"Error after all labels, mean of {TRIALS} seeds ± standard error")
    for name in ("", "query", "error", "labels to random's", "share"):
        shown.add_column(name, no_wrap=True)
    for name, results in found.items():
        budget = results["step"].max()
        ends = results.where(step=budget).averaged()
        target = float(ends.where(method="random")["mean"][0])
        needed = bs.active.labels_needed(results, metric="misclassification", target=target)
        for query in QUERIES:
            end = ends.where(method=query)
            error = f"{end['mean'][0]:.4f} ± {end['error'][0]:.4f}"
            labels = needed[query]
            share = "-" if labels is None else f"{labels / budget:.0%}"
            shown.add_row(name, query, error, "-" if labels is None else str(labels), share)
            name = ""
    return shown


def draw(found: dict[str, bs.Results], path: Path) -> None:
    """Error against labels: means and standard errors."""
    figure, axes = plt.subplots(1, len(found), figsize=(9, 3.4), layout="constrained")
    for axis, (name, results) in zip(axes, found.items(), strict=True):
        averaged = results.averaged()
        for query, (colour, dashes) in STYLES.items():
            line = averaged.where(method=query)
            step, mean, error = (line[column] for column in ("step", "mean", "error"))
            axis.plot(step, mean, ls=dashes, color=colour, lw=1.4, label=query)
            axis.fill_between(step, mean - error, mean + error, color=colour, alpha=0.15, lw=0)
        axis.set(title=name, xlabel="labels", yscale="log")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("test error")
    axes[0].legend(frameon=False, fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def main() -> None:
    """Run what is not done yet, then print the table and draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out/active"))
    parser.add_argument("--figure", type=Path, default=Path("docs/figures/active.png"))
    options = parser.parse_args()
    found: dict[str, bs.Results] = {}
    for name, task in tasks().items():
        parts: list[bs.Results] = []
        for query, scores in QUERIES.items():
            path = options.out / f"{name} {query}.parquet"
            if not path.exists():
                bs.active.learning_curves(
                    task.learner,
                    task.problems,
                    queries={query: scores},
                    budget=task.budget,
                    trials=TRIALS,
                    every=task.every,
                    together=task.together,
                    candidates=task.candidates,
                    metrics=("misclassification",),
                ).save(path)
            parts.append(bs.Results.load(path))
        found[name] = bs.Results.joined(parts)
    Console(width=80).print(table(found))
    draw(found, options.figure)


if __name__ == "__main__":
    main()
