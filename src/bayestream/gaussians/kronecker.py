"""A precision of one Kronecker product a dense layer: (Σ a aᵀ) ⊗ (Σ δ δᵀ)/n + η I."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from bayestream.networks import rows
from bayestream.networks.rows import Rows
from bayestream.types import Array, Key, Layer


class KroneckerPrecision(NamedTuple):
    """Block diagonal, layer by layer in the order of the flat vector."""

    inputs: tuple[Array, ...]  # A_l = Σ a aᵀ (rows, rows)
    outputs: tuple[Array, ...]  # S_l = Σ δ δᵀ (outputs, outputs)
    observed: Array  # n, how many examples are in the sums
    floor: Array  # η, the prior's precision


def start(layers: tuple[Layer, ...], floor: Array) -> KroneckerPrecision:
    """η I, before any observation."""
    return KroneckerPrecision(
        tuple(jnp.zeros((layer.rows,) * 2, floor.dtype) for layer in layers),
        tuple(jnp.zeros((layer.outputs,) * 2, floor.dtype) for layer in layers),
        jnp.zeros((), floor.dtype),
        floor,
    )


def add(precision: KroneckerPrecision, G: Rows, observed: Array) -> KroneckerPrecision:
    """The Fisher information of a few more observations."""
    seen = observed.astype(precision.floor.dtype)
    return precision._replace(
        inputs=tuple(
            A + (a * seen[:, None]).T @ a
            for A, a in zip(precision.inputs, G.activations, strict=True)
        ),
        outputs=tuple(
            S + jnp.einsum("nko,nkp->op", d, d)
            for S, d in zip(precision.outputs, G.deltas, strict=True)
        ),
        observed=precision.observed + jnp.sum(seen),
    )


def times(precision: KroneckerPrecision, vector: Array) -> Array:
    """Σ⁻¹ v for v (P,)."""
    n = jnp.maximum(precision.observed, 1.0)
    parts = [A @ V @ S / n for A, S, V in _layers(precision, vector)]
    return _flat(parts) + precision.floor * vector


def covariance_between(precision: KroneckerPrecision, J: Array) -> Array:
    """J Σ Jᵀ for rows J (n, P)."""
    half = _half(precision, J)
    return half @ half.T


def covariance_of(precision: KroneckerPrecision, G: Rows) -> Array:
    """Each example's own G Σ Gᵀ: (N, K, K). In the eigenbasis rows are outer products too."""
    bases = _eigen(precision)
    turned = Rows(
        tuple(a @ QA for (QA, _, _), a in zip(bases, G.activations, strict=True)),
        tuple(d @ QS for (_, QS, _), d in zip(bases, G.deltas, strict=True)),
    )
    return rows.gram_of_each(turned, _flat([roots**2 for _, _, roots in bases]))


def sample(precision: KroneckerPrecision, mean: Array, key: Key) -> Array:
    """One exact draw from N(mean, Σ)."""
    noise = jax.random.normal(key, mean.shape, mean.dtype)
    parts = [
        QA @ (V * roots) @ QS.T
        for (QA, QS, roots), (_, _, V) in zip(
            _eigen(precision), _layers(precision, noise), strict=True
        )
    ]
    return mean + _flat(parts)


def _half(precision: KroneckerPrecision, vectors: Array) -> Array:
    """Each of the vectors (…, P), in the eigenbasis and over the root of the eigenvalues."""
    parts = [
        jnp.einsum("ai,...ao,ob->...ib", QA, V, QS) * roots
        for (QA, QS, roots), (_, _, V) in zip(
            _eigen(precision), _layers(precision, vectors), strict=True
        )
    ]
    return _flat(parts)


def _eigen(precision: KroneckerPrecision) -> list[tuple[Array, Array, Array]]:
    """For each layer the eigenvectors of A and of S, and 1/√ of the block's eigenvalues."""
    found: list[tuple[Array, Array, Array]] = []
    for A, S in zip(precision.inputs, precision.outputs, strict=True):
        a, QA = jnp.linalg.eigh(A)
        s, QS = jnp.linalg.eigh(S)
        product = jnp.maximum(a, 0.0)[:, None] * jnp.maximum(s, 0.0)
        values = product / jnp.maximum(precision.observed, 1.0) + precision.floor
        found.append((QA, QS, 1 / jnp.sqrt(values)))
    return found


def _layers(precision: KroneckerPrecision, vectors: Array) -> list[tuple[Array, Array, Array]]:
    """Each layer's factors and share of the vectors, (…, rows, outputs)."""
    layers: list[tuple[Array, Array, Array]] = []
    offset = 0
    for A, S in zip(precision.inputs, precision.outputs, strict=True):
        size = len(A) * len(S)
        share = vectors[..., offset : offset + size]
        layers.append((A, S, share.reshape(*vectors.shape[:-1], len(A), len(S))))
        offset += size
    return layers


def _flat(parts: list[Array]) -> Array:
    return jnp.concatenate([part.reshape(*part.shape[:-2], -1) for part in parts], axis=-1)
