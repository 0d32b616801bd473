"""A checkpoint file: named arrays and JSON in safetensors, under a checksum of every byte."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

FORMAT = "bayestream checkpoint"
VERSION = 1  # of the format; a reader takes its own and older ones
_NO_CHECKSUM = "0" * 64  # what stands in its place while it is computed

Arrays = Mapping[str, NDArray[Any]]


class CheckpointError(ValueError):
    """A checkpoint that cannot be used here: of another learner, or of a newer version."""


class DamagedCheckpointError(CheckpointError):
    """A file that is not as it was written: cut off, changed, or no checkpoint at all."""


def packed(arrays: Arrays, header: Mapping[str, Any]) -> bytes:
    """The content of a file that holds these arrays and this header, which is plain JSON.

    >>> content = packed({"a": np.arange(3.0)}, {"step": 7})
    >>> read, header = unpacked(content)
    >>> read["a"].tolist(), header
    ([0.0, 1.0, 2.0], {'step': 7})
    >>> unpacked(content[:-1])
    Traceback (most recent call last):
    bayestream.running.envelope.DamagedCheckpointError: is cut off
    """
    metadata = {
        "format": FORMAT,
        "version": str(VERSION),
        "header": json.dumps(header, allow_nan=False, sort_keys=True),
        "checksum": _NO_CHECKSUM,
    }
    # The format is of C order; `ascontiguousarray` would make vectors of scalars.
    ordered = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    content = library().save(ordered, metadata)
    return content.replace(_field(_NO_CHECKSUM), _field(_checksum(content, _NO_CHECKSUM)), 1)


def unpacked(content: bytes) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """The arrays and the header. Nothing in the file is executed, and all of it is checked.

    Errors say what is wrong with the file; its name is for the caller to put in front.
    """
    metadata = _metadata(content)
    declared = metadata["checksum"]
    if declared != _checksum(content, declared):
        raise DamagedCheckpointError("is damaged: its checksum does not agree with its content")
    # From here on the file is as it was written; this order is part of the format.
    if int(metadata["version"]) > VERSION:
        raise CheckpointError(
            f"is of format {metadata['version']}, which a newer bayestream has written; "
            f"this one reads up to {VERSION}"
        )
    return library().load(content), json.loads(metadata["header"])


def _metadata(content: bytes) -> dict[str, str]:
    """What the file says of itself, if it is long enough and says that it is ours."""
    length = int.from_bytes(content[:8], "little")
    if len(content) < 8 or length > len(content) - 8:
        raise DamagedCheckpointError("is cut off, or not a checkpoint of bayestream")
    try:
        tensors = cast(dict[str, Any], json.loads(content[8 : 8 + length]))
        metadata = cast(dict[str, str], tensors.pop("__metadata__"))
        ours = metadata["format"] == FORMAT and len(metadata["checksum"].encode()) == 64
        end = max((tensor["data_offsets"][1] for tensor in tensors.values()), default=0)
        whole = 8 + length + end <= len(content)
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError):
        ours = whole = False
        metadata = {}
    if not ours:
        raise DamagedCheckpointError("is not a checkpoint of bayestream")
    if not whole:
        raise DamagedCheckpointError("is cut off")
    return metadata


def _checksum(content: bytes, declared: str) -> str:
    """SHA-256 of every byte, with zeros where the checksum itself stands."""
    before, field, after = content.partition(_field(declared))
    found = hashlib.sha256(before)
    found.update(_field(_NO_CHECKSUM) if field else b"")
    found.update(after)
    return found.hexdigest()


def _field(checksum: str) -> bytes:
    # Nowhere else: inside a JSON string, the quotes would be escaped.
    return f'"checksum":"{checksum}"'.encode()


def library() -> Any:
    """The one that checkpoints need, or an error that says how to install it."""
    try:
        from safetensors import numpy
    except ImportError:
        raise ImportError(
            "Checkpoints need safetensors: pip install 'bayestream[checkpoint]'"
        ) from None
    return numpy
