"""kill -9 at any moment: nothing is lost, nothing happens twice, the belief is equal to the bit."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bayestream.running.folder import File, read

SCRIPT = Path(__file__).with_name("killed.py")
KEEP_PROGRAMS = {
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}


def killed(kind: str, folder: Path, kills: int) -> list[Path]:
    """The unbroken run's folder, and those of the runs that were killed so many times in all."""
    cache = os.environ.get("JAX_COMPILATION_CACHE_DIR", str(folder.parent / "compiled"))
    ended = subprocess.run(
        [sys.executable, SCRIPT, kind, folder, str(kills), "0"],
        env={**os.environ, **KEEP_PROGRAMS, "JAX_COMPILATION_CACHE_DIR": cache},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    count, runs = map(int, ended.stdout.split())
    assert count == kills
    return [folder / "whole", *(folder / f"run-{number + 1}" for number in range(runs))]


def last(folder: Path) -> File:
    assert not list((folder / "saved").glob(".*"))
    return read(folder / "saved")


def assert_same(one: File, other: File) -> None:
    assert one.header == other.header
    assert one.arrays.keys() == other.arrays.keys()
    for name, array in one.arrays.items():
        np.testing.assert_array_equal(array, other.arrays[name], strict=True)


@pytest.mark.parametrize("kills", [8, pytest.param(200, marks=pytest.mark.slow)])
def test_a_run_that_is_killed_again_and_again_ends_with_the_belief_of_an_unbroken_one(
    tmp_path, kills
):
    whole, *others = killed("library", tmp_path / "runs", kills)
    assert last(whole).header["step"] == 400
    assert any(name.startswith("beside/") for name in last(whole).arrays)  # labels are waiting
    for other in others:
        assert_same(last(whole), last(other))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "rows", "files"),
    [
        ("cli", 400 - 8, ["out/skipped.csv"]),
        ("growing", 400, ["out/forecasts.json"]),
        ("keyed", 400 - 8, ["out/skipped.csv", "out/forecasts.json"]),
    ],
)
def test_the_command_line_when_killed_writes_every_row_once(tmp_path, kind, rows, files):
    whole, *others = killed(kind, tmp_path / "runs", 60)
    assert len(list(csv.reader((whole / "out" / "forecasts.csv").open()))) == 1 + rows
    for other in others:
        for name in ("out/forecasts.csv", "saved/scores.f64", *files):
            assert (other / name).read_bytes() == (whole / name).read_bytes()
        assert_same(last(whole), last(other))
    header = last(whole).header
    assert len(header.get("fleet", {"keys": ()})["keys"]) == (20 if kind == "keyed" else 0)
    sizes, began = header["notes"]["sizes"], header["notes"]["began"]
    grown = began is not None and [sizes[0] > 2 * began[0], sizes[-1] > began[-1]]
    assert grown == {"cli": [False] * 2, "growing": [True] * 2, "keyed": False}[kind]
