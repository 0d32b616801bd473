"""Every learner, one file each, and what only they use; registered, it is held to the contract."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from bayestream.checks import check_choice
from bayestream.estimators import expectations, inflation, line_search
from bayestream.estimators.bong import bong
from bayestream.estimators.fcekf import fcekf
from bayestream.estimators.fdekf import fdekf
from bayestream.estimators.filter import FILTER_SPACE, FilterState, steady_state
from bayestream.estimators.ggt import GGT_SPACE, ggt
from bayestream.estimators.grow import grow
from bayestream.estimators.hilofi import HILOFI_SPACE, hilofi
from bayestream.estimators.laplace import (
    LAPLACE_SPACE,
    Curvature,
    diagonal_curvature,
    kronecker_curvature,
    laplace,
)
from bayestream.estimators.lofi import lofi
from bayestream.estimators.lofi_spherical import lofi_spherical, orthogonal, svd
from bayestream.estimators.lrvga import LRVGA_SPACE, lrvga
from bayestream.estimators.orfit import orfit
from bayestream.estimators.replay_sgd import DESCENT_SPACE, average, ogd, replay_sgd, total
from bayestream.estimators.sharded import gathered, scattered, sharded
from bayestream.estimators.slang import SLANG_SPACE, slang
from bayestream.estimators.spaces import Space
from bayestream.estimators.vdekf import vdekf
from bayestream.gaussians.fits import forward_kl, reverse_kl
from bayestream.types import Estimator, EvolvingLikelihood, Likelihood, Model

REGISTRY: dict[str, Callable[..., Estimator]] = {
    "bong": bong,
    "fcekf": fcekf,
    "fdekf": fdekf,
    "ggt": ggt,
    "hilofi": hilofi,
    "laplace": laplace,
    "lofi": lofi,
    "lofi_spherical": lofi_spherical,
    "lrvga": lrvga,
    "ogd": ogd,
    "orfit": orfit,
    "replay_sgd": replay_sgd,
    "slang": slang,
    "vdekf": vdekf,
}

# Where each is tuned, declared beside it.
SPACES: dict[str, Space] = {
    "bong": FILTER_SPACE,
    "fcekf": FILTER_SPACE,
    "fdekf": FILTER_SPACE,
    "ggt": GGT_SPACE,
    "hilofi": HILOFI_SPACE,
    "laplace": LAPLACE_SPACE,
    "lofi": FILTER_SPACE,
    "lofi_spherical": FILTER_SPACE,
    "lrvga": LRVGA_SPACE,
    "ogd": DESCENT_SPACE,
    "orfit": {},
    "replay_sgd": DESCENT_SPACE,
    "slang": SLANG_SPACE,
    "vdekf": FILTER_SPACE,
}


def make(
    method: str, model: Model, likelihood: Likelihood | EvolvingLikelihood, **options: Any
) -> Estimator:
    """The estimator of that name, for the edges where a method is a string.

    >>> import bayestream as bs
    >>> learner = make("vdekf", bs.models.mlp([1, 1]), bs.likelihoods.gaussian(1.0))
    >>> make("lofy", bs.models.mlp([1, 1]), bs.likelihoods.gaussian(1.0))
    Traceback (most recent call last):
    ValueError: method must be one of bong, fcekf, fdekf, ggt, hilofi, laplace, lofi, \
lofi_spherical, lrvga, ogd, orfit, replay_sgd, slang, vdekf, got 'lofy'. Did you mean 'lofi'?
    """
    return check_choice("method", method, REGISTRY)(model, likelihood, **options)


def takes(method: str, option: str) -> bool:
    """Whether the method of that name has such an option.

    >>> takes("lofi", "rank"), takes("fcekf", "rank")
    (True, False)
    """
    return option in inspect.signature(check_choice("method", method, REGISTRY)).parameters


__all__ = [
    "REGISTRY",
    "SPACES",
    "Curvature",
    "FilterState",
    "average",
    "bong",
    "diagonal_curvature",
    "expectations",
    "fcekf",
    "fdekf",
    "forward_kl",
    "gathered",
    "ggt",
    "grow",
    "hilofi",
    "inflation",
    "kronecker_curvature",
    "laplace",
    "line_search",
    "lofi",
    "lofi_spherical",
    "lrvga",
    "make",
    "ogd",
    "orfit",
    "orthogonal",
    "replay_sgd",
    "reverse_kl",
    "scattered",
    "sharded",
    "slang",
    "steady_state",
    "svd",
    "takes",
    "total",
    "vdekf",
]
