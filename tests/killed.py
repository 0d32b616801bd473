"""Kill a checkpointed run with SIGKILL at random moments, start it again each time, let it end.

A program of its own: it imports everything once and forks before JAX has a thread, so that a life
costs a second. Most lives end soon after their first checkpoint, some before it. Prints how many
were killed, and how many runs they made up.

    python killed.py library|cli|growing|keyed FOLDER KILLS SEED
"""

import contextlib
import importlib
import os
import random
import select
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np

import bayestream as bs

STEPS = 400
EVERY = 5
AFTER = 0.15  # seconds of a life from its first checkpoint on, at most
BEFORE = 1.5  # of one that is killed without waiting for that


def learner() -> bs.Estimator:
    return bs.lofi(bs.models.mlp([2, 3, 1]), bs.likelihoods.adaptive_gaussian(), rank=2, drift=1e-4)


def stream() -> bs.Stream:
    """With labels that come late, so that some wait at every checkpoint."""
    rng = np.random.default_rng(0)
    xs = rng.normal(size=(STEPS, 2))
    ys = np.sin(xs.sum(axis=1, keepdims=True)) + 0.1 * rng.normal(size=(STEPS, 1))
    return bs.Stream(bs.Example(xs, ys, 0, rng.integers(0, 8, STEPS)))


def library(folder: Path) -> None:
    made = learner()
    state = made.init(jax.random.key(0))
    saved = bs.Checkpoints(folder / "saved", every=EVERY)
    bs.run(made, state, stream(), record=None, checkpoints=saved)


def write_table(path: Path) -> None:
    """Numbers, a category, a date, a missing value here and a broken line there."""
    rng = np.random.default_rng(0)
    size, colour = rng.normal(3, 2, STEPS), rng.choice(["red", "blue"], STEPS)
    y = 10 * size + np.where(colour == "red", 20.0, -20.0) + rng.normal(size=STEPS)
    sold = np.datetime64("2024-01-01") + np.arange(STEPS)
    cells = zip(size, colour, sold, y, strict=True)
    rows = [f"{a:.3f},{c},{d},{b:.3f}" for a, c, d, b in cells]
    rows[7::50] = ["1.0,red"] * len(rows[7::50])
    rows[9::50] = [f",blue,,{b:.3f}" for b in y[9::50]]
    path.write_text("\n".join(["size,colour,sold,y", *rows]) + "\n")


def write_growing_table(path: Path) -> None:
    """Categories and classes that keep coming."""
    rng = np.random.default_rng(0)
    place = rng.integers(1 + np.arange(STEPS) // 20)
    rows = [f"{rng.normal():.3f},place {n},kind {n // 2}" for n in place]
    path.write_text("\n".join(["size,place,y", *rows]) + "\n")


def write_keyed_table(path: Path) -> None:
    """Sensors that keep coming, a row without one here and there."""
    rng = np.random.default_rng(0)
    sensor = rng.integers(1 + np.arange(STEPS) // 20)
    size = rng.normal(size=STEPS)
    rows = [f"sensor {n},{a:.3f},{n * a:.3f}" for n, a in zip(sensor, size, strict=True)]
    rows[11::50] = [f",{a:.3f},1" for a in size[11::50]]
    path.write_text("\n".join(["sensor,size,y", *rows]) + "\n")


def cli(folder: Path, table: str = "table.csv", *more: object) -> None:
    from bayestream.cli.main import application

    call = ["run", "--data", folder.parent / table, "--target", "y", "--method", "lofi", *more]
    call += ["--hidden", 3, "--rank", 2, "--block", EVERY, "--out", folder / "out"]
    call += ["--checkpoint", folder / "saved", "--every", 2 * EVERY]
    application()([str(argument) for argument in call], standalone_mode=False)


def growing(folder: Path) -> None:
    cli(folder, "growing.csv", "--head", 50)


def keyed(folder: Path) -> None:
    cli(folder, "keyed.csv", "--head", 50, "--key", "sensor", "--pooled")


def live(run: Callable[[Path], None], folder: Path, before: float, after: float) -> bool:
    """One life, killed so long after its first checkpoint or its start; whether it ended itself."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        _live(run, folder, writer)
    os.close(writer)
    if select.select([reader], [], [], before)[0]:
        end = time.monotonic() + after
        while os.read(reader, 1000):  # of a process that has ended, nothing
            if not select.select([reader], [], [], max(0.0, end - time.monotonic()))[0]:
                break
    os.kill(child, signal.SIGKILL)
    os.close(reader)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, -signal.SIGKILL), code
    return code == 0


def _live(run: Callable[[Path], None], folder: Path, writer: int) -> None:
    fsync, code = os.fsync, 1

    def first_checkpoint(file: int) -> None:
        os.write(writer, b".")
        fsync(file)

    os.fsync = first_checkpoint
    try:
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
            run(folder)
        code = 0
    finally:
        os._exit(code)


def main(kind: str, folder: Path, kills: int, seed: int) -> None:
    run = {"library": library, "cli": cli, "growing": growing, "keyed": keyed}[kind]
    random.seed(seed)
    folder.mkdir()
    learner()  # imports, but begins nothing
    write_table(folder / "table.csv")
    write_growing_table(folder / "growing.csv")
    write_keyed_table(folder / "keyed.csv")
    importlib.import_module("bayestream.running" if kind == "library" else "bayestream.cli.main")
    assert live(run, folder / "whole", 3600, 3600)
    killed, runs = 0, 0
    while killed < kills:
        runs, ended = runs + 1, False
        while not ended:
            if killed >= kills:
                before = after = 3600.0
            else:
                before = random.choice([3600, 3600, 3600, random.uniform(0, BEFORE)])
                after = random.uniform(0, AFTER)
            ended = live(run, folder / f"run-{runs}", before, after)
            killed += not ended
    print(killed, runs)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
