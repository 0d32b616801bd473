"""The native CPU kernels behind the filters' updates, and the one switch that turns them off.

`BAYESTREAM_KERNELS=jax` uses pure JAX everywhere; `native` insists on the kernels; unset, they are
used where they were built, on CPU.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, Literal, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from bayestream.checks import check_choice
from bayestream.networks.rows import Rows
from bayestream.types import Array

Function = TypeVar("Function", bound=Callable[..., Any])


def in_use() -> Literal["native", "jax"]:
    """Which kernels an update traced now will run on.

    >>> in_use() in ("native", "jax")
    True
    """
    wanted = os.environ.get("BAYESTREAM_KERNELS", "")
    check_choice("BAYESTREAM_KERNELS", wanted, {"": None, "jax": None, "native": None})
    if wanted == "native" and not built():
        raise ImportError(
            "BAYESTREAM_KERNELS=native, but the kernels were not built: install a C++ compiler, "
            "then `pip install --force-reinstall --no-deps bayestream`."
        )
    automatic = not wanted and jax.default_backend() == "cpu" and built()
    return "native" if wanted == "native" or automatic else "jax"


def chosen(plain: Function, native: Function) -> Function:
    """Of the same function in pure JAX and by a kernel, the one in use; derivatives are JAX's."""
    return plain if in_use() == "jax" else _differentiable(plain, native)


@functools.cache
def _differentiable(plain: Function, native: Function) -> Function:
    found: Any = jax.custom_jvp(native)
    found.defjvp(lambda primals, tangents: jax.jvp(plain, primals, tangents))
    return found


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


@functools.cache
def built() -> bool:
    """Whether the kernels are installed; loads them if so."""
    spec = importlib.util.find_spec("bayestream._native")
    if spec is None or spec.origin is None:
        return False
    library = ctypes.cdll.LoadLibrary(spec.origin)
    calls = ("dlr_condition", "dlr_spread", "spherical_condition", "diagonal_condition")
    for call, dtype in product(calls, ("float32", "float64")):
        name = f"bayestream_{call}_{dtype}"
        jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(getattr(library, name)), platform="cpu")
    return True
