"""Forecasts of numbers as one of river's distributions."""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray
from river import proba


class NumberForecast(proba.base.ContinuousDistribution):
    """What `predict_one(x, with_dist=True)` gives: a distribution over the target, in its units.

    Most often a mixture of Student's t; the numbers are those of one moment, and learn nothing.

    >>> from bayestream.facades.river import BayesNetRegressor
    >>> model = BayesNetRegressor(hidden=5, method="lofi")
    >>> for value in range(20):
    ...     model.learn_one({"a": value}, 2.0 * value)
    >>> forecast = model.predict_one({"a": 10}, with_dist=True)
    >>> low, high = forecast.interval(0.9)
    >>> low < forecast.mean < high, round(forecast.cdf(high), 2)
    (True, 0.95)
    """

    def __init__(
        self, forecast: Any, centre: float, scale: float, count: int, seed: int | None = None
    ) -> None:
        super().__init__(seed)
        self.forecast, self.centre, self.scale, self.count = forecast, centre, scale, count

    @property
    def mean(self) -> float:
        """E[y]."""
        return self._units(self.forecast.mean)

    @property
    def sigma(self) -> float:
        """The standard deviation of y."""
        return self.scale * float(self.forecast.deviation[0])

    @property
    def mu(self) -> float:
        """The mean, by the name that river's own distributions give it."""
        return self.mean

    @property
    def mode(self) -> Any:
        """The mean: of a mixture, the most probable value is hardly another."""
        return self.mean

    @property
    def n_samples(self) -> Any:
        """How many labels it comes from."""
        return self.count

    def __call__(self, x: float) -> float:
        """The density at x."""
        return math.exp(float(self.forecast.log_density(self._standard(x)))) / self.scale

    def cdf(self, x: float) -> Any:
        """P(Y ≤ x)."""
        return float(self.forecast.cdf(self._standard(x))[0])

    def quantile(self, level: float) -> float:
        """The value below which y falls with probability `level`."""
        return self._units(self.forecast.quantile(level))

    def interval(self, level: float = 0.9) -> tuple[float, float]:
        """The central interval that holds y with probability `level`."""
        low, high = self.forecast.interval(level)
        return self._units(low), self._units(high)

    def sample(self) -> Any:
        """A value at random."""
        key = jax.random.key(self._rng.getrandbits(31))
        return self._units(self.forecast.sample(key, 1)[0])

    def update(self, x: float) -> None:
        """Refused: the model learns, not its forecasts."""
        raise NotImplementedError("a forecast does not learn; learn_one of its model does.")

    revert = update

    def _units(self, value: Any) -> float:
        return self.centre + self.scale * float(value[0])

    def _standard(self, x: float) -> NDArray[np.float32]:
        return np.array([(x - self.centre) / self.scale], np.float32)
