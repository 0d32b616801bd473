"""What the next evaluation is worth: each acquisition a value, made by a factory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import log_ndtr
from jax.scipy.stats import norm

from bayestream.checks import check_non_negative
from bayestream.networks.linearize import output_rows
from bayestream.types import Array, Estimator, Key, State

Score = Callable[[Array], Array]  # points (n, d) → their worth (n,): the largest is evaluated next
# (learner, its state, the lowest value so far, key) → a score
Acquisition = Callable[[Estimator, State, Array, Key], Score]


def thompson() -> Acquisition:
    """Thompson sampling: minus a function drawn from the belief, by drawing its weights.

    A point is chosen as often as it is believed to be the minimum. Ask with other keys for several
    points at a time.

    >>> import bayestream as bs
    >>> learner = bs.lofi(bs.models.mlp([2, 1]), bs.likelihoods.gaussian(0.1), rank=3)
    >>> state = learner.init(jax.random.key(0))
    >>> jax.eval_shape(lambda key, xs: thompson()(learner, state, 0.0, key)(xs),
    ...                jax.random.key(1), jnp.ones((5, 2))).shape
    (5,)
    """

    def of(learner: Estimator, state: State, lowest: Any, key: Key) -> Score:
        draw = _posterior(learner.sample)(state, key, 1)[0]
        return lambda xs: -jax.vmap(lambda x: learner.model.apply(draw, x)[0])(xs)

    return of


def lower_confidence(width: float = 2.0) -> Acquisition:
    """The lower confidence bound: how low the mean less `width` deviations is.

    Args:
        width: of the band, in standard deviations.
    """
    check_non_negative("width", width)

    def of(learner: Estimator, state: State, lowest: Any, key: Key) -> Score:
        def score(xs: Array) -> Array:
            mean, deviation = moments(learner, state, xs)
            return width * deviation - mean

        return score

    return of


def expected_improvement() -> Acquisition:
    """The logarithm of E[max(lowest − f(x), 0)] under the network linearised at its mean.

    The logarithm has a slope also where the improvement itself is too small for a float
    (Ament et al. 2023).
    """

    def of(learner: Estimator, state: State, lowest: Any, key: Key) -> Score:
        def score(xs: Array) -> Array:
            return log_improvement(*moments(learner, state, xs), lowest)

        return score

    return of


def log_improvement(mean: Array, deviation: Array, lowest: Any) -> Array:
    """Log E[max(lowest − f, 0)] for f ~ N(mean, deviation²): log σ (φ(z) + z Φ(z)).

    >>> float(jnp.exp(jax.jit(log_improvement)(0.0, 1.0, 0.0)))  # φ(0)
    0.3989...
    """
    z = (lowest - mean) / deviation
    # Below −1, φ and z Φ nearly cancel: φ (1 + z Φ/φ), and far below 1 + z Φ/φ is 1/z².
    left = jnp.minimum(z, -1.0)
    ratio = left * jnp.exp(log_ndtr(left) - norm.logpdf(left))
    near = norm.logpdf(left) + jnp.log(jnp.maximum(1 + ratio, jnp.finfo(left.dtype).tiny))
    far = norm.logpdf(left) - 2 * jnp.log(-left)
    edge = -(jnp.finfo(left.dtype).eps ** -0.2)
    right = jnp.maximum(z, -1.0)
    direct = jnp.log(norm.pdf(right) + right * norm.cdf(right))
    return jnp.log(deviation) + jnp.where(z > -1, direct, jnp.where(z > edge, near, far))


def moments(learner: Estimator, state: State, xs: Array) -> tuple[Array, Array]:
    """The mean of f at each x (n,) and its deviation (n,), of the network linearised at its mean.

    The noise of a value is no part of it.
    """
    outputs, rows = output_rows(learner.model, learner.mean(state), xs)
    variances = _posterior(learner.covariance_of)(state, rows)[:, 0, 0]
    least = jnp.finfo(outputs.dtype).eps ** 2
    return outputs[:, 0], jnp.sqrt(jnp.maximum(variances, least))


def _posterior(function: Callable[..., Array] | None) -> Callable[..., Array]:
    if function is None:
        raise ValueError("learner must keep a posterior, got one that only has a mean.")
    return function
