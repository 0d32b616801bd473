"""A folder of checkpoints: each file is whole or absent, the newest that can be read is taken."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import NDArray

from bayestream.running.envelope import (
    Arrays,
    CheckpointError,
    DamagedCheckpointError,
    packed,
    unpacked,
)

_SUFFIX = ".safetensors"
_UNFINISHED = ".unfinished"


class File(NamedTuple):
    """A checkpoint as it was read: what is in it, not yet for any learner."""

    path: Path
    arrays: dict[str, NDArray[Any]]
    header: dict[str, Any]


def write(path: Path, arrays: Arrays, header: dict[str, Any]) -> None:
    """Write a file that is there in full or not at all, whenever the process or the machine ends.

    It is written beside its place, and renamed when the disk has it: a rename replaces at once. The
    folder is synchronised too, or the new name could be lost with the power.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}{_UNFINISHED}")
    with unfinished.open("wb") as file:
        file.write(packed(arrays, header))
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write_step(folder: Path, step: int, arrays: Arrays, header: dict[str, Any], keep: int) -> Path:
    """The checkpoint of a step, under its name; of those before it, the last `keep - 1` stay."""
    path = folder / f"step-{step:09d}{_SUFFIX}"
    write(path, arrays, header)
    for old in files(folder)[keep:]:
        old.unlink(missing_ok=True)
    for left in folder.glob(f".step-*{_UNFINISHED}"):  # of a process that was killed
        left.unlink(missing_ok=True)
    return path


def files(folder: Path) -> list[Path]:
    """The checkpoints of a folder, newest first."""
    return sorted(folder.glob(f"step-*{_SUFFIX}"), key=lambda path: path.name, reverse=True)


def read(path: str | Path) -> File:
    """A checkpoint file, or the newest of a folder that is not damaged."""
    path = Path(path)
    if not path.is_dir():
        return _read_file(path)
    damaged: list[DamagedCheckpointError] = []
    for newest in files(path):
        try:
            found = _read_file(newest)
        except DamagedCheckpointError as error:
            damaged.append(error)
            continue
        for error in damaged:
            said = f"{error} It was skipped; {newest.name} before it is used."
            warnings.warn(said, RuntimeWarning, stacklevel=2)
        return found
    if damaged:
        raise DamagedCheckpointError(
            f"{damaged[0]} No other checkpoint in {path} can be read; to begin anew, remove them."
        )
    raise FileNotFoundError(f"{path} must hold checkpoints (step-….safetensors), and has none.")


def _read_file(path: Path) -> File:
    if not path.exists():
        raise FileNotFoundError(f"{path} must be a checkpoint or a folder, and does not exist.")
    try:
        return File(path, *unpacked(path.read_bytes()))
    except CheckpointError as error:
        raise type(error)(f"{path} {error}.") from None
