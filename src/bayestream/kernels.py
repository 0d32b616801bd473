"""The native CPU kernels behind LO-FI's update, and the one switch that turns them off.

`BAYESTREAM_KERNELS=jax` uses pure JAX everywhere; `native` insists on the kernels; unset, they are
used where they were built, on CPU.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from bayestream.checks import check_choice
from bayestream.rows import Rows
from bayestream.types import Array


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


def dlr_condition(
    mean: Array, diag: Array, factor: Array, pending: Array, rows: Rows, residual: Array
) -> tuple[Array, Array, Array]:
    """Settle and condition a DLR belief in two passes over its memory, in place where XLA lets it.

    `pending` is (power, added, decay, drift); see `gaussians.lazy_dlr`, which has the same
    in pure JAX.
    """
    layout = [size for a, d in zip(*rows, strict=True) for size in (a.shape[-1], d.shape[-1])]
    call = jax.ffi.ffi_call(
        f"bayestream_dlr_condition_{mean.dtype}",
        [jax.ShapeDtypeStruct(array.shape, array.dtype) for array in (mean, diag, factor)],
        input_output_aliases={0: 0, 1: 1, 2: 2},
        vmap_method="broadcast_all",
    )
    activations = jnp.concatenate(rows.activations, axis=-1)
    deltas = jnp.concatenate(rows.deltas, axis=-1)
    mean, diag, factor = call(
        mean, diag, factor, pending, activations, deltas, residual, layout=np.array(layout)
    )
    return mean, diag, factor


@functools.cache
def built() -> bool:
    """Whether the kernels are installed; loads them if so."""
    spec = importlib.util.find_spec("bayestream._native")
    if spec is None or spec.origin is None:
        return False
    library = ctypes.cdll.LoadLibrary(spec.origin)
    for dtype in ("float32", "float64"):
        name = f"bayestream_dlr_condition_{dtype}"
        jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(getattr(library, name)), platform="cpu")
    return True
