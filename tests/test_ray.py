"""Over a Ray cluster: what one machine finds, to the bit, though actors are killed."""

import os
import signal
import threading

import jax
import numpy as np
import pytest

import bayestream as bs
from bayestream.running.ray_share import share_of
from test_fleet import assert_equal

LEARNER = bs.lofi(
    bs.models.mlp([2, 8, 1]), bs.likelihoods.gaussian(0.1), rank=3, decay=0.99, drift=1e-3
)
START = LEARNER.init(jax.random.key(0))


def rows_of(keys, count):
    """Keys of both kinds, some of them late, and rows, of which every tenth has no label."""
    rng = np.random.default_rng(0)
    drawn = rng.integers(0, np.linspace(keys / 2, keys, count).astype(int))
    names = [int(number) if number % 2 else str(number - 1) for number in drawn]
    x = rng.normal(size=(count, 2))
    y = np.sin(x[:, :1] + drawn[:, None])
    y[::10] = np.nan
    return names, x, y


def test_a_keys_share_is_the_same_everywhere_and_shares_are_alike():
    names = [*range(1000), *map(str, range(1000))]
    counts = np.bincount([share_of(name, 8) for name in names])
    assert counts.min() > 200
    assert [share_of(name, 8) for name in ("a", "ä", 7, "7", -7)] == [4, 7, 6, 5, 5]


@pytest.fixture(scope="module")
def cluster():
    """Two nodes on this machine."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 2})
    nodes.add_node(num_cpus=2)
    ray.init(nodes.address, log_to_driver=False, logging_level="ERROR")
    yield nodes
    ray.shutdown()
    nodes.shutdown()


@pytest.mark.slow
def test_actors_that_are_killed_in_the_middle_leave_no_trace(cluster):
    names, x, y = rows_of(200, 60_000)
    alone = bs.fleet(LEARNER, START)
    expected = alone.run(names, (x, y))
    with bs.ray_fleet(LEARNER, START, actors=4, every=3000) as fleet:
        killed = []

        def kill(pid):
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)

        import time
        t=time.time()
        parts=[fleet.run(names[a:a+20000],(x[a:a+20000],y[a:a+20000])) for a in range(0,60000,20000)]
        print("ray", time.time()-t)
        assert fleet.keys == alone.keys
        assert_equal(fleet.state, alone.state)
        assert_equal(np.concatenate([p["prediction"] for p in parts]), expected["prediction"])
