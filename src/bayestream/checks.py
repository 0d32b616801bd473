"""Refuse bad input at the edges, in one sentence: the argument, its value, what was expected."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from functools import cache
from numbers import Real
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

T = TypeVar("T")


def is_known(value: Any) -> bool:
    """Whether it can be looked at now: neither a schedule nor traced by `jit`, `vmap` or `grad`."""
    return not callable(value) and not isinstance(value, Tracer)


def is_exactly(value: Any, number: float) -> bool:
    """Whether it is known to be that number."""
    return is_known(value) and value is not None and float(value) == number


def _number(name: str, value: Any, low: float, high: float, expected: str) -> None:
    if callable(value):
        return
    scalar = isinstance(value, np.ndarray | jax.Array) and value.ndim == 0
    if not isinstance(value, Real) and not scalar:
        raise TypeError(
            f"{name} must be {expected} or a schedule (a function of the step), got {value!r}."
        )
    if is_known(value) and not low <= float(value) <= high:
        raise ValueError(f"{name} must be {expected}, got {value!r}.")


def check_positive(name: str, value: Any) -> None:
    """A number above zero and finite, or a schedule."""
    _number(name, value, np.finfo(float).tiny, np.finfo(float).max, "a positive number")


def check_non_negative(name: str, value: Any) -> None:
    """A finite number, zero or above, or a schedule."""
    _number(name, value, 0.0, np.finfo(float).max, "a number that is not negative")


def check_fraction(name: str, value: Any) -> None:
    """A number from 0 to 1, or a schedule."""
    _number(name, value, 0.0, 1.0, "a number from 0 to 1")


def check_scale(name: str, value: Any, *, vector: bool = True) -> Any:
    """A positive number or, with `vector`, a vector of them; no schedule."""
    expected = "a positive number" + (" or a vector of them" if vector else "")
    if isinstance(value, Tracer) and value.ndim <= vector:
        return value
    numbers = np.asarray(value)
    if numbers.dtype.kind not in "iuf":
        raise TypeError(f"{name} must be {expected}, got {value!r}.")
    if numbers.ndim > vector or not (np.isfinite(numbers).all() and (numbers > 0).all()):
        raise ValueError(f"{name} must be {expected}, got {value!r}.")
    return numbers.astype(np.float64)


def check_made_by(name: str, value: Any, kind: type | tuple[type, ...], makers: str) -> None:
    """A value from our own factories."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be made by {makers}, got {value!r}.")


def check_rank(rank: Any, parameters: int) -> None:
    """A whole number from 0 to P."""
    expected = f"a whole number from 0 to {parameters} (the number of parameters)"
    if isinstance(rank, bool) or not isinstance(rank, int | np.integer):
        raise TypeError(f"rank must be {expected}, got {rank!r}.")
    if not 0 <= rank <= parameters:
        raise ValueError(f"rank must be {expected}, got {rank!r}.")


def check_whole(name: str, value: Any, lowest: int) -> None:
    """A whole number, not below `lowest`."""
    expected = f"a whole number, {lowest} or above"
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be {expected}, got {value!r}.")
    if value < lowest:
        raise ValueError(f"{name} must be {expected}, got {value!r}.")


def check_covariance(name: str, value: Any) -> Any:
    """A positive variance, a vector of them, or a symmetric positive-definite matrix."""
    noise: Any = value if isinstance(value, Tracer) else np.asarray(value, dtype=np.float64)
    expected = "a positive variance, a vector of them or a symmetric positive-definite matrix"
    if noise.ndim > 2 or (noise.ndim == 2 and noise.shape[0] != noise.shape[1]):
        raise ValueError(f"{name} must be {expected}, got an array of shape {noise.shape}.")
    if isinstance(noise, Tracer):
        return noise
    spectrum = noise
    if noise.ndim == 2:
        if not np.allclose(noise, noise.T):
            raise ValueError(f"{name} must be {expected}, got a matrix that is not symmetric.")
        spectrum = np.linalg.eigvalsh(noise) if np.isfinite(noise).all() else noise
    if not (np.isfinite(spectrum).all() and (spectrum > 0).all()):
        raise ValueError(f"{name} must be {expected}, got {value!r}.")
    return noise


def check_array(name: str, value: Any, shapes: Iterable[tuple[int, ...]]) -> None:
    """A real array of one of these shapes; works on tracers, since shapes are static."""
    shapes = tuple(shapes)
    expected = " or ".join(str(shape) for shape in shapes)
    _check_dtype(name, value.dtype if hasattr(value, "dtype") else np.asarray(value).dtype)
    if np.shape(value) not in shapes:
        raise ValueError(f"{name} must have shape {expected}, got {np.shape(value)}.")


def check_real(name: str, value: Any) -> np.ndarray:
    """Real numbers of any kind as an array of float64."""
    value = np.asarray(value)
    _check_dtype(name, value.dtype)
    return value.astype(np.float64)


@cache
def _check_dtype(name: str, dtype: Any) -> None:
    if not any(jnp.issubdtype(dtype, kind) for kind in (jnp.floating, jnp.integer, jnp.bool_)):
        raise TypeError(f"{name} must hold real numbers, got dtype {dtype}.")


def check_choice(name: str, value: str, choices: dict[str, T]) -> T:
    """The entry of that name, or an error that lists the names and the nearest one."""
    if value in choices:
        return choices[value]
    near = difflib.get_close_matches(str(value), choices, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"{name} must be one of {', '.join(sorted(choices))}, got {value!r}.{hint}")
