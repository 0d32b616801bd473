"""Jacobian rows as outer products: a dense layer's are activation ⊗ delta, never written out."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from bayestream.networks.products import products
from bayestream.types import Array


class Rows(NamedTuple):
    """M = N·K rows Gᵀ (M, P); row (n, k) is a_l[n] ⊗ δ_l[n, k], layer after layer.

    Rows without structure are one layer with a = 1.
    """

    activations: tuple[Array, ...]  # a_l (N, inputs_l)
    deltas: tuple[Array, ...]  # δ_l (N, K, outputs_l)


def from_dense(matrix: Array) -> Rows:
    """A matrix (M, P) as rows without structure."""
    return Rows((jnp.ones((1, 1), matrix.dtype),), (matrix[None],))


def to_dense(rows: Rows) -> Array:
    """Gᵀ (M, P)."""
    parts = [
        jnp.einsum("ni,nko->nkio", a, d).reshape(count(rows), a.shape[1] * d.shape[2])
        for a, d in zip(*rows, strict=True)
    ]
    return jnp.concatenate(parts, axis=1)


def count(rows: Rows) -> int:
    """M."""
    return rows.deltas[0].shape[0] * rows.deltas[0].shape[1]


def weighted(rows: Rows, trust: Array) -> Rows:
    """Each example's rows times its number (N,); where that is zero, zeros, whatever they were."""
    believed = trust != 0
    scaled = tuple(jnp.where(believed[:, None], a * trust[:, None], 0.0) for a in rows.activations)
    deltas = tuple(jnp.where(believed[:, None, None], d, 0.0) for d in rows.deltas)
    return Rows(scaled, deltas)


def times(rows: Rows, vectors: Array) -> Array:
    """Gᵀ v for each of the vectors (…, P): (…, M)."""
    total = jnp.zeros((), vectors.dtype)
    for a, d, v in _layers(rows, vectors):
        if a.shape[1] == 1:  # without structure: no N copies of the vectors, and no turned δ
            long = v.reshape(-1, d.shape[2])
            one = jnp.ones(d.shape[2], d.dtype)
            parts = jax.vmap(products, (None, 0, None), out_axes=1)(long, d, one)
            total += a * parts.reshape(*vectors.shape[:-1], *d.shape[:2])
        elif len(a) == 1:  # a sum makes vectors as it goes; a product has them written out first
            total += (jnp.sum(v * a[0][:, None], axis=-2) @ d[0].T)[..., None, :]
        else:
            total += jnp.einsum("...no,nko->...nk", jnp.einsum("...io,ni->...no", v, a), d)
    return total.reshape(*vectors.shape[:-1], count(rows))


def combine(rows: Rows, weights: Array) -> Array:
    """G w for each of the weights (…, M): (…, P)."""
    parts: list[Array] = []
    for a, d in zip(*rows, strict=True):
        w = weights.reshape(*weights.shape[:-1], *d.shape[:2])
        layer = jnp.einsum("ni,...no->...io", a, jnp.einsum("...nk,nko->...no", w, d))
        parts.append(layer.reshape(*weights.shape[:-1], a.shape[1] * d.shape[2]))
    return jnp.concatenate(parts, axis=-1)


def gram(rows: Rows, weights: Array | None = None) -> Array:
    """Gᵀ diag(w) G for weights (P,), or Gᵀ G without: (M, M)."""
    total = jnp.zeros((), rows.deltas[0].dtype)
    if weights is None:
        for a, d in zip(*rows, strict=True):
            total += jnp.einsum("nm,nko,mjo->nkmj", a @ a.T, d, d)
    else:
        for a, d, w in _layers(rows, weights):
            pairs = jnp.einsum("nmi,io->nmo", a[:, None] * a[None], w)
            total += jnp.einsum("nmo,nko,mjo->nkmj", pairs, d, d)
    return total.reshape(count(rows), count(rows))


def gram_of_each(rows: Rows, weights: Array | None = None) -> Array:
    """Each example's own block of Gᵀ diag(w) G for weights (P,), or of Gᵀ G without: (N, K, K)."""
    total = jnp.zeros((), rows.deltas[0].dtype)
    if weights is None:
        for a, d in zip(*rows, strict=True):
            total += jnp.sum(a**2, axis=1)[:, None, None] * (d @ d.mT)
        return total
    for a, d, w in _layers(rows, weights):
        if a.shape[1] == 1:
            own = jax.vmap(products, (0, 0, None))(d, d, w[0])
            total += a[:, :, None] ** 2 * own
        else:
            total += jnp.einsum("no,nko,njo->nkj", a**2 @ w, d, d)
    return total


def diagonal(rows: Rows, matrix: Array) -> Array:
    """The diagonal of G A Gᵀ for a matrix A (M, M): (P,)."""
    parts: list[Array] = []
    for a, d in zip(*rows, strict=True):
        A = matrix.reshape(d.shape[:2] * 2)
        pairs = jnp.einsum("nkmj,nko,mjo->nmo", A, d, d)
        parts.append(jnp.einsum("nmi,nmo->io", a[:, None] * a[None], pairs).reshape(-1))
    return jnp.concatenate(parts)


def squares(rows: Rows) -> Array:
    """The diagonal of G Gᵀ: (P,), a sum of squares."""
    parts = [
        jnp.einsum("ni,no->io", a**2, jnp.sum(d**2, axis=1)).reshape(-1)
        for a, d in zip(*rows, strict=True)
    ]
    return jnp.concatenate(parts)


def _layers(rows: Rows, vectors: Array) -> list[tuple[Array, Array, Array]]:
    """Each layer's activations, deltas, and share of the vectors (…, inputs, outputs)."""
    layers: list[tuple[Array, Array, Array]] = []
    offset = 0
    for a, d in zip(*rows, strict=True):
        inputs, outputs = a.shape[-1], d.shape[-1]
        share = vectors[..., offset : offset + inputs * outputs]
        layers.append((a, d, share.reshape(*vectors.shape[:-1], inputs, outputs)))
        offset += inputs * outputs
    return layers
