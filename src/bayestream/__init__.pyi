from . import estimators, gaussians, likelihoods, streams
from .averaging import averaged, grid, self_tuning
from .decisions import acquisitions, bandits, logged, optimise, policies, spaces, surrogates
from .estimators import (
    bong,
    expectations,
    fcekf,
    fdekf,
    ggt,
    hilofi,
    inflation,
    laplace,
    line_search,
    lofi,
    lofi_spherical,
    lrvga,
    make,
    ogd,
    orfit,
    replay_sgd,
    slang,
    steady_state,
    vdekf,
)
from .evaluation import Results, evaluate, plots, summaries
from .forecasts import predictive, scores
from .gaussians import kernels
from .networks import models
from .running import Records, RefusedError, run, run_together, step
from .tuning import tune
from .types import Estimator, Example, Likelihood, Model, Stream

__version__: str

__all__ = [
    "Estimator",
    "Example",
    "Likelihood",
    "Model",
    "Records",
    "RefusedError",
    "Results",
    "Stream",
    "acquisitions",
    "averaged",
    "bandits",
    "bong",
    "estimators",
    "evaluate",
    "expectations",
    "fcekf",
    "fdekf",
    "gaussians",
    "ggt",
    "grid",
    "hilofi",
    "inflation",
    "kernels",
    "laplace",
    "likelihoods",
    "line_search",
    "lofi",
    "lofi_spherical",
    "logged",
    "lrvga",
    "make",
    "models",
    "ogd",
    "optimise",
    "orfit",
    "plots",
    "policies",
    "predictive",
    "replay_sgd",
    "run",
    "run_together",
    "scores",
    "self_tuning",
    "slang",
    "spaces",
    "steady_state",
    "step",
    "streams",
    "summaries",
    "surrogates",
    "tune",
    "vdekf",
]
