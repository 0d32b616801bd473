"""`bayestream run` on tables whose categories and classes keep coming: the network grows."""

import csv
import json
from functools import partial

import jax
import numpy as np
import pytest
from typer.testing import CliRunner

import bayestream as bs
from bayestream.cli import learners, sources
from bayestream.cli.growing import Growing
from bayestream.cli.main import application
from bayestream.cli.writers import record
from bayestream.running.run import learn
from bayestream.streams import files
from bayestream.streams.columns import MOST

COUNT = 120
OPTIONS = ("--head", 20, "--method", "vdekf", "--hidden", 2, "--block", 16)


def call(*arguments):
    result = CliRunner().invoke(application(), [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.output


def rows_with_new_names(count=COUNT):
    """A new city every third row, a new kind every tenth, all of which come again."""
    rng = np.random.default_rng(0)
    for row in range(count):
        city, kind = row // 3 if row % 3 == 0 else rng.integers(1 + row // 3), row // 10
        kind = kind if row % 10 == 0 else rng.integers(1 + kind)
        yield {"size": round(rng.normal(), 3), "city": f"city {city}", "kind": f"kind {kind}"}


def written(path, rows):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, ["size", "city", "kind"])
        writer.writeheader()
        writer.writerows(rows)
    return path


def forecasts(folder):
    return list(csv.DictReader((folder / "forecasts.csv").open()))


def test_every_category_and_class_that_keeps_coming_has_a_number_of_its_own():
    rows = list(rows_with_new_names())
    found = bs.streams.table(rows, target="kind", head=20, grow=True)
    assert len(found.rows) == COUNT
    assert found.classes == tuple(dict.fromkeys(row["kind"] for row in rows))
    x = found.stream.examples.x[:, 1:]
    assert (x.sum(axis=1) == 1).all()
    owners = {}
    for row, place in zip(rows, x.argmax(axis=1), strict=True):
        owners.setdefault(int(place), set()).add(row["city"])
    assert len(owners) == len({row["city"] for row in rows}) == 40
    assert all(len(cities) == 1 for cities in owners.values())
    assert not any("room" in line and "column" in line for line in found.said)


def test_rooms_double_at_rows_that_need_it_and_new_inputs_come_last():
    rows = list(rows_with_new_names())
    encoder, items, _ = bs.streams.prepared(rows, target="kind", head=20, grow=True)
    begin, sizes = (encoder.inputs, encoder.outputs), []
    for row in items:
        if row.growth is not None:
            sizes.append(row.growth[:2])
        assert row.x.size == (sizes or [begin])[-1][0]
    assert begin == (1 + 7 + 3 + 1, 4)
    assert sizes == [(23, 4), (23, 8), (45, 8), (45, 16)]


def test_beyond_a_thousand_names_share_and_are_told():
    rows = [{"name": f"n{row % (MOST + 5)}", "y": 1.5} for row in range(2 * MOST)]
    options = {"target": "y", "categorical": ["name"], "head": 300, "grow": True}
    found = bs.streams.table(rows, **options)
    assert len(np.unique(found.stream.examples.x.argmax(axis=1))) == MOST + 1
    assert found.said[-1].startswith("column name: 5 more categories than there was room for")
    assert found.said[-1].endswith(f"(--slots {MOST + 6} for all)")
    fixed = bs.streams.table(rows, **options, slots=5)  # as the user says
    assert fixed.stream.examples.x.shape[1] == 5


def test_a_run_leaves_out_no_row_and_says_when_it_grows(tmp_path):
    rows = list(rows_with_new_names(60))
    table = written(tmp_path / "t.csv", rows)
    said = call("run", "--data", table, "--target", "kind", "--out", tmp_path, *OPTIONS)
    assert "row 31: city has 11 names; the network grew to 23 inputs" in said
    assert "row 41: kind has 5 classes; the network grew to 8 outputs" in said
    assert "the network grew from 12 inputs to 23 and from 4 outputs to 8: city has 20" in said
    assert "60/60" in said
    found = forecasts(tmp_path)
    assert [row["target"] for row in found] == [row["kind"] for row in rows]
    assert not (tmp_path / "skipped.csv").exists()
    for row in found:
        shares = [float(value) for name, value in row.items() if name.startswith("p_")]
        assert sum(shares) == pytest.approx(1, abs=1e-4)
    assert float(found[40]["p_later"]) == 0  # kind 4 comes, and was never seen
    assert float(found[41]["p_later"]) > 0
    meaning = json.loads((tmp_path / "forecasts.json").read_text())["columns"]["p_later"]
    assert meaning.startswith("probability of all classes that came later, together: 'kind 4', ")
    assert {row["forecast"] for row in found} > {"kind 0", "kind 1"}


@pytest.mark.slow
def test_a_forecast_does_not_depend_on_its_own_label_where_the_network_grows(tmp_path):
    rng = np.random.default_rng(0)
    # Room for seven cities and four kinds, all of which is taken before row 41.
    rows = [
        {"size": rng.normal(), "city": f"city {n % (4 if n < 20 else 7)}", "kind": f"kind {k}"}
        for n, k in enumerate(rng.integers([2] * 20 + [4] * 30))
    ]
    rows[40]["city"] = "a new one"
    found = []
    for kind, grew in (("a new one", "kind has 5 classes, city has 8 names"), ("kind 0", "city")):
        rows[40]["kind"] = kind
        table = written(tmp_path / "t.csv", rows)
        said = call("run", "--data", table, "--target", "kind", "--out", tmp_path, *OPTIONS)
        assert f"row 41: {grew}" in said
        found.append([list(row.values())[2:] for row in forecasts(tmp_path)])
    one, other = found
    assert one[:41] == other[:41]
    assert one[41:] != other[41:]


def source_of(path):
    return sources.opened(
        str(path), target="kind", reading=sources.AS_IT_IS._replace(head=20), grow=True
    )


@pytest.mark.parametrize("method", ["vdekf", pytest.param("self_tuning", marks=pytest.mark.slow)])
def test_growing_for_a_name_that_never_comes_again_is_never_having_grown(tmp_path, method):
    """The new city's own row has no label: it makes the network grow, and teaches nothing."""
    rows = [{**row, "kind": f"kind {n % 3}"} for n, row in enumerate(rows_with_new_names(60))]
    rows[30:] = [{**row, "city": f"city {n % 7}"} for n, row in enumerate(rows[30:])]
    values, sizes = [], []
    for new in (["NA"] * 8, [f"new {n}" for n in range(8)]):
        for place, city in zip(range(30, 46, 2), new, strict=True):
            rows[place] = {**rows[place], "city": city, "kind": "NA"}
        source = source_of(written(tmp_path / "t.csv", rows))
        began = learners.layers(source, "3")
        chosen = learners.settings(method, rank=3 if method == "self_tuning" else None)
        make = partial(learners.learner, source, chosen=chosen, began=began)
        belief, parts = Growing(make, began, seed=0), []
        belief.begin()
        for count, row in enumerate(source.rows):
            if row.growth is not None:
                # And outputs that no class ever takes.
                belief.grow(inputs=row.growth.inputs, outputs=2 * began[-1])
            stream = bs.streams.tables.stacked([row], source.task, belief.sizes[0])
            belief.state, records = learn(
                belief.learner, belief.state, stream, record=record, first=count,
                key=jax.random.key(0), progress=False,
            )  # fmt: skip
            if row.target is not None:
                parts.append(np.asarray(records["probabilities"])[0, : began[-1]])
        values.append(np.array(parts))
        sizes.append(belief.sizes)
    assert sizes[1][0] > sizes[0][0]
    assert sizes[1][-1] > sizes[0][-1]
    np.testing.assert_allclose(values[1], values[0], rtol=0, atol=1e-10)


def test_methods_that_cannot_grow_are_those_that_grow_refuses():
    def refuses(method):
        small, large = (
            bs.make(method, bs.models.mlp([n, 3, 1], fan_in=1), bs.likelihoods.gaussian(0.1))
            for n in (1, 2)
        )
        try:
            bs.grow(small, small.init(jax.random.key(0)), large, jax.random.key(1))
        except ValueError as error:
            return "one that can grow" in str(error)
        return False

    fixed = {method for method in bs.estimators.REGISTRY if not learners.grows(method)}
    assert fixed == {"hilofi", "slang"}
    assert all(map(refuses, fixed))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["hilofi", "slang"])
def test_a_method_that_cannot_grow_shares_inputs_and_says_so(tmp_path, method):
    table = written(tmp_path / "t.csv", rows_with_new_names())
    said = call("run", "--data", table, "--target", "kind", "--out", tmp_path,
                "--head", 20, "--method", method, "--hidden", 3)  # fmt: skip
    assert f"a network of {method} cannot grow" in said
    assert " more categories than there was room for" in said
    assert "these rows were left out" in said
    assert "network grew" not in said


@pytest.mark.slow
@pytest.mark.parametrize("method", [m for m in bs.estimators.REGISTRY if learners.grows(m)])
def test_every_other_method_grows(tmp_path, method):
    rows = [{**row, "kind": n % 7 + row["size"]} for n, row in enumerate(rows_with_new_names(60))]
    table = written(tmp_path / "t.csv", rows)
    said = call("run", "--data", table, "--target", "kind", "--task", "regression",
                "--out", tmp_path, "--head", 20, "--method", method, "--hidden", 3,
                "--noise", 0.1)  # fmt: skip
    assert "the network grew from 12 inputs to 23: city has 20 names" in said
    assert len(forecasts(tmp_path)) == 60


@pytest.mark.slow
def test_cities_that_come_late_are_learnt_as_if_they_had_been_there(tmp_path):
    """Fifty of them with levels of deviation 30 and noise of 5: an input of each its own."""
    rng = np.random.default_rng(0)
    level, table = 30 * rng.normal(size=60), tmp_path / "t.csv"
    with table.open("w") as file:
        file.write("size,city,price\n")
        for row in range(2000):
            city = rng.integers(8 if row < 300 else min(60, 8 + (row - 300) // 15))
            size = rng.normal(3, 2)
            price = 10 * size + level[city] + 5 * rng.normal()
            file.write(f"{size:.3f},city {city},{price:.3f}\n")
    late = []
    for more in ((), ("--slots", 13)):  # what there was room for when networks did not grow
        call("run", "--data", table, "--target", "price", "--out", tmp_path, "--hidden", 20, *more)
        errors = [
            float(row["forecast"]) - float(row["target"]) for row in forecasts(tmp_path)[-500:]
        ]
        late.append(np.sqrt(np.mean(np.square(errors))))
    grown, shared = late
    assert grown < 8
    assert shared > 20


def test_a_last_line_without_an_end_is_counted(tmp_path):
    for name, text in (
        ("a.csv", "a,y\n1,2\n3,4"),
        ("b.csv", "a,y\n1,2\n3,4\n"),
        ("c.jsonl", "1\n2"),
    ):
        path = tmp_path / name
        path.write_text(text)
        assert files.count(path) == 2
    path.write_text("")
    assert files.count(path) == 0
