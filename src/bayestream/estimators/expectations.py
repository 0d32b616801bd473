"""How the expected gradient and curvature of an observation are found under a belief."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from bayestream.checks import check_whole
from bayestream.gaussians.family import Family
from bayestream.networks.linearize import Observation, observe, observe_gradients, observe_secant
from bayestream.networks.rows import Rows
from bayestream.types import Array, Key, Likelihood, Model

Observe = Callable[[Model, Likelihood, Array, Array, Array], Observation]
# (family, belief, model, likelihood, X, Y, key) → G and v with G Gᵀ ≈ −E[∇² log p] and
# G v ≈ E[∇ log p] under the belief
Expectation = Callable[[Family[Any], Any, Model, Likelihood, Array, Array, Key | None], Observation]


def linearized(*, secant: bool = False) -> Expectation:
    """The network linearised at the mean: the expectations are exact, and need no samples.

    With `secant`, curvature is at least what each error implies (`Likelihood.secant`): where the
    Fisher information vanishes, as of a class that is thought impossible and comes, steps would
    overshoot without end.

    >>> import bayestream as bs
    >>> learner = bs.bong(bs.models.mlp([2, 8, 1]), bs.likelihoods.gaussian(0.1), rank=3,
    ...                   expectation=bs.expectations.linearized())
    """
    return _at_the_mean(observe_secant if secant else observe)


def monte_carlo(*, samples: int = 10) -> Expectation:
    """The average gradient and Fisher information over draws from the belief.

    >>> import bayestream as bs
    >>> learner = bs.lrvga(bs.models.mlp([2, 8, 1]), bs.likelihoods.gaussian(0.1), rank=3,
    ...                    expectation=bs.expectations.monte_carlo(samples=5))
    """
    check_whole("samples", samples, 1)
    return _over_draws(observe, samples)


def empirical_fisher(*, samples: int = 0) -> Expectation:
    """Gradients g over draws from the belief, and g gᵀ for the curvature; 0: one, at the mean.

    One row a draw, however many outputs the network has.

    >>> import bayestream as bs
    >>> learner = bs.bong(bs.models.mlp([2, 8, 3]), bs.likelihoods.categorical(), rank=3,
    ...                   expectation=bs.expectations.empirical_fisher())
    """
    check_whole("samples", samples, 0)
    return _over_draws(observe_gradients, samples) if samples else _at_the_mean(observe_gradients)


def needed(key: Key | None) -> Key:
    """The key, or a sentence for those who forgot it."""
    if key is None:
        raise ValueError("key must be given to an estimator that draws random numbers, got None.")
    return key


def _at_the_mean(observe: Observe) -> Expectation:
    return lambda family, belief, model, likelihood, xs, ys, key: observe(
        model, likelihood, family.mean(belief), xs, ys
    )


def _over_draws(observe: Observe, samples: int) -> Expectation:
    def expect(
        family: Family[Any],
        belief: Any,
        model: Model,
        likelihood: Likelihood,
        xs: Array,
        ys: Array,
        key: Key | None,
    ) -> Observation:
        keys = jax.random.split(needed(key), samples)
        draws = jax.vmap(lambda k: family.sample(belief, k))(keys)
        each = jax.vmap(lambda params: observe(model, likelihood, params, xs, ys))(draws)
        # With G = [G_s/√S] and v = [v_s/√S], G Gᵀ and G v are averages over draws.
        share = 1 / jnp.sqrt(jnp.asarray(samples, draws.dtype))
        together = Rows(
            tuple(a.reshape(-1, *a.shape[2:]) for a in each.rows.activations),
            tuple(share * d.reshape(-1, *d.shape[2:]) for d in each.rows.deltas),
        )
        residual, outputs = share * each.residual.reshape(-1), jnp.mean(each.outputs, axis=0)
        return Observation(together, residual, outputs, each.observed[0])

    return expect
