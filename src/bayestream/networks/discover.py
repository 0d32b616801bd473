"""The dense layers of any network, found in its jaxpr: x @ W (+ b), W and b used nowhere else."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.core import eval_jaxpr
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var, primitives

from bayestream.types import Array, Layered

# What moves an array's numbers about, or rounds them, and does nothing else.
_VIEWS = (
    primitives.broadcast_in_dim_p,
    primitives.convert_element_type_p,
    primitives.copy_p,
    primitives.reshape_p,
    primitives.squeeze_p,
    primitives.transpose_p,
)


class Part(NamedTuple):
    """A parameter array, and how its numbers lie in the flat vector."""

    leaf: int  # which of the network's arrays
    ravel: Callable[[Array], Array]  # that array → a vector: a permutation, and so linear


class Dense(NamedTuple):
    """One product z = x @ W of a vector, and the bias that is added to z."""

    kernel: Part  # (inputs, outputs) row-major
    bias: Part | None
    inputs: int
    outputs: int
    x: Any  # the variable or constant that is multiplied
    axes: tuple[int, ...]  # of x, in the order of the kernel's rows
    z: Var


class Network(NamedTuple):
    """A function of parameter arrays and x as one list of equations, and the layers among them."""

    program: ClosedJaxpr
    layers: tuple[Dense, ...]  # in the order of computation
    plain: tuple[Part, ...]  # the arrays that no layer has
    outputs: Any  # the shape and dtype of what it returns
    traced: tuple[Any, ...]  # what `trace` was given

    def __reduce__(self) -> tuple[Any, ...]:
        # Equations cannot be pickled, as another process needs them to be: it traces them again.
        return trace, self.traced


def trace(function: Callable[..., Any], leaves: Sequence[Any], x: Any) -> Network:
    """The network `function(leaves, x)`, whose arguments need a shape and a dtype alone.

    >>> x, W, b = (jax.ShapeDtypeStruct(shape, float) for shape in [(3,), (3, 2), (2,)])
    >>> (layer,) = trace(lambda p, x: jnp.tanh(x @ p[0] + p[1]), [W, b], x).layers
    >>> layer.inputs, layer.outputs, layer.kernel.leaf, layer.bias.leaf
    (3, 2, 0, 1)
    """
    nested, outputs = jax.make_jaxpr(function, return_shape=True)(leaves, x)

    # A jitted function may be called twice: with its body in place, each variable is set once.
    def inlined(*arguments: Array) -> list[Array]:
        return _run(nested, arguments)[0]

    program = jax.make_jaxpr(inlined)(*leaves, x)
    layers = _layers(program.jaxpr, len(leaves))
    taken = {part.leaf for layer in layers for part in (layer.kernel, layer.bias) if part}
    rest = (leaf for leaf in range(len(leaves)) if leaf not in taken)
    plain = tuple(Part(leaf, jnp.ravel) for leaf in rest)
    return Network(program, layers, plain, outputs, (function, leaves, x))


def tapped(
    network: Network, leaves: Sequence[Array], x: Array, taps: Layered
) -> tuple[Array, Layered]:
    """What the network returns, and each layer's x with a 1 for the bias; taps are added to the z.

    The derivative to a tap (outputs,) is the layer's delta, and that to the kernel x ⊗ delta.
    """
    pairs = list(zip(network.layers, taps, strict=True))
    (eta,), values = _run(network.program, (*leaves, x), {layer.z: tap for layer, tap in pairs})
    activations: list[Array] = []
    for layer, tap in pairs:
        vector = jnp.transpose(_value(values, layer.x), layer.axes).reshape(-1).astype(tap.dtype)
        activations.append(jnp.append(vector, 1.0) if layer.bias else vector)
    return eta, tuple(activations)


def _run(
    program: ClosedJaxpr, arguments: Sequence[Array], taps: dict[Var, Array] | None = None
) -> tuple[list[Array], dict[Any, Array]]:
    """What a program returns, and the value of each of its variables."""
    jaxpr, taps = program.jaxpr, taps or {}
    names = (*jaxpr.constvars, *jaxpr.invars)
    values: dict[Any, Array] = dict(zip(names, (*program.consts, *arguments), strict=True))
    for eqn in jaxpr.eqns:
        if eqn.primitive is primitives.jit_p:
            made, _ = _run(eqn.params["jaxpr"], [_value(values, atom) for atom in eqn.invars])
        else:
            read = [atom for atom in eqn.invars if isinstance(atom, Var)]
            alone = jaxpr.replace(constvars=(), invars=read, outvars=eqn.outvars, eqns=[eqn])
            made = eval_jaxpr(alone, (), *(values[name] for name in read))
        for name, value in zip(eqn.outvars, made, strict=True):
            tap = taps.get(name)
            values[name] = value if tap is None else value + _like(tap, value)
    return [_value(values, atom) for atom in jaxpr.outvars], values


def _value(values: dict[Any, Array], atom: Any) -> Array:
    return atom.val if isinstance(atom, Literal) else values[atom]


def _like(vector: Array, other: Array) -> Array:
    return vector.reshape(other.shape).astype(other.dtype)


def _layers(jaxpr: Jaxpr, leaves: int) -> tuple[Dense, ...]:
    """The dense layers of a program whose first inputs are the parameter arrays."""
    leaf_of = {name: leaf for leaf, name in enumerate(jaxpr.invars[:leaves])}
    maker = {name: eqn for eqn in jaxpr.eqns for name in eqn.outvars}
    users: defaultdict[Any, list[JaxprEqn | None]] = defaultdict(list)
    for user, atoms in [(None, jaxpr.outvars), *((eqn, eqn.invars) for eqn in jaxpr.eqns)]:
        for atom in atoms:
            if isinstance(atom, Var):
                users[atom].append(user)

    def parameter(atom: Any) -> tuple[int, list[JaxprEqn]] | None:
        """The array that a value is a view of, and the views, where both serve nothing else."""
        views: list[JaxprEqn] = []
        while isinstance(atom, Var) and len(users[atom]) == 1 and _is_real(atom):
            if atom in leaf_of:
                return leaf_of[atom], views[::-1]
            if atom not in maker or not _is_view(maker[atom]):
                return None
            views.append(maker[atom])
            atom = maker[atom].invars[0]
        return None

    def bias(z: Any, outputs: int) -> Part | None:
        """The parameter that is added to z, one number to each."""
        while len(users[z]) == 1 and _is_real(z) and (eqn := users[z][0]) is not None:
            if eqn.primitive is primitives.add_p:
                found = parameter(eqn.invars[1] if eqn.invars[0] is z else eqn.invars[0])
                sizes = [_size(atom) for atom in (*eqn.invars, *eqn.outvars)]
                return _part(*found) if found and sizes == [outputs] * 3 else None
            if not (_is_view(eqn) and _keeps_order(eqn)):
                return None
            z = eqn.outvars[0]
        return None

    def dense(eqn: JaxprEqn) -> Dense | None:
        """The layer of a product, where one side is a parameter and the other a single vector."""
        contracted, _ = eqn.params["dimension_numbers"]
        z = eqn.outvars[0]
        outputs = _size(z)
        for side in (1, 0):  # flax has x @ W, equinox W @ x
            W, x = eqn.invars[side], eqn.invars[1 - side]
            found, inputs = parameter(W), _size(x)
            # A vector's rows are as long written out; with several x the sizes do not fit.
            if found and len(_shape(W)) > 1 and _size(W) == inputs * outputs > 0:
                rows, axes = _in_front(contracted[side], W), _in_front(contracted[1 - side], x)
                return Dense(_part(*found, rows), bias(z, outputs), inputs, outputs, x, axes, z)
        return None

    products = (eqn for eqn in jaxpr.eqns if eqn.primitive is primitives.dot_general_p)
    return tuple(layer for eqn in products if (layer := dense(eqn)))


def _part(leaf: int, views: Sequence[JaxprEqn], axes: tuple[int, ...] | None = None) -> Part:
    moves = [eqn for eqn in views if eqn.primitive is not primitives.convert_element_type_p]

    def ravel(array: Array) -> Array:
        for eqn in moves:
            array = eqn.primitive.bind(array, **eqn.params)
        return jnp.transpose(array, axes).reshape(-1) if axes else array.reshape(-1)

    return Part(leaf, ravel)


def _in_front(axes: Sequence[int], atom: Any) -> tuple[int, ...]:
    """These axes of an array, then all others."""
    return (*axes, *(axis for axis in range(len(_shape(atom))) if axis not in axes))


def _shape(atom: Any) -> tuple[int, ...]:
    return atom.aval.shape


def _size(atom: Any) -> int:
    return prod(_shape(atom))


def _is_real(atom: Any) -> bool:
    return jnp.issubdtype(atom.aval.dtype, jnp.floating)


def _is_view(eqn: JaxprEqn) -> bool:
    return eqn.primitive in _VIEWS and _size(eqn.invars[0]) == _size(eqn.outvars[0])


def _keeps_order(eqn: JaxprEqn) -> bool:
    """Whether a view leaves the numbers in their order: then its axes of size 1 alone moved."""
    if eqn.primitive is not primitives.transpose_p:
        return True
    shape = _shape(eqn.invars[0])
    long = [axis for axis in eqn.params["permutation"] if shape[axis] > 1]
    return long == sorted(long)
