"""Updates that were not made, since a belief would not have stayed finite: which, and how many."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from bayestream.running.chunks import Skipped
from bayestream.types import Array

_REASON = "its update would not have been finite, and was not made"
_FEW = 10  # updates, of which even most may be refused
_SHOWN = 3


class RefusedError(ArithmeticError):
    """Most of what a learner saw it could not learn from."""


def refusals(lost: Array, positions: Any) -> list[Skipped]:
    """The examples whose update was refused."""
    return [Skipped(int(place), _REASON) for place in np.asarray(positions)[np.asarray(lost)]]


def labels(y: Any) -> int:
    """How many targets there are to learn from."""
    missing = np.isnan(np.asarray(y, float))
    return int(np.sum(~missing.all(axis=tuple(range(1, missing.ndim)))))


def is_most(refused: int, updates: int) -> bool:
    """Whether most of the updates were refused, and there were more than a few."""
    return updates >= _FEW and 2 * refused > updates


def check_refused(refused: Sequence[Skipped], updates: int, who: str = "") -> None:
    """Warn of refused updates; if most were, that is an error."""
    if not refused:
        return
    where = ", ".join(str(each.position) for each in refused[:_SHOWN])
    check_most(len(refused), updates, f"{who}the first at {where} of the stream; ")
    said = f"{who}{len(refused)} of {updates} updates would not have been finite and were refused"
    warnings.warn(f"{said}, the first at {where} of the stream.", RuntimeWarning, stacklevel=3)


def check_most(refused: int, updates: int, where: str = "") -> None:
    """An error if most of the updates were refused, and there were more than a few."""
    if is_most(refused, updates):
        raise RefusedError(
            f"{refused} of {updates} updates would not have been finite and were refused; {where}"
            "standardise the inputs, or try a larger prior_precision."
        )
