"""The standard t distribution function and its quantiles, as exact in the tails as in the middle.

Quadrature of positive terms is exact to about 1e-6 of a tail in float32 and 1e-14 in float64, for
any ν; the incomplete beta function of JAX is off by 2e-4 at ν = 1000 in float32, and more above.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bayestream.likelihoods.student_t import log_fall, log_peak
from bayestream.types import Array

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(32)
# The double-exponential rule for integrals of f(v) over v > 0 where f falls like e^(−v).
_U = np.arange(-3.7, 3.95, 0.1)
_V = np.exp(_U - np.exp(-_U))
_DV = 0.1 * _V * (1 + np.exp(-_U))
_HALVINGS = 24  # which come within 1e-4 of log q; three steps of Newton do the rest


# Compiled as wholes: a forecast made outside of jit would compile them operation by operation.
@jax.jit
def cdf(z: Array, dof: Array) -> Array:
    """P(T ≤ z)."""
    q = jnp.minimum(jnp.abs(z), 1e-3 * jnp.finfo(z.dtype).max)
    upper = jnp.where(_is_central(q, dof), 0.5 - _centre(q, dof), _tail(q, dof))
    return jnp.where(z < 0, upper, 1 - upper)


def quantile(level: Any, dof: Array) -> Array:
    """The z with P(T ≤ z) = level, to a few roundings; levels above ½ mirror those below."""
    # Of a plain number the differences are taken before they are rounded to float32: 1 − 0.9995
    # and 0.5 − 0.499 keep their digits.
    level = level if isinstance(level, jax.Array) else np.asarray(level, np.float64)
    parts = (level, 1 - level, abs(level - 0.5))
    return _quantile(*(jnp.asarray(part, dof.dtype) for part in parts), dof)


@jax.jit
def _quantile(below: Array, above: Array, half: Array, dof: Array) -> Array:
    """The z with these probabilities below and above it, and between it and zero."""
    tail, half, dof = jnp.broadcast_arrays(jnp.minimum(below, above), half, dof)
    limits = jnp.finfo(dof.dtype)
    low, high = (jnp.full_like(tail, jnp.log(end)) for end in (limits.tiny, limits.max))

    def refine(count: int, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        low, high, q = carry
        missing = _shortfall(q, tail, half, dof)
        low = jnp.where(missing > 0, jnp.log(q), low)
        high = jnp.where(missing > 0, high, jnp.log(q))
        halved = jnp.exp(0.5 * (low + high))
        return low, high, jnp.where(count < _HALVINGS, halved, jnp.abs(q + missing))

    start = (low, high, jnp.ones_like(tail))
    *_, q = jax.lax.fori_loop(0, _HALVINGS + 3, refine, start)
    q = jnp.where(tail > 0, q, jnp.where(tail == 0, jnp.inf, jnp.nan))
    return jnp.where(below < above, -q, q)


@jax.jit
def crps(z: Array, dof: Array) -> Array:
    """∫ (F(t) − 1{z ≤ t})² dt for ν > 1 (Jordan, Krüger and Lerch 2019), NaN for others.

    z (2F(z) − 1) + 2 p(z) (ν + z²)/(ν−1) − 2√ν/(ν−1) B(½, ν−½)/B(½, ν/2)², where the Beta
    functions are heights of t densities at zero: p_ν(0) = 1/(√ν B(½, ν/2)).
    """
    peak, log_fallen = log_peak(dof), log_fall(z, jnp.ones_like(z), dof)
    # p(z) (ν + z²) as a power of 1 + z²/ν, which overflows for no z.
    density = dof * jnp.exp(peak + (dof - 1) / (dof + 1) * log_fallen)
    apart = dof * jnp.sqrt(dof / (2 * dof - 1)) * jnp.exp(2 * peak - log_peak(2 * dof - 1))
    found = z * (2 * cdf(z, dof) - 1) + 2 * (density - apart) / (dof - 1)
    return jnp.where(dof > 1, found, jnp.nan)


def _is_central(q: Array, dof: Array) -> Array:
    return q**2 < 3 * dof / (dof + 2)


def _log_density(q: Array, dof: Array) -> Array:
    return log_peak(dof) + log_fall(q, jnp.ones_like(q), dof)


def _centre(q: Array, dof: Array) -> Array:
    """P(0 < T < q) by Gauss's rule, for q of the centre."""
    nodes, weights = (jnp.asarray(part / 2, q.dtype) for part in (_NODES + 1, _WEIGHTS))
    return q * (jnp.exp(_log_density(q[..., None] * nodes, dof[..., None])) @ weights)


def _tail(q: Array, dof: Array) -> Array:
    """P(T > q), for q beyond the centre."""
    return jnp.exp(_log_density(q, dof) + jnp.log(_mills(q, dof)))


def _mills(q: Array, dof: Array) -> Array:
    """P(T > q)/p(q) = q ∫ eᵛ (1 + ρ(e²ᵛ − 1))^(−(ν+1)/2) dv over v > 0, with ρ = q²/(ν + q²)."""
    u = q / jnp.sqrt(dof)
    rho = (u / jnp.hypot(1.0, u)) ** 2
    nodes, weights = jnp.asarray(_V, q.dtype), jnp.asarray(_DV, q.dtype)
    width = 1 / (dof * rho)
    v, rho, dof = width[..., None] * nodes, rho[..., None], dof[..., None]
    growth = jnp.log1p(rho * jnp.expm1(2 * jnp.minimum(v, 20.0)))
    growth = jnp.where(v < 20, growth, 2 * v + jnp.log(rho))  # the same, where e²ᵛ may overflow
    return q * width * (jnp.exp(v - 0.5 * (dof + 1) * growth) @ weights)


def _shortfall(q: Array, tail: Array, half: Array, dof: Array) -> Array:
    """Newton's step from q towards the quantile: what is missing of it, over the density."""
    central = _is_central(q, dof)
    inner, outer = jnp.where(central, q, 0.5), jnp.where(central, 2.0, q)
    near = (half - _centre(inner, dof)) / jnp.exp(_log_density(inner, dof))
    # Far out the density underflows, but not its ratio to the tail.
    far = _mills(outer, dof) - jnp.exp(jnp.log(tail) - _log_density(outer, dof))
    return jnp.where(central, near, far)
