"""`bayestream run --checkpoint` and `bayestream predict`, as a user would call them."""

import csv
import shutil

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
    rng = np.random.default_rng(0)
    size, colour = rng.normal(3, 2, COUNT), rng.choice(["red", "blue"], COUNT)
    kind = np.where(size + rng.normal(size=COUNT) > 3, "up", "down")
    rows = [f"{a:.3f},{c},{b}" for a, c, b in zip(size, colour, kind, strict=True)]
    rows[50] = "1.0,red"
    rows[60] = "2.0,blue,"
    path.write_text("\n".join(["size,colour,kind", *rows]) + "\n")


def call(*arguments, code=0, **options):
    result = RUNNER.invoke(application(), [str(argument) for argument in arguments], **options)
    assert result.exit_code == code, result.output
    return result.output


def run(table, folder, *more, code=0, **options):
    given = ("run", "--data", table, "--target", "kind", "--task", "classification", "--classes", 2,
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
    for name in ("forecasts.csv", "skipped.csv", "scores.png"):
        assert (one / "out" / name).read_bytes() == (other / "out" / name).read_bytes(), name


def test_a_run_in_parts_is_one_run(made, folder):
    run(folder / "table.csv", folder / "part", "--limit", 247)
    said = run(folder / "table.csv", folder / "part")
    assert "continues at row 248, from" in said
    assert summary(said) == summary(made[1])
    assert_same_files(folder / "whole", folder / "part")


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


@pytest.mark.parametrize(
    ("change", "more", "message"),
    [
        ("", ["--seed", 1], "--seed must be 0, as in"),
        ("", ["--hidden", 3], "--hidden must be 2, as in"),
        ("", ["--method", "lofi"], "--method must be vdekf, as in"),
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
    assert found[0] == expected[0]
    assert found[200] == expected[200]  # the row that comes next after the run
    assert found[201:] != expected[201:]
    assert contents(folder / "part") == before

    unlabelled = folder / "unlabelled.csv"
    rows = [line.rsplit(",", 1)[0] for line in table.read_text().splitlines()]
    del rows[51]  # the broken one
    unlabelled.write_text("\n".join(rows) + "\n")
    assert "Forecast, not learnt" not in call(*given, "--data", unlabelled)
    other = list(csv.reader((out / "forecasts.csv").open()))
    assert [row[2:] for row in other] == [row[2:] for row in found]
    assert {row[1] for row in other[1:]} == {""}


@pytest.mark.parametrize(
    ("header", "message"),
    [("size,kind", "colour is not there"), ("size,colour,age", "age is not one of them; --ignore")],
)
def test_predict_refuses_other_columns(made, tmp_path, header, message):
    new = tmp_path / "new.csv"
    new.write_text(f"{header}\n{','.join('1' for _ in header.split(','))}\n")
    given = ("--checkpoint", made[0] / "part" / "saved", "--data", new, "--out", tmp_path / "new")
    assert message in " ".join(call("predict", *given, code=1).split())


def test_predict_says_what_it_needs(tmp_path):
    said = call("predict", "--checkpoint", tmp_path, "--data", "x.csv", code=1)
    assert "must hold checkpoints" in " ".join(said.split())
