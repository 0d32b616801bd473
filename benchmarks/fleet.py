"""What a step of a fleet costs a learner, beside a step of a learner alone, in turn; least of each.

Those of one learner are short, so that on a busy machine some of them meet an idle core; a fleet's
need both cores idle. The first rounds, in which beliefs fill up, are not counted.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import bayestream as bs
from bayestream.running.run import learn

SIZES = [8, 50, 1]  # 501 weights
ALONE = 200  # rows of a round of one learner


def seconds(work: Callable[[], Any]) -> float:
    """How long it takes."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def main() -> None:
    """Print microseconds a learner and step for each number of threads."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--learners", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--still", action="store_true", help="without decay and drift")
    given = parser.parse_args()
    dynamics = {} if given.still else {"decay": 0.999, "drift": 1e-6}
    model = bs.models.mlp(SIZES, activation=jax.nn.relu)
    learner = bs.lofi(model, bs.likelihoods.gaussian(0.1), rank=10, **dynamics)
    start = learner.init(jax.random.key(0))
    x = np.random.default_rng(0).normal(size=(given.learners, SIZES[0])).astype(np.float32)
    y = x[:, :1]
    keys = list(range(given.learners))
    fleets = {threads: bs.fleet(learner, start, threads=threads) for threads in given.threads}
    states = [start]

    def alone() -> None:
        rows = (x[:ALONE], y[:ALONE])
        states[0], _ = learn(learner, states[0], rows, record=None, progress=False)
        jax.block_until_ready(states[0])

    found: dict[str, list[float]] = {"alone": []}
    for turn in range(given.rounds + 12):
        counted = turn >= 12
        took = min(seconds(alone) for _ in range(10)) / ALONE
        found["alone"] += [took] * counted
        for threads, fleet in fleets.items():
            took = seconds(lambda fleet=fleet: fleet.learn(keys, (x, y), record=None))
            found.setdefault(f"{threads} threads", [])
            found[f"{threads} threads"] += [took / given.learners] * counted
    least = {name: min(times) for name, times in found.items()}
    for name, best in least.items():
        median = np.median(found[name])
        print(
            f"{name:>10}: least {1e6 * best:5.2f} µs, median {1e6 * median:5.2f}; "
            f"{best / least['alone']:.2f} of a learner alone"
        )


if __name__ == "__main__":
    main()
