"""The options of commands that read tables: what columns hold, how files are written."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, NamedTuple, cast, get_type_hints

import typer

from bayestream.streams import files
from bayestream.streams.dialects import Format

_COLUMNS = "What columns hold (else decided from the first rows, and said)"
_FILE = "How a file is written (else told from its first lines, and said)"


def _columns(help: str, **more: Any) -> Any:
    return typer.Option(help=help, rich_help_panel=_COLUMNS, **more)


def _file(help: str) -> Any:
    return typer.Option(help=help, rich_help_panel=_FILE)


Ignore = Annotated[list[str] | None, _columns("A column to leave out.")]
Separator = Annotated[str | None, _file("Between cells: , ; | tab space")]
Quote = Annotated[str | None, _file("Around cells: \" or '")]
Decimal = Annotated[str | None, _file("Decimal sign of numbers: . or ,")]
Thousands = Annotated[str | None, _file("Between thousands: , or . or nothing")]
Header = Annotated[bool | None, _file("Whether the first line names the columns.")]
Encoding = Annotated[str | None, _file("utf-8, utf-16, latin-1, cp1252, …")]


class Reading(NamedTuple):
    """The options of every command that reads a table."""

    numeric: Annotated[list[str] | None, _columns("A column of numbers.")] = None
    categorical: Annotated[
        list[str] | None, _columns("A column of categories, such as codes of digits.")
    ] = None
    date: Annotated[
        list[str] | None, _columns("A column of dates: NAME, or NAME=dmy, NAME=mdy, NAME=ymd.")
    ] = None
    ignore: Ignore = None
    slots: Annotated[
        int | None,
        _columns(
            "Inputs of a column of categories, one of them for all others; `run` grows without.",
            min=1,
        ),
    ] = None
    classes: Annotated[
        int | None, _columns("How many classes there may be; `run` grows without.", min=2)
    ] = None
    head: Annotated[
        int,
        _columns("Rows that are held back to decide, then learnt; few for a live source.", min=1),
    ] = files.HEAD
    separator: Separator = None
    quote: Quote = None
    decimal: Decimal = None
    thousands: Thousands = None
    header: Header = None
    encoding: Encoding = None

    def options(self) -> dict[str, Any]:
        """As `tables.prepared` takes them."""
        given = {name: getattr(self, name) for name in Format._fields}
        lists = {
            name: getattr(self, name) or () for name in ("numeric", "categorical", "date", "ignore")
        }
        numbers = {name: getattr(self, name) for name in ("slots", "classes", "head")}
        return {**lists, **numbers, "format": Format(**given)}


AS_IT_IS = Reading()  # nothing is known beforehand


@contextmanager
def named_as_options() -> Generator[None]:
    """Errors that begin with the name of an argument begin with that of the option."""
    try:
        yield
    except ValueError as error:
        raise ValueError(re.sub(r"^(\w+)(?= must)", _as_option, str(error))) from None


def _as_option(found: re.Match[str]) -> str:
    name = found[0]
    return f"--{name}" if name in ("target", "task", "key", *Reading._fields) else name


def reads_tables(command: Callable[..., None]) -> Callable[..., None]:
    """The command with an option for each field of `Reading` in place of its one `reading`."""

    @wraps(command)
    def spread(**given: Any) -> None:
        reading = Reading(**{name: given.pop(name) for name in Reading._fields})
        command(**given, reading=reading)

    hints = get_type_hints(command, include_extras=True)
    fields = get_type_hints(Reading, include_extras=True)
    options = [
        Parameter(
            name,
            Parameter.KEYWORD_ONLY,
            default=Reading._field_defaults[name],
            annotation=fields[name],
        )
        for name in Reading._fields
    ]
    own = [
        parameter.replace(kind=Parameter.KEYWORD_ONLY, annotation=hints[parameter.name])
        for parameter in signature(command).parameters.values()
        if parameter.name != "reading"
    ]
    whole = cast(Any, spread)  # typer asks both
    whole.__signature__ = Signature([*own, *options])
    whole.__annotations__ = {option.name: option.annotation for option in (*own, *options)}
    return spread
