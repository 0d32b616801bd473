"""Where examples come from: data sets, formulas, and drifts that change either."""

from bayestream.streams.datasets import Split, fashion_mnist, mnist, uci
from bayestream.streams.drifts import (
    abrupt,
    covariate_noise,
    delayed_labels,
    gradual,
    missing_labels,
    only_classes,
    ornstein_uhlenbeck,
    permuted,
    repeat,
    rotated,
    rotation_regression,
    split_classes,
)
from bayestream.streams.lazy import Lazy
from bayestream.streams.synthetic import (
    drifting_linear_regression,
    friedman_drift,
    moving_moons,
    piecewise_regression,
    waves,
)

__all__ = [
    "Lazy",
    "Split",
    "abrupt",
    "covariate_noise",
    "delayed_labels",
    "drifting_linear_regression",
    "fashion_mnist",
    "friedman_drift",
    "gradual",
    "missing_labels",
    "mnist",
    "moving_moons",
    "only_classes",
    "ornstein_uhlenbeck",
    "permuted",
    "piecewise_regression",
    "repeat",
    "rotated",
    "rotation_regression",
    "split_classes",
    "uci",
    "waves",
]
