"""Weights divided over devices: each has its own, and what is summed over all of them travels."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from bayestream.types import Array, Key

AXIS = "weights"  # of the mesh that `estimators.sharded` lays over the devices


def divided() -> bool:
    """Whether what is traced now runs on every device, on its own share of the weights."""
    return AXIS in jax.sharding.get_abstract_mesh().manual_axes


def total(sums: Array) -> Array:
    """A sum over the weights, finished: added up over the devices, if they are divided."""
    return jax.lax.psum(sums, AXIS) if divided() else sums


def everywhere(true: Array) -> Array:
    """Whether it is true of each device's share."""
    return total(jnp.where(true, 0, 1)) == 0


def own(key: Key) -> Key:
    """The key for random numbers of which there is one a weight: another on each device."""
    return jax.random.fold_in(key, jax.lax.axis_index(AXIS)) if divided() else key
