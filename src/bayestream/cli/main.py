"""The `bayestream` command; each subcommand lives in the file of its name."""

from __future__ import annotations

import sys

try:
    import typer
except ImportError:
    sys.exit("The bayestream command needs its extra: pip install 'bayestream[cli]'")

from bayestream.cli.bandit import bandit
from bayestream.cli.data import app as data
from bayestream.cli.demo import demo
from bayestream.cli.errors import plainly
from bayestream.cli.reproduce import reproduce
from bayestream.cli.run import run
from bayestream.cli.tune import tune

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
)
app.command()(plainly(demo))
app.command()(plainly(run))
app.command()(plainly(tune))
app.command()(plainly(bandit))
app.command()(plainly(reproduce))
app.add_typer(data, name="data")


@app.callback()
def main() -> None:
    """Bayesian neural networks that learn from a stream, one example at a time.

    Compiled programs are kept in the user's cache folder, so that the next command begins sooner;
    `BAYESTREAM_CACHE` names another folder, or is `off`.
    """
