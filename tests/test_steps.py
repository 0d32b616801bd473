"""How far a step goes and how much an example weighs, against dense versions written apart."""

from functools import cache, partial
from itertools import product
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayestream as bs
import step_oracles
from bayestream.gaussians import kernels
from problems import NOISE, PROBLEMS
from step_oracles import Halving

STEPS = 12
MISSING_AT = 5
OUTLIERS = [3, 7, 8]
WEAK, FIRM = 0.05, 2.0  # prior precisions
DYNAMICS = {"decay": 0.98, "drift": 0.01}
THRESHOLD = 2.0
FLOOR, LOWEST_RATE = 1e-8, 0.01  # of `adaptive_gaussian`
RTOL = 1e-8


def seldom(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


class Case(NamedTuple):
    """A stream and the options that the learner and its oracle are both given."""

    problem: str
    precision: float
    search: Halving | None = None
    threshold: float | None = None
    adaptive: bool = False
    batch: int = 0  # examples a step, one of them without a label; 0: one, by `update`


# With `sufficient` above its default, steps are cut short for every method.
CASES = {
    "regression-search": Case("regression", WEAK, Halving(sufficient=0.6, secant=False)),
    "classification-search": Case("classification", WEAK, Halving(secant=False)),
    "classification-stuck": Case("classification", WEAK, Halving(1, 0.6, secant=False)),
    "classification-secant": Case("classification", WEAK, Halving(sufficient=0.6)),
    "regression-outliers": Case("regression", FIRM, threshold=THRESHOLD),
    "classification-outliers": Case("classification", WEAK, threshold=THRESHOLD),
    "regression-both": Case("regression", WEAK, Halving(), THRESHOLD, adaptive=True),
    "classification-both": Case("classification", WEAK, Halving(sufficient=0.6), THRESHOLD),
    "regression-batch": Case("regression", WEAK, batch=3),
    "classification-batch": Case("classification", WEAK, batch=3),
    "regression-batch-both": Case(
        "regression", WEAK, Halving(sufficient=0.45), THRESHOLD, adaptive=True, batch=3
    ),
    "classification-batch-both": Case(
        "classification", WEAK, Halving(sufficient=0.45), THRESHOLD, batch=3
    ),
}


class Method(NamedTuple):
    """A filter of the library, and how many directions it keeps; `FULL` is as many as weights."""

    name: str
    rank: int | None


FULL = -1
METHODS = {
    "fcekf": Method("fcekf", None),
    "fdekf": Method("fdekf", None),
    "vdekf": Method("vdekf", None),
    "lofi-2": Method("lofi", 2),
    "lofi-full": Method("lofi", FULL),
    "lofi_spherical-2": Method("lofi_spherical", 2),
    "lofi_spherical-full": Method("lofi_spherical", FULL),
    "bong-2": Method("bong", 2),
    "bong-full": Method("bong", FULL),
}


def rank_of(method: Method, size: int) -> dict[str, int]:
    if method.rank is None:
        return {}
    return {"rank": size if method.rank == FULL else method.rank}


def oracle_of(method: Method) -> step_oracles.Filter:
    if method.name in ("fdekf", "vdekf"):
        return step_oracles.FDEKF if method.name == "fdekf" else step_oracles.VDEKF
    if method.rank in (None, FULL):
        return step_oracles.FCEKF
    spherical = method.name == "lofi_spherical"
    return (step_oracles.spherical if spherical else step_oracles.lofi)(method.rank)


def examples(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """(steps, examples a step, …) of xs and ys, with outliers and missing labels."""
    problem, width = PROBLEMS[case.problem](), case.batch or 1
    count = STEPS * width
    xs = problem.xs[:count].reshape(STEPS, width, 2)
    ys = problem.ys[:count].reshape(STEPS, width, *problem.ys.shape[1:]).copy()
    if case.threshold is not None and case.problem == "regression":
        ys[OUTLIERS, np.add(OUTLIERS, 1) % width] *= 50.0
    missing = -1 if case.problem == "classification" else np.nan
    if case.batch:
        ys[range(STEPS), np.arange(STEPS) % width] = missing
    else:
        ys[MISSING_AT] = missing
    return xs, ys


def likelihood(case: Case) -> bs.Likelihood:
    problem = PROBLEMS[case.problem]()
    return bs.likelihoods.adaptive_gaussian() if case.adaptive else problem.likelihood


def view(case: Case, noise: float) -> step_oracles.View:
    if case.problem == "regression":
        return step_oracles.gaussian(noise * np.eye(2) if case.adaptive else NOISE)
    plain = step_oracles.categorical()
    if case.search is None or not case.search.secant:
        return plain
    return step_oracles.with_secant(plain, PROBLEMS[case.problem]().likelihood)


class Expected(NamedTuple):
    """The oracle's belief and noise after each step, and what it did to get there."""

    means: list[np.ndarray]
    covariances: list[np.ndarray]
    noises: list[float]
    lengths: list[float]  # α
    weights: list[float]  # W


@cache
def expected(method: Method, case: Case) -> Expected:
    problem = PROBLEMS[case.problem]()
    oracle, result = oracle_of(method), Expected([], [], [], [], [])
    belief = oracle.start(np.asarray(problem.model.init(jax.random.key(0))), case.precision)
    noise, count = 1.0, 1
    for xs, ys in zip(*examples(case), strict=True):
        belief = oracle.predict(belief, **DYNAMICS)
        seen = ys >= 0 if ys.ndim == 1 else np.isfinite(ys).all(axis=1)
        if seen.any():
            belief, length, weights, errors = step_oracles.step(
                oracle,
                belief,
                problem.model.apply,
                view(case, noise),
                xs[seen],
                ys[seen],
                search=case.search,
                threshold=case.threshold,
            )
            result.lengths.append(length)
            result.weights.extend(weights)
        if case.adaptive and seen.any():
            count += len(weights)
            rate = max(LOWEST_RATE, len(weights) / count)
            noise = (1 - rate) * noise + rate * (np.mean((weights[:, None] * errors) ** 2) + FLOOR)
        mean, covariance = oracle.dense(belief)
        for series, value in zip(result, (mean, covariance, noise), strict=False):
            series.append(value)
    return result


def make(method: Method, case: Case) -> bs.Estimator:
    problem = PROBLEMS[case.problem]()
    return bs.make(
        method.name,
        problem.model,
        likelihood(case),
        prior_precision=case.precision,
        line_search=case.search and bs.line_search.halving(**case.search._asdict()),
        outlier_threshold=case.threshold,
        **rank_of(method, problem.model.size),
        **DYNAMICS,
    )


def summary(learner: bs.Estimator, state) -> tuple[jax.Array, ...]:
    """Mean, covariance, noise and refusals, through the public interface."""
    mean = learner.mean(state)
    covariance = learner.covariance_between(state, jnp.eye(learner.model.size, dtype=mean.dtype))
    noise = learner.likelihood(state).covariance(jnp.zeros(learner.model.outputs, mean.dtype))
    return mean, covariance, noise, learner.refused(state)


def initial(learner: bs.Estimator, seed: int = 0):
    with jax.disable_jit():
        return learner.init(jax.random.key(seed))


def summaries(learner: bs.Estimator, batch: int = 0):
    """(state, stream) → the summary after each step, with a leading axis."""

    def body(state, example):
        xs, ys = example
        state = learner.predict(state)
        if batch:
            state = learner.update_batch(state, xs, ys)
        else:
            state = learner.update(state, xs[0], ys[0])
        return state, summary(learner, state)

    return lambda state, stream: jax.lax.scan(body, state, stream)[1]


@cache
def runner(method: Method, case: Case, kernel: str):
    """The learner and its compiled run; the kernels in use are named, since tracing binds them."""
    learner = make(method, case)
    return learner, jax.jit(summaries(learner, case.batch))


@cache
def follow(method: Method, case: Case, kernel: str) -> list[np.ndarray]:
    """The summary after each step of the case's stream."""
    learner, run = runner(method, case, kernel)
    return list(map(np.asarray, run(initial(learner), examples(case))))


def assert_near(actual, reference) -> None:
    """Relative to each entry, or to the largest for the entries close to zero."""
    scale = np.max(np.abs(reference))
    np.testing.assert_allclose(actual, reference, rtol=RTOL, atol=RTOL * scale)


def assert_covariances_near(actual, reference) -> None:
    """Entries as shares of the two standard deviations, so that small variances count."""
    deviations = np.sqrt(np.diagonal(reference, axis1=-2, axis2=-1))
    scale = deviations[..., :, None] * deviations[..., None, :]
    np.testing.assert_allclose(actual / scale, reference / scale, rtol=RTOL, atol=RTOL)


def assert_same(one, other) -> None:
    """Two summaries with leading axes."""
    assert_near(one[0], other[0])
    assert_covariances_near(one[1], other[1])
    assert_near(one[2], other[2])
    np.testing.assert_array_equal(one[3], other[3])


# Compiling is what takes the time: each option is quick once, with one of the methods.
QUICK = {
    ("lofi-2", "regression-both"),
    ("lofi-2", "classification-secant"),
    ("fcekf", "classification-stuck"),
    ("fdekf", "regression-outliers"),
    ("vdekf", "regression-batch-both"),
}
FOLLOWED = [pair if pair in QUICK else seldom(*pair) for pair in product(METHODS, CASES)]


@pytest.mark.parametrize(("method", "case"), FOLLOWED)
def test_every_step_is_the_dense_one(method, case):
    method, case = METHODS[method], CASES[case]
    reference = expected(method, case)
    means, covariances, noises, refused = follow(method, case, bs.kernels.in_use())
    for step in range(STEPS):
        assert_near(means[step], reference.means[step])
        assert_covariances_near(covariances[step], reference.covariances[step])
    if case.adaptive:
        assert_near(noises, np.multiply.outer(reference.noises, np.eye(2)))
    assert not refused.any()


@pytest.mark.parametrize(("method", "case"), FOLLOWED)
def test_the_cases_above_try_what_they_are_for(method, case):
    """The line search does cut steps short, outliers do lose their weight."""
    stuck, case = case == "classification-stuck", CASES[case]
    lengths, weights = expected(METHODS[method], case)[-2:]
    assert (0.0 in lengths) == stuck
    assert any(0.0 < length < 1.0 for length in lengths) == (case.search is not None)
    assert (min(weights) < 0.9) == (case.threshold is not None)


@pytest.mark.skipif(not kernels.built(), reason="the native kernels were not built")
@pytest.mark.parametrize("case", ["regression-both", seldom("classification-batch-both")])
@pytest.mark.parametrize("method", ["lofi-2", *map(seldom, ["vdekf", "fdekf"])])
def test_native_and_jax_kernels_take_the_same_steps(method, case, monkeypatch):
    runs = []
    for kernel in ("native", "jax"):
        monkeypatch.setenv("BAYESTREAM_KERNELS", kernel)
        runs.append(follow(METHODS[method], CASES[case], kernel))
    assert_same(*runs)


@pytest.mark.parametrize(
    "method", ["lofi-2", *map(seldom, ["fcekf", "fdekf", "vdekf", "lofi_spherical-2", "bong-2"])]
)
def test_many_beliefs_at_once_are_each_alone(method):
    """Three beliefs, each with steps of its own length and an outlier of its own."""
    case = CASES["regression-both"]
    learner, alone = runner(METHODS[method], case, bs.kernels.in_use())
    starts = [initial(learner, seed) for seed in range(3)]
    streams = [tuple(np.roll(part, seed, axis=0) for part in examples(case)) for seed in range(3)]
    expected = [alone(start, stream) for start, stream in zip(starts, streams, strict=True)]
    together = jax.jit(jax.vmap(summaries(learner)))
    actual = together(
        *(jax.tree.map(lambda *leaves: jnp.stack(leaves), *each) for each in (starts, streams))
    )
    assert_same(list(map(np.asarray, actual)), list(map(np.stack, zip(*expected, strict=True))))


ETAS = [[0.4, -1.2, 0.9], [-2.0, 0.1, 1.5], [0.0, 0.0, 0.0], [9.0, -9.0, 2.0], [40.0, -3.0, -40.0]]
LABELS = {
    "categorical": [0, 1, 2, [0.2, 0.5, 0.3]],
    "bernoulli": [[0.0, 1.0, 1.0], [1.0, 0.0, 0.0], [1.0, 1.0, 0.0]],
    "poisson": [[0.0, 3.0, 7.0], [20.0, 0.0, 1.0]],
    "gaussian": [[-1.3, 0.2, 4.0], [100.0, -100.0, 0.0]],
    "student_t": [[-1.3, 0.2, 4.0], [100.0, -100.0, 0.0]],
}
LIKELIHOODS = {
    "categorical": bs.likelihoods.categorical(),
    "bernoulli": bs.likelihoods.bernoulli(),
    "poisson": bs.likelihoods.poisson(),
    "gaussian": bs.likelihoods.gaussian(np.diag([0.3, 1.0, 2.0]) + 0.1),
    "student_t": bs.likelihoods.student_t(0.5, dof=3.0),
}


@cache
def _pairs(name: str):
    likelihood = LIKELIHOODS[name]

    def pairs(eta, y):
        return (
            *likelihood.seen(eta, y),
            *likelihood.secant(eta, y),
            jax.grad(likelihood.log_density)(eta, y),
        )

    return jax.jit(pairs)


def fisher_and_secant(name: str, eta, y) -> tuple[np.ndarray, ...]:
    """(B, v) of the Fisher information and of the secant, and the score by differentiation."""
    return tuple(map(np.asarray, _pairs(name)(jnp.asarray(eta), jnp.asarray(y))))


@pytest.mark.parametrize("name", LABELS)
def test_the_secant_pair_makes_the_score_from_no_less_curvature(name):
    for eta, y in product(ETAS, LABELS[name]):
        B, _, secant, residual, score = fisher_and_secant(name, eta, y)
        np.testing.assert_allclose(secant @ residual, score, rtol=1e-9, atol=1e-12)
        scale = np.linalg.norm(secant, axis=1, keepdims=True)
        added = secant @ secant.T - B @ B.T
        assert np.linalg.eigvalsh(added / (scale * scale.T)).min() >= -1e-12


@pytest.mark.parametrize("name", ["gaussian", "student_t"])
def test_the_secant_pair_of_a_symmetric_noise_is_the_fisher_pair(name):
    for eta, y in product(ETAS, LABELS[name]):
        B, v, secant, residual, _ = fisher_and_secant(name, eta, y)
        np.testing.assert_allclose(secant @ secant.T, B @ B.T, rtol=1e-12)
        np.testing.assert_allclose(secant @ residual, B @ v, rtol=1e-12)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("gap", [5.0, 30.0, 300.0])
@pytest.mark.parametrize("classes", [3, *map(seldom, [2, 10])])
def test_a_newton_step_from_a_far_wrong_class_fits_the_label_and_goes_no_further(
    classes, gap, dtype
):
    @jax.jit
    def measure(eta, y):
        likelihood = LIKELIHOODS["categorical"]
        factor, score = likelihood.secant(eta, y)[0], likelihood.score(eta, y)
        return score @ score, jnp.sum((score @ factor) ** 2), -likelihood.log_density(eta, y)

    square, curvature, loss = map(float, measure(jnp.zeros(classes, dtype).at[0].set(gap), 1))
    assert 0.5 <= (square / curvature) / (loss / square) <= 2.5


FILTERS = ["bong", "fcekf", "fdekf", "lofi", "lofi_spherical", "vdekf"]
GUARDED = [m if m in ("lofi", "vdekf") else seldom(m) for m in FILTERS]
KEEPING = [m if m == "vdekf" else seldom(m) for m in FILTERS]
BOTH = {"outlier_threshold": THRESHOLD}
NEITHER = {"line_search": None}


def cast(state, dtype):
    return jax.tree.map(
        lambda leaf: leaf.astype(dtype) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf, state
    )


def assert_same_to_rounding(one, other, dtype) -> None:
    """Low-rank beliefs are factorised once more by every update, also by one without rows."""
    np.testing.assert_array_equal(one[0], other[0])
    deviations = np.sqrt(np.diag(other[1]))
    scale = np.outer(deviations, deviations)
    atol = 16 * jnp.finfo(dtype).eps
    np.testing.assert_allclose(one[1] / scale, other[1] / scale, rtol=0, atol=atol)
    np.testing.assert_array_equal(one[2], other[2])


def guarded(method: str, **options) -> bs.Estimator:
    model, noise = bs.models.mlp([2, 3, 2]), bs.likelihoods.adaptive_gaussian()
    rank = {"rank": 2} if method in ("lofi", "lofi_spherical", "bong") else {}
    return bs.make(method, model, noise, prior_precision=FIRM, **rank, **options)


@pytest.mark.parametrize("options", [BOTH, seldom(NEITHER)], ids=["both", "neither"])
@pytest.mark.parametrize("dtype", [jnp.float32, seldom(jnp.float64)])
@pytest.mark.parametrize("method", GUARDED)
def test_an_update_that_is_not_finite_is_refused_and_counted(method, dtype, options):
    learner = guarded(method, **options)
    update, look = jax.jit(learner.update), jax.jit(partial(summary, learner))
    problem = PROBLEMS["regression"]()
    xs, ys = problem.xs[:2].astype(dtype), problem.ys[:2].astype(dtype)
    before = update(cast(initial(learner), dtype), xs[0], ys[0])
    huge, *not_finite = (
        np.full(2, bad, dtype) for bad in (jnp.finfo(dtype).max / 10, np.inf, np.nan)
    )
    after = update(before, huge, ys[0])
    assert_same_to_rounding(look(after), look(before), dtype)
    assert (learner.refused(before), learner.refused(after)) == (0, 1)
    for bad in not_finite:  # these are missing, as a label may be
        after = update(after, bad, ys[0])
        assert_same_to_rounding(look(after), look(before), dtype)
        assert learner.refused(after) == 1
    later, undisturbed = look(update(after, xs[1], ys[1])), look(update(before, xs[1], ys[1]))
    for one, other in zip(later[:3], undisturbed[:3], strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=64 * jnp.finfo(dtype).eps)
    assert later[3] == 1
    assert np.any(later[0] != learner.mean(before))


@pytest.mark.slow
@pytest.mark.parametrize("options", [BOTH, NEITHER], ids=["both", "neither"])
@pytest.mark.parametrize("method", FILTERS)
def test_a_batch_is_refused_whole(method, options):
    """Two of its three examples could be learnt from."""
    learner, problem = guarded(method, **options), PROBLEMS["regression"]()
    update, look = jax.jit(learner.update_batch), jax.jit(partial(summary, learner))
    before = update(initial(learner), problem.xs[:3], problem.ys[:3])
    xs = problem.xs[3:6].copy()
    xs[1] = 1e200
    after = update(before, xs, problem.ys[3:6])
    assert_same_to_rounding(look(after), look(before), jnp.float64)
    assert learner.refused(after) == 1
    learnt = update(after, problem.xs[3:6], problem.ys[3:6])
    assert learner.refused(learnt) == 1
    assert np.any(learner.mean(learnt) != learner.mean(before))


@pytest.mark.parametrize("method", KEEPING)
def test_decay_without_a_drift_keeps_the_prior(method):
    problem = PROBLEMS["regression"]()
    for decay in (0.9, 1.0):
        options = {"prior_precision": FIRM, "decay": decay}
        learner = bs.make(method, problem.model, problem.likelihood, **options)
        state = initial(learner)
        mean, covariance, *_ = summary(learner, learner.predict(learner.predict(state)))
        assert_near(mean, learner.mean(state))
        assert_near(covariance, np.eye(problem.model.size) / FIRM)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["lofi", "fcekf", "lofi_spherical"])
def test_decay_without_a_drift_is_the_papers_about_the_first_weights(method):
    problem = PROBLEMS["regression"]()
    first = problem.model.init(jax.random.key(0))
    moved = bs.models.wrap(
        lambda params, x: problem.model.apply(first + params, x), jnp.zeros_like(first), inputs=(2,)
    )
    options = {"prior_precision": WEAK, "decay": 0.9}
    returning = bs.make(method, problem.model, problem.likelihood, **options)
    drift = bs.steady_state(**options)
    papers = bs.make(method, moved, problem.likelihood, drift=drift, **options)
    stream = (problem.xs[:6, None], problem.ys[:6, None])
    found, expected = (
        jax.jit(summaries(learner))(initial(learner), stream) for learner in (returning, papers)
    )
    assert_near(found[0], first + expected[0])
    assert_covariances_near(found[1], expected[1])
    np.testing.assert_array_equal(
        returning.sample(initial(returning), jax.random.key(1), 3),
        first + papers.sample(initial(papers), jax.random.key(1), 3),
    )
