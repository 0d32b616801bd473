"""How all pictures are drawn: an empty figure, and what tells one line from another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe–Ito colours and distinct dashes: readable in print and by the colour-blind.
_COLOURS = ("#D55E00", "#000000", "#0072B2", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
_DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)), (0, (8, 3)))


def look(number: int) -> dict[str, Any]:
    """The colour and dashes of the line of that number; of 49 lines, no two look the same.

    >>> look(0), look(7)
    ({'color': '#D55E00', 'ls': '-'}, {'color': '#D55E00', 'ls': '--'})
    """
    dashes = _DASHES[(number + number // len(_COLOURS)) % len(_DASHES)]
    return {"color": _COLOURS[number % len(_COLOURS)], "ls": dashes}


def figure(*, layout: Any = "constrained", **options: Any) -> Figure:
    """An empty figure, or an error that says what to install."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("pictures need matplotlib: pip install 'bayestream[plot]'") from error
    return Figure(**options, layout=layout)
