"""Settings for split Fashion-MNIST, on training images kept for tuning alone.

    python -m bayestream.experiments.split_tuning

prints, for each of the paper's methods, the best of 20 points: the mean NLL one step ahead on a
stream of the first tenth of the training images. They are written down in `fashion.toml`.
"""

from __future__ import annotations

import sys
from typing import Any

import jax
import numpy as np
import optax

from bayestream import likelihoods, streams, tuning
from bayestream.estimators.spaces import Range, Space
from bayestream.experiments import image_trials, images
from bayestream.forecasts import predictive
from bayestream.streams import drifts
from bayestream.types import Stream

SEED = 100
POINTS = 20
_FILTER: Space = {"prior_precision": Range(1.0, 1e3), "drift": Range(1e-12, 1e-2)}
_FULL_STEP: dict[str, Any] = {"line_search": None}
# Line: method, what is given, what is searched.
SEARCHES: dict[str, tuple[str, dict[str, Any], Space]] = {
    **{method: (method, _FULL_STEP, _FILTER) for method in ("fdekf", "vdekf")},
    **{
        f"{name}-rb-{buffer}": (
            "replay_sgd",
            {"buffer": buffer},
            {"optimiser": Range(1e-5, 1e-1, make=make)},
        )
        for name, make in (("sgd", optax.sgd), ("adam", optax.adam))
        for buffer in (1, 10)
    },
    **{f"lofi-{rank}": ("lofi", {"rank": rank, **_FULL_STEP}, _FILTER) for rank in (1, 10)},
}


def stream() -> Stream:
    """The split stream as the experiment has it, of images that it never shows."""
    kept = streams.fashion_mnist("train").select(np.arange(images.VALIDATION)).shuffle(SEED)
    return drifts.split_classes(kept, images.PAIRS, length=images.TASK)


def main() -> None:
    """Print every line's best point with its loss, as it is found."""
    objective = tuning.tune.prequential(stream(), forecast=predictive.plugin, seed=SEED)
    model = image_trials.network("split", 1)
    for line, (method, fixed, space) in SEARCHES.items():
        found = tuning.tune.tune(
            method,
            model,
            likelihoods.bernoulli(),
            objective,
            fixed=fixed,
            space=space,
            trials=POINTS,
            progress=False,
        )
        print(f"{line}: {found.best}, NLL {found.value:.4f}", file=sys.stderr)
        jax.clear_caches()


if __name__ == "__main__":
    main()
