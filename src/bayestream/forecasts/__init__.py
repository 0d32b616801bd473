"""From a belief to a forecast of y, and from forecasts to scores."""

from bayestream.forecasts import predictive, scores
from bayestream.forecasts.averages import AveragedForecast, Forecast, averaged_classes, plain
from bayestream.forecasts.distributions import (
    CategoricalForecast,
    GaussianForecast,
    MixtureForecast,
    StudentTForecast,
)

__all__ = [
    "AveragedForecast",
    "CategoricalForecast",
    "Forecast",
    "GaussianForecast",
    "MixtureForecast",
    "StudentTForecast",
    "averaged_classes",
    "plain",
    "predictive",
    "scores",
]
