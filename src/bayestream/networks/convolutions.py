"""Convolution and pooling of images (N, height, width, channels), with fast derivatives."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

from bayestream.networks import native
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


def pull_back(
    image: Array, slopes: Array, kernel: Array | None, pooled: Array
) -> tuple[Array, Array]:
    """A cotangent, back through pooling, an activation and a convolution of 3×3 pixels.

    Args:
        image: what was convolved (height, width, channels).
        slopes: the activation's, at what came out of that (height, width, outputs).
        kernel: (3, 3, channels, outputs), or None if the image's cotangent is not asked for.
        pooled: the cotangent of `average_pool`'s image.

    Returns:
        The cotangent of the weights, in the order of the flat vector with the bias last, and that
        of the image, empty if it is not asked for. Under vmap, all cotangents of an image are
        pulled back together.
    """
    return native.chosen(_plain_pull_back, _native_pull_back)(image, slopes, kernel, pooled)


def _plain_pull_back(
    image: Array, slopes: Array, kernel: Array | None, pooled: Array
) -> tuple[Array, Array]:
    each = pooled.repeat(2, axis=0).repeat(2, axis=1) / 4
    beyond = [(0, size - done) for size, done in zip(slopes.shape, each.shape, strict=True)]
    delta = slopes * jnp.pad(each, beyond)
    seen = patches(image[None], (3, 3))[0]
    weights = jnp.tensordot(seen, delta, ((0, 1), (0, 1)))
    rows = jnp.concatenate([weights.reshape(-1), jnp.sum(delta, axis=(0, 1))])
    if kernel is None:
        return rows, jnp.zeros((0, 0, 0), image.dtype)
    return rows, convolve(delta[None], kernel[::-1, ::-1].swapaxes(2, 3))[0]


def _native_pull_back(
    image: Array, slopes: Array, kernel: Array | None, pooled: Array
) -> tuple[Array, Array]:
    """Slopes are summed over the pixels of a cell before they meet its cotangents.

    That is a third of the arithmetic, and no image of deltas is written.
    """
    weights = (9 * image.shape[-1] + 1) * slopes.shape[-1]
    dtype = image.dtype
    rows, back = jax.ffi.ffi_call(
        f"bayestream_convolution_pull_back_{dtype}",
        [
            jax.ShapeDtypeStruct((weights,), dtype),
            jax.ShapeDtypeStruct((0, 0, 0) if kernel is None else image.shape, dtype),
        ],
        vmap_method="expand_dims",
    )(image, slopes, jnp.zeros((0, 0, 0, 0), dtype) if kernel is None else kernel, pooled)
    return rows, back


def _convolve(images: Array, kernel: Array, axes: str) -> Array:
    return jax.lax.conv_general_dilated(
        images, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", axes, "NHWC")
    )
