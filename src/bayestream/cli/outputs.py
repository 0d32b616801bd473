"""Where commands write: a screen that may go away, and files that are whole or absent."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from bayestream.cli.interrupts import INTERRUPTS

Json = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Print one JSON object at the end: summary, counts, files, interrupted; all else "
        "goes to standard error.",
    ),
]


class Screen(Console):
    """Standard output; after an interrupt, work goes on without it: Ctrl-C ends `| tee` as well.

    With `as_json` it is standard error, and `report` has standard output for itself.
    """

    def __init__(self, as_json: bool = False) -> None:
        super().__init__(stderr=as_json)
        self._as_json = as_json

    def report(
        self,
        summary: Mapping[str, Any],
        counts: Mapping[str, int],
        files: Iterable[Path] = (),
    ) -> None:
        """What `--json` asks for, once, when everything is done; nothing where it does not."""
        if self._as_json:
            about = {
                "interrupted": INTERRUPTS.requested,
                "summary": summary,
                "counts": counts,
                "files": [*files],
            }
            typer.echo(json.dumps(_plain(about), allow_nan=False))

    def lines(self, lines: Iterable[str]) -> None:
        """As they are: the user's names may look like markup, and a terminal breaks long lines."""
        for line in lines:
            self.print(line, markup=False, highlight=False, soft_wrap=True)

    def on_broken_pipe(self) -> None:
        """Be quiet, and end the command unless it is ending in good order already."""
        try:
            super().on_broken_pipe()
        except SystemExit:
            if not INTERRUPTS.requested:
                raise


@contextmanager
def whole(path: Path) -> Generator[Path, None, None]:
    """A path to write to, renamed to `path` when everything has been written.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with whole(folder / "a.txt") as partial:
    ...     _ = partial.write_text("hello")
    >>> [path.name for path in folder.iterdir()]
    ['a.txt']
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def written(path: Path, write: Callable[[Path], object]) -> list[Path]:
    """The path, written to as a whole; none, and the reason said, where that needs an extra."""
    try:
        with whole(path) as partial:
            write(partial)
        return [path]
    except ImportError as error:
        typer.echo(f"no {path.name}: {error}", err=True)
        return []


def _plain(value: Any) -> Any:
    """As JSON has it: without NaN and infinities, which are null."""
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, Path):
        return str(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value
