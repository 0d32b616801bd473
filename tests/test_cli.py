"""The command line, as a user would call it."""

import csv
import json
import re
import subprocess
import sys
import tomllib

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

import bayestream as bs
from bayestream.cli.main import application
from bayestream.cli.tune import objective_for

RUNNER = CliRunner()


@pytest.fixture
def my_csv(tmp_path):
    """A category, a missing value, a broken row, and a target worth learning."""
    rng = np.random.default_rng(0)
    size, colour = rng.normal(3, 2, 320), rng.choice(["red", "blue"], 320)
    y = 100 + 10 * size + np.where(colour == "red", 20.0, -20.0) + rng.normal(size=320)
    rows = [f"{a:.3f},{c},{b:.3f}" for a, c, b in zip(size, colour, y, strict=True)]
    rows[40] = f",red,{y[40]:.3f}"
    rows[50] = "1.0,red"
    rows[60] = "2.0,blue,"
    path = tmp_path / "my.csv"
    path.write_text("\n".join(["size,colour,y", *rows]) + "\n")
    return path


def call(*arguments, code=0):
    result = RUNNER.invoke(application(), [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return " ".join(result.output.split())


def reported(*arguments):
    """The one JSON object on standard output."""
    result = RUNNER.invoke(application(), [*map(str, arguments), "--json"])
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_run_learns_from_a_csv_and_reports_what_it_skipped(my_csv, tmp_path):
    out = tmp_path / "out"
    said = call("run", "--data", my_csv, "--target", "y", "--method", "lofi", "--hidden", 10,
                "--out", out)  # fmt: skip
    assert "skipped 1 row: my.csv line 52: has 2 fields where the header has 3" in said
    assert "(last 200)" in said
    assert (out / "scores.png").stat().st_size > 1000
    assert "my.csv line 52" in (out / "skipped.csv").read_text()
    rows = list(csv.DictReader((out / "forecasts.csv").open()))
    assert len(rows) == 319
    # Row 61 of the file has no label, but a forecast; row 41 has a missing input and both.
    by_place = {row["place"]: row for row in rows}
    assert by_place["my.csv line 62"]["target"] == ""
    assert float(by_place["my.csv line 62"]["deviation"]) > 0
    assert by_place["my.csv line 42"]["forecast"]
    late = rows[-100:]
    target, forecast, low, high = (
        np.array([float(row[name]) for row in late])
        for name in ("target", "forecast", "low", "high")
    )
    assert np.sqrt(np.mean((target - forecast) ** 2)) < 0.3 * target.std()
    assert 0.75 < np.mean((low <= target) & (target <= high)) <= 1
    deviation = np.array([float(row["deviation"]) for row in late])
    # The 95% quantile of a t with 8 degrees of freedom, in standard deviations.
    np.testing.assert_allclose(high - forecast, 1.85955 / np.sqrt(8 / 6) * deviation, rtol=1e-3)
    scored = [row for row in rows if row["target"] and row["forecast"]]
    assert len(scored) == 319 - 1 - 10
    values = {n: np.array([float(row[n]) for row in scored]) for n in ("target", "forecast")}
    spread = np.array([float(row["deviation"]) for row in scored])
    density = stats.t(8, values["forecast"], spread / np.sqrt(8 / 6)).logpdf(values["target"])
    nlpd = -np.mean(density)
    assert f"nlpd │ {nlpd:.4g}" in said


def test_run_without_a_method_tunes_itself_and_reports_a_change(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(900, 2))
    y = np.where(np.arange(900) < 600, x[:, 0], 3 - 2 * x[:, 0]) + 0.1 * rng.normal(size=900)
    table = tmp_path / "changed.csv"
    np.savetxt(table, np.column_stack([x, y]), delimiter=",", header="a,b,y", comments="")
    said = call("run", "--data", table, "--target", "y", "--hidden", 4, "--rank", 2,
                "--out", tmp_path / "out")  # fmt: skip
    assert "self_tuning, " in said
    (row,) = re.findall(r"row (\d+): something changed at about row", said)
    assert 600 < int(row) < 630
    assert "how fast the world moves" in said
    slowest_first = ["drift 0", "drift 0.0001 (linear)", "drift 0.001", "drift 0.1"]
    shares = re.findall(r"\d+% (drift [\d.]+(?: \(linear\))?)", " ".join(said.split()))
    assert shares == slowest_first
    assert (tmp_path / "out" / "scores.png").stat().st_size > 0


def test_run_names_classes(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=250)
    path = tmp_path / "two.jsonl"
    kinds = np.where(x > 0, "up", "down").tolist()
    rows = [f'{{"x": {a:.3f}, "kind": "{b}"}}' for a, b in zip(x, kinds, strict=True)]
    path.write_text("\n".join(rows))
    said = call("run", "--data", path, "--target", "kind", "--task", "classification",
                "--classes", 2, "--hidden", 5, "--out", tmp_path)  # fmt: skip
    assert "most frequent class" in said
    rows = list(csv.DictReader((tmp_path / "forecasts.csv").open()))
    assert {row["forecast"] for row in rows[2:]} <= {"up", "down", "a class not seen yet"}
    frequent = [max(("up", "down"), key=kinds[:n].count) for n in range(2, 250)]
    wrong = np.mean([a != b for a, b in zip(frequent, kinds[2:], strict=True)])
    printed = float(said.split("most frequent class │ misclassification │ ")[1].split()[0])
    assert printed == pytest.approx(wrong, abs=0.02)
    assert np.mean([row["forecast"] == row["target"] for row in rows[50:]]) > 0.9
    for row in rows:
        assert float(row["p_up"]) + float(row["p_down"]) == pytest.approx(1, abs=1e-4)


def test_a_forecast_does_not_depend_on_its_own_label_or_on_later_ones(my_csv, tmp_path):
    lines = my_csv.read_text().splitlines()
    changed = tmp_path / "changed.csv"
    later = [line.rsplit(",", 1)[0] + ",7.5" for line in lines[200:]]
    changed.write_text("\n".join([*lines[:200], *later]) + "\n")
    for path, out in ((my_csv, "one"), (changed, "other")):
        call("run", "--data", path, "--target", "y", "--hidden", 5, "--out", tmp_path / out)
    one, other = (
        [row[2:] for row in csv.reader((tmp_path / out / "forecasts.csv").open())]
        for out in ("one", "other")
    )
    same = 200  # the header, the 198 rows that could be read, and the first of the changed ones
    assert one[:same] == other[:same]
    assert one[same:] != other[same:]


def test_a_forecast_names_only_classes_seen_before(tmp_path):
    for name, label in (("one", "a"), ("other", "zzz")):
        path = tmp_path / f"{name}.csv"
        path.write_text(f"x,y\n1,{label}\n2,b\n3,b\n")
        call("run", "--data", path, "--target", "y", "--task", "classification", "--classes", 2,
             "--hidden", 3, "--out", tmp_path / name)  # fmt: skip
    one, other = (
        list(csv.reader((tmp_path / n / "forecasts.csv").open())) for n in ("one", "other")
    )
    assert one[1][2:] == other[1][2:]
    assert one[1][2] == "a class not seen yet"


def test_what_an_earlier_run_skipped_is_not_reported_again(my_csv, tmp_path):
    clean = tmp_path / "clean.csv"
    clean.write_text("size,y\n" + "".join(f"{n},{n}\n" for n in range(20)))
    for path, expected in ((my_csv, True), (clean, False)):
        call("run", "--data", path, "--target", "y", "--hidden", 3, "--out", tmp_path / "out")
        assert (tmp_path / "out" / "skipped.csv").exists() == expected


def test_the_command_line_counts_more_than_the_file(my_csv, tmp_path):
    config = tmp_path / "lofi.toml"
    config.write_text('method = "lofi"\nnoise = 0.1\n[options]\nrank = 2\n')
    arguments = ("run", "--data", my_csv, "--target", "y", "--config", config, "--hidden", 3,
                 "--out", tmp_path)  # fmt: skip
    assert "vdekf, " in call(*arguments, "--method", "vdekf")
    assert "noise must be a positive variance" in call(*arguments, "--noise", -1, code=1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "no.csv", "--target", "y"], "no.csv must be a file or a folder"),
        (["--data", "MY", "--target", "z"], "--target must be one of size, colour, y, got 'z'"),
        (["--data", "MY", "--ignore", "colou"], "--ignore must be one of size, colour, y"),
        (["--data", "MY", "--separator", "::"], "--separator must be one sign, such as ; or tab"),
        (["--data", "MY", "--level", "90"], "--level must be between 0 and 1, such as 0.9"),
        (["--data", "MY", "--target", "y", "--method", "lofy"], "Did you mean 'lofi'?"),
        (
            ["--data", "MY", "--target", "colour", "--task", "regression"],
            "is the task classification?",
        ),
        (["--data", "MY", "--target", "y", "--on-bad", "raise"], "my.csv line 52: has 2 fields"),
        (["--data", "MY", "--target", "y", "--on-bad", "sulk"], "--on-bad must be skip or raise"),
        (["--data", "MY", "--target", "y", "--set", "drift"], "--set must be name=value"),
        (["--data", "MY", "--target", "y", "--config", "no.toml"], "No such file"),
    ],
)
def test_mistakes_are_answered_in_one_sentence(my_csv, tmp_path, arguments, message):
    given = [my_csv if argument == "MY" else argument for argument in arguments]
    said = call("run", *given, "--hidden", 5, "--out", tmp_path, code=1)
    assert message in said
    assert "Traceback" not in said


def test_tune_writes_what_run_reads(my_csv, tmp_path):
    pytest.importorskip("optuna")
    out = tmp_path / "tune"
    arguments = ("tune", "--data", my_csv, "--target", "y", "--rank", 2, "--hidden", 5,
                 "--set", "decay=1.0", "--out", out, "--limit", 120)  # fmt: skip
    said = call(*arguments, "--trials", 1)
    assert "with the defaults" in said
    assert "y target regression (guessed from numbers)" in said
    assert "learner = bs.lofi(" in said
    resumed = reported(*arguments, "--trials", 2)
    assert resumed["counts"] == {"rows": 119, "skipped": 1, "trials": 2, "refused": 0}
    assert resumed["summary"]["nlpd"] <= resumed["summary"]["defaults_nlpd"]
    assert resumed["files"] == [str(out / "lofi.toml"), str(out / "lofi.png")]
    read = tomllib.loads((out / "lofi.toml").read_text())
    assert resumed["summary"]["options"].items() >= read["options"].items()
    assert read["options"]["decay"] == 1.0
    said = call("run", "--data", my_csv, "--target", "y", "--config", out / "lofi.toml",
                "--hidden", 5, "--out", tmp_path / "run")  # fmt: skip
    assert "lofi, 41 weights" in said


def test_tuning_on_validation_data_holds_out_a_tenth_and_trains_on_the_rest():
    stream = bs.streams.drifting_linear_regression(0, steps=100, inputs=2)
    mixed = stream.shuffle(3)
    expected = bs.tune.validation(mixed.take(90), mixed.select(range(90, 100)), seed=3)
    assert objective_for("validation", stream, 3).about == expected.about
    assert (
        objective_for("prequential", stream, 3).about == bs.tune.prequential(stream, seed=3).about
    )


def test_bandit_prints_what_each_policy_was_worth(tmp_path):
    out = tmp_path / "out"
    arguments = ("bandit", "--env", "linear", "--policy", "thompson-of-outputs", "--policy",
                 "random", "--rank", 3, "--hidden", "", "--steps", 150, "--trials", 2,
                 "--out", out)  # fmt: skip
    said = call(*arguments)
    regrets = {
        name: float(re.search(rf"{name} │ [^│]*│ +([\d.,]+) ±", said)[1].replace(",", ""))
        for name in ("thompson-of-outputs", "random")
    }
    found = reported(*arguments)
    for name, policy in found["summary"]["policies"].items():
        assert policy["regret"]["mean"] == pytest.approx(regrets[name], abs=0.06)
    assert found["counts"] == {"games": 4}
    assert found["files"] == [str(out / "totals.parquet"), str(out / "totals.png")]
    assert regrets["thompson-of-outputs"] < 0.6 * regrets["random"]
    saved = bs.Results.load(out / "totals.parquet")
    assert len(saved.where(metric="regret", trial=1)) == 300
    assert (out / "totals.png").stat().st_size > 1000
    call("bandit", "--env", "casino", code=1)


def test_a_command_imports_neither_the_others_nor_what_they_need():
    code = "import sys; from bayestream.cli.main import application; application(['run'])"
    command = [sys.executable, "-c", f"{code}; print(*sys.modules)"]
    imported = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert "bayestream.cli.run" in imported
    others = {"bayestream.cli.bandit", "bayestream.cli.reproduce"}
    assert not set(imported) & {*others, "matplotlib", "optuna", "scipy.stats"}
