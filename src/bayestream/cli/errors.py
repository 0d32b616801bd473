"""Errors a user can mend, said in one sentence instead of a traceback; and interrupts."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

import typer

from bayestream.cli.interrupts import EXIT_CODE, INTERRUPTS

P = ParamSpec("P")


def plainly(command: Callable[P, None]) -> Callable[P, None]:
    """The command: bad input is reported on standard error, with exit code 1.

    An interrupt sets a flag from its beginning on; a command that takes long asks for it.
    """

    @wraps(command)
    def plain(*args: P.args, **kwargs: P.kwargs) -> None:
        INTERRUPTS.begin()
        try:
            command(*args, **kwargs)
        except (ArithmeticError, EOFError, ImportError, OSError, TypeError, ValueError) as error:
            typer.echo(f"error: {error}", err=True)
            raise typer.Exit(1) from None
        except KeyboardInterrupt:  # from a wait
            raise typer.Exit(EXIT_CODE) from None

    return plain
