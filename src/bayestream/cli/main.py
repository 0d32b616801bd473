"""The `bayestream` command; each subcommand lives in the file of its name."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection
from importlib import import_module

try:
    import typer
except ImportError:
    sys.exit("The bayestream command needs its extra: pip install 'bayestream[cli]'")

from bayestream.cli.errors import plainly

# In a sentence each, for which nothing need be imported.
COMMANDS = {
    "demo": "Learn a function that keeps changing, and draw it.",
    "run": "Learn from a table row by row, each forecast first.",
    "compare": "Run several methods over one table, and score each.",
    "predict": "Forecast rows with what a run has learnt.",
    "tune": "Search for the best hyper-parameters of a method.",
    "bandit": "Learn which arm to pull.",
    "reproduce": "Repeat the paper's experiments, and judge its claims.",
    "data": "List, fetch and find data sets.",
    "info": "Show versions, kernels, extras, data sets and caches.",
}


def application(imported: Collection[str] = tuple(COMMANDS)) -> typer.Typer:
    """The command; subcommands that are not imported, which takes a second, can only be listed."""
    app = typer.Typer(callback=main, no_args_is_help=True, rich_markup_mode="markdown")
    for name, sentence in COMMANDS.items():
        if name not in imported:
            app.command(name, short_help=sentence)(_not_imported)
            continue
        module = import_module(f"bayestream.cli.{name}")
        if name == "data":  # has subcommands of its own
            app.add_typer(module.app, name=name, short_help=sentence)
        else:
            app.command(name, short_help=sentence)(plainly(getattr(module, name)))
    return app


def being_completed() -> list[str]:
    """The words so far, where a shell asks what may come next; else none."""
    if "_BAYESTREAM_COMPLETE" not in os.environ:
        return []
    # Bash has its own variable; the scripts for other shells set typer's.
    return os.environ.get("COMP_WORDS", os.environ.get("_TYPER_COMPLETE_ARGS", "")).split()


def main() -> None:
    """Bayesian neural networks that learn from a stream, one example at a time.

    Compiled programs are kept in the user's cache folder, so that the next command begins sooner;
    `BAYESTREAM_CACHE` names another folder, or is `off`. Exit codes: 0 if all is well, 1 if
    something was refused or failed, which is said on standard error, 2 for a command line that
    cannot be understood, 130 if interrupted.

    **Examples:**

    `bayestream run --data my.csv --target price`

    `bayestream --install-completion`
    """


def _not_imported() -> None:
    """There by name alone."""
