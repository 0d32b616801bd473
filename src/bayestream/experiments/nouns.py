"""What an experiment is made of: series of trials, and claims to be judged by them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from bayestream.evaluation import Results
from bayestream.experiments.verdicts import Claim

Scale = Literal["smoke", "quick", "full"]
SCALES: tuple[Scale, ...] = ("smoke", "quick", "full")
Rows = Sequence[Mapping[str, Any]]  # of a table: a name and a value each


class Series(NamedTuple):
    """Trials of one method in one setting: a line of a picture, or a cell of a table."""

    experiment: str
    world: str  # what is learnt: "energy x10", "stationary"
    line: str  # what learns: "lofi-10"
    settings: Mapping[str, Any]  # plain data, all that a trial depends on but its number
    trials: int
    seconds: float  # a trial on one core of a small machine, roughly

    @property
    def name(self) -> str:
        """A path for its results; other settings have another name.

        >>> Series("uci", "energy x1", "lofi-1", {"rank": 1}, 20, 1.0).name
        'uci/energy-x1/lofi-1-26efa3fa'
        """
        described = json.dumps(self.settings, sort_keys=True)
        digest = hashlib.blake2b(described.encode(), digest_size=4).hexdigest()
        parts = (self.experiment, self.world, f"{self.line}-{digest}")
        return "/".join(re.sub(r"[^\w.-]+", "-", part) for part in parts)


def affordable(series: Sequence[Series], scale: Scale, seconds: float) -> list[Series]:
    """What a scale has time for: `quick` leaves out series whose trials take so long, or longer."""
    return [each for each in series if scale != "quick" or each.seconds < seconds]


class Experiment(NamedTuple):
    """A group of the paper's figures and tables.

    What was found goes to `draw`, `tables` and `claims` as one table, with a column for the world.
    """

    id: str
    title: str
    about: str  # what is learnt, what is drawn, in a few sentences
    series: Callable[[Scale], list[Series]]
    trial: Callable[[Series, int], Results]  # one seed, one result
    draw: Callable[[Results, Path], list[Path]]  # pictures, written to a folder
    tables: Callable[[Results], Mapping[str, Rows]]
    claims: Sequence[Claim]
    captions: Mapping[str, str] = MappingProxyType({})  # of pictures, by the names of their files
