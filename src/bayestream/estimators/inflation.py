"""Covariance inflation: how much an old belief is discounted before each step of the dynamics.

The paper's appendix "Covariance inflation". Each value here works with every posterior family.

>>> import bayestream as bs
>>> model, likelihood = bs.models.mlp([2, 8, 1]), bs.likelihoods.gaussian(0.1)
>>> learner = bs.lofi(model, likelihood, inflation=bs.inflation.hybrid(0.01))
>>> bs.inflation.simple(-0.1)
Traceback (most recent call last):
ValueError: alpha must be a number that is not negative, got -0.1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp

from bayestream.checks import check_non_negative
from bayestream.gaussians.family import Family
from bayestream.types import Array, ScalarOrSchedule, at


class LatentPrior(NamedTuple):
    """N(Γ_t μ₀, η_t⁻¹ I): what the dynamics alone say of θ_t, had nothing been observed."""

    mean: Array  # Γ_t μ₀ (P,)
    precision: Array  # η_t ()


class Inflation(NamedTuple):
    """A kind of inflation; what it must remember of the prior lives in the estimator's state."""

    init: Callable[[Array, Array], Any]  # (μ₀, η₀) → carry
    propagate: Callable[[Any, Array, Array], Any]  # (carry, γ, q) → carry
    apply: Callable[[Family[Any], Any, Any, Array], Any]  # (family, belief, carry, step) → belief


def none() -> Inflation:
    """No inflation."""
    return Inflation(
        init=lambda mean, precision: (),
        propagate=lambda carry, decay, drift: carry,
        apply=lambda family, belief, carry, step: belief,
    )


def simple(alpha: ScalarOrSchedule) -> Inflation:
    """Discount the whole posterior: Σ ← (1 + α) Σ."""
    check_non_negative("alpha", alpha)

    def apply(family: Family[Any], belief: Any, carry: Any, step: Array) -> Any:
        a = at(alpha, step, family.mean(belief).dtype)
        return family.temper(belief, 1 / (1 + a))

    return none()._replace(apply=apply)


def hybrid(alpha: ScalarOrSchedule) -> Inflation:
    """Discount the data's share of the precision, not the mean: Σ⁻¹ ← (Σ⁻¹ + α η I)/(1 + α)."""
    check_non_negative("alpha", alpha)

    def apply(family: Family[Any], belief: Any, precision: Array, step: Array) -> Any:
        return _discount(family, belief, precision, at(alpha, step, precision.dtype))

    return Inflation(lambda mean, precision: precision, _diffuse, apply)


def bayesian(alpha: ScalarOrSchedule) -> Inflation:
    """Discount past likelihoods by 1/(1 + α) a step and keep the prior whole.

    The precision as in `hybrid`; the mean moves towards the prior's:
    μ ← μ + αη/(1+α) Σ́ (Γ μ₀ − μ).
    """
    check_non_negative("alpha", alpha)

    def init(mean: Array, precision: Array) -> LatentPrior:
        return LatentPrior(jnp.array(mean), precision)  # a copy: the state may be donated

    def apply(family: Family[Any], belief: Any, prior: LatentPrior, step: Array) -> Any:
        mean = family.mean(belief)
        a = at(alpha, step, mean.dtype)
        belief = _discount(family, belief, prior.precision, a)
        pull = family.covariance_times(belief, prior.mean - mean)
        return family.move(belief, mean + a * prior.precision / (1 + a) * pull)

    def propagate(prior: LatentPrior, decay: Array, drift: Array) -> LatentPrior:
        return LatentPrior(decay * prior.mean, _diffuse(prior.precision, decay, drift))

    return Inflation(init, propagate, apply)


def _discount(family: Family[Any], belief: Any, precision: Array, a: Array) -> Any:
    belief = family.temper(belief, 1 / (1 + a))
    return family.add_precision(belief, a * precision / (1 + a))


def _diffuse(precision: Array, decay: Array, drift: Array) -> Array:
    """η_t of the latent prior: η_t⁻¹ = γ² η_{t−1}⁻¹ + q."""
    return precision / (decay**2 + drift * precision)
