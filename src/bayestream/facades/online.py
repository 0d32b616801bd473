"""What every facade is a shell of: a learner made from settings, its state, and room to grow."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from bayestream import estimators, likelihoods
from bayestream.averaging import self_tuning
from bayestream.checks import check_choice, check_whole
from bayestream.estimators import grow
from bayestream.forecasts import CategoricalForecast, Forecast, plain, predictive
from bayestream.networks import models
from bayestream.running.run import one_step
from bayestream.types import Array, Estimator, Example, State

Task = Literal["regression", "classification"]
SELF_TUNING = "self_tuning"
_TOGETHER = 512  # rows that one call of a program learns from, or looks at
_LOOK = 64  # examples between two looks at how many were refused, where nothing is forecast


class Settings(NamedTuple):
    """What a learner is made from; equal ones share their compiled programs."""

    task: Task
    method: str  # SELF_TUNING, or one of the registry
    hidden: tuple[int, ...]
    rank: int | None  # None: the full covariance of what tunes itself
    noise: float | None  # variance, of a standardised target; None learns it from the stream
    options: tuple[tuple[str, Any], ...] = ()
    known: int = 0  # classes that there are, seen or not


class Size(NamedTuple):
    """Of a network, which may be larger than what is in use of it."""

    inputs: int
    outputs: int
    fan_in: int  # inputs when it began


def settings(
    task: Task,
    *,
    method: str | None,
    hidden: int | Sequence[int],
    rank: int | None,
    noise: float | None,
    options: Mapping[str, Any] | None,
) -> Settings:
    """Checked, as far as that can be done without a network."""
    named = SELF_TUNING if method is None else method
    check_choice("method", named, {SELF_TUNING: None, **estimators.REGISTRY})
    sizes = tuple(hidden) if isinstance(hidden, Sequence) else (hidden,)
    for size in sizes:
        check_whole("hidden", size, 1)
    if rank is not None or named != SELF_TUNING:
        check_whole("rank", rank, 0)
    return Settings(task, named, sizes, rank, noise, tuple(sorted((options or {}).items())))


def _learner(chosen: Settings, size: Size, power: Any = None) -> Estimator:
    """With a power, which may be traced, observations count for as much."""
    sizes = [size.inputs, *chosen.hidden, size.outputs]
    options = dict(chosen.options)
    if chosen.task == "classification":
        believed: Any = likelihoods.adaptive_categorical(known=chosen.known)
    elif chosen.noise is None:
        believed = likelihoods.adaptive_student_t()
    else:
        believed = likelihoods.gaussian(chosen.noise)
    if power is not None:
        believed = likelihoods.tempered(believed, power)
    if chosen.method == SELF_TUNING:
        return self_tuning(sizes, believed, rank=chosen.rank, fan_in=size.fan_in, **options)
    model = models.mlp(sizes, fan_in_scaled=True, fan_in=size.fan_in)
    if chosen.rank is not None and estimators.takes(chosen.method, "rank"):
        options = {"rank": min(chosen.rank, model.size), **options}
    return estimators.make(chosen.method, model, believed, **options)


class Programs(NamedTuple):
    """A learner, compiled; each is one call with NumPy arrays."""

    learner: Estimator
    # Each gives the state, in the place of the old, and how many updates have been refused so far.
    learn: Callable[..., tuple[State, Array]]  # of (state, x, y, seed, step)
    learn_all: Callable[..., tuple[State, Array]]  # of (state, xs, ys, powers, count, seed, step)
    mean: Callable[[State, Any], Array]  # one number, or the probabilities, of one x or many
    forecast: Callable[[State, Any], Any]


@lru_cache(maxsize=128)
def programs(chosen: Settings, size: Size) -> Programs:
    """Of these settings over a network of this size."""
    learner = _learner(chosen, size)

    def learn(state: State, x: Array, y: Array, seed: Array, step: Array) -> tuple[State, Array]:
        key = jax.random.fold_in(jax.random.key(seed), step)
        state, (_, refused) = one_step(learner, None, state, Example(x, y), key)
        return state, refused

    def learn_all(
        state: State, xs: Array, ys: Array, powers: Array, count: Array, seed: Array, step: Array
    ) -> tuple[State, Array]:
        def one(row: Array, state: State) -> State:
            key = jax.random.fold_in(jax.random.key(seed), step + row)
            example = Example(xs[row], ys[row])
            return one_step(_learner(chosen, size, powers[row]), None, state, example, key)[0]

        state = jax.lax.fori_loop(0, count, one, state)
        return state, learner.refused(state)

    def forecast(state: State, x: Array) -> Forecast:
        return plain(predictive.default(learner, learner.predict(state), x))

    def mean(state: State, x: Array) -> Array:
        found = forecast(state, x)
        return found.probabilities if isinstance(found, CategoricalForecast) else found.mean[..., 0]

    return Programs(
        learner,
        jax.jit(learn, donate_argnums=0),
        jax.jit(learn_all, donate_argnums=0),
        jax.jit(mean),
        jax.jit(forecast),
    )


class Online:
    """A learner and its state; the network grows by doubling, so that few programs are compiled.

    >>> online = Online(settings("regression", method="lofi", hidden=5, rank=2, noise=None,
    ...                          options=None), seed=0)
    >>> online.make_room(inputs=2)
    >>> online.make_room(inputs=3)
    >>> online.size.inputs, online.mean(np.ones(4, np.float32)).shape
    (4, ())
    """

    def __init__(self, chosen: Settings, *, seed: int) -> None:
        self.settings, self.seed = chosen, seed
        self.size: Size | None = None  # before the first example
        self.steps = 0
        self._state: State = None
        self._growths = 0
        self._refused: Any = None  # how many, as the last program gave it
        self._warned = False
        self._programs: Programs | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Programs are made again from the settings, wherever it is read.
        return {**self.__dict__, "_programs": None}

    @property
    def compiled(self) -> Programs:
        """The programs for the size it has now."""
        if self.size is None:
            raise ValueError("make_room must come first: it says how many inputs there are.")
        if self._programs is None:
            self._programs = programs(self.settings, self.size)
        return self._programs

    @property
    def state(self) -> State:
        """The learner's state; the next example that is learnt deletes it."""
        return self._state

    @property
    def refused(self) -> int:
        """How many updates were not made, since the belief would not have stayed finite."""
        return 0 if self._refused is None else int(self._refused)

    def _look(self) -> None:
        """Warn of refused updates, once; this waits for the last step to be done."""
        if self._warned or self._refused is None or not np.asarray(self._refused):
            return
        self._warned = True
        said = f"{self.refused} of {self.steps} updates would not have been finite and were refused"
        warnings.warn(f"{said}; the attribute `refused` counts on.", RuntimeWarning, stacklevel=5)

    def has_room(self, *, inputs: int, classes: int = 1) -> bool:
        """Whether it need not grow for so many inputs and classes."""
        if self.size is None:
            return False
        return inputs <= self.size.inputs and classes <= self.size.outputs

    def make_room(self, *, inputs: int, classes: int = 1) -> None:
        """Begin, or grow, so that there are so many inputs and classes."""
        if self.size is None:
            begin = max(inputs, 1)
            several = self.settings.task == "classification"
            self.size = Size(begin, max(classes, 2) if several else 1, begin)
            self._state = self.compiled.learner.init(jax.random.key(self.seed))
        if self.has_room(inputs=inputs, classes=classes):
            return
        before, size = self.compiled.learner, self.size
        self.size = size._replace(
            inputs=_doubled(size.inputs, inputs), outputs=_doubled(size.outputs, classes)
        )
        self._programs = None
        self._growths += 1
        _, key = jax.random.split(jax.random.key(self.seed))
        key = jax.random.fold_in(key, self._growths)
        self._state = grow(before, self._state, self.compiled.learner, key)

    def learn(self, x: NDArray[np.float32], y: float) -> None:
        """From one example, as long as the network's inputs; a y of NaN lets time pass."""
        # NumPy's numbers go into a program a good deal faster than Python's.
        numbers = _target(y), np.int32(self.seed), np.int32(self.steps)
        if self.steps % _LOOK == 0:
            self._look()
        self._state, self._refused = self.compiled.learn(self._state, x, *numbers)
        self.steps += 1

    def learn_all(
        self, xs: NDArray[np.float32], ys: NDArray[Any], powers: NDArray[Any] | None = None
    ) -> None:
        """From one after another, each as much as its power says, or once."""
        powers = np.ones(len(xs)) if powers is None else powers
        for first in range(0, len(xs), _TOGETHER):
            rows = xs[first : first + _TOGETHER]
            targets = _target(ys[first : first + _TOGETHER])
            spare = _TOGETHER - len(rows)
            self._state, self._refused = self.compiled.learn_all(
                self._state,
                np.pad(rows, ((0, spare), (0, 0))),
                np.pad(targets, (0, spare)),
                np.pad(powers[first : first + _TOGETHER].astype(np.float32), (0, spare)),
                np.int32(len(rows)),
                np.int32(self.seed),
                np.int32(self.steps),
            )
            self.steps += len(rows)
        self._look()

    def mean(self, x: NDArray[np.float32]) -> NDArray[Any]:
        """Of one x, the standardised target or the classes' probabilities; the state stays."""
        found = np.asarray(self.compiled.mean(self._state, x))
        self._look()  # by now there is nothing to wait for
        return found

    def mean_of_all(self, xs: NDArray[np.float32]) -> NDArray[Any]:
        """The same for many."""
        return self._of_all(self.compiled.mean, xs)

    def forecast(self, x: NDArray[np.float32]) -> Any:
        """All that is forecast of one x."""
        self._look()
        return self.compiled.forecast(self._state, x)

    def forecast_of_all(self, xs: NDArray[np.float32]) -> list[tuple[Any, int]]:
        """Forecasts of many in blocks, and how many rows of each are asked for."""
        program = self.compiled.forecast
        return [(program(self._state, rows), count) for rows, count in _blocks(xs)]

    def _of_all(self, program: Callable[..., Any], xs: NDArray[np.float32]) -> NDArray[Any]:
        parts = [np.asarray(program(self._state, rows))[:count] for rows, count in _blocks(xs)]
        return np.concatenate(parts)


def _blocks(xs: NDArray[np.float32]) -> list[tuple[NDArray[np.float32], int]]:
    """Rows filled up to a power of two, few of which there are, and how many are theirs."""
    blocks: list[tuple[NDArray[np.float32], int]] = []
    for first in range(0, max(len(xs), 1), _TOGETHER):
        rows = xs[first : first + _TOGETHER]
        filled = 1 << max(len(rows) - 1, 0).bit_length()
        blocks.append((np.pad(rows, ((0, filled - len(rows)), (0, 0))), len(rows)))
    return blocks


def _target(y: Any) -> Any:
    return np.asarray(y, np.float32)


def _doubled(size: int, least: int) -> int:
    while size < least:
        size *= 2
    return size
