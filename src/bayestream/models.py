"""Networks as functions of one flat parameter vector: mlp, lenet, and any apply(params, x)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from bayestream.types import Array, Key, Layer, Model

Activation = Callable[[Array], Array]


def mlp(
    sizes: Sequence[int], *, activation: Activation = jax.nn.relu, fan_in_scaled: bool = False
) -> Model:
    """A multi-layer perceptron with LeCun-normal kernels and zero biases.

    With `fan_in_scaled`, the forward pass multiplies each kernel by 1/√fan-in and kernels start
    from N(0, 1): the same network in coordinates where a spherical prior fits its initialisation.

    >>> model = mlp([3, 50, 1])
    >>> model.size, model.outputs
    (251, 1)
    >>> parameters = model.init(jax.random.key(0))
    >>> model.apply(parameters, jnp.ones(3)).shape
    (1,)
    """
    _check_sizes("sizes", sizes, at_least=2)
    layers = _dense_layers(sizes, fan_in_scaled)
    size = layers[-1].offset + (layers[-1].inputs + 1) * layers[-1].outputs

    def init(key: Key) -> Array:
        keys = jax.random.split(key, len(layers))
        return jnp.concatenate([_init_dense(*pair) for pair in zip(keys, layers, strict=True)])

    def unravel(params: Array) -> list[tuple[Array, Array]]:
        return [_dense_params(params, layer) for layer in layers]

    def apply(params: Array, x: Array) -> Array:
        return _apply_dense(params, layers, activation, x)

    return Model(init, apply, unravel, size, (sizes[0],), sizes[-1], layers)


def lenet(
    *,
    inputs: tuple[int, int, int] = (28, 28, 1),
    outputs: int = 10,
    channels: tuple[int, int] = (32, 64),
    hidden: int = 128,
    activation: Activation = jax.nn.relu,
) -> Model:
    """The paper's LeNet-style network: two convolutions with average pooling, two dense layers.

    For 28×28×1 images and 10 classes it has 421,642 parameters.

    >>> lenet().size
    421642
    """
    height, width, depth = inputs
    _check_sizes("inputs", inputs, at_least=3)
    _check_sizes("channels", channels, at_least=2)
    shapes = [(3, 3, depth, channels[0]), (3, 3, channels[0], channels[1])]
    offset = sum(prod(shape) + shape[-1] for shape in shapes)
    flat = (height // 4) * (width // 4) * channels[1]
    layers = _dense_layers([flat, hidden, outputs], fan_in_scaled=False, offset=offset)
    size = layers[-1].offset + (layers[-1].inputs + 1) * layers[-1].outputs

    def init(key: Key) -> Array:
        keys = jax.random.split(key, 4)
        parts = [
            _init_kernel(k, shape, prod(shape[:-1]))
            for k, shape in zip(keys[:2], shapes, strict=True)
        ]
        parts += [_init_dense(*pair) for pair in zip(keys[2:], layers, strict=True)]
        return jnp.concatenate(parts)

    def unravel(params: Array) -> list[tuple[Array, Array]]:
        kernels: list[tuple[Array, Array]] = []
        start = 0
        for shape in shapes:
            kernel, start = params[start : start + prod(shape)].reshape(shape), start + prod(shape)
            bias, start = params[start : start + shape[-1]], start + shape[-1]
            kernels.append((kernel, bias))
        return kernels + [_dense_params(params, layer) for layer in layers]

    def apply(params: Array, x: Array) -> Array:
        image = x[None]
        for kernel, bias in unravel(params)[:2]:
            image = activation(_convolve(image, kernel) + bias)
            image = _average_pool(image)
        return _apply_dense(params, layers, activation, image.reshape(-1))

    return Model(init, apply, unravel, size, (height, width, depth), outputs)


def wrap(apply: Callable[[Any, Array], Array], params: Any, *, inputs: tuple[int, ...]) -> Model:
    """Any `apply(params, x) → (C,)` on one input of shape `inputs`.

    `params` is a pytree of arrays, or a function key → pytree that draws a fresh start. This
    covers flax linen (`module.apply`), flax nnx (`nnx.split`, then merge inside `apply`) and
    equinox (`eqx.partition`, then combine inside `apply`).

    >>> model = wrap(lambda p, x: p["slope"] * x + p["offset"],
    ...              {"slope": jnp.ones(1), "offset": jnp.zeros(1)}, inputs=(1,))
    >>> model.size, model.outputs
    (2, 1)
    """
    template = jax.eval_shape(params, jax.random.key(0)) if callable(params) else params
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), template)
    flat, unravel = ravel_pytree(zeros)
    outputs = jax.eval_shape(lambda p, x: apply(unravel(p), x), flat, jnp.zeros(inputs, flat.dtype))
    if outputs.ndim > 1:
        raise ValueError(
            f"apply(params, x) must return a vector (C,) for one x of shape {inputs}, "
            f"got shape {outputs.shape}."
        )

    def init(key: Key) -> Array:
        return ravel_pytree(params(key) if callable(params) else params)[0]

    def apply_flat(params: Array, x: Array) -> Array:
        return jnp.reshape(apply(unravel(params), x), (outputs.size,))

    return Model(init, apply_flat, unravel, flat.size, tuple(inputs), outputs.size)


def _check_sizes(name: str, sizes: Sequence[int], *, at_least: int) -> None:
    if len(sizes) < at_least or any(int(size) != size or size < 1 for size in sizes):
        raise ValueError(
            f"{name} must be at least {at_least} whole numbers above zero, got {list(sizes)}."
        )


def _dense_layers(sizes: Sequence[int], fan_in_scaled: bool, offset: int = 0) -> tuple[Layer, ...]:
    layers: list[Layer] = []
    for inputs, outputs in pairwise(sizes):
        layers.append(Layer(offset, inputs, outputs, inputs**-0.5 if fan_in_scaled else 1.0))
        offset += (inputs + 1) * outputs
    return tuple(layers)


def _init_dense(key: Key, layer: Layer) -> Array:
    # Scaled kernels start from N(0, 1); after the forward pass's 1/√fan-in both are LeCun-normal.
    fan_in = layer.inputs * layer.scale**2
    return _init_kernel(key, (layer.inputs, layer.outputs), fan_in)


def _init_kernel(key: Key, shape: tuple[int, ...], fan_in: float) -> Array:
    kernel = jax.random.truncated_normal(key, -2.0, 2.0, shape) / (_TRUNCATED_STD * fan_in**0.5)
    return jnp.concatenate([kernel.reshape(-1), jnp.zeros(shape[-1])])


_TRUNCATED_STD = 0.87962566103423978  # of a standard normal cut at ±2


def _dense_params(params: Array, layer: Layer) -> tuple[Array, Array]:
    cells = layer.inputs * layer.outputs
    kernel = params[layer.offset : layer.offset + cells].reshape(layer.inputs, layer.outputs)
    return kernel, params[layer.offset + cells : layer.offset + cells + layer.outputs]


def _apply_dense(
    params: Array, layers: tuple[Layer, ...], activation: Activation, x: Array
) -> Array:
    for index, layer in enumerate(layers):
        kernel, bias = _dense_params(params, layer)
        x = (layer.scale * x) @ kernel + bias
        x = activation(x) if index < len(layers) - 1 else x
    return x


def _convolve(image: Array, kernel: Array) -> Array:
    return jax.lax.conv_general_dilated(
        image, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def _average_pool(image: Array) -> Array:
    window = (1, 2, 2, 1)
    return jax.lax.reduce_window(image, 0.0, jax.lax.add, window, window, "VALID") / 4
