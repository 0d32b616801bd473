"""What `--data` may name: a data set, a file, a folder, or standard input."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Annotated, Any, NamedTuple, cast

import numpy as np
import typer

from bayestream.cli.interrupts import INTERRUPTS
from bayestream.streams import datasets, files, river_sets, tables
from bayestream.streams.encoder import Encoded, Encoder, Task
from bayestream.streams.tables import Unreadable
from bayestream.types import Stream

Data = Annotated[
    str,
    typer.Option(
        help="A file (.csv, .tsv, .jsonl, .parquet), a folder of them, - for standard input, "
        "or a name from `bayestream data list`."
    ),
]
Target = Annotated[str, typer.Option(help="The column to be forecast.")]
TaskName = Annotated[str, typer.Option("--task", help="regression or classification.")]
Categorical = Annotated[
    list[str] | None, typer.Option(help="A column of categories that look like numbers.")
]
Ignore = Annotated[list[str] | None, typer.Option(help="A column to leave out.")]
Slots = Annotated[int, typer.Option(min=1, help="Inputs of a column of categories.")]
Classes = Annotated[int, typer.Option(min=2, help="How many classes there may be.")]
Limit = Annotated[int | None, typer.Option(min=1, help="Use so many rows only.")]


class Source(NamedTuple):
    """Rows to learn from, and what a network for them must look like."""

    rows: Iterator[Encoded | Unreadable]
    inputs: int
    outputs: int
    task: Task
    total: int | None  # rows, where that is known
    names: Sequence[str] | dict[str, int]  # of the classes seen so far, in their order
    at_rest: bool  # does its order mean nothing?
    encoder: Encoder | None = None  # of a table

    def stream(self) -> tuple[Stream, list[Unreadable]]:
        """All of it in memory, and what could not be read."""
        rows = list(self.rows)
        good = [row for row in rows if isinstance(row, Encoded)]
        bad = [row for row in rows if isinstance(row, Unreadable)]
        if not good:
            raise ValueError(f"no row could be read; the first: {bad[0].place}: {bad[0].reason}.")
        return tables.stacked(good, self.task, self.inputs), bad


def opened(
    data: str,
    *,
    target: str = "",
    task: str = "regression",
    categorical: Sequence[str] = (),
    ignore: Sequence[str] = (),
    slots: int = 10,
    classes: int = 10,
) -> Source:
    """The source that a command line names."""
    if data in datasets.NAMES and not data.startswith("river/"):
        with INTERRUPTS.waiting():
            datasets.get(data)
    if data in ("mnist", "fashion_mnist"):
        images = getattr(datasets, data)()
        return _of_stream(images, "classification", 10)
    if data.startswith("uci/"):
        split = datasets.uci(data.removeprefix("uci/"))
        return _of_stream(split.train, "regression", 1, split.mean, split.scale)
    options: dict[str, Any] = {"categorical": categorical, "ignore": ignore, "slots": slots}
    if data.startswith("river/"):
        name = data.removeprefix("river/")
        rows: Any = river_sets.rows(name)
        task, classes = river_sets.NAMES[name], rows.n_classes or 2
        target, total = "target", rows.n_samples
    else:
        if not target:
            raise ValueError("--target must name the column to be forecast.")
        with INTERRUPTS.waiting():
            rows, total = data, files.count(data)
    kind = cast(Task, task)
    with INTERRUPTS.waiting():
        encoder, items = tables.encoded(rows, target=target, task=kind, classes=classes, **options)
    return Source(
        items, encoder.inputs, encoder.outputs, kind, total, encoder.classes, False, encoder
    )


def _of_stream(
    stream: Stream, task: Task, outputs: int, centre: float = 0.0, scale: float = 1.0
) -> Source:
    def rows() -> Iterator[Encoded]:
        for number, (x, y, *_) in enumerate(stream, start=1):
            label = float(np.reshape(y, ()))
            written = int(label) if task == "classification" else centre + scale * label
            yield Encoded(f"row {number}", x, label, written, centre, scale, outputs)

    inputs = int(np.prod(stream.examples.x.shape[1:]))
    names = [str(number) for number in range(outputs)]
    return Source(rows(), inputs, outputs, task, len(stream), names, True)


def limited(source: Source, limit: int | None) -> Source:
    """Its first rows alone."""
    if limit is None:
        return source
    total = limit if source.total is None else min(limit, source.total)
    return source._replace(rows=islice(source.rows, limit), total=total)
