"""`bayestream data`: what data sets there are, where they lie, and getting them."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from bayestream.cli.errors import plainly
from bayestream.cli.interrupts import INTERRUPTS
from bayestream.cli.outputs import Json, Screen
from bayestream.streams import datasets

app = typer.Typer(help="List, fetch and find data sets.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="A name from `bayestream data list`.")]


@app.command("list")
@plainly
def list_names(as_json: Json = False) -> None:
    """Every data set, and where it lies on this machine.

    **Example:** `bayestream data list`
    """
    console, table = Screen(as_json), Table("name")
    table.add_column("where", overflow="fold")
    found = {name: datasets.where(name) for name in datasets.NAMES}
    for name, folder in found.items():
        table.add_row(name, Text("not on this machine" if folder is None else str(folder)))
    console.print(table)
    there = sum(folder is not None for folder in found.values())
    console.report(found, {"found": there, "missing": len(found) - there})


@app.command()
@plainly
def get(name: Name) -> None:
    """Fetch a data set into the cache, unless it is on this machine already.

    Interrupted, it leaves no half file behind.

    **Example:** `bayestream data get fashion_mnist`
    """
    with INTERRUPTS.waiting():
        folder = datasets.get(name)
    typer.echo(folder)


@app.command()
@plainly
def where(name: Name) -> None:
    """The folder of a data set.

    **Example:** `bayestream data where uci/energy`
    """
    found = datasets.where(name) if name in datasets.NAMES else None
    if found is None:
        typer.echo(f"{name} is not on this machine; try: bayestream data get {name}", err=True)
        raise typer.Exit(1)
    typer.echo(found)
