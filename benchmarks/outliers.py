"""What dirt in the targets does to a filter: error and coverage on the clean rows.

`python benchmarks/outliers.py` prints, for LO-FI of rank 10 with its noise learnt on the way, what
Gaussian noise, outlier weights and Student's t make of clean data, of outliers, of an honest
change, and of river's regression sets. About 3 minutes.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import jax
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

import bayestream as bs

COUNT, WARM_UP, SEEDS = 3000, 200, 3


def weighted(threshold: float) -> Callable[[bs.Model], bs.Estimator]:
    """Gaussian noise, and outliers weighed."""
    return lambda model: bs.lofi(
        model, bs.likelihoods.adaptive_gaussian(), outlier_threshold=threshold
    )


def student_t(dof: float) -> Callable[[bs.Model], bs.Estimator]:
    """Noise with the tails of a Student's t."""
    return lambda model: bs.lofi(model, bs.likelihoods.adaptive_student_t(dof=dof))


LEARNERS: dict[str, Callable[[bs.Model], bs.Estimator]] = {
    "gaussian": lambda model: bs.lofi(model, bs.likelihoods.adaptive_gaussian()),
    **{f"gaussian, c = {c:g}": weighted(c) for c in (3.0, 4.0, 8.0)},
    **{f"student_t, ν = {nu:g}": student_t(nu) for nu in (4.0, 8.0, 20.0)},
}


class Data(NamedTuple):
    """A stream, its clean targets, and which rows to score."""

    x: Any
    y: Any  # (N, 1), as learnt
    clean: Any  # (N,)
    scored: Any  # (N,)


def synthetic(kind: str, seed: int) -> Data:
    """A smooth function of four inputs, with a kind of dirt, or with a change in the middle."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(COUNT, 4))
    late = np.arange(COUNT) >= COUNT // 2
    values = np.sin(x[:, 0]) + 0.5 * x[:, 1] * x[:, 2]
    values = np.where(late, -values, values) if kind == "abrupt change" else values
    clean = values + 0.15 * rng.normal(size=COUNT)
    y, dirty = clean.copy(), np.zeros(COUNT, bool)
    share = {"1% × 1,000": 100, "5% + N(0, 20²)": 20, "one of 1e12": COUNT, "one of 1e30": COUNT}
    if kind in share:
        dirty[rng.choice(np.arange(WARM_UP, COUNT), COUNT // share[kind], replace=False)] = True
    y[dirty] = {
        "1% × 1,000": 1000 * y[dirty],
        "5% + N(0, 20²)": y[dirty] + 20 * rng.normal(size=dirty.sum()),
        "one of 1e12": 1e12,
        "one of 1e30": 1e30,
    }.get(kind, y[dirty])
    return Data(x, y[:, None], clean, ~dirty & (np.arange(COUNT) >= WARM_UP))


def river(name: str, seed: int) -> Data:
    """One of river's sets, standardised on the way."""
    table = bs.streams.river(name)
    y = np.asarray(table.stream.examples.y)
    known = np.isfinite(y[:, 0]) & np.isfinite([row.scale for row in table.rows])
    return Data(np.asarray(table.stream.examples.x), y, y[:, 0], known)


SYNTHETIC = (
    "clean",
    "1% × 1,000",
    "5% + N(0, 20²)",
    "one of 1e12",
    "one of 1e30",
    "abrupt change",
)
KINDS: dict[str, tuple[Callable[[str, int], Data], int]] = {
    **dict.fromkeys(SYNTHETIC, (synthetic, SEEDS)),
    **dict.fromkeys(("TrumpApproval", "ChickWeights", "WaterFlow"), (river, 1)),
}


def forecast(estimator: bs.Estimator, state: Any, example: bs.Example) -> dict[str, Any]:
    """What is scored of a step."""
    found: Any = bs.predictive.default(estimator, state, example.x)
    low, high = found.interval(0.9)
    return {
        "mean": found.mean[0],
        "low": low[0],
        "high": high[0],
        "nlpd": -found.log_density(example.y),
    }


@cache
def learner_for(name: str, inputs: int) -> bs.Estimator:
    """One for all streams of so many inputs: it is compiled once."""
    return LEARNERS[name](bs.models.mlp([inputs, 50, 1]))


def scores(name: str, kind: str) -> str:
    """RMSE, coverage of the 90% interval, NLPD: the mean over seeds."""
    source, seeds = KINDS[kind]
    found: list[tuple[float, float, float]] = []
    for seed in range(seeds):
        data = source(kind, seed)
        learner = learner_for(name, data.x.shape[1])
        state = learner.init(jax.random.key(seed))
        _, records = bs.run(learner, state, (data.x, data.y), record=forecast, progress=False)
        kept = {name: np.asarray(records[name], float)[data.scored] for name in records.values}
        y = data.clean[data.scored]
        error = np.sqrt(np.mean((kept["mean"] - y) ** 2))
        covered = np.mean((kept["low"] <= y) & (y <= kept["high"]))
        found.append((float(error), float(covered), float(np.mean(kept["nlpd"]))))
    return " ".join(f"{value:.3g}" for value in np.mean(found, axis=0))


def main() -> None:
    """Print the table."""
    warnings.simplefilter("ignore", RuntimeWarning)  # of the refused 1e30
    console = Console(width=160)
    shown = Table("learner", *KINDS, title="RMSE, coverage of the 90% interval, NLPD: clean rows")
    for name in track(LEARNERS, "learning", console=console):
        shown.add_row(name, *(scores(name, kind) for kind in KINDS))
    console.print(shown)


if __name__ == "__main__":
    main()
