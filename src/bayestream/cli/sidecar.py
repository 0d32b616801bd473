"""forecasts.json: what the columns of forecasts.csv mean, and how the table was read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bayestream.cli.outputs import whole
from bayestream.cli.sources import Source


def checked_level(level: float) -> float:
    """What `--level` may be."""
    if not 0 < level < 1:
        raise ValueError(f"--level must be between 0 and 1, such as 0.9, got {level}.")
    return level


def describe(out: Path, source: Source, header: Sequence[str], level: float) -> None:
    """Write it, whole: once before the first row, and again when late classes have their names."""
    about: dict[str, Any] = {
        "task": source.task,
        "level": level,
        "columns": dict(zip(header, _with_key(source, _meanings(source, level)), strict=True)),
    }
    if source.plan is not None:
        about["target"] = source.plan.target.name
        about["files"] = list(source.plan.files)
        about["inputs"] = [
            {"name": column.name, "kind": column.kind, "why": column.why}
            for column in source.plan.columns
        ]
    with whole(out / "forecasts.json") as path:
        path.write_text(json.dumps(about, indent=2, ensure_ascii=False) + "\n", "utf-8")


def _with_key(source: Source, meanings: list[str]) -> list[str]:
    """In a fleet's file the key comes second."""
    place, *rest = meanings
    whose = [f"the row's {source.key}, which has a learner of its own"] if source.key else []
    return [place, *whose, *rest]


def _meanings(source: Source, level: float) -> list[str]:
    """Of each column, in their order."""
    place, target = "file and line, or number, of the row", "its target as written, if it has one"
    if source.task == "regression":
        below = (1 - level) / 2
        return [
            place,
            target,
            "mean of the forecast, made without the target, in its units; blank until these are "
            "known",
            "standard deviation of the forecast",
            f"lower end of the {level:.6g} interval: the target is below it with probability "
            f"{below:.6g}",
            f"upper end of the {level:.6g} interval: the target is above it with probability "
            f"{below:.6g}",
        ]
    return [
        place,
        target,
        "the most probable class, forecast without the target",
        "its probability",
        *(_probability(source, number) for number in range(source.outputs)),
        *([_of_later(source)] if source.more_classes else []),
    ]


def _probability(source: Source, number: int) -> str:
    names = [*source.names]
    known = source.labels
    if number < len(known):
        return f"probability of class {known[number]!r}"
    if number < len(names):
        return f"probability of class {names[number]!r}, which came late"
    return "probability of a class that has not come yet"


def _of_later(source: Source) -> str:
    later = [*source.names][source.outputs :]
    named = f": {', '.join(map(repr, later))}" if later else ""
    return f"probability of all classes that came later, together{named}"
