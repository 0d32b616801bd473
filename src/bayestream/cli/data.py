"""`bayestream data`: what data sets there are, where they lie, and getting them."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from bayestream.cli.errors import plainly
from bayestream.cli.interrupts import INTERRUPTS
from bayestream.streams import datasets

app = typer.Typer(help="List, fetch and find data sets.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="A name from `bayestream data list`.")]


@app.command("list")
def list_names() -> None:
    """Every data set, and where it lies on this machine.

    **Example:** `bayestream data list`
    """
    table = Table("name", "where")
    for name in datasets.NAMES:
        found = datasets.where(name)
        table.add_row(name, "not on this machine" if found is None else str(found))
    Console().print(table)


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
def where(name: Name) -> None:
    """The folder of a data set.

    **Example:** `bayestream data where uci/energy`
    """
    found = datasets.where(name) if name in datasets.NAMES else None
    if found is None:
        typer.echo(f"{name} is not on this machine; try: bayestream data get {name}", err=True)
        raise typer.Exit(1)
    typer.echo(found)
