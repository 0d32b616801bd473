"""Products of a few long rows, which XLA makes many times slower than those of matrices."""

from __future__ import annotations

import jax

from bayestream.networks import native
from bayestream.types import Array

_FEW, _LONG = 64, 1024


def products(x: Array, y: Array, weights: Array) -> Array:
    """The sums x diag(w) yᵀ (n, m), for rows x (n, P) and y (m, P) and weights w (P,)."""
    few_and_long = max(len(x), len(y)) <= _FEW and weights.size >= _LONG
    return (native.chosen(_plain, _native) if few_and_long else _plain)(x, y, weights)


def _plain(x: Array, y: Array, weights: Array) -> Array:
    return (x * weights) @ y.T


def _native(x: Array, y: Array, weights: Array) -> Array:
    return jax.ffi.ffi_call(
        f"bayestream_row_products_{x.dtype}",
        jax.ShapeDtypeStruct((len(x), len(y)), x.dtype),
        vmap_method="expand_dims",
    )(x, y, weights)
