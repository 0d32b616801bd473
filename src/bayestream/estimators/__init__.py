"""Every learner, one file each; registering one enrols it in the contract tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bayestream.checks import check_choice
from bayestream.estimators.fcekf import fcekf
from bayestream.estimators.fdekf import fdekf
from bayestream.estimators.filter import FilterState, steady_state
from bayestream.estimators.lofi import lofi
from bayestream.estimators.lofi_spherical import lofi_spherical, orthogonal, svd
from bayestream.estimators.vdekf import vdekf
from bayestream.types import Estimator, EvolvingLikelihood, Likelihood, Model

REGISTRY: dict[str, Callable[..., Estimator]] = {
    "fcekf": fcekf,
    "fdekf": fdekf,
    "lofi": lofi,
    "lofi_spherical": lofi_spherical,
    "vdekf": vdekf,
}


def make(
    method: str, model: Model, likelihood: Likelihood | EvolvingLikelihood, **options: Any
) -> Estimator:
    """The estimator of that name, for the edges where a method is a string.

    >>> import bayestream as bs
    >>> learner = make("vdekf", bs.models.mlp([1, 1]), bs.likelihoods.gaussian(1.0))
    >>> make("lofy", bs.models.mlp([1, 1]), bs.likelihoods.gaussian(1.0))
    Traceback (most recent call last):
    ValueError: method must be one of fcekf, fdekf, lofi, lofi_spherical, vdekf, got 'lofy'. \
Did you mean 'lofi'?
    """
    return check_choice("method", method, REGISTRY)(model, likelihood, **options)


__all__ = [
    "REGISTRY",
    "FilterState",
    "fcekf",
    "fdekf",
    "lofi",
    "lofi_spherical",
    "make",
    "orthogonal",
    "steady_state",
    "svd",
    "vdekf",
]
