"""The command line keeps what it has compiled, where it may."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from bayestream.cli import cache
from bayestream.cli.cache import keep_programs

NAMES = (
    "jax_compilation_cache_dir",
    "jax_persistent_cache_min_compile_time_secs",
    "jax_persistent_cache_min_entry_size_bytes",
)


@pytest.fixture
def kept(monkeypatch):
    """What `keep_programs` chooses, with the tests' own cache put back afterwards."""
    before = {name: getattr(jax.config, name) for name in NAMES}
    jax.config.update(NAMES[0], None)
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)

    def chosen(**variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, str(value))
        keep_programs()
        return getattr(jax.config, NAMES[0])

    yield chosen
    for name, value in before.items():
        jax.config.update(name, value)


def test_programs_are_kept_in_the_users_cache_folder(kept, tmp_path):
    folder = kept(XDG_CACHE_HOME=tmp_path, BAYESTREAM_CACHE="")
    assert folder.startswith(str(tmp_path / "bayestream" / "programs-"))


def test_another_folder_can_be_named_and_keeping_switched_off(kept, tmp_path):
    assert kept(XDG_CACHE_HOME=tmp_path, BAYESTREAM_CACHE="off") is None
    assert not any(tmp_path.iterdir())
    assert kept(BAYESTREAM_CACHE=tmp_path / "mine").startswith(str(tmp_path / "mine"))


def test_a_folder_that_cannot_be_made_is_done_without(kept, tmp_path):
    (tmp_path / "file").touch()
    assert kept(BAYESTREAM_CACHE=tmp_path / "file") is None


def test_what_jax_was_told_itself_is_left_alone(kept, tmp_path):
    assert kept(BAYESTREAM_CACHE=tmp_path, JAX_COMPILATION_CACHE_DIR=tmp_path / "own") is None


def test_what_has_not_been_used_for_longest_makes_room(kept, tmp_path, monkeypatch):
    folder = Path(kept(BAYESTREAM_CACHE=tmp_path))
    for age, name in enumerate(["new", "old", "older"]):
        (folder / name).write_bytes(b"x" * 10)
        os.utime(folder / name, (1e9 - age, 1e9 - age))
    monkeypatch.setattr(cache, "_MOST", 25)
    kept(BAYESTREAM_CACHE=tmp_path)
    assert {path.name for path in folder.iterdir()} == {"new", "old"}


@pytest.mark.slow
def test_programs_that_were_kept_are_used_without_a_word(tmp_path):
    """Some versions of XLA doubt, at length, that they were compiled for this CPU."""
    (tmp_path / "my.csv").write_text("a,price\n" + "".join(f"{i % 7},{i / 9}\n" for i in range(60)))
    ours = {**os.environ, "BAYESTREAM_CACHE": str(tmp_path / "cache")}
    for name in ("JAX_COMPILATION_CACHE_DIR", "TF_CPP_MIN_LOG_LEVEL"):
        ours.pop(name, None)
    command = [Path(sys.executable).with_name("bayestream"), "run"]
    command += ["--data", "my.csv", "--target", "price"]
    for _ in range(2):
        found = subprocess.run(command, cwd=tmp_path, env=ours, capture_output=True, text=True)
        assert (found.returncode, found.stderr) == (0, "")
    assert any((tmp_path / "cache").glob("programs-*/*"))
