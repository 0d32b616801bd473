"""What every registered estimator promises, whatever its algorithm."""

import contextlib
import inspect
import warnings
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import bayestream as bs
from bayestream.networks.linearize import output_rows
from bayestream.networks.rows import to_dense

NOISE = np.array([[0.3, 0.1], [0.1, 0.2]])
# What an estimator is given of these, it accepts. Plain gradient steps run away from inputs of a
# thousand; Adam's cannot.
OPTIONS = {
    "prior_precision": 2.0,
    "decay": 0.99,
    "drift": 0.01,
    "optimiser": optax.adam(1e-2),
    "buffer": 2,
}
RNG = np.random.default_rng(0)
XS, YS = RNG.normal(size=(12, 2)), RNG.normal(size=(12, 2))
KEY = jax.random.key(7)
KEYS = jax.random.split(KEY, 3)

LIKELIHOODS = {
    "gaussian": bs.likelihoods.gaussian(NOISE),
    "adaptive": bs.likelihoods.adaptive_gaussian(full=True),
    "categorical": bs.likelihoods.categorical(),
    "columns": bs.likelihoods.categorical(columns=2),
}
CLASSES = ("categorical", "columns")
ONLY_SCALAR = {"orfit"}  # one output, Gaussian


def seldom(value):
    return pytest.param(value, marks=pytest.mark.slow)


def accepts(method: str, option: str) -> bool:
    return option in inspect.signature(bs.estimators.REGISTRY[method]).parameters


# A few are quick; most others share their code with one of these.
QUICK = {"laplace", "lofi", "replay_sgd"}
POINTS = {"ogd", "orfit", "replay_sgd"}  # no posterior


def each(methods) -> list:
    return [method if method in QUICK else seldom(method) for method in methods]


@pytest.fixture(params=each(bs.estimators.REGISTRY))
def method(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=each(m for m in bs.estimators.REGISTRY if accepts(m, "decay")))
def moving(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=each(m for m in bs.estimators.REGISTRY if m not in ONLY_SCALAR))
def general(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=each(m for m in bs.estimators.REGISTRY if m not in POINTS))
def bayesian(request: pytest.FixtureRequest) -> str:
    return request.param


def outputs(method: str) -> int:
    return 1 if method in ONLY_SCALAR else 2


def ys(method: str) -> np.ndarray:
    return YS[:, : outputs(method)]


def make(method: str, likelihood: str = "gaussian", **options) -> bs.Estimator:
    return build(method, likelihood, **options) if options else usual(method, likelihood)


@cache
def usual(method: str, likelihood: str) -> bs.Estimator:
    """One object for all tests, so that what is compiled for one serves the others."""
    return build(method, likelihood)


def build(method: str, likelihood: str, **options) -> bs.Estimator:
    model = bs.models.mlp([2, 4, outputs(method)])
    given = {name: value for name, value in OPTIONS.items() if accepts(method, name)}
    if method in ONLY_SCALAR:
        return bs.make(method, model, bs.likelihoods.gaussian(0.3), **{**given, **options})
    return bs.make(method, model, LIKELIHOODS[likelihood], **{**given, **options})


def learn(learner: bs.Estimator, count: int = 3):
    state = learner.init(jax.random.key(0))
    for x, y in zip(XS[:count], YS[:count, : learner.model.outputs], strict=True):
        state = step(learner, state, x, y)
    return state


@partial(jax.jit, static_argnums=0)
def step(learner: bs.Estimator, state, x, y):
    return learner.update(learner.predict(state), x, y, KEY)


@partial(jax.jit, static_argnums=0)
def update(learner: bs.Estimator, state, x, y):
    return learner.update(state, x, y, KEY)


@partial(jax.jit, static_argnums=0)
def predict(learner: bs.Estimator, state):
    return learner.predict(state)


@partial(jax.jit, static_argnums=0)
def moments(learner: bs.Estimator, state):
    rows = jnp.eye(learner.model.size, dtype=learner.mean(state).dtype)
    return learner.mean(state), learner.covariance_between(state, rows)


def cast(state, dtype):
    return jax.tree.map(
        lambda leaf: leaf.astype(dtype) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf, state
    )


def dtypes(state) -> list[jnp.dtype]:
    return [leaf.dtype for leaf in jax.tree.leaves(state)]


def assert_trees_close(one, other, **tolerance) -> None:
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(a, b, **(tolerance or {"rtol": 1e-9, "atol": 1e-11}))


def assert_same_belief(learner: bs.Estimator, one, other) -> None:
    """Two states may store a belief differently; the mean and covariance decide."""
    if learner.covariance_between is None:
        return assert_trees_close(one, other)
    (mean, covariance), (other_mean, other_covariance) = (moments(learner, s) for s in (one, other))
    np.testing.assert_allclose(mean, other_mean, rtol=1e-10, atol=1e-15)
    np.testing.assert_allclose(covariance, other_covariance, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("likelihood", ["gaussian", *map(seldom, ["adaptive", *CLASSES])])
def test_jit_changes_nothing(general, likelihood):
    learner = make(general, likelihood)
    state = learner.init(jax.random.key(0))
    y = jnp.array(1.0) if likelihood in CLASSES else YS[0]
    plain = jitted = state
    for _ in range(2):
        plain = learner.update(learner.predict(plain), XS[0], y, KEY)
        jitted = step(learner, jitted, XS[0], y)
    assert_same_belief(learner, plain, jitted)


def test_vmap_is_a_loop(method):
    learner = make(method)

    def born_and_taught(first, x, y, second):
        return learner.update(learner.predict(learner.init(first)), x, y, second)

    given = (jax.random.split(jax.random.key(0), 3), XS[:3], ys(method)[:3], KEYS)
    batched, single = jax.jit(jax.vmap(born_and_taught))(*given), jax.jit(born_and_taught)
    for i in range(3):
        alone = single(*(values[i] for values in given))
        one = jax.tree.map(lambda leaf, i=i: np.asarray(leaf)[i], batched)
        assert_same_belief(learner, one, alone)


def test_scan_and_donation_give_the_same_belief(method):
    learner = make(method)
    start = learner.init(jax.random.key(0))

    def body(state, example):
        return learner.update(learner.predict(state), *example, KEY), None

    stream = (XS[:3], ys(method)[:3])
    scan = jax.jit(lambda state: jax.lax.scan(body, state, stream)[0], donate_argnums=0)
    assert_same_belief(learner, scan(start), learn(learner))
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(start))


@pytest.mark.parametrize("dtype", [jnp.float32, seldom(jnp.float64)])
@pytest.mark.parametrize(
    "likelihood", [*map(seldom, ["gaussian", "adaptive", "columns"]), "categorical"]
)
def test_the_dtype_is_kept(general, likelihood, dtype):
    schedule = {"drift": lambda step: 0.01 / (1 + step)} if accepts(general, "drift") else {}
    learner = make(general, likelihood, **schedule)
    state = cast(learner.init(jax.random.key(0)), dtype)
    y = 1 if likelihood in CLASSES else YS[0]
    after = step(learner, state, XS[0], y)
    assert dtypes(after) == dtypes(state)
    assert jax.eval_shape(learner.mean, after).dtype == dtype
    if learner.sample is not None:
        drawn = jax.eval_shape(lambda state: learner.sample(state, KEY, 2), after)
        assert drawn.dtype == dtype


def test_a_missing_label_is_skipped(method):
    learner = make(method)
    before = predict(learner, learn(learner))
    missing = np.full(outputs(method), np.nan)
    assert_same_belief(learner, update(learner, before, XS[4], missing), before)


def test_a_batch_with_missing_labels_is_the_batch_without_them(general):
    learner = make(general, "adaptive")
    before = predict(learner, learn(learner))
    labels = np.array([YS[4], [np.nan, np.nan], YS[5]])
    together = jax.jit(partial(learner.update_batch, key=KEY))
    some = together(before, XS[4:7], labels)
    only = together(before, XS[[4, 6]], labels[[0, 2]])
    assert_same_belief(learner, some, only)
    assert_trees_close(some.noise, only.noise)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_bad_input_never_poisons_a_belief(method, bad):
    learner = make(method)
    before = predict(learner, learn(learner))
    after = update(learner, before, np.array([bad, 0.0]), ys(method)[0])
    assert_same_belief(learner, after, before)
    infinite = np.array([np.inf, 0.0])[: outputs(method)]
    after = update(learner, before, XS[0], infinite)
    assert_same_belief(learner, after, before)


def assert_finite(state) -> None:
    state = state._replace(buffer=()) if hasattr(state, "buffer") else state  # NaN: a free place
    assert all(np.isfinite(np.asarray(leaf)).all() for leaf in jax.tree.leaves(state))


def test_finite_in_is_finite_out(method):
    learner = make(method)
    state, _ = bs.run(learner, learn(learner), (1e3 * XS, 1e3 * ys(method)), key=KEY)
    assert_finite(state)


HOSTILE = [np.nan, np.inf, 1e38, 1e-38, 1e300, 1e-300, 5e-324, 1e-45, float(2**63), 1e19, 1e12]


@pytest.mark.parametrize("kind", ["adaptive", *map(seldom, CLASSES)])
def test_two_thousand_hostile_examples_leave_a_state_finite(method, kind):
    """A third of the numbers are hostile, either sign, in float32; what cannot be is skipped."""
    rng = np.random.default_rng(3)
    xs, targets = rng.normal(size=(2000, 2)), rng.normal(size=(2000, outputs(method)))
    for values in (xs, targets):
        wild = rng.random(values.shape) < 1 / 3
        values[wild] = rng.choice(HOSTILE, wild.sum()) * rng.choice([-1.0, 1.0], wild.sum())
    if kind in CLASSES and method not in ONLY_SCALAR:
        targets = rng.choice([0.0, 1.0, -1.0, 7.0, np.nan, np.inf], 2000)
    learner = make(method, kind)
    state = cast(learner.init(jax.random.key(0)), jnp.float32)

    def body(state, example):
        return learner.update(learner.predict(state), *example, KEY), None

    # Straight into the estimator, and through `run`, which skips what it can name.
    after, _ = jax.jit(lambda s: jax.lax.scan(body, s, (xs, targets)))(state)
    assert_finite(after)
    with warnings.catch_warnings(), contextlib.suppress(bs.RefusedError):
        warnings.simplefilter("ignore", RuntimeWarning)
        after, _ = bs.run(learner, state, (xs, targets), on_bad="skip", key=KEY)
        assert_finite(after)


def test_an_update_that_is_not_finite_is_refused_and_counted(method):
    learner = make(method)
    before = predict(learner, learn(learner))
    after = update(learner, before, np.full(2, 1e200), ys(method)[0])
    assert int(learner.refused(after)) == 1 + int(learner.refused(before))
    assert_same_belief(learner, after._replace(refused=before.refused), before)


def test_the_state_of_another_learner_is_refused_at_every_edge(method):
    learner, another = make(method), make("lofi" if method == "replay_sgd" else "replay_sgd")
    wider = bs.make(method, bs.models.mlp([2, 5, outputs(method)]), bs.likelihoods.gaussian(0.3))
    states = [another.init(KEY), wider.init(KEY)]
    if method not in ONLY_SCALAR:
        states += [make(method, kind).init(KEY) for kind in ("adaptive", "categorical")]
    example = (XS[0], ys(method)[0])
    for state in states:
        for edge in (
            partial(bs.run, learner, state, [example]),
            partial(bs.step, learner, state, *example),
            partial(bs.predictive.plugin, learner, state, XS[0]),
        ):
            with pytest.raises(ValueError, match=r"^state must come from this learner's init"):
                edge()


@pytest.mark.parametrize(
    ("x", "y", "name"),
    [
        (np.ones(3), np.ones(2), "x"),
        (np.ones((1, 2)), np.ones(2), "x"),
        (np.ones(2), np.ones(3), "y"),
        (np.ones(2), np.array(1.0), "y"),
    ],
)
def test_wrong_shapes_are_refused_in_a_sentence(general, x, y, name):
    learner = make(general)
    state = learner.init(jax.random.key(0))
    for call in (learner.update, jax.jit(learner.update)):
        with pytest.raises(ValueError, match=rf"^{name} must have shape .*, got "):
            call(state, x, y, KEY)


def test_wrong_dtypes_are_refused_in_a_sentence(method):
    learner = make(method)
    state = learner.init(jax.random.key(0))
    with pytest.raises(TypeError, match=r"^x must hold real numbers, got dtype complex128\."):
        learner.update(state, np.ones(2) * 1j, np.ones(outputs(method)), KEY)


BAD_OPTIONS = [
    ("decay", 1.5, ValueError),
    ("decay", -0.1, ValueError),
    ("decay", float("nan"), ValueError),
    ("decay", "1", TypeError),
    ("drift", -1e-9, ValueError),
    ("drift", float("inf"), ValueError),
    ("prior_precision", 0.0, ValueError),
    ("hidden_drift", -1e-9, ValueError),
    ("outlier_threshold", 0.0, ValueError),
    ("line_search", "halving", TypeError),
    ("prior_precision", -1.0, ValueError),
    ("inflation", 0.1, TypeError),
    ("rank", -1, ValueError),
    ("rank", 2.5, TypeError),
    ("buffer", 0, ValueError),
    ("inner_steps", 0, ValueError),
    ("optimiser", "adam", TypeError),
    ("learning_rate", 0.0, ValueError),
    ("precision_rate", 1.5, ValueError),
    ("examples", 0, ValueError),
    ("samples", 0, ValueError),
    ("iterations", -1, ValueError),
    ("curvature", "diagonal", TypeError),
]


@pytest.mark.parametrize(
    ("method", "option", "value", "error"),
    [(m, *bad) for m in bs.estimators.REGISTRY for bad in BAD_OPTIONS if accepts(m, bad[0])],
)
def test_bad_options_are_refused_by_name_and_value(method, option, value, error):
    with pytest.raises(error, match=rf"^{option} must be .*{value}"):
        make(method, **{option: value})


def test_a_likelihood_of_another_kind_is_refused(method):
    with pytest.raises(TypeError, match=r"^likelihood must be made by bayestream\.likelihoods"):
        bs.make(method, bs.models.mlp([2, 4, outputs(method)]), "gaussian")


def test_schedules_are_read_at_their_own_step(moving):
    """γ_t and q_t change at step 2: two steps with one pair of numbers, one with another."""
    changing = make(
        moving,
        decay=lambda step: jnp.where(step < 2, 0.9, 0.5),
        drift=lambda step: jnp.where(step < 2, 0.1, 0.2),
    )
    early, late = make(moving, decay=0.9, drift=0.1), make(moving, decay=0.5, drift=0.2)
    state = learn(changing, 2)
    assert_trees_close(state, learn(early, 2))
    assert_trees_close(predict(changing, state), predict(late, state))


def test_samples_have_the_beliefs_mean_and_covariance(bayesian):
    learner = make(bayesian)
    state, count = learn(learner), 20_000
    draws = np.asarray(jax.jit(learner.sample, static_argnums=2)(state, KEY, count))
    mean, covariance = map(np.asarray, moments(learner, state))
    deviation = np.sqrt(np.diag(covariance))
    error = (draws.mean(axis=0) - mean) / (deviation / np.sqrt(count))
    assert np.abs(error).max() < 5
    correlation_error = (np.cov(draws.T) - covariance) / np.outer(deviation, deviation)
    assert np.abs(correlation_error).max() < 5 * np.sqrt(2 / count)


def test_the_forecast_uses_the_noise_the_estimator_has_learnt(bayesian):
    learner = make(bayesian, "adaptive")
    state = learn(learner)

    @jax.jit
    def variances(state):
        forecast = bs.predictive.linearized(learner, state, XS[0])
        jacobian = jax.grad(lambda p: learner.model.apply(p, XS[0])[0])(learner.mean(state))
        return forecast.covariance[0, 0], learner.covariance_between(state, jacobian[None])[0, 0]

    whole, weights = variances(state)
    np.testing.assert_allclose(whole, weights + state.noise.noise[0, 0])


def test_the_covariance_of_each_example_is_a_block_of_the_covariance_between_them(bayesian):
    learner = make(bayesian)
    state = predict(learner, learn(learner))

    @jax.jit
    def both_ways(state):
        _, rows = output_rows(learner.model, learner.mean(state), XS[:3])
        each = learner.covariance_of(state, rows)
        return each, learner.covariance_between(state, to_dense(rows)).reshape(3, 2, 3, 2)

    each, between = map(np.asarray, both_ways(state))
    for n in range(3):
        np.testing.assert_allclose(each[n], between[n, :, n], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("method", ["slang"])
def test_a_forgotten_key_is_asked_for(method):
    learner = make(method)
    with pytest.raises(ValueError, match=r"^key must be given to an estimator that draws"):
        learner.update(learner.init(KEY), XS[0], YS[0])
