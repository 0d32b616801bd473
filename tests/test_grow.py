"""A network that has grown is the smaller one, until what is new appears."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import bayestream as bs

RNG = np.random.default_rng(0)
STEPS = 8
XS = RNG.normal(size=(2 * STEPS, 2))
CLASSES = np.where(XS[:, 0] > 0, 1, 0)
NUMBERS = XS @ np.array([[1.0], [-0.5]]) + 0.1 * RNG.normal(size=(2 * STEPS, 1))
OPTIONS = {
    "laplace": {"buffer": 3, "prior_precision": 2.0},
    "ogd": {"optimiser": optax.adam(1e-2)},
    "orfit": {"rank": 3},
    "replay_sgd": {"buffer": 3, "optimiser": optax.adam(1e-2)},
}
MOVING = {"rank": 3, "decay": 0.98, "prior_precision": 2.0}  # back to the prior
RANKED = {"bong", "ggt", "lofi", "lofi_spherical", "lrvga"}
REFUSED = {"hilofi", "slang"}
SELF_TUNING = "self_tuning"


def made(method, sizes, likelihood):
    if method == SELF_TUNING:
        return bs.self_tuning(sizes, likelihood, rank=3, fan_in=2)
    model = bs.models.mlp(sizes, fan_in_scaled=True, fan_in=2)
    ranked = {"rank": 3} if method in RANKED else {}
    return bs.make(method, model, likelihood, **OPTIONS.get(method, ranked))


def forecast(learner, state, xs):
    """What it says of y, and of its doubt."""
    found = bs.predictive.default(learner, learner.predict(state), xs)
    moments = found.probabilities if hasattr(found, "logits") else found.covariance
    return np.asarray(found.mean), np.asarray(moments)


def learnt(learner, state, examples):
    state, _ = bs.run(learner, state, examples, record=None, key=jax.random.key(5))
    return state


def assert_growing_changes_nothing(small, large, ys, *, outputs):
    """Nothing at once, and nothing while new inputs are zero and new outputs have no target."""
    wide = np.concatenate([XS, np.zeros((len(XS), 3))], axis=1)
    before = learnt(small, small.init(jax.random.key(0)), (XS[:STEPS], ys[:STEPS]))
    grown = bs.grow(small, before, large, jax.random.key(1))
    targets = ys
    if outputs and ys.ndim == 2:
        targets = np.concatenate([ys, np.full((len(ys), outputs), np.nan)], axis=1)
    count = small.model.outputs

    def assert_same(one, other):
        for a, b in zip(forecast(small, one, XS), forecast(large, other, wide), strict=True):
            b = b[..., :count, :count] if a.ndim == 3 else b[..., :count]
            np.testing.assert_allclose(b, a, rtol=0, atol=1e-10)

    assert_same(before, grown)
    after = learnt(small, before, (XS[STEPS:], ys[STEPS:]))
    assert np.abs(forecast(small, after, XS)[0] - forecast(small, before, XS)[0]).max() > 1e-3
    assert_same(after, learnt(large, grown, (wide[STEPS:], targets[STEPS:])))
    return grown


def each(methods):
    return [m if m == "lofi" else pytest.param(m, marks=pytest.mark.slow) for m in methods]


GROWING = [m for m in (SELF_TUNING, *bs.estimators.REGISTRY) if m not in REFUSED]


@pytest.mark.parametrize("method", each(m for m in GROWING if m != "orfit"))
def test_growing_then_ignoring_new_features_and_classes_is_never_having_grown(method):
    classes = bs.likelihoods.adaptive_categorical()
    small, large = (made(method, sizes, classes) for sizes in ([2, 3, 2], [5, 3, 4]))
    assert_growing_changes_nothing(small, large, CLASSES, outputs=2)


@pytest.mark.slow
@pytest.mark.parametrize("method", GROWING)
def test_growing_then_ignoring_new_features_is_never_having_grown_for_numbers(method):
    noise = bs.likelihoods.gaussian(0.3)
    if method != "orfit":
        noise = bs.likelihoods.adaptive_student_t()
    small, large = (made(method, sizes, noise) for sizes in ([2, 3, 1], [5, 3, 1]))
    assert_growing_changes_nothing(small, large, NUMBERS, outputs=0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("lofi", MOVING),
        ("lofi", {**MOVING, "decay": 1.0, "inflation": bs.inflation.bayesian(0.01)}),
        ("lofi", {"rank": 2, "line_search": None}),
        ("fcekf", {"decay": 0.98, "drift": 0.01}),
        ("laplace", {"buffer": 3, "curvature": bs.estimators.kronecker_curvature}),
    ],
)
def test_growing_keeps_what_a_state_remembers_beside_its_belief(method, options):
    """The prior's mean, matrices of noise, Kronecker factors; numbers that have no target yet."""
    noise = bs.likelihoods.adaptive_gaussian(full=True)
    small, large = (
        bs.make(method, bs.models.mlp(sizes, fan_in=2), noise, **options)
        for sizes in ([2, 3, 1], [5, 3, 2])
    )
    assert_growing_changes_nothing(small, large, NUMBERS, outputs=1)


@pytest.mark.slow
def test_new_weights_have_the_priors_mean_and_precision_and_learn():
    small, large = (
        bs.lofi(
            bs.models.mlp(sizes, fan_in_scaled=True, fan_in=1),
            bs.likelihoods.gaussian(0.1),
            rank=2,
            prior_precision=4.0,
        )
        for sizes in ([1, 3, 1], [2, 3, 1])
    )
    state = learnt(small, small.init(jax.random.key(0)), (XS[:, :1], NUMBERS))
    key = jax.random.key(1)
    grown, fresh = bs.grow(small, state, large, key), large.init(key)
    new = slice(3, 6)  # the second input's row of the first layer
    for part in ("mean", "diag", "factor"):
        one, other = (np.asarray(getattr(s.belief.base, part)) for s in (grown, fresh))
        np.testing.assert_array_equal(one[..., new], other[..., new])
    assert np.all(np.asarray(grown.belief.base.diag)[new] == 4.0)
    # y depends on the new feature alone: once it is there, it is learnt.
    rng = np.random.default_rng(1)
    xs = rng.normal(size=(200, 2))
    after = learnt(large, grown, (xs, xs[:, 1:]))
    mean, _ = forecast(large, after, xs)
    assert np.sqrt(np.mean((mean - xs[:, 1:]) ** 2)) < 0.3


@pytest.mark.slow
def test_a_class_that_was_never_seen_has_no_probability_and_then_some():
    learner = bs.lofi(bs.models.mlp([2, 4]), bs.likelihoods.adaptive_categorical(), rank=3)
    state = learnt(learner, learner.init(jax.random.key(0)), (XS, CLASSES))
    for of in (bs.predictive.probit, bs.predictive.plugin):
        probabilities = np.asarray(of(learner, state, XS).probabilities)
        assert np.all(probabilities[:, 2:] == 0)
        np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    third = learnt(learner, state, (XS[:1], np.array([2])))
    assert np.all(np.asarray(bs.predictive.probit(learner, third, XS).probabilities)[:, 2] > 0)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: grown("hilofi", [2, 3, 1]), r"^the learner must be one that can grow: hilofi"),
        (lambda: grown("slang", [2, 3, 1]), r"^the learner must be one that can grow: slang"),
        (lambda: grown("vdekf", [2, 4, 1]), r"^a network may grow in inputs and outputs alone"),
        (lambda: grown("vdekf", [1, 3, 1]), r"^a network may grow in inputs and outputs alone"),
        (lambda: grown("vdekf", [3, 3, 1], fan_in=3), r"give bs\.models\.mlp the fan_in it had, 2"),
        (lambda: grown("vdekf", [3, 3, 1], after="lofi"), r"^after must have the same settings"),
    ],
)
def test_what_cannot_grow_is_refused_in_a_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()


def grown(method, sizes, *, fan_in=2, after=None):
    noise = bs.likelihoods.gaussian(0.1)
    small = bs.make(method, bs.models.mlp([2, 3, 1], fan_in_scaled=True), noise)
    large = bs.models.mlp(sizes, fan_in_scaled=True, fan_in=fan_in)
    state = small.init(jax.random.key(0))
    return bs.grow(small, state, bs.make(after or method, large, noise), jax.random.key(1))


@pytest.mark.slow
def test_the_scores_of_classes_seen_so_far_are_those_of_categorical():
    """Log density, score, B and v of three outputs, of which two are in use, are those of two."""
    two, adaptive = bs.likelihoods.categorical(), bs.likelihoods.adaptive_categorical()
    carry = adaptive.init(3, float)._replace(seen=jnp.array([True, False, False]))
    likelihood = adaptive.at(carry, jnp.array(0))
    eta = jnp.array([0.3, -1.2, 0.7])
    for y in (jnp.array(1), jnp.array([0.2, 0.8, 0.0])):
        short = y if y.ndim == 0 else y[:2]
        for name in ("log_density", "score"):
            found = np.asarray(getattr(likelihood, name)(eta, y))
            expected = np.asarray(getattr(two, name)(eta[:2], short))
            found = found[:2] if found.ndim else found
            np.testing.assert_allclose(found, expected, atol=1e-12)
        for name in ("seen", "secant"):
            (B, v), (b, u) = getattr(likelihood, name)(eta, y), getattr(two, name)(eta[:2], short)
            np.testing.assert_allclose(B[:2, :2], b, atol=1e-12)
            np.testing.assert_allclose(v[:2], u, atol=1e-12)
            assert not np.any(np.concatenate([B[2], B[:, 2], v[2:]]))
