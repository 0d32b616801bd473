"""Dense float64 versions of the methods that LO-FI is compared with, for use in tests.

Each method is a generator over a stream of (x, y), where y is None when the label is missing; it
yields the belief after every step. Derivatives of the network are the only thing taken from JAX,
and the steps of an optimiser the only thing taken from optax.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from scipy.linalg import block_diag
from scipy.special import softmax

from oracles import DLR, Array, Dense, Network, dlr_to_dense, lofi_predict

Stream = Iterable[tuple[Array, Array | None]]


class Observation(NamedTuple):
    """One example at one θ: the network's Jacobian, the information and the score in η."""

    jacobian: Array  # (C, P) F
    information: Array  # (C, C) Fisher information of y in η
    score: Array  # (C,) ∂log p/∂η

    @property
    def gradient(self) -> Array:
        """∇ log p (P,)."""
        return self.jacobian.T @ self.score

    @property
    def fisher(self) -> Array:
        """Fᵀ I F (P, P), also called the Gauss-Newton matrix."""
        return self.jacobian.T @ self.information @ self.jacobian

    @property
    def root(self) -> Array:
        """G (P, C) with G Gᵀ = Fᵀ I F, through the eigenvalues of I."""
        values, vectors = np.linalg.eigh(self.information)
        return self.jacobian.T @ (vectors * np.sqrt(np.maximum(values, 0.0)))


View = Callable[[Array, Array, Array], Observation]  # (θ, x, y as a vector)


@cache
def _value_and_jacobian(network: Network) -> Callable[..., tuple[jax.Array, jax.Array]]:
    return jax.jit(lambda theta, x: (network(theta, x), jax.jacobian(network)(theta, x)))


def _linearise(network: Network, theta: Array, x: Array) -> tuple[Array, Array]:
    eta, jacobian = _value_and_jacobian(network)(jnp.asarray(theta), jnp.asarray(x))
    return np.asarray(eta), np.asarray(jacobian)


def gaussian_view(network: Network, noise: Array) -> View:
    """Y = η + N(0, R): I = R⁻¹ and score R⁻¹(y − η)."""
    information = np.linalg.inv(np.atleast_2d(noise))

    def view(theta: Array, x: Array, y: Array) -> Observation:
        eta, jacobian = _linearise(network, theta, x)
        return Observation(jacobian, information, information @ (y - eta))

    return view


def categorical_view(network: Network) -> View:
    """Logits η and y one-hot: I = diag(p) − p pᵀ and score y − p."""

    def view(theta: Array, x: Array, y: Array) -> Observation:
        eta, jacobian = _linearise(network, theta, x)
        p = softmax(eta)
        return Observation(jacobian, np.diag(p) - np.outer(p, p), y - p)

    return view


def _descend(
    optimiser: optax.GradientTransformation, memory: Any, theta: Array, gradient: Array
) -> tuple[Array, Any]:
    change, memory = optimiser.update(jnp.asarray(gradient), memory, jnp.asarray(theta))
    return theta + np.asarray(change), memory


def replay_sgd(
    view: View,
    start: Array,
    stream: Stream,
    *,
    buffer: int,
    optimiser: optax.GradientTransformation,
    inner_steps: int,
    average: bool,
) -> Iterator[Array]:
    """SGD on the last `buffer` observed examples, kept in a list."""
    theta, memory, kept = start, optimiser.init(jnp.asarray(start)), []
    for x, y in stream:
        if y is not None:
            kept = [*kept, (x, y)][-buffer:]
            for _ in range(inner_steps):
                loss_gradient = -sum(view(theta, *example).gradient for example in kept)
                loss_gradient = loss_gradient / (len(kept) if average else 1)
                theta, memory = _descend(optimiser, memory, theta, loss_gradient)
        yield theta


def best_of_rank(matrix: Array, rank: int) -> Array:
    """The part of a symmetric matrix made of its `rank` largest eigenpairs."""
    values, vectors = np.linalg.eigh(matrix)
    top = slice(max(len(values) - rank, 0), None)
    return (vectors[:, top] * values[top]) @ vectors[:, top].T


def _factor_of(matrix: Array, rank: int) -> Array:
    """W (P, rank) with W Wᵀ the best rank-L part of a positive semi-definite matrix."""
    values, vectors = np.linalg.eigh(matrix)
    values, vectors = np.maximum(values[::-1][:rank], 0.0), vectors[:, ::-1][:, :rank]
    return vectors * np.sqrt(values)


def truncate(precision: Array, low_rank: Array, rank: int) -> tuple[Array, Array]:
    """Diagonal and factor: the top of the low-rank part, and what makes diag(Λ) exact."""
    factor = _factor_of(low_rank, rank)
    return np.diag(precision) - np.sum(factor**2, axis=1), factor


def factor_analysis(covariance: Array, diag: Array, factor: Array) -> tuple[Array, Array]:
    """One EM step of fitting `covariance` by diag + factor factorᵀ (Rubin and Thayer, 1982)."""
    loadings = factor.T @ np.linalg.inv(np.diag(diag) + factor @ factor.T)
    second = np.eye(factor.shape[1]) - loadings @ factor + loadings @ covariance @ loadings.T
    new = covariance @ loadings.T @ np.linalg.inv(second)
    return np.diag(covariance - new @ loadings @ covariance), new


def bong(
    view: View,
    start: Array,
    stream: Stream,
    *,
    rank: int,
    prior_precision: float,
    decay: float = 1.0,
    drift: float = 0.0,
    columns: Callable[[Observation], Array],
    iterations: int = 0,
) -> Iterator[Dense]:
    """Λ ← Λ + G Gᵀ and μ ← μ + Λ⁻¹∇log p, then rank L; `iterations` of EM make it L-RVGA."""
    size = start.size
    belief = DLR(start, np.full(size, prior_precision), np.zeros((size, rank)))
    for x, y in stream:
        belief = lofi_predict(belief, decay, drift)
        if y is not None:
            seen = view(belief.mean, x, y)
            low_rank = belief.factor @ belief.factor.T + columns(seen) @ columns(seen).T
            exact = np.diag(belief.diag) + low_rank
            diag, factor = truncate(exact, low_rank, rank)
            for _ in range(iterations):
                diag, factor = factor_analysis(exact, diag, factor)
            belief = DLR(belief.mean + np.linalg.solve(exact, seen.gradient), diag, factor)
        yield dlr_to_dense(belief)


def gradient_column(seen: Observation) -> Array:
    """The empirical Fisher at the mean: G = ∇ log p as one column."""
    return seen.gradient[:, None]


class Curvature(NamedTuple):
    """What online Laplace keeps of each example, and the precision of all that it kept."""

    keep: Callable[[Observation], Any]
    assemble: Callable[[Sequence[Any], float, int], Array]  # (kept, η₀, P) → (P, P)


DIAGONAL = Curvature(
    keep=lambda seen: np.diag(seen.fisher),
    assemble=lambda kept, eta, size: np.diag(np.full(size, eta) + sum(kept)),
)


def kronecker(layers: Sequence[Any]) -> Curvature:
    """KFAC of dense layers that lie one after the other as (inputs + 1, outputs), bias last."""

    def keep(seen: Observation) -> list[tuple[Array, Array]]:
        pairs = []
        for layer in layers:
            shape = (-1, layer.inputs + 1, layer.outputs)
            stop = layer.offset + shape[1] * shape[2]
            jacobian = seen.jacobian[:, layer.offset : stop].reshape(shape)  # a_i Δ_co
            delta = jacobian[:, -1]  # the bias's input is 1
            a = np.einsum("cio,co->i", jacobian, delta) / np.sum(delta**2)
            pairs.append((np.outer(a, a), delta.T @ seen.information @ delta))
        return pairs

    def assemble(kept: Sequence[list[tuple[Array, Array]]], eta: float, size: int) -> Array:
        precision = eta * np.eye(size)
        if kept:
            sums = [
                [sum(part) for part in zip(*pairs, strict=True)]
                for pairs in zip(*kept, strict=True)
            ]
            precision += block_diag(*[np.kron(a, s) / len(kept) for a, s in sums])
        return precision

    return Curvature(keep, assemble)


def laplace(
    view: View,
    start: Array,
    stream: Stream,
    *,
    buffer: int,
    optimiser: optax.GradientTransformation,
    inner_steps: int,
    prior_precision: float,
    curvature: Curvature,
) -> Iterator[Dense]:
    """Online Laplace: tasks of `buffer` examples, each pulled to the anchor of the one before."""

    def precision_of(kept: Sequence[Any]) -> Array:
        return curvature.assemble(kept, prior_precision, start.size)

    theta, anchor, task, past, now = start, start, [], [], []
    for x, y in stream:
        if y is not None:
            task, pull = [*task, (x, y)], precision_of(past)
            memory = optimiser.init(jnp.asarray(theta))
            for _ in range(inner_steps):
                fit = sum(view(theta, *example).gradient for example in task)
                theta, memory = _descend(optimiser, memory, theta, pull @ (theta - anchor) - fit)
            now = [curvature.keep(view(theta, *example)) for example in task]
            if len(task) == buffer:
                anchor, past, task, now = theta, past + now, [], []
        yield Dense(theta, np.linalg.inv(precision_of(past + now)))


def orfit(view: View, start: Array, stream: Stream, *, rank: int) -> Iterator[Array]:
    """Fit each target exactly, moving only across the gradients remembered in U."""
    mean, basis, scales = start, np.zeros((start.size, rank)), np.zeros(rank)
    for x, y in stream:
        if y is not None:
            seen = view(mean, x, y)
            gradient = seen.jacobian[0]
            error = seen.score[0] / seen.information[0, 0]
            v = gradient - basis @ (basis.T @ gradient)
            mean = mean + error * v / (v @ v)
            length, k = np.linalg.norm(v), int(np.argmin(scales))
            if length > scales[k]:
                basis, scales = basis.copy(), scales.copy()
                basis[:, k], scales[k] = v / length, length
        yield mean


def ggt(
    view: View,
    start: Array,
    stream: Stream,
    *,
    rank: int,
    prior_precision: float,
    learning_rate: float,
) -> Iterator[Dense]:
    """Λ = η₀ I + Σ g gᵀ over the last L gradients, as a preconditioner of the last one."""
    mean, window = start, []
    precision = prior_precision * np.eye(start.size)
    for x, y in stream:
        if y is not None:
            gradient = view(mean, x, y).gradient
            window = [*window, gradient][-rank:]
            precision = prior_precision * np.eye(start.size)
            precision = precision + sum(np.outer(g, g) for g in window)
            mean = mean + learning_rate * np.linalg.solve(precision, gradient)
        yield Dense(mean, np.linalg.inv(precision))


class Slang(NamedTuple):
    """A precision diag + low_rank, both dense."""

    precision: Array
    low_rank: Array


def slang_precision(
    before: Slang, squares: Array, *, rank: int, rate: float, examples: int, prior_precision: float
) -> Slang:
    """(1 − β)Λ + β(N mean g gᵀ + η₀ I), with `squares` the mean of g gᵀ; then rank L."""
    prior = prior_precision * np.eye(len(squares))
    exact = (1 - rate) * before.precision + rate * (examples * squares + prior)
    low_rank = (1 - rate) * before.low_rank + rate * examples * squares
    kept = best_of_rank(low_rank, rank)
    return Slang(kept + np.diag(np.diag(exact - kept)), kept)


def mean_square_gradient(belief: Dense, design: Array, y: float, noise: float) -> Array:
    """E[g gᵀ] (P, P) under the belief, for y = design·θ + N(0, noise)."""
    spread = (y - design @ belief.mean) ** 2 + design @ belief.covariance @ design
    return np.outer(design, design) * spread / noise**2


def hilofi(
    view: View,
    start: Array,
    stream: Stream,
    *,
    factor: Array,
    last_variance: float,
    hidden_drift: float,
    last_drift: float = 0.0,
) -> Iterator[Dense]:
    """HiLoFi as published: square roots C_h (d rows) and C_l of the two covariances.

    The noise is that of y = η + R^½ ε with R the inverse information, as for a Gaussian. Yields the
    mean and the covariance with which the next observation is met.
    """
    hidden, rank = factor.shape[1], len(factor)
    mean, C_h = start, factor
    C_l = np.sqrt(last_variance) * np.eye(start.size - hidden)
    noises = (hidden_drift, last_drift)
    for x, y in stream:
        if y is not None:
            seen = view(mean, x, y)
            R = np.linalg.inv(seen.information)
            J_h, J_l = seen.jacobian[:, :hidden], seen.jacobian[:, hidden:]
            Q_h, Q_l = (
                C.T @ C + q * np.eye(C.shape[1]) for C, q in zip((C_h, C_l), noises, strict=True)
            )
            S = J_h @ Q_h @ J_h.T + J_l @ Q_l @ J_l.T + R
            K_h, K_l = Q_h @ J_h.T @ np.linalg.inv(S), Q_l @ J_l.T @ np.linalg.inv(S)
            mean = mean + np.concatenate([K_h, K_l]) @ R @ seen.score
            root = np.linalg.cholesky(R).T
            C_l = np.linalg.qr(np.vstack([C_l - C_l @ J_l.T @ K_l.T, root @ K_l.T]), mode="r")
            stack = np.vstack([C_h - C_h @ J_h.T @ K_h.T, root @ K_h.T])
            _, s, V = np.linalg.svd(stack, full_matrices=False)
            C_h = np.sqrt(s[:rank] ** 2 + hidden_drift)[:, None] * V[:rank]
        covariance = block_diag(C_h.T @ C_h + hidden_drift * np.eye(hidden), C_l.T @ C_l)
        yield Dense(mean, covariance)
