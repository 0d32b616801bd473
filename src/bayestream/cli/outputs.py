"""Where commands write: a screen that may go away, and files that are whole or absent."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from bayestream.cli.interrupts import INTERRUPTS


class Screen(Console):
    """Standard output; after an interrupt, work goes on without it: Ctrl-C ends `| tee` as well."""

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
