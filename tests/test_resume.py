"""`bayestream run --checkpoint` and `bayestream predict`, as a user would call them."""

import csv
import json
import shutil
import subprocess
import sys

import jax
import numpy as np
import pytest
from typer.testing import CliRunner

import bayestream as bs
from bayestream.cli.interrupts import INTERRUPTS
from bayestream.cli.main import application
from bayestream.running.folder import files, read

RUNNER = CliRunner()
COUNT = 320


def write_table(path):
    """As spreadsheets of the Continent write them; colours and classes keep coming."""
    rng = np.random.default_rng(0)
    size, age = rng.normal(3, 2, COUNT), rng.integers(20, 60, COUNT)
    colour = rng.choice(["red", "blue"], COUNT).tolist()
    colour[60::20] = [f"late{number}" for number in range(len(colour[60::20]))]
    sold = np.datetime64("2024-01-20") + np.arange(COUNT)
    kind = np.where(size + rng.normal(size=COUNT) > 3, "up", "down").tolist()
    kind[100::30] = ["so so"] * len(kind[100::30])
    kind[115::50] = [f"kind {number}" for number in range(len(kind[115::50]))]
    cells = zip(size, colour, sold.astype(object), age, kind, strict=True)
    rows = [f"{a:.3f};{b};{c:%d.%m.%Y};{d};{e}".replace(".", ",", 1) for a, b, c, d, e in cells]
    rows[50] = "1,0;red"
    rows[60] = "2,0;blue;;;NA"
    rows[70] = "error;;21.03.2024;?;up"
    path.write_text("\n".join(["size;colour;sold;age;kind", *rows]) + "\n")


def call(*arguments, code=0, **options):
    result = RUNNER.invoke(application(), [str(argument) for argument in arguments], **options)
    assert result.exit_code == code, result.output
    return result.output


def run(table, folder, *more, code=0, **options):
    given = ("run", "--data", table, "--target", "kind", "--head", 40,
             "--method", "vdekf", "--hidden", 2, "--block", 20, "--every", 50,
             "--out", folder / "out", "--checkpoint", folder / "saved")  # fmt: skip
    return call(*given, *more, code=code, **options)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A table, a whole run on it, and one on its first 200 rows; and what the whole one said."""
    folder = tmp_path_factory.mktemp("made")
    write_table(folder / "table.csv")
    said = run(folder / "table.csv", folder / "whole")
    run(folder / "table.csv", folder / "part", "--limit", 200)
    return folder, said


@pytest.fixture
def folder(made, tmp_path):
    """A copy of it."""
    return shutil.copytree(made[0], tmp_path / "copy")


def summary(said):
    return said[said.index("Each row forecast") : said.index("wrote")]


def assert_same_files(one, other):
    for name in ("forecasts.csv", "forecasts.json", "skipped.csv", "scores.png"):
        assert (one / "out" / name).read_bytes() == (other / "out" / name).read_bytes(), name


def test_a_run_in_parts_is_one_run(made, folder):
    run(folder / "table.csv", folder / "part", "--limit", 247)
    said = run(folder / "table.csv", folder / "part")
    assert "continues at row 248, from" in said
    assert summary(said) == summary(made[1])
    grown = [line for line in made[1].splitlines() if "network grew to" in line]
    assert grown == [
        "row 120: colour has 5 names; the network grew to 19 inputs",
        "row 165: kind has 5 classes; the network grew to 8 outputs",
        "row 220: colour has 10 names; the network grew to 29 inputs",  # after a checkpoint
    ]
    assert "grew from 14 inputs to 29 and from 4 outputs to 8: colour has 14 names, kind" in said
    assert "column size: 1 cell counts as missing; 'error' is not a number" in said
    assert_same_files(folder / "whole", folder / "part")
    one, other = (read(folder / name / "saved") for name in ("whole", "part"))
    assert one.header == other.header
    for name, array in one.arrays.items():
        np.testing.assert_array_equal(array, other.arrays[name], strict=True)


@pytest.mark.slow
def test_a_run_that_is_complete_can_be_repeated(made, folder):
    assert summary(run(folder / "table.csv", folder / "whole")) == summary(made[1])
    assert_same_files(folder / "whole", made[0] / "whole")


@pytest.mark.slow
def test_an_older_checkpoint_serves_where_the_newest_is_damaged(made, folder):
    newest = files(folder / "whole" / "saved")[0]
    newest.write_bytes(newest.read_bytes()[:-1])
    said = run(folder / "table.csv", folder / "whole")
    assert f"{newest} is cut off" in said.replace("\n", "")
    assert "continues at row 302" in said
    assert_same_files(folder / "whole", made[0] / "whole")


@pytest.mark.slow
def test_an_interrupt_leaves_a_checkpoint_of_whole_blocks(folder, monkeypatch):
    rows = 0
    until = INTERRUPTS.until

    def interrupted(items):
        nonlocal rows
        for item in until(items):
            if rows == 147:  # in the midst of a block
                monkeypatch.setattr(INTERRUPTS, "requested", True)
                return
            rows += 1
            yield item

    monkeypatch.setattr(INTERRUPTS, "until", interrupted)
    monkeypatch.setattr(INTERRUPTS, "requested", False)
    said = run(folder / "table.csv", folder / "new")
    assert "interrupted after 146 rows" in said
    assert read(folder / "new" / "saved").header["step"] == 141
    monkeypatch.undo()
    assert "continues at row 142" in run(folder / "table.csv", folder / "new")
    assert_same_files(folder / "whole", folder / "new")


@pytest.mark.slow
def test_standard_input_is_read_from_its_beginning(folder):
    text = (folder / "table.csv").read_text()
    lines = text.splitlines(keepends=True)
    run("-", folder / "one", input=text)
    run("-", folder / "new", input="".join(lines[:200]))
    assert "continues at row 200" in run("-", folder / "new", input=text)
    assert_same_files(folder / "one", folder / "new")
    later = "".join([lines[0], *lines[200:]])
    said = run("-", folder / "new", input=later, code=1)
    assert "--data must begin with the 320 rows" in said


@pytest.mark.slow
def test_a_table_that_has_grown_is_read_as_it_was(folder):
    table, lines = folder / "grown.csv", (folder / "table.csv").read_text().splitlines(True)
    table.write_text("".join(lines[:31]))
    first = run(table, folder / "new")
    assert "columns, as all 30 rows have them" in first
    later = [line.replace(",", ".", 1).replace("red", "green") for line in lines[31:200]]
    table.write_text("".join([*lines[:31], *later]))
    said = run(table, folder / "new")
    assert "columns, as all 30 rows have them" in said
    assert "continues at row 31" in said
    # There was room for what the 30 rows had: not for other classes, nor for green and the late.
    assert "colour has 9 names, kind has 5 classes" in said


@pytest.mark.slow
def test_a_kill_before_the_head_is_read_leaves_nothing(folder):
    text = (folder / "table.csv").read_text()
    run("-", folder / "one", input=text)
    given = [
        "run",
        "--data",
        "-",
        "--target",
        "kind",
        "--head",
        "40",
        "--out",
        folder / "new" / "out",
    ]
    given += ["--checkpoint", folder / "new" / "saved"]
    program = "from bayestream.cli.main import application; application('run')()"
    with subprocess.Popen(
        [sys.executable, "-c", program, *given],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as killed:
        killed.stdin.writelines(text.splitlines(True)[:20])
        killed.stdin.flush()
        assert "waiting for 40 rows" in killed.stderr.readline()
        killed.kill()
    assert not (folder / "new").exists()
    run("-", folder / "new", input=text)
    assert_same_files(folder / "one", folder / "new")


@pytest.mark.parametrize(
    ("change", "more", "message"),
    [
        ("", ["--seed", 1], "--seed must be 0, as in"),
        ("", ["--hidden", 3], "--hidden must be 2, as in"),
        ("", ["--method", "lofi"], "--method must be vdekf, as in"),
        ("", ["--level", 0.5], "--level must be 0.9, as in"),
        ("", ["--decimal", "."], "--decimal must be left out, as in"),
        ("", ["--ignore", "age"], "--ignore must be left out, as in"),
        ("data", [], "--data must begin with the 320 rows"),
        ("forecasts", [], "forecasts.csv must be as the run that is to be continued has left it"),
        ("foreign", [], "must be a checkpoint of `bayestream run`, and is not"),
    ],
)
def test_what_does_not_agree_is_refused_before_anything_is_written(folder, change, more, message):
    table, own = folder / "table.csv", folder / "whole"
    if change == "data":
        table.write_text(table.read_text().replace("blue", "green", 1))
    if change == "forecasts":
        (own / "out" / "forecasts.csv").write_text("mine\n")
    if change == "foreign":
        learner = bs.vdekf(bs.models.mlp([1, 1]), bs.likelihoods.gaussian(1.0))
        state = learner.init(jax.random.key(0))
        bs.checkpoint.save_step(own / "saved", learner, state, step=999)
    before = contents(own)
    assert message in " ".join(run(table, own, *more, code=1).split())
    assert contents(own) == before


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*.*") if path.is_file()}


def test_predict_forecasts_as_run_would_and_learns_nothing(folder):
    table, out = folder / "table.csv", folder / "new"
    before = contents(folder / "part")
    given = ("predict", "--checkpoint", folder / "part" / "saved", "--out", out)
    said = call(*given, "--data", table)
    assert "Forecast, not learnt from" in said
    assert "wrote 319 forecasts" in said
    expected, found = (
        list(csv.reader((each / "forecasts.csv").open())) for each in (folder / "whole/out", out)
    )
    assert expected[0][4:] == ["p_up", "p_down", "p_new1", "p_new2", "p_later"]
    names = ["up", "down", "so so", "kind 0", "kind 1"]  # by now they have come
    new = ["new1", "new2", "new3"]
    assert found[0][4:] == [f"p_{name}" for name in [*names, *new, "later"]]
    about = json.loads((out / "forecasts.json").read_text())
    assert list(about["columns"]) == found[0]
    assert about["target"] == "kind"
    assert found[200][:8] == expected[200][:8]  # the row that comes next after the run
    assert found[201][:8] != expected[201][:8]
    assert contents(folder / "part") == before

    unlabelled = folder / "unlabelled.csv"
    rows = [line.rsplit(";", 1)[0] for line in table.read_text().splitlines()]
    del rows[51]  # the broken one
    unlabelled.write_text("\n".join(rows) + "\n")
    assert "Forecast, not learnt" not in call(*given, "--data", unlabelled)
    other = list(csv.reader((out / "forecasts.csv").open()))
    assert [row[2:] for row in other] == [row[2:] for row in found]
    assert {row[1] for row in other[1:]} == {""}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rows", "growth"),
    [(220, "colour has 10 names"), (120, "colour has 5 names"), (165, "kind has 5 classes")],
)
def test_predict_forecasts_a_row_that_run_would_grow_for(made, folder, rows, growth):
    run(folder / "table.csv", folder / "new", "--limit", rows)
    assert f"row {rows}: {growth}; the network grew" in made[1]  # the one that comes next
    out = folder / "predicted"
    call("predict", "--checkpoint", folder / "new" / "saved", "--out", out,
         "--data", folder / "table.csv")  # fmt: skip
    expected, found = (
        list(csv.reader((each / "forecasts.csv").open()))[rows]
        for each in (folder / "whole/out", out)
    )
    assert found[:8] == expected[:8]


def test_predict_reads_what_is_written_in_another_way(folder):
    table, other = folder / "table.csv", folder / "other.csv"
    other.write_text(table.read_text().replace(",", ".").replace(";", "|"), "utf-16")
    found = []
    for data, said in ((table, "separator semicolon, decimal comma"), (other, "separator bar")):
        out = folder / data.stem
        given = ("predict", "--checkpoint", folder / "part" / "saved", "--data", data, "--out", out)
        assert said in call(*given)
        found.append([row[1:] for row in csv.reader((out / "forecasts.csv").open())])
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("size,age,sold,kind", "colour is not there"),
        ("size,age,sold,colour,shape", "shape is not one of them; --ignore"),
    ],
)
def test_predict_refuses_other_columns(made, tmp_path, header, message):
    new = tmp_path / "new.csv"
    new.write_text(f"{header}\n{','.join('1' for _ in header.split(','))}\n")
    given = ("--checkpoint", made[0] / "part" / "saved", "--data", new, "--out", tmp_path / "new")
    assert message in " ".join(call("predict", *given, code=1).split())


def test_predict_says_what_it_needs(tmp_path):
    said = call("predict", "--checkpoint", tmp_path, "--data", "x.csv", code=1)
    assert "must hold checkpoints" in " ".join(said.split())
