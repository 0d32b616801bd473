"""Scikit-learn's regressor and classifier over any of our learners."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any, Self

import jax
import numpy as np
from numpy.typing import NDArray

from bayestream.checks import check_fraction, check_whole
from bayestream.facades.moments import Moments
from bayestream.facades.online import Online, Task, settings

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.utils import check_random_state, column_or_1d
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise ImportError(
        "bayestream.facades.sklearn needs scikit-learn: pip install 'bayestream[sklearn]'."
    ) from error

Floats = NDArray[np.float64]


class _Shell(BaseEstimator):
    """What both share: standardised inputs, weights, and a learner."""

    _task: Task

    def __init__(
        self,
        hidden: int | Sequence[int] = 50,
        method: str | None = None,
        rank: int | None = 10,
        options: Mapping[str, Any] | None = None,
        random_state: Any = None,
    ) -> None:
        self.hidden = hidden
        self.method = method
        self.rank = rank
        self.options = options
        self.random_state = random_state

    def _begin(self, noise: float | None = None, known: int = 0) -> None:
        """Forget everything."""
        chosen = settings(
            self._task,
            method=self.method,
            hidden=self.hidden,
            rank=self.rank,
            noise=noise,
            options=self.options,
        )
        self._random = check_random_state(self.random_state)
        seed = int(self._random.randint(2**31 - 1))
        self._online = Online(chosen._replace(known=known), seed=seed)
        self._inputs = Moments()

    @property
    def refused(self) -> int:
        """How many updates were not made, since the belief would not have stayed finite."""
        check_is_fitted(self, "_online")
        return self._online.refused

    def _checked(self, X: Any, y: Any, sample_weight: Any, *, reset: bool) -> tuple[Any, ...]:
        numeric = self._task == "regression"
        rows, y = validate_data(self, X, y, reset=reset, dtype=np.float64, y_numeric=numeric)
        return rows, column_or_1d(y, warn=True), _weights(sample_weight, len(rows))

    def _learn(self, X: Floats, y: NDArray[Any], weights: Floats) -> None:
        """One row after another, each as often as its weight says."""
        copies, powers = _copies(weights)
        self._online.learn_all(self._inputs.standardised(X)[copies], y[copies], powers)

    def _read(self, X: Any) -> NDArray[np.float32]:
        check_is_fitted(self, "_online")
        rows: Any = validate_data(self, X, reset=False, dtype=np.float64)
        return self._inputs.standardised(rows)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_online")


class BayesNetRegressor(RegressorMixin, _Shell):
    """A Bayesian neural network that learns numbers in one pass, and tunes its settings.

    `fit` draws an order of the rows and learns them one by one; `partial_fit` goes on with more, in
    the order they come. Inputs and target are standardised with all that has been given so far.

    A row of weight w is learnt w times in succession, exactly as if it were there w times, and for
    what is left of a fraction once more with its likelihood to that power. `fit` joins equal rows
    first, so that neither their order nor how they are written down matters.

    Args:
        hidden: units of the hidden layer, or of each of several.
        method: one of `bs.estimators.REGISTRY`; None averages over settings of LO-FI.
        rank: that of LO-FI and its kin. None, without a method, keeps the whole covariance of
            small networks: better where rows are few, and slower.
        noise: variance of the noise, of a standardised target; None learns it from the data.
        options: further arguments of the method, such as `{"prior_precision": 1.0}`.
        random_state: of the weights' start and the order of `fit`.

    >>> X = np.linspace(-2, 2, 200)[:, None]
    >>> model = BayesNetRegressor(hidden=8, method="lofi", random_state=0).fit(X, np.sin(X[:, 0]))
    >>> mean, deviation = model.predict(X, return_std=True)
    >>> bool(np.abs(mean - np.sin(X[:, 0])).mean() < 0.2), model.predict_interval(X).shape
    (True, (200, 2))
    """

    _task = "regression"

    def __init__(
        self,
        hidden: int | Sequence[int] = 50,
        method: str | None = None,
        rank: int | None = 10,
        noise: float | None = None,
        options: Mapping[str, Any] | None = None,
        random_state: Any = None,
    ) -> None:
        super().__init__(hidden, method, rank, options, random_state)
        self.noise = noise

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn from these rows and nothing before them."""
        rows, y, weights = self._checked(X, y, sample_weight, reset=True)
        self._start()
        return self._fit(*_joined(rows, y.astype(float), weights, self._random))

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Go on with more rows, in their order."""
        first = not hasattr(self, "_online")
        rows, y, weights = self._checked(X, y, sample_weight, reset=first)
        if first:
            self._start()
        return self._fit(rows, y.astype(float), weights)

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The mean of each row's forecast; with `return_std` also its standard deviation."""
        rows = self._read(X)
        if not return_std:
            return self._units(self._online.mean_of_all(rows))
        found = self._forecasts(rows, lambda forecast: (forecast.mean, forecast.deviation))
        return self._units(found[:, 0]), float(self._targets.deviation[0]) * found[:, 1]

    def predict_interval(self, X: Any, level: float = 0.9) -> Floats:
        """The central interval (rows, 2) that holds each target with probability `level`."""
        check_fraction("level", level)
        return self._units(self._forecasts(self._read(X), lambda found: found.interval(level)))

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> Floats:
        """Draws (rows, n_samples) from each row's forecast."""
        check_whole("n_samples", n_samples, 1)
        seed = int(check_random_state(random_state).randint(2**31 - 1))
        keys = (jax.random.fold_in(jax.random.key(seed), block) for block in count())
        draws = self._forecasts(self._read(X), lambda found: found.sample(next(keys), n_samples))
        return self._units(draws)

    def _start(self) -> None:
        self._begin(self.noise)
        self._targets = Moments()

    def _fit(self, X: Floats, y: Floats, weights: Floats) -> Self:
        self._online.make_room(inputs=X.shape[1])
        self._inputs.add(X, weights)
        self._targets.add(y[:, None], weights)
        self._learn(X, self._targets.standardised(y[:, None])[:, 0], weights)
        return self

    def _units(self, standardised: NDArray[Any]) -> Floats:
        centre, scale = float(self._targets.mean[0]), float(self._targets.deviation[0])
        return centre + scale * standardised.astype(np.float64)

    def _forecasts(self, rows: NDArray[np.float32], of: Any) -> NDArray[Any]:
        """Several numbers (rows, …) of each row's forecast; `of` gives them first axis first."""
        parts = [
            np.stack([np.asarray(part)[:asked, 0] for part in of(forecast)], axis=1)
            for forecast, asked in self._online.forecast_of_all(rows)
        ]
        return np.concatenate(parts)


class BayesNetClassifier(ClassifierMixin, _Shell):
    """A Bayesian neural network that learns classes in one pass, and tunes its settings.

    Classes that `partial_fit` has not met before make the network grow; those in `classes` have a
    probability from the start. Otherwise as `BayesNetRegressor`.

    Args:
        hidden: units of the hidden layer, or of each of several.
        method: one of `bs.estimators.REGISTRY`; None averages over settings of LO-FI.
        rank: that of LO-FI and its kin. None, without a method, keeps the whole covariance of
            small networks: better where rows are few, and slower.
        options: further arguments of the method, such as `{"prior_precision": 1.0}`.
        random_state: of the weights' start and the order of `fit`.

    >>> X, y = np.array([[0.0], [1.0]] * 40), np.array(["no", "yes"] * 40)
    >>> model = BayesNetClassifier(hidden=4, method="lofi", random_state=0).fit(X, y)
    >>> model.predict([[0.1], [0.9]]).tolist()
    ['no', 'yes']
    """

    _task = "classification"

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn from these rows and nothing before them."""
        rows, y, weights = self._labelled(X, y, sample_weight, reset=True)
        self._start(np.unique(y[weights > 0]))
        kept = weights > 0
        codes = self._codes(y[kept])
        return self._fit(*_joined(rows[kept], codes, weights[kept], self._random))

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Go on with more rows, in their order; `classes` are some that may come."""
        first = not hasattr(self, "_online")
        rows, y, weights = self._labelled(X, y, sample_weight, reset=first)
        if first:
            self._start(np.unique(y) if classes is None else np.unique(classes))
        return self._fit(rows, self._codes(y), weights)

    def predict_proba(self, X: Any) -> Floats:
        """Probabilities (rows, classes), in the order of `classes_`."""
        rows = self._read(X)
        found = self._online.mean_of_all(rows).astype(np.float64)[:, np.argsort(self._known)]
        return found / found.sum(axis=1, keepdims=True)

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of each row."""
        best = np.argmax(self.predict_proba(X), axis=1)
        return self.classes_[best]

    def _labelled(self, X: Any, y: Any, sample_weight: Any, *, reset: bool) -> tuple[Any, ...]:
        rows, y, weights = self._checked(X, y, sample_weight, reset=reset)
        check_classification_targets(y)
        return rows, y, weights

    def _start(self, classes: NDArray[Any]) -> None:
        self._begin(known=len(classes))
        self._known = classes  # in the order of the outputs
        self.classes_ = classes

    def _codes(self, y: NDArray[Any]) -> Floats:
        """The outputs of the classes, of which there may be new ones."""
        new = np.setdiff1d(y, self._known)
        if len(new):
            self._known = np.concatenate([self._known, new])
            self.classes_ = np.unique(self._known)
        order = np.argsort(self._known)
        return order[np.searchsorted(self._known[order], y)].astype(float)

    def _fit(self, X: Floats, y: Floats, weights: Floats) -> Self:
        self._online.make_room(inputs=X.shape[1], classes=len(self._known))
        self._inputs.add(X, weights)
        self._learn(X, y, weights)
        return self


def _weights(sample_weight: Any, rows: int) -> Floats:
    if sample_weight is None:
        return np.ones(rows)
    weights = np.asarray(sample_weight, np.float64)
    if weights.shape != (rows,):
        raise ValueError(
            f"sample_weight must have shape ({rows},), a number a row, got {weights.shape}."
        )
    if not (np.isfinite(weights).all() and (weights >= 0).all()):
        raise ValueError("sample_weight must hold finite numbers that are not negative.")
    if not weights.any():
        raise ValueError("sample_weight must not be zero for every row: nothing would be learnt.")
    return weights


def _joined(X: Floats, y: Floats, weights: Floats, random: Any) -> tuple[Floats, Any, Any]:
    """Equal rows as one with the sum of their weights, in an order drawn at random.

    First in the order of their numbers: what is drawn then does not depend on the one they had.
    """
    rows, which = np.unique(np.column_stack([X, y]), axis=0, return_inverse=True)
    total = np.bincount(which.reshape(-1), weights)
    order = random.permutation(np.flatnonzero(total > 0))
    return rows[order, :-1], rows[order, -1], total[order]


def _copies(weights: Floats) -> tuple[NDArray[np.intp], Floats]:
    """Each row's number as often as its weight says, and the power of each: 1, or what is left."""
    times = np.ceil(weights).astype(np.intp)
    rows = np.repeat(np.arange(len(weights)), times)
    powers = np.ones(len(rows))
    last = np.cumsum(times) - 1
    left = weights - np.floor(weights)
    some = left > 0
    powers[last[some]] = left[some]
    return rows, powers
