"""Settings are data: `jit`, `vmap` and `grad` go over every number that a factory takes."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import bayestream as bs
from bayestream.estimators import REGISTRY

MODEL = bs.models.mlp([2, 3, 1], activation=jnp.tanh)
FILTER = {"prior_precision": (1.0, 30.0), "noise": (0.1, 0.4)}
MOVING = {**FILTER, "decay": (1.0, 0.99), "drift": (0.0, 1e-3)}
DESCENT = {"learning_rate": (1e-2, 1e-3), "noise": (0.1, 0.4)}
SETTINGS = {
    "bong": MOVING,
    "fcekf": MOVING,
    "fdekf": MOVING,
    "lofi": {**MOVING, "alpha": (0.0, 0.02), "outlier_threshold": (2.0, 4.0)},
    "lofi_spherical": MOVING,
    "vdekf": MOVING,
    "lrvga": FILTER,
    "hilofi": {**FILTER, "hidden_drift": (1e-5, 1e-2)},
    "ggt": {**FILTER, "learning_rate": (0.1, 0.5)},
    "slang": {**FILTER, "learning_rate": (0.1, 0.5), "precision_rate": (0.1, 0.3)},
    "laplace": {**FILTER, "learning_rate": (1e-2, 1e-3)},
    "ogd": DESCENT,
    "replay_sgd": DESCENT,
}


def build(method, noise, alpha=None, learning_rate=None, **numbers):
    if alpha is not None:
        numbers["inflation"] = bs.inflation.bayesian(alpha)
    if learning_rate is not None and method in ("ggt", "slang"):
        numbers["learning_rate"] = learning_rate
    elif learning_rate is not None:
        numbers["optimiser"] = optax.adam(learning_rate)
    return bs.make(method, MODEL, bs.likelihoods.gaussian(noise), **numbers)


def learn(learner, steps=4):
    """The mean weights after a few steps."""
    rng = np.random.default_rng(0)

    def step(state, item):
        x, y, key = item
        return learner.update(learner.predict(state), x, y, key), None

    items = (rng.normal(size=(steps, 2)), rng.normal(size=(steps, 1)))
    keys = jax.random.split(jax.random.key(1), steps)
    state, _ = jax.lax.scan(step, learner.init(jax.random.key(0)), (*items, keys))
    return learner.mean(state)


def test_every_method_is_tried():
    assert set(SETTINGS) == set(REGISTRY) - {"orfit"}  # which has no numbers to set


QUICK = ("lofi", "vdekf", "ogd")  # one with kernels for each family, and one without a belief


@pytest.mark.parametrize(
    "method", [m if m in QUICK else pytest.param(m, marks=pytest.mark.slow) for m in SETTINGS]
)
def test_settings_under_vmap_are_the_settings_one_by_one(method):
    settings = SETTINGS[method]
    stacked = {name: jnp.array(values) for name, values in settings.items()}
    together = jax.jit(jax.vmap(lambda numbers: learn(build(method, **numbers))))(stacked)
    for index, found in enumerate(together):
        alone = {name: values[index] for name, values in settings.items()}
        expected = jax.jit(lambda alone=alone: learn(build(method, **alone)))()
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)
    assert not np.allclose(together[0], together[1])


@pytest.mark.parametrize(
    "make",
    [
        lambda v: bs.likelihoods.student_t(v, dof=v + 3),
        lambda v: bs.likelihoods.adaptive_gaussian(noise=v, minimum_rate=v / 10),
        lambda v: bs.likelihoods.adaptive_student_t(scale=v, dof=v + 3, minimum_rate=v / 10),
    ],
    ids=["student_t", "adaptive_gaussian", "adaptive_student_t"],
)
def test_likelihoods_take_traced_numbers(make):
    def weights(value):
        return learn(bs.vdekf(MODEL, make(value)))

    values = jnp.array([0.3, 0.7])
    together = jax.jit(jax.vmap(weights))(values)
    expected = [jax.jit(lambda v=float(v): weights(v))() for v in values]
    np.testing.assert_allclose(together, expected, rtol=1e-10)


def test_a_number_that_is_known_is_still_checked_and_so_is_a_shape_that_is_not():
    with pytest.raises(ValueError, match="prior_precision must be a positive number"):
        build("lofi", 0.1, prior_precision=jnp.array(-1.0))
    with pytest.raises(TypeError, match="drift must be a number that is not negative"):
        jax.jit(lambda q: learn(build("lofi", 0.1, drift=q)))(jnp.ones(2))


@pytest.mark.parametrize(
    ("name", "kernels"),
    [("drift", "native"), ("drift", "jax"), ("prior_precision", "native"), ("noise", "native")],
)
@pytest.mark.slow
def test_gradients_of_a_forecasts_loss_agree_with_finite_differences(name, kernels, monkeypatch):
    """Of the prequential NLPD, in the logarithm of a setting; rank 3 drops something each step."""
    monkeypatch.setenv("BAYESTREAM_KERNELS", kernels)
    rng = np.random.default_rng(0)
    xs = rng.normal(size=(40, 2))
    ys = np.sin(xs[:, :1]) + 0.3 * rng.normal(size=(40, 1))
    usual = {"drift": 1e-3, "prior_precision": 3.0, "noise": 0.1}

    @jax.jit
    def loss(logarithm):
        learner = build("lofi", rank=3, decay=0.999, **{**usual, name: jnp.exp(logarithm)})

        def step(state, item):
            x, y = item
            state = learner.predict(state)
            nlpd = -bs.predictive.default(learner, state, x).log_density(y)
            return learner.update(state, x, y), nlpd

        _, losses = jax.lax.scan(step, learner.init(jax.random.key(0)), (xs, ys))
        return jnp.mean(losses)

    here, h = np.log(usual[name]), 1e-5
    expected = (loss(here + h) - loss(here - h)) / (2 * h)
    found = jax.grad(loss)(here)
    assert abs(float(expected)) > 1e-4
    np.testing.assert_allclose(found, expected, rtol=1e-5)
