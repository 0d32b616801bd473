"""From a belief to a forecast of y, and from forecasts to scores."""

from bayestream.forecasts import predictive, scores
from bayestream.forecasts.distributions import (
    CategoricalForecast,
    Forecast,
    GaussianForecast,
    MixtureForecast,
    StudentTForecast,
)

__all__ = [
    "CategoricalForecast",
    "Forecast",
    "GaussianForecast",
    "MixtureForecast",
    "StudentTForecast",
    "predictive",
    "scores",
]
