"""A network of dense layers whose rows are divided over devices, and the way there and back.

A layer's kernel with its bias as the last row has one row an activation. Each device takes as many
rows of every layer as the others, the last ones filled up with dead rows: their activation is
always zero, and so is whatever is summed over them.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec

from bayestream.networks.shards import AXIS, total
from bayestream.types import Array, Key, Layer, Layered, Linearized, Model

EACH, ALL = PartitionSpec(AXIS), PartitionSpec()


def check_divisible(model: Model) -> None:
    """Refuse a network that is not dense layers one after another."""
    if model.activation is None:
        raise ValueError(
            "model must be a bs.models.mlp to be divided over devices: of another network it is "
            "not known how its layers follow each other."
        )


def share(model: Model, devices: int) -> Model:
    """The network as one of the devices sees it, inside of `jax.shard_map`.

    Its parameters are the device's own; inputs, outputs and deltas are the same on all. A forward
    pass sums each layer's outputs over the devices, a backward pass its inputs' derivatives. Its
    `size` and `init` are still those of the ordinary network.
    """
    activation, layers = model.activation, model.layers
    assert activation is not None
    counts = _rows(layers, devices)

    def forward(params: Array, x: Array, taps: Layered | None) -> tuple[Array, Layered]:
        activations: list[Array] = []
        kernels = _kernels(params, layers, counts)
        for index, (layer, kernel, count) in enumerate(zip(layers, kernels, counts, strict=True)):
            one = jnp.ones(1, x.dtype)
            dead = jnp.zeros(count * devices - layer.rows, x.dtype)
            of_all = jnp.concatenate([layer.scale * x, one, dead])
            first = jax.lax.axis_index(AXIS) * count
            activations.append(jax.lax.dynamic_slice_in_dim(of_all, first, count))
            x = total(activations[-1] @ kernel)
            x = x if taps is None else x + taps[index]
            x = activation(x) if index < len(layers) - 1 else x
        return x, tuple(activations)

    def linearize(params: Array, x: Array) -> Linearized:
        eta, pull_back, activations = jax.vjp(
            lambda taps: forward(params, x, taps),
            tuple(jnp.zeros(layer.outputs, params.dtype) for layer in layers),
            has_aux=True,
        )
        return eta, activations, lambda cotangent: pull_back(cotangent)[0]

    return model._replace(
        apply=lambda params, x: forward(params, x, None)[0],
        unravel=lambda params: _kernels(params, layers, counts),
        linearize=linearize,
    )


def whole(model: Model, mesh: Mesh) -> Model:
    """The same network, its parameters one array (D·P_own,) that lies divided over the mesh.

    `unravel` gives the layers as they are, without what they were filled up with.
    """
    devices = mesh.size
    part, layers = share(model, devices), model.layers
    counts = _rows(layers, devices)

    def init(key: Key) -> Array:
        return ravel(model, mesh, model.unravel(model.init(key)))

    def unravel(params: Array) -> list[tuple[Array, Array]]:
        each = jax.vmap(lambda own: _kernels(own, layers, counts))(params.reshape(devices, -1))
        merged = [
            kernels.reshape(-1, layer.outputs) for kernels, layer in zip(each, layers, strict=True)
        ]
        return [
            (kernel[: layer.inputs], kernel[layer.inputs])
            for kernel, layer in zip(merged, layers, strict=True)
        ]

    def apply(params: Array, x: Array) -> Array:
        return jax.shard_map(part.apply, mesh=mesh, in_specs=(EACH, ALL), out_specs=ALL)(params, x)

    def linearize(params: Array, x: Array) -> Linearized:
        forwards = jax.shard_map(
            lambda params, x: part.linearize(params, x)[:2],
            mesh=mesh,
            in_specs=(EACH, ALL),
            out_specs=(ALL, EACH),
        )
        backwards = jax.shard_map(
            lambda params, x, cotangent: part.linearize(params, x)[2](cotangent),
            mesh=mesh,
            in_specs=(EACH, ALL, ALL),
            out_specs=ALL,
        )
        eta, activations = forwards(params, x)
        return eta, activations, lambda cotangent: backwards(params, x, cotangent)

    size = devices * sum(c * layer.outputs for c, layer in zip(counts, layers, strict=True))
    return model._replace(init=init, apply=apply, unravel=unravel, linearize=linearize, size=size)


def ravel(model: Model, mesh: Mesh, parts: Any) -> Array:
    """The layers (kernel, bias) of `model` as one array (D·P_own,) divided over the mesh.

    Under jit, of weights that are drawn every device makes its own.
    """
    counts = _rows(model.layers, mesh.size)
    filled = [
        jnp.pad(kernel, ((0, count * mesh.size - layer.inputs), (0, 0))).at[layer.inputs].set(bias)
        for (kernel, bias), layer, count in zip(parts, model.layers, counts, strict=True)
    ]
    joined = jax.shard_map(
        lambda *own: jnp.concatenate([kernel.reshape(-1) for kernel in own]),
        mesh=mesh,
        in_specs=EACH,
        out_specs=EACH,
    )
    return joined(*filled)


def _rows(layers: tuple[Layer, ...], devices: int) -> list[int]:
    """How many rows of each layer a device has.

    Of several devices one at least has a dead row of the first: divided weights are more than the
    ordinary ones, and so are never taken for them.
    """
    rows = [layer.rows for layer in layers]
    rows[0] += devices > 1
    return [-(-count // devices) for count in rows]


def _kernels(params: Array, layers: tuple[Layer, ...], counts: list[int]) -> list[Array]:
    """A device's rows of each layer (count, outputs)."""
    kernels: list[Array] = []
    start = 0
    for layer, count in zip(layers, counts, strict=True):
        end = start + count * layer.outputs
        kernels.append(params[start:end].reshape(count, layer.outputs))
        start = end
    return kernels
