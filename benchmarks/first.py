"""How soon the first result is there, and what a busy machine does to a step.

`python benchmarks/first.py` starts the command line on a CSV of 1,000 rows, with an empty cache and
again with what it has kept; times `bs.step` call by call; and every estimator alone, then beside a
process that counts and one that multiplies matrices. P = 501 but for the command line, no variable
is set, and the rest of the machine should be idle. About 4 minutes.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
from rich.console import Console
from rich.progress import track
from rich.table import Table
from speed import problem

import bayestream as bs

BUSY = {
    "a loop": "while True: pass",
    "matrices": "import numpy as np\na = np.ones((600, 600))\nwhile True: a @ a",
}
LEAST = 0.3  # seconds that one measurement takes, longer than a scheduler's whims


@contextmanager
def beside(work: str) -> Iterator[None]:
    """Another process at work meanwhile."""
    process = subprocess.Popen([sys.executable, "-c", BUSY[work]])
    time.sleep(1)  # it imports
    try:
        yield
    finally:
        process.kill()
        process.wait()


def seconds(work: Callable[[], Any], *, repeats: int = 5) -> float:
    """The median of some calls; the first, with its compilation, is not counted."""
    times: list[float] = []
    for _ in range(repeats + 1):
        begin = time.perf_counter()
        jax.block_until_ready(work())
        times.append(time.perf_counter() - begin)
    return float(np.median(times[1:]))


def stalls(name: str) -> dict[str, float]:
    """How many times as long an estimator's step takes beside each kind of work."""
    descends = name in ("ogd", "replay_sgd")
    options = {"optimiser": optax.adam(1e-3)} if descends else {}
    steps = 500
    model, likelihood, (xs, ys) = problem("501", 1, steps)
    learner = bs.make(name, model, likelihood, **options)
    key = jax.random.key(0)
    start = learner.init(key)

    def once(times: int) -> Any:
        return [
            bs.run(learner, start, (xs, ys), record=None, key=key, progress=False)[0]
            for _ in range(times)
        ]

    times = max(1, round(LEAST / seconds(lambda: once(1))))
    alone = seconds(lambda: once(times))
    found: dict[str, float] = {}
    for work in BUSY:
        with beside(work):
            found[work] = seconds(lambda: once(times)) / alone
    return found


def step_seconds() -> float:
    """One call of `bs.step`, after the first."""
    model, likelihood, (xs, ys) = problem("501", 1, 2000)
    learner = bs.lofi(model, likelihood)
    state, times = learner.init(jax.random.key(0)), []
    for x, y in zip(xs, ys, strict=True):
        begin = time.perf_counter()
        state, _ = jax.block_until_ready(bs.step(learner, state, x, y))
        times.append(time.perf_counter() - begin)
    return float(np.median(times[1:]))


def commands() -> tuple[float, float]:
    """`bayestream run` from start to exit: with nothing kept, and the median with it."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1000, 8))
    y = np.sin(x @ rng.normal(size=8)) + 0.1 * rng.normal(size=1000)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        names = ",".join(["price", *(f"x{column}" for column in range(8))])
        rows = np.column_stack([y, x])
        np.savetxt(folder / "rows.csv", rows, "%.6g", ",", header=names, comments="")
        command = [Path(sys.executable).with_name("bayestream"), "run", "--target", "price"]
        command += ["--data", folder / "rows.csv", "--out", folder / "out"]
        kept = os.environ | {"BAYESTREAM_CACHE": str(folder / "kept")}

        def once() -> float:
            begin = time.perf_counter()
            subprocess.run(command, env=kept, check=True, stdout=subprocess.DEVNULL)
            return time.perf_counter() - begin

        subprocess.run([command[0], "--help"], check=True, stdout=subprocess.DEVNULL)  # bytecode
        cold = once()
        return cold, float(np.median([once() for _ in range(3)]))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", nargs="*", default=list(bs.estimators.REGISTRY))
    options = parser.parse_args()
    console = Console()
    shown = Table(title="First results, and a busy machine")
    for name in ("work", "bar", "measured"):
        shown.add_column(name)
    cold, warm = commands()
    shown.add_row("bayestream run, 1,000 rows, nothing kept", "≤ 6 s", f"{cold:.1f} s")
    shown.add_row("same, programs kept", "≤ 3.5 s", f"{warm:.1f} s")
    shown.add_row("bs.step, lofi rank 10", "≤ 150 µs", f"{1e6 * step_seconds():.0f} µs")
    for name in track(options.methods, "measuring", console=console):
        for work, ratio in stalls(name).items():
            shown.add_row(f"{name} beside {work} ÷ alone", "≤ 2.5", f"{ratio:.2f}")
    console.print(shown)


if __name__ == "__main__":
    main()
