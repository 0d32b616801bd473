"""Mixtures of t distributions, one a row of forecasts: in NumPy, where nothing is compiled.

`parts` (rows, members, 4) has of each member weight, mean, scale and degrees of freedom.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, logsumexp, ndtr, stdtr, stdtrit

_ROUNDS = 60  # at most, of a search for a quantile


def distribution(y: NDArray[Any], parts: NDArray[Any]) -> NDArray[Any]:
    """P(Y ≤ y) of mixtures of t distributions."""
    weights, means, scales, dof = np.moveaxis(parts, -1, 0)
    z = (y[:, None] - means) / scales
    each = np.where(np.isinf(dof), ndtr(z), stdtr(np.where(np.isinf(dof), 1.0, dof), z))
    return np.sum(weights * each, axis=1)


@np.errstate(invalid="ignore")  # what is not finite has none
def quantile(level: float, parts: NDArray[Any]) -> NDArray[Any]:
    """The y with P(Y ≤ y) = level, of mixtures of t distributions: it lies among their own.

    By false position (the Illinois variant), to six digits of the probability. Not in JAX, where it
    would be half of the program that is compiled before the first row.
    """
    means, scales, dof = np.moveaxis(np.asarray(parts[..., 1:], float), -1, 0)
    each = means + scales * stdtrit(dof, level)
    low, high = each.min(axis=1), each.max(axis=1)
    below, above = (distribution(end, parts) - level for end in (low, high))
    y, value = low, below
    for _ in range(_ROUNDS):
        exact = (np.abs(value) < 1e-7 * min(level, 1 - level)) | ~(high > low)
        if exact.all():
            break
        share = np.clip(below / np.minimum(below - above, -np.finfo(float).tiny), 0.0, 1.0)
        y = np.where(exact, y, low + share * (high - low))
        before, value = value, distribution(y, parts) - level
        left = value < 0
        again = np.where(left == (before < 0), 0.5, 1.0)
        below, above = np.where(left, value, again * below), np.where(left, again * above, value)
        low, high = np.where(left, y, low), np.where(left, high, y)
    return y


def log_density(y: NDArray[Any], parts: NDArray[Any]) -> NDArray[Any]:
    """Of mixtures of t distributions; one without end of degrees of freedom is a Gaussian."""
    with np.errstate(divide="ignore"):
        weights, means, scales, dof = np.log(parts[..., 0]), *np.moveaxis(parts[..., 1:], -1, 0)
    square = ((y[:, None] - means) / scales) ** 2
    nu = np.where(np.isinf(dof), 1.0, dof)
    peak = gammaln((nu + 1) / 2) - gammaln(nu / 2) - 0.5 * np.log(nu * np.pi)
    heavy = peak - 0.5 * (nu + 1) * np.log1p(square / nu)
    normal = -0.5 * square - 0.5 * np.log(2 * np.pi)
    each = weights + np.where(np.isinf(dof), normal, heavy) - np.log(scales)
    return np.asarray(logsumexp(each, axis=1))
