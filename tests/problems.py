"""Two small streams, regression and classification, each with the oracle's view of it."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayestream as bs
import oracles

STEPS = 45
FILTERS = ("fcekf", "fdekf", "lofi", "lofi_spherical", "vdekf")
# What holds for every filter by the same code is tried on one of them in the quick run.
FILTERS_LOFI_FIRST = [
    m if m == "lofi" else pytest.param(m, marks=pytest.mark.slow) for m in FILTERS
]
NOISE = np.array([[0.3, 0.1], [0.1, 0.2]])


class Problem(NamedTuple):
    """A network, a stream for it, and how the paper sees one observation of it."""

    model: bs.Model
    likelihood: bs.Likelihood
    xs: np.ndarray
    ys: np.ndarray
    moments: Callable[[np.ndarray, np.ndarray], oracles.Moments]  # (params, x)
    target: Callable[[np.ndarray], np.ndarray]  # y as the vector the paper uses


def mlp(sizes: Sequence[int], **options: Any) -> bs.Model:
    """The library's, but it starts from the same numbers always: nothing to draw in `init`."""
    model = bs.models.mlp(sizes, **options)

    @cache
    def start() -> np.ndarray:
        with jax.ensure_compile_time_eval():
            return np.asarray(jax.jit(model.init)(jax.random.key(0)))

    return model._replace(init=lambda key: jnp.asarray(start()))


@cache
def regression() -> Problem:
    """Two correlated outputs."""
    rng = np.random.default_rng(0)
    model = mlp([2, 3, 2], activation=jnp.tanh)
    xs = rng.normal(size=(STEPS, 2))
    ys = np.stack([np.sin(xs[:, 0]), xs[:, 0] * xs[:, 1]], axis=1)
    ys += rng.multivariate_normal(np.zeros(2), NOISE, STEPS)
    return Problem(
        model,
        bs.likelihoods.gaussian(NOISE),
        xs,
        ys,
        lambda params, x: oracles.gaussian_moments(model.apply, params, x, NOISE),
        lambda y: y,
    )


@cache
def classification() -> Problem:
    """Three classes."""
    rng = np.random.default_rng(1)
    model = mlp([2, 3, 3], activation=jnp.tanh)
    xs = rng.normal(size=(STEPS, 2))
    ys = np.where(xs[:, 0] > 0.3, 2, (xs[:, 1] > 0).astype(int))
    return Problem(
        model,
        bs.likelihoods.categorical(),
        xs,
        ys,
        lambda params, x: oracles.categorical_moments(model.apply, params, x),
        lambda y: np.eye(3)[int(y)],
    )


PROBLEMS = {"regression": regression, "classification": classification}
