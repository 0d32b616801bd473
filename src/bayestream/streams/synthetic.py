"""Streams made by a formula, with drift that is known."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayestream.types import Example, Stream


class Waves(NamedTuple):
    """The functions f_k(x) = x + 0.3 sin(w₀ + w₁ π x), one a task."""

    phase: NDArray[np.float64]  # w₀ (tasks,)
    frequency: NDArray[np.float64]  # w₁ (tasks,)

    def __call__(self, task: NDArray[np.int64], x: NDArray[np.float64]) -> NDArray[np.float64]:
        """f_task(x), with the usual broadcasting."""
        return x + 0.3 * np.sin(self.phase[task] + self.frequency[task] * np.pi * x)


def waves(seed: int, *, tasks: int = 10) -> Waves:
    """Draw w₀ ~ U(0, 2π) and w₁ ~ U(0.5, 2) for each task."""
    rng = np.random.default_rng(seed)
    return Waves(rng.uniform(0, 2 * np.pi, tasks), rng.uniform(0.5, 2.0, tasks))


def piecewise_regression(
    seed: int, *, tasks: int = 10, length: int = 250, noise: float = 0.01
) -> Stream:
    """The paper's 1-d regression whose function changes every `length` steps, without notice.

    x ~ U(−2, 2), y = f_k(x) + N(0, noise), with the functions of `waves(seed)`.

    >>> stream = piecewise_regression(0, tasks=2, length=5)
    >>> len(stream), stream.examples.task.tolist()
    (10, [0, 0, 0, 0, 0, 1, 1, 1, 1, 1])
    """
    rng = np.random.default_rng([seed, 1])
    task = np.repeat(np.arange(tasks), length)
    x = rng.uniform(-2, 2, tasks * length)
    y = waves(seed, tasks=tasks)(task, x) + np.sqrt(noise) * rng.standard_normal(x.shape)
    return Stream(Example(x[:, None], y[:, None], task))


def drifting_linear_regression(
    seed: int, *, steps: int = 1000, inputs: int = 5, speed: float = 0.01, noise: float = 0.01
) -> Stream:
    """Linear regression whose weights wₜ walk at random, with steps of variance speed².

    x ~ N(0, I), y = wₜ·x + N(0, noise).

    >>> drifting_linear_regression(0, steps=4, inputs=2).examples.x.shape
    (4, 2)
    """
    rng = np.random.default_rng(seed)
    steps_of_w = speed * rng.standard_normal((steps, inputs))
    steps_of_w[0] = rng.standard_normal(inputs)
    weights = np.cumsum(steps_of_w, axis=0)
    x = rng.standard_normal((steps, inputs))
    y = np.sum(weights * x, axis=1) + np.sqrt(noise) * rng.standard_normal(steps)
    return Stream(Example(x, y[:, None]))


def moving_moons(
    seed: int, *, steps: int = 1000, turns: float = 1.0, noise: float = 0.01
) -> Stream:
    """Two interleaved half-moons, one a class, that turn about the origin `turns` times.

    >>> stream = moving_moons(0, steps=4)
    >>> stream.examples.x.shape, set(stream.examples.y.tolist()) <= {0, 1}
    ((4, 2), True)
    """
    rng = np.random.default_rng(seed)
    points, label = _moons(rng, steps)
    angle = 2 * np.pi * turns * np.arange(steps) / max(steps, 1)
    c, s = np.cos(angle), np.sin(angle)
    turned = np.stack(
        [c * points[:, 0] - s * points[:, 1], s * points[:, 0] + c * points[:, 1]], axis=1
    )
    turned += np.sqrt(noise) * rng.standard_normal(turned.shape)
    return Stream(Example(turned, label))


def two_moons(seed: int, *, size: int = 500, noise: float = 0.01) -> Stream:
    """Two interleaved half-moons, one a class, with Gaussian noise of that variance; no drift.

    >>> stream = two_moons(0, size=4)
    >>> stream.examples.x.shape, set(stream.examples.y.tolist()) <= {0, 1}
    ((4, 2), True)
    """
    rng = np.random.default_rng(seed)
    points, label = _moons(rng, size)
    return Stream(Example(points + np.sqrt(noise) * rng.standard_normal(points.shape), label))


def _moons(rng: np.random.Generator, size: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Points on the two half-circles, and which of them each is on."""
    label = rng.integers(0, 2, size)
    along = np.pi * rng.random(size)
    upper = np.stack([np.cos(along) - 0.5, np.sin(along) - 0.25], axis=1)
    return np.where(label[:, None] == 0, upper, -upper), label


def friedman_drift(
    seed: int, *, tasks: int = 3, length: int = 500, inputs: int = 10, noise: float = 1.0
) -> Stream:
    """Friedman's function of five inputs among `inputs`, other five in each task.

    y = 10 sin(π x₁ x₂) + 20 (x₃ − ½)² + 10 x₄ + 5 x₅ + N(0, noise), x ~ U(0, 1).

    >>> friedman_drift(0, tasks=2, length=3).examples.task.tolist()
    [0, 0, 0, 1, 1, 1]
    """
    if inputs < 5:
        raise ValueError(f"inputs must be at least 5, got {inputs!r}.")
    rng = np.random.default_rng(seed)
    task = np.repeat(np.arange(tasks), length)
    x = rng.random((tasks * length, inputs))
    chosen = np.stack([rng.permutation(inputs)[:5] for _ in range(tasks)])
    a, b, c, d, e = np.take_along_axis(x, chosen[task], axis=1).T
    y = 10 * np.sin(np.pi * a * b) + 20 * (c - 0.5) ** 2 + 10 * d + 5 * e
    y += np.sqrt(noise) * rng.standard_normal(len(y))
    return Stream(Example(x, y[:, None], task))
