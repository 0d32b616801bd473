"""Hyper-parameters of replay and L-RVGA for the 1-d regression, on streams that are not shown.

    python -m bayestream.experiments.piecewise_tuning

prints the root mean square error over each grid, the mean of the streams of seeds 100 to 104; the
best is written down in `piecewise.toml`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from bayestream.experiments import piecewise
from bayestream.running.refusals import RefusedError

SEEDS = range(100, 105)
PRECISIONS = (0.1, 1.0, 10.0)
DRIFTS = (1e-5, 1e-3)
RATES = (1e-3, 3e-3, 1e-2, 3e-2)


def grid() -> Iterator[dict[str, Any]]:
    """All settings that are tried."""
    for rate, inner in product(RATES, (1, 10)):
        chosen = {"optimiser": {"adam": rate}, "inner_steps": inner}
        yield {"method": "replay_sgd", "buffer": 10, **chosen}
    for precision, drift in product(PRECISIONS, DRIFTS):
        yield {"method": "lrvga", "rank": 10, "prior_precision": precision, "drift": drift}


def error(settings: dict[str, Any]) -> float:
    """The mean over the streams; infinite if the method diverges on one."""
    try:
        return float(np.mean([piecewise.trial(settings, seed).overall for seed in SEEDS]))
    except RefusedError:
        return float("inf")


def main() -> None:
    """Print every setting with its error."""
    for settings in grid():
        print(f"{error(settings):.4f} {settings}", file=sys.stderr)


if __name__ == "__main__":
    main()
