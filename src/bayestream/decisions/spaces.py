"""Where a function is minimised: real numbers, whole numbers and choices, as points of a cube."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from bayestream.types import Array

Coordinates = NDArray[np.float64]  # of a point in the cube [-1, 1]^d
Point = dict[str, Any]


@dataclass(frozen=True)
class Number:
    """A number from `low` to `high`, both possible; made by `real` and `whole`."""

    low: float
    high: float
    log: bool  # whether it is its logarithm that is spread evenly
    is_whole: bool
    size = 1  # how many coordinates it has

    def values(self) -> float:
        """How many there are."""
        return self.high - self.low + 1 if self.is_whole else math.inf

    def encode(self, value: Any) -> Coordinates:
        """From a value to coordinates."""
        kind = "a whole number" if self.is_whole else "a number"
        expected = f"{kind} from {self.low} to {self.high}"
        if not _is_number(value, self.is_whole):
            raise TypeError(expected)
        if not self.low <= value <= self.high:
            raise ValueError(expected)
        low, width = self._scale()
        at = math.log(value) if self.log else float(value)
        return np.clip([2 * (at - low) / width - 1], -1.0, 1.0)

    def decode(self, coordinates: Coordinates) -> Any:
        """And back."""
        low, width = self._scale()
        at = low + (float(coordinates[0]) + 1) / 2 * width
        value = min(max(math.exp(at) if self.log else at, self.low), self.high)
        return round(value) if self.is_whole else value

    def nearest(self, coordinates: Array) -> Array:
        """The nearest coordinates (…, 1) that some value has."""
        if not self.is_whole:
            return coordinates
        low, width = self._scale()
        at = low + (coordinates + 1) / 2 * width
        at = jnp.log(jnp.round(jnp.exp(at))) if self.log else jnp.round(at)
        return 2 * (at - low) / width - 1

    def _scale(self) -> tuple[float, float]:
        low, high = (math.log(v) if self.log else v for v in (self.low, self.high))
        return low, high - low


@dataclass(frozen=True)
class Choice:
    """One of several values, each a coordinate of its own; made by `choice`."""

    options: tuple[Any, ...]

    @property
    def size(self) -> int:
        """How many coordinates it has."""
        return len(self.options)

    def values(self) -> float:
        """How many there are."""
        return len(self.options)

    def encode(self, value: Any) -> Coordinates:
        """From a value to coordinates: 1 for it, −1 for the others."""
        if not any(_same(value, option) for option in self.options):
            raise ValueError(f"one of {', '.join(map(repr, self.options))}")
        return np.array([1.0 if _same(value, option) else -1.0 for option in self.options])

    def decode(self, coordinates: Coordinates) -> Any:
        """And back: the option whose coordinate is largest."""
        return self.options[int(np.argmax(coordinates))]

    def nearest(self, coordinates: Array) -> Array:
        """The nearest coordinates (…, size) that some value has."""
        return 2 * jax.nn.one_hot(jnp.argmax(coordinates, axis=-1), self.size) - 1


Space = Mapping[str, Number | Choice]


def real(low: float, high: float, *, log: bool = False) -> Number:
    """A real number from `low` to `high`; with `log`, spread evenly in its logarithm.

    >>> round(real(1e-4, 1.0, log=True).decode(np.zeros(1)), 12)
    0.01
    """
    return _number(low, high, log, is_whole=False)


def whole(low: int, high: int, *, log: bool = False) -> Number:
    """A whole number from `low` to `high`, both possible.

    >>> whole(1, 5).decode(np.array([0.4]))
    4
    """
    return _number(low, high, log, is_whole=True)


def choice(*options: Any) -> Choice:
    """One of the options, which have no order.

    >>> choice("tanh", "gelu").encode("gelu")
    array([-1.,  1.])
    """
    different = all(not _same(a, b) for i, a in enumerate(options) for b in options[:i])
    if len(options) < 2 or not different:
        raise ValueError(f"options must be two or more different values, got {options!r}.")
    return Choice(options)


def box(lows: Any, highs: Any) -> dict[str, Number]:
    """Real numbers x1, x2, … between two corners.

    >>> list(box([-5.0, 0.0], [10.0, 15.0]))
    ['x1', 'x2']
    """
    if len(lows) != len(highs):
        raise ValueError(f"highs must be as many as lows, got {len(highs)} and {len(lows)}.")
    corners = zip(lows, highs, strict=True)
    return {f"x{i}": real(low, high) for i, (low, high) in enumerate(corners, start=1)}


def dimensions(space: Space) -> int:
    """How many coordinates its points have."""
    return sum(part.size for part in space.values())


def encode(space: Space, point: Mapping[str, Any]) -> Coordinates:
    """A point's coordinates in the cube, in the order of the space."""
    if set(point) != set(space):
        raise ValueError(f"point must have values for {', '.join(space)}, got {point!r}.")
    parts: list[Coordinates] = []
    for name, part in space.items():
        try:
            parts.append(part.encode(point[name]))
        except (TypeError, ValueError) as error:
            raise type(error)(f"{name} must be {error}, got {point[name]!r}.") from None
    return np.concatenate(parts)


def decode(space: Space, coordinates: Any) -> Point:
    """The point that is nearest to these coordinates."""
    parts = _split(space, np.asarray(coordinates, np.float64))
    return {name: space[name].decode(part) for name, part in parts.items()}


def nearest(space: Space, coordinates: Array) -> Array:
    """The nearest coordinates (…, d) that some point has; for many at once, under jit."""
    parts = _split(space, coordinates)
    return jnp.concatenate([space[name].nearest(part) for name, part in parts.items()], axis=-1)


def check_space(space: Any) -> None:
    """A mapping from names to what this module makes."""
    if not isinstance(space, Mapping) or not space:
        raise TypeError(f"space must map names to real, whole or choice, got {space!r}.")
    for name, part in space.items():
        if not isinstance(part, Number | Choice):
            raise TypeError(f"{name} must be made by bayestream.spaces, got {part!r}.")


def _number(low: Any, high: Any, log: bool, *, is_whole: bool) -> Number:
    if not (_is_number(low, is_whole) and _is_number(high, is_whole)):
        kind = "whole numbers" if is_whole else "numbers"
        raise TypeError(f"low and high must be {kind}, got {low!r} and {high!r}.")
    if not -math.inf < low < high < math.inf:
        raise ValueError(f"low must be below high, and both finite, got {low!r} and {high!r}.")
    if log and low <= 0:
        raise ValueError(f"low must be positive on a logarithmic scale, got {low!r}.")
    return Number(low, high, log, is_whole)


def _split(space: Space, coordinates: Any) -> dict[str, Any]:
    ends = np.cumsum([part.size for part in space.values()]).tolist()
    starts = [0, *ends[:-1]]
    return {name: coordinates[..., a:b] for name, a, b in zip(space, starts, ends, strict=True)}


def _is_number(value: Any, is_whole: bool) -> bool:
    return not isinstance(value, bool) and isinstance(value, Integral if is_whole else Real)


def _same(a: Any, b: Any) -> bool:
    """Equal and of one type: True is no 1."""
    return type(a) is type(b) and a == b
