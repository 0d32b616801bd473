"""What `--data` may name: a data set, a file, a folder, or standard input."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer

from bayestream.cli.interrupts import INTERRUPTS
from bayestream.cli.outputs import Screen
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
Ray = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Spread over a Ray cluster: HOST:PORT of its head, auto, or local to begin one.",
    ),
]


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
    def more_classes(self) -> bool:
        """Whether there may be more classes than it began with outputs."""
        return self.plan is not None and self.plan.target.most > self.plan.target.outputs

    @property
    def grows(self) -> bool:
        """Whether a network for it may have to grow."""
        columns = () if self.plan is None else self.plan.columns
        return self.more_classes or any(column.most > column.slots for column in columns)

    @property
    def labels(self) -> Sequence[str]:
        """Names of the classes that are known before the first row is learnt from."""
        return list(self.names) if self.plan is None else self.plan.target.classes

    def said(self) -> list[str]:
        """How it is read, and why so, a line each."""
        return [] if self.plan is None else self.plan.lines()

    def sentence(self) -> str:
        """What a network for it must look like, for people."""
        return network(self.task, self.inputs, self.outputs)

    def summary(self) -> dict[str, Any]:
        """The same, for machines."""
        return {"inputs": self.inputs, "task": self.task, "outputs": self.outputs}

    def notes(self) -> list[str]:
        """What was odd about the rows so far, a line each."""
        return [] if self.encoder is None else self.encoder.notes()

    def grown(self) -> list[str]:
        """What the network has grown for, in a line; none if it has not."""
        if self.encoder is None or self.plan is None:
            return []
        sizes = [
            f"from {before} {what} to {now}"
            for what, before, now in (
                ("inputs", self.inputs, self.encoder.inputs),
                ("outputs", self.outputs, self.encoder.outputs),
            )
            if now > before
        ]
        late = [
            f"{column.name} has {self.encoder.names(column.name)} names"
            for column in self.plan.columns
            if column.slots and self.encoder.names(column.name) >= column.slots
        ]
        if self.encoder.outputs > self.outputs:
            late.append(f"{self.encoder.target} has {len(self.names)} classes")
        return [f"the network grew {' and '.join(sizes)}: {', '.join(late)}"] if sizes else []

    def read(self, console: Screen) -> tuple[list[Encoded], list[Unreadable]]:
        """All of it in memory, and what could not be read; the screen has how, and what was odd."""
        console.lines(self.said())
        with INTERRUPTS.waiting():
            rows = list(self.rows)
        good = [row for row in rows if isinstance(row, Encoded)]
        bad = [row for row in rows if isinstance(row, Unreadable)]
        if not good:
            raise ValueError(f"no row could be read; the first: {bad[0].place}: {bad[0].reason}.")
        if bad:
            some = f"{len(bad)} row{'s' if len(bad) > 1 else ''} could not be read"
            console.lines([f"{some}; the first: {bad[0].place}"])
        console.lines(self.notes())
        return good, bad


def network(task: Task, inputs: int, outputs: int) -> str:
    """Its sizes and what it is for, in words."""
    s, each = ("s" if count > 1 else "" for count in (inputs, outputs))
    return f"{inputs} input{s}, {task} of {outputs} output{each}"


def opened(
    data: str,
    *,
    target: str = "",
    task: str = "",
    reading: Reading = AS_IT_IS,
    limit: int | None = None,
    plan: Plan | None = None,
    grow: bool = False,
    key: str = "",
) -> Source:
    """The source that a command line names, or its first rows alone; read as planned before.

    With `grow`, its rows may come to need a larger network; `key` says whose row each is.
    """
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
        planned = {"plan": plan, "grow": grow, "key": key or None}
        source = _of_table(data, target, task, {**options, **planned})._replace(key=key)
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
