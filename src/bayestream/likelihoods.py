"""What the network's output means: p(y | η), in natural-parameter form, without jitter."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, overload

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import gammaln
from numpy.typing import NDArray

from bayestream.checks import (
    check_covariance,
    check_fraction,
    check_made_by,
    check_non_negative,
)
from bayestream.types import Array, EvolvingLikelihood, Key, Likelihood, Schedule

# Square roots of probabilities are formed as exp(log p / 2) with log p held above this, so that
# 1/√p stays a normal float32; the Fisher information is off by at most e⁻¹⁰⁰.
_LOWEST_LOG = -100.0


@overload
def gaussian(noise: Schedule) -> EvolvingLikelihood: ...
@overload
def gaussian(noise: float | Sequence[Any] | Array | NDArray[Any]) -> Likelihood: ...
def gaussian(noise: Any) -> Likelihood | EvolvingLikelihood:
    """Y = η + N(0, R); `noise` is R: a variance, a vector of variances, a matrix, or a schedule.

    B = chol(R⁻¹), v = Bᵀ(y − η), score = R⁻¹(y − η).

    >>> likelihood = gaussian(0.25)
    >>> likelihood.score(jnp.array([1.0]), jnp.array([2.0])).tolist()
    [4.0]
    """
    if callable(noise):
        return EvolvingLikelihood(
            init=lambda outputs, dtype: (),
            at=lambda carry, step: _gaussian(jnp.asarray(noise(step))),
            adapt=lambda carry, eta, y, observed: carry,
        )
    return _gaussian(check_covariance("noise", noise))


def categorical() -> Likelihood:
    """One of C classes with logits η; y is a class number (−1: missing) or C probabilities.

    B = diag(√p) − p √pᵀ gives B Bᵀ = diag(p) − p pᵀ exactly, and B (y/√p) = y − p.

    >>> categorical().score(jnp.zeros(2), jnp.array(1)).tolist()
    [-0.5, 0.5]
    """

    def roots(eta: Array) -> Array:
        return jnp.exp(0.5 * jnp.maximum(jax.nn.log_softmax(eta), _LOWEST_LOG))

    def target(y: Array, eta: Array) -> Array:
        one_hot = y if jnp.ndim(y) else jax.nn.one_hot(y.astype(int), eta.shape[-1])
        return one_hot.astype(eta.dtype)

    def covariance(eta: Array) -> Array:
        p = jax.nn.softmax(eta)
        return jnp.diag(p) - jnp.outer(p, p)

    def support(y: Array, outputs: int) -> Array:
        if jnp.ndim(y):
            return jnp.all(y >= 0) & (jnp.abs(jnp.sum(y) - 1) < 1e-3)
        return (y >= 0) & (y < outputs) & (y == jnp.round(y))

    return Likelihood(
        log_density=lambda eta, y: jnp.sum(target(y, eta) * jax.nn.log_softmax(eta)),
        score=lambda eta, y: target(y, eta) - jax.nn.softmax(eta),
        fisher_factor=lambda eta: jnp.diag(roots(eta)) - jnp.outer(jax.nn.softmax(eta), roots(eta)),
        residual=lambda eta, y: target(y, eta) / roots(eta),
        mean=jax.nn.softmax,
        covariance=covariance,
        sample=lambda key, eta: jax.random.categorical(key, eta),
        missing=lambda y: _any_nan(y) if jnp.ndim(y) else jnp.isnan(y) | (y == -1),
        support=support,
        target_shapes=lambda outputs: ((), (outputs,)),
        expects="a class number from 0 to C−1 (−1 or NaN: missing) or C probabilities",
        name="categorical",
    )


def bernoulli() -> Likelihood:
    """C independent yes/no outputs with logits η; y holds zeros and ones.

    >>> bernoulli().mean(jnp.zeros(2)).tolist()
    [0.5, 0.5]
    """

    def root(eta: Array) -> Array:
        log_variance = jax.nn.log_sigmoid(eta) + jax.nn.log_sigmoid(-eta)
        return jnp.exp(0.5 * jnp.maximum(log_variance, _LOWEST_LOG))

    def log_density(eta: Array, y: Array) -> Array:
        return jnp.sum(y * jax.nn.log_sigmoid(eta) + (1 - y) * jax.nn.log_sigmoid(-eta))

    return _independent(
        log_density=log_density,
        score=lambda eta, y: y - jax.nn.sigmoid(eta),
        root=root,
        mean=jax.nn.sigmoid,
        variance=lambda eta: jax.nn.sigmoid(eta) * jax.nn.sigmoid(-eta),
        sample=lambda key, eta: jax.random.bernoulli(key, jax.nn.sigmoid(eta)).astype(eta.dtype),
        support=lambda y, outputs: jnp.all((y == 0) | (y == 1)),
        expects="zeros and ones",
        name="bernoulli",
    )


def poisson() -> Likelihood:
    """C independent counts with log-rates η.

    >>> poisson().score(jnp.zeros(1), jnp.array([3.0])).tolist()
    [2.0]
    """

    def log_density(eta: Array, y: Array) -> Array:
        return jnp.sum(y * eta - jnp.exp(eta) - gammaln(y + 1.0))

    return _independent(
        log_density=log_density,
        score=lambda eta, y: y - jnp.exp(eta),
        root=lambda eta: jnp.exp(0.5 * jnp.maximum(eta, _LOWEST_LOG)),
        mean=jnp.exp,
        variance=jnp.exp,
        sample=lambda key, eta: jax.random.poisson(key, jnp.exp(eta)).astype(eta.dtype),
        support=lambda y, outputs: jnp.all((y >= 0) & (y == jnp.round(y)) & jnp.isfinite(y)),
        expects="whole numbers, zero or above",
        name="poisson",
    )


def from_log_density(
    log_density: Callable[[Array, Array], Array],
    *,
    mean: Callable[[Array], Array],
    fisher: Callable[[Array], Array] | None = None,
) -> Likelihood:
    """A likelihood from `log_density(η, y)` and `mean(η)` = E[y], both for one observation.

    Without `fisher`, the information is −∂²log p/∂η² at y = mean(η): exact for exponential
    families in their natural parameter. It must be positive definite; eigenvalues below 10⁻⁶ of
    the largest are raised to that, so that the score always lies in its range.

    >>> exponential = from_log_density(lambda eta, y: jnp.sum(eta - y * jnp.exp(eta)),
    ...                                mean=lambda eta: jnp.exp(-eta))
    >>> exponential.fisher_factor(jnp.zeros(1)).tolist()
    [[1.0]]
    """
    hessian = jax.hessian(log_density)
    score = jax.grad(log_density)

    def roots(eta: Array) -> tuple[Array, Array]:
        """The square roots of the information's eigenvalues, and its eigenvectors."""
        information = fisher(eta) if fisher else -hessian(eta, mean(eta))
        values, vectors = jnp.linalg.eigh(information)
        lowest = jnp.maximum(1e-6 * values[-1], math.exp(_LOWEST_LOG / 2))
        return jnp.sqrt(jnp.maximum(values, lowest)), vectors

    def fisher_factor(eta: Array) -> Array:
        scales, vectors = roots(eta)
        return vectors * scales

    def residual(eta: Array, y: Array) -> Array:
        scales, vectors = roots(eta)
        return (score(eta, y) @ vectors) / scales

    def refuse(*_: Any) -> Array:
        raise NotImplementedError(
            "a likelihood made by from_log_density knows its mean and density, "
            "not how to sample or its covariance; write a Likelihood if you need those."
        )

    return Likelihood(
        log_density=log_density,
        score=score,
        fisher_factor=fisher_factor,
        residual=residual,
        mean=mean,
        covariance=refuse,
        sample=refuse,
        missing=_any_nan,
        support=_all_finite,
        target_shapes=_vector_shapes,
        expects="finite numbers",
        name="from_log_density",
    )


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
    forecast used.

    >>> likelihood = adaptive_gaussian(noise=1.0, floor=0.0)
    >>> carry = likelihood.init(1, jnp.float32)
    >>> eta, y = jnp.zeros((1, 1)), jnp.full((1, 1), 3.0)
    >>> float(likelihood.adapt(carry, eta, y, jnp.array([True])).noise)  # (1 + 9) / 2
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

    def adapt(carry: _RunningNoise, eta: Array, y: Array, observed: Array) -> _RunningNoise:
        error = jnp.where(observed[:, None], y.reshape(eta.shape) - eta, 0.0)
        seen = jnp.sum(observed).astype(eta.dtype)
        squares = error.T @ error if full else jnp.sum(error**2) / eta.shape[-1]
        smallest = floor * jnp.eye(eta.shape[-1], dtype=eta.dtype) if full else floor
        average = squares / jnp.maximum(seen, 1.0) + smallest
        # A batch of n counts as n observations, all forecast from the same belief.
        rate = jnp.maximum(1 - (1 - minimum_rate) ** seen, seen / (carry.seen + seen + 1.0))
        noise = (1 - rate) * carry.noise + rate * average
        return _RunningNoise(noise.astype(carry.noise.dtype), carry.seen + seen)

    return EvolvingLikelihood(init, lambda carry, step: _gaussian(carry.noise), adapt)


def evolving(likelihood: Likelihood | EvolvingLikelihood) -> EvolvingLikelihood:
    """Any likelihood as one that may change along the stream; a fixed one carries nothing."""
    if isinstance(likelihood, EvolvingLikelihood):
        return likelihood
    check_made_by("likelihood", likelihood, Likelihood, "bayestream.likelihoods (gaussian, …)")
    return EvolvingLikelihood(
        init=lambda outputs, dtype: (),
        at=lambda carry, step: likelihood,
        adapt=lambda carry, eta, y, observed: carry,
    )


def _gaussian(noise: Any) -> Likelihood:
    """Gaussian with R given as a scalar, vector or matrix, possibly traced."""
    matrix = jnp.ndim(noise) == 2

    def factor(eta: Array) -> Array:  # B, with B Bᵀ = R⁻¹
        R = jnp.asarray(noise, eta.dtype)
        if matrix:
            identity = jnp.eye(eta.shape[-1], dtype=eta.dtype)
            return solve_triangular(jnp.linalg.cholesky(R), identity, lower=True).T
        return jnp.diag(jnp.broadcast_to(1 / jnp.sqrt(R), eta.shape))

    def covariance(eta: Array) -> Array:
        R = jnp.asarray(noise, eta.dtype)
        return R if matrix else jnp.diag(jnp.broadcast_to(R, eta.shape))

    def residual(eta: Array, y: Array) -> Array:
        return (y.reshape(eta.shape) - eta) @ factor(eta)

    def log_density(eta: Array, y: Array) -> Array:
        B = factor(eta)
        log_normaliser = jnp.sum(jnp.log(jnp.diag(B))) - 0.5 * eta.size * jnp.log(2 * jnp.pi)
        return log_normaliser - 0.5 * jnp.sum(residual(eta, y) ** 2)

    def sample(key: Key, eta: Array) -> Array:
        R_root = jnp.linalg.cholesky(covariance(eta))
        return eta + R_root @ jax.random.normal(key, eta.shape, eta.dtype)

    return Likelihood(
        log_density=log_density,
        score=lambda eta, y: factor(eta) @ residual(eta, y),
        fisher_factor=factor,
        residual=residual,
        mean=lambda eta: eta,
        covariance=covariance,
        sample=sample,
        missing=_any_nan,
        support=_all_finite,
        target_shapes=_vector_shapes,
        expects="finite numbers",
        name="gaussian",
    )


def _independent(
    *,
    log_density: Callable[[Array, Array], Array],
    score: Callable[[Array, Array], Array],
    root: Callable[[Array], Array],
    mean: Callable[[Array], Array],
    variance: Callable[[Array], Array],
    sample: Callable[[Key, Array], Array],
    support: Callable[[Array, int], Array],
    expects: str,
    name: str,
) -> Likelihood:
    """Outputs that are independent given η: B = diag(root)."""
    return Likelihood(
        log_density=lambda eta, y: log_density(eta, y.reshape(eta.shape)),
        score=lambda eta, y: score(eta, y.reshape(eta.shape)),
        fisher_factor=lambda eta: jnp.diag(root(eta)),
        residual=lambda eta, y: score(eta, y.reshape(eta.shape)) / root(eta),
        mean=mean,
        covariance=lambda eta: jnp.diag(variance(eta)),
        sample=sample,
        missing=_any_nan,
        support=support,
        target_shapes=_vector_shapes,
        expects=expects,
        name=name,
    )


def _any_nan(y: Array) -> Array:
    return jnp.any(jnp.isnan(y))


def _all_finite(y: Array, outputs: int) -> Array:
    return jnp.all(jnp.isfinite(y))


def _vector_shapes(outputs: int) -> tuple[tuple[int, ...], ...]:
    return ((outputs,), ()) if outputs == 1 else ((outputs,),)
