"""Numbers with noise that has heavy tails: outliers are expected, and move the weights little."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from bayestream.checks import check_scale
from bayestream.likelihoods.parts import independent
from bayestream.types import Array, Key, Likelihood


def student_t(
    scale: float | Sequence[Any] | Array | NDArray[Any], *, dof: float = 4.0
) -> Likelihood:
    """Y = η + s t_ν for each output; `scale` is s (not s²): a number, or one an output.

    score = (ν+1) e/(ν s² + e²) with e = y − η, Fisher information (ν+1)/((ν+3) s²). The score
    grows with the error up to e = √ν s and falls beyond it, so a gross outlier teaches nothing; nor
    does anything else while all errors are many s, as those of untrained weights may be. There
    `adaptive_student_t`, which starts wide, learns more surely than a small s that is known.

    `dof` is ν: near 1 the tails are so heavy that a tenth of all errors lie beyond six s, at 4
    outliers of ten s come once in two thousand, at 30 the noise is all but Gaussian with variance
    s². The variance s² ν/(ν−2) is infinite for ν ≤ 2; the mean of the noise does not exist for
    ν ≤ 1, where `mean` gives its median η.

    >>> score = student_t(1.0, dof=3.0).score(jnp.zeros(4), jnp.array([0.1, 1.0, 3.0, 1000.0]))
    >>> [round(float(each), 3) for each in score]
    [0.133, 1.0, 1.0, 0.004]
    """
    return student_t_of(check_scale("scale", scale), check_scale("dof", dof, vector=False))


def student_t_of(scale: Any, dof: Any) -> Likelihood:
    """Student's t with s a scalar or a vector and ν a scalar, possibly traced."""

    def settings(eta: Array) -> tuple[Array, Array]:
        s = jnp.broadcast_to(jnp.asarray(scale, eta.dtype), eta.shape)
        return s, jnp.asarray(dof, eta.dtype)

    def log_density(eta: Array, y: Array) -> Array:
        s, nu = settings(eta)
        return log_peak(nu) - jnp.log(s) + log_fall(y - eta, s, nu)

    def score(eta: Array, y: Array) -> Array:
        s, nu = settings(eta)
        u = reduced(y - eta, s, nu)
        r = jnp.hypot(1.0, u)
        return (nu + 1) / (jnp.sqrt(nu) * s) * (u / r / r)

    def root(eta: Array) -> Array:
        s, nu = settings(eta)
        return jnp.sqrt((nu + 1) / (nu + 3)) / s

    def variance(eta: Array) -> Array:
        s, nu = settings(eta)
        return variance_of(s, nu)

    def sample(key: Key, eta: Array) -> Array:
        s, nu = settings(eta)
        return eta + s * jax.random.t(key, nu, eta.shape, eta.dtype)

    return independent(
        log_density=log_density,
        score=score,
        root=root,
        mean=lambda eta: eta,
        variance=variance,
        sample=sample,
        support=jnp.isfinite,
        expects="finite numbers",
        name="student_t",
    )._replace(scale_and_dof=settings)


def reduced(error: Array, scale: Array, dof: Array) -> Array:
    """U = e/(√ν s), kept finite: what depends on it goes through hypot(1, u), never through u²."""
    largest = jnp.finfo(error.dtype).max
    return jnp.clip(error / (jnp.sqrt(dof) * scale), -largest, largest)


def log_fall(error: Array, scale: Array, dof: Array) -> Array:
    """Log p(e)/p(0) = −½(ν+1) log(1 + u²), for any finite error."""
    size = jnp.abs(reduced(error, scale, dof))
    near = size < 1e8  # beyond, 1 + u² is u² to rounding, also in float64
    square = jnp.where(near, size, 0.0) ** 2
    logarithm = jnp.where(near, jnp.log1p(square), 2 * jnp.log(jnp.where(near, 1.0, size)))
    return -0.5 * (dof + 1) * logarithm


def variance_of(scale: Array, dof: Array) -> Array:
    """s² ν/(ν−2); infinite for ν ≤ 2."""
    finite = dof > 2
    return jnp.where(finite, scale**2 * dof / jnp.where(finite, dof - 2, 1.0), jnp.inf)


_SHIFT = 12
# log Γ(b + ½)/Γ(b) = ½ log b + Σ_k c_k/b^(2k+1); from b = 12 on, five terms are exact to 1e-14.
_SERIES = (-1 / 8, 1 / 192, -1 / 640, 17 / 14336, -31 / 18432)


def log_peak(dof: Array) -> Array:
    """Log of the standard density at zero, Γ((ν+1)/2)/(√(πν) Γ(ν/2)), to rounding for every ν.

    The difference of two log Γ would lose all its digits as ν grows, in float32 from a thousand on.
    """
    a = 0.5 * dof
    b = a + _SHIFT
    steps = jnp.log1p(0.5 / (a[..., None] + np.arange(_SHIFT, dtype=a.dtype)))
    series = jnp.polyval(jnp.asarray(_SERIES[::-1], a.dtype), 1 / b**2) / b
    shifted = 0.5 * jnp.log1p(_SHIFT / a) - jnp.sum(steps, axis=-1)
    return shifted + series - 0.5 * jnp.log(2 * jnp.pi)
