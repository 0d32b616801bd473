"""Functions on which optimisers are compared, with their boxes and known minima."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayestream.checks import check_whole
from bayestream.decisions import spaces
from bayestream.decisions.spaces import Number

Vector = NDArray[np.float64]


class BenchmarkFunction(NamedTuple):
    """A function of a point of its space, and where it is lowest."""

    space: dict[str, Number]
    function: Callable[[Mapping[str, float]], float]
    minimum: float
    minimisers: tuple[tuple[float, ...], ...]


def branin() -> BenchmarkFunction:
    """Branin's function of two numbers, with three minima.

    >>> branin().function({"x1": np.pi, "x2": 2.275})
    0.397887...
    """

    def function(x: Vector) -> float:
        valley = x[1] - 5.1 / (4 * np.pi**2) * x[0] ** 2 + 5 / np.pi * x[0] - 6
        return valley**2 + 10 * (1 - 1 / (8 * np.pi)) * np.cos(x[0]) + 10

    minimisers = ((-np.pi, 12.275), (np.pi, 2.275), (3 * np.pi, 2.475))
    return _made(function, [-5.0, 0.0], [10.0, 15.0], 5 / (4 * np.pi), minimisers)


def hartmann6() -> BenchmarkFunction:
    """Hartmann's function of six numbers: four wells of different shape.

    >>> hartmann6().minimum
    -3.32236801141551
    """
    heights = np.array([1.0, 1.2, 3.0, 3.2])

    def function(x: Vector) -> float:
        return -heights @ np.exp(-np.sum(_WIDTHS * (x - _CENTRES) ** 2, axis=1))

    lowest = (0.20168951, 0.15001069, 0.47687398, 0.27533243, 0.31165162, 0.65730053)
    return _made(function, [0.0] * 6, [1.0] * 6, -3.32236801141551, (lowest,))


def ackley(inputs: int = 10) -> BenchmarkFunction:
    """Ackley's function: a funnel with many shallow holes.

    >>> round(ackley(2).function({"x1": 0.0, "x2": 0.0}), 12)
    0.0
    """
    check_whole("inputs", inputs, 1)

    def function(x: Vector) -> float:
        funnel = -20 * np.exp(-0.2 * np.sqrt(np.mean(x**2)))
        return funnel - np.exp(np.mean(np.cos(2 * np.pi * x))) + 20 + np.e

    edge = [32.768] * inputs
    return _made(function, [-e for e in edge], edge, 0.0, ((0.0,) * inputs,))


def _made(
    function: Callable[[Vector], float],
    lows: list[float],
    highs: list[float],
    minimum: float,
    minimisers: tuple[tuple[float, ...], ...],
) -> BenchmarkFunction:
    space = spaces.box(lows, highs)

    def of_point(point: Mapping[str, float]) -> float:
        return float(function(np.array([point[name] for name in space])))

    return BenchmarkFunction(space, of_point, minimum, minimisers)


_WIDTHS = np.array(
    [
        [10, 3, 17, 3.5, 1.7, 8],
        [0.05, 10, 17, 0.1, 8, 14],
        [3, 3.5, 1.7, 10, 17, 8],
        [17, 8, 0.05, 10, 0.1, 14],
    ]
)
_CENTRES = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)
