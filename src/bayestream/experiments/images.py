"""Streams of images as the paper makes them, and what a learner is tested on along each."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from bayestream import streams
from bayestream.evaluation import evaluate
from bayestream.evaluation.evaluate import Tests
from bayestream.streams import drifts
from bayestream.types import Stream

VALIDATION = 6_000  # the first tenth of the training images, for tuning alone
TASKS, TASK = 10, 300  # of the streams that change at once
TEST = 500  # images of a task
PAIRS = ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9))


class World(NamedTuple):
    """A stream to learn from, and after so many steps, what to be tested on."""

    train: Stream
    tests: Tests


Make = Callable[[int, int], World]  # (trial, steps) → its world


def stationary(trial: int, steps: int, *, flat: bool = True) -> World:
    """Images at random, tested on the whole test set."""
    train = _training(flat).shuffle(trial).take(steps)
    return World(train, evaluate.always(_test(flat)))


def permuted(trial: int, steps: int) -> World:
    """Ten tasks, each with its own order of the pixels."""
    tasks = -(-steps // TASK)
    train = drifts.permuted(_training().shuffle(trial), tasks=tasks, length=TASK, seed=trial)
    test = drifts.permuted(_test().shuffle(trial), tasks=tasks, length=TEST, seed=trial)
    return World(train.take(steps), evaluate.of_task(test, train, TEST))


def split(trial: int, steps: int) -> World:
    """Five tasks, each to tell two kinds of clothes apart."""
    train = drifts.split_classes(_training().shuffle(trial), PAIRS, length=TASK)
    test = drifts.split_classes(_test().shuffle(trial), PAIRS, length=TEST)
    return World(train.take(steps), evaluate.of_task(test, train, TEST))


def rotated(trial: int, steps: int) -> World:
    """Images that turn slowly, tested on images turned about as far."""
    angles = drifts.ornstein_uhlenbeck(steps, mean=45.0, deviation=15.0, seed=trial)
    train = drifts.rotated(_training().shuffle(trial), angles)
    test = drifts.rotated(_test().shuffle(trial), _perturbed(angles, trial))
    return World(train, evaluate.around(test, 200))


def turned(trial: int, steps: int) -> World:
    """Shirts at an angle from 0 to 180 degrees, which is to be told."""
    train = drifts.rotation_regression(_shirts(trial).take(steps), _angles(steps, trial))
    test = _test_shirts(trial)
    angles = _angles(len(test), trial + 1_000_000)
    return World(train, evaluate.always(drifts.rotation_regression(test, angles)))


def turned_permuted(trial: int, steps: int) -> World:
    """The same, in ten tasks, each with its own order of the pixels."""
    tasks = -(-steps // TASK)
    count, tested = tasks * TASK, tasks * TEST
    train = drifts.rotation_regression(_shirts(trial).take(count), _angles(count, trial))
    # There are a thousand shirts to test on: tasks share them, at other angles.
    shirts = drifts.repeat(_test_shirts(trial), -(-tested // 1_000), seed=trial).take(tested)
    test = drifts.rotation_regression(shirts, _angles(tested, trial + 1_000_000))
    train = drifts.permuted(train, tasks=tasks, length=TASK, seed=trial)
    test = drifts.permuted(test, tasks=tasks, length=TEST, seed=trial)
    return World(train.take(steps), evaluate.of_task(test, train, TEST))


def turning(trial: int, steps: int) -> World:
    """Shirts that turn slowly; the angle is to be told."""
    angles = drifts.ornstein_uhlenbeck(steps, mean=90.0, deviation=30.0, seed=trial)
    train = drifts.rotation_regression(_shirts(trial).take(steps), angles)
    shirts = drifts.repeat(_test_shirts(trial), -(-steps // 1_000), seed=trial).take(steps)
    test = drifts.rotation_regression(shirts, _perturbed(angles, trial))
    return World(train, evaluate.around(test, 200))


@lru_cache(maxsize=2)
def _training(flat: bool = True) -> Stream:
    everything = streams.fashion_mnist("train", flat=flat)
    return everything.select(np.arange(VALIDATION, len(everything)))


@lru_cache(maxsize=2)
def _test(flat: bool = True) -> Stream:
    return streams.fashion_mnist("test", flat=flat)


def _shirts(trial: int) -> Stream:
    return drifts.only_classes(_training(), [2]).shuffle(trial)


def _test_shirts(trial: int) -> Stream:
    return drifts.only_classes(_test(), [2]).shuffle(trial)


def _angles(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng([2, seed]).uniform(0, 180, count)


def _perturbed(angles: np.ndarray, seed: int) -> np.ndarray:
    return angles + np.random.default_rng([3, seed]).normal(0, 5, len(angles))
