"""Convolution and pooling of images (N, height, width, channels), with fast derivatives."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

from bayestream.types import Array


@jax.custom_jvp
def convolve(images: Array, kernel: Array) -> Array:
    """Each image with a kernel (rows, columns, channels, outputs) of odd sides, keeping its size.

    Left to itself, JAX makes the derivative to the kernel a convolution with windows as large as
    the image, and gives that to the image a kernel whose axes XLA does not expect: on a CPU both
    are many times slower than a product of matrices and a convolution like the first.
    """
    return _convolve(images, kernel, "HWIO")


@partial(convolve.defjvp, symbolic_zeros=True)
def _(primals: tuple[Array, Array], tangents: tuple[Any, Any]) -> tuple[Array, Array]:
    (images, kernel), (d_images, d_kernel) = primals, tangents
    convolved = convolve(images, kernel)
    change = jnp.zeros_like(convolved)
    if not isinstance(d_images, SymbolicZero):
        change += _convolve(d_images, kernel.swapaxes(2, 3), "HWOI")  # whose transpose is HWIO
    if not isinstance(d_kernel, SymbolicZero):
        change += patches(images, kernel.shape[:2]) @ d_kernel.reshape(-1, kernel.shape[-1])
    return convolved, change


def patches(images: Array, sides: tuple[int, ...]) -> Array:
    """What a kernel of these sides sees at each pixel: (N, height, width, weights an output)."""
    _, height, width, _ = images.shape
    rows, columns = sides
    padding = ((0, 0), (rows // 2, rows // 2), (columns // 2, columns // 2), (0, 0))
    padded = jnp.pad(images, padding)
    views = [padded[:, i : i + height, j : j + width] for i in range(rows) for j in range(columns)]
    return jnp.concatenate(views, axis=-1)


@jax.custom_jvp
def average_pool(images: Array) -> Array:
    """Means of 2×2 pixels; an odd last row or column is left out."""
    window = (1, 2, 2, 1)
    return jax.lax.reduce_window(images, 0.0, jax.lax.add, window, window, "VALID") / 4


@average_pool.defjvp
def _(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (images,), (change,) = primals, tangents
    count, height, width, channels = images.shape
    even = change[:, : height // 2 * 2, : width // 2 * 2]
    squares = even.reshape(count, height // 2, 2, width // 2, 2, channels)
    return average_pool(images), jnp.mean(squares, axis=(2, 4))  # whose transpose is a broadcast


def _convolve(images: Array, kernel: Array, axes: str) -> Array:
    return jax.lax.conv_general_dilated(
        images, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", axes, "NHWC")
    )
