"""float32 stays close to float64, and stays alive."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayestream as bs
from problems import FILTERS, FILTERS_LOFI_FIRST

RELATIVE = 1e-3


def in_float32(state):
    return jax.tree.map(
        lambda leaf: leaf.astype(jnp.float32) if leaf.dtype == jnp.float64 else leaf, state
    )


def drifting(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A sine whose phase turns once in ten thousand steps."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, (count, 1))
    phase = 2 * np.pi * np.arange(count)[:, None] / 10_000
    return x, np.sin(2 * x + phase) + 0.1 * rng.normal(size=x.shape)


def relative_distance(one, other) -> float:
    return float(np.linalg.norm(np.asarray(one) - other) / np.linalg.norm(other))


@pytest.mark.parametrize("method", FILTERS_LOFI_FIRST)
def test_float32_follows_float64_over_a_thousand_steps(method):
    """Two hidden layers of smooth units.

    A rounding error must not grow: a ReLU's kink can turn it into a fork, and spherical LO-FI,
    which forgets what it drops, amplifies any perturbation under a weak prior, in float64 too.
    """
    precision = 100.0 if method == "lofi_spherical" else 10.0
    model = bs.models.mlp([1, 16, 16, 1], activation=jnp.tanh)
    learner = bs.make(
        method,
        model,
        bs.likelihoods.gaussian(0.01),
        prior_precision=precision,
        drift=1e-5,
        decay=0.9999,
    )
    start = learner.init(jax.random.key(0))
    stream = drifting(1000)
    exact, exact_records = bs.run(learner, start, stream)
    single, single_records = bs.run(learner, in_float32(start), stream)
    assert learner.mean(single).dtype == jnp.float32
    assert relative_distance(learner.mean(single), learner.mean(exact)) < RELATIVE
    assert relative_distance(single_records["prediction"], exact_records["prediction"]) < RELATIVE
    probe = np.eye(model.size)[:20]
    assert (
        relative_distance(
            learner.covariance_between(single, probe.astype(np.float32)),
            learner.covariance_between(exact, probe),
        )
        < RELATIVE
    )


@pytest.mark.slow
def test_confident_mistakes_in_float32_move_the_mean_by_a_finite_step():
    """Saturated probabilities: logits some hundreds apart, and the label says otherwise."""
    model = bs.models.mlp([2, 3])
    learner = bs.lofi(model, bs.likelihoods.categorical(), rank=2, prior_precision=1.0)
    state = in_float32(learner.init(jax.random.key(0)))
    for size in (1.0, 30.0, 300.0):
        x = np.array([size, -size])
        before = learner.mean(state)
        state = learner.update(state, x, int(jnp.argmin(model.apply(before, x.astype(np.float32)))))
        moved = jnp.abs(learner.mean(state) - before)
        assert bool(jnp.isfinite(moved).all())
        assert float(moved.max()) > 0


@pytest.mark.slow
@pytest.mark.parametrize("method", FILTERS)
def test_a_hundred_thousand_steps_of_float32_stay_finite_and_positive(method):
    """Of smooth units: over so many steps, ReLUs die under decay, with any method and precision."""
    model = bs.models.mlp([1, 20, 20, 1], activation=jnp.tanh)
    learner = bs.make(
        method, model, bs.likelihoods.gaussian(0.01), prior_precision=1.0, decay=0.9999, drift=1e-5
    )

    def health(estimator, state, example):
        finite = jnp.all(jnp.array([jnp.isfinite(a).all() for a in jax.tree.leaves(state)]))
        spread = estimator.covariance_between(state, jnp.eye(1, model.size, dtype=jnp.float32))
        belief = getattr(state.belief, "base", state.belief)
        lowest = jnp.minimum(jnp.min(getattr(belief, "diag", jnp.inf)), spread[0, 0])
        prediction = model.apply(estimator.mean(state), jnp.asarray(example.x, jnp.float32))
        return {"finite": finite, "lowest": lowest, "error": prediction - example.y}

    state = in_float32(learner.init(jax.random.key(0)))
    state, records = bs.run(learner, state, drifting(100_000), record=health)
    assert bool(records["finite"].all())
    assert float(records["lowest"].min()) > 0
    assert float(jnp.sqrt(jnp.mean(records["error"][1000:] ** 2))) < 0.3


@pytest.mark.slow
def test_a_million_steps_of_a_slow_drift_are_forecast_as_well_at_the_end_as_at_the_start():
    """Default activation, noise learnt on the way, decay with the drift that it implies."""
    learner = bs.lofi(
        bs.models.mlp([1, 50, 1]), bs.likelihoods.adaptive_gaussian(), rank=10, decay=0.9999
    )

    def nlpd(estimator, state, example):
        forecast = bs.predictive.default(estimator, state, example.x)
        return -forecast.log_density(jnp.asarray(example.y, jnp.float32))

    state = in_float32(learner.init(jax.random.key(0)))
    _, records = bs.run(learner, state, drifting(1_000_000), record=nlpd)
    first, *_, last = np.asarray(records.values[10_000:]).reshape(10, -1).mean(axis=1)
    assert last < first + 0.05
