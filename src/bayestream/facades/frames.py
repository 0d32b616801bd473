"""Data frames of pandas or polars, without importing either."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from numpy.typing import NDArray


def rows(frame: Any) -> list[dict[Any, Any]]:
    """Each as a dict."""
    return frame.to_dicts() if hasattr(frame, "to_dicts") else frame.to_dict(orient="records")


def series(frame: Any, values: Sequence[Any] | NDArray[Any]) -> Any:
    """A series of the same library, with the frame's index where it has one."""
    if hasattr(frame, "index"):
        return _library(frame).Series(values, index=frame.index)
    return _library(frame).Series(values=values)


def like(frame: Any, columns: dict[Any, NDArray[Any]]) -> Any:
    """A frame of the same library; in pandas, names may be anything."""
    if hasattr(frame, "index"):
        return _library(frame).DataFrame(columns, index=frame.index)
    return _library(frame).DataFrame({str(name): values for name, values in columns.items()})


def _library(frame: Any) -> Any:
    return import_module(type(frame).__module__.split(".")[0])
