"""A stream, of whatever it is made, in stacked chunks of examples that can be learnt from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np

from bayestream.checks import check_array
from bayestream.types import Array, Example, Likelihood, Model, Stream

CHUNK = 500


class Skipped(NamedTuple):
    """An example that was left out, and why."""

    position: int
    reason: str


class Chunk(NamedTuple):
    """Examples that have been looked at."""

    good: Example  # what can be learnt from, stacked
    positions: np.ndarray  # where in the stream they were
    bad: list[Skipped]


def chunked(
    stream: Any,
    model: Model,
    likelihood: Likelihood,
    dtype: Any,
    *,
    start: int = 0,
    size: int = CHUNK,
) -> tuple[Iterator[Chunk], int | None]:
    """The stream from `start` on in stacked, checked chunks, and its length where that is known.

    Chunks end at multiples of `size`, wherever they start.
    """
    arrays = _as_arrays(stream)
    if arrays is None:
        return _chunks_of_items(iter(stream), model, likelihood, dtype, start, size), None
    if len(arrays.x) != len(arrays.y):
        raise ValueError(
            f"x and y must be equally many, got {len(arrays.x)} of x and {len(arrays.y)} of y."
        )
    for example in islice(Stream(arrays), 1):  # all rows have one shape
        check_shapes(example, model, likelihood)
    return _chunks_of_arrays(arrays, model, likelihood, dtype, start, size), len(arrays.x)


def _as_arrays(stream: Any) -> Example | None:
    if isinstance(stream, Stream):
        return stream.examples
    # A pair of arrays, or an example that holds many.
    if isinstance(stream, tuple) and all(hasattr(field, "shape") for field in stream[:2]):
        return Stream(Example(*cast(tuple[Any, ...], stream))).examples
    return None


def _chunks_of_arrays(
    arrays: Example, model: Model, likelihood: Likelihood, dtype: Any, start: int, size: int
) -> Iterator[Chunk]:
    while start < len(arrays.x):
        end = start + _to_next(start, size)
        chunk = Example(*(np.asarray(field[start:end]) for field in arrays))
        yield _sift(chunk, np.arange(start, start + len(chunk.x)), [], model, likelihood, dtype)
        start = end


def _to_next(start: int, size: int) -> int:
    return size - start % size


def _chunks_of_items(
    items: Iterator[Any], model: Model, likelihood: Likelihood, dtype: Any, start: int, size: int
) -> Iterator[Chunk]:
    numbered = islice(enumerate(items), start, None)
    while block := list(islice(numbered, _to_next(start, size))):
        start += len(block)
        examples: list[Example] = []
        positions: list[int] = []
        bad: list[Skipped] = []
        for position, item in block:
            try:
                example = Example(*map(np.asarray, Example(*item)))
                check_shapes(example, model, likelihood)
            except (TypeError, ValueError) as error:
                bad.append(Skipped(position, str(error)))
            else:
                examples.append(example)
                positions.append(position)
        stacked = stack(examples) if examples else nothing(model, likelihood)
        yield _sift(stacked, np.asarray(positions, int), bad, model, likelihood, dtype)


def _sift(
    chunk: Example,
    positions: np.ndarray,
    bad: list[Skipped],
    model: Model,
    likelihood: Likelihood,
    dtype: Any,
) -> Chunk:
    reasons = impossible(chunk, model, likelihood, dtype)
    bad = bad + [Skipped(int(p), why) for p, why in zip(positions, reasons, strict=True) if why]
    keep = np.array([not why for why in reasons], bool)
    return Chunk(Example(*(field[keep] for field in chunk)), positions[keep], bad)


def stack(examples: Iterable[Example]) -> Example:
    """One example that holds many."""
    return Example(*(np.stack(field) for field in zip(*examples, strict=True)))


def padded(tree: Any, size: int) -> Any:
    """Rows of zeros after those there are, up to `size`."""

    def longer(rows: Any) -> np.ndarray:
        empty = np.zeros((size - len(rows), *np.shape(rows)[1:]), rows.dtype)
        return np.concatenate([rows, empty]) if len(empty) else rows

    return jax.tree.map(longer, tree)


def nothing(model: Model, likelihood: Likelihood) -> Example:
    """No examples, in arrays of the right shapes."""
    target = likelihood.target_shapes(model.outputs)[0]
    return Stream(Example(np.zeros((0, *model.inputs)), np.zeros((0, *target)))).examples


def check_shapes(example: Example, model: Model, likelihood: Likelihood) -> None:
    """Refuse one example whose x or y has another shape than the network's."""
    check_array("x", example.x, [model.inputs])
    check_array("y", example.y, likelihood.target_shapes(model.outputs))


def impossible(chunk: Example, model: Model, likelihood: Likelihood, dtype: Any) -> list[str]:
    """For each example, why its values cannot be, or an empty string."""
    finite = np.isfinite(chunk.x).reshape(len(chunk.x), -1).all(axis=1)
    small, fits = _fits(chunk.x, dtype), _fits(chunk.y, dtype)
    delays = np.asarray(chunk.delay, float)
    whole = np.isfinite(delays) & (delays >= 0) & (delays == np.floor(delays))
    with np.errstate(over="ignore"):
        labels = np.asarray(chunk.y).astype(dtype)
    known = np.asarray(possible(likelihood.missing, likelihood.support, model.outputs, labels))
    reasons = np.full(len(chunk.x), "", object)
    for row in np.flatnonzero(~whole):
        reasons[row] = f"delay must be a whole number, 0 or above, got {chunk.delay[row]}."
    for row in np.flatnonzero(~known):
        reasons[row] = f"y must be {likelihood.expects}, got {chunk.y[row]}."
    for row in np.flatnonzero(~fits):
        reasons[row] = f"y must be a number that {jnp.dtype(dtype)} can hold, got {chunk.y[row]}."
    for row in np.flatnonzero(~small):
        worst = np.abs(chunk.x[row]).max()
        reasons[row] = f"x must hold numbers that {jnp.dtype(dtype)} can, got one of {worst:.3g}."
    reasons[~finite] = "x must hold finite numbers, got NaN or infinity."
    return reasons.tolist()


def _fits(values: Any, dtype: Any) -> np.ndarray:
    """Of each example, whether its finite numbers stay finite."""
    values = np.asarray(values)
    with np.errstate(over="ignore"):
        lost = np.isfinite(values) & ~np.isfinite(values.astype(dtype))
    return ~lost.reshape(len(values), -1).any(axis=1)


@partial(jax.jit, static_argnums=(0, 1, 2))
def possible(
    missing: Callable[[Array], Array],
    support: Callable[[Array, int], Array],
    outputs: int,
    labels: Array,
) -> Array:
    """Of each label, whether it is missing or a value that there can be."""
    return jax.vmap(lambda y: missing(y) | support(y, outputs))(labels)
