"""Dense float64 versions of what is done to a Kalman step: line search and outlier weights.

Every observation is first made a unit-noise Gaussian one, as in `bayestream.types.Likelihood`; the
algorithms of `oracles` are then given its rows as Jacobian, its residual as y, and R = I.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import log_softmax

import bayestream as bs
import oracles
from oracles import DLR, Array, Dense, Moments, Network, Pair, Spherical

Belief = Dense | DLR | Spherical


class Filter(NamedTuple):
    """A filter of `oracles` on whitened observations, and its belief written densely."""

    start: Callable[[Array, float], Belief]  # (mean, prior precision)
    predict: Callable[[Any, float, float], Belief]  # (belief, decay, drift)
    condition: Callable[[Any, Array, Array], Belief]  # (belief, rows (M, P), residual (M,))
    dense: Callable[[Any], Dense]


class View(NamedTuple):
    """What the oracle needs to know of p(y | η)."""

    pair: Callable[[Array, Array], Pair]  # (η, y) → B (C, K), v (K,)
    log_density: Callable[[Array, Array], float]  # up to a constant


class Halving(NamedTuple):
    """The options of `bs.line_search.halving`."""

    times: int = 10
    sufficient: float = 0.1
    secant: bool = True


class Step(NamedTuple):
    """What became of the belief, and how."""

    belief: Belief
    length: float  # α
    weights: Array  # (N,) W of each example
    errors: Array  # (N, C) y − η before the update


def _as_dense(mean: Array, precision: float) -> Dense:
    return Dense(mean, np.eye(mean.size) / precision)


def _whitened(rows: Array) -> Moments:
    return Moments(np.zeros(len(rows)), rows, np.eye(len(rows)))


def _fdekf(belief: Dense, rows: Array, residual: Array) -> Dense:
    variance = np.diag(belief.covariance)
    mean, variance = oracles.fdekf_update(belief.mean, variance, _whitened(rows), residual)
    return Dense(mean, np.diag(variance))


def _vdekf(belief: Dense, rows: Array, residual: Array) -> Dense:
    precision = 1.0 / np.diag(belief.covariance)
    mean, precision = oracles.vdekf_update(belief.mean, precision, _whitened(rows), residual)
    return Dense(mean, np.diag(1.0 / precision))


def _identity(belief: Dense) -> Dense:
    return belief


FCEKF = Filter(
    _as_dense,
    oracles.dense_predict,
    lambda belief, rows, v: oracles.dense_ekf(belief, _whitened(rows), v),
    _identity,
)
FDEKF = FCEKF._replace(condition=_fdekf)
VDEKF = FCEKF._replace(condition=_vdekf)


def lofi(rank: int) -> Filter:
    return Filter(
        lambda mean, eta: DLR(mean, np.full(mean.size, eta), np.zeros((mean.size, rank))),
        oracles.lofi_predict,
        lambda belief, rows, v: oracles.lofi_update(belief, _whitened(rows), v, rank),
        oracles.dlr_to_dense,
    )


def spherical(rank: int) -> Filter:
    return Filter(
        lambda mean, eta: Spherical(mean, eta, np.zeros(rank), np.zeros((mean.size, rank))),
        oracles.spherical_predict,
        lambda belief, rows, v: oracles.spherical_update(belief, _whitened(rows), v, rank),
        oracles.spherical_to_dense,
    )


def gaussian(noise: Array) -> View:
    """B = R^-½, the symmetric one."""
    values, vectors = np.linalg.eigh(noise)
    root = vectors @ np.diag(values**-0.5) @ vectors.T
    return View(
        lambda eta, y: (root, root @ (y - eta)),
        lambda eta, y: -0.5 * float(np.sum((root @ (y - eta)) ** 2)),
    )


def _softmax_pair(eta: Array, y: Array) -> Pair:
    """B Bᵀ = diag(p) − p pᵀ and B v = y − p, each by one line of algebra."""
    root = np.exp(0.5 * log_softmax(eta))
    return np.diag(root) - np.outer(root**2, root), np.eye(eta.size)[int(y)] / root - root


def categorical() -> View:
    return View(_softmax_pair, lambda eta, y: float(log_softmax(eta)[int(y)]))


def with_secant(view: View, likelihood: bs.Likelihood) -> View:
    """The library's own secant pair: its properties are tested apart."""
    secant = jax.jit(likelihood.secant)

    def pair(eta: Array, y: Array) -> Pair:
        factor, residual = secant(jnp.asarray(eta), jnp.asarray(y))
        return np.asarray(factor), np.asarray(residual)

    return view._replace(pair=pair)


def outlier_weight(rows: Array, residual: Array, covariance: Array, threshold: float) -> float:
    """W = (1 + ρ/c²)^-½, ρ the squared error per output in the forecast's own scale."""
    forecast = np.eye(len(rows)) + rows @ covariance @ rows.T
    rho = residual @ np.linalg.solve(forecast, residual) / residual.size
    return float(1.0 / np.sqrt(1.0 + rho / threshold**2))


def halve(phi: Callable[[float], float], slope: float, search: Halving) -> float:
    """The first of 1, ½, … 2^-times that lowers φ by enough of what its slope promises, or 0."""
    start = phi(0.0)
    for power in range(search.times + 1):
        length = 0.5**power
        if phi(length) <= start + search.sufficient * length * slope:
            return length
    return 0.0


def step(
    method: Filter,
    belief: Belief,
    network: Network,
    view: View,
    xs: Sequence[Array],
    ys: Sequence[Array],
    *,
    search: Halving | None = None,
    threshold: float | None = None,
) -> Step:
    """Condition on N examples at once, all linearised at the mean before."""
    mean, covariance = method.dense(belief)
    rows, residuals, weights, errors = [], [], [], []
    for x, y in zip(xs, ys, strict=True):
        eta, jacobian, _ = oracles.gaussian_moments(network, mean, x, 1.0)
        factor, residual = view.pair(eta, y)
        own = factor.T @ jacobian
        weight = 1.0 if threshold is None else outlier_weight(own, residual, covariance, threshold)
        rows.append(weight * own)
        residuals.append(weight * residual)
        weights.append(weight)
        errors.append(y - eta)
    stacked, residual = np.concatenate(rows), np.concatenate(residuals)
    full = method.condition(belief, stacked, residual)
    direction = full.mean - mean

    def phi(length: float) -> float:
        at = mean + length * direction
        cost = 0.5 * length**2 * direction @ np.linalg.solve(covariance, direction)
        for x, y, weight in zip(xs, ys, weights, strict=True):
            eta = oracles.gaussian_moments(network, at, x, 1.0).prediction
            cost -= weight**2 * view.log_density(eta, y)
        return float(cost)

    slope = -float(residual @ stacked @ direction)
    length = 1.0 if search is None else halve(phi, slope, search)
    moved = full._replace(mean=mean + length * direction)
    return Step(moved, length, np.array(weights), np.array(errors))
