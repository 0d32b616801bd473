"""What `categorical(columns=K)` loses, and what a forecast of 10,000 classes takes.

`python benchmarks/outputs.py` prints the errors of LO-FI of rank 10 on 10,000 classes with 2, 10
and 100 columns, the time of a forecast of 100 inputs there, and errors on Fashion-MNIST with 10 and
5 columns; `--parts forecasts` some of it. About a quarter of an hour on one core. What a step costs
is in `benchmarks/speed.py`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console

import bayestream as bs
from bayestream.experiments import image_trials, lines

CLASSES, GROUPS, INPUTS, HIDDEN = 10_000, 100, 16, 32


def many_classes(seed: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs about 10,000 centres in 100 groups; the n-th most frequent class has weight 1/n."""
    rng = np.random.default_rng(seed)
    groups = np.repeat(rng.normal(size=(GROUPS, INPUTS)), CLASSES // GROUPS, axis=0)
    centres = groups + 0.5 * rng.normal(size=groups.shape)
    weights = 1 / np.arange(1, CLASSES + 1)
    y = rng.permutation(CLASSES)[rng.choice(CLASSES, size=count, p=weights / weights.sum())]
    return (centres[y] + 0.1 * rng.normal(size=(count, INPUTS))).astype(np.float32), y


def is_wrong(learner: bs.Estimator, state: Any, example: Any) -> Any:
    """A record: whether the most probable class is another."""
    eta = learner.model.apply(learner.mean(state), example.x)
    return jnp.argmax(eta) != example.y


def learner_of(sizes: list[int], columns: int | None, **options: Any) -> bs.Estimator:
    """LO-FI of rank 10."""
    model = bs.models.mlp(sizes, activation=jax.nn.relu)
    return bs.lofi(model, bs.likelihoods.categorical(columns=columns), rank=10, **options)


def classes(console: Console, seeds: int, examples: int) -> None:
    """Errors over the last half, before each example is learnt, for several numbers of columns."""
    for columns in (2, 10, 100):
        learner = learner_of([INPUTS, HIDDEN, CLASSES], columns, prior_precision=1.0)
        errors: list[float] = []
        begin = time.perf_counter()
        for seed in range(seeds):
            stream = many_classes(seed, examples)
            start = learner.init(jax.random.key(seed))
            _, records = bs.run(learner, start, stream, record=is_wrong, progress=False)
            errors.append(float(np.mean(records.values[examples // 2 :])))
        took = (time.perf_counter() - begin) / seeds / examples
        console.print(
            f"10,000 classes, {columns} columns: error {np.mean(errors):.4f} "
            f"({', '.join(f'{error:.3f}' for error in errors)}), {1e3 * took:.1f} ms a step"
        )


def forecasts(console: Console) -> None:
    """A forecast of 100 inputs, compiled, and one more."""
    learner = learner_of([INPUTS, HIDDEN, CLASSES], 10, prior_precision=1.0)
    x, y = many_classes(0, 300)
    state, _ = bs.run(learner, learner.init(jax.random.key(0)), (x[:200], y[:200]), record=is_wrong)
    key = jax.random.key(1)
    ways: dict[str, Callable[[], Any]] = {
        "plugin": lambda: bs.predictive.plugin(learner, state, x[200:]),
        "probit": lambda: bs.predictive.probit(learner, state, x[200:]),
        "linearized_monte_carlo": lambda: bs.predictive.linearized_monte_carlo(
            learner, state, x[200:], key, samples=20
        ),
    }
    for name, way in ways.items():
        times: list[float] = []
        for _ in range(2):
            begin = time.perf_counter()
            forecast = way()
            nlpd = float(bs.scores.nlpd(forecast, y[200:]))
            error = float(bs.scores.misclassification(forecast, y[200:]))
            times.append(time.perf_counter() - begin)
        console.print(
            f"{name} of 100 inputs: {times[0]:.2f} s, again {times[1]:.2f} s; "
            f"NLPD {nlpd:.2f}, error {error:.2f}"
        )


def fashion(console: Console, seeds: int) -> None:
    """Errors on 2,000 test images after 1,000 examples, and differences from all columns."""
    settings = lines.read("fashion")["stationary"]["lofi-ls-10"]
    errors: dict[int, list[float]] = {}
    for columns in (10, 5):
        likelihood = bs.likelihoods.categorical(columns=columns)
        learner = lines.learner(image_trials.network("stationary"), likelihood, settings)
        errors[columns] = [fashion_error(learner, seed) for seed in range(seeds)]
        apart = np.subtract(errors[columns], errors[10])
        console.print(
            f"Fashion-MNIST, {columns} columns: {np.mean(errors[columns]):.4f} "
            f"± {np.std(errors[columns], ddof=1) / seeds**0.5:.4f}, less that of 10, seed by seed, "
            f"{apart.mean():+.4f} ± {apart.std(ddof=1) / seeds**0.5:.4f}"
        )


def fashion_error(learner: bs.Estimator, seed: int) -> float:
    """Misclassification after one pass over 1,000 examples."""
    train, tests = image_trials.WORLDS["stationary"](seed, 1_000)
    state = learner.init(jax.random.key(seed))
    state, _ = bs.run(learner, state, train, record=None, progress=False)
    test = tests(1_000)
    return float(bs.scores.misclassification(bs.predictive.plugin(learner, state, test.x), test.y))


def main() -> None:
    """Print what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parts = ("classes", "forecasts", "fashion")
    parser.add_argument("--parts", nargs="+", choices=parts, default=parts)
    parser.add_argument("--seeds", type=int, default=10, help="of Fashion-MNIST")
    parser.add_argument("--class-seeds", type=int, default=2, help="of the 10,000 classes")
    parser.add_argument("--examples", type=int, default=2_000, help="of the 10,000 classes")
    options = parser.parse_args()
    console = Console(width=120)
    if "classes" in options.parts:
        classes(console, options.class_seeds, options.examples)
    if "forecasts" in options.parts:
        forecasts(console)
    if "fashion" in options.parts:
        fashion(console, options.seeds)


if __name__ == "__main__":
    main()
