"""LO-FI's alternative diagonals (the paper's appendix) minimise what they say they do."""

import jax
import numpy as np
import pytest

import bayestream as bs
import oracles
from bayestream.gaussians import lazy_dlr
from follow import DRIFTING, PRECISION, near, on_problems, states, stream, to_dense, view
from problems import Problem

settle = jax.jit(lazy_dlr.settle)


def with_diagonal(
    problem: Problem,
    rank: int,
    name: str | None,
    sweeps: int = 0,
    prior_precision: float = PRECISION,
) -> bs.Estimator:
    rule = getattr(bs.estimators, name)(sweeps=sweeps) if name else None
    options = {"rank": rank, "prior_precision": prior_precision, "line_search": None, **DRIFTING}
    return bs.lofi(problem.model, problem.likelihood, diagonal_update=rule, **options)


def exact_steps(learner: bs.Estimator, problem: Problem):
    """At each observed step: its example, the states before and after, Σ* before truncation."""
    see = view(problem)
    steps = zip(problem.xs, problem.ys, states(learner, problem), stream(problem), strict=True)
    for x, y, (predicted, updated), (_, target) in steps:
        if target is not None:
            before = to_dense(learner, predicted)
            fisher = see(before.mean, x, target).fisher
            exact = np.linalg.inv(np.linalg.inv(before.covariance) + fisher)
            yield (x, y), predicted, updated, oracles.Dense(before.mean, exact)


@pytest.mark.slow
@on_problems(("rank",), ("regression", 1), ("regression", 4), ("classification", 3))
def test_forward_kl_keeps_the_diagonal_of_the_exact_covariance(problem, rank):
    """A fixed-point iteration, hence 1e-6."""
    learner = with_diagonal(problem, rank, "forward_kl", 2000)
    for _, _, updated, exact in exact_steps(learner, problem):
        covariance = to_dense(learner, updated).covariance
        np.testing.assert_allclose(np.diag(covariance), np.diag(exact.covariance), rtol=1e-6)


@on_problems(("rank",), ("regression", 1), ("regression", 4), ("classification", 3))
def test_reverse_kl_meets_the_papers_condition(problem, rank):
    """diag(Σ − Σ Σ*⁻¹ Σ) = 0; a fixed-point iteration, hence 1e-6."""
    learner = with_diagonal(problem, rank, "reverse_kl", 2000)
    for _, _, updated, exact in exact_steps(learner, problem):
        covariance = to_dense(learner, updated).covariance
        product = covariance @ np.linalg.inv(exact.covariance) @ covariance
        np.testing.assert_allclose(np.diag(product), np.diag(covariance), rtol=1e-6)


def divergence(name: str, ours: oracles.Dense, exact: oracles.Dense) -> float:
    """The divergence that the rule of that name minimises; the means are taken to agree."""
    ours = ours._replace(mean=exact.mean)
    return oracles.gaussian_kl(*((ours, exact) if name == "reverse_kl" else (exact, ours)))


BOTH = pytest.mark.parametrize("name", ["forward_kl", "reverse_kl"])


def assert_never_further(problem: Problem, name: str, learner, plain) -> None:
    """Both updates from the same predicted state; W and the mean stay plain LO-FI's."""
    update, totals = jax.jit(plain.update), np.zeros(2)
    for example, predicted, updated, exact in exact_steps(learner, problem):
        simple = update(predicted, *example)
        ours, theirs = settle(updated.belief), settle(simple.belief)
        near(ours.mean, theirs.mean)
        near(ours.factor.T @ ours.factor, theirs.factor.T @ theirs.factor)
        gaps = [divergence(name, to_dense(learner, state), exact) for state in (updated, simple)]
        assert gaps[0] <= gaps[1] + 1e-10, gaps
        totals += gaps
    assert totals[0] < totals[1]


@pytest.mark.slow
@BOTH
@on_problems(
    ("sweeps",),
    ("regression", 1),
    ("regression", 10),
    ("classification", 3),
)
def test_a_kl_diagonal_is_never_further_than_plain_lofis(problem, name, sweeps):
    learner, plain = with_diagonal(problem, 2, name, sweeps), with_diagonal(problem, 2, None)
    assert_never_further(problem, name, learner, plain)


@BOTH
@on_problems(("sweeps",), ("regression", 3), ("regression", 100))
def test_a_kl_diagonal_is_never_further_under_a_weak_prior(problem, name, sweeps):
    """The paper's forward condition is then met only by a negative Υ, from the first step on."""
    learner = with_diagonal(problem, 1, name, sweeps, prior_precision=0.01)
    plain = with_diagonal(problem, 1, None, prior_precision=0.01)
    assert_never_further(problem, name, learner, plain)


@BOTH
@on_problems((), ("regression",))
def test_a_converged_kl_diagonal_is_finite_under_a_weak_prior(problem, name):
    learner = with_diagonal(problem, 1, name, 2000, prior_precision=0.01)
    for _, state in states(learner, problem):
        belief = settle(state.belief)
        assert np.all(np.isfinite(belief.mean)), belief.diag
        assert np.all(belief.diag > 0), belief.diag
