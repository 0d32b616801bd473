"""What a fleet of learners knows, as plain data: to be saved, and to go on from."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bayestream.types import State

Name = str | int  # of a sensor, a user, a machine


class FleetState(NamedTuple):
    """All learners of a fleet, in the order in which their keys came."""

    keys: tuple[Name, ...]
    rows: Any  # (n,): how many each has learnt from
    learners: State  # each one's, with a leading axis
    start: State  # where a new one begins
    pool: State | None = None  # or here, if there is one: a learner of all rows


def name_of(key: Any) -> Name | None:
    """A key as a string or a whole number; None where it is neither, or empty.

    >>> [name_of(key) for key in ("a", np.int64(3), float("nan"), None, "")]
    ['a', 3, None, None, None]
    """
    key = key.item() if isinstance(key, np.generic) else key
    known = isinstance(key, str | int) and not isinstance(key, bool) and key != ""
    return key if known else None
