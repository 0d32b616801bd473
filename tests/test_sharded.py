"""A belief divided over four devices is the belief on one, and little travels between them."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import jax
import pytest

import bayestream as bs
import four_devices

MODEL, LIKELIHOOD = bs.models.mlp([2, 3]), bs.likelihoods.categorical()
MESH = jax.make_mesh((1,), ("devices",))
# The largest difference allowed, over the largest number.
CLOSE = {"float32": 1e-5, "float64": 1e-10}


def on_four(dtype, *names, **environment):
    """What the program finds on four devices, which there must be before JAX begins."""
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"
    ended = subprocess.run(
        [sys.executable, four_devices.__file__, dtype, *names],
        env={**os.environ, **environment, "XLA_FLAGS": flags},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def assert_the_same(found, dtype):
    """The first weights, all forecasts, and the belief after 200 steps."""
    assert max(found[each] for each in ("first", "forecasts", "belief")) < CLOSE[dtype]


def assert_little_travels(found):
    """Of (L + C)² numbers, or K for each input of a layer: of the weights never even a share."""
    assert found["bound"] < found["weights"] / 8
    assert 0 < max(found["sent"]) <= found["bound"]


def test_four_devices_have_the_belief_of_one_and_send_each_other_small_sums_alone():
    # One test: a second process would have to compile it all again.
    found = on_four("float64", "quick")["quick"]
    assert_the_same(found, "float64")
    assert found["draws"] < CLOSE["float64"]  # from dense matrices and each device's own noise
    assert_little_travels(found)
    assert_little_travels({**found, "sent": found["drawn"]})  # every device draws its own weights
    with pytest.raises(AssertionError):  # a mean that is gathered is found out
        assert_little_travels({**found, "sent": found["gathered"]})


@pytest.mark.slow
@pytest.mark.parametrize("dtype", CLOSE)
def test_every_method_is_the_same_on_four_devices(dtype):
    # Kernels round otherwise than JAX, which float32 shows: there both are without.
    without = {"BAYESTREAM_KERNELS": "jax"} if dtype == "float32" else {}
    for found in on_four(dtype, *four_devices.CASES, **without).values():
        assert_the_same(found, dtype)
        assert_little_travels(found)


@pytest.mark.slow
def test_all_forecasts_and_covariances_are_the_same_on_four_devices():
    found = on_four("float64", "forecasts")["forecasts"]
    assert max(found.values()) < CLOSE["float64"], found


@pytest.mark.slow
def test_two_processes_share_a_belief():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    script = Path(__file__).with_name("two_hosts.py")
    each = [
        subprocess.Popen(
            [sys.executable, script, address, process], stdout=subprocess.PIPE, text=True
        )
        for process in "01"
    ]
    try:
        for process in each:
            *_, devices, difference = process.communicate(timeout=300)[0].split()
            assert devices == "2"
            assert float(difference) < CLOSE["float64"]
    finally:
        for process in each:
            process.kill()


@pytest.mark.parametrize(
    ("make", "given", "message"),
    [
        (bs.fcekf, {}, "make must be one of bs.lofi, .* got fcekf."),
        (bs.lofi, {"mesh": 4}, "mesh must be made by jax.make_mesh, got 4."),
        (bs.lofi, {"model": bs.models.lenet()}, "model must be a bs.models.mlp"),
        (bs.lofi, {"rank": 9}, "rank must be below 9 "),
        (bs.lofi, {"rank": 10}, "rank must be a whole number from 0 to 9"),
    ],
)
def test_what_cannot_be_divided_is_refused_in_a_sentence(make, given, message):
    given = {"mesh": MESH, "model": MODEL, **given}
    with pytest.raises((TypeError, ValueError), match=message):
        bs.sharded(make, likelihood=LIKELIHOOD, **given)


def test_a_state_of_another_learner_is_neither_gathered_nor_scattered():
    learner = bs.sharded(bs.vdekf, MODEL, LIKELIHOOD, mesh=MESH)
    other = bs.vdekf(bs.models.mlp([2, 4]), LIKELIHOOD).init(jax.random.key(0))
    for move in (bs.gathered, bs.scattered):
        with pytest.raises(ValueError, match="state must come from this learner's init"):
            move(learner, other)
