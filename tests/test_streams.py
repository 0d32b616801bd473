"""Streams are what their seed says, and no more."""

import gzip

import jax
import numpy as np
import pytest
import scipy.ndimage

import bayestream as bs
from bayestream.streams import datasets, uci_download

HAVE_DATA = datasets.where("uci/energy") is not None and datasets.where("mnist") is not None
needs_data = pytest.mark.skipif(not HAVE_DATA, reason="BAYESTREAM_DATA is not set")


def images(count: int = 12, side: int = 28) -> bs.Stream:
    rng = np.random.default_rng(0)
    x = rng.random((count, side * side)).astype(np.float32)
    return bs.Stream(bs.Example(x, np.arange(count) % 4, np.zeros(count, int)))


def test_a_seed_decides_the_whole_stream():
    one, again = (bs.streams.piecewise_regression(3, tasks=2, length=7).examples for _ in range(2))
    other = bs.streams.piecewise_regression(4, tasks=2, length=7).examples
    for field in ("x", "y", "task"):
        np.testing.assert_array_equal(getattr(one, field), getattr(again, field))
    assert not np.array_equal(one.y, other.y)


def test_targets_are_the_tasks_function_plus_noise_of_the_stated_variance():
    stream = bs.streams.piecewise_regression(0, tasks=4, length=5000, noise=0.04).examples
    waves = bs.streams.waves(0, tasks=4)
    x, y = stream.x[:, 0], stream.y[:, 0]
    expected = x + 0.3 * np.sin(waves.phase[stream.task] + waves.frequency[stream.task] * np.pi * x)
    error = y - expected
    assert abs(error.var() - 0.04) < 5 * 0.04 * np.sqrt(2 / error.size)
    assert np.abs(x).max() <= 2


def test_iterating_taking_and_shuffling_keep_examples_whole():
    stream = bs.streams.piecewise_regression(0, tasks=2, length=10)
    rows = list(stream)
    assert len(rows) == len(stream) == 20
    assert [row.task for row in stream.take(12)] == [0] * 10 + [1] * 2
    shuffled = stream.shuffle(1)
    assert not np.array_equal(shuffled.examples.x, stream.examples.x)
    order = np.argsort(shuffled.examples.x[:, 0])
    expected = np.argsort(stream.examples.x[:, 0])
    np.testing.assert_array_equal(shuffled.examples.y[order], stream.examples.y[expected])


DRIFTS = {
    "repeat": lambda s, seed: bs.streams.repeat(s, 2, seed=seed),
    "permuted": lambda s, seed: bs.streams.permuted(s, tasks=3, length=4, seed=seed),
    "rotated": lambda s, seed: bs.streams.rotated(
        s, bs.streams.ornstein_uhlenbeck(12, mean=45.0, deviation=15.0, seed=seed)
    ),
    "missing": lambda s, seed: bs.streams.missing_labels(s, 0.5, seed=seed),
    "noise": lambda s, seed: bs.streams.covariate_noise(s, 1.0, seed=seed),
    "gradual": lambda s, seed: bs.streams.gradual(
        s, s.shuffle(seed), around=6, width=4.0, seed=seed
    ),
}


@pytest.mark.parametrize("name", DRIFTS)
def test_a_drift_is_decided_by_its_seed(name):
    one, again, other = (DRIFTS[name](images(), seed).examples for seed in (0, 0, 1))
    same = [np.array_equal(a, b, equal_nan=True) for a, b in zip(one, again, strict=True)]
    assert all(same)
    assert not all(np.array_equal(a, b, equal_nan=True) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("name", DRIFTS)
def test_a_drift_read_in_pieces_is_the_drift_read_at_once(name):
    stream = DRIFTS[name](images(), 0)
    starts = range(0, len(stream), 5)
    pieces = [np.asarray(stream.examples.x[start : start + 5]) for start in starts]
    np.testing.assert_array_equal(np.concatenate(pieces), np.asarray(stream.examples.x))
    np.testing.assert_array_equal(
        np.asarray(stream.examples.x[3]), np.asarray(stream.examples.x)[3]
    )


def test_the_source_of_a_drift_is_not_changed():
    stream = images()
    before = [np.array(field) for field in stream.examples]
    for drift in DRIFTS.values():
        np.asarray(drift(stream, 0).examples.x)
    for field, kept in zip(stream.examples, before, strict=True):
        np.testing.assert_array_equal(field, kept)


def test_rotation_is_scipys_to_a_thousandth():
    angles = np.array([0.0, 10.0, 45.0, 90.0, -30.0, 180.0, 271.5])
    stream = images(len(angles))
    turned = np.asarray(bs.streams.rotated(stream, angles).examples.x).reshape(-1, 28, 28)
    for image, angle, got in zip(stream.examples.x, angles, turned, strict=True):
        expected = scipy.ndimage.rotate(image.reshape(28, 28), angle, reshape=False, order=1)
        np.testing.assert_allclose(got, expected, atol=1e-3)


def test_permuted_tasks_hold_the_same_pixels_in_one_order_a_task():
    stream = bs.streams.permuted(images(), tasks=3, length=4, seed=0)
    before, after = images().examples.x, np.asarray(stream.examples.x)
    np.testing.assert_array_equal(after[:4], before[:4])
    np.testing.assert_array_equal(np.sort(after, axis=1), np.sort(before, axis=1))
    ranks = np.argsort(before[4])
    order = ranks[
        np.searchsorted(before[4][ranks], after[4])
    ]  # after = before[order], in one image
    np.testing.assert_array_equal(after[4:8], before[4:8, order])
    assert not np.array_equal(after[8:], before[8:, order])


def test_split_classes_are_tasks_of_their_own_labels():
    stream = bs.streams.split_classes(images(), [(2, 3), (0, 1)], length=6)
    x = images().examples.x
    np.testing.assert_array_equal(stream.examples.task, np.repeat([0, 1], 6))
    np.testing.assert_array_equal(stream.examples.y, [0, 1] * 6)
    np.testing.assert_array_equal(stream.examples.x[0], x[2])
    with pytest.raises(ValueError, match=r"^stream must have at least 7 examples"):
        bs.streams.split_classes(images(), [(2, 3)], length=7)


def test_an_ornstein_uhlenbeck_path_has_its_stationary_spread():
    """The variance of dA = θ(μ − A)dt + σ dB tends to σ²/(2θ)."""
    ends = [
        bs.streams.ornstein_uhlenbeck(500, mean=45.0, deviation=15.0, seed=seed)[-1]
        for seed in range(2000)
    ]
    expected = 15.0**2 / 20
    assert abs(np.mean(ends) - 45) < 5 * np.sqrt(expected / 2000)
    # 5 standard errors, and 2% for the steps of the discrete path.
    assert abs(np.var(ends) / expected - 1) < 5 * np.sqrt(2 / 2000) + 0.02


def test_mixtures_start_as_one_stream_and_end_as_the_other():
    one, other = images(), images().shuffle(3)
    mixed = bs.streams.abrupt(one, other, at=5).examples
    np.testing.assert_array_equal(np.asarray(mixed.x)[:5], one.examples.x[:5])
    np.testing.assert_array_equal(np.asarray(mixed.x)[5:], other.examples.x[5:])
    np.testing.assert_array_equal(mixed.task, [0] * 5 + [1] * 7)


def test_a_lazy_stream_runs_like_the_arrays_it_stands_for():
    stream = bs.streams.rotated(images(), np.linspace(0, 90, 12))
    whole = bs.Stream(bs.Example(*map(np.asarray, stream.examples)))
    learner = bs.vdekf(bs.models.mlp([784, 4, 4]), bs.likelihoods.categorical())
    means = [
        learner.mean(bs.run(learner, learner.init(jax.random.key(0)), source)[0])
        for source in (stream, whole, iter(stream))
    ]
    np.testing.assert_array_equal(means[0], means[1])
    np.testing.assert_array_equal(means[0], means[2])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: bs.streams.repeat(s, 0, seed=0), "passes must be a whole number, 1 or above"),
        (lambda s: bs.streams.missing_labels(s, 1.5, seed=0), "fraction must be a number from 0"),
        (lambda s: bs.streams.rotated(s, np.zeros(99)), "stream must have at least 99 examples"),
        (lambda s: bs.streams.rotated(images(2, 3).select([0]), [0.0, 1.0]), "at least 2"),
        (lambda s: datasets.uci("enrgy"), "name must be one of boston"),
        (lambda s: datasets.mnist("valid"), "part must be 'train' or 'test', got 'valid'"),
    ],
)
def test_bad_arguments_are_refused_in_a_sentence(call, message):
    with pytest.raises(ValueError, match=message):
        call(images())


def test_a_missing_data_set_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setenv("BAYESTREAM_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(uci_download, "BASE", "http://localhost:9/")
    with pytest.raises(ConnectionError, match=r"uci/energy could not be downloaded .* put its"):
        bs.streams.uci("energy")
    assert datasets.where("uci/energy") is None


def small_uci(folder, monkeypatch):
    """A set of two splits where a set would be downloaded from, in another format than ours."""
    theirs = folder / "web" / "small" / "data"
    theirs.mkdir(parents=True)
    for name in uci_download.files(2):
        numbers = {"data": np.arange(12.0).reshape(4, 3), "features": [0, 1], "target": [2]}
        kind = name.removesuffix(".txt").removeprefix("index_")
        rows = [0, 1, 2] if "train" in kind else [3]
        np.savetxt(theirs / name, numbers.get(kind, rows), fmt="%.6e")
    expected = uci_download.fingerprint(theirs)
    monkeypatch.setenv("BAYESTREAM_DATA", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    monkeypatch.setattr(uci_download, "BASE", (folder / "web").as_uri() + "/")
    monkeypatch.setitem(uci_download.SETS, "yacht", ("small", 2, expected))
    return theirs


def test_a_uci_set_is_downloaded_once_and_whole(monkeypatch, tmp_path):
    theirs = small_uci(tmp_path, monkeypatch)
    assert len(bs.streams.uci("yacht", split=1).train) == 3
    (theirs / "data.txt").unlink()
    assert len(bs.streams.uci("yacht", split=1).test) == 1


@pytest.mark.parametrize("damage", ["changed", "missing"])
def test_a_damaged_uci_set_never_passes_as_whole(monkeypatch, tmp_path, damage):
    theirs = small_uci(tmp_path, monkeypatch)
    if damage == "changed":
        (theirs / "index_train_1.txt").write_text("0\n1\n")
    else:
        (theirs / "index_train_1.txt").unlink()
    with pytest.raises(ConnectionError, match="could not be downloaded"):
        bs.streams.uci("yacht")
    assert datasets.where("uci/yacht") is None
    assert list((tmp_path / "cache" / "bayestream" / "uci").iterdir()) == []


@needs_data
def test_the_fingerprint_of_a_uci_set_is_that_of_its_numbers():
    folder = datasets.where("uci/yacht")
    assert folder is not None
    assert uci_download.fingerprint(folder) == uci_download.SETS["yacht"][2]


def test_a_failed_download_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setenv("BAYESTREAM_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(datasets._IMAGES, "mnist", "http://localhost:9/")
    monkeypatch.setattr(datasets, "_PACKAGED", tmp_path)
    with pytest.raises(ConnectionError, match=r"could not be downloaded .*; fetch it by hand into"):
        bs.streams.mnist()
    assert datasets.where("mnist") is None


def test_a_file_cut_short_never_passes_as_whole(monkeypatch, tmp_path):
    monkeypatch.setenv("BAYESTREAM_DATA", str(tmp_path))
    folder = tmp_path / "mnist"
    folder.mkdir()
    header = bytes([0, 0, 8, 3]) + b"".join(n.to_bytes(4, "big") for n in (2, 28, 28))
    for name, content in {
        "train-images-idx3-ubyte.gz": gzip.compress(header + bytes(2 * 784))[:-9],
        "train-labels-idx1-ubyte.gz": gzip.compress(bytes([0, 0, 8, 1, 0, 0, 0, 2, 1, 2])),
        "t10k-images-idx3-ubyte.gz": gzip.compress(header + bytes(784)),
        "t10k-labels-idx1-ubyte.gz": gzip.compress(bytes([0, 0, 8, 1, 0, 0, 0, 2, 1, 2])),
    }.items():
        (folder / name).write_bytes(content)
    for part in ("train", "test"):
        with pytest.raises(ValueError, match=r"must be a whole IDX file: .*; delete it"):
            bs.streams.mnist(part)


@needs_data
def test_data_sets_have_the_papers_sizes():
    sizes = {"boston": (455, 51, 13), "energy": (691, 77, 8), "yacht": (277, 31, 6)}
    for name, (train, test, inputs) in sizes.items():
        split = bs.streams.uci(name, split=19)
        assert (len(split.train), len(split.test)) == (train, test)
        assert split.train.examples.x.shape[1] == inputs
        np.testing.assert_allclose(split.train.examples.y.mean(), 0, atol=1e-9)
        np.testing.assert_allclose(split.train.examples.y.std(), 1, rtol=1e-9)
    digits = bs.streams.mnist("test", flat=False)
    assert digits.examples.x.shape == (10_000, 28, 28, 1)
    assert 0 <= digits.examples.x.min() < digits.examples.x.max() == 1
    np.testing.assert_array_equal(np.unique(digits.examples.y), np.arange(10))
