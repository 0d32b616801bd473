"""Streams of images, looked at: curves of every metric, and tables of means over the stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bayestream.evaluation import Results, plots
from bayestream.experiments import pictures
from bayestream.experiments.nouns import Rows
from bayestream.experiments.verdicts import losses


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
                    values = np.array([*losses(results, world, line, metric, step).values()])
                    count = len(values)
                    spread = float(np.std(values, ddof=1) / np.sqrt(count)) if count > 1 else None
                    row |= {name: float(np.mean(values)), f"± {name}": spread}
                rows.append({**row, "trials": count})
    return {"losses": rows}


def draw(
    worlds: Sequence[str], *, task: int | None = None
) -> Callable[[Results, Path], list[Path]]:
    """One picture a world, one panel a metric; tasks begin every `task` steps."""

    def pictured(results: Results, folder: Path) -> list[Path]:
        found: list[Path] = []
        for world in worlds:
            rows = results.where(world=world, summary="held out")
            if not len(rows):
                continue
            figure = plots.curves(rows)
            for ax in figure.axes if task else ():
                for change in range(task or 0, int(rows["step"].max()), task or 1):
                    ax.axvline(change, color="0.8", lw=0.8, zorder=0)
            name = world.replace(" ", "-")
            found.append(pictures.save(figure, folder / f"{name}.png"))
        return found

    return pictured
