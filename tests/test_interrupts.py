"""Ctrl-C and SIGTERM: at any moment, a clean end with exit code 130, and files that are whole."""

import csv
import gc
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import tomllib
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from bayestream.cli import interrupts
from bayestream.cli.interrupts import INTERRUPTS, Interrupts
from bayestream.cli.main import application
from bayestream.cli.outputs import whole
from bayestream.experiments import piecewise

SIGNALS = (signal.SIGINT, signal.SIGTERM)
COMMAND = str(Path(sys.executable).with_name("bayestream"))


@pytest.fixture
def exits(monkeypatch):
    """Exit codes of processes that were ended at once."""
    codes = []
    ended = threading.Event()

    def note(code):
        codes.append(code)
        ended.set()

    monkeypatch.setattr(interrupts.os, "_exit", note)
    return lambda: codes if ended.wait(10) else []


@pytest.fixture
def installed(exits):
    """Handlers as a command has them; pytest's own come back afterwards."""
    before = {number: signal.getsignal(number) for number in (*SIGNALS, signal.SIGURG)}
    for number in SIGNALS:  # a shell's background jobs ignore Ctrl-C, and so would the handler
        signal.signal(number, signal.SIG_DFL)
    handler = Interrupts()
    handler.install()
    yield handler
    for number, old in before.items():
        signal.signal(number, old)
    signal.set_wakeup_fd(-1)


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_sets_a_flag_and_the_second_ends_the_process(installed, exits, number):
    installed.begin()
    installed.check()
    signal.raise_signal(number)
    assert installed.requested
    with pytest.raises(KeyboardInterrupt):
        installed.check()
    signal.raise_signal(number)
    assert exits() == [130]


def test_before_work_has_begun_the_first_signal_ends_the_process(installed, exits):
    signal.raise_signal(signal.SIGTERM)
    assert exits() == [130]


def test_a_wait_is_cut_short_and_no_later_one_begins(installed):
    installed.begin()
    with pytest.raises(KeyboardInterrupt), installed.waiting():
        signal.raise_signal(signal.SIGINT)
    assert gc.isenabled()
    with pytest.raises(KeyboardInterrupt), installed.waiting():
        pytest.fail("a signal had come")
    assert gc.isenabled()


@pytest.mark.parametrize(
    "interrupt",
    [
        lambda: os.kill(os.getpid(), signal.SIGINT),
        # The kernel may give a signal to any thread: then nothing ends the main thread's read.
        lambda: signal.pthread_kill(threading.get_ident(), signal.SIGINT),
    ],
    ids=["to the process", "to another thread"],
)
def test_a_blocking_read_is_cut_short(installed, interrupt):
    installed.begin()
    reader, writer = os.pipe()
    threading.Timer(0.1, interrupt).start()
    row = threading.Timer(10, os.write, (writer, b"row\n"))
    row.start()
    with os.fdopen(reader) as lines, os.fdopen(writer, "w"):
        assert list(installed.until(lines)) == []
        assert row.is_alive()
        row.cancel()
    assert installed.requested


def test_items_come_until_a_signal_does_and_their_source_is_closed(installed):
    closed = []

    def rows():
        try:
            yield 1
            signal.raise_signal(signal.SIGINT)
            yield 2
        finally:
            closed.append(True)

    installed.begin()
    assert list(Interrupts().until([1, 2])) == [1, 2]
    assert list(installed.until(rows())) == [1]
    assert closed


def test_a_signal_during_the_work_ends_the_items_after_it(installed):
    installed.begin()
    done = []
    for item in installed.until(range(9)):
        done.append(item)
        if item == 3:
            signal.raise_signal(signal.SIGINT)
        done.append(item)
    assert done == [0, 0, 1, 1, 2, 2, 3, 3]


def test_handlers_are_left_alone_where_signals_are_ignored_or_not_ours(installed):
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as nohup does
    Interrupts().install()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=Interrupts().install)
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_file_is_whole_or_absent(tmp_path):
    def write():
        with whole(tmp_path / "a.txt") as path:
            path.write_text("half of i")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("method", "complete", "pictures"),
    [("fdekf", 2, {"fits.png", "errors.png"}), ("lofi", 0, set())],
)
def test_an_interrupted_demo_shows_the_methods_that_are_complete(
    monkeypatch, tmp_path, method, complete, pictures
):
    monkeypatch.setattr(INTERRUPTS, "requested", False)
    shape = (piecewise.TASKS, len(piecewise.GRID))
    outcome = piecewise.Outcome(
        np.ones((piecewise.TASKS, piecewise.LENGTH)), np.zeros(shape), np.ones(shape), 1.0
    )

    def trial(settings, seed, advance):
        INTERRUPTS.requested = settings["method"] == method
        advance(piecewise.LENGTH)
        return outcome

    monkeypatch.setattr(piecewise, "trial", trial)
    (tmp_path / "fits.png").write_text("an earlier run's")
    result = CliRunner().invoke(application(), ["demo", "--out", str(tmp_path)])
    assert f"interrupted; {complete} of 4 methods are complete" in result.output
    assert {path.name for path in tmp_path.iterdir()} == pictures


def rows(count):
    rng = np.random.default_rng(0)
    numbers = rng.normal(size=(count, 3))
    return "a,b,y\n" + "".join(f"{a:.4f},{b:.4f},{a + b + c:.4f}\n" for a, b, c in numbers)


def start(*arguments, **options):
    """The command as a shell starts it, whatever the parent of the tests makes of SIGINT."""
    return subprocess.Popen(
        [COMMAND, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        **options,
    )


def check_end(code, said, complained, out):
    """What is true however a command ended; whether it was interrupted."""
    assert code in (0, 130), (code, complained)
    for word in ("Traceback", "Fatal", "Exception ignored", "terminate called", "Error"):
        assert word not in said + complained
    assert ("interrupted" in complained) == (code == 130)
    for path in out.glob("forecasts.csv"):
        text = path.read_text()
        assert not text or text.endswith("\n")
        assert {len(row) for row in csv.reader(text.splitlines())} <= {6}
    for path in out.glob("*.toml"):
        assert tomllib.loads(path.read_text())["method"] == "lofi"
    for path in out.glob("trials.db"):
        with sqlite3.connect(path) as file:
            assert file.execute("pragma integrity_check").fetchone() == ("ok",)
    assert not list(out.glob(".*"))
    return code == 130


def test_a_run_that_is_interrupted_while_it_waits_keeps_what_it_has_learnt(tmp_path):
    process = start(
        "run", "--data", "-", "--target", "y", "--hidden", 3, "--block", 50, "--out", tmp_path,
        stdin=subprocess.PIPE,
    )  # fmt: skip
    process.stdin.write(rows(1020))
    process.stdin.flush()
    seen = ""
    while "1,000 rows" not in seen:  # the 20 that are left may be read by now, or not
        seen = process.stdout.readline()
        assert seen
    process.send_signal(signal.SIGINT)
    process.wait()  # standard input is still open
    said, complained = process.stdout.read(), process.stderr.read()
    assert check_end(process.returncode, said, complained, tmp_path)
    learnt = len((tmp_path / "forecasts.csv").read_text().splitlines()) - 1
    assert 1000 <= learnt <= 1020
    assert f"interrupted after {learnt:,} rows" in said
    assert "running mean" in said
    assert (tmp_path / "scores.png").stat().st_size > 1000


@pytest.mark.slow
def test_interrupts_at_forty_random_moments(tmp_path):
    pytest.importorskip("optuna")
    (tmp_path / "my.csv").write_text(rows(600))
    data = ("--data", tmp_path / "my.csv", "--target", "y", "--hidden", 5)
    commands = {
        "run": ("run", *data, "--block", 20),
        "tune": ("tune", *data, "--limit", 60, "--trials", 8),
    }
    duration = {}
    for name, command in [*commands.items()] * 2:  # the second finds its programs compiled
        begin = time.monotonic()
        process = start(*command, "--out", tmp_path / name)
        said, complained = process.communicate()
        assert not check_end(process.returncode, said, complained, tmp_path / name)
        duration[name] = time.monotonic() - begin
    rng = np.random.default_rng(0)
    counts, slowest = Counter(), 0.0
    for number in range(40):
        name = ("run", "tune")[number % 2]
        chosen = SIGNALS[int(rng.integers(2))]
        # Before 0.15 s the interpreter itself is starting, and nothing of ours is there yet.
        delay = rng.uniform(0.15, 1.1 * duration[name])
        out = tmp_path / str(number)
        process = start(*commands[name], "--out", out)
        try:
            said, complained = process.communicate(timeout=delay)
        except subprocess.TimeoutExpired:
            process.send_signal(chosen)
            begin = time.monotonic()
            said, complained = process.communicate(timeout=120)
            slowest = max(slowest, time.monotonic() - begin)
        interrupted = check_end(process.returncode, said, complained, out)
        counts[name, chosen.name if interrupted else "complete"] += 1
        sentences = ("interrupted after", "stopped before a trial")
        counts[name, *(each for each in sentences if each in said + complained)] += 1
    print(f"\n{duration}\n{counts}\nslowest end: {slowest:.1f} s")
    assert sum(counts[name, number.name] for name in commands for number in SIGNALS) > 25
