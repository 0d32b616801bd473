"""A sweep of EM for factor analysis is the textbook's, whichever kernels run it."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import method_oracles as methods
from bayestream.gaussians import fits
from bayestream.gaussians.dlr import DLRGaussian
from bayestream.gaussians.fits import Target
from bayestream.networks import native

KERNELS = ("jax", *(("native",) if native.built() else ()))
both = pytest.mark.parametrize("which", KERNELS)


class Shape(NamedTuple):
    """P, L and the rows of the target's factor."""

    size: int
    rank: int
    rows: int


# Less than a vector, a stretch and a bit, several tiles; groups of rows that are full and not.
SHAPES = {
    "one weight": Shape(1, 1, 2),
    "rank zero": Shape(9, 0, 1),
    "no new rows": Shape(40, 3, 3),
    "uci": Shape(501, 10, 11),
    "classes": Shape(333, 7, 17),
    "wide": Shape(130, 50, 51),
    "fewer rows than rank": Shape(77, 8, 3),
}
SEVERAL_THREADS = Shape(2600, 12, 16)


def problem(shape: Shape, dtype=jnp.float64, seed: int = 0) -> tuple[DLRGaussian, Target]:
    """A fit as truncation leaves it, of some of the target's rows, and the target."""
    rng = np.random.default_rng(seed)
    mean, diag = rng.normal(size=shape.size), np.exp(rng.normal(size=shape.size))
    lengths = np.exp(rng.normal(size=(shape.rows, 1))) / np.sqrt(shape.rows)
    rows = lengths * rng.normal(size=(shape.rows, shape.size))
    dropped = np.sum(rows[shape.rank :] ** 2, axis=0)
    spare = rng.normal(size=(max(shape.rank - shape.rows, 0), shape.size))
    fit = DLRGaussian(mean, diag + dropped, np.concatenate([rows[: shape.rank], spare]))
    return jax.tree.map(lambda a: jnp.asarray(a, dtype), (fit, Target(diag, rows)))


def swept(which: str, monkeypatch, sweeps: int = 1):
    """Compiled while the switch says so, since the choice is made when tracing."""
    monkeypatch.setenv("BAYESTREAM_KERNELS", which)
    return jax.jit(lambda fit, goal: fits.factor_analysis(fit, goal, sweeps=sweeps))


def textbook(fit: DLRGaussian, goal: Target, sweeps: int) -> tuple[np.ndarray, np.ndarray]:
    """Diagonal and low-rank part after so many EM steps on the dense target."""
    rows = np.asarray(goal.factor)
    dense = np.diag(np.asarray(goal.diag)) + rows.T @ rows
    diag, factor = np.asarray(fit.diag), np.asarray(fit.factor).T
    for _ in range(sweeps):
        diag, factor = methods.factor_analysis(dense, diag, factor)
    return diag, factor


@both
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_sweeps_are_the_textbooks_on_the_dense_target(shape, which, monkeypatch):
    fit, goal = problem(shape)
    after = swept(which, monkeypatch, sweeps=3)(fit, goal)
    diag, factor = textbook(fit, goal, sweeps=3)
    np.testing.assert_allclose(after.diag, diag, rtol=1e-9)
    np.testing.assert_allclose(after.factor, factor.T, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(after.mean, fit.mean)


@both
def test_float32_is_near_float64(which, monkeypatch):
    exact = swept(which, monkeypatch, sweeps=3)(*problem(SHAPES["uci"]))
    single = swept(which, monkeypatch, sweeps=3)(*problem(SHAPES["uci"], jnp.float32))
    assert single.factor.dtype == single.diag.dtype == jnp.float32
    np.testing.assert_allclose(single.diag, exact.diag, rtol=2e-5)
    scale = np.max(np.abs(exact.factor))
    np.testing.assert_allclose(single.factor, exact.factor, atol=1e-5 * scale)


@both
@pytest.mark.parametrize("shape", ["no new rows", "wide"])
def test_a_target_far_larger_than_the_fit_leaves_the_diagonal_positive_in_float32(
    shape, which, monkeypatch
):
    """The diagonal is a small difference of large numbers unless it is formed as a sum."""
    fit, goal = problem(SHAPES[shape], jnp.float32)
    goal = Target(1e-3 * goal.diag, 1e4 * goal.factor)
    after = swept(which, monkeypatch, sweeps=5)(fit, goal)
    assert np.all(np.isfinite(after.factor))
    assert np.all(np.asarray(after.diag) > 0)


@both
@pytest.mark.parametrize("shape", [SHAPES["uci"], Shape(9, 2, 3)], ids=["in parallel", "in turn"])
def test_beliefs_side_by_side_are_swept_as_one_after_another(shape, which, monkeypatch):
    several = [problem(shape, seed=seed) for seed in range(4)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *several)
    together = jax.jit(jax.vmap(swept(which, monkeypatch)))(*stacked)
    alone = [swept(which, monkeypatch)(*each) for each in several]
    for index, one in enumerate(alone):
        for a, b in zip(jax.tree.map(lambda leaf, i=index: leaf[i], together), one, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-11)


@pytest.mark.skipif(not native.built(), reason="the native kernels were not built")
def test_a_belief_divided_over_threads_is_swept_as_in_jax(monkeypatch):
    fit, goal = problem(SEVERAL_THREADS)
    pure, divided = (swept(which, monkeypatch, sweeps=2)(fit, goal) for which in ("jax", "native"))
    for a, b in zip(divided, pure, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-10)


@both
def test_what_went_in_is_left_as_it_was(which, monkeypatch):
    fit, goal = problem(SHAPES["uci"])
    before = jax.tree.map(np.array, (fit, goal))
    swept(which, monkeypatch, sweeps=2)(fit, goal)
    for old, new in zip(jax.tree.leaves(before), jax.tree.leaves((fit, goal)), strict=True):
        np.testing.assert_array_equal(new, old)
