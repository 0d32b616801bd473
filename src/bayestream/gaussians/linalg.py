"""The small operations that all posterior families share."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve, solve_triangular

from bayestream.gaussians import threads
from bayestream.types import Array

threads.limit()


def cholesky_of_identity_plus(gram: Array) -> Array:
    """The lower Cholesky factor of I + S for a positive semi-definite S.

    S comes from sums of products, so rounding leaves an error of about ε·max(S); where that is
    more than the 1 that keeps the matrix definite, the factorisation is made again with the
    error added to the diagonal. A matrix whose rounding is below 1 is never touched.
    """
    size = gram.shape[-1]
    matrix = gram + jnp.eye(size, dtype=gram.dtype)
    factor = jnp.linalg.cholesky(matrix)
    error = 4 * size * jnp.finfo(gram.dtype).eps * jnp.max(jnp.diagonal(matrix), initial=0.0)
    guarded = jnp.linalg.cholesky(matrix + error * jnp.eye(size, dtype=gram.dtype))
    return jnp.where(jnp.all(jnp.isfinite(factor)), factor, guarded)


def solve_identity_plus(gram: Array, right: Array) -> Array:
    """(I + S)⁻¹ right."""
    return cho_solve((cholesky_of_identity_plus(gram), True), right)


def inverse_of_identity_plus(gram: Array) -> Array:
    """(I + S)⁻¹."""
    return solve_identity_plus(gram, jnp.eye(gram.shape[-1], dtype=gram.dtype))


def half_solve(factor: Array, right: Array) -> Array:
    """L⁻¹ right, for a lower-triangular L."""
    return solve_triangular(factor, right, lower=True)


def partway(origin: Array, end: Array, fraction: Array) -> Array:
    """The point a fraction of the way from one to the other; of the whole way, exactly the end."""
    # A branch: mostly it is the end, which is then not touched.
    return jax.lax.cond(fraction < 1, lambda: origin + fraction * (end - origin), lambda: end)


@jax.custom_jvp
def directions(gram: Array) -> Array:
    """The eigenvectors of a symmetric matrix as rows, those of the largest eigenvalues first.

    Directions of one eigenvalue have no derivatives of their own, and what is asked here does not
    depend on them: which of them is which matters neither to those that are kept together nor, at
    zero, to what is dropped. So they are taken to turn with nothing.
    """
    return jnp.linalg.eigh(gram)[1][:, ::-1].T


@directions.defjvp
def _turn(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (gram,), (change,) = primals, tangents
    V = directions(gram)
    values = jnp.sum((V @ gram) * V, axis=1)
    gaps = values[:, None] - values
    apart = jnp.abs(gaps) > len(V) * jnp.finfo(gram.dtype).eps * jnp.max(jnp.abs(values))
    turn = jnp.where(apart, V @ change @ V.T / jnp.where(apart, gaps, 1.0), 0.0)
    return V, turn @ V
