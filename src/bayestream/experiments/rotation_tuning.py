"""The rate of replayed SGD for the angles of shirts, on training images kept for tuning alone.

    python -m bayestream.experiments.rotation_tuning

prints the mean NLL one step ahead for each rate, over the streams of seeds 100 and 101; the best is
written down in `rotation.toml`. The research code's rate of 0.029 diverges here.
"""

from __future__ import annotations

import sys

import jax
import numpy as np

from bayestream import likelihoods, streams
from bayestream.experiments import image_trials, images, lines
from bayestream.running.refusals import RefusedError
from bayestream.running.run import run
from bayestream.streams import drifts
from bayestream.types import Stream

SEEDS = (100, 101)
STEPS = 1_200
RATES = (0.029, 0.01, 0.003, 0.001, 0.0003)


def stream(seed: int) -> Stream:
    """Shirts of the first tenth of the training images, twice each, at random angles."""
    kept = streams.fashion_mnist("train").select(np.arange(images.VALIDATION))
    shirts = drifts.repeat(drifts.only_classes(kept, [2]), 3, seed=seed).take(STEPS)
    return drifts.rotation_regression(shirts, np.random.default_rng(seed).uniform(0, 180, STEPS))


def mean_loss(rate: float) -> float:
    """Over the streams; infinite if it diverges on one."""
    settings = {"method": "replay_sgd", "buffer": 10, "optimiser": {"sgd": rate}}
    noise = likelihoods.gaussian(image_trials.NOISE)
    learner = lines.learner(image_trials.network("turned", 1), noise, settings)
    found: list[float] = []
    for seed in SEEDS:
        start = learner.init(jax.random.key(seed))
        try:
            _, records = run(learner, start, stream(seed), progress=False)
        except RefusedError:
            return float("inf")
        found.append(-float(np.mean(records["log_density"])))
    return float(np.mean(found))


def main() -> None:
    """Print every rate with its loss."""
    for rate in RATES:
        print(f"{rate}: {mean_loss(rate):.4f}", file=sys.stderr)


if __name__ == "__main__":
    main()
