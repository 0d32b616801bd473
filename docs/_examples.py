"""The pages' examples, run as they are written, with the pictures and the output they make.

`python docs/_examples.py docs/tutorials/drift.md` puts the pictures that this page saves into
docs/figures, and what its examples print into the page, where output is shown.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

# A fenced example, and right below it a fence of text, which is what it prints.
_BLOCK = re.compile(
    r"^```(?P<language>python|sh)\n(?P<code>.*?)^```\n(?:\n^```text\n(?P<shown>.*?)^```\n)?",
    re.DOTALL | re.MULTILINE,
)


class Block(NamedTuple):
    """An example of a page."""

    language: str  # python or sh
    code: str
    shown: str | None  # its output, where the page shows it
    line: int  # where the code begins


def blocks(page: Path) -> list[Block]:
    """All examples of a page, in order."""
    text = page.read_text()
    return [
        Block(*match.groups(), text.count("\n", 0, match.start("code")) + 1)
        for match in _BLOCK.finditer(text)
    ]


def commands(page: Path) -> Iterator[str]:
    """The lines of a page's shell examples, without comments."""
    for block in blocks(page):
        if block.language == "sh":
            lines = (line.split(" #")[0].strip() for line in block.code.splitlines())
            yield from filter(None, lines)


def ran(
    page: Path, folder: Path, given: dict[str, Any]
) -> tuple[dict[str, Any], list[tuple[Block, str]]]:
    """Run a page's examples in a folder: the names they leave, and what each of them printed.

    Those in Python share their names, and begin with those `given`. Those of the shell are run
    where the page itself makes the files they read: in tutorials.
    """
    names = dict(given)
    printed: list[tuple[Block, str]] = []
    with contextlib.chdir(folder):
        for block in blocks(page):
            if block.language == "python":
                printed.append((block, _python(page, block, names)))
            elif page.parent.name == "tutorials":
                printed.append((block, _shell(block)))
    return names, printed


def _python(page: Path, block: Block, names: dict[str, Any]) -> str:
    # So many empty lines before it, and a traceback names the page's own.
    code = compile("\n" * (block.line - 1) + block.code, str(page), "exec")
    with contextlib.redirect_stdout(io.StringIO()) as output:
        exec(code, names)
    return output.getvalue()


def _shell(block: Block) -> str:
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-e", "-c", block.code],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**os.environ, "PATH": programs, "COLUMNS": "80"},
    ).stdout


def _make_again(page: Path) -> None:
    figures = Path(__file__).parent / "figures"
    with TemporaryDirectory() as folder:
        _, printed = ran(page, Path(folder), {})
        for picture in Path(folder).glob("*.png"):
            (figures / picture.name).write_bytes(picture.read_bytes())
    text = page.read_text()
    for block, output in printed:
        if block.shown is not None:
            before, after = (
                f"{block.code}```\n\n```text\n{shown}```" for shown in (block.shown, output)
            )
            text = text.replace(before, after)
    page.write_text(text)


if __name__ == "__main__":
    _make_again(Path(sys.argv[1]).resolve())
