"""A full covariance over the last layer, and a low-rank one over the weights before it."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve

from bayestream.gaussians import dense
from bayestream.gaussians.dense import DenseGaussian
from bayestream.gaussians.innovation import Innovation, measured, scaled
from bayestream.gaussians.linalg import (
    cholesky_of_identity_plus,
    directions,
    partway,
    solve_identity_plus,
)
from bayestream.networks import rows
from bayestream.networks.rows import Rows
from bayestream.types import Array, Key


class LastLayerGaussian(NamedTuple):
    """Hidden weights N(μ_h, Cᵀ C + f I), and independent of them the last layer's N(μ_l, Σ_l)."""

    mean: Array  # μ (P,), the last layer's at its end
    factor: Array  # C (d, P_h): one row a direction
    floor: Array  # f (), what every hidden weight varies by beyond that
    covariance: Array  # Σ_l (P_l, P_l)


def mean(belief: LastLayerGaussian) -> Array:
    """μ."""
    return belief.mean


def move(belief: LastLayerGaussian, mean: Array) -> LastLayerGaussian:
    """The same belief about another mean."""
    return belief._replace(mean=mean)


def retreat(belief: LastLayerGaussian, origin: Array, fraction: Array) -> LastLayerGaussian:
    """Of the way its mean has just come from `origin`, keep a fraction."""
    return belief._replace(mean=partway(origin, belief.mean, fraction))


def propagate(belief: LastLayerGaussian, decay: Array, drift: Array) -> LastLayerGaussian:
    """θ ← γ θ + N(0, q I)."""
    return LastLayerGaussian(
        decay * belief.mean,
        decay * belief.factor,
        decay**2 * belief.floor + drift,
        dense.propagate(_last(belief), decay, drift).covariance,
    )


def temper(belief: LastLayerGaussian, power: Array) -> LastLayerGaussian:
    """Σ⁻¹ ← power · Σ⁻¹."""
    return belief._replace(
        factor=belief.factor / jnp.sqrt(power),
        floor=belief.floor / power,
        covariance=belief.covariance / power,
    )


def add_precision(belief: LastLayerGaussian, amount: Array) -> LastLayerGaussian:
    """Σ⁻¹ ← Σ⁻¹ + amount · I: a variance s becomes s/(1 + a s), in the directions there are."""
    C, f = belief.factor, belief.floor
    values, vectors = jnp.linalg.eigh(C @ C.T)
    shrunk = (1 + amount * (values + f)) * (1 + amount * f)
    return belief._replace(
        factor=(vectors / jnp.sqrt(shrunk)).T @ C,
        floor=f / (1 + amount * f),
        covariance=dense.add_precision(_last(belief), amount).covariance,
    )


def condition(
    belief: LastLayerGaussian,
    G: Rows,
    residual: Array,
    threshold: float | None = None,
    *,
    floor: Array | float = 0.0,
) -> tuple[LastLayerGaussian, Innovation]:
    """HiLoFi's update on unit-noise observations, which leaves the hidden weights `floor`.

    S = I + G_hᵀ Σ_h G_h + G_lᵀ Σ_l G_l,  K_• = Σ_• G_• S⁻¹,  μ_• ← μ_• + K_• v;
    Σ_l ← (I − K_l G_lᵀ) Σ_l (I − K_l G_lᵀ)ᵀ + K_l K_lᵀ; and C becomes the d largest singular
    directions of [C − C G_h K_hᵀ; K_hᵀ], their squares s² enlarged to s² + f, in place of f I.
    The stack is T [C; G_hᵀ] for a small T, so that its singular values and directions come from
    small matrices, and G_h is never written out.
    """
    examples = len(G.deltas[0])
    hidden, last = _parts(G)
    C, f = belief.factor, belief.floor
    along, squares = rows.times(hidden, C).T, rows.gram(hidden)
    across = last @ belief.covariance
    spread = along @ along.T + f * squares + across @ last.T
    trust, sound = measured(spread, residual, examples, threshold, last**2, squares)
    each = jnp.repeat(trust, residual.size // examples)
    hidden = rows.weighted(hidden, trust)
    A, J, cross = (scaled(each[:, None], part) for part in (along, last, across))
    squares = scaled(each[:, None], scaled(each, squares))
    from_hidden, from_last = A @ A.T + f * squares, cross @ J.T
    root = cholesky_of_identity_plus(from_hidden + from_last)
    w = cho_solve((root, True), scaled(each, residual))
    step = jnp.concatenate([(w @ A) @ C + f * rows.combine(hidden, w), w @ cross])

    # Written out, Joseph's form is Σ_l − K_l (S + G_hᵀ Σ_h G_h) K_lᵀ.
    twice = cholesky_of_identity_plus(from_last + 2 * from_hidden)
    half = twice.T @ cho_solve((root, True), cross)
    need = dense.rounding_need(belief.covariance, J, from_last)
    learnt = jnp.any(squares > 0) | jnp.any(J != 0)
    kept = jnp.where(learnt, f, 0.0)
    after = LastLayerGaussian(
        mean=belief.mean + step,
        factor=_largest(C, hidden, A, squares, root, f, enlarged=kept),
        floor=jnp.where(learnt, jnp.asarray(floor, f.dtype), f),
        covariance=dense.less_outer_products(belief.covariance, half, need),
    )
    return after, Innovation(jnp.where(sound, w, jnp.nan), trust)


def _largest(
    C: Array, G: Rows, A: Array, squares: Array, root: Array, f: Array, *, enlarged: Array
) -> Array:
    """The d largest directions of [C − C G Kᵀ; Kᵀ] = T [C; Gᵀ], with squares s² + `enlarged`."""
    rank = len(C)
    identity = jnp.eye(len(squares) + rank, dtype=C.dtype)
    gain = cho_solve((root, True), jnp.concatenate([A, f * identity[rank:, rank:]], axis=1))
    T = jnp.concatenate([identity[:rank] - A.T @ gain, gain])
    gram = T @ jnp.block([[C @ C.T, A.T], [A, squares]]) @ T.T
    V = directions(gram)[:rank]
    s2 = jnp.sum((V @ gram) * V, axis=1)
    # A direction below rounding is none of the stack's: there is nothing to enlarge.
    real = s2 > len(gram) * jnp.finfo(C.dtype).eps * jnp.max(s2, initial=0.0)
    longer = jnp.sqrt(1 + jnp.where(real, enlarged / jnp.where(real, s2, 1.0), 0.0))
    new = longer[:, None] * (V @ T)
    return new[:, :rank] @ C + rows.combine(G, new[:, rank:])


def covariance_times(belief: LastLayerGaussian, vectors: Array) -> Array:
    """Σ v for v (P,) or for each row of (n, P)."""
    C, hidden = belief.factor, belief.factor.shape[1]
    v = vectors[..., :hidden]
    parts = [(v @ C.T) @ C + belief.floor * v, vectors[..., hidden:] @ belief.covariance]
    return jnp.concatenate(parts, axis=-1)


def covariance_between(belief: LastLayerGaussian, J: Array) -> Array:
    """J Σ Jᵀ for rows J (n, P)."""
    return covariance_times(belief, J) @ J.T


def covariance_of(belief: LastLayerGaussian, G: Rows) -> Array:
    """Each example's own G Σ Gᵀ: (N, K, K)."""
    hidden, last = _parts(G)
    shape, C = G.deltas[0].shape[:2], belief.factor
    A, J = (part.reshape(*shape, -1) for part in (rows.times(hidden, C).T, last))
    isotropic = belief.floor * rows.gram_of_each(hidden)
    own = jnp.einsum("nkp,pq,njq->nkj", J, belief.covariance, J)
    return jnp.einsum("nkd,njd->nkj", A, A) + isotropic + own


def variance(belief: LastLayerGaussian) -> Array:
    """The diagonal of Σ."""
    hidden = jnp.sum(belief.factor**2, axis=0) + belief.floor
    return jnp.concatenate([hidden, jnp.diagonal(belief.covariance)])


def log_determinant(belief: LastLayerGaussian) -> Array:
    """Log |Σ|."""
    C, f = belief.factor, belief.floor
    roots = jnp.diagonal(cholesky_of_identity_plus(C @ C.T / f))
    hidden = 2 * jnp.sum(jnp.log(roots)) + C.shape[1] * jnp.log(f)
    return hidden + dense.log_determinant(_last(belief))


def log_density(belief: LastLayerGaussian, params: Array) -> Array:
    """Log N(params | μ, Σ)."""
    offset = params - belief.mean
    distance = offset @ _precision_times(belief, offset)
    size = belief.mean.size
    return -0.5 * (distance + log_determinant(belief) + size * jnp.log(2 * jnp.pi))


def kl(belief: LastLayerGaussian, other: LastLayerGaussian) -> Array:
    """KL(belief ‖ other)."""
    C, f, hidden = other.factor, other.floor, other.factor.shape[1]
    inside = covariance_times(belief, jnp.pad(C, ((0, 0), (0, other.mean.size - hidden))))
    inside = inside[:, :hidden] @ C.T / f
    trace = jnp.sum(variance(belief)[:hidden]) / f
    trace -= jnp.trace(solve_identity_plus(C @ C.T / f, inside)) / f
    shift = belief.mean - other.mean
    volume = log_determinant(other) - log_determinant(belief)
    spread = trace + jnp.trace(jnp.linalg.solve(other.covariance, belief.covariance))
    return 0.5 * (spread + shift @ _precision_times(other, shift) + volume - shift.size)


def sample(belief: LastLayerGaussian, key: Key) -> Array:
    """One exact draw."""
    C, hidden = belief.factor, belief.factor.shape[1]
    key_low, key_floor, key_last = jax.random.split(key, 3)
    low = jax.random.normal(key_low, C.shape[:1], C.dtype) @ C
    low += jnp.sqrt(belief.floor) * jax.random.normal(key_floor, (hidden,), C.dtype)
    draw = dense.sample(_last(belief), key_last)
    return jnp.concatenate([belief.mean[:hidden] + low, draw])


def to_dense(belief: LastLayerGaussian) -> DenseGaussian:
    """The same belief, its covariance written out."""
    identity = jnp.eye(belief.mean.size, dtype=belief.mean.dtype)
    return DenseGaussian(belief.mean, covariance_times(belief, identity))


def _last(belief: LastLayerGaussian) -> DenseGaussian:
    return DenseGaussian(belief.mean[belief.factor.shape[1] :], belief.covariance)


def _parts(G: Rows) -> tuple[Rows, Array]:
    """The rows of the hidden weights, and those of the last layer written out."""
    last = Rows(G.activations[-1:], G.deltas[-1:])
    return Rows(G.activations[:-1], G.deltas[:-1]), rows.to_dense(last)


def _precision_times(belief: LastLayerGaussian, vector: Array) -> Array:
    C, f, hidden = belief.factor, belief.floor, belief.factor.shape[1]
    v = vector[:hidden] / f
    v = v - solve_identity_plus(C @ C.T / f, C @ v) @ C / f
    return jnp.concatenate([v, jnp.linalg.solve(belief.covariance, vector[hidden:])])
