"""Convolution and pooling of images (N, height, width, channels), with derivatives by matrices."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from bayestream.types import Array


@jax.custom_jvp
def convolve(images: Array, kernel: Array) -> Array:
    """Each image with a kernel (rows, columns, channels, outputs) of odd sides, keeping its size.

    Of the derivative to a kernel, for many directions at once, XLA makes a convolution with windows
    as large as the image, many times slower on a CPU than the product of matrices it is.
    """
    return jax.lax.conv_general_dilated(
        images, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


@convolve.defjvp
def _(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    (images, kernel), (d_images, d_kernel) = primals, tangents
    change = _patches(d_images, kernel) @ _matrix(kernel)
    change += _patches(images, kernel) @ _matrix(d_kernel)
    return convolve(images, kernel), change


def average_pool(images: Array) -> Array:
    """Means of 2×2 pixels; an odd last row or column is left out."""
    window = (1, 2, 2, 1)
    return jax.lax.reduce_window(images, 0.0, jax.lax.add, window, window, "VALID") / 4


def _patches(images: Array, kernel: Array) -> Array:
    """What the kernel sees at each pixel: (N, height, width, rows · columns · channels)."""
    _, height, width, _ = images.shape
    rows, columns, _, _ = kernel.shape
    padding = ((0, 0), (rows // 2, rows // 2), (columns // 2, columns // 2), (0, 0))
    padded = jnp.pad(images, padding)
    views = [padded[:, i : i + height, j : j + width] for i in range(rows) for j in range(columns)]
    return jnp.concatenate(views, axis=-1)


def _matrix(kernel: Array) -> Array:
    return kernel.reshape(-1, kernel.shape[-1])
