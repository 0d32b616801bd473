"""The frame of every Kalman-type estimator: dynamics, inflation, linearisation, conditioning.

An algorithm's own file says which posterior family it keeps and how it conditions; everything
that does not depend on that is here, once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bayestream.checks import (
    check_array,
    check_fraction,
    check_made_by,
    check_non_negative,
    check_positive,
    is_exactly,
)
from bayestream.estimators import expectations
from bayestream.estimators import inflation as inflations
from bayestream.estimators.expectations import Expectation
from bayestream.estimators.guard import is_finite
from bayestream.estimators.inflation import Inflation
from bayestream.estimators.line_search import LineSearch, objective
from bayestream.estimators.spaces import Range, Space
from bayestream.gaussians.family import Family
from bayestream.gaussians.innovation import Innovation, kept
from bayestream.gaussians.linalg import partway
from bayestream.likelihoods import evolving
from bayestream.networks.linearize import Observation, only
from bayestream.networks.models import shifted
from bayestream.types import (
    Array,
    Estimator,
    EvolvingLikelihood,
    Key,
    Likelihood,
    Model,
    ScalarOrSchedule,
    at,
)


class FilterState(NamedTuple):
    """All that a Kalman-type estimator carries from one step to the next."""

    belief: Any  # the Gaussian over parameters, counted from the origin if there is one
    origin: Any  # μ₀, where decay leads back to it; () where it leads to zero
    step: Array  # how many times predict has run
    noise: Any  # what an evolving likelihood carries; the `Kind` of a fixed one
    prior: Any  # what inflation remembers of the prior; () without
    refused: Array  # how many updates would have made it infinite, and were not made


# (belief, observation, the outlier threshold, key) → belief and innovation
Condition = Callable[[Any, Observation, float | None, Key | None], tuple[Any, Innovation]]


_LEAST_DRIFT = 1e-30

# What every filter may be tuned in.
FILTER_SPACE: Space = {
    "prior_precision": Range(1e-2, 1e3),
    "decay": Range(1e-8, 1e-1, complement=True),
    "drift": Range(1e-10, 1e-1),
}


def gaussian_filter(
    model: Model,
    likelihood: Likelihood | EvolvingLikelihood,
    *,
    family: Family[Any],
    start: Callable[[Array, Array], Any],
    condition: Condition,
    prior_precision: float,
    decay: ScalarOrSchedule,
    drift: ScalarOrSchedule | None,
    inflation: Inflation | None,
    line_search: LineSearch | None = None,
    outlier_threshold: float | None = None,
    expectation: Expectation | None = None,
) -> Estimator:
    """An estimator that keeps a Gaussian of `family`.

    `start(μ₀, η₀)` makes the first belief; `condition(belief, observation, threshold, key)` is the
    algorithm's update on an observation as `expectation` sees it: unless it says otherwise,
    linearised at the belief's mean. What cannot be learnt from leaves the belief as it was.
    """
    check_positive("prior_precision", prior_precision)
    check_fraction("decay", decay)
    returns, noise_drift = implied_drift(decay, drift, prior_precision)
    check_non_negative("drift", noise_drift)
    chosen = inflations.none() if inflation is None else inflation
    check_made_by("inflation", chosen, Inflation, "bayestream.inflation (bayesian, simple, hybrid)")
    if line_search is not None:
        check_made_by("line_search", line_search, LineSearch, "bayestream.line_search (halving)")
    if outlier_threshold is not None:
        check_positive("outlier_threshold", outlier_threshold)
    stays = is_stationary(decay, noise_drift, None)
    observations = evolving(likelihood)
    secant = line_search is not None and line_search.secant
    expect = expectations.linearized(secant=secant) if expectation is None else expectation

    def init(key: Key) -> FilterState:
        mean = model.init(key)
        origin, mean = (mean, jnp.zeros_like(mean)) if returns else ((), mean)
        eta = jnp.asarray(prior_precision, mean.dtype)
        return FilterState(
            belief=start(mean, eta),
            origin=origin,
            step=jnp.zeros((), jnp.int32),
            noise=observations.init(model.outputs, mean.dtype),
            prior=chosen.init(mean, eta),
            refused=jnp.zeros((), jnp.int32),
        )

    def predict(state: FilterState) -> FilterState:
        belief = chosen.apply(family, state.belief, state.prior, state.step)
        prior = state.prior
        if not stays:
            dtype = family.mean(belief).dtype
            gamma, q = at(decay, state.step, dtype), at(noise_drift, state.step, dtype)
            # Decay alone would make a belief infinitely certain in the end.
            q = jnp.maximum(q, _LEAST_DRIFT)
            belief = family.propagate(belief, gamma, q)
            prior = chosen.propagate(prior, gamma, q)
        return state._replace(belief=belief, step=state.step + 1, prior=prior)

    def update_batch(
        state: FilterState, xs: Array, ys: Array, key: Key | None = None
    ) -> FilterState:
        current = likelihood_now(state)
        mean = family.mean(state.belief)
        xs, ys = check_examples(model, current, xs, ys, mean.dtype)
        for_draws, for_update = (None, None) if key is None else jax.random.split(key)
        network = shifted(model, state.origin) if returns else model
        observation = expect(family, state.belief, network, current, xs, ys, for_draws)
        adapt = partial(observations.adapt, state.noise, observation.outputs, ys)
        sound = is_finite(adapt(observation.observed))
        observation = only(observation, sound)
        belief, innovation = condition(state.belief, observation, outlier_threshold, for_update)
        sound &= is_finite(innovation.weights)
        # Of several draws of one example, the average.
        trust = jnp.mean(innovation.trust.reshape(-1, len(xs)), axis=0)
        trust = jnp.where(observation.observed, trust, 0.0)
        if line_search is not None:
            proposed = belief
            phi = objective(
                network,
                current,
                (xs, ys),
                lambda alpha: partway(mean, family.mean(proposed), alpha),
                observation,
                innovation,
                trust,
                at_mean=expectation is None,
            )
            belief = family.retreat(belief, mean, line_search.choose(phi))
        adapted = adapt(trust, kept(observation.residual, innovation, len(xs)))
        noise = jax.tree.map(lambda a, b: jnp.where(sound, a, b), adapted, state.noise)
        return state._replace(belief=belief, noise=noise, refused=state.refused + ~sound)

    def likelihood_now(state: FilterState) -> Likelihood:
        # predict has counted this step already; γ_t, q_t and R_t share one t.
        return observations.at(state.noise, jnp.maximum(state.step - 1, 0))

    def from_zero(state: FilterState, params: Array) -> Array:
        return state.origin + params if returns else params

    def sample(state: FilterState, key: Key, count: int) -> Array:
        keys = jax.random.split(key, count)
        return from_zero(state, jax.vmap(lambda k: family.sample(state.belief, k))(keys))

    return Estimator(
        model=model,
        likelihood=likelihood_now,
        init=jax.jit(init),
        predict=predict,
        update=one_by_one(update_batch),
        update_batch=update_batch,
        mean=lambda state: from_zero(state, family.mean(state.belief)),
        covariance_between=lambda state, rows: family.covariance_between(state.belief, rows),
        covariance_of=lambda state, rows: family.covariance_of(state.belief, rows),
        sample=sample,
        refused=lambda state: state.refused,
    )


def implied_drift(
    decay: ScalarOrSchedule, drift: ScalarOrSchedule | None, prior_precision: float
) -> tuple[bool, ScalarOrSchedule]:
    """Whether decay leads back to the prior, not to zero, and with how much drift.

    Of a drift that was given it does not, as in the paper; without one, and with decay, it does:
    θ ← μ₀ + γ (θ − μ₀) + N(0, (1 − γ²)/η₀), which leaves the prior N(μ₀, I/η₀) as it is. Weights
    that decay to zero take the units with them, and those of a network at zero have no gradients.
    """
    if drift is not None:
        return False, drift
    if is_exactly(decay, 1):
        return False, 0.0
    return True, steady_state(decay=decay, prior_precision=prior_precision)


def one_by_one(update_batch: Callable[..., Any]) -> Callable[..., Any]:
    """Conditioning on one observation: a batch of one."""

    def update(state: Any, x: Any, y: Any, key: Key | None = None) -> Any:
        return update_batch(state, jnp.asarray(x)[None], jnp.asarray(y)[None], key)

    return update


def is_stationary(
    decay: ScalarOrSchedule, drift: ScalarOrSchedule | None, inflation: Inflation | None
) -> bool:
    """Whether predict is known to do nothing."""
    still = is_exactly(decay, 1) and (drift is None or is_exactly(drift, 0))
    return still and inflation is None


def steady_state(*, decay: ScalarOrSchedule, prior_precision: float) -> ScalarOrSchedule:
    """The drift q = (1 − γ²)/η₀ that keeps the prior's variance the same at every step.

    >>> steady_state(decay=0.5, prior_precision=3.0)
    0.25
    """
    check_fraction("decay", decay)
    check_positive("prior_precision", prior_precision)
    if callable(decay):
        return lambda step: (1 - decay(step) ** 2) / prior_precision
    return (1 - decay**2) / prior_precision


def check_examples(
    model: Model, likelihood: Likelihood, xs: Any, ys: Any, dtype: Any
) -> tuple[Array, Array]:
    """X and Y as arrays that fit the model, or one sentence saying why they do not."""
    xs, ys = jnp.asarray(xs), jnp.asarray(ys)
    count = jnp.shape(xs)[:1]
    check_array("x", xs, [(*count, *model.inputs)])
    check_array("y", ys, [(*count, *shape) for shape in likelihood.target_shapes(model.outputs)])
    return xs.astype(dtype), ys.astype(dtype)
