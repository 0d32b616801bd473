"""What is believed of a function from the values seen so far: networks that learn online."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from bayestream.averaging.averaged import AveragedState, averaged, grid
from bayestream.averaging.groups import Factory, Setting, grouped
from bayestream.checks import check_positive, check_whole
from bayestream.estimators.fcekf import fcekf
from bayestream.likelihoods import gaussian
from bayestream.types import Array, Estimator, Layer, Linearized, Model, State


class Surrogate(NamedTuple):
    """A learner of standardised values, and whom to ask for its belief."""

    learner: Estimator
    believed: Callable[[State], tuple[Estimator, State]]  # the learner with a posterior, its state


def online(learner: Estimator) -> Surrogate:
    """Any learner with one output and a posterior.

    >>> import bayestream as bs
    >>> learner = bs.lofi(bs.models.mlp([2, 8, 1]), bs.likelihoods.gaussian(0.01), rank=10)
    >>> bs.surrogates.online(learner).learner.model.inputs
    (2,)
    """
    if learner.covariance_of is None:
        raise ValueError("learner must keep a posterior, got one that only has a mean.")
    return Surrogate(learner, lambda state: (learner, state))


def most_probable(factory: Factory, settings: Sequence[Setting]) -> Surrogate:
    """Of several settings that all learn, the one that has forecast the values best.

    A setting's evidence is the product of the densities it gave to each value before that was
    told: `bs.averaged` without forgetting, of which the heaviest setting is believed.

    Args:
        factory: makes a learner from a setting, as in `bs.averaged`.
        settings: its keyword arguments, which may differ in floats alone.

    >>> import jax, bayestream as bs
    >>> model = bs.models.mlp([2, 8, 1])
    >>> surrogate = bs.surrogates.most_probable(
    ...     lambda noise: bs.fcekf(model, bs.likelihoods.gaussian(noise)),
    ...     bs.grid(noise=[1e-3, 1e-1]))
    >>> learner, own = surrogate.believed(surrogate.learner.init(jax.random.key(0)))
    >>> learner.mean(own).shape
    (33,)
    """
    learner = averaged(factory, settings, forget=1.0)
    group, *others = grouped(factory, settings)
    if others:
        raise ValueError("settings must differ in floats alone, got other differences.")

    def believed(state: AveragedState) -> tuple[Estimator, State]:
        return group.one(jnp.argmax(state.log_weights), state.members[0])

    return Surrogate(learner, believed)


def waves(inputs: int, *, features: int = 300) -> Surrogate:
    """The default: `random_waves`, their pace and the noise as the values have it.

    Args:
        inputs: how many coordinates a point has.
        features: how many waves; memory and time grow with the square.
    """
    check_whole("inputs", inputs, 1)

    def factory(*, pace: Any, noise: Any) -> Estimator:
        model = random_waves(inputs, features=features, pace=pace)
        # The step is exact, so there is nothing to search.
        return fcekf(model, gaussian(noise), prior_precision=1.0, line_search=None)

    return most_probable(factory, grid(pace=[1.0, 2.0, 4.0, 8.0], noise=[1e-4, 1e-2, 0.3]))


def random_waves(inputs: int, *, features: int = 300, pace: Any = 2.0) -> Model:
    """A network with a hidden layer of sines of random frequency and phase (Rahimi & Recht 2007).

    f(x) = √(2/H) Σ θ_h sin(pace ω_h·x + b_h) + θ_0, of which θ alone is learnt. So an extended
    Kalman filter is exact: for many features, regression by a Gaussian process with a kernel
    exp(−pace² |x − x'|²/(2 · inputs)).

    Args:
        inputs: the length of x.
        features: H.
        pace: how fast the function may change.

    >>> model = random_waves(3, features=50)
    >>> model.size, model.apply(jnp.ones(51), jnp.ones(3)).shape
    (51, (1,))
    """
    check_whole("features", features, 1)
    check_positive("pace", pace)
    rng = np.random.default_rng(0)
    frequencies = rng.normal(size=(inputs, features)) / np.sqrt(inputs)
    phases = rng.uniform(0, 2 * np.pi, features)

    def hidden(x: Array) -> Array:
        angles = pace * (x @ jnp.asarray(frequencies, x.dtype)) + jnp.asarray(phases, x.dtype)
        return jnp.append(jnp.sin(angles) * (2 / features) ** 0.5, 1.0).astype(x.dtype)

    def apply(params: Array, x: Array) -> Array:
        return (hidden(x) @ params)[None]

    def linearize(params: Array, x: Array) -> Linearized:
        activations = hidden(x)
        return (activations @ params)[None], (activations,), lambda cotangent: (cotangent,)

    return Model(
        init=lambda key: jnp.zeros(features + 1),
        apply=apply,
        unravel=lambda params: params,
        size=features + 1,
        inputs=(inputs,),
        outputs=1,
        linearize=linearize,
        layers=(Layer(0, features, 1, 1.0),),
    )
