"""Results as a tidy table: one row a step, metric, method and trial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Column = NDArray[Any]
# What makes two rows measurements of the same thing, but for the trial.
_SAME = ("method", "metric", "summary", "step")


@dataclass(frozen=True)
class Results:
    """Equally long columns: method, metric, summary, trial, step, task, value.

    >>> results = Results.of(method="lofi", metric="rmse", summary="each", trial=[0, 1], step=1,
    ...                      task=0, value=[2.0, 4.0])
    >>> len(results), results.where(trial=1)["value"].tolist()
    (2, [4.0])
    >>> results.averaged()["mean"].tolist(), results.averaged()["error"].tolist()
    ([3.0], [1.0])
    """

    columns: Mapping[str, Column]

    @classmethod
    def of(cls, **columns: Any) -> Results:
        """From columns; a single value stands for a column of it."""
        arrays = {name: _column(values) for name, values in columns.items()}
        count = max((array.size for array in arrays.values() if array.ndim), default=1)
        return cls({name: np.broadcast_to(array, count) for name, array in arrays.items()})

    @classmethod
    def joined(cls, parts: Sequence[Results]) -> Results:
        """The rows of several tables with the same columns."""
        names = parts[0].columns if parts else ()
        return cls({name: np.concatenate([part[name] for part in parts]) for name in names})

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def __getitem__(self, name: str) -> Column:
        return self.columns[name]

    def where(self, **equal: Any) -> Results:
        """The rows with these values, such as `metric="rmse"`."""
        keep = np.ones(len(self), bool)
        for name, value in equal.items():
            keep &= np.asarray(self[name] == value)
        return Results({name: column[keep] for name, column in self.columns.items()})

    def unique(self, name: str) -> list[Any]:
        """The values of a column, each once, in the order they first appear."""
        return list(dict.fromkeys(self[name].tolist()))

    def averaged(self) -> Results:
        """Over trials: columns mean, error (the standard error of it) and trials for value.

        Values that are not known (NaN) do not count; the task is the first trial's.
        """
        groups, places, firsts = self._groups
        value = self["value"].astype(float)
        known = ~np.isnan(value)
        trials = np.bincount(places[known], minlength=len(groups))
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = np.bincount(places[known], value[known], len(groups)) / trials
            squares = np.bincount(places[known], ((value - mean[places]) ** 2)[known], len(groups))
            error = np.sqrt(squares / (trials - 1) / trials)  # of one trial, nothing is known
        named = dict(zip(_SAME, zip(*groups, strict=True), strict=True)) if groups else {}
        return Results.of(
            **{name: named.get(name, []) for name in _SAME},
            task=self["task"][firsts],
            mean=mean,
            error=error,
            trials=trials,
        )

    def save(self, path: str | Path) -> Path:
        """Write a Parquet file, and return where; needs pyarrow, of the `data` extra."""
        arrow, parquet = _arrow()
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        columns = {name: arrow.array(column.tolist()) for name, column in self.columns.items()}
        parquet.write_table(arrow.table(columns), path)
        return path

    @classmethod
    def load(cls, path: str | Path) -> Results:
        """Read what `save` wrote."""
        _, parquet = _arrow()
        table = parquet.read_table(path)
        return cls({name: _column(table[name].to_pylist()) for name in table.column_names})

    def to_pandas(self) -> Any:
        """As a pandas DataFrame; pandas must be installed."""
        try:
            return import_module("pandas").DataFrame(dict(self.columns))
        except ImportError:
            raise ImportError("to_pandas needs pandas: pip install pandas") from None

    @cached_property
    def _groups(self) -> tuple[list[tuple[Any, ...]], NDArray[np.int64], NDArray[np.int64]]:
        """What is the same but for the trial, each row's group, and each group's first row."""
        numbers: dict[tuple[Any, ...], int] = {}
        rows = zip(*(self[name].tolist() for name in _SAME), strict=True)
        places = np.array([numbers.setdefault(row, len(numbers)) for row in rows], int)
        _, firsts = np.unique(places, return_index=True)
        return list(numbers), places, firsts


def _column(values: Any) -> Column:
    array = np.asarray(values)
    return array.astype(object) if array.dtype.kind in "US" else array


def _arrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise ImportError("Parquet files need pyarrow: pip install 'bayestream[data]'") from None
    return pyarrow, parquet
