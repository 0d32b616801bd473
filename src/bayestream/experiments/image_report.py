"""Streams of images, looked at: curves of every metric, and tables of means over the stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bayestream.evaluation import Results
from bayestream.experiments import pictures
from bayestream.experiments.nouns import Rows
from bayestream.experiments.verdicts import losses, standard_error


def tables(results: Results) -> Mapping[str, Rows]:
    """Every line and metric: the mean over the stream and after the last example."""
    rows: list[dict[str, Any]] = []
    for world in results.unique("world"):
        for line in results.where(world=world).unique("method"):
            own = results.where(world=world, method=line)
            for metric in own.unique("metric"):
                if metric == "wall seconds" or metric.startswith("class "):
                    continue
                row: dict[str, Any] = {"world": world, "line": line, "metric": metric}
                for name, step in (("over the stream", -1), ("at the end", None)):
                    values = [*losses(results, world, line, metric, step).values()]
                    row |= {name: float(np.mean(values)), f"± {name}": standard_error(values)}
                rows.append({**row, "trials": len(values)})
    return {"losses": rows}


def draw(
    world: str,
    shown: Mapping[str, Sequence[str]],
    *,
    task: int | None = None,
    metric: Mapping[str, str] | None = None,
) -> Callable[[Results, Path], list[Path]]:
    """Pictures of some lines each, by name, one panel a metric; tasks begin every `task` steps.

    Those that `metric` names have that one alone.
    """

    def pictured(results: Results, folder: Path) -> list[Path]:
        found: list[Path] = []
        for name, lines in shown.items():
            rows = pictures.only(results.where(world=world, summary="held out"), lines)
            if metric and name in metric:
                rows = rows.where(metric=metric[name])
            if not len(rows):
                continue
            figure = pictures.curves(rows, task=task)
            found.append(pictures.save(figure, folder / f"{name}.png"))
        return found

    return pictured
