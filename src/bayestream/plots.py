"""Pictures of forecasts; needs the `plot` extra."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bayestream.forecasts import Forecast
from bayestream.scores import expected_calibration_error, reliability

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def reliability_diagram(forecast: Forecast, y: Any, *, bins: int = 15) -> Figure:
    """Accuracy against confidence, and below it how many forecasts were how confident.

    >>> import jax.numpy as jnp
    >>> from bayestream.forecasts import CategoricalForecast
    >>> even = CategoricalForecast(jnp.zeros((4, 2)))
    >>> figure = reliability_diagram(even, jnp.array([0, 0, 1, 1]))
    >>> len(figure.axes)
    2
    """
    figure = _figure(figsize=(4, 5))
    found = reliability(forecast, y, bins=bins)
    error = float(expected_calibration_error(forecast, y, bins=bins))
    share, accuracy, confidence = (
        np.asarray(found.share),
        np.asarray(found.accuracy),
        np.asarray(found.confidence),
    )
    taken = share > 0
    centres = (np.arange(bins) + 0.5) / bins
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    above.plot([0, 1], [0, 1], color="0.6", lw=1, ls="--", label="calibrated")
    above.bar(centres, accuracy, width=0.9 / bins, color="#56B4E9", edgecolor="0.2", lw=0.5)
    above.plot(confidence[taken], accuracy[taken], "o", ms=4, color="0.1", label="accuracy")
    above.set(ylabel="accuracy", ylim=(0, 1), xlim=(0, 1))
    above.set_title(f"expected calibration error {error:.3f}", fontsize=10)
    above.legend(loc="upper left", fontsize=8, frameon=False)
    below.bar(centres, share, width=0.9 / bins, color="0.7", edgecolor="0.2", lw=0.5)
    below.set(xlabel="confidence", ylabel="share")
    return figure


def _figure(**options: Any) -> Figure:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("pictures need matplotlib: pip install 'bayestream[plot]'") from error
    return Figure(**options, layout="constrained")
