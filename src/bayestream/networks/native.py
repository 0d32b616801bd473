"""The native CPU kernels, and the one switch that turns them off.

`BAYESTREAM_KERNELS=jax` uses pure JAX everywhere; `native` insists on the kernels; unset, they are
used where they were built, on CPU.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
from collections.abc import Callable
from itertools import product
from typing import Any, Literal, TypeVar

import jax

from bayestream.checks import check_choice
from bayestream.networks import shards

Function = TypeVar("Function", bound=Callable[..., Any])

_CALLS = (
    "convolution_pull_back",
    "diagonal_condition",
    "dlr_condition",
    "dlr_spread",
    "factor_analysis",
    "row_products",
    "spherical_condition",
)
_OF_ANY_TYPE = ("stack_put", "stack_take")


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
    """Of the same function in pure JAX and by a kernel, the one in use; derivatives are JAX's.

    A kernel knows nothing of other devices: where weights are divided over them, it is pure JAX.
    """
    plainly = shards.divided() or in_use() == "jax"
    return plain if plainly else _differentiable(plain, native)


@functools.cache
def _differentiable(plain: Function, native: Function) -> Function:
    found: Any = jax.custom_jvp(native)
    found.defjvp(lambda primals, tangents: jax.jvp(plain, primals, tangents))
    return found


def built() -> bool:
    """Whether the kernels are installed; loads them if so."""
    return _library() is not None


def instruction_set() -> str | None:
    """What the kernels use of this CPU: avx512, avx2 or baseline; None if they were not built.

    >>> instruction_set() in ("avx512", "avx2", "baseline", None)
    True
    """
    library = _library()
    if library is None:
        return None
    library.bayestream_instruction_set.restype = ctypes.c_char_p
    return library.bayestream_instruction_set().decode()


@functools.cache
def _library() -> ctypes.CDLL | None:
    spec = importlib.util.find_spec("bayestream._native")
    if spec is None or spec.origin is None:
        return None
    library = ctypes.cdll.LoadLibrary(spec.origin)
    typed = (f"{call}_{dtype}" for call, dtype in product(_CALLS, ("float32", "float64")))
    for call in (*typed, *_OF_ANY_TYPE):
        name = f"bayestream_{call}"
        jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(getattr(library, name)), platform="cpu")
    return library
