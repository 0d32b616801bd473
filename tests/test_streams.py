"""Streams are what their seed says, and no more."""

import numpy as np

import bayestream as bs


def test_a_seed_decides_the_whole_stream():
    one, again = (bs.streams.piecewise_regression(3, tasks=2, length=7).examples for _ in range(2))
    other = bs.streams.piecewise_regression(4, tasks=2, length=7).examples
    for field in ("x", "y", "task"):
        np.testing.assert_array_equal(getattr(one, field), getattr(again, field))
    assert not np.array_equal(one.y, other.y)


def test_targets_are_the_tasks_function_plus_noise_of_the_stated_variance():
    stream = bs.streams.piecewise_regression(0, tasks=4, length=5000, noise=0.04).examples
    waves = bs.streams.waves(0, tasks=4)
    x, y = stream.x[:, 0], stream.y[:, 0]
    expected = x + 0.3 * np.sin(waves.phase[stream.task] + waves.frequency[stream.task] * np.pi * x)
    error = y - expected
    assert abs(error.var() - 0.04) < 5 * 0.04 * np.sqrt(2 / error.size)
    assert np.abs(x).max() <= 2


def test_iterating_taking_and_shuffling_keep_examples_whole():
    stream = bs.streams.piecewise_regression(0, tasks=2, length=10)
    rows = list(stream)
    assert len(rows) == len(stream) == 20
    assert [row.task for row in stream.take(12)] == [0] * 10 + [1] * 2
    shuffled = stream.shuffle(1)
    assert not np.array_equal(shuffled.examples.x, stream.examples.x)
    order = np.argsort(shuffled.examples.x[:, 0])
    expected = np.argsort(stream.examples.x[:, 0])
    np.testing.assert_array_equal(shuffled.examples.y[order], stream.examples.y[expected])
