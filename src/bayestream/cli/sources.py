"""What `--data` may name: a data set, a file, a folder, or standard input."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer

from bayestream.cli.interrupts import INTERRUPTS
from bayestream.cli.reading import AS_IT_IS, Reading, named_as_options
from bayestream.streams import datasets, files, river_sets, tables
from bayestream.streams.encoder import Encoded, Encoder
from bayestream.streams.plans import Plan
from bayestream.streams.tables import Unreadable
from bayestream.streams.targets import Task
from bayestream.types import Stream

Data = Annotated[
    str,
    typer.Option(
        help="A file (.csv, .tsv, .jsonl, .parquet), a folder of them, - for standard input, "
        "or a name from `bayestream data list`."
    ),
]
Target = Annotated[
    str, typer.Option(help="The column to be forecast; guessed if one is called target, y, label …")
]
TaskName = Annotated[
    str, typer.Option("--task", help="regression or classification; guessed where that is safe.")
]
Key = Annotated[
    str, typer.Option(help="The column that says whose row it is: each has a learner of its own.")
]
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
    plan: Plan | None = None  # of a table
    encoder: Encoder | None = None
    key: str = ""  # the column that says whose row it is, in a fleet

    @property
    def labels(self) -> Sequence[str]:
        """Names of the classes that are known before the first row is learnt from."""
        return list(self.names) if self.plan is None else self.plan.target.classes

    def said(self) -> list[str]:
        """How it is read, and why so, a line each."""
        return [] if self.plan is None else self.plan.lines()

    def notes(self) -> list[str]:
        """What was odd about the rows so far, a line each."""
        return [] if self.encoder is None else self.encoder.notes()

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
    task: str = "",
    reading: Reading = AS_IT_IS,
    limit: int | None = None,
    plan: Plan | None = None,
    key: str = "",
) -> Source:
    """The source that a command line names, or its first rows alone; read as planned before."""
    if key and data in datasets.NAMES and not data.startswith("river/"):
        raise ValueError(f"--key must name a column of a table, and {data} has none.")
    if data in datasets.NAMES and not data.startswith("river/"):
        with INTERRUPTS.waiting():
            datasets.get(data)
    if data in ("mnist", "fashion_mnist"):
        source = _of_stream(getattr(datasets, data)(), "classification", 10)
    elif data.startswith("uci/"):
        split = datasets.uci(data.removeprefix("uci/"))
        source = _of_stream(split.train, "regression", 1, split.mean, split.scale)
    else:
        options = reading.options()
        if limit is not None:
            options["head"] = min(limit, reading.head)
        source = _of_table(data, target, task, {**options, "plan": plan, "key": key or None})
        source = source._replace(key=key)
    if limit is None:
        return source
    total = limit if source.total is None else min(limit, source.total)
    return source._replace(rows=islice(source.rows, limit), total=total)


def _of_table(data: str, target: str, task: str, options: dict[str, Any]) -> Source:
    with INTERRUPTS.waiting():
        if data.startswith("river/"):
            name = data.removeprefix("river/")
            rows: Any = river_sets.rows(name)
            target, task, total = "target", river_sets.NAMES[name], rows.n_samples
            if task == "classification":
                options["classes"] = options["classes"] or rows.n_classes or 2
        else:
            rows, total = data, files.count(data)
        if data == "-" and options["plan"] is None:
            typer.echo(f"waiting for {options['head']} rows, which decide (--head)", err=True)
        with named_as_options():
            found = tables.prepared(rows, target=target or None, task=task or None, **options)
    return of_encoder(found.items, found.encoder, found.plan, total)


def of_encoder(
    rows: Iterator[Encoded | Unreadable], encoder: Encoder, plan: Plan, total: int | None = None
) -> Source:
    """Rows of a table that go through an encoder."""
    shape = (encoder.inputs, encoder.outputs, encoder.task)
    return Source(rows, *shape, total, encoder.classes, False, plan, encoder)


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
