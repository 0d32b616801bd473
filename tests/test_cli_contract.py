"""What holds for every subcommand: help, exit codes, completion, JSON, and extras by name."""

import json
import math
import os
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
from typer.testing import CliRunner

import bayestream as bs
from bayestream.cli import info
from bayestream.cli.main import COMMANDS, application
from bayestream.cli.outputs import Screen

COMMAND = str(Path(sys.executable).with_name("bayestream"))
OF_DATA = [["data", name] for name in ("list", "get", "where")]
ALL = [*([name] for name in COMMANDS if name != "data"), *OF_DATA]


def invoke(*arguments):
    return CliRunner().invoke(application(), [*map(str, arguments)], env={"COLUMNS": "80"})


@pytest.mark.parametrize("command", [[], ["data"], *ALL], ids=" ".join)
def test_help_fits_a_terminal_and_has_an_example(command):
    said = invoke(*command, "--help").output
    assert max(map(len, said.splitlines())) <= 80
    assert command == ["data"] or f"bayestream {' '.join(command)}" in said.split("Example")[1]


@pytest.mark.parametrize("command", ALL, ids=" ".join)
def test_an_option_that_is_not_there_is_a_mistake_of_usage(command):
    result = invoke(*command, "--no-such-option")
    assert result.exit_code == 2
    assert "No such option" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["demo", "--out", "FILE/folder"],
        ["run", "--data", "no.csv"],
        ["compare", "--data", "no.csv"],
        ["predict", "--checkpoint", "no folder", "--data", "no.csv"],
        ["tune", "--data", "no.csv"],
        ["bandit", "--env", "casino"],
        ["reproduce", "no such experiment"],
        ["data", "get", "no such set"],
        ["data", "where", "no such set"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_what_cannot_be_done_is_refused_in_a_sentence_with_exit_code_1(arguments, tmp_path):
    (tmp_path / "FILE").write_text("")
    given = [str(tmp_path / each) if "FILE" in each else each for each in arguments]
    result = invoke(*given)
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


def completed(*words):
    asked = {"_BAYESTREAM_COMPLETE": "complete_bash", "COMP_WORDS": "\n".join(words)}
    asked["COMP_CWORD"] = str(len(words) - 1)
    found = subprocess.run([COMMAND], env={**os.environ, **asked}, capture_output=True, text=True)
    assert found.stderr == ""
    return found.stdout.split()


def test_bash_completes_subcommands_and_the_names_of_methods():
    assert completed("bayestream", "pre") == ["predict"]
    assert completed("bayestream", "run", "--method", "lofi") == ["lofi", "lofi_spherical"]


def test_names_of_subcommands_are_completed_and_listed_without_jax():
    code = "import sys; from bayestream.cli.main import application; application([]); "
    code += "print('jax' in sys.modules, 'typer' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["False", "True"]


def test_json_has_null_for_what_is_no_number(capsys):
    Screen(True).report({"a": math.nan, "b": [math.inf, 1.5]}, {"rows": 2}, [Path("x.csv")])
    assert json.loads(capsys.readouterr().out) == {
        "interrupted": False,
        "summary": {"a": None, "b": [None, 1.5]},
        "counts": {"rows": 2},
        "files": ["x.csv"],
    }
    Screen(False).report({}, {})
    assert capsys.readouterr().out == ""


def test_info_knows_every_extra_and_what_it_installs():
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    declared = {
        name: {re.match(r"[\w-]+", each)[0] for each in packages}
        for name, packages in project["optional-dependencies"].items()
        if name not in ("all", "test")
    }
    assert {name: set(packages) for name, (packages, _) in info.EXTRAS.items()} == declared


def test_info_names_what_is_missing_and_how_to_get_it(monkeypatch):
    extras = {"cli": info.EXTRAS["cli"], "plot": (("no-such-package",), "pictures")}
    monkeypatch.setattr(info, "EXTRAS", extras)
    result = invoke("info", "--json")
    found = json.loads(result.stdout)
    assert found["counts"]["missing_extras"] == 1
    assert found["summary"]["extras"]["plot"]["install"] == "pip install 'bayestream[plot]'"
    assert found["summary"]["versions"]["bayestream"] == bs.__version__
    assert found["summary"]["kernels"]["in_use"] == bs.kernels.in_use()
    assert re.search(r"plot +│ pictures +│ pip install 'bayestream\[plot\]'", result.stderr)
    assert max(map(len, result.stderr.splitlines())) <= 80


def test_data_list_says_in_json_where_each_set_lies():
    found = json.loads(invoke("data", "list", "--json").stdout)
    assert set(found["summary"]) == set(bs.streams.datasets.NAMES)
    assert sum(found["counts"].values()) == len(found["summary"])


RESULTS = bs.Results.of(
    method="a", metric="b", summary="each", trial=0, step=[1, 2], task=0, value=[1.0, 2.0]
)


@pytest.mark.parametrize(
    ("package", "extra", "act"),
    [
        ("matplotlib.figure", "plot", lambda path: bs.plots.curves(RESULTS)),
        ("pyarrow", "data", lambda path: RESULTS.save(path / "r.parquet")),
        ("pyarrow", "data", lambda path: bs.streams.table(path / "t.parquet", target="y")),
        ("pooch", "data", lambda path: bs.streams.mnist()),
        ("river.datasets", "river", lambda path: bs.streams.river("Phishing")),
        ("safetensors", "checkpoint", lambda path: bs.Checkpoints(path)),
        ("optuna", "tune", lambda path: bs.tune.tune("lofi", None, None, None)),
    ],
    ids=["pictures", "results", "parquet", "downloads", "river", "checkpoint", "tune"],
)
def test_an_extra_that_is_missing_is_named_with_the_line_that_installs_it(
    package, extra, act, monkeypatch, tmp_path
):
    (tmp_path / "t.parquet").touch()
    monkeypatch.setenv("BAYESTREAM_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf"pip install 'bayestream\[{extra}\]'"):
        act(tmp_path)


def test_without_its_extra_the_command_says_what_to_install():
    code = "import sys; sys.modules['typer'] = None; from bayestream.cli.entry import main; main()"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.returncode == 1
    assert found.stderr == "The bayestream command needs its extra: pip install 'bayestream[cli]'\n"


def test_experiments_can_be_run_without_matplotlib(monkeypatch):
    for name in ("piecewise_plots", "pictures"):
        monkeypatch.delitem(sys.modules, f"bayestream.experiments.{name}")
    for name in ("matplotlib", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, name, None)
    drawing = import_module("bayestream.experiments.piecewise_plots")
    with pytest.raises(ImportError, match=r"^pictures need matplotlib: pip install"):
        drawing.errors({}, Path("errors.png"))
