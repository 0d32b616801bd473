"""River's data sets as tables."""

from __future__ import annotations

import warnings
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bayestream.streams.tables import Table, table

# Those that come with river itself: name → task.
NAMES = {
    "AirlinePassengers": "regression",
    "Bananas": "classification",
    "ChickWeights": "regression",
    "ImageSegments": "classification",
    "Phishing": "classification",
    "SP500Stocks": "regression",
    "Shuttle": "classification",
    "TrumpApproval": "regression",
    "WaterFlow": "regression",
}


def where() -> Path | None:
    """The folder they lie in, if river is installed."""
    found = find_spec("river")
    return Path(found.origin).parent / "datasets" if found and found.origin else None


def rows(name: str) -> Any:
    """An iterable of (features, target), as river gives them."""
    if name not in NAMES:
        raise ValueError(f"name must be one of {', '.join(NAMES)}, got {name!r}.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            datasets = import_module("river.datasets")
    except ImportError:
        raise ImportError("river's data sets need river: pip install 'bayestream[river]'") from None
    return getattr(datasets, name)()


def river(name: str, **options: Any) -> Table:
    """One of the data sets that river brings along, in its own order; options as of `table`."""
    data = rows(name)
    task = NAMES[name]
    if task == "classification":
        options.setdefault("classes", data.n_classes or 2)
    return table(data, target="target", task=task, **options)
