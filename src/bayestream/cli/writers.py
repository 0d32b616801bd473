"""How forecasts are written and scored: of numbers, and of classes by their names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, count, islice
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from bayestream.averaging import AveragedState
from bayestream.cli.mixtures import distribution, log_density, quantile
from bayestream.cli.sources import Source
from bayestream.evaluation.changes import surprise_of_classes, surprise_of_numbers
from bayestream.forecasts import (
    AveragedForecast,
    MixtureForecast,
    StudentTForecast,
    predictive,
)
from bayestream.streams.encoder import Encoded
from bayestream.types import Estimator, Example, State

_NOT_FINITE = "not finite"  # where a forecast should stand
# A method (the learner's own, if empty) and a metric, and the power it is averaged in.
Losses = Mapping[tuple[str, str], float]
SHARES = ("coverage", "confidence")  # among them: to be right rather than small


class Written(NamedTuple):
    """What there is to say of some forecasts."""

    lines: list[Any]  # for the file
    losses: NDArray[Any]  # of each row, in the order of the writer's `losses`
    surprise: NDArray[Any]  # of each row; NaN where nothing can be said


class Writer(Protocol):
    """How forecasts of one kind are written and scored."""

    header: Sequence[str]
    losses: Losses

    def to_json(self) -> Any:
        """What it remembers of the rows so far, in plain JSON."""
        ...

    def restore(self, saved: Any) -> None:
        """Be the writer that said so."""
        ...

    def write(self, rows: Sequence[Encoded], values: Any) -> Written:
        """The rows' forecasts as `values` has them."""
        ...


class Numbers:
    """Forecasts of a number, with its deviation and the interval that holds a share of targets."""

    def __init__(self, level: float = 0.9) -> None:
        self._ends = (0.5 - level / 2, 0.5 + level / 2)
        self.header: Sequence[str] = ("place", "target", "forecast", "deviation", "low", "high")
        self.losses: Losses = {
            ("", "rmse"): 2,
            ("running mean", "rmse"): 2,
            ("", "nlpd"): 1,
            ("", "coverage"): 1,
        }

    def to_json(self) -> Any:
        """Nothing."""
        return []

    def restore(self, saved: Any) -> None:
        """From nothing."""

    def write(self, rows: Sequence[Encoded], values: Any) -> Written:
        """In the units of the target; blank until those are known."""
        centre = np.array([row.centre for row in rows])
        scale = np.array([row.scale for row in rows])
        ends = [quantile(end, values["parts"]) for end in self._ends]
        standard = np.stack([values["mean"], *ends])
        mean, low, high = centre + scale * standard
        deviation = scale * values["deviation"]
        target = np.array([np.nan if row.target is None else row.target for row in rows], float)
        standardised = (target - centre) / scale
        nlpd = -log_density(standardised, values["parts"]) + np.log(scale)
        numbers = np.stack([mean, deviation, low, high], axis=1)
        known = np.atleast_1d(np.isfinite(standard).all(axis=0))
        lines = [
            (
                row.place,
                "" if row.target is None else row.target,
                *(map(_short, line) if finite else [_NOT_FINITE] * len(line)),
            )
            for row, line, finite in zip(rows, numbers, known, strict=True)
        ]
        covered = (low <= target) & (target <= high)
        losses = np.stack([np.abs(target - mean), np.abs(target - centre), nlpd, covered], axis=1)
        surprise = surprise_of_numbers(distribution(standardised, values["parts"]))
        return Written(lines, _scored(losses, ~np.isnan(target) & ~np.isnan(scale)), surprise)


class Labels:
    """Forecasts of a class, with the probability of each."""

    def __init__(self, source: Source) -> None:
        wrong = "misclassification"
        self.losses: Losses = {
            ("", wrong): 1,
            ("most frequent class", wrong): 1,
            ("", "nlpd"): 1,
            ("", "confidence"): 1,
        }
        self._source = source
        self._counts = np.zeros(source.outputs)
        # A header cannot change: classes that the network has grown for share the last column.
        self._shown, self._more = source.outputs, source.more_classes
        columns = probabilities_of(source.labels, source.outputs, more=self._more)
        self.header: Sequence[str] = ("place", "target", "forecast", "probability", *columns)

    def to_json(self) -> Any:
        """How many there have been of each class."""
        return self._counts.tolist()

    def restore(self, saved: Any) -> None:
        """As many as it says."""
        self._counts = np.array(saved)

    def write(self, rows: Sequence[Encoded], values: Any) -> Written:
        """Classes by their names, in the order in which they first appeared."""
        y = np.array([row.y for row in rows])
        known = ~np.isnan(y)
        label = np.where(known, y, 0).astype(int)
        found = values["probabilities"]
        # A class that the network has no output for, which is not learnt from, has none.
        lacking = max(0, int(label.max()) + 1 - found.shape[1])
        probabilities: NDArray[Any] = np.pad(found, ((0, 0), (0, lacking)))
        self._counts = np.pad(self._counts, (0, max(0, probabilities.shape[1] - len(self._counts))))
        finite = np.atleast_1d(np.isfinite(probabilities).all(axis=1))
        names = [*self._source.names]  # a row may name those before it alone
        best = probabilities.argmax(axis=1)
        lines = [
            (
                row.place,
                "" if row.target is None else row.target,
                _class(names, top, row.classes) if sure else _NOT_FINITE,
                *map(_short, (line[top], *self._columns(line))),
            )
            for row, top, line, sure in zip(rows, best, probabilities, finite, strict=True)
        ]
        frequent = np.empty(len(rows), int)
        for index in range(len(rows)):
            frequent[index] = self._counts.argmax()
            self._counts[label[index]] += known[index]
        chance = probabilities[np.arange(len(rows)), label]
        chance = np.where(chance < 1e-38, 1e-38, chance)  # NaN stays
        wrong = (best != label) | ~finite
        confidence = np.where(finite, probabilities.max(axis=1), 0.0)
        losses = np.stack([wrong, frequent != label, -np.log(chance), confidence], axis=1)
        surprise = np.where(known, surprise_of_classes(probabilities, label), np.nan)
        return Written(lines, _scored(losses, known), surprise)

    def _columns(self, line: NDArray[Any]) -> list[float]:
        later = [line[self._shown :].sum()] if self._more else []
        return [*line[: self._shown], *later]


def probabilities_of(labels: Sequence[str], outputs: int, *, more: bool = False) -> list[str]:
    """Names for the columns of so many classes, of which the first are known, and for any more.

    >>> probabilities_of(["no", "yes"], 4)
    ['p_no', 'p_yes', 'p_new1', 'p_new2']
    >>> probabilities_of(["no", "yes"], 3, more=True)
    ['p_no', 'p_yes', 'p_new1', 'p_later']
    """
    names = [f"p_{label}" for label in labels]
    spare = (f"p_new{number}" for number in count(1))
    names = [*names, *islice((s for s in spare if s not in names), outputs - len(names))]
    later = chain(["p_later"], (f"p_later{number}" for number in count(1)))
    return [*names, *([next(s for s in later if s not in names)] if more else [])]


def record(estimator: Estimator, state: State, example: Example) -> dict[str, Any]:
    """What a journal needs of a forecast: of classes the probabilities, of numbers the spread."""
    found = predictive.default(estimator, state, example.x)
    weights = {"weights": state.weights} if isinstance(state, AveragedState) else {}
    if estimator.likelihood(state).name == "categorical":
        return {"probabilities": found.mean, **weights}
    numbers: Any = found
    return {
        "mean": found.mean[0],
        "deviation": jnp.sqrt(numbers.covariance[0, 0]),
        "parts": _parts(numbers),
        **weights,
    }


def _parts(forecast: Any) -> Any:
    """Weights, means, scales and degrees of freedom of the t distributions it is a mixture of."""
    if isinstance(forecast, AveragedForecast):
        parts = [jax.vmap(lambda part: _parts(part)[0, 1:])(part) for part in forecast.parts]
        return jnp.column_stack([forecast.weights, jnp.concatenate(parts)])
    if isinstance(forecast, MixtureForecast):
        forecast = forecast.alone()
    if isinstance(forecast, StudentTForecast):
        scale, dof = forecast.scale[0], forecast.dof
    else:
        scale, dof = jnp.sqrt(forecast.covariance[0, 0]), jnp.inf
    return jnp.stack(
        [jnp.ones_like(scale), forecast.mean[0], scale, jnp.asarray(dof, scale.dtype)]
    )[None]


def _class(names: Sequence[str], top: int, seen: int) -> str:
    return names[top] if top < seen else "a class not seen yet"


def _scored(losses: NDArray[Any], known: NDArray[Any]) -> NDArray[Any]:
    """NaN where nothing can be said yet; infinite where the forecast is not a number."""
    finite = np.where(np.isnan(losses), np.inf, losses)
    return np.where(known[:, None], finite, np.nan)


def _short(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.6g}"
