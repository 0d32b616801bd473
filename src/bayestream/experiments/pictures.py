"""What the pictures of all experiments have in common."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from bayestream.evaluation import Results, plots

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def only(results: Results, lines: Sequence[str]) -> Results:
    """The rows of some lines, in the order these are named."""
    return Results.joined([results.where(method=line) for line in lines])


def curves(results: Results, *, task: int | None = None) -> Figure:
    """Each metric against the step, as `plots.curves` has it; tasks begin every `task` steps."""
    figure = plots.curves(results)
    figure.axes[0].set_title("", loc="left")  # how they were tested is said in the text
    for change in range(task, int(results["step"].max()), task) if task else ():
        for ax in figure.axes:
            ax.axvline(change, color="0.8", lw=0.8, zorder=0)
    return figure


def save(figure: Figure, path: Path) -> Path:
    """Write a picture and say where it is; of few colours, it takes a quarter of the space."""
    from PIL import Image  # comes with matplotlib

    path.parent.mkdir(parents=True, exist_ok=True)
    drawn = BytesIO()
    figure.savefig(drawn, dpi=110)
    small = Image.open(drawn).convert("RGB").quantize(128, dither=Image.Dither.NONE)
    small.save(path, optimize=True)
    return path
