"""Drifts: a stream in, another out, seeded, made as it is read."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.ndimage import map_coordinates
from numpy.typing import NDArray

from bayestream.streams.lazy import mapped
from bayestream.types import Example, Stream

Floats = NDArray[np.float64]


def repeat(stream: Stream, passes: int, *, seed: int) -> Stream:
    """The stream `passes` times over, in a new order each time.

    >>> stream = Stream(Example(np.zeros((3, 1)), np.arange(3.0)))
    >>> sorted(repeat(stream, 2, seed=0).examples.y.tolist())
    [0.0, 0.0, 1.0, 1.0, 2.0, 2.0]
    """
    _at_least("passes", passes, 1)
    rng = np.random.default_rng(seed)
    order = np.concatenate([rng.permutation(len(stream)) for _ in range(passes)])
    return stream.select(order)


def permuted(stream: Stream, *, tasks: int, length: int, seed: int) -> Stream:
    """`tasks` stretches of `length`, each with its own order of the pixels; the first as it was.

    >>> stream = Stream(Example(np.tile(np.arange(4.0), (6, 1)), np.arange(6.0)))
    >>> drifted = permuted(stream, tasks=2, length=3, seed=0)
    >>> np.asarray(drifted.examples.x)[0].tolist(), drifted.examples.task.tolist()
    ([0.0, 1.0, 2.0, 3.0], [0, 0, 0, 1, 1, 1])
    """
    _at_least("tasks", tasks, 1)
    stream = _enough(stream, tasks * length)
    rng = np.random.default_rng(seed)
    size = int(np.prod(stream.examples.x.shape[1:]))
    orders = np.stack([np.arange(size), *(rng.permutation(size) for _ in range(tasks - 1))])
    task = np.repeat(np.arange(tasks), length)

    def permute(x: NDArray[Any], positions: NDArray[np.int64]) -> NDArray[Any]:
        flat = x.reshape(len(x), size)
        return np.take_along_axis(flat, orders[task[positions]], axis=1).reshape(x.shape)

    return Stream(stream.examples._replace(x=mapped(stream.examples.x, permute), task=task))


def ornstein_uhlenbeck(
    steps: int, *, mean: float, deviation: float, rate: float = 10.0, seed: int
) -> Floats:
    """A path of dA = rate (mean − A) dt + deviation dB over one unit of time, in `steps` steps.

    It starts at the mean.

    >>> ornstein_uhlenbeck(3, mean=45.0, deviation=0.0, seed=0).tolist()
    [45.0, 45.0, 45.0]
    """
    _at_least("steps", steps, 1)
    rng = np.random.default_rng(seed)
    dt = 1 / steps
    kicks = deviation * np.sqrt(dt) * rng.standard_normal(steps)
    path = np.empty(steps)
    angle = mean
    for step in range(steps):
        path[step] = angle
        angle += rate * (mean - angle) * dt + kicks[step]
    return path


def rotated(stream: Stream, angles: Any) -> Stream:
    """Each image turned by its angle in degrees, bilinearly, zeros coming in at the corners.

    Images are (height, width), (height, width, channels), or flat and square.

    >>> image = np.zeros((1, 3, 3)); image[0, 0, 1] = 1.0
    >>> stream = Stream(Example(image, np.zeros(1)))
    >>> np.round(np.asarray(rotated(stream, [90.0]).examples.x)[0]).astype(int).tolist()
    [[0, 0, 0], [1, 0, 0], [0, 0, 0]]
    """
    angles = np.asarray(angles, np.float64)
    stream = _enough(stream, len(angles))
    shape = _image_shape(stream.examples.x.shape[1:])

    def turn(x: NDArray[Any], positions: NDArray[np.int64]) -> NDArray[Any]:
        images = x.reshape(len(x), *shape)
        turned = np.asarray(_rotate(images, angles[positions]))
        return turned.reshape(x.shape).astype(x.dtype)

    return Stream(stream.examples._replace(x=mapped(stream.examples.x, turn)))


def rotation_regression(stream: Stream, angles: Any) -> Stream:
    """As `rotated`, with the angle as the target.

    >>> stream = Stream(Example(np.zeros((2, 4, 4)), np.array([7, 7])))
    >>> rotation_regression(stream, [10.0, 20.0]).examples.y.tolist()
    [[10.0], [20.0]]
    """
    turned = rotated(stream, angles)
    return Stream(turned.examples._replace(y=np.asarray(angles, np.float64)[:, None]))


def only_classes(stream: Stream, classes: Sequence[int]) -> Stream:
    """The examples of some classes, labels as they were.

    >>> stream = Stream(Example(np.zeros((3, 1)), np.array([0, 2, 1])))
    >>> only_classes(stream, [0, 1]).examples.y.tolist()
    [0, 1]
    """
    return stream.select(np.flatnonzero(np.isin(np.asarray(stream.examples.y), list(classes))))


def split_classes(stream: Stream, groups: Sequence[Sequence[int]], *, length: int) -> Stream:
    """One task a group of classes, `length` examples each; the label is the place in the group.

    >>> labels = np.array([0, 1, 2, 3, 0, 1, 2, 3])
    >>> stream = Stream(Example(np.zeros((8, 1)), labels))
    >>> split = split_classes(stream, [(0, 1), (2, 3)], length=4)
    >>> split.examples.y.tolist(), split.examples.task.tolist()
    ([0, 1, 0, 1, 0, 1, 0, 1], [0, 0, 0, 0, 1, 1, 1, 1])
    """
    labels = np.asarray(stream.examples.y)
    chosen = [_enough(only_classes(stream, group), length) for group in groups]
    places = [np.flatnonzero(np.isin(labels, list(group)))[:length] for group in groups]
    renamed = [
        np.argmax(np.asarray(part.examples.y)[:, None] == np.asarray(group), axis=1)
        for part, group in zip(chosen, groups, strict=True)
    ]
    picked = stream.select(np.concatenate(places)).examples
    task = np.repeat(np.arange(len(groups)), length)
    return Stream(picked._replace(y=np.concatenate(renamed), task=task))


def missing_labels(stream: Stream, fraction: float, *, seed: int) -> Stream:
    """Each label goes missing (NaN) with this probability.

    >>> stream = Stream(Example(np.zeros((4, 1)), np.arange(4.0)))
    >>> bool(np.isnan(missing_labels(stream, 1.0, seed=0).examples.y).all())
    True
    """
    _fraction("fraction", fraction)
    y = np.array(stream.examples.y, np.float64)
    y[np.random.default_rng(seed).random(len(y)) < fraction] = np.nan
    return Stream(stream.examples._replace(y=y))


def delayed_labels(stream: Stream, steps: Any) -> Stream:
    """Each label arrives, and is learnt, this many steps after its input was asked about.

    `steps` is a whole number, or one for each example; drawn at random, say, from a Poisson.

    >>> stream = Stream(Example(np.zeros((3, 1)), np.arange(3.0)))
    >>> delayed_labels(stream, 5).examples.delay.tolist()
    [5, 5, 5]
    """
    delay = np.array(np.broadcast_to(steps, len(stream)))
    if not np.issubdtype(delay.dtype, np.integer) or np.any(delay < 0):
        raise ValueError(f"steps must be whole numbers, 0 or above, got {steps!r}.")
    return Stream(stream.examples._replace(delay=delay))


def covariate_noise(stream: Stream, deviation: float, *, seed: int) -> Stream:
    """Noise N(0, deviation²) on every input, the same whenever an example is read.

    >>> stream = Stream(Example(np.zeros((4, 2)), np.arange(4.0)))
    >>> noisy = covariate_noise(stream, 1.0, seed=0)
    >>> bool((np.asarray(noisy.examples.x[1:3]) == np.asarray(noisy.examples.x)[1:3]).all())
    True
    """

    def add(x: NDArray[Any], positions: NDArray[np.int64]) -> NDArray[Any]:
        noise = np.stack(
            [np.random.default_rng([seed, int(p)]).standard_normal(x.shape[1:]) for p in positions]
        )
        return (x + deviation * noise).astype(x.dtype)

    return Stream(stream.examples._replace(x=mapped(stream.examples.x, add)))


def abrupt(before: Stream, after: Stream, *, at: int) -> Stream:
    """One stream up to a step, then the other; the second counts as another task.

    >>> zeros, ones = (Stream(Example(np.full((4, 1), v), np.full(4, v)))
    ...                for v in (0.0, 1.0))
    >>> abrupt(zeros, ones, at=1).examples.y.tolist()
    [0.0, 1.0, 1.0, 1.0]
    """
    later = np.arange(min(len(before), len(after))) >= at
    return _either(before, after, later)


def gradual(before: Stream, after: Stream, *, around: int, width: float, seed: int) -> Stream:
    """Each example from the second stream with probability 1/(1 + e^{−4 (t − around)/width}).

    >>> zeros, ones = (Stream(Example(np.full((99, 1), v), np.full(99, v)))
    ...                for v in (0.0, 1.0))
    >>> mixed = gradual(zeros, ones, around=50, width=20, seed=0).examples.y
    >>> float(mixed[:10].sum()), float(mixed[-10:].sum())
    (0.0, 10.0)
    """
    steps = np.arange(min(len(before), len(after)))
    chance = 1 / (1 + np.exp(np.clip(-4 * (steps - around) / width, -500, 500)))
    return _either(before, after, np.random.default_rng(seed).random(len(steps)) < chance)


def _either(before: Stream, after: Stream, later: NDArray[np.bool_]) -> Stream:
    one, other = before.take(len(later)).examples, after.take(len(later)).examples

    def choose(x: NDArray[Any], positions: NDArray[np.int64]) -> NDArray[Any]:
        now = later[positions].reshape(-1, *[1] * (x.ndim - 1))
        return np.where(now, np.asarray(other.x[positions]), x)

    y = np.where(
        later.reshape(-1, *[1] * (np.ndim(one.y) - 1)), np.asarray(other.y), np.asarray(one.y)
    )
    delay = np.where(later, np.asarray(other.delay), np.asarray(one.delay))
    tasks = 1 + int(np.max(np.asarray(one.task), initial=0))
    task = np.where(later, np.asarray(other.task) + tasks, np.asarray(one.task))
    return Stream(Example(mapped(one.x, choose), y, task, delay))


@partial(jax.jit)
def _rotate(images: jax.Array, angles: jax.Array) -> jax.Array:
    """(n, height, width, channels) about their centres, as scipy.ndimage.rotate turns them."""
    height, width = images.shape[1:3]
    rows, columns = jnp.meshgrid(jnp.arange(height), jnp.arange(width), indexing="ij")
    middle = ((height - 1) / 2, (width - 1) / 2)

    def one(image: jax.Array, angle: jax.Array) -> jax.Array:
        c, s = jnp.cos(jnp.deg2rad(angle)), jnp.sin(jnp.deg2rad(angle))
        down, across = rows - middle[0], columns - middle[1]
        source = [c * down + s * across + middle[0], -s * down + c * across + middle[1]]
        sample = partial(map_coordinates, coordinates=source, order=1, mode="nearest")
        turned = jax.vmap(sample, in_axes=-1, out_axes=-1)(image)
        # As scipy does it, what would come from beyond the edge is zero; rounding is not beyond it.
        beyond = [
            (place < -1e-4) | (place > size - 1 + 1e-4)
            for place, size in zip(source, (height, width), strict=True)
        ]
        return jnp.where((beyond[0] | beyond[1])[..., None], 0.0, turned)

    return jax.vmap(one)(images, angles)


def _image_shape(shape: tuple[int, ...]) -> tuple[int, int, int]:
    side = int(np.sqrt(shape[0])) if len(shape) == 1 else 0
    sizes = (side, side, 1) if side and (side * side,) == shape else (*shape, 1)[:3]
    if len(sizes) == 3 and len(shape) <= 3:
        return sizes
    raise ValueError(f"x must hold images (or flat, square ones) to be rotated, got shape {shape}.")


def _enough(stream: Stream, count: int) -> Stream:
    if len(stream) < count:
        raise ValueError(f"stream must have at least {count} examples for this, got {len(stream)}.")
    return stream.take(count)


def _at_least(name: str, value: int, lowest: int) -> None:
    if value < lowest:
        raise ValueError(f"{name} must be a whole number, {lowest} or above, got {value!r}.")


def _fraction(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ValueError(f"{name} must be a number from 0 to 1, got {value!r}.")
