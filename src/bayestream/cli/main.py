"""The `bayestream` command; each subcommand lives in the file of its name."""

from __future__ import annotations

import sys
from importlib import import_module

try:
    import typer
except ImportError:
    sys.exit("The bayestream command needs its extra: pip install 'bayestream[cli]'")

from bayestream.cli.errors import plainly

COMMANDS = ("demo", "run", "predict", "tune", "bandit", "reproduce", "data")


def application(named: str = "") -> typer.Typer:
    """The command with the subcommand that is named, or with all: imports take a second."""
    app = typer.Typer(
        callback=main, no_args_is_help=True, add_completion=False, rich_markup_mode="markdown"
    )
    for name in (named,) if named in COMMANDS else COMMANDS:
        module = import_module(f"bayestream.cli.{name}")
        if name == "data":  # has subcommands of its own
            app.add_typer(module.app, name=name)
        else:
            app.command()(plainly(getattr(module, name)))
    return app


def main() -> None:
    """Bayesian neural networks that learn from a stream, one example at a time.

    Compiled programs are kept in the user's cache folder, so that the next command begins sooner;
    `BAYESTREAM_CACHE` names another folder, or is `off`.
    """
