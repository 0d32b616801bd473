"""Streams made by a formula, with drift that is known."""

from __future__ import annotations

import numpy as np

from bayestream.types import Example, Stream


def piecewise_regression(
    seed: int, *, tasks: int = 10, length: int = 250, noise: float = 0.01
) -> Stream:
    """The paper's 1-d regression whose function changes every `length` steps, without notice.

    x ~ U(−2, 2), y = x + 0.3 sin(w₀ + w₁ π x) + N(0, noise); each task draws its own
    w₀ ~ U(0, 2π) and w₁ ~ U(0.5, 2).

    >>> stream = piecewise_regression(0, tasks=2, length=5)
    >>> len(stream), stream.examples.task.tolist()
    (10, [0, 0, 0, 0, 0, 1, 1, 1, 1, 1])
    """
    rng = np.random.default_rng(seed)
    phase, frequency = rng.uniform(0, 2 * np.pi, tasks), rng.uniform(0.5, 2.0, tasks)
    task = np.repeat(np.arange(tasks), length)
    x = rng.uniform(-2, 2, tasks * length)
    y = x + 0.3 * np.sin(phase[task] + frequency[task] * np.pi * x)
    y += np.sqrt(noise) * rng.standard_normal(x.shape)
    return Stream(Example(x[:, None], y[:, None], task))
