"""Running what is not finished: trial by trial, in this process or over several."""

from __future__ import annotations

import itertools
import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from bayestream.evaluation import Results
from bayestream.experiments import registry, store
from bayestream.experiments.nouns import Experiment, Scale, Series
from bayestream.running.ray_cluster import connected
from bayestream.running.ray_tasks import spread

_BATCH_SECONDS = 30.0


class Job(NamedTuple):
    """One trial of a series."""

    series: Series
    trial: int


def jobs(experiments: Sequence[Experiment], scale: Scale, folder: Path) -> list[Job]:
    """The trials that are not finished, series by series."""
    return [
        Job(series, trial)
        for experiment in experiments
        for series in experiment.series(scale)
        for done in [store.finished(folder, series)]
        for trial in range(series.trials)
        if trial not in done
    ]


def matching(todo: Sequence[Job], parts: Sequence[str]) -> list[Job]:
    """Trials of series whose name has one of the parts in it; those of the first part come first.

    >>> lines = (Series("uci", "yacht x1", line, {}, 1, 1.0) for line in ("lofi-1", "fdekf", "ogd"))
    >>> todo = [Job(series, 0) for series in lines]
    >>> [job.series.line for job in matching(todo, ["fdekf", "yacht-x1/lofi"])]
    ['fdekf', 'lofi-1']
    """
    found = {job.series.name: [part in job.series.name for part in parts] for job in todo}
    wanted = [job for job in todo if any(found[job.series.name])]
    return sorted(wanted, key=lambda job: found[job.series.name].index(True))


def run(job: Job) -> Results:
    """One trial; the seconds it took are a metric of their own."""
    _only_programs_of(job.series.name)
    begin = time.perf_counter()
    found = registry.EXPERIMENTS[job.series.experiment].trial(job.series, job.trial)
    spent = time.perf_counter() - begin
    last = int(np.max(found["step"]))
    names = ("method", "metric", "summary", "trial", "step", "task", "value")
    wall = (job.series.line, "wall seconds", "trial", job.trial, last, 0, spent)
    return Results.joined([found, Results.of(**dict(zip(names, wall, strict=True)))])


def results(
    todo: Sequence[Job],
    processes: int,
    begin: Callable[[], None] | None = None,
    *,
    ray: str | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[tuple[Job, Results]]:
    """Every trial as it finishes; which process ran it makes no difference to its numbers.

    Processes of their own call `begin` first. With the address of a Ray cluster they are there,
    and end once `stop` says so.
    """
    if ray is not None:
        with connected(ray) as cluster:
            for place, found in spread(cluster, run, begin=begin)(todo, stop):
                yield todo[place], found
        return
    if processes == 1 or len(todo) < 2:
        for job in todo:
            yield job, run(job)
        return
    # JAX does not survive a fork.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(min(processes, len(todo)), context, _begin, (begin,))
    try:
        for batch in as_completed([pool.submit(_batch, own) for own in batches(todo)]):
            yield from batch.result()
    except BrokenProcessPool as error:
        raise RuntimeError(
            "a process that ran trials has died, perhaps for want of memory; what is finished is "
            "kept, and the same command goes on from there, best with fewer processes"
        ) from error
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in multiprocessing.active_children():
            child.terminate()


def batches(todo: Sequence[Job]) -> list[list[Job]]:
    """Trials one process runs in turn: of one series, so that its programs are compiled once.

    A batch is at most half a minute's work by estimate, for that much is lost at an interruption.
    """
    found = []
    for _, group in itertools.groupby(todo, lambda job: job.series.name):
        own = list(group)
        size = max(1, int(_BATCH_SECONDS / own[0].series.seconds))
        found += [own[first : first + size] for first in range(0, len(own), size)]
    return found


def found(experiment: Experiment, scale: Scale, folder: Path) -> Results:
    """All finished trials of an experiment at a scale, with a column for the world."""
    return Results.joined([store.load(folder, series) for series in experiment.series(scale)])


def _begin(begin: Callable[[], None] | None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that keeps results
    if begin is not None:
        begin()


@lru_cache(maxsize=1)
def _only_programs_of(series: str) -> None:
    """Forget what was compiled for another series: some 400 fill a process's table of memory."""
    jax.clear_caches()


def _batch(own: list[Job]) -> list[tuple[Job, Results]]:
    return [(job, run(job)) for job in own]
