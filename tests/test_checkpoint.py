"""Checkpoints: the same numbers back, to the bit, or a sentence saying why not."""

import inspect
import json
import random
import subprocess
import sys
import warnings
from functools import cache
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import bayestream as bs
from bayestream.running import envelope, folder
from bayestream.running.checkpoint import CheckpointError, DamagedCheckpointError
from bayestream.running.run import learn

RNG = np.random.default_rng(0)
XS = RNG.normal(size=(1000, 2))
YS = np.sin(XS.sum(axis=1, keepdims=True)) + 0.1 * RNG.normal(size=(1000, 1))
KEY = jax.random.key(7)
MODEL = bs.models.mlp([2, 3, 1])
NOISE = bs.likelihoods.gaussian(0.1)
OPTIONS = {"prior_precision": 2.0, "drift": 0.01, "optimiser": optax.adam(1e-2), "buffer": 2}
LEARNER = bs.lofi(MODEL, NOISE, rank=2)
STATE = LEARNER.init(jax.random.key(0))


def of_method(method: str) -> bs.Estimator:
    takes = inspect.signature(bs.estimators.REGISTRY[method]).parameters
    options = {name: value for name, value in OPTIONS.items() if name in takes}
    noise = NOISE if method == "orfit" else bs.likelihoods.adaptive_gaussian()
    return bs.make(method, MODEL, noise, **options)


@cache
def learner_of(name: str) -> bs.Estimator:
    if name == "averaged":
        settings = bs.grid(drift=[0.0, 1e-3])
        return bs.averaged(lambda **own: bs.lofi(MODEL, NOISE, rank=2, **own), settings)
    if name == "self_tuning":
        return bs.self_tuning([2, 3, 1], bs.likelihoods.adaptive_student_t(), rank=2)
    return of_method(name)


def stream(count: int, *, late: bool = False) -> bs.Stream:
    delays = np.random.default_rng(1).integers(0, 9, len(XS)) if late else np.zeros(len(XS), int)
    return bs.Stream(bs.Example(XS, YS, 0, delays)).take(count)


def assert_equal(one, other) -> None:
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b), strict=True)


QUICK = {"averaged", "laplace", "lofi", "replay_sgd"}
NAMES = [*bs.estimators.REGISTRY, "averaged", "self_tuning"]


@pytest.mark.parametrize(
    ("name", "half"),
    [
        pytest.param(name, half, marks=() if half == 20 and name in QUICK else pytest.mark.slow)
        for name in NAMES
        for half in (20, 500)
    ],
)
def test_half_a_run_saved_and_loaded_and_the_other_half_is_the_whole_run(name, half, tmp_path):
    learner = learner_of(name)
    start = learner.init(jax.random.key(0))
    whole, all_records = bs.run(
        learner, start, stream(2 * half), key=KEY, checkpoints=bs.Checkpoints(tmp_path / "a", half)
    )
    saved = bs.Checkpoints(tmp_path / "b", half)
    bs.run(learner, start, stream(half), key=KEY, checkpoints=saved)
    resumed, records = bs.run(learner, start, stream(2 * half), key=KEY, checkpoints=saved)
    assert records.start == half
    assert_equal(resumed, whole)
    assert_equal(records.values, jax.tree.map(lambda rows: rows[half:], all_records.values))
    if half == 500:  # chunks are of that size in any case
        assert_equal(whole, bs.run(learner, start, stream(1000), key=KEY)[0])


@pytest.mark.slow
def test_blocks_that_know_their_first_position_draw_what_one_run_draws(tmp_path):
    learner = learner_of("slang")
    state = start = learner.init(jax.random.key(0))
    for first in (0, 20):
        block = stream(40).select(range(first, first + 20))
        state, _ = learn(learner, state, block, key=KEY, size=20, first=first)
    saved = bs.Checkpoints(tmp_path, 20)
    assert_equal(state, bs.run(learner, start, stream(40), key=KEY, checkpoints=saved)[0])


def go_on(path: Path, late: bool) -> None:
    """The second half of a run, in a process of its own."""
    learner = learner_of("slang")
    start = learner.init(jax.random.key(0))
    bs.run(learner, start, stream(40, late=late), key=KEY, checkpoints=bs.Checkpoints(path, 20))


@pytest.mark.slow  # in the quick run, tests/test_kills.py begins new processes
@pytest.mark.parametrize("late", [False, True])
def test_a_new_process_goes_on_as_the_old_one_would_have(tmp_path, late):
    learner = learner_of("slang")  # draws random numbers
    start = learner.init(jax.random.key(0))
    saved = bs.Checkpoints(tmp_path / "b", 20)
    bs.run(learner, start, stream(20, late=late), key=KEY, checkpoints=saved)
    code = "import jax, sys; jax.config.update('jax_enable_x64', True); sys.path.insert(0, {!r}); "
    code += "from pathlib import Path; import test_checkpoint as t; t.go_on(Path({!r}), {!r})"
    given = code.format(str(Path(__file__).parent), str(tmp_path / "b"), late)
    subprocess.run([sys.executable, "-c", given], check=True)
    whole, _ = bs.run(
        learner,
        start,
        stream(40, late=late),
        key=KEY,
        checkpoints=bs.Checkpoints(tmp_path / "a", 20),
    )
    assert_equal(bs.checkpoint.load(tmp_path / "b", learner).state, whole)


def test_labels_that_wait_at_a_checkpoint_arrive_after_it(tmp_path):
    whole, _ = bs.run(
        LEARNER, STATE, stream(60, late=True), checkpoints=bs.Checkpoints(tmp_path / "a", 20)
    )
    for count in (20, 40, 60):
        saved = bs.Checkpoints(tmp_path / "b", 20)
        resumed, _ = bs.run(LEARNER, STATE, iter(stream(count, late=True)), checkpoints=saved)
    assert_equal(resumed, whole)
    assert bs.checkpoint.load(tmp_path / "b", LEARNER).arrays["x"].shape[1:] == (2,)
    without, _ = bs.run(LEARNER, STATE, stream(60))
    assert not np.array_equal(LEARNER.mean(without), LEARNER.mean(whole))


def test_a_run_that_is_complete_is_not_run_again(tmp_path):
    saved = bs.Checkpoints(tmp_path, 20)
    state, _ = bs.run(LEARNER, STATE, stream(30), checkpoints=saved)
    again, records = bs.run(LEARNER, STATE, stream(30), checkpoints=saved)
    assert_equal(again, state)
    assert (records.start, len(records["prediction"])) == (30, 0)


def test_another_key_is_refused(tmp_path):
    saved = bs.Checkpoints(tmp_path, 20)
    bs.run(LEARNER, STATE, stream(20), key=KEY, checkpoints=saved)
    with pytest.raises(CheckpointError, match="key must be that of the run"):
        bs.run(LEARNER, STATE, stream(40), checkpoints=saved)


@pytest.fixture
def path(tmp_path) -> Path:
    bs.checkpoint.save(tmp_path / "one.safetensors", LEARNER, STATE, step=3, notes={"a": [1]})
    return tmp_path / "one.safetensors"


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (lambda: bs.vdekf(MODEL, NOISE), "its method is lofi, this one's vdekf"),
        (lambda: bs.lofi(MODEL, NOISE, rank=3), "its rank is 2, this one's 3"),
        (lambda: bs.lofi(MODEL, NOISE, rank=2, drift=0.1), "its drift is None, this one's 0.1"),
        (lambda: bs.lofi(bs.models.mlp([2, 4, 1]), NOISE, rank=2), "its network is"),
        (lambda: bs.lofi(MODEL, bs.likelihoods.student_t(0.1), rank=2), "its likelihood is gauss"),
        (lambda: bs.lofi(MODEL, bs.likelihoods.gaussian(0.2), rank=2), "gives other numbers"),
        (
            lambda: bs.lofi(bs.models.mlp([2, 3, 1], activation=jnp.tanh), NOISE, rank=2),
            "gives other numbers",
        ),
    ],
)
def test_the_state_of_another_learner_is_refused_in_a_sentence(path, other, message):
    with pytest.raises(
        CheckpointError, match=rf"one\.safetensors is of another learner: .*{message}"
    ):
        bs.checkpoint.load(path, other())


def test_another_dtype_is_refused(path):
    with jax.enable_x64(False), pytest.raises(CheckpointError, match=r"float64.*float32"):
        bs.checkpoint.load(path, bs.lofi(bs.models.mlp([2, 3, 1]), NOISE, rank=2))


def test_what_is_not_a_state_is_not_saved(tmp_path):
    with pytest.raises(ValueError, match="state must come from this learner's init"):
        bs.checkpoint.save(tmp_path / "a", LEARNER, bs.vdekf(MODEL, NOISE).init(KEY))
    assert not list(tmp_path.iterdir())


def test_a_newer_format_is_refused_and_not_passed_over(path, monkeypatch, tmp_path):
    monkeypatch.setattr(envelope, "VERSION", 2)
    bs.checkpoint.save_step(tmp_path, LEARNER, STATE, step=2)
    monkeypatch.setattr(envelope, "VERSION", 1)
    bs.checkpoint.save_step(tmp_path, LEARNER, STATE, step=1)
    with pytest.raises(CheckpointError, match="which a newer bayestream has written"):
        bs.checkpoint.load(tmp_path, LEARNER)


def test_files_of_others_are_refused(tmp_path):
    from safetensors.numpy import save

    contents = {
        "a model's": save({"state/step": np.zeros(3)}, {"format": "pt"}),
        "text": b"hello, this is not a checkpoint",
        "empty": b"",
        "deep": b"\x40\x9c\0\0\0\0\0\0" + b"[" * 40_000,
    }
    for content in contents.values():
        (tmp_path / "foreign").write_bytes(content)
        with pytest.raises(DamagedCheckpointError, match=r"foreign is .*not a checkpoint"):
            bs.checkpoint.load(tmp_path / "foreign", LEARNER)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        bs.checkpoint.load(tmp_path / "absent", LEARNER)


def test_a_truncated_file_is_said_to_be(path):
    content = path.read_bytes()
    for length in (len(content) - 1, len(content) // 2, 100, 7):
        path.write_bytes(content[:length])
        with pytest.raises(DamagedCheckpointError, match="cut off"):
            bs.checkpoint.load(path, LEARNER)


def mutated(content: bytes, draw: random.Random) -> bytes:
    """Bits flipped, bytes put in, taken out, copied or cut off; in the header as often as not."""
    changed = bytearray(content)
    header = 8 + int.from_bytes(content[:8], "little")
    for _ in range(draw.choice([1, 1, 1, 2, 5])):
        at = draw.randrange(draw.choice([header, len(content), 8]))
        at = min(at, len(changed) - 1)
        match draw.randrange(6):
            case 0:
                changed[at] ^= 1 << draw.randrange(8)
            case 1:
                changed[at] = draw.randrange(256)
            case 2:
                changed[at:at] = draw.randbytes(draw.randrange(1, 9))
            case 3:
                del changed[at : at + draw.randrange(1, 9)]
            case 4:
                other = draw.randrange(len(changed))
                changed[at : at + 8] = changed[other : other + 8]
            case _:
                digits = [i for i in range(8, header) if chr(content[i]).isdigit()]
                changed[min(draw.choice(digits), len(changed) - 1)] = ord(draw.choice("0123456789"))
    return bytes(changed)


@pytest.mark.parametrize("count", [400, pytest.param(10_000, marks=pytest.mark.slow)])
def test_every_change_of_a_file_is_found_out(path, count):
    content, draw = path.read_bytes(), random.Random(0)
    different = 0
    for _ in range(count):
        changed = mutated(content, draw)
        if changed != content:
            different += 1
            path.write_bytes(changed)
            with pytest.raises(DamagedCheckpointError, match=r"one\.safetensors is "):
                folder.read(path)
    assert different > 0.9 * count


def test_every_single_byte_is_under_the_checksum(path):
    content = path.read_bytes()
    for at in range(len(content)):
        changed = bytearray(content)
        changed[at] ^= 1
        with pytest.raises(DamagedCheckpointError):
            envelope.unpacked(bytes(changed))


def test_a_damaged_newest_checkpoint_is_skipped_with_a_warning(tmp_path):
    for step in (1, 2, 3):
        bs.checkpoint.save_step(
            tmp_path, LEARNER, STATE._replace(step=STATE.step + step), step=step
        )
    damaged = tmp_path / "step-000000003.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-5])
    with pytest.warns(RuntimeWarning, match=r"000003.* is cut off.*step-000000002.* is used"):
        assert int(bs.checkpoint.load(tmp_path, LEARNER).state.step) == 2
    for path in tmp_path.iterdir():
        path.write_bytes(b"")
    with pytest.raises(DamagedCheckpointError, match="to begin anew, remove them"):
        bs.checkpoint.load(tmp_path, LEARNER)


def test_the_last_few_are_kept_and_nothing_unfinished(tmp_path):
    (tmp_path / ".step-000000001.safetensors.unfinished").write_bytes(b"half")
    for step in range(5):
        bs.checkpoint.save_step(tmp_path, LEARNER, STATE, step=step, keep=2)
    names = ["step-000000003.safetensors", "step-000000004.safetensors"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names


def test_a_write_that_fails_leaves_the_file_that_was_there(path, monkeypatch):
    before = path.read_bytes()

    def full(file):
        raise OSError("no space left on device")

    monkeypatch.setattr(folder.os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        bs.checkpoint.save(path, LEARNER, STATE, step=4)
    assert path.read_bytes() == before


def test_a_checkpoint_is_plain_safetensors_with_json_in_it(path):
    from safetensors import safe_open

    with safe_open(path, framework="numpy") as file:
        header = json.loads(file.metadata()["header"])
        assert "state/belief/base/mean" in list(file.keys())
    assert header["step"] == 3
    assert header["library"] == bs.__version__
    assert header["model"]["layers"] == [[2, 3, 1.0], [3, 1, 1.0]]
    assert json.loads(header["learner"])["settings"]["rank"] == 2


def test_without_safetensors_a_sentence_says_what_to_install(path, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(ImportError, match=r"pip install 'bayestream\[checkpoint\]'"):
        bs.checkpoint.load(path, LEARNER)


@pytest.mark.parametrize("options", [{"every": 0}, {"keep": 0}])
def test_every_and_keep_are_one_or_more(options):
    with pytest.raises(ValueError, match="must be a whole number, 1 or above"):
        bs.Checkpoints("x", **options)


def test_saving_warns_of_nothing(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bs.checkpoint.save_step(tmp_path, LEARNER, STATE, step=1)
        bs.checkpoint.load(tmp_path, LEARNER)
