"""Errors a user can mend, said in one sentence instead of a traceback."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

import typer

P = ParamSpec("P")


def plainly(command: Callable[P, None]) -> Callable[P, None]:
    """The command, with bad input reported on standard error and exit code 1."""

    @wraps(command)
    def plain(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except (ValueError, TypeError, OSError, EOFError, ImportError) as error:
            typer.echo(f"error: {error}", err=True)
            raise typer.Exit(1) from None

    return plain
