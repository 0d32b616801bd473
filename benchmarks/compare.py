"""Every registered estimator on one split of UCI energy, one pass: error, calibration and speed.

Each method has a few settings; the one with the best negative log predictive density on a tenth of
the training split, held out, is trained again on all of it and scored once on the test split. The
stream is standardised with the training split's statistics; errors are in the units of the data.
"""

from __future__ import annotations

import argparse
import json
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
from rich.console import Console
from rich.progress import track
from rich.table import Table
from speed import seconds

import bayestream as bs

PRIORS = [{"prior_precision": p} for p in (1.0, 10.0)]
RATES = [{"rate": rate} for rate in (1e-3, 1e-2)]  # of Adam
RANK = {"rank": 10}


def both(first: dict[str, Any], second: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each of the second with the first."""
    return [{**first, **options} for options in second]


SETTINGS: dict[str, list[dict[str, Any]]] = {
    # Linearised, bong is lofi.
    "bong": both({**RANK, "expectation": bs.expectations.empirical_fisher()}, PRIORS),
    "fcekf": PRIORS,
    "fdekf": PRIORS,
    "ggt": [{**RANK, **p, "learning_rate": a} for p, a in product(PRIORS, (0.3, 1.0))],
    "laplace": [{**p, **o} for p, o in product(PRIORS, RATES)],
    "lofi": both(RANK, PRIORS),
    "lofi_spherical": both(RANK, PRIORS),
    "lrvga": both(RANK, PRIORS),
    "ogd": RATES,
    "orfit": [RANK],
    "replay_sgd": both({"buffer": 10, "inner_steps": 10}, RATES),
    "slang": [{**RANK, **p, "learning_rate": a} for p, a in product(PRIORS, (0.03, 0.1))],
    "vdekf": PRIORS,
}
NOISES = (0.01, 0.05)


class Result(NamedTuple):
    """One row of the table."""

    method: str
    setting: str
    rmse: float
    nlpd: float
    microseconds: float


def trained(method: str, options: dict[str, Any], data: tuple[Any, Any]) -> tuple[Any, Any]:
    """The estimator and its state after one pass."""
    noise = options["noise"]
    given = {name: value for name, value in options.items() if name not in ("noise", "rate")}
    if "rate" in options:
        given["optimiser"] = optax.adam(options["rate"])
    model = bs.models.mlp([data[0].shape[1], 50, 1], activation=jax.nn.relu)
    learner = bs.make(method, model, bs.likelihoods.gaussian(noise), **given)
    state, _ = bs.run(
        learner,
        learner.init(jax.random.key(0)),
        data,
        record=None,
        key=jax.random.key(1),
        progress=False,
    )
    return learner, state


def forecast(learner: bs.Estimator, state: Any, x: np.ndarray) -> Any:
    """Linearised where there is a posterior, at the mean where there is none."""
    if learner.covariance_of is None:
        return bs.predictive.plugin(learner, state, x)
    return bs.predictive.linearized(learner, state, x)


def score(method: str, options: dict[str, Any], train: Any, held_out: Any) -> float:
    """The negative log predictive density of what was held out."""
    learner, state = trained(method, options, train)
    found = float(bs.scores.nlpd(forecast(learner, state, held_out[0]), held_out[1]))
    return found if np.isfinite(found) else float("inf")


def arrays(stream: bs.Stream) -> tuple[np.ndarray, np.ndarray]:
    """X and Y in single precision."""
    return stream.examples.x.astype(np.float32), stream.examples.y.astype(np.float32)


def measure(method: str, data: bs.streams.Split) -> Result:
    """Choose a setting on held-out training data, then score it on the test split."""
    whole = arrays(data.train.shuffle(0))
    cut = len(whole[0]) * 9 // 10
    train, held_out = (whole[0][:cut], whole[1][:cut]), (whole[0][cut:], whole[1][cut:])
    choices = [{**s, "noise": noise} for s, noise in product(SETTINGS[method], NOISES)]
    best = min(choices, key=lambda options: score(method, options, train, held_out))
    learner, state = trained(method, best, whole)
    x, y = arrays(data.test)
    found = forecast(learner, state, x)
    nlpd = float(bs.scores.nlpd(found, y)) + np.log(data.scale)
    start = learner.init(jax.random.key(0))
    key = jax.random.key(1)

    def body(state: Any, example: Any) -> tuple[Any, None]:
        return learner.update(learner.predict(state), *example, key), None

    scan = jax.jit(lambda state: jax.lax.scan(body, state, whole)[0])
    microseconds = 1e6 * seconds(lambda: scan(start)) / len(whole[0])
    shown = [name for name in best if name not in ("rank", "expectation")]
    setting = " ".join(f"{name}={best[name]}" for name in shown)
    rmse = data.scale * float(bs.scores.rmse(found, y))
    return Result(method, setting, rmse, float(nlpd), microseconds)


def main() -> None:
    """Measure every method, print a table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--split", type=int, default=0)
    parser.add_argument("--methods", nargs="+", default=list(SETTINGS))
    parser.add_argument("--out", type=Path, default=Path("out"))
    options = parser.parse_args()
    console = Console()
    data = bs.streams.uci("energy", split=options.split)
    results = [measure(m, data) for m in track(options.methods, "comparing", console=console)]
    shown = Table(title=f"UCI energy, split {options.split}, one pass, 50 hidden units")
    for name in ("method", "chosen", "RMSE", "NLPD", "µs/step"):
        shown.add_column(name, justify="left" if name in ("method", "chosen") else "right")
    for row in sorted(results, key=lambda row: row.nlpd):
        numbers = (f"{row.rmse:.3f}", f"{row.nlpd:.3f}", f"{row.microseconds:.0f}")
        shown.add_row(row.method, row.setting, *numbers)
    console.print(shown)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "compare.json"
    path.write_text(json.dumps([row._asdict() for row in results], indent=1))
    console.print(f"wrote {path}")


if __name__ == "__main__":
    main()
