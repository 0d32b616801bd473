"""A belief divided over devices along the weights; every device runs the ordinary estimator."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from bayestream.checks import check_made_by
from bayestream.estimators.fdekf import fdekf
from bayestream.estimators.guard import check_state
from bayestream.estimators.lofi import lofi
from bayestream.estimators.lofi_spherical import lofi_spherical
from bayestream.estimators.vdekf import vdekf
from bayestream.networks import split
from bayestream.networks.rows import Rows
from bayestream.networks.shards import AXIS
from bayestream.networks.split import ALL, EACH
from bayestream.types import Array, Estimator, EvolvingLikelihood, Key, Likelihood, Model, State

_METHODS = (lofi, lofi_spherical, vdekf, fdekf)


def sharded(
    make: Callable[..., Estimator],
    model: Model,
    likelihood: Likelihood | EvolvingLikelihood,
    *,
    mesh: Mesh,
    **settings: Any,
) -> Estimator:
    """The learner `make(model, likelihood, **settings)`, its belief divided over a JAX mesh.

    Every device keeps its own rows of each layer, and of μ, Υ and W what belongs to them; layers
    that the mesh does not divide are filled up with rows that are always zero. Gram matrices and
    each layer's outputs are summed over the devices, rotations are local: nothing that is as large
    as the weights, or as a layer of them, ever travels. The numbers are those of one device but
    for the order of sums; draws are other draws of the same law.

    The parameters of this learner, and of its `model`, lie divided too, in an order of their own:
    `model.unravel` gives kernels and biases, and `bs.gathered` the state of the ordinary learner.

    Args:
        make: `bs.lofi`, `bs.lofi_spherical`, `bs.vdekf` or `bs.fdekf`.
        model: from `bs.models.mlp`.
        likelihood: what its output means.
        mesh: all of its devices are used, whatever its axes.
        **settings: those of `make`.

    >>> import jax, jax.numpy as jnp, bayestream as bs
    >>> mesh = jax.make_mesh((jax.device_count(),), ("devices",))
    >>> model, likelihood = bs.models.mlp([2, 8, 1]), bs.likelihoods.gaussian(0.1)
    >>> learner = bs.sharded(bs.lofi, model, likelihood, mesh=mesh, rank=3)
    >>> state, _ = bs.step(learner, learner.init(jax.random.key(0)), jnp.ones(2), jnp.ones(1))
    >>> bs.gathered(learner, state).belief.base.mean.shape
    (33,)
    """
    if make not in _METHODS:
        names = ", ".join(f"bs.{method.__name__}" for method in _METHODS)
        name = getattr(make, "__name__", type(make).__name__)
        raise ValueError(f"make must be one of {names} to be divided over devices, got {name}.")
    check_made_by("mesh", mesh, Mesh, "jax.make_mesh")
    split.check_divisible(model)
    known = inspect.signature(make).bind_partial(**settings)
    known.apply_defaults()
    # An axis of so many would be taken for the weights.
    if known.arguments.get("rank") == model.size:
        raise ValueError(
            f"rank must be below {model.size} (the number of parameters) to be divided over "
            f"devices, got {model.size}."
        )
    mesh = Mesh(mesh.devices.reshape(-1), (AXIS,))
    part, whole = split.share(model, mesh.size), split.whole(model, mesh)
    learner = make(part, likelihood, **settings)
    between, of, draw = learner.covariance_between, learner.covariance_of, learner.sample
    assert between is not None
    assert of is not None
    assert draw is not None

    def first(params: Array) -> State:
        """The first state about these weights, all of them or a device's own."""
        at_these = part._replace(init=lambda key: params)
        return make(at_these, likelihood, **settings).init(jax.random.key(0))

    # An axis that is shorter where there are fewer weights runs along them.
    weights = jax.eval_shape(whole.init, jax.random.key(0))
    fewer = jax.ShapeDtypeStruct((whole.size // mesh.size,), weights.dtype)
    more = jax.ShapeDtypeStruct((whole.size + 1,), weights.dtype)
    specs = jax.tree.map(_along, jax.eval_shape(first, fewer), jax.eval_shape(first, more))

    def over(function: Callable[..., Any], out: Any, *given: Any) -> Callable[..., Any]:
        """The function on every device: of a state, and of what lies as it is `given`."""
        return jax.jit(jax.shard_map(function, mesh=mesh, in_specs=(specs, *given), out_specs=out))

    start = jax.shard_map(first, mesh=mesh, in_specs=EACH, out_specs=specs)
    update, update_batch = (
        over(function, specs, ALL, ALL, ALL) for function in (learner.update, learner.update_batch)
    )
    spread = over(lambda state, a, deltas: of(state, Rows(a, deltas)), ALL, _ROWS, ALL)

    @partial(jax.jit, static_argnums=2)
    def sample(state: State, key: Key, count: int) -> Array:
        return over(lambda state, key: draw(state, key, count), _ROWS, ALL)(state, key)

    return learner._replace(
        model=whole,
        init=jax.jit(lambda key: start(whole.init(key))),
        predict=over(learner.predict, specs),
        update=lambda state, x, y, key=None: update(state, x, y, key),
        update_batch=lambda state, xs, ys, key=None: update_batch(state, xs, ys, key),
        covariance_between=over(between, ALL, _ROWS),
        covariance_of=lambda state, rows: spread(state, *rows),
        sample=sample,
    )


def gathered(learner: Estimator, state: State) -> State:
    """The state of the ordinary learner, from that of a `bs.sharded` one; it must fit one device.

    >>> import jax, bayestream as bs
    >>> model, likelihood = bs.models.mlp([2, 3]), bs.likelihoods.categorical()
    >>> mesh = jax.make_mesh((jax.device_count(),), ("devices",))
    >>> learner = bs.sharded(bs.vdekf, model, likelihood, mesh=mesh)
    >>> state = bs.gathered(learner, learner.init(jax.random.key(0)))
    >>> forecast = bs.predictive.probit(bs.vdekf(model, likelihood), state, jax.numpy.ones(2))
    """
    check_state(learner, state)
    if not all(getattr(leaf, "is_fully_addressable", True) for leaf in jax.tree.leaves(state)):
        raise ValueError("state must lie on devices of this host alone to be gathered.")
    flat = jnp.vectorize(partial(_flat, learner), signature="(n)->(m)")

    def ordinary(leaf: Array) -> Array:
        leaf = jnp.asarray(np.asarray(leaf))
        return flat(leaf) if leaf.shape[-1:] == (learner.model.size,) else leaf

    return jax.tree.map(ordinary, state)


def scattered(learner: Estimator, state: State) -> State:
    """The state of a `bs.sharded` learner, from that of the ordinary one.

    >>> import jax, bayestream as bs
    >>> model, likelihood = bs.models.mlp([2, 3]), bs.likelihoods.categorical()
    >>> mesh = jax.make_mesh((jax.device_count(),), ("devices",))
    >>> learner = bs.sharded(bs.vdekf, model, likelihood, mesh=mesh)
    >>> state = bs.scattered(learner, bs.vdekf(model, likelihood).init(jax.random.key(0)))
    >>> int(bs.step(learner, state, jax.numpy.ones(2), 1)[0].step)
    1
    """
    flat = partial(_flat, learner)
    ours = jax.eval_shape(learner.model.init, jax.random.key(0))
    ordinary = jax.eval_shape(flat, ours)
    # The transpose leads back, with zeros where dead rows are: there the first state's go.
    back = jax.linear_transpose(flat, ours)
    alive = back(jnp.ones(ordinary.shape, ordinary.dtype))[0] > 0

    def filled(leaf: Array) -> Array:
        leaf = jnp.asarray(np.asarray(leaf))
        along = leaf.shape[-1:] == ordinary.shape
        return jnp.vectorize(lambda v: back(v)[0], signature="(m)->(n)")(leaf) if along else leaf

    def placed(first: Array, leaf: Array) -> Array:
        along = leaf.shape[-1:] == ours.shape
        return jax.device_put(jnp.where(alive, leaf, first) if along else leaf, first.sharding)

    state = jax.tree.map(filled, state)
    check_state(learner, state)
    return jax.tree.map(placed, learner.init(jax.random.key(0)), state)


_ROWS = PartitionSpec(None, AXIS)  # how vectors (n, P) lie


def _along(fewer: Any, more: Any) -> PartitionSpec:
    """How an array lies, from its shapes for fewer and for more weights."""
    pairs = zip(fewer.shape, more.shape, strict=True)
    return PartitionSpec(*(None if a == b else AXIS for a, b in pairs))


def _flat(learner: Estimator, params: Array) -> Array:
    """The parameters in the ordinary network's order, without dead ones: a linear function."""
    parts = learner.model.unravel(params)
    return jnp.concatenate([part.reshape(-1) for pair in parts for part in pair])
