"""Summaries of losses along a stream: what the score is now, after all of it, or lately."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from bayestream.checks import check_fraction, check_whole

Floats = NDArray[np.float64]


class Summary(NamedTuple):
    """Along the last axis, at each step, a mean of the losses so far; NaN is a loss unknown."""

    name: str
    of: Callable[[Floats], Floats]


each = Summary("each", lambda losses: losses)


def _cumulative(losses: Floats) -> Floats:
    known = ~np.isnan(losses)
    return _ratio(np.cumsum(np.where(known, losses, 0.0), axis=-1), np.cumsum(known, axis=-1))


cumulative = Summary("cumulative", _cumulative)


def window(size: int = 200) -> Summary:
    """The mean of the last `size` steps, of fewer at the start.

    >>> window(2).of(np.array([1.0, 3.0, np.nan, 7.0])).tolist()
    [1.0, 2.0, 3.0, 7.0]
    """
    check_whole("size", size, 1)

    def of(losses: Floats) -> Floats:
        known = ~np.isnan(losses)
        return _ratio(_last(np.where(known, losses, 0.0), size), _last(known.astype(float), size))

    return Summary(f"window {size}", of)


def fading(factor: float = 0.99) -> Summary:
    """Each step counts `factor` times the one after it: Σ αᵗ⁻ⁱ lᵢ / Σ αᵗ⁻ⁱ (Gama et al. 2013).

    >>> fading(0.5).of(np.array([1.0, 4.0])).tolist()
    [1.0, 3.0]
    """
    check_fraction("factor", factor)

    def of(losses: Floats) -> Floats:
        known = ~np.isnan(losses)
        steps = np.moveaxis(np.where(known, losses, 0.0), -1, 0)
        taken = np.moveaxis(known.astype(float), -1, 0)
        totals, weights = np.empty_like(steps), np.empty_like(steps)
        total = weight = np.zeros(steps.shape[1:])
        for step in range(len(steps)):
            total = totals[step] = factor * total + steps[step]
            weight = weights[step] = factor * weight + taken[step]
        return np.moveaxis(_ratio(totals, weights), 0, -1)

    return Summary(f"fading {factor:g}", of)


def _last(values: Floats, size: int) -> Floats:
    """The sum of the last `size` values, at each step."""
    # Not a difference of running sums: a large loss would take the others' digits away for good.
    before = np.zeros((*values.shape[:-1], size))
    padded = np.concatenate([before, values], axis=-1)
    return sliding_window_view(padded, size, axis=-1)[..., 1:, :].sum(axis=-1)


def _ratio(total: Floats, count: Floats) -> Floats:
    return np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)
