"""L-RVGA: recursive variational Gaussian inference by factor analysis of the precision."""

from __future__ import annotations

from bayestream.checks import check_rank, check_whole
from bayestream.estimators.description import described
from bayestream.estimators.expectations import Expectation
from bayestream.estimators.filter import gaussian_filter
from bayestream.estimators.guard import checked
from bayestream.estimators.inflation import Inflation
from bayestream.estimators.spaces import Range, Space
from bayestream.gaussians import dlr, fits, lazy_dlr
from bayestream.gaussians.dlr import DLRGaussian
from bayestream.gaussians.innovation import Innovation
from bayestream.networks import rows
from bayestream.networks.linearize import Observation
from bayestream.types import (
    Array,
    Estimator,
    EvolvingLikelihood,
    Key,
    Likelihood,
    Model,
    ScalarOrSchedule,
)

LRVGA_SPACE: Space = {"prior_precision": Range(1e-2, 1e3)}


@described
def lrvga(
    model: Model,
    likelihood: Likelihood | EvolvingLikelihood,
    *,
    rank: int = 10,
    prior_precision: float = 10.0,
    decay: ScalarOrSchedule = 1.0,
    drift: ScalarOrSchedule | None = None,
    inflation: Inflation | None = None,
    expectation: Expectation | None = None,
    iterations: int = 3,
) -> Estimator:
    """Limited-memory recursive variational Gaussian approximation (Lambert et al. 2023).

    Update:  Λ* = Σ⁻¹ − E[∇² log p],  μ ← μ + Λ*⁻¹ E[∇ log p],  and Λ* ≈ Ψ + W Wᵀ by `iterations` of
    EM for factor analysis. They start from LO-FI's truncation, and descend KL(q ‖ N(μ, Λ*⁻¹)): at
    a rank that holds Λ* there is nothing left to do. An observation enters Λ* once, however many
    iterations there are.

    Args:
        model: the network.
        likelihood: what its output means.
        rank: L.
        prior_precision: the precision of every weight before the first observation, 1/σ₀².
        decay: γ_t as in `lofi`; the published algorithm has none.
        drift: q_t as in `lofi`; the published algorithm has none.
        inflation: as in `lofi`.
        expectation: `bs.expectations.linearized()` (the default) or `monte_carlo(samples=…)`.
        iterations: of EM, an observation.

    >>> import jax, jax.numpy as jnp, bayestream as bs
    >>> learner = bs.lrvga(bs.models.mlp([2, 8, 1]), bs.likelihoods.gaussian(0.1), rank=3)
    >>> state = jax.jit(learner.update)(learner.init(jax.random.key(0)), jnp.ones(2), jnp.ones(1))
    >>> state.belief.factor.shape
    (3, 33)
    """
    check_rank(rank, model.size)
    check_whole("iterations", iterations, 0)

    def start(mean: Array, eta: Array) -> DLRGaussian:
        return dlr.start(mean, eta, rank)

    def update(
        belief: DLRGaussian, observation: Observation, threshold: float | None, key: Key | None
    ) -> tuple[DLRGaussian, Innovation]:
        G, residual = observation.rows, observation.residual
        still = lazy_dlr.at_rest(belief, ever_moves=True)
        first, innovation = lazy_dlr.condition(still, G, residual, threshold)
        goal = fits.target(belief, rows.weighted(G, innovation.trust))
        after = fits.factor_analysis(first.base, goal, sweeps=iterations)
        return checked(after, belief, innovation)

    return gaussian_filter(
        model,
        likelihood,
        family=dlr,
        start=start,
        condition=update,
        prior_precision=prior_precision,
        decay=decay,
        drift=drift,
        inflation=inflation,
        expectation=expectation,
    )
