"""Where examples come from: data sets, formulas, and drifts that change either."""

from bayestream.streams.datasets import Split, fashion_mnist, mnist, uci
from bayestream.streams.dialects import Format
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
from bayestream.streams.encoder import Columns, Encoded, Encoder, Growth
from bayestream.streams.lazy import Lazy
from bayestream.streams.plans import Plan
from bayestream.streams.river_sets import river
from bayestream.streams.synthetic import (
    drifting_linear_regression,
    friedman_drift,
    moving_moons,
    piecewise_regression,
    two_moons,
    waves,
)
from bayestream.streams.tables import Prepared, Table, Unreadable, encoded, prepared, table

__all__ = [
    "Columns",
    "Encoded",
    "Encoder",
    "Format",
    "Growth",
    "Lazy",
    "Plan",
    "Prepared",
    "Split",
    "Table",
    "Unreadable",
    "abrupt",
    "covariate_noise",
    "delayed_labels",
    "drifting_linear_regression",
    "encoded",
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
    "prepared",
    "repeat",
    "river",
    "rotated",
    "rotation_regression",
    "split_classes",
    "table",
    "two_moons",
    "uci",
    "waves",
]
