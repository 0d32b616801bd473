"""Does a weak prior make a filter diverge? River's classes, full step beside line search.

`python benchmarks/divergence.py --out out` prints, for every filter and prior precision, the error
of the worst of three seeds over the last half of the stream. What is done is kept in
OUT/divergence.json, and a run that was stopped goes on from there; about 20 minutes on two cores.
"""

from __future__ import annotations

import argparse
import json
import warnings
from itertools import product
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

import bayestream as bs

METHODS = ("lofi", "lofi_spherical", "fcekf", "fdekf", "vdekf", "bong")
PRECISIONS = (0.01, 0.1, 1.0, 10.0, 1000.0)
SETS = ("Phishing", "Bananas", "ImageSegments")
SEARCHES = {"line search": bs.line_search.halving(), "full step": None}
SEEDS = 3


def worst(method: str, precision: float, name: str, search: str) -> float:
    """The largest error of the seeds over the last half; infinite if a belief was lost."""
    stream = bs.streams.river(name).stream
    x, y = np.asarray(stream.examples.x), np.asarray(stream.examples.y)
    learner = bs.make(
        method,
        bs.models.mlp([x.shape[1], 50, int(y.max()) + 1]),
        bs.likelihoods.categorical(),
        prior_precision=precision,
        line_search=SEARCHES[search],
    )
    keys = list(jax.random.split(jax.random.key(0), SEEDS))
    starts = [learner.init(key) for key in keys]
    try:
        states, records = bs.run_together(learner, starts, [stream] * SEEDS, keys=keys)
    except bs.RefusedError:
        return np.inf
    finite = all(np.isfinite(learner.mean(state)).all() for state in states)
    half = len(y) // 2
    errors = [np.mean(np.argmax(r["prediction"], axis=1)[half:] != y[half:]) for r in records]
    return float(max(errors)) if finite else np.inf


def frequent(name: str) -> float:
    """The error of the most frequent class over the last half."""
    y = np.asarray(bs.streams.river(name).stream.examples.y, int)
    late = y[len(y) // 2 :]
    return float(1 - np.bincount(late).max() / len(late))


def table(done: dict[str, Any]) -> Table:
    """One row a filter and data set, line search / full step for each precision."""
    shown = Table(title="Error over the last half, worst of 3 seeds: line search / full step")
    for name in ("data", "filter", *(f"η₀ = {precision:g}" for precision in PRECISIONS)):
        shown.add_column(name, no_wrap=True)
    for name in SETS:
        shown.add_row(name, "most frequent", *([f"{frequent(name):.3f}"] * len(PRECISIONS)))
        for method in METHODS:
            cells = [
                " / ".join(f"{done[key(method, p, name, s)]:.3f}" for s in SEARCHES)
                for p in PRECISIONS
            ]
            shown.add_row(name, method, *cells)
    return shown


def key(*case: Any) -> str:
    """A case's name in the file."""
    return " ".join(map(str, case))


def main() -> None:
    """Run what is not done yet, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out"))
    path = parser.parse_args().out / "divergence.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    done: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    console = Console(width=150)
    warnings.simplefilter("ignore", RuntimeWarning)  # of refused updates, which is what is asked
    cases = [(*case, search) for search in SEARCHES for case in product(METHODS, PRECISIONS, SETS)]
    cases = [case for case in cases if key(*case) not in done]
    for case in track(cases, "learning", console=console):
        done[key(*case)] = worst(*case)
        path.write_text(json.dumps(done, indent=1))
        jax.clear_caches()
    console.print(table(done))


if __name__ == "__main__":
    main()
