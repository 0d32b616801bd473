"""The pages' examples, run as they are written, with the pictures and the output they make.

`python docs/_examples.py docs/figures docs/tutorials/*.md` puts the pictures of these pages into
that folder, and what each example prints below it, into the page.
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

# A fenced block, and a fence of text right below it, which is what it prints.
_BLOCK = re.compile(
    r"^```(?P<language>python|sh)\n(?P<code>.*?)^```\n(?:\n^```text\n(?P<shown>.*?)^```\n)?",
    re.DOTALL | re.MULTILINE,
)


class Block(NamedTuple):
    """An example of a page."""

    language: str  # python or sh
    code: str
    shown: str | None  # below it, as its output
    page: Path
    line: int  # where its code begins


def blocks(page: Path) -> list[Block]:
    """All examples of a page, in order."""
    text = page.read_text()
    return [
        Block(*match.groups(), page, text.count("\n", 0, match.start("code")) + 1)
        for match in _BLOCK.finditer(text)
    ]


def commands(block: Block) -> Iterator[str]:
    """The commands of a shell example, lines that go on joined, without comments."""
    for line in block.code.replace("\\\n", "").splitlines():
        if command := line.split(" #")[0].strip():
            yield command


def ran(
    page: Path, folder: Path, *, shell: bool = False, given: dict[str, Any] | None = None
) -> tuple[dict[str, Any], list[tuple[Block, str]]]:
    """Run a page's examples in a folder: the names they leave, and what each of them printed.

    Python's share one namespace, which begins with what is `given`. The shell's are run if `shell`.
    """
    names = dict(given or {})
    printed: list[tuple[Block, str]] = []
    with contextlib.chdir(folder):
        for block in blocks(page):
            if block.language == "python":
                output = io.StringIO()
                # Tracebacks name the page and its line.
                code = compile("\n" * (block.line - 1) + block.code, str(page), "exec")
                with contextlib.redirect_stdout(output):
                    exec(code, names)
                printed.append((block, output.getvalue()))
            elif shell:
                printed.append((block, _shell(block)))
    return names, printed


def _shell(block: Block) -> str:
    found = subprocess.run(
        ["bash", "-e", "-c", block.code],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        # As on a terminal of 80 columns, with the environment's own programs first.
        env={**os.environ, "COLUMNS": "80", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
    )
    return found.stdout


def _made_again(page: Path, figures: Path) -> None:
    """The page's pictures, and the output it shows."""
    with TemporaryDirectory() as folder:
        _, printed = ran(page, Path(folder), shell=True)
        for picture in Path(folder).glob("*.png"):
            (figures / picture.name).write_bytes(picture.read_bytes())
    text = page.read_text()
    for block, output in printed:
        if block.shown is not None:
            text = text.replace(
                f"{block.code}```\n\n```text\n{block.shown}```", f"{block.code}```\n\n```text\n{output}```"
            )
    page.write_text(text)


if __name__ == "__main__":
    _FIGURES, *_PAGES = map(Path, sys.argv[1:])
    for _page in _PAGES:
        print(_page)
        _made_again(_page.resolve(), _FIGURES.resolve())
