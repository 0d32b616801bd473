"""From a belief over weights to a forecast of y, at one input or at many."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from bayestream.checks import check_whole
from bayestream.estimators.guard import check_state
from bayestream.forecasts.averages import Forecast
from bayestream.forecasts.distributions import (
    CategoricalForecast,
    GaussianForecast,
    MixtureForecast,
    StudentTForecast,
    scale_and_dof,
)
from bayestream.forecasts.outputs import (
    at_mean,
    few,
    linearized_outputs,
    linearized_variances,
    of_draws,
    of_linearized_draws,
)
from bayestream.types import Estimator, Key, Likelihood, State


def default(estimator: Estimator, state: State, x: Any) -> Forecast:
    """`linearized` for numbers, `probit` for classes and yes or no; without a posterior `plugin`.

    An estimator that makes its own forecasts, as `bs.averaged` does, is asked for them.

    >>> import bayestream as bs
    >>> learner = bs.ogd(bs.models.mlp([2, 1]), bs.likelihoods.gaussian(0.1))
    >>> type(bs.predictive.default(learner, learner.init(jax.random.key(0)), jnp.ones(2))).__name__
    'MixtureForecast'
    """
    if estimator.forecast is not None:
        check_state(estimator, state)
        return estimator.forecast(state, x)
    kind = estimator.likelihood(state).name if estimator.covariance_of else "point"
    chosen = {"gaussian": linearized, "student_t": linearized}
    chosen |= {"categorical": probit, "bernoulli": probit}
    return chosen.get(kind, plugin)(estimator, state, x)


def plugin(estimator: Estimator, state: State, x: Any) -> MixtureForecast:
    """p(y | x, μ): the forecast at the mean weights, as if there were no doubt about them.

    >>> import bayestream as bs
    >>> learner = bs.lofi(bs.models.mlp([2, 3]), bs.likelihoods.categorical(), rank=3)
    >>> forecast = bs.predictive.plugin(learner, learner.init(jax.random.key(0)), jnp.ones(2))
    >>> forecast.probabilities.shape
    (3,)
    """
    outputs = at_mean(estimator, state, x)
    return MixtureForecast(outputs[..., None, :], estimator.likelihood(state))


def monte_carlo(
    estimator: Estimator,
    state: State,
    x: Any,
    key: Key,
    *,
    samples: int = 100,
    temperature: float = 1.0,
) -> MixtureForecast:
    """The average of p(y | x, θ) over draws θ from the belief, through the network itself.

    `temperature` multiplies the covariance of the weights, here and below: 1 is the belief as it
    is, 0 the plugin forecast.

    >>> import bayestream as bs
    >>> learner = bs.lofi(bs.models.mlp([2, 1]), bs.likelihoods.gaussian(0.1), rank=3)
    >>> state, key = learner.init(jax.random.key(0)), jax.random.key(1)
    >>> forecast = bs.predictive.monte_carlo(learner, state, jnp.ones(2), key, samples=10)
    >>> forecast.mean.shape, forecast.sample(key, 5).shape
    ((1,), (5, 1))
    """
    draws = of_draws(estimator, state, x, key, samples, temperature)
    return MixtureForecast(draws, estimator.likelihood(state))


def linearized_monte_carlo(
    estimator: Estimator,
    state: State,
    x: Any,
    key: Key,
    *,
    samples: int = 100,
    temperature: float = 1.0,
) -> MixtureForecast:
    """The average of p(y | η) over draws of η from the network linearised at the mean.

    The draws are of η ~ N(f(x, μ), F Σ Fᵀ) itself, which has C numbers, not of the weights; where
    the likelihood has `columns`, they are η = f(x, μ) + F (θ − μ) for draws θ, with no C×C matrix.

    >>> import bayestream as bs
    >>> learner = bs.lofi(bs.models.mlp([2, 3]), bs.likelihoods.categorical(), rank=3)
    >>> state, key = learner.init(jax.random.key(0)), jax.random.key(1)
    >>> forecast = bs.predictive.linearized_monte_carlo(learner, state, jnp.ones(2), key)
    >>> round(float(forecast.probabilities.sum()), 3)
    1.0
    """
    likelihood = estimator.likelihood(state)
    if few(estimator, likelihood):
        draws = of_linearized_draws(estimator, state, x, key, samples, temperature)
        return MixtureForecast(draws, likelihood)
    check_whole("samples", samples, 1)
    outputs, covariance = linearized_outputs(estimator, state, x, temperature)
    values, vectors = jnp.linalg.eigh(covariance)
    roots = vectors * jnp.sqrt(jnp.maximum(values, 0.0))[..., None, :]
    # The same noise for every input: many at once are what they would be one by one.
    noise = jax.random.normal(key, (samples, outputs.shape[-1]), outputs.dtype)
    draws = outputs[..., None, :] + jnp.einsum("...ck,sk->...sc", roots, noise)
    return MixtureForecast(draws, likelihood)


def linearized(
    estimator: Estimator, state: State, x: Any, *, temperature: float = 1.0
) -> GaussianForecast | StudentTForecast:
    """The forecast of the linearised network: V = H Σ Hᵀ + R, exact for a Gaussian likelihood.

    R is the one the estimator believes in now, also when it is learnt from the stream.

    For a student_t likelihood it is a t with the same ν for each output, of scale² s² + k h² where
    h² is the output's variance in H Σ Hᵀ and k = (ν+1)(ν+2)/(ν(ν+5)): to first order in h² the t
    nearest, in KL, to the sum of t noise and Gaussian doubt. Exact for h = 0; at ν = 4 it loses
    0.001 nats an output for h = s/2, 0.006 for h = s and 0.03 for h = 5 s. Its variance is larger
    than h² + s² ν/(ν−2): a t that has that variance is too narrow in the middle, and loses 0.002,
    0.011 and 0.04. Doubt that outputs have in common is left out.

    >>> import bayestream as bs
    >>> learner = bs.lofi(bs.models.mlp([2, 1]), bs.likelihoods.gaussian(0.1), rank=3)
    >>> forecast = bs.predictive.linearized(learner, learner.init(jax.random.key(0)), jnp.ones(2))
    >>> forecast.covariance.shape, bool(forecast.covariance[0, 0] > 0.1)
    ((1, 1), True)
    """
    likelihood = _of_kind(estimator.likelihood(state), "linearized", "gaussian", "student_t")
    outputs, covariance = linearized_outputs(estimator, state, x, temperature)
    if likelihood.name == "student_t":
        s, nu = scale_and_dof(likelihood, outputs)
        doubt = jnp.maximum(jnp.diagonal(covariance, axis1=-2, axis2=-1), 0.0)
        k = (nu + 1) * (nu + 2) / (nu * (nu + 5))
        return StudentTForecast(outputs, jnp.sqrt(s**2 + k * doubt), nu)
    R = likelihood.covariance(outputs.reshape(-1, outputs.shape[-1])[0])
    return GaussianForecast(outputs, covariance + R)


def probit(
    estimator: Estimator, state: State, x: Any, *, temperature: float = 1.0
) -> CategoricalForecast | MixtureForecast:
    """Generalised probit: softmax(z_c/√(1 + π v_c/8)), v the variances of the logits z.

    For a bernoulli likelihood it is σ of the same, which is MacKay's. Where the likelihood has
    `columns` K, v is that of the K most probable classes and of K others, and interpolated for the
    rest.

    >>> import bayestream as bs
    >>> learner = bs.lofi(bs.models.mlp([2, 3]), bs.likelihoods.categorical(), rank=3)
    >>> forecast = bs.predictive.probit(learner, learner.init(jax.random.key(0)), jnp.ones((5, 2)))
    >>> forecast.logits.shape
    (5, 3)
    """
    likelihood = _of_kind(estimator.likelihood(state), "probit", "categorical", "bernoulli")
    logits, variances = linearized_variances(estimator, state, x, temperature)
    logits /= jnp.sqrt(1 + jnp.pi / 8 * jnp.maximum(variances, 0.0))
    if likelihood.name == "bernoulli":
        return MixtureForecast(logits[..., None, :], likelihood)
    return CategoricalForecast(logits if likelihood.logits is None else likelihood.logits(logits))


def laplace_bridge(
    estimator: Estimator, state: State, x: Any, *, temperature: float = 1.0
) -> CategoricalForecast:
    """Laplace bridge (Hobbhahn et al. 2022): the Dirichlet nearest to the logits' Gaussian.

    α_c = (1 − 2/C + e^{z_c} Σ_k e^{−z_k}/C²)/v_c, for logits made to sum to zero; the forecast's
    `concentration` is α, its probabilities α/Σα. Of a belief without doubt (temperature 0) it is
    not the plugin forecast, but the limit of ever larger α.

    >>> import bayestream as bs
    >>> learner = bs.lofi(bs.models.mlp([2, 3]), bs.likelihoods.categorical(), rank=3)
    >>> state = learner.init(jax.random.key(0))
    >>> bs.predictive.laplace_bridge(learner, state, jnp.ones(2)).concentration.shape
    (3,)
    """
    likelihood = _of_kind(estimator.likelihood(state), "laplace_bridge", "categorical")
    if likelihood.logits is not None:
        raise ValueError("likelihood must know all classes for a laplace_bridge; use probit.")
    if few(estimator, likelihood):
        raise ValueError("likelihood must have no columns for a laplace_bridge; use probit.")
    z, V = linearized_outputs(estimator, state, x, temperature)
    count = z.shape[-1]
    shared, total = jnp.sum(V, axis=-1), jnp.sum(V, axis=(-2, -1))
    weights = shared / jnp.where(total > 0, total, 1.0)[..., None]
    # Without doubt there is nothing to weigh by: take the mean off every logit.
    weights = jnp.where(total[..., None] > 0, weights, 1 / count)
    z = z - weights * jnp.sum(z, axis=-1, keepdims=True)
    variances = jnp.diagonal(V, axis1=-2, axis2=-1) - weights * shared
    tiny = jnp.finfo(z.dtype).tiny
    sharpness = jax.nn.logsumexp(-z, axis=-1, keepdims=True) + z - 2 * math.log(count)
    alpha = jnp.logaddexp(sharpness, jnp.log(jnp.maximum(1 - 2 / count, tiny)))
    alpha = alpha - jnp.log(jnp.maximum(variances, tiny))
    return CategoricalForecast(alpha, jnp.exp(alpha))


def _of_kind(likelihood: Likelihood, forecast: str, *kinds: str) -> Likelihood:
    if likelihood.name not in kinds:
        raise ValueError(
            f"likelihood must be {' or '.join(kinds)} for a {forecast} forecast, "
            f"got {likelihood.name}; monte_carlo serves any."
        )
    return likelihood
