"""`bayestream compare`, and the JSON of what learns from tables."""

import csv
import json

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from bayestream.cli import compare
from bayestream.cli.interrupts import INTERRUPTS
from bayestream.cli.main import application

ROWS = 120


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Numbers worth learning; one target is absurd, one row is broken."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, 2))
    y = (x @ [2, -1] + 0.1 * rng.normal(size=ROWS)).round(3)
    lines = [f"{a:.3f},{b:.3f},{c}" for (a, b), c in zip(x, y, strict=True)]
    lines[70] = "0.1,0.2,1e30"
    lines[80] = "0.1"
    path = tmp_path_factory.mktemp("table") / "t.csv"
    path.write_text("\n".join(["a,b,y", *lines]) + "\n")
    return path


def reported(command, table, out, *more, code=0):
    given = [command, "--data", table, "--out", out, "--json", *more]
    result = CliRunner().invoke(application(), [*map(str, given)])
    assert result.exit_code == code, result.stderr
    assert result.stdout.count("\n") == 1
    return json.loads(result.stdout), " ".join(result.stderr.split())


OPTIONS = ("--hidden", "2", "--target", "y")


@pytest.fixture(scope="module")
def run(table, tmp_path_factory):
    """Of one method, with a checkpoint."""
    folder = tmp_path_factory.mktemp("run")
    more = ("--method", "vdekf", "--checkpoint", folder / "saved", *OPTIONS)
    return folder, *reported("run", table, folder / "out", *more)


def test_one_absurd_target_hides_the_rmse_and_not_the_median_error(run):
    _, found, said = run
    assert found["counts"] == {"rows": ROWS - 1, "labels": ROWS - 1, "skipped": 1, "refused": 0}
    own = found["summary"]["scores"]["vdekf"]
    assert own["rmse"] > 1e28
    rows = csv.DictReader((run[0] / "out" / "forecasts.csv").open())
    pairs = [(float(row["target"]), float(row["forecast"])) for row in rows if row["forecast"]]
    errors = np.abs(np.subtract(*np.transpose(pairs)))
    assert own["median_error"] == pytest.approx(np.median(errors), rel=1e-4)
    assert own["median_error"] < 5
    assert f"vdekf │ median error │ {own['median_error']:.4g} │" in said
    assert 0.5 < own["coverage"] <= 1
    assert all((run[0] / "out" / file).exists() for file in found["files"])


def test_predict_reports_what_it_forecast(run, table):
    folder, *_ = run
    found, _ = reported("predict", table, folder / "p", "--checkpoint", folder / "saved")
    assert found["counts"]["rows"] == ROWS - 1
    assert found["summary"]["method"] == "vdekf"
    assert found["summary"]["scores"]["vdekf"]["median_error"] < 5


def test_compare_scores_each_method_as_run_does(run, table, tmp_path):
    found, said = reported("compare", table, tmp_path, "--methods", "ogd,vdekf", *OPTIONS)
    scores = found["summary"]["scores"]
    densities = [scores[name]["nlpd"] for name in scores if name != "running mean"]
    assert sorted(densities) == densities
    assert set(scores) == {"vdekf", "ogd", "running mean"}
    for metric, value in run[1]["summary"]["scores"]["vdekf"].items():
        assert scores["vdekf"][metric] == pytest.approx(value, rel=1e-6), metric
    assert scores["running mean"] == run[1]["summary"]["scores"]["running mean"]
    assert scores["ogd"]["microseconds"] > 0
    assert "y target regression (guessed from numbers)" in said
    assert "1 row could not be read; the first: t.csv line 82" in said
    one, other = (folder / "forecasts.csv" for folder in (run[0] / "out", tmp_path / "vdekf"))
    assert one.read_text().splitlines()[0] == other.read_text().splitlines()[0]
    assert str(tmp_path / "compare.png") in found["files"]
    assert Image.open(tmp_path / "compare.png").width == 1040


def test_an_interrupt_leaves_the_methods_that_are_complete(table, tmp_path, monkeypatch):
    learn, calls = compare.learn, []

    def cut_short(*args, **options):
        calls.append(options)
        INTERRUPTS.requested = len(calls) > 2  # in the second method, before its rows
        return learn(*args, **options)

    monkeypatch.setattr(INTERRUPTS, "requested", False)
    monkeypatch.setattr(compare, "learn", cut_short)
    found, said = reported("compare", table, tmp_path, "--methods", "vdekf,ogd", *OPTIONS)
    assert found["interrupted"]
    assert "interrupted; 1 of 2 methods are complete" in said
    assert set(found["summary"]["scores"]) == {"vdekf", "running mean"}
    assert not (tmp_path / "ogd" / "forecasts.csv").exists()


@pytest.mark.parametrize(
    ("methods", "message"),
    [
        ("vdekf,lofy", "--methods must be one of bong, fcekf, .*'lofy'. Did you mean 'lofi'?"),
        (",", "--methods must be some of self_tuning, bong, "),
        ("orfit", "--methods: orfit: model must have one output"),
    ],
)
def test_methods_that_cannot_be_are_refused_in_a_sentence(methods, message, tmp_path):
    (tmp_path / "t.csv").write_text("a,y\n" + "1,no\n2,yes\n3,perhaps\n" * 5)
    given = ["compare", "--data", str(tmp_path / "t.csv"), "--methods", methods]
    result = CliRunner().invoke(application(), given)
    assert result.exit_code == 1
    assert message.split(".*")[0] in result.stderr
    assert message.split(".*")[-1] in result.stderr
