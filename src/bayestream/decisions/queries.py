"""Which label to ask for: each query a function of what is believed, made by a factory."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.scipy.special import digamma, entr, gammaln

from bayestream.checks import check_positive, check_whole
from bayestream.evaluation.evaluate import Forecaster
from bayestream.forecasts import predictive
from bayestream.forecasts.averages import Forecast
from bayestream.forecasts.distributions import (
    CategoricalForecast,
    MixtureForecast,
    StudentTForecast,
)
from bayestream.forecasts.outputs import linearized_outputs
from bayestream.types import Array, Estimator, Key, Likelihood, State

# (learner, its state, inputs (n, …), key) → how much each label is wanted (n,): the most is asked
# for. It is traced by `jit`.
Query = Callable[[Estimator, State, Array, Key], Array]


def bald(*, samples: int = 64, temperature: float = 1.0) -> Query:
    """BALD: how much the label would tell about the weights (Houlsby et al. 2011).

    The mutual information of label and weights, H[y] − E[H[y | η]], for the outputs
    η ~ N(f(x, μ), F Σ Fᵀ) of the network linearised at its mean. For gaussian targets that is
    ½ log |I + R⁻¹ F Σ Fᵀ|. For classes it is an average over draws of η, which have C numbers each:
    no weights are drawn. The inputs share the noise of the draws, so that it hardly touches their
    order. Where F grows with x, so does the score: inputs of about the same length are fair.

    Args:
        samples: how many draws of η, for classes.
        temperature: multiplies F Σ Fᵀ. Below 1 it is for beliefs that are too wide: towards 0 the
            score is ½ tr I(η) F Σ Fᵀ, with the Fisher information I at the mean, but for a factor.

    >>> import bayestream as bs
    >>> learner = bs.lofi(bs.models.mlp([1, 3]), bs.likelihoods.categorical(), rank=3)
    >>> state = learner.init(jax.random.key(0))
    >>> update = jax.jit(learner.update)
    >>> for _ in range(20):  # at x = 1 the label is always 2; of x = −1 nothing is known
    ...     state = update(state, jnp.ones(1), jnp.array(2))
    >>> seen, unseen = bald()(learner, state, jnp.array([[1.0], [-1.0]]), jax.random.key(1))
    >>> bool(unseen > seen)
    True
    """
    check_whole("samples", samples, 1)
    check_positive("temperature", temperature)

    def score(learner: Estimator, state: State, xs: Array, key: Key) -> Array:
        likelihood = _believed("bald", learner, state)
        if likelihood.name == "gaussian":
            outputs, covariance = linearized_outputs(learner, state, xs, temperature)
            root = jnp.linalg.cholesky(likelihood.covariance(outputs[0]))
            whitener = jnp.linalg.inv(root)
            ratios = jnp.linalg.eigvalsh(whitener @ covariance @ whitener.T)
            return 0.5 * jnp.sum(jnp.log1p(jnp.maximum(ratios, 0.0)), axis=-1)
        if likelihood.name == "student_t":
            # The label and its noise are both t of the same ν: only their scales differ.
            forecast = predictive.linearized(learner, state, xs, temperature=temperature)
            noise = predictive.linearized(learner, state, xs[:1], temperature=0.0)
            return _entropy(forecast) - _entropy(noise)
        if likelihood.name not in _CLASSES:
            raise ValueError(
                "learner must have a gaussian, student_t, categorical or bernoulli likelihood for "
                f"bald, got {likelihood.name}; use variance."
            )
        p = _drawn_means(learner, state, xs, key, samples, temperature)
        within = jnp.mean(_entropy_of_classes(likelihood.name, p), axis=-1)
        return _entropy_of_classes(likelihood.name, jnp.mean(p, axis=-2)) - within

    return score


def variance(*, samples: int = 64) -> Query:
    """The variance of E[y | weights] under the belief, summed over outputs.

    For numbers that is tr F Σ Fᵀ, for classes Σ Var[p_c] over draws of the outputs, as in `bald`.

    Args:
        samples: how many draws of the outputs, unless they are numbers.

    >>> import bayestream as bs
    >>> learner = bs.fcekf(bs.models.mlp([1, 1]), bs.likelihoods.gaussian(0.1), prior_precision=4.0)
    >>> state = learner.init(jax.random.key(0))
    >>> variance()(learner, state, jnp.array([[0.0], [1.0]]), jax.random.key(1)).tolist()
    [0.25, 0.5]
    """
    check_whole("samples", samples, 1)

    def score(learner: Estimator, state: State, xs: Array, key: Key) -> Array:
        likelihood = _believed("variance", learner, state)
        if likelihood.name in ("gaussian", "student_t"):
            _, covariance = linearized_outputs(learner, state, xs)
            return jnp.trace(covariance, axis1=-2, axis2=-1)
        means = _drawn_means(learner, state, xs, key, samples)
        return jnp.sum(jnp.var(means, axis=-2), axis=-1)

    return score


def entropy(*, forecast: Forecaster = predictive.default) -> Query:
    """The entropy of the forecast: how little is known of the label, for whatever reason.

    Of a mixture of forecasts of numbers, that of the Gaussian with its covariance.

    Args:
        forecast: from belief to forecast, such as `bs.predictive.plugin`.

    >>> import bayestream as bs
    >>> learner = bs.ogd(bs.models.mlp([2, 3]), bs.likelihoods.categorical())
    >>> state = learner.init(jax.random.key(0))
    >>> entropy()(learner, state, jnp.ones((5, 2)), jax.random.key(1)).shape
    (5,)
    """

    def score(learner: Estimator, state: State, xs: Array, key: Key) -> Array:
        return _entropy(forecast(learner, state, xs))

    return score


def margin(*, forecast: Forecaster = predictive.default) -> Query:
    """How close the second most probable class is to the first: their difference, negative.

    Args:
        forecast: from belief to forecast, such as `bs.predictive.plugin`.

    >>> import bayestream as bs
    >>> learner = bs.lofi(bs.models.mlp([2, 3]), bs.likelihoods.categorical(), rank=3)
    >>> state = learner.init(jax.random.key(0))
    >>> bool((margin()(learner, state, jnp.ones((5, 2)), jax.random.key(1)) <= 0).all())
    True
    """

    def score(learner: Estimator, state: State, xs: Array, key: Key) -> Array:
        found = forecast(learner, state, xs)
        kind = _kind(found)
        if kind == "categorical":
            top, _ = jax.lax.top_k(found.mean, 2)
            return top[..., 1] - top[..., 0]
        if kind == "bernoulli" and found.mean.shape[-1] == 1:
            return -jnp.abs(2 * found.mean[..., 0] - 1)
        raise ValueError(
            "learner must have a categorical likelihood, or a bernoulli one of one output, for "
            f"margin, got {learner.likelihood(state).name} of {learner.model.outputs}; use bald."
        )

    return score


def random() -> Query:
    """Any label as well as any other: what the others are to be compared with.

    >>> import bayestream as bs
    >>> learner = bs.lofi(bs.models.mlp([2, 1]), bs.likelihoods.gaussian(0.1), rank=3)
    >>> state = learner.init(jax.random.key(0))
    >>> random()(learner, state, jnp.ones((5, 2)), jax.random.key(1)).shape
    (5,)
    """

    def score(learner: Estimator, state: State, xs: Array, key: Key) -> Array:
        return jax.random.uniform(key, (len(xs),))

    return score


def drawn(query: Query, *, power: float = 1.0) -> Query:
    """Labels drawn with probabilities that grow as `scoreᵖᵒʷᵉʳ`, for several labels a round.

    The best few of a pool are often alike, and tell the same. Here they are a draw without
    replacement, by Gumbel noise on the logarithms (Kirsch et al. 2023): power · log score + G.

    Args:
        query: with scores that are not negative: `bald`, `variance`, `entropy` of classes.
        power: 0 draws at random, infinity would take the best.

    >>> import bayestream as bs
    >>> learner = bs.lofi(bs.models.mlp([2, 3]), bs.likelihoods.categorical(), rank=3)
    >>> state = learner.init(jax.random.key(0))
    >>> drawn(bald())(learner, state, jnp.ones((5, 2)), jax.random.key(1)).shape
    (5,)
    """
    check_positive("power", power)

    def score(learner: Estimator, state: State, xs: Array, key: Key) -> Array:
        key_score, key_noise = jax.random.split(key)
        scores = query(learner, state, xs, key_score)
        least = jnp.finfo(scores.dtype).tiny
        noise = jax.random.gumbel(key_noise, scores.shape, scores.dtype)
        return power * jnp.log(jnp.maximum(scores, least)) + noise

    return score


_CLASSES = ("categorical", "bernoulli")


def _kind(forecast: Forecast) -> str:
    """The likelihood behind a forecast of classes; of any other, nothing."""
    if isinstance(forecast, CategoricalForecast):
        return "categorical"
    return forecast.likelihood.name if isinstance(forecast, MixtureForecast) else ""


def _entropy(forecast: Forecast) -> Array:
    """The entropy of each of many forecasts (n,), in nats."""
    if (kind := _kind(forecast)) in _CLASSES:
        return _entropy_of_classes(kind, forecast.mean)
    if isinstance(forecast, StudentTForecast):
        return jnp.sum(jnp.log(forecast.scale) + _entropy_of_t(forecast.dof), axis=-1)
    covariance = forecast.covariance
    _, log_volume = jnp.linalg.slogdet(covariance)
    return 0.5 * (log_volume + covariance.shape[-1] * jnp.log(2 * jnp.pi * jnp.e))


def _entropy_of_classes(kind: str, p: Array) -> Array:
    """The entropy of one of C classes, or of C answers yes or no, with these probabilities."""
    each = entr(p) if kind == "categorical" else entr(p) + entr(1 - p)
    return jnp.sum(each, axis=-1)


def _entropy_of_t(dof: Array) -> Array:
    """The entropy of a standard t: (ν+1)/2 (ψ((ν+1)/2) − ψ(ν/2)) + log(√ν B(ν/2, 1/2))."""
    half, more = dof / 2, (dof + 1) / 2
    log_beta = gammaln(half) + 0.5 * jnp.log(jnp.pi) - gammaln(more)
    return more * (digamma(more) - digamma(half)) + 0.5 * jnp.log(dof) + log_beta


def _drawn_means(
    learner: Estimator, state: State, xs: Array, key: Key, samples: int, temperature: float = 1.0
) -> Array:
    """E[y | η] (n, S, C) for draws of the outputs η under the belief."""
    forecast = predictive.linearized_monte_carlo(
        learner, state, xs, key, samples=samples, temperature=temperature
    )
    return jax.vmap(jax.vmap(forecast.likelihood.mean))(forecast.draws)


def _believed(query: str, learner: Estimator, state: State) -> Likelihood:
    if learner.covariance_of is None:
        raise ValueError(
            f"learner must keep a posterior for {query}, got one that has none of its own; "
            "use entropy or margin."
        )
    return learner.likelihood(state)
