"""Bayesian optimisation with an online network, beside Optuna's TPE and random search.

`python benchmarks/optimise.py` minimises Branin, Hartmann-6 and Ackley-10 with the untouched
default of `bs.optimise`, with Optuna's TPE (its defaults) and at random, seeds 0 to 19, prints the
medians and quartiles of the lowest value, and draws docs/figures/optimise.png. What is done is kept
in OUT/optimise.json, and a run that was stopped goes on from there; about 10 minutes on one core.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import jax
import matplotlib.pyplot as plt
import numpy as np
import optuna
from rich.console import Console
from rich.progress import track
from rich.table import Table

import bayestream as bs
from bayestream.decisions.benchmark_functions import BenchmarkFunction, ackley, branin, hartmann6

PROBLEMS = {
    "Branin": (branin(), 60),
    "Hartmann-6": (hartmann6(), 100),
    "Ackley-10": (ackley(), 150),
}
SEEDS = 20


def ours(problem: BenchmarkFunction, evaluations: int, seed: int) -> list[float]:
    """The values that the default finds, one after another."""
    optimiser = _optimiser(problem)
    found = bs.optimise.minimise(
        problem.function, optimiser, evaluations=evaluations, key=jax.random.key(seed)
    )
    return found.values.tolist()


_made: dict[int, Any] = {}


def _optimiser(problem: BenchmarkFunction) -> Any:
    """One of each space: it is compiled once, as it is for a user who goes on."""
    if id(problem) not in _made:
        _made[id(problem)] = bs.optimise.optimiser(problem.space)
    return _made[id(problem)]


def tpe(problem: BenchmarkFunction, evaluations: int, seed: int) -> list[float]:
    """The values that Optuna's default sampler finds."""

    def objective(trial: optuna.Trial) -> float:
        point = {
            n: trial.suggest_float(n, part.low, part.high) for n, part in problem.space.items()
        }
        return problem.function(point)

    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    study.optimize(objective, n_trials=evaluations)
    return [float(trial.value or 0.0) for trial in study.trials]


def at_random(problem: BenchmarkFunction, evaluations: int, seed: int) -> list[float]:
    """The values at points drawn evenly from the box."""
    rng = np.random.default_rng(seed)
    parts = problem.space.items()
    return [
        problem.function({name: rng.uniform(part.low, part.high) for name, part in parts})
        for _ in range(evaluations)
    ]


METHODS = {"bayestream": ours, "TPE": tpe, "random": at_random}


def table(done: dict[str, Any]) -> Table:
    """The lowest value of each method: median, quartiles, and seconds a run."""
    shown = Table(title=f"Lowest value, median of {SEEDS} seeds (quartiles), seconds a run")
    for name in ("function", "minimum", *METHODS):
        shown.add_column(name, no_wrap=True)
    for name, (problem, evaluations) in PROBLEMS.items():
        cells: list[str] = []
        for method in METHODS:
            runs = [done[f"{name} {method} {seed}"] for seed in range(SEEDS)]
            low, middle, high = np.percentile([min(r["values"]) for r in runs], [25, 50, 75])
            seconds = np.median([r["seconds"] for r in runs])
            cells.append(f"{middle:.3f} ({low:.3f}-{high:.3f}) {seconds:.1f}")
        shown.add_row(f"{name}, {evaluations}", f"{problem.minimum:.3f}", *cells)
    return shown


def draw(done: dict[str, Any], path: Path) -> None:
    """The regret against evaluations, median and quartiles."""
    figure, axes = plt.subplots(1, len(PROBLEMS), figsize=(10, 3.2), layout="constrained")
    styles = {"bayestream": ("C0", "-"), "TPE": ("C1", "--"), "random": ("0.5", ":")}
    for axis, (name, (problem, evaluations)) in zip(axes, PROBLEMS.items(), strict=True):
        steps = np.arange(1, evaluations + 1)
        for method, (colour, line) in styles.items():
            runs = [done[f"{name} {method} {seed}"]["values"] for seed in range(SEEDS)]
            regrets = np.minimum.accumulate(runs, axis=1) - problem.minimum
            low, middle, high = np.percentile(regrets, [25, 50, 75], axis=0)
            axis.plot(steps, middle, line, color=colour, label=method)
            axis.fill_between(steps, low, high, color=colour, alpha=0.2, linewidth=0)
        # A logarithm shows nothing where no method gets below a tenth.
        scale = "log" if axis.dataLim.y0 < 0.1 else "linear"
        axis.set(title=name, xlabel="evaluations", yscale=scale)
    axes[0].set_ylabel("lowest value less the minimum")
    axes[0].legend(frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def main() -> None:
    """Run what is not done yet, then print the table and draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out"))
    parser.add_argument("--figure", type=Path, default=Path("docs/figures/optimise.png"))
    options = parser.parse_args()
    path = options.out / "optimise.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    done: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    console = Console(width=130)
    cases = [(n, m, s) for n in PROBLEMS for m in METHODS for s in range(SEEDS)]
    cases = [case for case in cases if " ".join(map(str, case)) not in done]
    for name, method, seed in track(cases, "minimising", console=console):
        start = time.perf_counter()
        values = METHODS[method](*PROBLEMS[name], seed)
        seconds = time.perf_counter() - start
        done[f"{name} {method} {seed}"] = {"values": values, "seconds": seconds}
        path.write_text(json.dumps(done))
    console.print(table(done))
    draw(done, options.figure)


if __name__ == "__main__":
    main()
