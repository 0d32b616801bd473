"""Pictures of forecasts and of results; needs the `plot` extra."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from bayestream.evaluation import drawing
from bayestream.evaluation.results import Results
from bayestream.forecasts import Forecast
from bayestream.forecasts.scores import expected_calibration_error, reliability

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
    figure = drawing.figure(figsize=(4, 5))
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


_FEW = 30  # points that are marked one by one


def curves(
    results: Results, *, summary: str | None = None, shares: Mapping[str, Any] | None = None
) -> Figure:
    """Each metric against the step: mean over trials, a standard error about it, change points.

    `summary` chooses among several in the table; by default, the last. `shares` of a whole that
    change from step to step, such as the weights of an average, are stacked below.

    >>> from bayestream.evaluation.results import Results
    >>> results = Results.of(method="lofi", metric="rmse", summary="each", trial=0, step=[1, 2],
    ...                      task=[0, 1], value=[2.0, 1.0])
    >>> len(curves(results).axes)
    1
    """
    if not len(results):
        raise ValueError("results must have rows to be drawn, got none.")
    chosen = results.unique("summary")[-1] if summary is None else summary
    shown = results.where(summary=chosen)
    if not len(shown):
        known = ", ".join(results.unique("summary"))
        raise ValueError(f"summary must be one of {known}, got {chosen!r}.")
    averaged = shown.averaged()
    metrics, methods = shown.unique("metric"), shown.unique("method")
    rows = len(metrics) + bool(shares)
    height = 2.6 * rows
    # To find a layout takes as long as to draw.
    figure = drawing.figure(figsize=(8, height), layout=None)
    figure.subplots_adjust(0.1, 0.5 / height, 0.96, 1 - 0.3 / height, hspace=0.1)
    axes = figure.subplots(rows, 1, sharex=True, squeeze=False)[:, 0]
    if shares:
        _stack(axes[-1], shares)
    for ax, metric in zip(axes, metrics, strict=False):
        for change in _changes(averaged):
            ax.axvline(change, color="0.8", lw=0.8, zorder=0)
        lines: list[Any] = []
        for number, method in enumerate(methods):
            line = averaged.where(metric=metric, method=method)
            order = np.argsort(line["step"], kind="stable")
            step, mean, error = (line[name][order] for name in ("step", "mean", "error"))
            look = drawing.look(number)
            band = {"color": look["color"], "alpha": 0.2, "lw": 0}
            marker = "o" if len(step) < _FEW else None
            name = method if np.isfinite(mean).any() else f"{method} (diverged)"
            ax.plot(step, mean, **look, lw=1.4, marker=marker, ms=3, label=name)
            ax.fill_between(step, mean - error, mean + error, **band)
            lines.append(mean)
        ax.set(ylabel=metric, ylim=_limits(np.concatenate(lines)))
        ax.margins(x=0)
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].set_title(chosen, fontsize=9, loc="left")
    axes[0].legend(frameon=False, ncols=min(4, len(methods)), fontsize=8)
    axes[-1].set(xlabel="examples seen")
    return figure


def search(history: Sequence[tuple[Mapping[str, float], float]]) -> Figure:
    """What mattered in a search: each hyper-parameter against the loss of every trial.

    Late trials are darker, the best is marked; losses that would flatten the rest lie on the edge.

    >>> figure = search([({"drift": 1e-3}, 2.0), ({"drift": 1e-4}, 1.0)])
    >>> figure.axes[0].get_xlabel()
    'drift'
    """
    if not history:
        raise ValueError("history must have trials to be drawn, got none.")
    losses = np.array([loss for _, loss in history])
    names, best = list(history[0][0]), int(np.argmin(losses))
    figure = drawing.figure(figsize=(2.8 * len(names), 2.8))
    axes = figure.subplots(1, len(names), sharey=True, squeeze=False)[0]
    limits = _limits(losses)
    shown = losses if limits is None else np.minimum(losses, limits[1])
    for ax, name in zip(axes, names, strict=True):
        values = np.array([numbers[name] for numbers, _ in history])
        # Just below one, it is the distance to it that matters.
        near_one = bool(np.all((values > 0.5) & (values <= 1)))
        x = np.maximum(1 - values, 1e-12) if near_one else values
        ax.scatter(x, shown, c=np.arange(len(x)), cmap="Greys", vmin=-len(x) / 2, s=14, lw=0)
        ring = {"ms": 7, "mfc": "none", "color": drawing.look(0)["color"]}
        ax.plot(x[best], shown[best], "o", **ring, label="best")
        ax.set(xscale="log", xlabel=f"1 − {name}" if near_one else name, ylim=limits)
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].set(ylabel="negative log predictive density")
    axes[0].legend(frameon=False, fontsize=8)
    return figure


def prepare() -> None:
    """Import what pictures need, if it is there."""
    with suppress(ImportError):
        import_module("matplotlib.backends.backend_agg")


def _stack(ax: Any, shares: Mapping[str, Any]) -> None:
    """Areas from nothing to one, the first at the bottom."""
    steps = np.arange(1, len(next(iter(shares.values()))) + 1)
    shades = [str(0.9 - 0.75 * number / max(1, len(shares) - 1)) for number in range(len(shares))]
    ax.stackplot(steps, *shares.values(), labels=shares, colors=shades, lw=0)
    ax.set(ylabel="weight", ylim=(0, 1))
    ax.margins(x=0)
    ax.legend(loc="upper left", ncols=min(4, len(shares)), fontsize=8, framealpha=0.8)


def _changes(averaged: Results) -> list[Any]:
    """The steps at which a task begins, but the first; between tests far apart, nobody knows."""
    step, first = np.unique(averaged["step"], return_index=True)
    task = averaged["task"][first]
    return step[1:][(task[1:] != task[:-1]) & (np.diff(step) == 1)].tolist()


def _limits(values: Any) -> tuple[float, float] | None:
    """The range of what is drawn, but for the few per cent that would flatten all the rest."""
    finite = values[np.isfinite(values)]
    if not finite.size:
        return None
    low, typical, high = np.percentile(finite, [0, 95, 100])
    top = high if high - low < 4 * (typical - low) else low + 1.5 * (typical - low)
    margin = 0.05 * (top - low) or 1.0
    return low - margin, top + margin
