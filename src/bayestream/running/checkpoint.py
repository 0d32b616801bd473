"""Save what a learner believes, and load it again: the same numbers, or a sentence saying why not.

A file holds the state's arrays under their names in the state, and a header that says of which
learner they are. Loading takes the learner and fills its state in, so no code is in the file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

import bayestream
from bayestream.estimators.guard import check_state
from bayestream.running.envelope import CheckpointError, DamagedCheckpointError
from bayestream.running.fleet_state import FleetState
from bayestream.running.folder import File, read, write, write_step
from bayestream.types import Array, Estimator, State

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "DamagedCheckpointError",
    "filled",
    "load",
    "save",
    "save_step",
]

_STATE, _BESIDE, _PROBE = "state/", "beside/", "probe"
_START, _POOL, _ROWS = "start/", "pool/", "rows"  # of a fleet, whose learners are under _STATE
_CLOSE = 1e-3  # outputs of one network on two machines, relative to the largest


class Checkpoint(NamedTuple):
    """What a file holds, for the learner it was loaded with."""

    state: State
    step: int  # as it was saved; of a run, how many examples it had read
    notes: Any  # plain JSON that was saved beside the state
    arrays: dict[str, NDArray[Any]]  # and arrays


def save(
    path: str | Path,
    learner: Estimator,
    state: State,
    *,
    step: int = 0,
    notes: Any = None,
    arrays: Mapping[str, Any] | None = None,
) -> None:
    """Write a state to a file, which is there in full or not at all.

    Args:
        path: of the file; .safetensors is what others expect it to end in.
        learner: whose state it is.
        state: from `learner.init`, or from a run; or that of a fleet, `fleet.state`.
        step: a number of yours, such as how many examples have been learnt from.
        notes: anything of yours that JSON can say.
        arrays: any arrays of yours, by name.

    >>> import tempfile, bayestream as bs
    >>> learner = bs.lofi(bs.models.mlp([1, 1]), bs.likelihoods.gaussian(0.1), rank=2)
    >>> state = learner.init(jax.random.key(0))
    >>> path = Path(tempfile.mkdtemp()) / "belief.safetensors"
    >>> bs.checkpoint.save(path, learner, state, notes={"by": "me"})
    >>> found = bs.checkpoint.load(path, learner)
    >>> bool((learner.mean(found.state) == learner.mean(state)).all()), found.notes
    (True, {'by': 'me'})
    """
    write(Path(path), *_contents(learner, state, step, notes, arrays or {}))


def save_step(
    folder: str | Path,
    learner: Estimator,
    state: State,
    *,
    step: int,
    keep: int = 3,
    notes: Any = None,
    arrays: Mapping[str, Any] | None = None,
) -> Path:
    """As `save`, to step-….safetensors in a folder, of which the last `keep` stay."""
    contents = _contents(learner, state, step, notes, arrays or {})
    return write_step(Path(folder), step, *contents, keep)


def load(path: str | Path, learner: Estimator) -> Checkpoint:
    """A state from a file, or from the newest file of a folder that is not damaged.

    It must be of this learner: the same method, settings, network, likelihood and dtypes. What does
    not agree is a `CheckpointError`; a file that is not as it was written a
    `DamagedCheckpointError`, or, where an older one in the folder is taken instead, a warning.
    """
    return filled(read(path), learner)


def filled(file: File, learner: Estimator) -> Checkpoint:
    """A file that has been read, as the state of this learner."""
    header = file.header
    expected = jax.eval_shape(learner.init, jax.random.key(0))
    fleet = header.get("fleet")
    try:
        _check_description(header["learner"], learner)
        _check("network", header["model"], _model(learner))
        likelihood, _ = check_state(learner, expected)
        _check("likelihood", header["likelihood"], likelihood.name)
        if fleet is None:
            state = first = _tree(file.arrays, expected, _STATE)
        else:
            state = _fleet(file.arrays, fleet, expected)
            first = state.start
        _check_probe(file.arrays[_PROBE], learner, first)
    except CheckpointError as error:
        raise CheckpointError(f"{file.path} is of another learner: {error}.") from None
    except (LookupError, TypeError, ValueError) as error:
        raise CheckpointError(f"{file.path} does not hold a learner's state: {error}.") from None
    return Checkpoint(state, header["step"], header["notes"], _within(_BESIDE, file.arrays))


def _fleet(arrays: Mapping[str, NDArray[Any]], about: Mapping[str, Any], one: Any) -> FleetState:
    keys = tuple(about["keys"])
    each = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct((len(keys), *leaf.shape), leaf.dtype), one
    )
    pool = _tree(arrays, one, _POOL) if about["pooled"] else None
    learners, start = _tree(arrays, each, _STATE), _tree(arrays, one, _START)
    return FleetState(keys, arrays[_ROWS], learners, start, pool)


def _contents(
    learner: Estimator, state: State, step: int, notes: Any, arrays: Mapping[str, Any]
) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    fleet = state if isinstance(state, FleetState) else None
    first = state if fleet is None else fleet.start
    likelihood, _ = check_state(learner, first)
    if fleet is None:
        contents = _named(state, _STATE)
    else:
        contents = {**_named(fleet.learners, _STATE), **_named(fleet.start, _START)}
        contents |= {**_named(fleet.pool, _POOL), _ROWS: np.asarray(fleet.rows)}
    contents = {name: np.asarray(array) for name, array in contents.items()}
    contents |= {_BESIDE + name: np.asarray(array) for name, array in arrays.items()}
    contents[_PROBE] = np.asarray(_probe(learner, first))
    for name, array in contents.items():
        if array.dtype.kind not in "biuf":
            raise TypeError(f"{name} must hold plain numbers to be saved, got {array.dtype}.")
    header = {
        "library": bayestream.__version__,
        "learner": learner.description,
        "model": _model(learner),
        "likelihood": likelihood.name,
        "step": step,
        "notes": notes,
    }
    if fleet is not None:
        header["fleet"] = {"keys": fleet.keys, "pooled": fleet.pool is not None}
    return contents, header


def _named(tree: Any, prefix: str) -> dict[str, Any]:
    """What a tree is made of, under its names there."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    name = partial(jax.tree_util.keystr, simple=True, separator="/")
    return {prefix + name(path): leaf for path, leaf in leaves}


def _within(prefix: str, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}


def _model(learner: Estimator) -> dict[str, Any]:
    model = learner.model
    return {
        "parameters": model.size,
        "inputs": list(model.inputs),
        "outputs": model.outputs,
        "layers": [[layer.inputs, layer.outputs, float(layer.scale)] for layer in model.layers],
    }


def _tree(arrays: Mapping[str, NDArray[Any]], expected: Any, prefix: str) -> Any:
    """The arrays under a prefix as the tree that is expected, each of its shape and dtype."""
    wanted = _named(expected, prefix)
    for name in [*wanted, *(name for name in arrays if name.startswith(prefix))]:
        kinds = (_kind(where.get(name)) for where in (arrays, wanted))
        _check(name, *kinds)
    return jax.tree.unflatten(
        jax.tree.structure(expected), [jnp.asarray(arrays[name]) for name in wanted]
    )


def _kind(array: Any) -> str:
    return "absent" if array is None else f"{array.dtype}{list(array.shape)}"


def _check(what: str, saved: Any, here: Any) -> None:
    if saved != here:
        raise CheckpointError(f"its {what} is {saved}, this one's {here}")


def _check_description(saved: str, learner: Estimator) -> None:
    """By method and settings; a setting that only one version of the library knows is no matter."""
    if saved == learner.description or not (saved and learner.description):
        return
    before, here = json.loads(saved), json.loads(learner.description)
    _check("method", before["method"], here["method"])
    for name in before["settings"].keys() & here["settings"].keys():
        _check(name, before["settings"][name], here["settings"][name])


def _check_probe(saved: NDArray[Any], learner: Estimator, state: State) -> None:
    here = np.asarray(_probe(learner, state))
    finite = np.abs(saved[np.isfinite(saved)])
    near = _CLOSE * finite.max(initial=0.0)
    if saved.shape != here.shape or not np.allclose(saved, here, _CLOSE, near, equal_nan=True):
        raise CheckpointError("with its weights, this one's network or noise gives other numbers")


@partial(jax.jit, static_argnums=0)
def _probe(learner: Estimator, state: State) -> Array:
    """The output at one fixed input, and its noise: what names and shapes cannot say.

    Two networks that differ in their activation alone have the same shapes, for example.
    """
    params = learner.mean(state)
    size = int(np.prod(learner.model.inputs))
    x = jnp.cos(jnp.arange(size, dtype=params.dtype)).reshape(learner.model.inputs)
    eta, likelihood = learner.model.apply(params, x), learner.likelihood(state)
    # Of thousands of classes the covariance would be larger than the belief.
    of = likelihood.covariance if likelihood.columns is None else likelihood.mean
    return jnp.concatenate([eta, of(eta).ravel()])
