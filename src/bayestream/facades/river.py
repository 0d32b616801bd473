"""River's regressor and classifier over any of our learners."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from bayestream.checks import check_whole
from bayestream.facades import frames
from bayestream.facades.features import Features
from bayestream.facades.online import Online, Task, settings
from bayestream.forecasts import GaussianForecast
from bayestream.streams.statistics import Statistics

try:
    from river import base

    from bayestream.facades.river_forecasts import NumberForecast
except ImportError as error:
    raise ImportError(
        "bayestream.facades.river needs river: pip install 'bayestream[river]'."
    ) from error

Row = Mapping[Any, Any]
_NOTHING_KNOWN: Any = GaussianForecast(cast(Any, np.zeros(1)), cast(Any, np.ones((1, 1))))
_LARGEST = 1e15  # standardised label: learners square it in float32


class _Shell(base.Estimator):
    """What both share: features by name, and a learner that grows with them."""

    _task: Task

    def __init__(
        self,
        hidden: int | tuple[int, ...] = 50,
        method: str | None = None,
        rank: int | None = 10,
        options: dict[str, Any] | None = None,
        max_inputs: int = 1000,
        seed: int = 0,
    ) -> None:
        check_whole("max_inputs", max_inputs, 1)
        check_whole("seed", seed, 0)
        self.hidden, self.method, self.rank = hidden, method, rank
        self.options, self.max_inputs, self.seed = options, max_inputs, seed
        self._features = Features(limit=max_inputs)
        self._online = Online(
            settings(
                self._task,
                method=method,
                hidden=hidden,
                rank=rank,
                noise=self._noise,
                options=options,
            ),
            seed=seed,
        )

    @property
    def _noise(self) -> float | None:
        return None

    @property
    def refused(self) -> int:
        """How many updates were not made, since the belief would not have stayed finite."""
        return self._online.refused

    def _learn(self, rows: Iterable[Row], ys: Iterable[Any]) -> None:
        """One after another, in blocks between which the network grows."""
        encoded: list[NDArray[np.float32]] = []
        labels: list[float] = []

        def learn() -> None:
            if encoded:
                xs = np.stack([_padded(x, self._inputs) for x in encoded])
                self._online.learn_all(xs, np.array(labels))
                encoded.clear()
                labels.clear()

        for row, y in zip(rows, ys, strict=True):
            label = self._label(y)
            x = self._features.learn(row)
            if not self._online.has_room(inputs=len(x), classes=self._outputs):
                learn()
                self._online.make_room(inputs=len(x), classes=self._outputs)
            encoded.append(x)
            labels.append(label)
        learn()

    def _learn_one(self, x: Row, y: Any) -> None:
        label = self._label(y)
        row = self._features.learn(x)
        self._online.make_room(inputs=len(row), classes=self._outputs)
        self._online.learn(_padded(row, self._inputs), label)

    def _label(self, y: Any) -> float:
        raise NotImplementedError

    @property
    def _outputs(self) -> int:
        return 1

    def _read(self, x: Row) -> NDArray[np.float32]:
        return self._features.read(x, size=self._inputs)

    @property
    def _inputs(self) -> int:
        return 0 if self._online.size is None else self._online.size.inputs

    def _read_rows(self, frame: Any) -> NDArray[np.float32]:
        rows = [self._read(row) for row in frames.rows(frame)]
        return np.stack(rows) if rows else np.zeros((0, self._inputs), np.float32)


class BayesNetRegressor(_Shell, base.MiniBatchRegressor):
    """A Bayesian neural network that learns numbers online, with settings that tune themselves.

    Features are numbers, booleans and strings of any names; they may come and go, and the network
    grows with them. Features and targets are standardised with what has been learnt so far. To
    predict changes nothing.

    Args:
        hidden: units of the hidden layer, or of each of several.
        method: one of `bs.estimators.REGISTRY`; None averages over settings of LO-FI.
        rank: that of LO-FI and its kin. None, without a method, keeps the whole covariance of
            small networks: better where rows are few, and slower.
        noise: variance of the noise, of a standardised target; None learns it from the stream.
        options: further arguments of the method, such as `{"prior_precision": 1.0}`.
        max_inputs: how many there may be, one for each string; what comes later is not seen.
        seed: of all that is random.

    >>> from river import datasets, evaluate, metrics
    >>> model = BayesNetRegressor(hidden=5, method="lofi")
    >>> stream = datasets.TrumpApproval().take(200)
    >>> evaluate.progressive_val_score(stream, model, metrics.MAE()).get() < 2
    True
    """

    _task = "regression"

    def __init__(
        self,
        hidden: int | tuple[int, ...] = 50,
        method: str | None = None,
        rank: int | None = 10,
        noise: float | None = None,
        options: dict[str, Any] | None = None,
        max_inputs: int = 1000,
        seed: int = 0,
    ) -> None:
        self.noise = noise
        super().__init__(hidden, method, rank, options, max_inputs, seed)
        self._labels = Statistics()

    @property
    def _noise(self) -> float | None:
        return self.noise

    def learn_one(self, x: Row, y: Any) -> None:
        """Learn from one example; a y of None or NaN is one that is missing."""
        self._learn_one(x, y)

    def learn_many(self, X: Any, y: Any) -> None:
        """Learn from the rows of a frame, one after another."""
        self._learn(frames.rows(X), y)

    def predict_one(self, x: Row, with_dist: bool = False) -> Any:
        """The mean of the forecast, or all of it; 0 before there was an example."""
        if self._online.size is None:
            return NumberForecast(_NOTHING_KNOWN, 0.0, 1.0, 0) if with_dist else 0.0
        row, centre, scale = self._read(x), self._labels.mean, self._labels.deviation
        if with_dist:
            forecast = self._online.forecast(row)
            return NumberForecast(forecast, centre, scale, self._labels.count, self.seed)
        return centre + scale * float(self._online.mean(row))

    def predict_many(self, X: Any) -> Any:
        """The means of the forecasts of a frame's rows."""
        if self._online.size is None:
            return frames.series(X, np.zeros(len(X)))
        means = self._online.mean_of_all(self._read_rows(X)).astype(float)
        return frames.series(X, self._labels.mean + self._labels.deviation * means)

    def _label(self, y: Any) -> float:
        value = math.nan if y is None else float(y)
        if math.isfinite(value):
            self._labels.add(value)
            return self._labels.standardise(value, at_most=_LARGEST)
        return math.nan


class BayesNetClassifier(_Shell, base.MiniBatchClassifier):
    """A Bayesian neural network that learns classes online, with settings that tune themselves.

    Classes may be anything that can be a key; new ones may come at any time, and the network grows
    with them. Otherwise as `BayesNetRegressor`.

    Args:
        hidden: units of the hidden layer, or of each of several.
        method: one of `bs.estimators.REGISTRY`; None averages over settings of LO-FI.
        rank: that of LO-FI and its kin. None, without a method, keeps the whole covariance of
            small networks: better where rows are few, and slower.
        options: further arguments of the method, such as `{"prior_precision": 1.0}`.
        max_inputs: how many there may be, one for each string; what comes later is not seen.
        seed: of all that is random.

    >>> model = BayesNetClassifier(hidden=5, method="lofi")
    >>> for size, kind in 30 * [(1, "mouse"), (50, "dog")]:
    ...     model.learn_one({"size": size}, kind)
    >>> model.predict_one({"size": 40})
    'dog'
    """

    _task = "classification"

    def __init__(
        self,
        hidden: int | tuple[int, ...] = 50,
        method: str | None = None,
        rank: int | None = 10,
        options: dict[str, Any] | None = None,
        max_inputs: int = 1000,
        seed: int = 0,
    ) -> None:
        super().__init__(hidden, method, rank, options, max_inputs, seed)
        self._classes: dict[Hashable, int] = {}

    @property
    def _multiclass(self) -> bool:
        return True

    @property
    def _outputs(self) -> int:
        return len(self._classes)

    def learn_one(self, x: Row, y: Any) -> None:
        """Learn from one example; a y of None is one that is missing."""
        self._learn_one(x, y)

    def learn_many(self, X: Any, y: Any) -> None:
        """Learn from the rows of a frame, one after another."""
        self._learn(frames.rows(X), y)

    def predict_proba_one(self, x: Row, **kwargs: Any) -> dict[Any, float]:
        """The probability of each class seen so far."""
        if kwargs:
            raise TypeError(f"predict_proba_one takes x alone, got {', '.join(kwargs)}.")
        if not self._classes:
            return {}
        found = self._online.mean(self._read(x)).tolist()[: len(self._classes)]
        total = sum(found)  # 1, to the digits of a float32
        return {label: p / total for label, p in zip(self._classes, found, strict=True)}

    def predict_many(self, X: Any) -> Any:
        """The most probable class of each row of a frame."""
        labels = list(self._classes)
        if not labels:
            return frames.series(X, [None] * len(X))
        best = np.argmax(self._probabilities(X), axis=1)
        return frames.series(X, [labels[number] for number in best])

    def predict_proba_many(self, X: Any) -> Any:
        """The classes' probabilities, a column each."""
        found = self._probabilities(X) if self._classes else np.zeros((len(X), 0))
        return frames.like(X, {label: found[:, n] for label, n in self._classes.items()})

    def _probabilities(self, X: Any) -> NDArray[Any]:
        found = self._online.mean_of_all(self._read_rows(X)).astype(float)[:, : len(self._classes)]
        return found / found.sum(axis=1, keepdims=True)

    def _label(self, y: Any) -> float:
        if y is None or y != y:  # NaN
            return math.nan
        return float(self._classes.setdefault(y, len(self._classes)))


def _padded(x: NDArray[np.float32], size: int) -> NDArray[np.float32]:
    if len(x) == size:
        return x
    longer = np.zeros(size, np.float32)
    longer[: len(x)] = x
    return longer
