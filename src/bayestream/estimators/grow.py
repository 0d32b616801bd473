"""Networks that grow: the belief of a smaller one, continued by a larger one."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from bayestream.estimators.slang import SlangState
from bayestream.gaussians.kronecker import KroneckerPrecision
from bayestream.gaussians.last_layer import LastLayerGaussian
from bayestream.types import Estimator, Key, Model, State

Places = NDArray[np.intp]  # of each old number, among the new ones

# What new weights cannot join, and why.
_REFUSED: dict[type, str] = {
    LastLayerGaussian: "hilofi knows hidden weights in directions that were drawn for its size",
    SlangState: "slang draws random numbers for each weight, and others for a larger network",
}


def grow(before: Estimator, state: State, after: Estimator, key: Key) -> State:
    """The same belief over a network that has more inputs, more outputs or both.

    New weights enter with the mean and precision of the prior, and independent of the old ones: so
    a Bayesian adds them. A new input that is 0, an output without a class yet
    (`bs.likelihoods.adaptive_categorical`) or with a target that is NaN, teaches nothing: forecasts
    are those of the smaller network until one comes that does.

    Args:
        before: the learner so far, over `bs.models.mlp` or several of them; or over a network of
            `bs.models.wrap` in which dense layers with biases are all there is.
        state: its state.
        after: a learner of the same settings over the larger network, whose hidden layers are the
            same. New inputs and outputs come after the old ones. Where weights are scaled by their
            fan-in, give the network the one it had: `bs.models.mlp(…, fan_in=…)`.
        key: the prior mean of the new weights is drawn as `after.init(key)` draws it.

    >>> import bayestream as bs
    >>> small, large = (
    ...     bs.lofi(bs.models.mlp(sizes, fan_in=2), bs.likelihoods.gaussian(0.1), rank=3)
    ...     for sizes in ([2, 8, 1], [4, 8, 1]))
    >>> state = small.init(jax.random.key(0))
    >>> grown = bs.grow(small, state, large, jax.random.key(1))
    >>> one = small.model.apply(small.mean(state), jnp.ones(2))
    >>> bool(large.model.apply(large.mean(grown), jnp.array([1.0, 1.0, 0.0, 0.0])) == one)
    True
    """
    pairs = list(zip(_networks(before), _networks(after), strict=False))
    for smaller, larger in pairs:
        _check_networks(smaller, larger)
    for kind, why in _REFUSED.items():
        if any(isinstance(part, kind) for part in _parts(state, kind)):
            raise ValueError(f"the learner must be one that can grow: {why}.")
    fresh = after.init(key)
    if _structure(fresh) != _structure(state):
        raise ValueError("after must have the same settings as before, and differ in its network.")
    places = {
        (smaller.size, larger.size): _flat_places(smaller, larger) for smaller, larger in pairs
    }
    inputs, larger = pairs[0][0].layers[0].inputs, pairs[0][1].layers[0].inputs
    bias_last = {(inputs + 1, larger + 1): np.append(np.arange(inputs), larger)}

    def placed(old: Any, new: Any) -> Any:
        if not isinstance(old, KroneckerPrecision):
            return _placed(old, new, places)
        return KroneckerPrecision(
            tuple(_placed(*each, bias_last) for each in zip(old.inputs, new.inputs, strict=True)),
            tuple(_placed(*each, {}) for each in zip(old.outputs, new.outputs, strict=True)),
            old.observed,
            old.floor,
        )

    return jax.tree.map(
        placed, state, fresh, is_leaf=lambda part: isinstance(part, KroneckerPrecision)
    )


def _networks(learner: Estimator) -> tuple[Model, ...]:
    return learner.networks or (learner.model,)


def _check_networks(smaller: Model, larger: Model) -> None:
    for model in (smaller, larger):
        if sum((layer.inputs + 1) * layer.outputs for layer in model.layers) != model.size:
            raise ValueError(
                "a network must be made of dense layers with biases to grow, as bs.models.mlp "
                "makes it."
            )
    old, new = smaller.layers, larger.layers
    hidden = [layer.inputs for layer in old[1:]] == [layer.inputs for layer in new[1:]]
    less = new[0].inputs < old[0].inputs or new[-1].outputs < old[-1].outputs
    if not hidden or less:
        raise ValueError(
            "a network may grow in inputs and outputs alone: sizes must be "
            f"[{old[0].inputs} or more, …, {old[-1].outputs} or more] with the hidden layers that "
            f"it had, got {[layer.inputs for layer in new] + [new[-1].outputs]}."
        )
    if [layer.scale for layer in old] != [layer.scale for layer in new]:
        raise ValueError(
            "a network that grows must keep its scale: give bs.models.mlp the fan_in it had, "
            f"{round(old[0].scale ** -2)}."
        )


def _parts(state: State, kind: type) -> list[Any]:
    return jax.tree.leaves(state, is_leaf=lambda part: isinstance(part, kind))


def _structure(state: State) -> Any:
    return jax.tree.structure(state)


def _flat_places(smaller: Model, larger: Model) -> Places:
    """Of each old parameter, in the larger network's flat vector."""
    parts: list[Places] = []
    for old, new in zip(smaller.layers, larger.layers, strict=True):
        rows = np.append(np.arange(old.inputs), new.inputs)  # the bias stays last
        columns = np.arange(old.outputs)
        parts.append((new.offset + rows[:, None] * new.outputs + columns).reshape(-1))
    return np.concatenate(parts)


def _placed(old: Any, new: Any, places: dict[tuple[int, int], Places]) -> Any:
    """The old numbers in the new array: by their places, and else in front."""
    if np.shape(old) == np.shape(new):
        return old
    sizes = zip(np.shape(old), np.shape(new), strict=True)
    where = [
        places[pair] if pair[0] != pair[1] and pair in places else np.arange(pair[0])
        for pair in sizes
    ]
    found = np.array(new, np.asarray(old).dtype)
    found[np.ix_(*where)] = old
    return jnp.array(found)  # a copy: states are donated
