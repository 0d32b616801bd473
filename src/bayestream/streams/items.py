"""Rows from what Python programs hold: frames, columns, rows of dicts, arrays, pairs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np

from bayestream.streams.files import Row, Values


def rows_of(source: Any, target: str | int | None) -> Iterator[Row]:
    """The rows of a frame of pandas, polars or Arrow, a dict of columns, or anything iterable.

    Rows are dicts, tuples with names, arrays, or pairs of one of these and a target; of arrays,
    columns are named "0", "1", …

    >>> [row.values for row in rows_of({"a": [1, 2], "y": [3, 4]}, "y")]
    [{'a': 1, 'y': 3}, {'a': 2, 'y': 4}]
    """
    fixed, items = _items(source)
    for number, item in enumerate(items, start=1):
        place = f"row {number}"
        try:
            yield Row(place, _values(item, target), header=fixed)
        except (TypeError, ValueError) as error:
            yield Row(place, None, str(error))


def _items(source: Any) -> tuple[bool, Iterable[Any]]:
    """Whether all rows have the same columns, and the rows."""
    if isinstance(source, Mapping):
        return True, _of_columns(cast(Mapping[Any, Any], source))
    if hasattr(source, "iter_rows") and hasattr(source, "columns"):  # polars
        return True, (_named(source.columns, row) for row in source.iter_rows())
    if hasattr(source, "itertuples") and hasattr(source, "columns"):  # pandas
        tuples = source.itertuples(index=False, name=None)
        return True, (_named(source.columns, row) for row in tuples)
    if hasattr(source, "to_batches") and hasattr(source, "column_names"):  # Arrow
        return True, (row for batch in source.to_batches() for row in batch.to_pylist())
    if hasattr(source, "collect") and hasattr(source, "lazy"):
        raise TypeError("a lazy frame must be collected first: table(frame.collect(), …).")
    if isinstance(source, tuple) and len(cast(Any, source)) == 2 and np.ndim(source[0]) == 2:
        inputs, labels = cast(tuple[Any, Any], source)
        if len(inputs) != len(labels):
            raise ValueError(
                f"inputs and targets must be equally many, got {len(inputs)} and {len(labels)}."
            )
        return True, zip((_values(item, None) for item in _items(inputs)[1]), labels, strict=True)
    if isinstance(source, bytes) or not hasattr(source, "__iter__"):
        raise TypeError(
            "the source must be a file's name, a frame, a dict of columns, or rows, "
            f"got {type(source).__name__}."
        )
    return False, source


def _of_columns(columns: Mapping[Any, Any]) -> Iterator[Values]:
    for name, column in columns.items():
        if isinstance(column, str) or not hasattr(column, "__len__"):
            raise TypeError(
                f"a dict must hold a list of values for each column, got {column!r} for {name}; "
                "a single row goes into a list."
            )
    lengths = {str(name): len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        said = ", ".join(f"{name} {length}" for name, length in list(lengths.items())[:5])
        raise ValueError(f"the columns must be equally long, got {said}.")
    for row in zip(*columns.values(), strict=True):
        yield _named(columns, row)


def _named(names: Iterable[Any], row: Sequence[Any]) -> Values:
    return {str(name): value for name, value in zip(names, row, strict=True)}


def _values(item: Any, target: str | int | None) -> Values:
    if isinstance(item, Mapping):
        values = cast(Mapping[Any, Any], item)
        return {str(name): value for name, value in values.items()}
    if hasattr(item, "_fields"):
        return _named(item._fields, item)
    if isinstance(item, np.void) and item.dtype.names:
        return _named(item.dtype.names, item.item())
    if isinstance(item, tuple) and len(cast(Any, item)) == 2 and np.ndim(cast(Any, item)[1]) == 0:
        x, y = cast(tuple[Any, Any], item)
        if isinstance(x, Mapping) or np.ndim(x) == 1:
            values = _values(x, None)
            name = "target" if target is None or isinstance(target, int) else target
            if name in values:
                raise ValueError(f"has an input with the target's name, {name}")
            return {**values, name: y}
    if isinstance(item, str) or np.ndim(item) != 1:
        raise TypeError(f"must be a dict or a flat array, got {type(item).__name__}")
    return {str(index): value for index, value in enumerate(cast(Any, item))}
