"""The methods LO-FI is compared with, against independent dense versions of them, in float64."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import bayestream as bs
import method_oracles as methods
import oracles
from follow import (
    DRIFTING,
    PRECISION,
    STEPS,
    assert_mean_of_draws,
    assert_means_follow,
    assert_same_beliefs,
    beliefs,
    designs,
    diagonals_of_precision,
    exact_posterior,
    initial,
    last,
    near,
    on_problems,
    one_step_over_keys,
    oracle,
    scalar_problem,
    shortened,
    start,
    states,
    stream,
    to_dense,
    view,
)
from problems import NOISE, Problem


@on_problems(
    ("optimiser", "buffer", "reduction", "inner_steps"),
    ("regression", "sgd", 1, "total", 1),
    ("classification", "sgd", 4, "average", 3),
    ("classification", "adam", 1, "average", 3),
    ("regression", "adam", 4, "total", 2),
)
def test_replay_sgd_is_a_loop_over_a_list_of_the_last_examples(
    problem, optimiser, buffer, reduction, inner_steps
):
    rate = getattr(optax, optimiser)(0.03)
    options = {"buffer": buffer, "optimiser": rate, "inner_steps": inner_steps}
    rule = getattr(bs.estimators, reduction)
    learner = bs.replay_sgd(problem.model, problem.likelihood, reduction=rule, **options)
    expected = oracle(methods.replay_sgd, problem, average=reduction == "average", **options)
    assert_means_follow(learner, problem, expected)


def test_ogd_is_replay_with_a_buffer_of_one():
    problem = shortened("classification")
    options = {"optimiser": optax.adam(0.01), "inner_steps": 3}
    replay = bs.replay_sgd(problem.model, problem.likelihood, buffer=1, **options)
    expected = [replay.mean(state) for _, state in states(replay, problem)]
    assert_means_follow(bs.ogd(problem.model, problem.likelihood, **options), problem, expected)


@on_problems(("inflation",), ("classification", None), ("regression", "hybrid"))
def test_bong_with_a_linearised_network_is_lofi(problem, inflation):
    rule = getattr(bs.inflation, inflation)(0.05) if inflation else None
    options = {"rank": 3, "prior_precision": PRECISION, "inflation": rule, **DRIFTING}
    options["line_search"] = None
    bong = bs.bong(
        problem.model, problem.likelihood, expectation=bs.expectations.linearized(), **options
    )
    lofi = bs.lofi(problem.model, problem.likelihood, **options)
    assert_same_beliefs(beliefs(bong, problem), beliefs(lofi, problem))


@on_problems(("rank",), ("classification", 2), ("regression", 2), ("regression", 17))
def test_bong_with_the_empirical_fisher_at_the_mean_adds_the_gradients_square(problem, rank):
    options = {"rank": rank, "prior_precision": PRECISION, **DRIFTING}
    expectation = bs.expectations.empirical_fisher(samples=0)
    bong = bs.bong(
        problem.model, problem.likelihood, expectation=expectation, line_search=None, **options
    )
    expected = oracle(methods.bong, problem, columns=methods.gradient_column, **options)
    assert_same_beliefs(beliefs(bong, problem), expected)


@pytest.mark.slow
def test_monte_carlo_bong_of_a_linear_model_has_the_exact_precision_and_is_right_on_average():
    linear = scalar_problem((4, 1), 4, 0.5)
    learner = bs.bong(
        linear.model,
        linear.likelihood,
        rank=linear.model.size,
        prior_precision=PRECISION,
        expectation=bs.expectations.monte_carlo(samples=3),
        line_search=None,
    )
    x, y, prior = linear.xs[0], linear.ys[0], initial(learner)
    after = one_step_over_keys(learner, prior, x, y, 2000)
    exact = exact_posterior(linear._replace(xs=linear.xs[:1], ys=linear.ys[:1]), 0.5)
    for covariance in after.covariance[:20]:
        near(covariance, exact.covariance)
    assert after.mean.std(axis=0).max() > 1e-3
    assert_mean_of_draws(after.mean, exact.mean)


@pytest.mark.slow
def test_the_sampled_empirical_fisher_is_right_on_average():
    linear = scalar_problem((4, 1), 4, 0.5)
    learner = bs.bong(
        linear.model,
        linear.likelihood,
        rank=linear.model.size,
        prior_precision=PRECISION,
        expectation=bs.expectations.empirical_fisher(samples=3),
        line_search=None,
    )
    state = last(learner, linear._replace(xs=linear.xs[:3], ys=linear.ys[:3]))
    before = to_dense(learner, state)
    squares = methods.mean_square_gradient(before, designs(linear)[3], linear.ys[3, 0], 0.5)
    after = one_step_over_keys(learner, state, linear.xs[3], linear.ys[3], 2000)
    expected = np.diag(np.linalg.inv(before.covariance) + squares)
    assert_mean_of_draws(diagonals_of_precision(after), expected)


def lrvga(problem: Problem, rank: int, iterations: int, **dynamics: float) -> bs.Estimator:
    options = {"rank": rank, "prior_precision": PRECISION, **dynamics}
    return bs.lrvga(problem.model, problem.likelihood, iterations=iterations, **options)


@on_problems(("iterations",), ("regression", 1), ("classification", 3))
def test_lrvga_is_the_exact_update_followed_by_factor_analysis(problem, iterations):
    expected = oracle(
        methods.bong,
        problem,
        rank=3,
        prior_precision=PRECISION,
        columns=lambda seen: seen.root,
        iterations=iterations,
        **DRIFTING,
    )
    learner = lrvga(problem, 3, iterations, **DRIFTING)
    assert_same_beliefs(beliefs(learner, problem), expected)


@pytest.mark.parametrize("iterations", [1, 20])
def test_lrvga_of_full_rank_counts_each_observation_once_whatever_the_iterations(iterations):
    linear = scalar_problem((20, 1), 200, 0.5)
    learner = lrvga(linear, linear.model.size, iterations)
    exact, final = exact_posterior(linear, 0.5), to_dense(learner, last(learner, linear))
    assert_same_beliefs([final], [exact])
    assert abs(oracles.gaussian_kl(final, exact)) < 1e-8


@pytest.mark.slow
def test_lrvga_comes_closer_to_the_exact_posterior_as_its_rank_grows():
    linear = scalar_problem((20, 1), 200, 0.5)
    learners = [lrvga(linear, rank, 5) for rank in (1, 3, 8, 20)]
    finals = [to_dense(learner, last(learner, linear)) for learner in learners]
    gaps = [oracles.gaussian_kl(final, exact_posterior(linear, 0.5)) for final in finals]
    assert all(more < less for less, more in pairwise(gaps)), gaps


@pytest.mark.slow
def test_em_never_raises_the_divergence_it_lowers():
    """One joint conditioning on the whole stream; no iterations at all is bong's truncation."""
    problem = shortened("regression")
    mean, see = start(problem), view(problem)
    exact = PRECISION * np.eye(mean.size)
    exact += sum(see(mean, x, y).fisher for x, y in stream(problem) if y is not None)
    options = {"rank": 3, "prior_precision": PRECISION}
    learners = [bs.bong(problem.model, problem.likelihood, line_search=None, **options)]
    learners += [lrvga(problem, 3, iterations) for iterations in (1, 2, 8)]
    gaps = []
    for learner in learners:
        update = jax.jit(learner.update_batch)
        state = update(initial(learner), problem.xs, problem.ys, jax.random.key(1))
        after = to_dense(learner, state)
        gaps.append(oracles.gaussian_kl(after, oracles.Dense(after.mean, np.linalg.inv(exact))))
    assert all(later <= earlier + 1e-10 for earlier, later in pairwise(gaps)), gaps
    assert gaps[-1] < 0.99 * gaps[0]


@on_problems(
    ("kind",),
    ("regression", "diagonal"),
    ("regression", "kronecker"),
    ("classification", "kronecker"),
)
def test_laplace_is_a_loop_over_tasks_with_a_dense_precision(problem, kind):
    options = {
        "buffer": 4,
        "optimiser": optax.adam(0.01),
        "inner_steps": 5,
        "prior_precision": PRECISION,
    }
    curvature = getattr(bs.estimators, f"{kind}_curvature")
    learner = bs.laplace(problem.model, problem.likelihood, curvature=curvature, **options)
    dense = {"diagonal": methods.DIAGONAL, "kronecker": methods.kronecker(problem.model.layers)}
    expected = oracle(methods.laplace, problem, curvature=dense[kind], **options)
    assert_same_beliefs(beliefs(learner, problem), expected)


def test_laplace_finds_the_map_under_its_anchor_and_moves_the_anchor_once_a_task():
    """Gradient descent until it stands still, hence 1e-6 for the mean."""
    linear, buffer = scalar_problem((3, 1), 10, 0.5), 4
    learner = bs.laplace(
        linear.model,
        linear.likelihood,
        buffer=buffer,
        optimiser=optax.sgd(0.02),
        inner_steps=1500,
        prior_precision=PRECISION,
        curvature=bs.estimators.diagonal_curvature,
    )
    rows, anchor, precision = designs(linear), start(linear), np.full(linear.model.size, PRECISION)
    for step, after in enumerate(beliefs(learner, linear)):
        task = slice(step - step % buffer, step + 1)
        fit = rows[task].T @ rows[task] / 0.5
        pull = precision * anchor + rows[task].T @ linear.ys[task, 0] / 0.5
        best = np.linalg.solve(np.diag(precision) + fit, pull)
        near(after.mean, best, 1e-6)
        near(after.covariance, np.diag(1 / (precision + np.diag(fit))))
        if (step + 1) % buffer == 0:
            anchor, precision = best, precision + np.diag(fit)


def test_the_kronecker_block_of_one_linear_layer_and_one_example_is_exact():
    model, x, y = bs.models.mlp([3, 2]), np.array([0.3, -1.0, 2.0]), np.array([1.0, -1.0])
    learner = bs.laplace(
        model,
        bs.likelihoods.gaussian(NOISE),
        prior_precision=PRECISION,
        curvature=bs.estimators.kronecker_curvature,
    )
    state = jax.jit(learner.update)(initial(learner), x, y, jax.random.key(1))
    jacobian = np.asarray(jax.jacobian(model.apply)(model.init(jax.random.key(0)), x))
    exact = jacobian.T @ np.linalg.inv(NOISE) @ jacobian + PRECISION * np.eye(model.size)
    near(to_dense(learner, state).covariance, np.linalg.inv(exact))


def test_orfit_is_its_dense_recursion():
    small = scalar_problem((2, 3, 1), STEPS, 0.1)
    learner = bs.orfit(small.model, small.likelihood, rank=4)
    assert_means_follow(learner, small, oracle(methods.orfit, small, rank=4))
    assert learner.covariance_between is None


def test_orfit_fits_every_point_seen_so_far_on_a_linear_problem():
    linear = scalar_problem((6, 1), 6, 0.1)
    learner, rows = bs.orfit(linear.model, linear.likelihood, rank=6), designs(linear)
    for step, (_, state) in enumerate(states(learner, linear), 1):
        near(rows[:step] @ np.asarray(learner.mean(state)), linear.ys[:step, 0])


def test_orfit_stays_where_it_is_when_nothing_new_can_be_learnt():
    """The same input again: its gradient lies in the span, up to rounding."""
    linear = scalar_problem((3, 1), 6, 0.1)
    again = linear._replace(xs=np.repeat(linear.xs[:2], 3, axis=0))
    learner = bs.orfit(linear.model, linear.likelihood, rank=3)
    means = [np.asarray(learner.mean(state)) for _, state in states(learner, again)]
    for step in (1, 2, 4, 5):
        near(means[step], means[step - 1])


@pytest.mark.parametrize(
    ("outputs", "likelihood", "complaint"),
    [(1, bs.likelihoods.categorical(), "(?i)gaussian"), (2, bs.likelihoods.gaussian(1.0), "outp")],
    ids=["categorical", "two-outputs"],
)
def test_orfit_refuses_what_it_cannot_fit(outputs, likelihood, complaint):
    with pytest.raises(ValueError, match=complaint):
        bs.orfit(bs.models.mlp([2, outputs]), likelihood, rank=2)


@on_problems(("rank",), ("regression", 3), ("classification", 3), ("regression", STEPS))
def test_ggt_is_preconditioned_by_its_last_gradients(problem, rank):
    """Of 13 gradients the window forgets ten, or none."""
    options = {"rank": rank, "prior_precision": PRECISION, "learning_rate": 0.3}
    learner = bs.ggt(problem.model, problem.likelihood, **options)
    assert_same_beliefs(beliefs(learner, problem), oracle(methods.ggt, problem, **options))


SLANG = {"prior_precision": PRECISION, "learning_rate": 0.05, "precision_rate": 0.2, "examples": 30}


@pytest.mark.slow
@pytest.mark.parametrize("rank", [6, 2], ids=["exact", "truncated"])
def test_slang_is_its_dense_recursion_for_the_gradient_it_drew(rank):
    """A linear model's g is c (x, 1): diag(Λ) shows c², and the mean must agree with c or −c.

    The eigenvalues come from a randomised solver, hence 1e-6.
    """
    linear, rate, examples = scalar_problem((9, 1), 6, 0.5), 0.2, 30
    learner = bs.slang(linear.model, linear.likelihood, rank=rank, samples=1, **SLANG)
    origin = mean = start(linear)
    prior = PRECISION * np.eye(mean.size)
    expected = methods.Slang(prior, np.zeros_like(prior))
    for design, after in zip(designs(linear), beliefs(learner, linear), strict=True):
        added = np.linalg.inv(after.covariance) - (1 - rate) * expected.precision - rate * prior
        square = np.diag(added) @ design**2 / np.sum(design**4) / (rate * examples)
        expected = methods.slang_precision(
            expected,
            square * np.outer(design, design),
            rank=rank,
            rate=rate,
            examples=examples,
            prior_precision=PRECISION,
        )
        near(np.linalg.inv(after.covariance), expected.precision, 1e-6)
        pulls = [
            examples * sign * np.sqrt(square) * design - PRECISION * (mean - origin)
            for sign in (1, -1)
        ]
        moves = [0.05 * np.linalg.solve(expected.precision, pull) for pull in pulls]
        errors = [np.max(np.abs(mean + move - after.mean)) for move in moves]
        assert min(errors) < 1e-6 * np.max(np.abs(moves))
        mean = after.mean


@pytest.mark.slow
def test_slangs_precision_is_right_on_average():
    linear, rate = scalar_problem((4, 1), 4, 0.5), SLANG["precision_rate"]
    learner = bs.slang(linear.model, linear.likelihood, rank=3, samples=3, **SLANG)
    state = last(learner, linear._replace(xs=linear.xs[:3], ys=linear.ys[:3]))
    before = to_dense(learner, state)
    squares = methods.mean_square_gradient(before, designs(linear)[3], linear.ys[3, 0], 0.5)
    after = one_step_over_keys(learner, state, linear.xs[3], linear.ys[3], 2000)
    fresh = SLANG["examples"] * np.diag(squares) + PRECISION
    expected = (1 - rate) * np.diag(np.linalg.inv(before.covariance)) + rate * fresh
    assert_mean_of_draws(diagonals_of_precision(after), expected)


def test_slang_keeps_its_rank_and_depends_on_its_key_alone():
    """Off the diagonal Λ is W Wᵀ, so a block away from the diagonal has the rank of W."""
    problem = shortened("classification")
    learner = bs.slang(problem.model, problem.likelihood, rank=2, samples=2, **SLANG)
    first, second = beliefs(learner, problem), beliefs(learner, problem)
    np.testing.assert_array_equal(first[-1].mean, second[-1].mean)
    np.testing.assert_array_equal(first[-1].covariance, second[-1].covariance)
    assert np.all(np.isfinite(first[-1].mean))
    assert np.all(np.linalg.eigvalsh(first[-1].covariance) > 0)
    half = problem.model.size // 2
    block = np.linalg.inv(first[-1].covariance)[:half, half:]
    values = np.linalg.svd(block, compute_uv=False)
    assert values[1] > 1e-6 * values[0] > 1e3 * values[2]
    update, state = jax.jit(learner.update), initial(learner)
    draws = [update(state, problem.xs[0], problem.ys[0], jax.random.key(k)) for k in (1, 2)]
    assert np.any(learner.mean(draws[0]) != learner.mean(draws[1]))


@pytest.mark.parametrize("rank", [1, 4])
@pytest.mark.parametrize("hidden_drift", [0.0, 1e-2])
def test_hilofi_is_its_published_recursion(rank, hidden_drift):
    problem = shortened("regression")
    options = {"prior_precision": PRECISION, "hidden_drift": hidden_drift, "line_search": None}
    learner = bs.hilofi(problem.model, problem.likelihood, rank=rank, **options)
    expected = oracle(
        methods.hilofi,
        problem,
        factor=np.asarray(initial(learner).belief.factor),
        last_variance=1 / PRECISION,
        hidden_drift=hidden_drift,
    )
    assert_same_beliefs(beliefs(learner, problem), expected)


def test_hilofi_with_a_last_layer_alone_to_learn_is_the_full_filter_on_it():
    """With hidden weights that are known, the rest is a linear model of the last activations."""
    problem = shortened("regression")
    options = {"rank": 0, "hidden_drift": 0.0, "prior_precision": PRECISION, "line_search": None}
    learner = bs.hilofi(problem.model, problem.likelihood, **options)
    hidden = problem.model.layers[-1].offset
    fixed = jnp.asarray(start(problem))
    head = bs.models.wrap(
        lambda last, x: problem.model.apply(jnp.concatenate([fixed[:hidden], last]), x),
        fixed[hidden:],
        inputs=problem.model.inputs,
    )
    full = bs.fcekf(head, problem.likelihood, prior_precision=PRECISION, line_search=None)
    ours, theirs = (to_dense(each, last(each, problem)) for each in (learner, full))
    near(ours.mean[hidden:], theirs.mean)
    near(ours.covariance[hidden:, hidden:], theirs.covariance)


def test_hilofi_refuses_a_network_whose_last_layer_it_cannot_see():
    with pytest.raises(ValueError, match=r"^model must have known layers, and hidden ones"):
        bs.hilofi(bs.models.mlp([2, 1]), bs.likelihoods.gaussian(1.0))
