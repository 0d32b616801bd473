"""What the site's builder is told: public names in the reference, doctests as code."""

import inspect
import re
from importlib import import_module
from pathlib import Path

import griffe


def on_page_markdown(markdown: str, **_: object) -> str:
    """`::: bs.run` documents it under that name; `[[running.run.run]]` says in which line it is."""
    markdown = re.sub(r"^::: (bs\.\S+)$", _documented, markdown, flags=re.MULTILINE)
    return re.sub(r"\[\[([\w.]+)\]\]", _located, markdown)


def _documented(match: re.Match[str]) -> str:
    name = match[1]
    found = import_module("bayestream")
    for part in name.split(".")[1:]:
        found = getattr(found, part)
    place = f"{found.__module__}.{found.__qualname__}"
    return f"::: {place}\n    options:\n      heading: {name}\n      toc_label: {name}"


def _located(match: re.Match[str]) -> str:
    module, _, name = match[1].rpartition(".")
    found = getattr(import_module(f"bayestream.{module}"), name)
    code = inspect.unwrap(found).__code__
    room = "/".join(Path(code.co_filename).parts[-2:])
    return f"`{name}`, {room}:{code.co_firstlineno}"


class Doctests(griffe.Extension):
    """An example in a docstring is code with its output, not prose."""

    def on_instance(self, *, obj: griffe.Object, **_: object) -> None:
        """Fence every stretch of lines that begins with a prompt."""
        if obj.docstring:
            fenced = re.sub(
                r"(?:^>>> .*\n?)(?:^.+\n?)*",
                lambda example: f"```pycon\n{example[0].rstrip()}\n```\n",
                obj.docstring.value,
                flags=re.MULTILINE,
            )
            obj.docstring.value = fenced
