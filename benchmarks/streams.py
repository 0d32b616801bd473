"""The untouched default beside river's learners: fourteen streams, error, NLPD and time.

`python benchmarks/streams.py --out out` prints the table of docs/decisions.md. Every row is
forecast before it is learnt from. What is done is kept in OUT/streams.json, and a run that was
stopped goes on from there: seed after seed, about 25 minutes each.
"""

from __future__ import annotations

import argparse
import json
import math
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from itertools import islice, product
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table
from river import (
    compose,
    datasets,
    dummy,
    forest,
    linear_model,
    multiclass,
    preprocessing,
    stats,
    tree,
)
from river.datasets import synth

import bayestream as bs
from bayestream.cli.mixtures import distribution, log_density
from bayestream.cli.writers import record

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


class Score(NamedTuple):
    """How a learner did on a stream."""

    error: float  # misclassification, or the root mean square in the units of the target
    nlpd: float | None
    coverage: float | None  # of the 90% interval, over the second half
    after: float | None  # and over the 300 rows after a sudden change
    microseconds: float  # a row, after compilation


Make = Callable[[Sequence[int], Any], bs.Estimator]  # from sizes and likelihood


class Forecasts(NamedTuple):
    """What a learner said of every row before it learnt from it, in standardised units."""

    values: Any  # as `bayestream run` records them
    y: np.ndarray  # labels: classes, or numbers in units of the rows before
    scale: np.ndarray  # of these units; NaN before they are known
    microseconds: float  # a row, after compilation


def forecasts(make: Make, name: str, seed: int, *, times: int = 1) -> Forecasts:
    """A learner of this library on rows as `bayestream run` encodes them; the last time counts."""
    found, task = table(name, seed), CASES[name].task
    outputs = CASES[name].classes if task == "classification" else 1
    numbers, classes = bs.likelihoods.adaptive_student_t(), bs.likelihoods.categorical()
    sizes = [found.stream.examples.x.shape[1], 50, outputs]
    learner = make(sizes, numbers if outputs == 1 else classes)
    start = learner.init(jax.random.key(seed))
    values, spent = None, 0.0
    for _ in range(times):
        begin = time.perf_counter()
        _, records = bs.run(learner, start, found.stream, record=record, progress=False)
        values = jax.tree.map(np.asarray, records.values)
        spent = 1e6 * (time.perf_counter() - begin) / len(found.rows)
    if task == "classification":
        label = np.asarray(found.stream.examples.y, int)
        return Forecasts(values, label, np.ones(len(label)), spent)
    scale, centre, target = (
        np.array([getattr(row, field) for row in found.rows], float)
        for field in ("scale", "centre", "target")
    )
    return Forecasts(values, (target - centre) / scale, scale, spent)


def ours(make: Make) -> Callable[[str, int], Score]:
    """A learner of this library."""

    def score(name: str, seed: int) -> Score:
        values, y, scale, spent = forecasts(make, name, seed, times=2)  # the first compiles
        if CASES[name].task == "classification":
            p = values["probabilities"]
            chance = np.maximum(p[np.arange(len(y)), y], 1e-38)
            wrong = np.mean(p.argmax(axis=1) != y)
            return Score(float(wrong), float(-np.log(chance).mean()), None, None, spent)
        known = np.isfinite(scale)
        error = np.sqrt(np.mean((scale * (values["mean"] - y))[known] ** 2))
        nlpd = np.mean((np.log(scale) - log_density(y, values["parts"]))[known])
        rank = distribution(y, values["parts"])
        inside, change = (rank > 0.05) & (rank < 0.95), CASES[name].change
        after = None if change is None else float(inside[change : change + 300].mean())
        late = float(inside[len(y) // 2 :].mean())
        return Score(float(error), float(nlpd), late, after, spent)

    return score


def rivers(make: Callable[[str, int], Any]) -> Callable[[str, int], Score]:
    """A learner of river's on the rows as they are, dates in seconds."""

    def score(name: str, seed: int) -> Score:
        case, model = CASES[name], make(CASES[name].task, seed)
        losses, errors, begin = [], [], time.perf_counter()
        for row, (x, y) in enumerate(case.rows(seed)):
            x = {str(k): v.timestamp() if isinstance(v, datetime) else v for k, v in x.items()}
            if case.task == "classification":
                p = model.predict_proba_one(x)
                errors.append(max(p, key=p.get, default=None) != y)
                losses.append(-math.log(max(p.get(y, 0.0), 1e-3)))
            elif row >= 10:  # ours have no units before
                errors.append((model.predict_one(x) - y) ** 2)
            model.learn_one(x, y)
        spent = 1e6 * (time.perf_counter() - begin) / (row + 1)
        if case.task == "classification":
            return Score(float(np.mean(errors)), float(np.mean(losses)), None, None, spent)
        return Score(float(np.sqrt(np.mean(errors))), None, None, None, spent)

    return score


def one_hot() -> Any:
    """Each category as a number."""
    return compose.SelectType(str) | preprocessing.OneHotEncoder()


def linear(task: str, seed: int) -> Any:
    """Logistic or linear regression on standardised numbers and one-hot categories."""
    numbers = compose.SelectType((int, float)) | preprocessing.StandardScaler()
    columns = numbers + one_hot()
    if task == "classification":
        return columns | multiclass.OneVsRestClassifier(linear_model.LogisticRegression())
    return columns | preprocessing.TargetStandardScaler(linear_model.LinearRegression())


def adaptive_tree(task: str, seed: int) -> Any:
    """A Hoeffding tree that replaces branches which have become wrong."""
    if task == "classification":
        return tree.HoeffdingAdaptiveTreeClassifier(seed=seed)
    numbers = compose.SelectType((int, float))
    return (numbers + one_hot()) | tree.HoeffdingAdaptiveTreeRegressor(seed=seed)


def adaptive_forest(task: str, seed: int) -> Any:
    """Ten of them."""
    if task == "classification":
        return forest.ARFClassifier(n_models=10, seed=seed)
    numbers = compose.SelectType((int, float))
    return (numbers + one_hot()) | forest.ARFRegressor(n_models=10, seed=seed)


def simplest(task: str, seed: int) -> Any:
    """The most frequent class, or the running mean."""
    if task == "classification":
        return dummy.PriorClassifier()
    return dummy.StatisticRegressor(stats.Mean())


LEARNERS: dict[str, Callable[[str, int], Score]] = {
    "self-tuning": ours(bs.self_tuning),
    "lofi": ours(lambda sizes, likelihood: bs.lofi(bs.models.mlp(sizes), likelihood)),
    "linear": rivers(linear),
    "tree": rivers(adaptive_tree),
    "forest": rivers(adaptive_forest),
    "simplest": rivers(simplest),
}


def shown(done: dict[str, Any]) -> Table:
    """One row a stream, one column a learner: means over the seeds that are done."""
    found = Table(title="Error and, below it, NLPD; microseconds a row; coverage (after a change)")
    for column in ("stream", "seeds", *LEARNERS):
        found.add_column(column, no_wrap=True)
    for name in CASES:
        cells: list[str] = []
        for learner in LEARNERS:
            scores = [Score(*v) for k, v in done.items() if k.split()[:2] == [name, learner]]
            cells.append(_cell(scores))
        seeds = sum(k.split()[:2] == [name, "self-tuning"] for k in done)
        found.add_row(name, str(seeds), *cells)
    return found


def _cell(scores: Sequence[Score]) -> str:
    if not scores:
        return ""

    def mean(field: str) -> str:
        known = [v for v in (getattr(score, field) for score in scores) if v is not None]
        return f"{np.mean(known):.4g}" if known else ""

    covered = f"{mean('coverage')} {mean('after')}".strip()
    parts = (mean("error"), mean("nlpd"), f"{mean('microseconds')} µs", covered)
    return "\n".join(part for part in parts if part)


def main() -> None:
    """Run what is not done yet, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out"))
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    path = options.out / "streams.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    done: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    console = Console(width=120)
    warnings.simplefilter("ignore")  # river's, of libraries it would rather have
    cases = [
        (name, learner, seed)
        for seed, name, learner in product(range(options.seeds), CASES, LEARNERS)
        if f"{name} {learner} {seed}" not in done
    ]
    for name, learner, seed in track(cases, "learning", console=console):
        done[f"{name} {learner} {seed}"] = LEARNERS[learner](name, seed)
        path.write_text(json.dumps(done, indent=1))
        jax.clear_caches()
    console.print(shown(done))


if __name__ == "__main__":
    main()
