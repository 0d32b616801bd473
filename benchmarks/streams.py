"""The untouched default beside river's learners: fourteen streams, error, NLPD and time.

`python benchmarks/streams.py --out out` prints the table of docs/decisions.md. What is done is kept
in OUT/streams.json, and a run that was stopped goes on from there; some hours on two cores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, NamedTuple

from river import datasets
from river.datasets import synth

import bayestream as bs

ROWS = 6000  # of a generator


class Case(NamedTuple):
    """A stream, and where in it the world changes at once."""

    task: str
    rows: Callable[[int], Iterable[Any]]  # of a seed
    classes: int = 2
    change: int | None = None


def changed(before: Any, after: Any) -> Iterable[Any]:
    """The first half of one stream, then the second half of another."""
    yield from islice(before, ROWS // 2)
    yield from islice(after, ROWS // 2)


def generated(make: Callable[[int], Any]) -> Callable[[int], Iterable[Any]]:
    """The first rows of a generator."""
    return lambda seed: islice(make(seed), ROWS)


def shipped(name: str) -> Callable[[int], Iterable[Any]]:
    """One of river's sets, the same for every seed."""
    return lambda seed: getattr(datasets, name)()


HALF = ROWS // 2
CASES: dict[str, Case] = {
    "Phishing": Case("classification", shipped("Phishing")),
    "Bananas": Case("classification", shipped("Bananas")),
    "ImageSegments": Case("classification", shipped("ImageSegments"), classes=7),
    "Agrawal": Case(
        "classification",
        lambda s: changed(synth.Agrawal(0, seed=s), synth.Agrawal(2, seed=s + 1)),
        change=HALF,
    ),
    "SEA": Case(
        "classification",
        lambda s: changed(synth.SEA(0, seed=s, noise=0.1), synth.SEA(3, seed=s + 1, noise=0.1)),
        change=HALF,
    ),
    "Hyperplane": Case(
        "classification",
        generated(
            lambda s: synth.Hyperplane(seed=s, n_features=10, n_drift_features=5, mag_change=0.001)
        ),
    ),
    "RandomRBFDrift": Case(
        "classification",
        generated(
            lambda s: synth.RandomRBFDrift(
                seed_model=s,
                seed_sample=s,
                n_classes=4,
                n_features=8,
                n_centroids=20,
                change_speed=0.0001,
                n_drift_centroids=10,
            )
        ),
        classes=4,
    ),
    "LEDDrift": Case(
        "classification",
        lambda s: changed(
            synth.LEDDrift(seed=s, noise_percentage=0.1, n_drift_features=0),
            synth.LEDDrift(seed=s + 1, noise_percentage=0.1, n_drift_features=5),
        ),
        classes=10,
        change=HALF,
    ),
    "TrumpApproval": Case("regression", shipped("TrumpApproval")),
    "ChickWeights": Case("regression", shipped("ChickWeights")),
    "WaterFlow": Case("regression", shipped("WaterFlow")),
    "FriedmanDrift": Case(
        "regression",
        generated(lambda s: synth.FriedmanDrift("gra", position=(HALF, 2 * ROWS // 3), seed=s)),
        change=HALF,
    ),
    "Planes2D": Case("regression", generated(lambda s: synth.Planes2D(seed=s))),
    "Mv": Case("regression", generated(lambda s: synth.Mv(seed=s))),
}


def table(name: str, seed: int) -> bs.streams.Table:
    """The stream as `bayestream run` would see it."""
    case = CASES[name]
    options = {"classes": case.classes} if case.task == "classification" else {}
    return bs.streams.table(case.rows(seed), target="target", task=case.task, **options)
