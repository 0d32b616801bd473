"""Over a Ray cluster: what one machine finds, to the bit, though actors are killed."""

import os
import signal
import socket
import sys

import jax
import numpy as np
import pytest

import bayestream as bs
from bayestream.experiments import work
from bayestream.experiments.registry import EXPERIMENTS
from bayestream.running.ray_cluster import connected
from bayestream.running.ray_share import Share, share_of
from bayestream.running.ray_tasks import spread
from test_fleet import assert_equal
from test_resume import call

LEARNER = bs.lofi(
    bs.models.mlp([2, 8, 1]), bs.likelihoods.gaussian(0.1), rank=3, decay=0.99, drift=1e-3
)
START = LEARNER.init(jax.random.key(0))
ROWS = 250  # of a call


def rows_of(keys, count):
    """Keys of both kinds, some of them late, and rows, of which every tenth has no label."""
    rng = np.random.default_rng(0)
    drawn = rng.integers(0, np.linspace(keys / 2, keys, count).astype(int))
    names = [int(number) if number % 2 else str(number + 1) for number in drawn]
    x = rng.normal(size=(count, 2))
    y = np.sin(x[:, :1] + drawn[:, None])
    y[::10] = np.nan
    return names, x, y


def runs(fleet, names, x, y, **how):
    cuts = [slice(first, first + ROWS) for first in range(0, len(names), ROWS)]
    return [fleet.run(names[cut], (x[cut], y[cut]), **how) for cut in cuts]


def assert_same_fleets(fleet, parts, alone, expected):
    """Every record and every state, bit for bit."""
    assert fleet.keys == alone.keys
    assert_equal(fleet.state, alone.state)
    assert fleet.refused() == alone.refused()
    for part, one in zip(parts, expected, strict=True):
        assert part.keys == one.keys
        assert (part.skipped, part.refused, part.updates) == (one.skipped, one.refused, one.updates)
        assert_equal(part.values, one.values)


def test_a_keys_share_is_the_same_everywhere_and_shares_are_alike():
    names = [*range(1000), *map(str, range(1000))]
    counts = np.bincount([share_of(name, 8) for name in names])
    assert counts.min() > 200
    assert [share_of(name, 8) for name in ("a", "ä", 7, "7", -7)] == [4, 7, 6, 5, 5]


def test_without_ray_one_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"needs ray: pip install 'bayestream\[ray\]'$"):
        bs.ray_fleet(LEARNER, START)


def test_what_cannot_be_spread_is_refused_in_a_sentence():
    pooled = bs.fleet(LEARNER, START, pooled=True).state
    with pytest.raises(ValueError, match="state must be of a fleet that is not pooled"):
        bs.ray_fleet(LEARNER, pooled)
    other = bs.lofi(bs.models.mlp([2, 4, 1]), bs.likelihoods.gaussian(0.1), rank=3)
    for state in (START, bs.fleet(LEARNER, START).state):
        with pytest.raises(ValueError, match="state must come from this learner's init"):
            bs.ray_fleet(other, state)
    for name in ("actors", "every"):
        with pytest.raises(ValueError, match=f"{name} must be a whole number, 1 or above, got 0"):
            bs.ray_fleet(LEARNER, START, **{name: 0})


@pytest.fixture
def silent():
    """A port that takes connections and never says a word."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.slow
def test_a_cluster_that_does_not_answer_is_said_so_within_seconds(silent):
    pytest.importorskip("ray")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{free.getsockname()[1]}"
    for address in (nobody, silent, "no-such-host.invalid:6379"):
        with pytest.raises(ConnectionError, match=f"No Ray cluster answers at {address}: "):
            bs.ray_fleet(LEARNER, START, address=address)
    for address in ("ray://127.0.0.1:10001", "127.0.0.1", "here:there"):
        with pytest.raises(ValueError, match="of a Ray cluster must be HOST:PORT, auto or local"):
            bs.ray_fleet(LEARNER, START, address=address)


@pytest.fixture(scope="module")
def cluster():
    """Two nodes on this machine, to which this process is connected."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 2})
    nodes.add_node(num_cpus=2)
    with connected(nodes.address):
        yield nodes
    nodes.shutdown()


def deadly(monkeypatch, method, moments):
    """Kill the actor that the n-th call of a share's method, of all shares, is about."""
    calls, killed = [], []
    plain = getattr(Share, method)

    def fatal(self, *args, **options):
        calls.append(method)
        at = len(calls)
        pid = at in moments and self.ask("__ray_call__", lambda worker: os.getpid())
        found = plain(self, *args, **options)
        if pid:
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)
        return found

    monkeypatch.setattr(Share, method, fatal)
    return killed


@pytest.mark.slow
def test_ten_actors_killed_in_the_middle_leave_no_trace(cluster, monkeypatch):
    names, x, y = rows_of(200, 6000)
    alone = bs.fleet(LEARNER, START)
    expected = runs(alone, names, x, y)
    # With a batch to learn, and when it has learnt one; the first of all among them, and in a row.
    killed = deadly(monkeypatch, "send", {1, 20, 41, 62, 83})
    killed_later = deadly(monkeypatch, "receive", {9, 10, 30, 71, 90})
    with bs.ray_fleet(LEARNER, START, actors=4, every=300) as fleet:
        parts = runs(fleet, names, x, y)
        assert len({*killed, *killed_later}) == 10
        assert_same_fleets(fleet, parts, alone, expected)
        assert_equal(fleet.of(names[0]), alone.of(names[0]))
        assert_equal(fleet.of("never came"), START)


@pytest.mark.slow
def test_a_machine_that_is_lost_leaves_no_trace(cluster):
    names, x, y = rows_of(40, 1000)
    alone = bs.fleet(LEARNER, START)
    expected = runs(alone, names, x, y)
    third = cluster.add_node(num_cpus=2)
    with bs.ray_fleet(LEARNER, START, actors=3) as fleet:
        parts = runs(fleet, names[:500], x[:500], y[:500])
        cluster.remove_node(third, allow_graceful=False)
        parts += runs(fleet, names[500:], x[500:], y[500:])
        assert_same_fleets(fleet, parts, alone, expected)


@pytest.mark.slow
def test_precision_and_kernels_are_those_of_the_caller(cluster, monkeypatch):
    monkeypatch.setenv("BAYESTREAM_KERNELS", "jax")
    with jax.enable_x64(True):
        learner = bs.vdekf(bs.models.mlp([2, 4, 1]), bs.likelihoods.gaussian(0.1))
        start = learner.init(jax.random.key(0))
        names, x, y = rows_of(10, 100)
        alone = bs.fleet(learner, start)
        expected = runs(alone, names, x, y)
        with bs.ray_fleet(learner, start, actors=2) as fleet:
            parts = runs(fleet, names, x, y)
            assert parts[0]["prediction"].dtype == np.float64
            assert_same_fleets(fleet, parts, alone, expected)
            about = fleet._shares[0].ask("about")
            assert (about["kernels"], about["precision"]) == ("jax", "float64")


@pytest.mark.slow
def test_bad_rows_and_what_an_actor_raises_are_said_as_on_one_machine(cluster, tmp_path):
    learner = bs.slang(bs.models.mlp([2, 2, 1]), bs.likelihoods.gaussian(0.1), rank=1)
    start, key = learner.init(jax.random.key(0)), jax.random.key(1)
    names, x, y = rows_of(10, 100)
    names[70], x[80] = None, np.nan
    alone = bs.fleet(learner, start)
    expected = runs(alone, names, x, y, key=key, on_bad="skip")
    with bs.ray_fleet(learner, start, actors=2) as fleet:
        for how in ({"key": key}, {"on_bad": "skip"}):  # a bad row; no key for random numbers
            with pytest.raises((TypeError, ValueError)) as here:
                runs(bs.fleet(learner, start), names, x, y, **how)
            with pytest.raises(type(here.value)) as there:
                runs(fleet, names, x, y, **how)
            assert str(there.value) == str(here.value)
            assert len(fleet) == 0
        parts = runs(fleet, names, x, y, key=key, on_bad="skip")
        assert_same_fleets(fleet, parts, alone, expected)
        bs.checkpoint.save(tmp_path / "fleet.safetensors", learner, fleet.state)
    saved = bs.checkpoint.load(tmp_path / "fleet.safetensors", learner).state
    with bs.ray_fleet(learner, saved, actors=3) as fleet:
        assert_equal(fleet.state, alone.state)
        more = runs(fleet, names[:50], x[:50], y[:50], key=key)
        assert_same_fleets(fleet, more, alone, runs(alone, names[:50], x[:50], y[:50], key=key))


@pytest.mark.slow
def test_an_actor_that_dies_again_and_again_is_given_up_in_a_sentence(cluster):
    def record(*_):
        os._exit(1)

    with (
        bs.ray_fleet(LEARNER, START, actors=1) as fleet,
        pytest.raises(ChildProcessError, match="actor of the fleet died 5 times in a row"),
    ):
        fleet.run(["a"], (np.ones((1, 2)), np.ones((1, 1))), record=record)
    with pytest.raises(ValueError, match="This fleet is closed"):
        fleet.of("a")


@pytest.mark.slow
def test_a_task_whose_worker_is_lost_runs_again_and_what_it_raises_comes_back(cluster, tmp_path):
    def fatal_at_first(number):
        if number == 3 and not (tmp_path / "died").exists():
            (tmp_path / "died").touch()
            os._exit(1)
        return number**2

    def failing(number):
        raise LookupError(f"number {number}")

    with connected() as ray:
        found = dict(spread(ray, fatal_at_first)(range(6), lambda: False))
        assert found == {number: number**2 for number in range(6)}
        assert (tmp_path / "died").exists()
        with pytest.raises(LookupError, match="number 7"):
            list(spread(ray, failing)([7], lambda: False))
        assert list(spread(ray, fatal_at_first)(range(6), lambda: True)) == []


@pytest.mark.slow
def test_a_search_on_a_cluster_is_the_search_on_one_machine(cluster):
    stream = bs.streams.drifting_linear_regression(0, steps=100, inputs=3)
    search = [
        bs.tune.tune(
            "lofi",
            bs.models.mlp([3, 8, 1]),
            bs.likelihoods.gaussian,
            bs.tune.prequential(stream),
            fixed={"rank": 3},
            trials=13,
            ray=ray,
        )
        for ray in (None, "auto")
    ]
    assert search[0] == search[1]


@pytest.mark.slow
def test_trials_on_a_cluster_are_those_of_one_machine(cluster, tmp_path):
    todo = work.jobs([EXPERIMENTS["piecewise-1d"]], "smoke", tmp_path)
    here, there = (
        {(job.series.name, job.trial): found for job, found in work.results(todo, 1, ray=ray)}
        for ray in (None, "auto")
    )
    assert here.keys() == there.keys() != set()
    for job, found in here.items():
        for metric in set(found.unique("metric")) - {"wall seconds"}:
            mine, theirs = (each.where(metric=metric)["value"] for each in (found, there[job]))
            np.testing.assert_array_equal(mine, theirs, strict=True)


@pytest.mark.slow
def test_the_command_line_forecasts_the_same(cluster, tmp_path):
    names, x, y = rows_of(12, 300)
    lines = [
        f"k{n},{a:.3f},{b:.3f},{c:.3f}"
        for n, (a, b), (c,) in zip(names, x, np.nan_to_num(y), strict=True)
    ]
    table = tmp_path / "table.csv"
    table.write_text("\n".join(["who,a,b,y", *lines]) + "\n")
    given = ("run", "--data", table, "--target", "y", "--key", "who", "--hidden", 2, "--head", 40)
    call(*given, "--out", tmp_path / "here")
    call(*given, "--out", tmp_path / "there", "--ray", "auto")
    here, there = ((tmp_path / name / "forecasts.csv").read_text() for name in ("here", "there"))
    assert here == there
    said = call("run", "--data", table, "--target", "y", "--ray", "auto", code=1)
    assert "--ray must come with --key, and without --pooled" in said
