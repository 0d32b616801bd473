"""The column to be forecast: whether it holds numbers or classes, and how many."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from bayestream.streams.columns import (
    KEYS,
    MOST,
    Head,
    Wishes,
    few,
    is_date,
    is_number,
    order_of,
    said_with,
    spare,
)
from bayestream.streams.habits import NO_HABITS, Habits, habits_of
from bayestream.streams.values import finite, name_of

Task = Literal["regression", "classification"]
_CLASSES = 10  # where the first rows show too few
_NAMES = ("target", "y", "label", "class", "outcome")


class Target(NamedTuple):
    """The column to be forecast."""

    name: str
    task: Task
    why: str
    classes: tuple[str, ...] = ()  # those of the first rows, in their order
    outputs: int = 1
    most: int = 0  # classes that there may be in the end
    habits: Habits = NO_HABITS  # of numbers


def target_of(name: str, task: str | None, head: Head, wishes: Wishes) -> Target:
    """The column to be forecast, with its task: as the user says, or as its first labels do."""
    cells = head.cells(name)
    habits = habits_of(cells)
    labels = tuple(dict.fromkeys(filter(None, (name_of(value) for value, _ in cells))))
    cells = head.numbers(name, habits._replace(nothing=""))
    odd = [value for value, style in cells if not is_number(value, style)]
    why = " (as you say)"
    if task is None:
        task, why = _task(name, cells, labels, odd, head)
    if task == "regression":
        if cells and not few(odd, cells):
            raise ValueError(
                f"target must hold numbers, got {str(odd[0])[:50]!r} in {name}; "
                "is the task classification?"
            )
        why = ", ".join(filter(None, [f"regression{why}", habits.said()]))
        why = said_with(why, 0, odd, "no number")
        return Target(name, "regression", why, habits=habits)
    outputs, most = wishes.classes, 0
    if outputs is None:
        outputs = len(labels) + (0 if head.complete else spare(len(labels)))
        outputs = max(outputs, 2) if head.complete or len(labels) > 1 else _CLASSES
        more = outputs - len(labels)
        room = f", room for {more} more" if more else ""
        most = MOST if wishes.grow else 0
    elif outputs < len(labels):
        raise ValueError(
            f"classes must be at least {len(labels)}, as many as {name} has in {head.said()}, "
            f"got {outputs}."
        )
    else:
        room = f", of {outputs}"
    found = f"{len(labels)} class{'' if len(labels) == 1 else 'es'}{room}"
    said = f"classification{why}, {found}"
    return Target(name, "classification", said, labels, outputs, max(most, outputs))


def guessed_target(names: Collection[str]) -> str | None:
    """The one column whose name says that it is the target, if there is one.

    >>> guessed_target(["size", "Target"]), guessed_target(["y", "label"])
    ('Target', None)
    """
    found = [name for name in names if name.strip().lower() in _NAMES]
    return found[0] if len(found) == 1 else None


def _task(
    name: str,
    cells: Sequence[tuple[Any, Any]],
    labels: Sequence[str],
    odd: Sequence[Any],
    head: Head,
) -> tuple[Task, str]:
    """What it is safe to guess."""
    if not cells:
        raise ValueError(
            f"task must be regression or classification: {name} has no label in {head.said()} to "
            "guess it from."
        )
    if not few(odd, cells):
        order, _ = order_of([value for value, _ in cells], False)
        if sum(not is_date(value, order) for value, _ in cells) == 0:
            raise ValueError(f"target must hold numbers or classes, and {name} holds dates.")
        if len(labels) > max(KEYS, 0.5 * len(cells)):
            raise ValueError(
                f"target must hold numbers or classes, and {name} holds {len(labels)} names in "
                f"{len(cells)} rows; say task classification if these are classes."
            )
        return "classification", " (guessed from names)"
    if all(isinstance(value, bool | np.bool_) for value, _ in cells):
        return "classification", " (guessed from yes and no)"
    numbers = {number for value, style in cells if (number := finite(value, style)) is not None}
    whole = all(map(float.is_integer, numbers))
    if numbers in ({0.0, 1.0}, {-1.0, 1.0}):
        return "classification", f" (guessed from {' and '.join(sorted(labels))})"
    if whole and len(numbers) <= 20 and len(numbers) <= len(cells) // 5:
        raise ValueError(
            f"task must be regression or classification: {name} holds whole numbers, of "
            f"{len(numbers)} values alone, which may be amounts or classes."
        )
    return "regression", " (guessed from numbers)"
