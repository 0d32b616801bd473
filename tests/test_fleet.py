"""A fleet is as many separate runs, to the bit, whoever comes when; `bayestream run --key`."""

import csv
import os
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import jax
import numpy as np
import pytest

import bayestream as bs
from bayestream.running.folder import read
from bayestream.running.run import learn
from test_resume import call

LEARNER = bs.lofi(
    bs.models.mlp([2, 4, 1]), bs.likelihoods.gaussian(0.1), rank=2, decay=0.99, drift=1e-3
)
START = LEARNER.init(jax.random.key(0))
MOST = 128  # rows of one key: one program serves all


def rows_of(keys, count, seed=0):
    """Keys in any order, some of them late and some often, with rows; every tenth has no label."""
    rng = np.random.default_rng(seed)
    chance = rng.exponential(size=keys)
    drawn = rng.choice(keys, count, p=chance / chance.sum())
    late = np.arange(count) < count // 2
    drawn[late] = drawn[late] // 2  # the other half of the keys come later
    x = rng.normal(size=(count, 2))
    y = x @ rng.normal(size=(2, keys)) ** 2
    y = y[np.arange(count), drawn][:, None]
    y[::10] = np.nan
    return [f"key {number}" for number in drawn], x, y


def assert_equal(one, other):
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a, b, strict=True), one, other)


def assert_is_separate_runs(fleet, records, keys, x, y, start=START):
    keys = np.array(keys)
    for key in fleet.keys:
        own = keys == key
        state, alone = learn(LEARNER, start, (x[own], y[own]), size=MOST)
        assert_equal(fleet.of(key), state)
        assert_equal(records.of(key), jax.tree.map(np.asarray, alone.values))


@pytest.mark.parametrize(
    ("keys", "count"), [(50, 600), pytest.param(1000, 12_000, marks=pytest.mark.slow)]
)
def test_a_fleet_is_as_many_separate_runs_to_the_bit(keys, count):
    names, x, y = rows_of(keys, count)
    fleet = bs.fleet(LEARNER, START)
    records = fleet.run(names, (x, y))
    assert len(fleet) == len(set(names)) > 0.8 * keys
    assert fleet.keys == tuple(dict.fromkeys(names))
    assert records.keys == tuple(names)
    assert_is_separate_runs(fleet, records, names, x, y)


@pytest.mark.slow
@pytest.mark.parametrize("kernels", ["native", "jax"])
@pytest.mark.parametrize("method", ["lofi", "vdekf", "self-tuning", "replay-sgd"])
def test_as_users_run_it_a_learner_is_that_of_a_fleet_of_one_and_of_bs_run(method, kernels):
    # In a process of its own: the suite compiles in haste, and then XLA may round otherwise in one
    # of two programs that are alike.
    env = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    ended = subprocess.run(
        [sys.executable, Path(__file__).with_name("fleets_alone.py"), method],
        env={**env, "BAYESTREAM_KERNELS": kernels},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split() == ["equal"] * 6


@pytest.mark.slow
def test_neither_threads_nor_how_rows_are_cut_make_a_difference():
    names, x, y = rows_of(30, 400)
    fleets = [bs.fleet(LEARNER, START, threads=threads) for threads in (1, 3)]
    whole = fleets[0].run(names, (x, y))
    cuts = [0, 1, 9, 150, 400]
    parts = [fleets[1].run(names[a:b], (x[a:b], y[a:b])) for a, b in pairwise(cuts)]
    assert_equal(fleets[0].state, fleets[1].state)
    joined = np.concatenate([part["prediction"] for part in parts])
    np.testing.assert_array_equal(whole["prediction"], joined, strict=True)


def test_of_one_key_a_fleet_is_a_run():
    _, x, y = rows_of(1, 100)
    fleet = bs.fleet(LEARNER, START)
    records = fleet.run([7] * len(x), (x, y))
    state, alone = bs.run(LEARNER, START, (x, y))
    assert 7 in fleet
    assert 8 not in fleet
    assert_equal(fleet.of(7), state)
    assert_equal(records.values, jax.tree.map(np.asarray, alone.values))
    assert_equal(fleet.of(8), START)


def test_room_doubles_and_keys_at_rest_stay_as_they_were():
    _, x, y = rows_of(1, 64)
    fleet = bs.fleet(LEARNER, START, threads=2)
    fleet.run(["first"] * 8, (x[:8], y[:8]))
    before = fleet.of("first")
    for first in range(8, 64, 8):  # 57 keys, of which no program is asked to hold more
        names = [f"key {number}" for number in range(first, first + 8)]
        fleet.run(names, (x[first : first + 8], y[first : first + 8]))
    assert len(fleet) == 57
    assert_equal(fleet.of("first"), before)
    assert_equal(fleet.of("key 63"), learn(LEARNER, START, (x[63:], y[63:]), size=MOST)[0])


def test_pooled_a_key_begins_where_a_learner_of_all_rows_before_it_is():
    names, x, y = rows_of(6, 120)
    fleet = bs.fleet(LEARNER, START, pooled=True)
    fleet.run(names[:50], (x[:50], y[:50]))
    fleet.run(names[50:], (x[50:], y[50:]))
    for key in fleet.keys:
        first = names.index(key)
        own = np.array(names) == key
        start, _ = learn(LEARNER, START, (x[:first], y[:first]), size=MOST)
        state, _ = learn(LEARNER, start, (x[own], y[own]), size=MOST)
        assert_equal(fleet.of(key), state)
    assert_equal(fleet.of("new"), learn(LEARNER, START, (x, y), size=MOST)[0])


def test_refused_updates_are_counted_by_key():
    _, x, y = rows_of(3, 100)
    names, bad = ["a", "b", "c"] * 33 + ["a"], [5, 8]
    y[bad] = 1e200
    fleet = bs.fleet(LEARNER, START, threads=1)
    with pytest.warns(RuntimeWarning, match="2 of 90 updates would not have been finite"):
        records = fleet.run(names, (x, y))
    assert [each.position for each in records.refused] == bad
    assert fleet.refused() == {"a": 0, "b": 0, "c": 2}
    # What was refused before is not refused again.
    assert fleet.run(names[:3], (x[:3], np.ones((3, 1)))).refused == ()


def test_most_refused_is_an_error():
    x = np.ones((20, 2))
    with pytest.raises(bs.RefusedError, match="20 of 20 updates"):
        bs.fleet(LEARNER, START).run(["a"] * 20, (x, np.full((20, 1), 1e200)))


def test_means_leave_missing_labels_out():
    names, x, y = rows_of(4, 60)
    records = bs.fleet(LEARNER, START).run(names, (x, y))
    own = np.asarray(records.of(names[0])["log_density"])
    assert np.isnan(own).any()
    assert records.means("log_density")[names[0]] == own[~np.isnan(own)].mean()


@pytest.mark.parametrize("pooled", [False, True])
def test_a_fleet_that_was_saved_goes_on_to_the_bit(tmp_path, pooled):
    names, x, y = rows_of(12, 200)
    whole = bs.fleet(LEARNER, START, pooled=pooled)
    whole.run(names, (x, y))
    part = bs.fleet(LEARNER, START, pooled=pooled)
    part.run(names[:90], (x[:90], y[:90]))
    bs.checkpoint.save(tmp_path / "fleet.safetensors", LEARNER, part.state, notes="mine")
    found = bs.checkpoint.load(tmp_path / "fleet.safetensors", LEARNER)
    loaded = bs.fleet(LEARNER, found.state, threads=3)
    assert found.notes == "mine"
    assert loaded.keys == part.keys
    loaded.run(names[90:], (x[90:], y[90:]))
    assert_equal(loaded.state, whole.state)


def test_a_fleet_of_another_learner_is_refused(tmp_path):
    fleet = bs.fleet(LEARNER, START)
    fleet.run(["a"], (np.ones((1, 2)), np.ones((1, 1))))
    bs.checkpoint.save(tmp_path / "fleet.safetensors", LEARNER, fleet.state)
    other = bs.lofi(bs.models.mlp([2, 4, 1]), bs.likelihoods.gaussian(0.1), rank=3)
    with pytest.raises(ValueError, match="of another learner: its"):
        bs.checkpoint.load(tmp_path / "fleet.safetensors", other)
    with pytest.raises(ValueError, match="pooled must be as it was when the fleet began"):
        bs.fleet(LEARNER, fleet.state, pooled=True)
    for state in (START, fleet.state):
        with pytest.raises(ValueError, match="state must come from this learner's init"):
            bs.fleet(other, state)
    with pytest.raises(ValueError, match="state must come from this learner's init"):
        bs.run(LEARNER, fleet.state, (np.ones((1, 2)), np.ones((1, 1))))


def test_what_cannot_be_is_refused_in_a_sentence_and_nothing_is_learnt():
    fleet, x, y = bs.fleet(LEARNER, START), np.ones((2, 2)), np.ones((2, 1))
    with pytest.raises(ValueError, match="keys must be one a row, got 1 of them and 2 rows"):
        fleet.run(["a"], (x, y))
    with pytest.raises(ValueError, match="example 1 of the stream: its key must be a string or"):
        fleet.run(["a", float("nan")], (x, y))
    with pytest.raises(ValueError, match="example 0 of the stream: delay must be 0 in a fleet"):
        fleet.run(["a", "b"], bs.Stream(bs.Example(x, y, delay=np.array([1, 0]))))
    with pytest.raises(TypeError, match=r"stream must be a .*Stream or a pair of arrays"):
        fleet.run(["a", "b"], iter([(x[0], y[0])]))
    with pytest.raises(ValueError, match="on_bad must be one of raise, skip"):
        fleet.run(["a", "b"], (x, y), on_bad="ignore")
    with pytest.raises(ValueError, match="threads must be a whole number, 1 or above, got 0"):
        bs.fleet(LEARNER, START, threads=0)
    assert len(fleet) == 0
    x[1, 0] = np.nan
    records = fleet.run(["a", "b", None], (np.vstack([x, x[:1]]), np.ones((3, 1))), on_bad="skip")
    assert [each.position for each in records.skipped] == [1, 2]
    assert fleet.keys == ("a",)


def test_of_no_rows_there_are_records_of_the_right_shape():
    records = bs.fleet(LEARNER, START).run([], (np.zeros((0, 2)), np.zeros((0, 1))))
    assert records["prediction"].shape == (0, 1)
    assert records.keys == ()


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("fleet") / "table.csv"
    rng = np.random.default_rng(0)
    lines = ["sensor,a,b,y"]
    for row in range(320):
        a, b = rng.normal(size=2)
        number = int(rng.integers(0, 3 if row < 200 else 8))
        sensor = "" if row == 60 else f"s{number}"
        y = "" if row % 50 == 49 else f"{(number - 3) * a + b:.3f}"
        lines.append(f"{sensor},{a:.3f},{b:.3f},{y}")
    path.write_text("\n".join(lines) + "\n")
    return path


def run(table, folder, *more, code=0):
    return call(
        "run", "--data", table, "--target", "y", "--head", 40, "--method", "vdekf", "--hidden", 2,
        "--block", 20, "--every", 50, "--out", folder / "out", "--checkpoint", folder / "saved",
        *more, code=code,
    )  # fmt: skip


def test_with_a_key_every_forecast_has_it_and_a_run_in_parts_is_one_run(table, tmp_path):
    said = run(table, tmp_path / "whole", "--key", "sensor")
    assert "sensor  left out  the key: a learner each" in said
    assert "8 keys (sensor), a learner each; best s" in said
    assert "Worst by rmse" in said
    assert "column sensor: the key is missing" in said
    rows = list(csv.DictReader((tmp_path / "whole" / "out" / "forecasts.csv").open()))
    assert len(rows) == 319
    assert {row["key"] for row in rows} == {f"s{n}" for n in range(8)}
    for limit in (130, 251):
        run(table, tmp_path / "part", "--key", "sensor", "--limit", limit)
    again = run(table, tmp_path / "part", "--key", "sensor")
    assert "continues at row 252, from" in again
    assert (
        again[again.index("8 keys") : again.index("wrote")]
        == said[said.index("8 keys") : said.index("wrote")]
    )
    for name in ("forecasts.csv", "forecasts.json", "skipped.csv"):
        one, other = (tmp_path / part / "out" / name for part in ("whole", "part"))
        assert one.read_bytes() == other.read_bytes(), name
    one, other = (read(tmp_path / part / "saved") for part in ("whole", "part"))
    assert one.header == other.header
    assert one.header["fleet"]["keys"][0] in ("s0", "s1", "s2")
    assert_equal(one.arrays, other.arrays)
    refused = run(table, tmp_path / "part", code=1)
    assert "--key must be sensor, as in" in refused
    assert "got left out" in refused
    refused = run(table, tmp_path / "part", "--key", "sensor", "--set", "drift=1e-3", code=1)
    assert "--set must be left out, as in" in refused
    refused = run(table, tmp_path / "part", "--key", "sensor", "--pooled", code=1)
    assert "--pooled must be False, as in" in refused


@pytest.mark.parametrize("pooled", [pytest.param((), marks=pytest.mark.slow), ("--pooled",)])
def test_predict_forecasts_each_row_by_the_learner_of_its_key(table, tmp_path, pooled):
    lines = table.read_text().splitlines()
    once, saved = tmp_path / "once", tmp_path / "once" / "saved"
    run(table, once, "--key", "sensor", *pooled, "--limit", 200)
    new = tmp_path / "new.csv"
    new.write_text("\n".join([lines[0], "s0,1,2,3", "s2,1,2,3", "new,1,2,3", ",1,2,3"]) + "\n")
    said = call("predict", "--checkpoint", saved, "--data", new, "--out", tmp_path / "out")
    assert "column sensor: the key is missing" in said
    found = list(csv.DictReader((tmp_path / "out" / "forecasts.csv").open()))
    assert [row["key"] for row in found] == ["s0", "s2", "new"]
    assert len({row["forecast"] for row in found}) == 3
    assert "which has a learner of its own" in (tmp_path / "out" / "forecasts.json").read_text()
    for line, forecast in zip(["s0,1,2,3", "new,1,2,3"], found[::2], strict=True):
        # The very one that the run makes, if such a row comes next.
        folder = tmp_path / line[:2]
        shutil.copytree(once, folder)
        longer = folder / table.name
        longer.write_text("\n".join([*lines[:201], line]) + "\n")
        run(longer, folder, "--key", "sensor", *pooled)
        *_, last = csv.DictReader((folder / "out" / "forecasts.csv").open())
        columns = last.keys() - {"place"}
        assert {name: last[name] for name in columns} == {name: forecast[name] for name in columns}
    new.write_text("a,b,y\n1,2,3\n")
    refused = call("predict", "--checkpoint", saved, "--data", new, code=1)
    assert "sensor is not there" in refused


def test_a_key_that_cannot_be_is_refused(table, tmp_path):
    said = run(table, tmp_path, "--key", "sensr", code=1)
    assert "--key must be one of sensor, a, b, y" in said
    assert "Did you mean 'sensor'?" in said
    assert "--key must be neither the target" in run(table, tmp_path, "--key", "y", code=1)
    assert "--pooled must come with --key" in run(table, tmp_path, "--pooled", code=1)
    said = call("run", "--data", "mnist", "--key", "sensor", code=1)
    assert "--key must name a column of a table" in said
