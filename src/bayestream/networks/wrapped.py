"""Any `apply(params, x)` as a network of one flat vector, its dense layers found and laid out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import jax
import jax.numpy as jnp

from bayestream.networks import discover
from bayestream.types import Array, Key, Layer, Layered, Linearized, Model


def wrap(apply: Callable[[Any, Array], Array], params: Any, *, inputs: tuple[int, ...]) -> Model:
    """Any `apply(params, x) → (C,)` on one input of shape `inputs`.

    `params` is a pytree of arrays, or a function key → pytree that draws a fresh start. This
    covers flax linen (`module.apply`), flax nnx (`nnx.split`, then merge inside `apply`) and
    equinox (`eqx.partition`, then combine inside `apply`).

    Dense layers are found, and then as fast as those of `mlp`: a product of one vector with a
    matrix of parameters, `x @ W` or `W @ x`, and the bias that is added to it, where neither is
    used elsewhere; also inside `jax.jit`, and through reshapes, transposes and casts. They are in
    `model.layers`. All other parameters (of convolutions, norms, embeddings, of a layer that is
    shared or sees a whole sequence) are learnt just as well, but their C rows are written out. They
    come first in the flat vector, then the layers in the order of computation; `model.unravel`
    gives the pytree back.

    >>> model = wrap(lambda p, x: p["scale"] * jnp.tanh(p["W"] @ x + p["b"]), inputs=(3,),
    ...              params={"W": jnp.ones((2, 3)), "b": jnp.zeros(2), "scale": jnp.ones(2)})
    >>> model.size, model.outputs
    (10, 2)
    >>> model.layers
    (Layer(offset=2, inputs=3, outputs=2, scale=1.0, bias=True),)
    """
    # A pytree may be callable too (an equinox module is); only a leaf by itself is a function.
    drawn = callable(params) and jax.tree.leaves(params) == [params]
    template = jax.eval_shape(params if drawn else lambda _: params, jax.random.key(0))
    leaves, tree = jax.tree.flatten(template)
    if not leaves:
        raise ValueError("params must hold at least one array, got none.")
    dtype = jnp.result_type(*(leaf.dtype for leaf in leaves))
    network = _traced(
        lambda leaves, x: apply(tree.unflatten(leaves), x),
        leaves,
        jax.ShapeDtypeStruct(inputs, dtype),
    )
    outputs = network.outputs.size
    dense = [part for layer in network.layers for part in (layer.kernel, layer.bias) if part]
    plain, parts = len(network.plain), [*network.plain, *dense]
    ends = list(accumulate(leaves[part.leaf].size for part in parts))
    starts = dict(zip((part.leaf for part in parts), (0, *ends), strict=False))
    layers = tuple(
        Layer(starts[each.kernel.leaf], each.inputs, each.outputs, 1.0, each.bias is not None)
        for each in network.layers
    )

    def init(key: Key) -> Array:
        given = jax.tree.leaves(params(key) if drawn else params)
        return jnp.concatenate([part.ravel(jnp.asarray(given[part.leaf], dtype)) for part in parts])

    def arrays(pieces: Sequence[Array]) -> list[Array]:
        """The parameter arrays, from their pieces of the flat vector."""
        found: dict[int, Array] = {}
        for part, piece in zip(parts, pieces, strict=True):
            leaf = leaves[part.leaf]
            like = jax.ShapeDtypeStruct(leaf.shape, piece.dtype)
            # A permutation's inverse is its transpose.
            (array,) = jax.linear_transpose(part.ravel, like)(piece)
            found[part.leaf] = array.astype(leaf.dtype)
        return [found[leaf] for leaf in range(len(leaves))]

    def unravel(params: Array) -> Any:
        return tree.unflatten(arrays(jnp.split(params, ends[:-1])))

    def apply_flat(params: Array, x: Array) -> Array:
        return jnp.reshape(apply(unravel(params), x), (outputs,))

    def linearize(params: Array, x: Array) -> Linearized:
        pieces = jnp.split(params, ends[:-1])

        def tapped(free: list[Array], taps: Layered) -> tuple[Array, Layered]:
            given = arrays([*free, *pieces[plain:]])
            eta, activations = discover.tapped(network, given, x.astype(dtype), taps)
            return eta.reshape(outputs), activations

        taps = tuple(jnp.zeros(layer.outputs, params.dtype) for layer in layers)
        eta, pull_back, activations = jax.vjp(tapped, pieces[:plain], taps, has_aux=True)
        if not plain:
            return eta, activations, lambda cotangent: pull_back(cotangent)[1]

        def deltas(cotangent: Array) -> Layered:
            free, dense = pull_back(cotangent)
            return jnp.concatenate(free), *dense

        return eta, (jnp.ones(1, params.dtype), *activations), deltas

    return Model(init, apply_flat, unravel, ends[-1], tuple(inputs), outputs, linearize, layers)


def _traced(
    apply: Callable[[list[Array], Array], Array], leaves: list[Any], x: Any
) -> discover.Network:
    """The network that `apply` is; what cannot be one is refused."""
    try:
        network = discover.trace(apply, leaves, x)
    except Exception as error:
        reason = str(error).strip().partition("\n")[0]
        raise ValueError(
            f"apply(params, x) must be a function that JAX can trace, for one x of shape {x.shape} "
            f"and type {x.dtype}, got {type(error).__name__}: {reason}"
        ) from error
    shape = getattr(network.outputs, "shape", None)
    if shape is None or len(shape) > 1:
        found = f"shape {shape}" if shape else f"a {type(network.outputs).__name__}"
        raise ValueError(
            f"apply(params, x) must return a vector (C,) for one x of shape {x.shape}, got {found}."
        )
    return network
