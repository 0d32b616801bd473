"""Dense float64 reference versions of the algorithms in the LO-FI paper, for use in tests."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag

Array = NDArray[np.float64]
Pair = tuple[Array, Array]
Network = Callable[[jax.Array, jax.Array], jax.Array]
Link = Callable[[jax.Array], jax.Array]
CUTOFF = 1e-12  # eigenvalues of R below this share of the largest count as its null space


class Dense(NamedTuple):
    """Gaussian belief with a full covariance."""

    mean: Array  # (P,)
    covariance: Array  # (P, P)


class DLR(NamedTuple):
    """Gaussian belief whose precision is diag + factor factor^T (DLR(L), section Methods)."""

    mean: Array  # (P,)
    diag: Array  # (P,)
    factor: Array  # (P, L)


class Spherical(NamedTuple):
    """Gaussian belief of precision eta I + U diag(lambda^2) U^T (eq. SPL-posterior)."""

    mean: Array  # (P,)
    precision: float  # eta
    scales: Array  # (L,) lambda
    basis: Array  # (P, L) U, orthonormal wherever its scale is not zero


class Moments(NamedTuple):
    """Conditional moments of y at the prior mean (eqs. pred-obs-mean and pred-obs-cov)."""

    prediction: Array  # (C,) yhat
    jacobian: Array  # (C, P) H, of the mean of y and not of the natural parameter
    covariance: Array  # (C, C) R


def dlr_to_dense(belief: DLR) -> Dense:
    """Invert the precision Upsilon + W W^T."""
    return Dense(belief.mean, np.linalg.inv(np.diag(belief.diag) + belief.factor @ belief.factor.T))


def spherical_to_dense(belief: Spherical) -> Dense:
    """Invert the precision eta I + U diag(lambda^2) U^T (eq. SPL-posterior)."""
    mean, eta, scales, basis = belief
    precision = eta * np.eye(mean.size) + basis @ np.diag(scales**2) @ basis.T
    return Dense(mean, np.linalg.inv(precision))


@cache
def _value_and_jacobian(network: Network, link: Link) -> Callable[..., tuple[jax.Array, jax.Array]]:
    """Compiled once for each network, since oracles are called at every step."""

    def mean_of_y(theta: jax.Array, x: jax.Array) -> jax.Array:
        return link(network(theta, x))

    return jax.jit(lambda theta, x: (mean_of_y(theta, x), jax.jacrev(mean_of_y)(theta, x)))


def _linearise(network: Network, link: Link, params: Array, x: Array) -> Pair:
    """Value and Jacobian of h(x, .) at params (eq. linear-obs-model)."""
    # The oracle must stay in float64 whatever precision the code under test runs in.
    with jax.enable_x64(True):
        theta = jnp.asarray(params, dtype=jnp.float64)
        mean, jacobian = _value_and_jacobian(network, link)(theta, jnp.asarray(x, theta.dtype))
        return np.array(mean), np.array(jacobian)


def _identity(eta: jax.Array) -> jax.Array:
    return eta


def gaussian_moments(network: Network, params: Array, x: Array, noise: float | Array) -> Moments:
    """Regression case of eq. pred-obs-cov; noise is a variance, C variances or a (C, C) matrix."""
    mean, jacobian = _linearise(network, _identity, params, x)
    given = np.asarray(noise, dtype=np.float64)
    return Moments(mean, jacobian, given if given.ndim > 1 else given * np.eye(mean.size))


def categorical_moments(network: Network, params: Array, x: Array) -> Moments:
    """Classification case of eq. pred-obs-cov: R = diag(p) - p p^T, of rank C - 1."""
    p, jacobian = _linearise(network, jax.nn.softmax, params, x)
    return Moments(p, jacobian, np.diag(p) - np.outer(p, p))


def bernoulli_moments(network: Network, params: Array, x: Array) -> Moments:
    """Eq. pred-obs-cov for independent binary outputs: R = diag(p (1 - p))."""
    p, jacobian = _linearise(network, jax.nn.sigmoid, params, x)
    return Moments(p, jacobian, np.diag(p * (1.0 - p)))


def poisson_moments(network: Network, params: Array, x: Array) -> Moments:
    """Eq. pred-obs-cov for independent counts: R = diag(rate)."""
    rate, jacobian = _linearise(network, jnp.exp, params, x)
    return Moments(rate, jacobian, np.diag(rate))


def _stack(moments_list: list[Moments]) -> Moments:
    """Join N conditionally independent observations into one of N C outputs."""
    yhats, jacobians, covariances = zip(*moments_list, strict=True)
    return Moments(np.concatenate(yhats), np.concatenate(jacobians), block_diag(*covariances))


def _noise_inverse(noise: Array) -> Array:
    """R^-1, or the pseudo-inverse of the footnote to eq. pred-obs-cov when R is singular."""
    return np.linalg.pinv(noise, rcond=CUTOFF, hermitian=True)


def _noise_root(noise: Array) -> Array:
    """Symmetric A with A^T A = R^+, since chol(R) does not exist for a singular R."""
    values, vectors = np.linalg.eigh(noise)
    kept = values > CUTOFF * values.max()
    return (vectors[:, kept] / np.sqrt(values[kept])) @ vectors[:, kept].T


def dense_predict(belief: Dense, decay: float, drift: float) -> Dense:
    """Section Predict step: gamma mu and gamma^2 Sigma + q I."""
    mean, covariance = belief
    return Dense(decay * mean, decay**2 * covariance + drift * np.eye(mean.size))


def dense_ekf(belief: Dense, moments: Moments, y: Array) -> Dense:
    """Eqs. EKF-var-update, kalman-gain, innovation and EKF-mu-update."""
    (yhat, h, _), r_inverse = moments, _noise_inverse(moments.covariance)
    covariance = np.linalg.inv(np.linalg.inv(belief.covariance) + h.T @ r_inverse @ h)
    return Dense(belief.mean + covariance @ h.T @ r_inverse @ (np.asarray(y) - yhat), covariance)


def dense_ekf_batch(belief: Dense, moments_list: list[Moments], ys: list[Array]) -> Dense:
    """Eqs. of dense_ekf on N observations jointly, all linearised at the prior mean."""
    return dense_ekf(belief, _stack(moments_list), np.concatenate(ys))


def lofi_predict(belief: DLR, decay: float, drift: float) -> DLR:
    """Algorithm LOFI-predict."""
    mean, diag, w = belief
    new_diag = 1.0 / (decay**2 / diag + drift)
    ratio = np.diag(new_diag / diag)
    c = np.linalg.inv(np.eye(w.shape[1]) + drift * w.T @ ratio @ w)
    return DLR(decay * mean, new_diag, decay * ratio @ w @ np.linalg.cholesky(c))


def _svd(matrix: Array, rank: int) -> Pair:
    """Left singular vectors and values, with zeros appended if there are fewer than the rank."""
    u, values, _ = np.linalg.svd(matrix, full_matrices=False)
    missing = max(0, rank - values.size)
    return np.pad(u, ((0, 0), (0, missing))), np.pad(values, (0, missing))


def lofi_update(belief: DLR, moments: Moments, y: Array, rank: int) -> DLR:
    """Algorithm LOFI-update."""
    mean, diag, w = belief
    yhat, h, r = moments
    a = _noise_root(r)
    wide = np.hstack([w, h.T @ a.T])
    inverse = np.diag(1.0 / diag)
    g = np.linalg.inv(np.eye(wide.shape[1]) + wide.T @ inverse @ wide)
    gain = (inverse - inverse @ wide @ g @ wide.T @ inverse) @ h.T @ a.T @ a
    u, scales = _svd(wide, rank)
    kept, dropped = np.split(u @ np.diag(scales), [rank], axis=1)
    return DLR(mean + gain @ (np.asarray(y) - yhat), diag + np.diag(dropped @ dropped.T), kept)


def lofi_update_batch(belief: DLR, moments_list: list[Moments], ys: list[Array], rank: int) -> DLR:
    """Algorithm LOFI-update on N observations jointly, all linearised at the prior mean."""
    return lofi_update(belief, _stack(moments_list), np.concatenate(ys), rank)


def lofi_exact_precision(belief: DLR, moments: Moments) -> Array:
    """Eq. posterior-precision-exact, before the projection to rank L."""
    prior = np.diag(belief.diag) + belief.factor @ belief.factor.T
    return prior + moments.jacobian.T @ _noise_inverse(moments.covariance) @ moments.jacobian


def vdekf_update(mean: Array, precision_diag: Array, moments: Moments, y: Array) -> Pair:
    """Section Zero-rank LO-FI: the VD-EKF, which keeps the diagonal of the precision."""
    yhat, h, r = moments
    prior = np.diag(1.0 / precision_diag)
    # H Upsilon^-1 H^T has the null space of a categorical R, and y - yhat is orthogonal to it.
    gain = prior @ h.T @ _noise_inverse(h @ prior @ h.T + r)
    added = np.diag(h.T @ _noise_inverse(r) @ h)
    return mean + gain @ (np.asarray(y) - yhat), precision_diag + added


def fdekf_update(mean: Array, variance_diag: Array, moments: Moments, y: Array) -> Pair:
    """FD-EKF: diag(Sigma_t) = diag(Sigma*_t), the forward KL of section Alternative diagonal."""
    new_mean, covariance = dense_ekf(Dense(mean, np.diag(variance_diag)), moments, y)
    return new_mean, np.diag(covariance).copy()


def diagonal_predict(mean: Array, variance_diag: Array, decay: float, drift: float) -> Pair:
    """Eqs. mean-predict-appx and diagonal-predict-appx, in terms of variances."""
    return decay * mean, decay**2 * variance_diag + drift


def spherical_predict(belief: Spherical, decay: float, drift: float) -> Spherical:
    """Algorithm LOFI-spherical-predict."""
    mean, eta, scales, basis = belief
    shrink = decay**2 + drift * eta
    squares = decay**2 * scales**2 / (shrink * (shrink + drift * scales**2))
    return Spherical(decay * mean, eta / shrink, np.sqrt(squares), basis)


def spherical_update(belief: Spherical, moments: Moments, y: Array, rank: int) -> Spherical:
    """Algorithm LOFI-spherical-update, Full-SVD branch: eta is left as it is."""
    mean, eta, scales, basis = belief
    yhat, h, r = moments
    wide = np.hstack([basis @ np.diag(scales), h.T @ _noise_root(r).T])
    core = np.linalg.inv(eta * np.eye(wide.shape[1]) + wide.T @ wide)
    covariance = (np.eye(mean.size) - wide @ core @ wide.T) / eta
    new_mean = mean + covariance @ h.T @ _noise_inverse(r) @ (np.asarray(y) - yhat)
    u, values = _svd(wide, rank)
    return Spherical(new_mean, eta, values[:rank], u[:, :rank])


def svd_orth(scales: Array, basis: Array, columns: Array, order: Sequence[int]) -> Pair:
    """Algorithm SVDorth, visiting the columns of H^T A^T in the given order."""
    scales, basis = scales.copy(), basis.copy()
    for j in order if scales.size else ():
        v = (np.eye(len(basis)) - basis @ basis.T) @ columns[:, j]
        length, k = np.linalg.norm(v), np.argmin(scales)
        if length > scales[k]:
            basis[:, k], scales[k] = v / length, length
    return scales, basis


def _weighted_product(terms: Sequence[tuple[float, Dense]]) -> Dense:
    """Gaussian of log density sum_i w_i log N(theta | m_i, S_i) + const."""
    precision = sum(w * np.linalg.inv(term.covariance) for w, term in terms)
    shift = sum(w * np.linalg.inv(term.covariance) @ term.mean for w, term in terms)
    return Dense(np.linalg.solve(precision, shift), np.linalg.inv(precision))


def inflate_simple(belief: Dense, alpha: float) -> Dense:
    """Eq. inflation-general-simple: the whole log posterior is discounted."""
    return _weighted_product([(1.0 / (1.0 + alpha), belief)])


def inflate_hybrid(belief: Dense, alpha: float, prior_precision: float) -> Dense:
    """Section Hybrid inflation: the latent prior's variance about the posterior's own mean."""
    return inflate_bayesian(belief, alpha, prior_precision, belief.mean)


def inflate_bayesian(
    belief: Dense, alpha: float, prior_precision: float, prior_mean: Array
) -> Dense:
    """Eq. inflation-general-log-prior-correction: only the likelihood is discounted."""
    prior = Dense(prior_mean, np.eye(belief.mean.size) / prior_precision)
    return _weighted_product([(1.0 / (1.0 + alpha), belief), (alpha / (1.0 + alpha), prior)])


def latent_prior(
    prior_mean: Array, prior_precision: float, decays: Sequence[float], drifts: Sequence[float]
) -> tuple[Array, float]:
    """Section Bayesian inflation: Gamma_t mu_0 and eta_t^-1 = gamma_t^2 eta_{t-1}^-1 + q_t."""
    mean, variance = prior_mean, 1.0 / prior_precision
    for decay, drift in zip(decays, drifts, strict=True):
        mean, variance = decay * mean, decay**2 * variance + drift
    return mean, 1.0 / variance


def bayesian_linear_regression(
    prior_mean: Array, prior_covariance: Array, designs: list[Array], ys: list[Array], noise: Array
) -> Dense:
    """Closed-form posterior of y_i = X_i theta + N(0, noise), from all the data at once."""
    prior, weight = np.linalg.inv(prior_covariance), np.linalg.inv(noise)
    covariance = np.linalg.inv(prior + sum(x.T @ weight @ x for x in designs))
    shift = prior @ prior_mean + sum(x.T @ weight @ y for x, y in zip(designs, ys, strict=True))
    return Dense(covariance @ shift, covariance)


def predictive_covariance(belief: Dense, moments: Moments) -> Array:
    """Eq. pred-obs-var: V = H Sigma H^T + R."""
    return moments.jacobian @ belief.covariance @ moments.jacobian.T + moments.covariance


def running_noise(noise: Array, residual: Array, rate: float) -> Array:
    """Section Online adaptation of the hyper-parameters: running average of e e^T."""
    return (1.0 - rate) * noise + rate * np.outer(residual, residual)


def running_noise_scalar(noise: float, residual: Array, rate: float) -> float:
    """Average e^T e / C for R = r I, because the e^T e printed there estimates C r, not r."""
    return float((1.0 - rate) * noise + rate * (residual @ residual) / residual.size)


def log_determinant(covariance: Array) -> float:
    """Log determinant of a positive definite matrix."""
    return float(np.linalg.slogdet(covariance)[1])


def gaussian_kl(a: Dense, b: Dense) -> float:
    """KL(a || b), in the order of section Alternative diagonal update."""
    precision, gap = np.linalg.inv(b.covariance), b.mean - a.mean
    spread = np.trace(precision @ a.covariance) - gap.size + gap @ precision @ gap
    return 0.5 * float(spread + log_determinant(b.covariance) - log_determinant(a.covariance))


def gaussian_log_density(belief: Dense, theta: Array) -> float:
    """Log of N(theta | mu, Sigma)."""
    gap, precision = theta - belief.mean, np.linalg.inv(belief.covariance)
    return -0.5 * float(gap @ precision @ gap + log_determinant(2.0 * np.pi * belief.covariance))
