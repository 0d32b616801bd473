"""What the native CPU kernels do for a belief; `networks.native` has the switch."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from bayestream.networks.native import built, chosen, in_use, instruction_set
from bayestream.networks.rows import Rows
from bayestream.types import Array

__all__ = [
    "built",
    "chosen",
    "diagonal_condition",
    "dlr_condition",
    "dlr_spread",
    "factor_analysis",
    "in_use",
    "instruction_set",
    "spherical_condition",
]


def dlr_condition(
    mean: Array,
    diag: Array,
    factor: Array,
    gram: Array | None,
    pending: Sequence[Array | float],
    rows: Rows,
    residual: Array,
    threshold: float | None,
) -> Sequence[Array]:
    """Settle and condition a DLR belief in two passes over its memory, in place where XLA lets it.

    `pending` is (power, added, decay, drift); `gram` is W Wᵀ where nothing is pending and it is
    known. Returns mean, diag, factor and gram, then the innovation's weights and trust; see
    `gaussians.lazy_dlr`, which has the same in pure JAX. Where the weights are NaN, nothing was
    touched.
    """
    known = jnp.zeros((0, 0), mean.dtype) if gram is None else gram
    return _call("dlr_condition", (mean, diag, factor, known), pending, rows, residual, threshold)


def spherical_condition(
    mean: Array,
    precision: Array,
    scales: Array,
    basis: Array,
    rows: Rows,
    residual: Array,
    threshold: float | None,
    order: Array | None,
) -> Sequence[Array]:
    """Condition a spherical belief in two passes over its memory, in place where XLA lets it.

    The directions become the largest singular ones or, with an order of the rows, those that the
    orthogonal projection keeps. Returns mean, scales and basis, then the innovation's weights and
    trust; see `estimators.lofi_spherical`, which has the same in pure JAX.
    """
    order = jnp.zeros(0) if order is None else order
    changed = (mean, scales, basis)
    return _call(
        "spherical_condition", changed, (precision,), rows, residual, threshold, beside=(order,)
    )


def dlr_spread(diag: Array, factor: Array, pending: Sequence[Array | float], rows: Rows) -> Array:
    """G Σ Gᵀ (K, K) of one example under a DLR belief, settled: the first pass of `dlr_condition`.

    Under vmap, a belief that all examples have in common is not copied.
    """
    columns = rows.deltas[0].shape[1]
    call = jax.ffi.ffi_call(
        f"bayestream_dlr_spread_{diag.dtype}",
        jax.ShapeDtypeStruct((columns, columns), diag.dtype),
        vmap_method="expand_dims",
    )
    settings = jnp.array([*pending], diag.dtype)
    return call(diag, factor, settings, *_joined(rows), layout=_layout(rows))


def factor_analysis(
    diag: Array, factor: Array, goal_diag: Array, goal_factor: Array
) -> Sequence[Array]:
    """One sweep of `gaussians.fits.factor_analysis`, in place where XLA lets it."""
    call = jax.ffi.ffi_call(
        f"bayestream_factor_analysis_{diag.dtype}",
        [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in (diag, factor)],
        input_output_aliases={0: 0, 1: 1},
        vmap_method="broadcast_all",
    )
    return call(diag, factor, goal_diag, goal_factor)


def diagonal_condition(
    mean: Array,
    diag: Array,
    rows: Rows,
    residual: Array,
    threshold: float | None,
    *,
    keeps_variance: bool,
) -> Sequence[Array]:
    """Condition a diagonal belief in two passes over its memory, in place where XLA lets it.

    The diagonal that is kept is the exact variance's, or the exact precision's. Returns mean and
    diag, then the innovation's weights and trust; see `gaussians.diagonal`, which has the same
    in pure JAX.
    """
    changed = (mean, diag)
    return _call(
        "diagonal_condition", changed, (), rows, residual, threshold, keeps_variance=keeps_variance
    )


def _call(
    name: str,
    changed: tuple[Array, ...],
    numbers: Sequence[Array | float],
    rows: Rows,
    residual: Array,
    threshold: float | None,
    *,
    beside: tuple[Array, ...] = (),
    **options: bool,
) -> Sequence[Array]:
    """The new values of what is changed, in the memory of the old where XLA lets it."""
    trust = jax.ShapeDtypeStruct(rows.deltas[0].shape[:1], residual.dtype)
    call = jax.ffi.ffi_call(
        f"bayestream_{name}_{residual.dtype}",
        [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in (*changed, residual)] + [trust],
        input_output_aliases={position: position for position in range(len(changed))},
        vmap_method="broadcast_all",
    )
    settings = jnp.array([*numbers, jnp.inf if threshold is None else threshold], residual.dtype)
    others = (a.astype(residual.dtype) for a in beside)
    return call(
        *changed, settings, *_joined(rows), residual, *others, layout=_layout(rows), **options
    )


def _joined(rows: Rows) -> tuple[Array, Array]:
    """Activations and deltas, the layers side by side."""
    return jnp.concatenate(rows.activations, axis=-1), jnp.concatenate(rows.deltas, axis=-1)


def _layout(rows: Rows) -> np.ndarray:
    """Inputs and outputs, layer by layer."""
    sizes = [size for a, d in zip(*rows, strict=True) for size in (a.shape[-1], d.shape[-1])]
    return np.array(sizes)
