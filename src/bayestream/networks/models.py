"""Networks as functions of one flat parameter vector: mlp, lenet, and any apply(params, x)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bayestream.checks import check_whole
from bayestream.networks.convolutions import average_pool, convolve, pull_back
from bayestream.networks.wrapped import wrap
from bayestream.types import Array, Key, Layer, Layered, Linearized, Model

Activation = Callable[[Array], Array]


def mlp(
    sizes: Sequence[int],
    *,
    activation: Activation = jax.nn.gelu,
    fan_in_scaled: bool = False,
    fan_in: int | None = None,
) -> Model:
    """A multi-layer perceptron with LeCun-normal kernels and zero biases.

    Over a long stream ReLUs die: one without a gradient is never learnt again. The paper's networks
    are `mlp(…, activation=jax.nn.relu)`.

    With `fan_in_scaled`, the forward pass multiplies each kernel by 1/√fan-in and kernels start
    from N(0, 1): the same network in coordinates where a spherical prior fits its initialisation.

    `fan_in` is how many inputs the first layer is scaled for: all that it has, unless given. A
    network that grows (`bs.grow`) keeps the one it began with, and so its scale.

    >>> model = mlp([3, 50, 1])
    >>> model.size, model.outputs
    (251, 1)
    >>> parameters = jax.jit(model.init)(jax.random.key(0))
    >>> jax.jit(model.apply)(parameters, jnp.ones(3)).shape
    (1,)
    """
    _check_sizes("sizes", sizes)
    if fan_in is not None:
        check_whole("fan_in", fan_in, 1)
    fans = [fan_in or sizes[0], *sizes[1:-1]]
    layers = _dense_layers(sizes, fans if fan_in_scaled else None)
    size = layers[-1].offset + (layers[-1].inputs + 1) * layers[-1].outputs

    def init(key: Key) -> Array:
        keys = jax.random.split(key, len(layers))
        parts = zip(keys, layers, fans, strict=True)
        return jnp.concatenate([_init_dense(*each) for each in parts])

    def unravel(params: Array) -> list[tuple[Array, Array]]:
        return [_dense_params(params, layer) for layer in layers]

    def apply(params: Array, x: Array) -> Array:
        return _apply_dense(params, layers, activation, x)[0]

    def linearize(params: Array, x: Array) -> Linearized:
        eta, pull_back, activations = jax.vjp(
            lambda taps: _apply_dense(params, layers, activation, x, taps),
            _taps(layers, params.dtype),
            has_aux=True,
        )
        return eta, activations, lambda cotangent: pull_back(cotangent)[0]

    return Model(init, apply, unravel, size, (sizes[0],), sizes[-1], linearize, layers, activation)


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
    _check_sizes("inputs", inputs, count=3)
    _check_sizes("channels", channels, count=2)
    _check_sizes("(hidden, outputs)", (hidden, outputs), count=2)
    height, width, depth = inputs
    if height < 4 or width < 4:
        raise ValueError(f"inputs must be at least 4×4 pixels, got {height}×{width}.")
    shapes = [(3, 3, depth, channels[0]), (3, 3, channels[0], channels[1])]
    offset = sum(prod(shape) + shape[-1] for shape in shapes)
    flat = (height // 4) * (width // 4) * channels[1]
    layers = _dense_layers([flat, hidden, outputs], None, offset)
    size = layers[-1].offset + (layers[-1].inputs + 1) * layers[-1].outputs

    def init(key: Key) -> Array:
        keys = jax.random.split(key, 4)
        parts = [
            _init_kernel(k, shape, prod(shape[:-1]))
            for k, shape in zip(keys[:2], shapes, strict=True)
        ]
        fans = [flat, hidden]
        parts += [_init_dense(*each) for each in zip(keys[2:], layers, fans, strict=True)]
        return jnp.concatenate(parts)

    def convolutions(params: Array) -> list[tuple[Array, Array]]:
        kernels: list[tuple[Array, Array]] = []
        start = 0
        for shape in shapes:
            kernel, start = params[start : start + prod(shape)].reshape(shape), start + prod(shape)
            bias, start = params[start : start + shape[-1]], start + shape[-1]
            kernels.append((kernel, bias))
        return kernels

    def unravel(params: Array) -> list[tuple[Array, Array]]:
        return convolutions(params) + [_dense_params(params, layer) for layer in layers]

    def features(params: Array, x: Array) -> tuple[Array, list[tuple[Array, Array]]]:
        """The dense layers' input, and each convolution's with the slopes of what came out."""
        seen: list[tuple[Array, Array]] = []
        image = x
        for kernel, bias in convolutions(params):
            before = convolve(image[None], kernel) + bias
            after, slopes = jax.jvp(activation, (before,), (jnp.ones_like(before),))
            seen.append((image, slopes[0]))
            image = average_pool(after)[0]
        return image, seen

    def apply(params: Array, x: Array) -> Array:
        return _apply_dense(params, layers, activation, features(params, x)[0].reshape(-1))[0]

    def linearize(params: Array, x: Array) -> Linearized:
        image, seen = features(params, x)
        eta, dense_pull_back, activations = jax.vjp(
            lambda image, taps: _apply_dense(params, layers, activation, image.reshape(-1), taps),
            image,
            _taps(layers, params.dtype),
            has_aux=True,
        )
        (_, _), (kernel, _) = convolutions(params)
        first, second = seen

        # The convolutions' parameters come first, as layers without structure.
        def deltas(cotangent: Array) -> Layered:
            pooled, dense = dense_pull_back(cotangent)
            inner, pooled = pull_back(*second, kernel, pooled)
            outer, _ = pull_back(*first, None, pooled)
            return (outer, inner, *dense)

        ones = jnp.ones(1, params.dtype)
        return eta, (ones, ones, *activations), deltas

    return Model(init, apply, unravel, size, (height, width, depth), outputs, linearize, layers)


def of_each(model: Model, *, count: int) -> Model:
    """The same network for each of `count` things: x holds a row for each, and η has its output.

    For bandits whose arms are described, not numbered: a row is a context with the features of an
    arm (`bs.bandits.with_arms`), and all arms share what is learnt.

    >>> model = of_each(mlp([3, 8, 1]), count=5)
    >>> model.inputs, model.outputs, model.size
    ((5, 3), 5, 41)
    """
    if model.outputs != 1:
        raise ValueError(f"model must have one output for each thing, got {model.outputs}.")
    return wrap(
        lambda params, x: jax.vmap(lambda row: model.apply(params, row)[0])(x),
        model.init,
        inputs=(count, *model.inputs),
    )._replace(unravel=model.unravel)


def shifted(model: Model, origin: Array) -> Model:
    """The same network, its parameters counted from `origin`."""
    return model._replace(
        apply=lambda params, x: model.apply(origin + params, x),
        linearize=lambda params, x: model.linearize(origin + params, x),
    )


def _check_sizes(name: str, sizes: Sequence[Any], *, count: int | None = None) -> None:
    expected = "at least 2" if count is None else str(count)
    wrong_length = len(sizes) < 2 if count is None else len(sizes) != count
    if wrong_length or any(not isinstance(size, int | np.integer) or size < 1 for size in sizes):
        raise ValueError(f"{name} must be {expected} whole numbers above zero, got {list(sizes)}.")


def _dense_layers(
    sizes: Sequence[int], fans: Sequence[int] | None, offset: int = 0
) -> tuple[Layer, ...]:
    """Their places, and 1/√fan-in as their scales; without `fans`, these are 1."""
    layers: list[Layer] = []
    for index, (inputs, outputs) in enumerate(pairwise(sizes)):
        layers.append(Layer(offset, inputs, outputs, 1.0 if fans is None else fans[index] ** -0.5))
        offset += (inputs + 1) * outputs
    return tuple(layers)


def _init_dense(key: Key, layer: Layer, fan_in: int) -> Array:
    # Scaled kernels start from N(0, 1); after the forward pass's 1/√fan-in both are LeCun-normal.
    return _init_kernel(key, (layer.inputs, layer.outputs), fan_in * layer.scale**2)


def _init_kernel(key: Key, shape: tuple[int, ...], fan_in: float) -> Array:
    kernel = jax.random.truncated_normal(key, -2.0, 2.0, shape) / (_TRUNCATED_STD * fan_in**0.5)
    return jnp.concatenate([kernel.reshape(-1), jnp.zeros(shape[-1])])


_TRUNCATED_STD = 0.87962566103423978  # of a standard normal cut at ±2


def _dense_params(params: Array, layer: Layer) -> tuple[Array, Array]:
    cells = layer.inputs * layer.outputs
    kernel = params[layer.offset : layer.offset + cells].reshape(layer.inputs, layer.outputs)
    return kernel, params[layer.offset + cells : layer.offset + cells + layer.outputs]


def _apply_dense(
    params: Array,
    layers: tuple[Layer, ...],
    activation: Activation,
    x: Array,
    taps: Layered | None = None,
) -> tuple[Array, Layered]:
    """η and each layer's input with a 1 for the bias; `taps` are added before each activation.

    The derivative to a tap is the layer's delta; the kernel's is its outer product with the input.
    """
    activations: list[Array] = []
    for index, layer in enumerate(layers):
        kernel, bias = _dense_params(params, layer)
        x = layer.scale * x
        activations.append(_with_one(x))
        x = x @ kernel + bias
        x = x if taps is None else x + taps[index]
        x = activation(x) if index < len(layers) - 1 else x
    return x, tuple(activations)


def _with_one(x: Array) -> Array:
    return jnp.concatenate([x, jnp.ones((*x.shape[:-1], 1), x.dtype)], axis=-1)


def _taps(layers: tuple[Layer, ...], dtype: Any) -> Layered:
    return tuple(jnp.zeros(layer.outputs, dtype) for layer in layers)
