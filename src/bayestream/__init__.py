"""Bayesian neural networks that learn from a stream, one example at a time."""

from bayestream import (
    estimators,
    gaussians,
    inflation,
    kernels,
    likelihoods,
    models,
    predictive,
    streams,
)
from bayestream.estimators import (
    fcekf,
    fdekf,
    lofi,
    lofi_spherical,
    make,
    steady_state,
    vdekf,
)
from bayestream.run import Records, run, step
from bayestream.types import Estimator, Example, Likelihood, Model, Stream

__version__ = "0.1.0"

__all__ = [
    "Estimator",
    "Example",
    "Likelihood",
    "Model",
    "Records",
    "Stream",
    "estimators",
    "fcekf",
    "fdekf",
    "gaussians",
    "inflation",
    "kernels",
    "likelihoods",
    "lofi",
    "lofi_spherical",
    "make",
    "models",
    "predictive",
    "run",
    "steady_state",
    "step",
    "streams",
    "vdekf",
]
