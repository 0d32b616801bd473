"""All experiments, by the names that `bayestream reproduce` knows them by."""

from __future__ import annotations

from bayestream.experiments import (
    bandit_mnist,
    cnn,
    fashion,
    lrvga_kl,
    piecewise_1d,
    rotation,
    uci,
)
from bayestream.experiments.nouns import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    experiment.id: experiment
    for experiment in (
        uci.EXPERIMENT,
        *fashion.EXPERIMENTS,
        *rotation.EXPERIMENTS,
        *cnn.EXPERIMENTS,
        bandit_mnist.EXPERIMENT,
        piecewise_1d.EXPERIMENT,
        lrvga_kl.EXPERIMENT,
    )
}
