"""`bayestream run` on tables as they are: what it says of them, and what it writes."""

import csv
import json

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

import bayestream as bs
from bayestream.cli import writers
from bayestream.cli.main import application
from bayestream.cli.sources import opened

ROWS = 60
OPTIONS = ("--method", "vdekf", "--hidden", "2", "--block", "20")


def call(*arguments, code=0, **options):
    result = CliRunner().invoke(application(), [str(argument) for argument in arguments], **options)
    assert result.exit_code == code, result.output
    return " ".join(result.output.split())


def numbers():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, 2)).round(3)
    return np.column_stack([x, (x @ [2, -1]).round(3)])


def written(rows, separator=","):
    return "\n".join(separator.join(map(str, row)) for row in [["a", "b", "y"], *rows]) + "\n"


def forecasts(out):
    return list(csv.DictReader((out / "forecasts.csv").open()))


@pytest.mark.slow
def test_semicolons_and_decimal_commas_change_no_forecast(tmp_path):
    plain = written(numbers())
    european = plain.replace(",", ";").replace(".", ",")
    call("run", "--data", "-", "--out", tmp_path / "plain", *OPTIONS, input=plain)
    (tmp_path / "european.csv").write_text(european)
    said = call(
        "run", "--data", tmp_path / "european.csv", "--out", tmp_path / "european", *OPTIONS
    )
    assert "european.csv: UTF-8, separator semicolon, decimal comma, header" in said
    assert "columns, as all 60 rows have them: a number like" in said
    assert "y target regression (guessed from numbers)" in said
    one, other = forecasts(tmp_path / "plain"), forecasts(tmp_path / "european")
    assert [row["low"] for row in one] == [row["low"] for row in other]
    assert len(one) == ROWS


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [
        (3, "no score: 3 of 60 rows had a label, and scores begin with the 11th"),
        pytest.param(
            0,
            "no score: none of 60 rows had a label, so nothing was learnt",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_too_few_labels_end_in_a_sentence_and_in_no_picture(tmp_path, labels, sentence):
    rows = [[a, b, y if n < labels else "NA"] for n, (a, b, y) in enumerate(numbers())]
    (tmp_path / "t.csv").write_text(written(rows))
    (tmp_path / "scores.png").write_text("an earlier run's")
    said = call(
        "run", "--data", tmp_path / "t.csv", "--task", "regression", "--out", tmp_path, *OPTIONS
    )
    assert sentence in said
    assert "nan" not in said
    assert "scores.png" not in said
    assert not (tmp_path / "scores.png").exists()


def test_columns_of_probabilities_bear_the_names_of_classes(tmp_path):
    x = numbers()[:, 0]
    kinds = np.where(x > 0, "up", "down").tolist()
    kinds[30], kinds[40:50] = "late", ["NA"] * 10
    rows = [[a, -a, kind] for a, kind in zip(x, kinds, strict=True)]
    (tmp_path / "t.csv").write_text(written(rows))
    said = call("run", "--data", tmp_path / "t.csv", "--head", 20, "--out", tmp_path, *OPTIONS)
    assert "classification (guessed from names), 2 classes, room for 2 more" in said
    first = forecasts(tmp_path)[0]
    assert list(first)[4:] == [
        *(f"p_{kind}" for kind in dict.fromkeys(kinds[:20])),
        "p_new1",
        "p_new2",
        "p_later",
    ]
    about = json.loads((tmp_path / "forecasts.json").read_text())
    assert list(about["columns"]) == list(first)
    assert about["columns"]["p_up"] == "probability of class 'up'"
    assert about["columns"]["p_new1"] == "probability of class 'late', which came late"
    assert about["columns"]["p_new2"] == "probability of a class that has not come yet"
    assert {row["target"] for row in forecasts(tmp_path)} == {"up", "down", "late", ""}


def test_names_of_columns_of_probabilities_are_never_twice_the_same():
    found = writers.probabilities_of(["new1", "later"], 4, more=True)
    assert found == ["p_new1", "p_later", "p_new2", "p_new3", "p_later1"]


@pytest.mark.parametrize("level", [0.5, 0.9, 0.99])
def test_low_and_high_hold_as_many_targets_as_the_level_says(level):
    row = bs.streams.Encoded("row 1", np.zeros(1), 0.0, 3.0, 1.0, 2.0)
    values = {"mean": np.zeros(1), "deviation": np.ones(1)}
    values["parts"] = np.array([[[1.0, 0.0, 1.0, np.inf]]])
    lines, *_ = writers.Numbers(level).write([row], values)
    half = 2 * stats.norm.ppf(0.5 + level / 2)
    assert [float(end) for end in lines[0][4:]] == pytest.approx([1 - half, 1 + half], rel=1e-5)


def test_a_limit_is_not_looked_beyond(tmp_path):
    rows = numbers().tolist()
    (tmp_path / "t.csv").write_text(written([*rows[:30], ["x", "y", "z"] * 30]))
    source = opened(str(tmp_path / "t.csv"), limit=30)
    assert source.plan.looked_at == "the first 30 rows"
    assert len(list(source.rows)) == source.total == 30
