"""Numbers with noise that is learnt from the stream."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bayestream.checks import check_covariance, check_fraction, check_non_negative, check_scale
from bayestream.likelihoods.gaussian import gaussian_of, of_known
from bayestream.likelihoods.student_t import reduced, student_t_of
from bayestream.types import Array, EvolvingLikelihood


class _RunningNoise(NamedTuple):
    noise: Array  # R̂: () or (C, C)
    seen: Array  # observations averaged so far


def adaptive_gaussian(
    *, noise: float = 1.0, minimum_rate: float = 0.01, full: bool = False, floor: float = 1e-8
) -> EvolvingLikelihood:
    """A Gaussian whose R is learnt from the stream, starting at `noise`.

    R̂_t = (1 − ε_t) R̂_{t−1} + ε_t (e eᵀ + floor), e = y_t − ŷ_t, ε_t = max(minimum_rate, 1/(t+1)):
    the running average of the paper's appendix, with the starting value counted as one
    observation, so that R̂ is positive definite from the first step on. Scalar (r I, with
    eᵀe/C in place of e eᵀ) unless `full`. Step t is conditioned with R̂_{t−1}, the one its
    forecast used. As e is also due to doubt about the weights, R̂ is too large while there is much
    of it; `adaptive_student_t` takes that into account.

    >>> likelihood = adaptive_gaussian(noise=1.0, floor=0.0)
    >>> carry = likelihood.init(1, jnp.float32)
    >>> eta, y = jnp.zeros((1, 1)), jnp.full((1, 1), 3.0)
    >>> float(likelihood.adapt(carry, eta, y, jnp.ones(1)).noise)  # (1 + 9) / 2
    5.0
    """
    start = check_covariance("noise", noise)
    check_fraction("minimum_rate", minimum_rate)
    check_non_negative("floor", floor)
    if start.ndim:
        raise ValueError(f"noise must be a positive number to start from, got {noise!r}.")

    def init(outputs: int, dtype: Any) -> _RunningNoise:
        r = jnp.asarray(start, dtype)
        return _RunningNoise(r * jnp.eye(outputs, dtype=dtype) if full else r, jnp.zeros((), dtype))

    def adapt(
        carry: _RunningNoise, eta: Array, y: Array, trust: Array, kept: Any = 1.0
    ) -> _RunningNoise:
        seen = jnp.sum(trust > 0).astype(eta.dtype)
        known = (trust[:, None] > 0) & ~jnp.isnan(y.reshape(eta.shape))
        error = jnp.where(known, trust[:, None] * (y.reshape(eta.shape) - eta), 0.0)
        if full:
            squares = jax.vmap(partial(_expected_square, carry.noise))(error, known)
            squares = jnp.sum(jnp.where(trust[:, None, None] > 0, squares, 0.0), axis=0)
            average = squares / jnp.maximum(seen, 1.0)
            average += floor * jnp.eye(eta.shape[-1], dtype=eta.dtype)
        else:
            average = jnp.sum(error**2) / jnp.maximum(jnp.sum(known), 1) + floor
        # A batch of n counts as n observations, all forecast from the same belief.
        rate = jnp.maximum(1 - (1 - minimum_rate) ** seen, seen / (carry.seen + seen + 1.0))
        noise = (1 - rate) * carry.noise + rate * average
        return _RunningNoise(noise.astype(carry.noise.dtype), carry.seen + seen)

    return EvolvingLikelihood(init, lambda carry, step: gaussian_of(carry.noise), adapt)


def _expected_square(noise: Array, error: Array, known: Array) -> Array:
    """E[e eᵀ] given those of an example's errors that are known: e eᵀ where they all are."""
    across = jnp.where(known, noise, 0.0)  # Cov[e, known e]
    gain = jnp.linalg.solve(of_known(noise, known), across.T).T
    filled = jnp.where(known, error, gain @ error)
    rest = jnp.where(known[:, None] | known, 0.0, noise - gain @ across.T)
    return jnp.outer(filled, filled) + rest


class _RunningScale(NamedTuple):
    square: Array  # ŝ² ()
    seen: Array  # observations averaged so far


def adaptive_student_t(
    *, scale: float = 1.0, dof: float = 8.0, minimum_rate: float = 0.03, floor: float = 1e-8
) -> EvolvingLikelihood:
    """Student's t whose scale is learnt from the stream, starting at `scale`; ν stays `dof`.

    ŝ²_t = (1 − ε_t) ŝ²_{t−1} + ε_t (w m + floor), w = (ν+1)/(ν + m/ŝ²_{t−1}), with ε_t and the
    average over outputs as in `adaptive_gaussian`: a step of EM, in which w is the precision that
    an error of that size suggests, and m = k² e² + (1 − k) ŝ²_{t−1} is what the error's square is
    expected to be after the update. k = R/(H Σ Hᵀ + R) is the share of the error that is kept, so
    that doubt about the weights is not taken for noise; of a learner without doubt, k = 1 and
    m = e². For errors that are t its fixed point is s², as E[w e²] = s² there; it fades (ν+3)/ν
    times as slowly as `adaptive_gaussian`, since w leans on ŝ².

    As w m < (ν+1) ŝ², no error multiplies ŝ² by more than 1 + ε_t ν, however large it is; a
    fraction p of gross errors raises ŝ² by about p(ν+3) of itself.

    >>> likelihood = adaptive_student_t(scale=1.0, dof=3.0, floor=0.0)
    >>> carry = likelihood.init(1, jnp.float32)
    >>> eta, y = jnp.zeros((1, 1)), jnp.full((1, 1), 3.0)
    >>> float(likelihood.adapt(carry, eta, y, jnp.ones(1)).square)  # (1 + 9 · 4/(3 + 9)) / 2
    2.0
    """
    start = check_scale("scale", scale, vector=False)
    nu = check_scale("dof", dof, vector=False)
    check_fraction("minimum_rate", minimum_rate)
    check_non_negative("floor", floor)

    def init(outputs: int, dtype: Any) -> _RunningScale:
        return _RunningScale(jnp.asarray(start**2, dtype), jnp.zeros((), dtype))

    def adapt(
        carry: _RunningScale, eta: Array, y: Array, trust: Array, kept: Any = 1.0
    ) -> _RunningScale:
        seen = jnp.sum(trust > 0).astype(eta.dtype)
        known = (trust[:, None] > 0) & ~jnp.isnan(y.reshape(eta.shape))
        error = jnp.where(known, trust[:, None] * (y.reshape(eta.shape) - eta), 0.0)
        k = jnp.where(known, jnp.broadcast_to(kept, trust.shape)[:, None], 1.0)
        u = k * reduced(error, jnp.sqrt(carry.square), jnp.asarray(nu, eta.dtype))
        u = jnp.where(known, jnp.hypot(u, jnp.sqrt((1 - k) / nu)), 0.0)
        # w m = (ν+1) ŝ² u²/(1 + u²) with u² = m/(ν ŝ²), in the form that overflows for no error.
        weighted = (nu + 1) * carry.square * jnp.sum((u / jnp.hypot(1.0, u)) ** 2)
        average = weighted / jnp.maximum(jnp.sum(known), 1) + floor
        rate = jnp.maximum(1 - (1 - minimum_rate) ** seen, seen / (carry.seen + seen + 1.0))
        square = (1 - rate) * carry.square + rate * average
        return _RunningScale(square.astype(carry.square.dtype), carry.seen + seen)

    return EvolvingLikelihood(
        init, lambda carry, step: student_t_of(jnp.sqrt(carry.square), nu), adapt
    )
