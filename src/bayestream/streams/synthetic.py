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
